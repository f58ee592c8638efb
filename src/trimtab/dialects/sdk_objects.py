"""SDK objects as the plain dicts that the server sent."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from reprlib import repr as short
from typing import Any, cast

from trimtab.dialects.langchain import convert_langchain_message, is_langchain_message

MAX_NESTING_DEPTH = 200
"""Levels of lists and objects in one another; JSON writers give up at about a thousand."""
_SDK_PARSED_FIELDS = ("parsed", "parsed_arguments", "parsed_output")
_Pairs = Mapping[Any, Any]
_Path = tuple[Any, ...]
"""The last key and the path before it: only what is refused has it written out."""


def to_plain_dict(value: Any) -> dict[str, Any]:
    """An SDK's object, or a mapping that may hold some, as a dict that is nobody else's.

    Fields that the server did not send stay out, so that what goes back is what came. Raises
    ValueError for what is nested deeper than anybody could send, and TypeError or ValueError for
    what JSON cannot say, with its place.
    """
    value = convert_langchain_message(value) if is_langchain_message(value) else value
    plain = (
        _to_json_value(value, MAX_NESTING_DEPTH, ()) if is_mapping_or_sdk_object(value) else None
    )
    if not isinstance(plain, dict):
        raise TypeError(f"expected a mapping or an SDK object, got {type(value).__name__}")
    return cast("dict[str, Any]", plain)


def is_mapping_or_sdk_object(value: Any) -> bool:
    """Whether it is a mapping or an SDK's object."""
    if isinstance(value, type):
        return False  # a class has the attributes of its objects, and not their values
    named = hasattr(value, "model_fields_set") or hasattr(value, "to_dict")
    return named or isinstance(value, Mapping)


def _to_json_value(value: Any, depth_left: int, path: _Path) -> Any:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise ValueError(f"{_format_path(path)} is {value}; it must be a finite number")
    if not depth_left:
        raise ValueError(
            f"more than {MAX_NESTING_DEPTH} lists and objects lie in one another; nest fewer"
        )
    if isinstance(value, Mapping):
        pairs = [(_to_json_key(key, path), inner) for key, inner in cast("_Pairs", value).items()]
        return {key: _to_json_value(inner, depth_left - 1, (key, path)) for key, inner in pairs}
    if isinstance(value, list | tuple):
        listed = enumerate(cast("list[Any]", value))
        return [_to_json_value(inner, depth_left - 1, (index, path)) for index, inner in listed]
    if isinstance(value, type):
        raise TypeError(
            _wrong_value_text(value, path, "JSON, and a class is none: give its schema")
        )
    if hasattr(value, "model_fields_set"):
        return _model_to_dict(value, depth_left - 1, path)
    if hasattr(value, "to_dict"):
        return _to_json_value(value.to_dict(), depth_left - 1, path)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if is_dataclass(value):
        named = ((field.name, getattr(value, field.name)) for field in fields(value))
        return {name: _to_json_value(inner, depth_left - 1, (name, path)) for name, inner in named}
    right = "JSON: a text, a number, True, False, None, a list or a mapping"
    raise TypeError(_wrong_value_text(value, path, right))


def _model_to_dict(model: Any, depth_left: int, path: _Path) -> dict[str, Any]:
    """Field by field: a model's own dump would take what an SDK parsed for what the server sent."""
    kind = cast("Any", type(model))
    on_top = kind.__name__.startswith("Parsed") or ".lib." in kind.__module__
    out: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        if name in model.model_fields_set and not (on_top and name in _SDK_PARSED_FIELDS):
            out[field.alias or name] = _to_json_value(
                getattr(model, name), depth_left, (name, path)
            )
    for name, value in cast("dict[str, Any]", model.model_extra or {}).items():
        out[name] = _to_json_value(value, depth_left, (name, path))
    return out


def _to_json_key(key: Any, path: _Path) -> str:
    """The key as JSON writes it; a number is a text there, and sorted as one."""
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, int | float):
        return json.dumps(key)
    raise TypeError(f"{_format_path(path)} has the key {short(key)}; it must be a text")


def _wrong_value_text(value: Any, path: _Path, expected: str) -> str:
    return f"{_format_path(path)} is {short(value)}; it must be {expected}"


def _format_path(path: _Path) -> str:
    """Such as `content[0].meta`."""
    told = ""
    while path:
        key, path = path
        told = (f"[{key}]" if isinstance(key, int) else f".{key}") + told
    return told.removeprefix(".") or "it"
