"""SDK objects as the plain dicts that the server sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

DEEPEST = 200
"""Levels of lists and objects in one another; JSON writers give up at about a thousand."""
_PARSED = ("parsed", "parsed_arguments", "parsed_output")


def to_wire(value: Any) -> dict[str, Any]:
    """An SDK's object, or a mapping that may hold some, as a dict that is nobody else's.

    Fields that the server did not send stay out, so that what goes back is what came. Raises
    ValueError for what is nested deeper than anybody could send.
    """
    plain = _plain(value, DEEPEST)
    if not isinstance(plain, dict):
        raise TypeError(f"expected a mapping or an SDK object, got {type(value).__name__}")
    return cast("dict[str, Any]", plain)


def _plain(value: Any, room: int) -> Any:
    if value is None or isinstance(value, str | int | float | type):
        return value  # a class has the attributes of its objects, and not their values
    if not room:
        raise ValueError(f"more than {DEEPEST} lists and objects lie in one another; nest fewer")
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return {key: _plain(inner, room - 1) for key, inner in pairs}
    if isinstance(value, list | tuple):
        return [_plain(inner, room - 1) for inner in cast("list[Any]", value)]
    if hasattr(value, "model_fields_set"):
        return _plain_model(value, room - 1)
    if hasattr(value, "to_dict"):
        return _plain(value.to_dict(), room - 1)
    return value.isoformat() if hasattr(value, "isoformat") else value


def _plain_model(model: Any, room: int) -> dict[str, Any]:
    """Field by field: a model's own dump would take what an SDK parsed for what the server sent."""
    kind = cast("Any", type(model))
    parsed = _PARSED if kind.__name__.startswith("Parsed") else ()
    out: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        if name in model.model_fields_set and name not in parsed:
            out[field.alias or name] = _plain(getattr(model, name), room)
    for name, value in cast("dict[str, Any]", model.model_extra or {}).items():
        out[name] = _plain(value, room)
    return out
