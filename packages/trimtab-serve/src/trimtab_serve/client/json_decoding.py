"""Convert JSON to dataclasses."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def decode_json_unchecked(value_type: type[T], data: Any) -> T:
    """Convert JSON to a value of this type. Unknown fields of a newer server are ignored."""
    return _decode_value(value_type, data)


def _decode_value(value_type: Any, data: Any) -> Any:
    if data is None:
        return None
    origin = get_origin(value_type)
    if origin in (Union, UnionType):
        return _decode_value(
            next(each for each in get_args(value_type) if each is not NoneType), data
        )
    if origin is list:
        return [_decode_value(get_args(value_type)[0], each) for each in data]
    if is_dataclass(value_type):
        hints = _field_types(value_type)
        arguments = {name: _decode_value(hints[name], data[name]) for name in hints if name in data}
        return cast("Any", value_type)(**arguments)
    return data


@cache
def _field_types(dataclass_type: Any) -> dict[str, Any]:
    hints = get_type_hints(dataclass_type)
    return {field.name: hints[field.name] for field in fields(dataclass_type)}
