"""The list of public names, and the table of them in `docs/stability.md`.

`python -m tests.contracts.public_names` writes both from what the packages export.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

PACKAGES = (
    "trimtab",
    "trimtab.stores",
    "trimtab.providers",
    "trimtab.testing",
    "trimtab.replay",
    "trimtab.observe",
    "trimtab_serve",
    "trimtab_serve.client",
    "trimtab_serve.metrics",
    "trimtab_serve.testing",
)
"""Whose `__all__` is public; `trimtab.integrations.<name>` joins them with its first module."""
FILE = Path(__file__).with_suffix(".txt")
PAGE = Path(__file__).parents[2] / "docs" / "stability.md"
BEGIN = "<!-- names: written by `python -m tests.contracts.public_names` -->\n"
END = "<!-- names end -->\n"
WITHOUT_DOCSTRING = {
    "trimtab.DialectName": "The names of the wire formats, for annotations.",
    "trimtab_serve.ENVIRON": "The environment of this process, withheld secrets included.",
    "trimtab.Policy": "A function of a window and a budget that returns a `Decision`.",
    "trimtab.PolicyName": "The names of the presets, for annotations.",
    "trimtab.Request": "What `Context.request()` returns: keyword arguments of an SDK's `create`.",
    "trimtab.TurnEvent": "Any of the values that `on_event` hears.",
    "trimtab.__version__": "The version of this release.",
    "trimtab_serve.metrics.REGISTRY": "The registry of Prometheus that our metrics are in.",
}
"""Constants and aliases, which have no docstring of their own at run time."""


def exported() -> list[str]:
    """Every public name as `package.Name`, sorted."""
    return sorted(
        f"{package}.{name}"
        for package in PACKAGES
        for name in importlib.import_module(package).__all__
    )


def describe(full_name: str) -> str:
    """The first sentence of its docstring."""
    if full_name in WITHOUT_DOCSTRING:
        return WITHOUT_DOCSTRING[full_name]
    package, _, name = full_name.rpartition(".")
    text = inspect.getdoc(getattr(importlib.import_module(package), name)) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[.!?]) (?=[A-Z`])", paragraph)[0].replace("|", "\\|")


def table() -> str:
    """A heading and a table for each package."""
    parts: list[str] = []
    for package in PACKAGES:
        names = sorted(importlib.import_module(package).__all__, key=str.lower)
        rows = "".join(f"| `{name}` | {describe(f'{package}.{name}')} |\n" for name in names)
        parts.append(f"### `{package}`\n\n| name | meaning |\n|---|---|\n{rows}")
    return "\n".join(parts)


def replaced(page: str) -> str:
    """The page with the tables as they are now."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    FILE.write_text("\n".join(exported()) + "\n", encoding="utf-8")
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
