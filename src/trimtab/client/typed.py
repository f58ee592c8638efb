"""JSON as the values it was made from."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def made(kind: type[T], data: Any) -> T:
    """A value of a type; what a newer server says besides is passed over."""
    return _made(kind, data)


def _made(kind: Any, data: Any) -> Any:
    if data is None:
        return None
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _made(next(each for each in get_args(kind) if each is not NoneType), data)
    if origin is list:
        return [_made(get_args(kind)[0], each) for each in data]
    if is_dataclass(kind):
        hints = _hints(kind)
        given = {name: _made(hints[name], data[name]) for name in hints if name in data}
        return cast("Any", kind)(**given)
    return data


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
