"""The programs of the documents as files for type checkers."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from pathlib import Path

from tests.contracts.test_docs import blocks

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "cookbook").glob("*.md"))]
EXAMPLES = sorted(
    path for folder in ("examples", "examples/starters") for path in (ROOT / folder).glob("*.py")
)
"""Those for frameworks need the frameworks."""
WAITING = """
from collections.abc import AsyncIterable, Awaitable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TypeVar

T = TypeVar("T")

def wait(awaitable: Awaitable[T]) -> T:
    raise NotImplementedError

def iterate(iterable: AsyncIterable[T]) -> Iterable[T]:
    raise NotImplementedError

def enter(manager: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
    raise NotImplementedError
"""
"""Stand-ins for what `python -m asyncio` allows outside of functions, and a file does not."""


class _WithoutAwait(ast.NodeTransformer):
    """Replace what awaits outside of functions by calls of the stand-ins."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_Await(self, node: ast.Await) -> ast.AST:
        self.generic_visit(node)
        return _call("wait", node.value)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        self.generic_visit(node)
        return ast.For(
            target=node.target, iter=_call("iterate", node.iter), body=node.body, orelse=[]
        )

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        self.generic_visit(node)
        for item in node.items:
            item.context_expr = _call("enter", item.context_expr)
        return ast.With(items=node.items, body=node.body)


def _call(name: str, argument: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Name(name, ast.Load()), args=[argument], keywords=[])


def _list_bound_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.alias(name=name, asname=asname):
                yield asname or name.split(".")[0]
            case _:
                pass


def build_programs(page: Path) -> dict[str, str]:
    """By name: a module for each block of a page that runs, with imports of what earlier ones
    define."""
    stem = page.stem.replace("-", "_").lower()
    homes = dict.fromkeys(("wait", "iterate", "enter"), "waiting")
    programs: dict[str, str] = {}
    for number, block in enumerate(blocks(page.read_text(encoding="utf-8"))):
        if not block.runs:
            continue
        tree = ast.fix_missing_locations(_WithoutAwait().visit(ast.parse(block.code)))
        bound = set(_list_bound_names(tree))
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        missing = sorted(used - bound - set(dir(builtins)) - {"__name__"})
        module = f"page_{stem}_{number}"
        imports = [f"from {homes[name]} import {name}" for name in missing]
        programs[module] = "\n".join([*imports, ast.unparse(tree), ""])
        homes |= dict.fromkeys(bound, module)
    return programs


def write_programs(folder: Path) -> int:
    """Write each block and each example as a module, and return their number."""
    programs = {"waiting": WAITING}
    for page in PAGES:
        programs |= build_programs(page)
    for path in EXAMPLES:
        programs[f"example_{path.stem}"] = path.read_text(encoding="utf-8")
    for module, code in programs.items():
        (folder / f"{module}.py").write_text(code, encoding="utf-8")
    return len(programs)
