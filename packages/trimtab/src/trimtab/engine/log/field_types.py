"""Check that the values of an event have the types that its fields declare.

A log is a file that anybody may have edited. A value of another type would fail much later, where
nobody can say which line it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from trimtab.engine.log.event import Event

HasType = Callable[[Any], bool]


def check_field_types(event: Event) -> None:
    """Raise `ValueError` if a field of an event has a value of another type."""
    if type(event.seq) is not int or type(event.at) not in (int, float) or not isfinite(event.at):
        raise ValueError("event without a position or a time")
    for name, has_type in _list_field_checks(type(event.body)):
        if not has_type(getattr(event.body, name)):
            raise ValueError(f"event {event.seq}: `{name}` has a value of a wrong type")


@cache
def _list_field_checks(kind: type[Any]) -> tuple[tuple[str, HasType], ...]:
    hints = get_type_hints(kind)
    return tuple((spec.name, _make_check(hints[spec.name])) for spec in fields(kind))


@cache
def _make_check(hint: Any) -> HasType:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return lambda _: True
    if hint is float:
        return lambda value: type(value) in (int, float)
    if hint in (str, int, bool, NoneType):
        return lambda value: type(value) is hint
    if origin is Literal:
        return lambda value: isinstance(value, str) and value in arguments
    if origin in (Union, UnionType):
        checks = tuple(_make_check(argument) for argument in arguments)
        return lambda value: any(check(value) for check in checks)
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return _make_items_check(_make_check(arguments[0]))
    if is_dataclass(hint) or issubclass(origin or hint, tuple):
        return _make_record_check(cast("type[Any]", origin or hint), arguments)
    if origin is not None and issubclass(origin, Mapping):
        return lambda value: isinstance(value, dict)
    raise TypeError(f"no check for {hint}")


def _make_items_check(has_type: HasType) -> HasType:
    return lambda value: (
        isinstance(value, tuple) and all(has_type(item) for item in cast("tuple[Any, ...]", value))
    )


def _make_record_check(kind: type[Any], arguments: tuple[Any, ...]) -> HasType:
    """Check a dataclass, a named tuple or a tuple of a fixed length."""
    hints = tuple(get_type_hints(kind).items()) if kind is not tuple else ()
    checks = [_make_check(hint) for hint in (arguments or [hint for _, hint in hints])]
    if is_dataclass(kind):
        by_name = tuple(zip([name for name, _ in hints], checks, strict=True))
        return lambda value: (
            type(value) is kind and all(check(getattr(value, name)) for name, check in by_name)
        )
    return lambda value: (
        type(value) is kind
        and len(value) == len(checks)
        and all(check(item) for check, item in zip(checks, value, strict=True))
    )
