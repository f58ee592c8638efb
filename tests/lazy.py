"""Packages that take a second or more to import, or that the library itself does without.

Collection imports every test module; of a test that is not chosen, nothing heavy should be loaded.
A test that uses one of these is skipped if the package is not installed.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest


class _Lazy:
    """Stands for a module: each attribute is that of the module, or a module below it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            # pytest asks every global of a test module whether it is a fixture.
            raise AttributeError(name)
        module = pytest.importorskip(self._name)
        if not hasattr(module, name):
            importlib.import_module(f"{self._name}.{name}")
        attribute = getattr(module, name)
        # A package has its modules as attributes only once they are imported.
        return _Lazy(attribute.__name__) if isinstance(attribute, ModuleType) else attribute


def lazy(name: str) -> Any:
    """The module of that name, imported when something of it is first used."""
    return _Lazy(name)


if TYPE_CHECKING:
    import anthropic
    import anthropic.types.parsed_message
    import openai
    import openai.lib.streaming.responses
    import openai.types.chat
    import openai.types.responses
    import pydantic

    # What a type checker then knows of the packages.
    KNOWN = (
        anthropic.types.parsed_message,
        openai.lib.streaming.responses,
        openai.types.chat,
        openai.types.responses,
    )
else:
    anthropic, openai, pydantic = lazy("anthropic"), lazy("openai"), lazy("pydantic")

__all__ = ["anthropic", "lazy", "openai", "pydantic"]
