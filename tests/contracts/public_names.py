"""The list of public names: `python -m tests.contracts.public_names` writes it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.contracts.definitions import find_definition, list_bindings, read_docstring

PACKAGES = (
    "trimtab",
    "trimtab.types",
    "trimtab.errors",
    "trimtab.events",
    "trimtab.log",
    "trimtab.models",
    "trimtab.policies",
    "trimtab.summaries",
    "trimtab.stores",
    "trimtab.providers",
    "trimtab.testing",
    "trimtab.replay",
    "trimtab.observe",
    "trimtab.integrations.conversations",
    "trimtab_serve",
    "trimtab_serve.client",
    "trimtab_serve.metrics",
)
"""Whose `__all__` is public."""
FRAMEWORK_MODULES = (
    "trimtab.integrations.langchain",
    "trimtab.integrations.openai_agents",
    "trimtab.integrations.pydantic_ai",
)
"""Their `__all__` is public as well. Each needs a framework, so tests may not import them."""
FILE = Path(__file__).with_suffix(".txt")


def list_names(module: str) -> list[str]:
    """The names in the `__all__` of a public package or module."""
    bindings = list_bindings(module)
    names = bindings.get("__all__") or bindings["_HOMES"]
    assert isinstance(names, ast.Assign)
    return sorted(ast.literal_eval(names.value))


def exported() -> list[str]:
    """Every public name as `package.Name`, sorted."""
    return sorted(
        f"{package}.{name}"
        for package in (*PACKAGES, *FRAMEWORK_MODULES)
        for name in list_names(package)
    )


def describe(full_name: str) -> str:
    """The first sentence of its docstring."""
    package, _, name = full_name.rpartition(".")
    definition = find_definition(package, name)
    assert definition, full_name
    paragraph = " ".join(read_docstring(definition).split("\n\n")[0].split())
    return re.split(r"(?<=[.!?]) (?=[A-Z`])", paragraph)[0]


if __name__ == "__main__":
    FILE.write_text("\n".join(exported()) + "\n", encoding="utf-8")
