"""Definitions of names, and the types in their signatures, read from the source alone."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "packages/trimtab/src", ROOT / "packages/trimtab-serve/src")
TYPE_VARIABLES = ("TypeVar", "TypeVarWithDefault", "ParamSpec")


@dataclass(frozen=True)
class Definition:
    """Where a name is defined: a class, a function, an alias or a constant."""

    module: str
    name: str


@cache
def parse_module(module: str) -> ast.Module | None:
    """The module's syntax tree; None if it is not one of ours."""
    for folder in FOLDERS:
        stem = folder.joinpath(*module.split("."))
        for path in (stem.with_suffix(".py"), stem / "__init__.py"):
            if path.is_file():
                return ast.parse(path.read_text(encoding="utf-8"))
    return None


@cache
def list_bindings(module: str) -> dict[str, ast.stmt]:
    """By name: the statement of the module's top level that binds it, in any branch of an `if`."""
    bindings: dict[str, ast.stmt] = {}

    def read(statements: list[ast.stmt]) -> None:
        for node in statements:
            match node:
                case ast.If():
                    read(node.orelse)
                    read(node.body)
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    bindings[node.name] = node
                case ast.ImportFrom():
                    bindings.update((alias.asname or alias.name, node) for alias in node.names)
                case ast.Assign():
                    bindings.update((ast.unparse(target), node) for target in node.targets)
                case ast.AnnAssign():
                    bindings[ast.unparse(node.target)] = node
                case _:
                    pass

    tree = parse_module(module)
    read(tree.body if tree else [])
    return bindings


@cache
def find_definition(module: str, name: str) -> Definition | None:
    """Follow imports to the module that defines a name; None if that is not one of ours."""
    node = list_bindings(module).get(name)
    if node is None:
        return None
    if not isinstance(node, ast.ImportFrom):
        return Definition(module, name)
    (origin,) = (each.name for each in node.names if (each.asname or each.name) == name)
    return find_definition(node.module or "", origin)


def read_docstring(definition: Definition) -> str:
    """The docstring of a class or a function, or the text below a constant or an alias."""
    tree = parse_module(definition.module)
    node = list_bindings(definition.module)[definition.name]
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return ast.get_docstring(node) or ""
    below = {
        before: after.value.value
        for statements in _list_blocks(tree)
        for before, after in pairwise(statements)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    }
    return str(below.get(node, ""))


def _list_blocks(tree: ast.Module | None) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree) if tree else ():
        match node:
            case ast.Module():
                yield node.body
            case ast.If():
                yield node.body
                yield node.orelse
            case _:
                pass


def list_names(annotation: ast.expr | None) -> Iterator[str]:
    """Names that an annotation mentions; the values of a `Literal` are no names."""
    match annotation:
        case None:
            return
        case ast.Constant(value=str() as text):
            yield from list_names(ast.parse(text, mode="eval").body)
        case ast.Subscript(value=ast.Name(id="Literal")):
            return
        case ast.Name():
            yield annotation.id
        case _:
            for child in ast.iter_child_nodes(annotation):
                if isinstance(child, ast.expr):
                    yield from list_names(child)


def list_function_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Names in the signature of a function, and in the types of attributes that it sets."""
    arguments = function.args
    extra = [each for each in (arguments.vararg, arguments.kwarg) if each]
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra):
        if not argument.arg.startswith("_"):
            yield from list_names(argument.annotation)
    yield from list_names(function.returns)
    for node in ast.walk(function) if function.name == "__init__" else ():
        match node:
            case ast.AnnAssign(target=ast.Attribute(attr=name)) if not name.startswith("_"):
                yield from list_names(node.annotation)
            case _:
                pass


def is_opened(node: ast.ClassDef) -> bool:
    """Whether users get its objects from an async class method, and never call `__init__`."""
    return any(
        isinstance(member, ast.AsyncFunctionDef)
        and any(ast.unparse(each) == "classmethod" for each in member.decorator_list)
        for member in node.body
    )


def list_class_names(node: ast.ClassDef) -> Iterator[str]:
    """Names in the bases, the fields and the methods of a class."""
    for base in node.bases:
        yield from list_names(base)
    for member in node.body:
        match member:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                is_special = member.name.startswith("__") and member.name.endswith("__")
                if member.name == "__init__" and is_opened(node):
                    continue
                if is_special or not member.name.startswith("_"):
                    yield from list_function_names(member)
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                yield from list_names(member.annotation)
            case _:
                pass


def list_shown_names(definition: Definition) -> Iterator[str]:
    """Names that a reader of this definition meets."""
    node = list_bindings(definition.module)[definition.name]
    match node:
        case ast.ClassDef():
            yield from list_class_names(node)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from list_function_names(node)
        case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")):
            yield from list_names(node.value)
        case ast.AnnAssign():
            yield from list_names(node.annotation)
        case ast.Assign(value=ast.Call(func=ast.Name(id=function))):
            if function in TYPE_VARIABLES:
                assert isinstance(node.value, ast.Call)
                yield from (name for each in node.value.keywords for name in list_names(each.value))
        case ast.Assign(value=ast.Subscript() | ast.BinOp() | ast.Name()):
            yield from list_names(node.value)
        case _:
            pass


def is_type_variable(definition: Definition) -> bool:
    """Whether it is a type variable, which nobody imports."""
    match list_bindings(definition.module)[definition.name]:
        case ast.Assign(value=ast.Call(func=ast.Name(id=function))):
            return function in TYPE_VARIABLES
        case _:
            return False


def find_hidden_types(
    definitions: dict[Definition, str], public: Container[Definition]
) -> dict[Definition, set[str]]:
    """Types of ours in these signatures that are not public, with the names that show them."""
    hidden_types: dict[Definition, set[str]] = {}
    for definition, full_name in definitions.items():
        waiting = [definition]
        while waiting:
            definition_shown = waiting.pop()
            for name in list_shown_names(definition_shown):
                shown_type = find_definition(definition_shown.module, name)
                if shown_type is None or shown_type in public or shown_type == definition_shown:
                    continue
                if is_type_variable(shown_type) or shown_type.name.startswith("_"):
                    waiting.append(shown_type)  # a reader meets what it stands for
                else:
                    hidden_types.setdefault(shown_type, set()).add(full_name)
    return hidden_types
