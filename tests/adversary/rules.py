"""Which rules a module of checks knows, read from its source: none is left without a test."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from types import ModuleType


def rules_of(module: ModuleType) -> Iterator[str]:
    """The rule of each `Broken(…)` in the module; of one with a variable part, what stands before
    it."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Broken"):
            continue
        match node.args[0]:
            case ast.Constant(value=str(rule)):
                yield rule
            case ast.JoinedStr(values=[ast.Constant(value=str(start)), *_]):
                yield start
            case _:
                pass
