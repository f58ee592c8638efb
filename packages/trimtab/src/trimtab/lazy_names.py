"""Packages that import each name at its first use: some names need an extra, and all together are
slow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def export_on_demand(
    package: str, homes: Mapping[str, str]
) -> tuple[list[str], Callable[[str], Any]]:
    """Return `__all__` and `__getattr__` of a package, from the module that has each name."""
    distribution = package.partition(".")[0]

    def import_name(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{distribution}.{homes[name]}"), name)

    return sorted(homes), import_name
