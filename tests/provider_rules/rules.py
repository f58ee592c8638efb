"""What a check of a request answers, and which rules a module of checks knows."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple


class Broken(NamedTuple):
    """What a check says about one request."""

    rule: str
    """A sentence that is the same each time this rule is broken."""
    detail: str = ""
    """What was found in its place, with numbers."""


def rules_of(module: ModuleType) -> Iterator[str]:
    """The rule of each `Broken(…)` in the module; of one with a variable part, what stands before
    it. A test compares them with its examples, so that no rule is left without one."""
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
