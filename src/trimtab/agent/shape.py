"""What may stand where in an agent's file, asked of its schema by path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, cast

from trimtab.agent.document import Path
from trimtab.agent.spec import Spec

Shape = Mapping[str, Any]
"""A JSON Schema, or a part of one."""

NAME = "NAME"
"""Stands in a path for a name that the user chooses."""


@cache
def whole() -> Shape:
    """The schema of what is read, without what only editors need."""
    return Spec.model_json_schema()


def shape_at(path: Path, data: Any) -> Shape | None:
    """What may stand at that path of a document with these values; None for no place at all."""
    shape = plain(whole(), data)
    for name in path:
        data = _within(data, name)
        if (inner := step(shape, name)) is None:
            return None
        shape = plain(inner, data)
    return shape


def plain(shape: Shape, data: Any) -> Shape:
    """The shape that a value is meant to have: references followed, the fitting alternative."""
    while True:
        if "$ref" in shape:
            name = str(shape["$ref"]).rsplit("/", 1)[1]
            shape = {**whole()["$defs"][name], **{k: v for k, v in shape.items() if k != "$ref"}}
        elif "discriminator" in shape:
            kind = _within(data, "kind")
            if not isinstance(kind, str) or kind not in kinds(shape):
                return shape
            shape = {"$ref": kinds(shape)[kind]}
        elif "anyOf" in shape:
            fitting = _fitting(shape, data)
            if len(fitting) != 1:
                return shape
            told = {k: v for k, v in shape.items() if k in ("default", "description")}
            shape = {**fitting[0], **told}
        else:
            return shape


def kinds(shape: Shape) -> dict[str, str]:
    """The alternatives of a tool by what its `kind` says."""
    return dict(shape.get("discriminator", {}).get("mapping", {}))


def names(shape: Shape) -> list[str]:
    """The names that a block knows."""
    return list(shape.get("properties", {}))


@cache
def homes() -> Mapping[str, tuple[str, ...]]:
    """By a setting's name: the blocks that know it, as paths; the file itself is empty."""
    found: dict[str, list[str]] = {}
    for block, shape in blocks():
        for name in names(shape):
            if block not in (at := found.setdefault(name, [])):
                at.append(block)
    return {name: tuple(at) for name, at in found.items()}


def blocks() -> Iterator[tuple[str, Shape]]:
    """Every block of the file with its path; the four kinds of a tool share one."""
    return _blocks("", whole())


def kinds_with(setting: str) -> list[str]:
    """The kinds of tools that know a setting."""
    return [
        str(shape["properties"]["kind"]["const"])
        for _, shape in blocks()
        if setting in names(shape) and "const" in shape["properties"].get("kind", {})
    ]


def _blocks(path: str, shape: Shape) -> Iterator[tuple[str, Shape]]:
    shape = plain(shape, {})
    for ref in kinds(shape).values():
        yield from _blocks(path, {"$ref": ref})
    if "properties" in shape:
        yield path, shape
    for name, inner in shape.get("properties", {}).items():
        yield from _blocks(f"{path}.{name}".lstrip("."), inner)
    if more := _more(shape):
        yield from _blocks(f"{path}.{NAME}", more)


def words(shape: Shape) -> str:
    """What a value must be, for people: `a whole number, 1 or more`."""
    if "enum" in shape:
        return f"one of {', '.join(str(choice) for choice in shape['enum'])}"
    if "const" in shape:
        return str(shape["const"])
    if "anyOf" in shape:
        return " or ".join(words(plain(one, None)) for one in _fitting(shape, None))
    match shape.get("type"):
        case "integer":
            return f"a whole number{_range(shape, whole=True)}"
        case "number":
            return f"a number{_range(shape, whole=False)}"
        case "boolean":
            return "true or false"
        case "string":
            return "a text"
        case "array":
            least = "one or more " if shape.get("minItems") else ""
            return f"a list of {least}{_many(shape['items'])}"
        case _ if is_block(shape):
            return "a block of settings"
        case _:
            more = _more(shape)
            return f"names with {_many(more) if more else 'values'}"


def _many(shape: Shape) -> str:
    shape = plain(shape, None)
    if is_block(shape):
        return "a block of settings each"
    return {"string": "texts", "object": "a JSON Schema each"}.get(shape.get("type", ""), "values")


def _range(shape: Shape, *, whole: bool) -> str:
    low = shape.get("minimum")
    if "exclusiveMinimum" in shape:
        low = shape["exclusiveMinimum"] + 1 if whole else None
    if low is not None and "maximum" in shape:
        return f", {low} to {shape['maximum']:,}"
    if low is not None:
        return f", {low} or more"
    if "exclusiveMinimum" not in shape:
        return ""
    most = f" and at most {shape['maximum']}" if "maximum" in shape else ""
    return f" more than {shape['exclusiveMinimum']}{most}"


def _fitting(shape: Shape, data: Any) -> list[Shape]:
    choices = [one for one in cast("list[Shape]", shape["anyOf"]) if one.get("type") != "null"]
    kinds = {list: "array", dict: "object"}
    wanted = kinds.get(cast("type[Any]", type(data)))
    same = [one for one in choices if one.get("type") == wanted]
    return same or choices


def step(shape: Shape, name: str | int) -> Shape | None:
    """What may stand under a name, or in a list; None where nothing may."""
    if isinstance(name, int):
        return shape.get("items")
    if name in shape.get("properties", {}):
        return shape["properties"][name]
    return _more(shape)


def is_block(shape: Shape) -> bool:
    """Whether settings stand there."""
    shape = plain(shape, None)
    return "properties" in shape or "discriminator" in shape


def _more(shape: Shape) -> Shape | None:
    """What may stand under a name that the user chooses; None where none may be chosen."""
    if "patternProperties" in shape:
        return next(iter(shape["patternProperties"].values()))
    more = shape.get("additionalProperties")
    return {} if more is True else more or None


def value_at(data: Any, path: Path) -> Any:
    """The value at a path; None where there is none."""
    for step in path:
        data = _within(data, step)
    return data


def _within(data: Any, step: str | int) -> Any:
    if isinstance(data, dict) and isinstance(step, str):
        return cast("dict[str, Any]", data).get(step)
    if isinstance(data, list) and isinstance(step, int):
        listed = cast("list[Any]", data)
        return listed[step] if step < len(listed) else None
    return None
