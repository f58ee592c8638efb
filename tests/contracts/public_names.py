"""The list of public names, and the table of them in `docs/stability.md`.

`python -m tests.contracts.public_names` writes both from what the packages export.
"""

from __future__ import annotations

import ast
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
    "trimtab.integrations.conversations",
    "trimtab_serve",
    "trimtab_serve.client",
    "trimtab_serve.metrics",
    "trimtab_serve.testing",
)
"""Whose `__all__` is public."""
FRAMEWORK_MODULES = (
    "trimtab.integrations.langchain",
    "trimtab.integrations.openai_agents",
    "trimtab.integrations.pydantic_ai",
)
"""Their `__all__` is public as well. Each needs a framework, so they are read, not imported."""
SOURCE = Path(__file__).parents[2] / "packages" / "trimtab" / "src"
FILE = Path(__file__).with_suffix(".txt")
PAGE = Path(__file__).parents[2] / "docs" / "stability.md"
BEGIN = "<!-- names: written by `python -m tests.contracts.public_names` -->\n"
END = "<!-- names end -->\n"
WITHOUT_DOCSTRING = {
    "trimtab.DialectName": "The names of the wire formats, for annotations.",
    "trimtab_serve.ENVIRON": "The environment of this process, withheld secrets included.",
    "trimtab.Policy": "A function of a window and a budget that returns a `Decision`.",
    "trimtab.PolicyName": "The names of the presets, for annotations.",
    "trimtab.RECALL_TOOLS": "Definitions of the recall tools, in Anthropic's form.",
    "trimtab.Request": "What `Context.request()` returns: keyword arguments of an SDK's `create`.",
    "trimtab.TurnEvent": "Any of the values that `on_event` hears.",
    "trimtab.__version__": "The version of this release.",
    "trimtab_serve.metrics.REGISTRY": "The registry of Prometheus that our metrics are in.",
}
"""Constants and aliases, which have no docstring of their own at run time."""


def list_names(module: str) -> list[str]:
    """The names in the `__all__` of a public package or module."""
    if module in FRAMEWORK_MODULES:
        return sorted(_read_docstrings(module))
    return importlib.import_module(module).__all__


def _read_docstrings(module: str) -> dict[str, str]:
    """By name in its `__all__`: the docstring of a class or a function."""
    path = SOURCE.joinpath(*module.split(".")).with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (names,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    documented = {
        node.name: ast.get_docstring(node) or ""
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    return {name: documented[name] for name in names}


def exported() -> list[str]:
    """Every public name as `package.Name`, sorted."""
    return sorted(
        f"{package}.{name}"
        for package in (*PACKAGES, *FRAMEWORK_MODULES)
        for name in list_names(package)
    )


def describe(full_name: str) -> str:
    """The first sentence of its docstring."""
    if full_name in WITHOUT_DOCSTRING:
        return WITHOUT_DOCSTRING[full_name]
    package, _, name = full_name.rpartition(".")
    if package in FRAMEWORK_MODULES:
        text = _read_docstrings(package)[name]
    else:
        text = inspect.getdoc(getattr(importlib.import_module(package), name)) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[.!?]) (?=[A-Z`])", paragraph)[0].replace("|", "\\|")


def table() -> str:
    """A heading and a table for each package."""
    parts: list[str] = []
    for package in (*PACKAGES, *FRAMEWORK_MODULES):
        names = sorted(list_names(package), key=str.lower)
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
