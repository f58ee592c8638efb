"""A verb that `Context` and `Session` share returns the same on both; only one is awaited."""

from __future__ import annotations

import ast

from tests.contracts.definitions import list_bindings

DIFFERENT = {
    "watch": "a context also takes streams that are not awaited, so it returns the stream itself",
}
"""Verbs whose results differ, and why."""


def list_results(module: str, name: str) -> dict[str, list[str]]:
    """By public method: what it returns, for each overload."""
    node = list_bindings(module)[name]
    assert isinstance(node, ast.ClassDef)
    results: dict[str, list[str]] = {}
    for member in node.body:
        is_method = isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_method and not member.name.startswith("_") and member.returns:
            result = ast.unparse(member.returns).replace("AsyncIterator", "Iterator")
            is_same_class = result.partition("[")[0] == name
            results.setdefault(member.name, []).append("Self" if is_same_class else result)
    return results


def test_equal_verbs_return_equal_things():
    context = list_results("trimtab.context", "Context")
    session = list_results("trimtab.session.session", "Session")
    shared = context.keys() & session.keys()
    assert len(shared) >= 20
    different = {verb for verb in shared if context[verb] != session[verb]}
    assert different - DIFFERENT.keys() == set(), "return the same, or give a reason in DIFFERENT"
    assert DIFFERENT.keys() - different == set(), "equal now: take them out of DIFFERENT"
