"""What a wire message says, or in words what it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

from trimtab.dialects.shapes import as_list

_BESIDE = frozenset({"role", "type", "name", "id", "status", "call_id", "tool_call_id"})
"""What may stand beside the content of a message that is typed by hand."""


@overload
def content_of(wire: Mapping[str, Any], *, key: str = "content") -> str | list[Any]: ...
@overload
def content_of(
    wire: Mapping[str, Any], *, key: str = "content", optional: bool
) -> str | list[Any] | None: ...
def content_of(
    wire: Mapping[str, Any], *, key: str = "content", optional: bool = False
) -> str | list[Any] | None:
    """The text or the parts under the key; None only where that is `optional`.

    Whoever typed another key would else talk to a model that was told nothing.
    """
    found = wire.get(key)
    if isinstance(found, str) or (found is None and optional):
        return found
    whose = wire.get("role") or wire.get("type")
    if found is None:
        raise ValueError(_missing(wire, whose, key))
    parts = as_list(found)
    if parts is None:
        raise ValueError(
            f"{key} of the {whose} message is {type(found).__name__}; it must be a text or a list "
            "of parts"
        )
    for number, part in enumerate(parts):
        if not isinstance(part, Mapping):
            raise ValueError(  # noqa: TRY004 - all that cannot be read is a ValueError
                f"{key}[{number}] of the {whose} message is {type(part).__name__}; a part is an "
                "object with a type"
            )
    return parts


def _missing(wire: Mapping[str, Any], whose: object, key: str) -> str:
    others = [repr(name) for name in wire if name not in _BESIDE and name != key]
    told = ""
    if others:
        word = "key" if len(others) == 1 else "keys"
        told = f", but the unknown {word} {', '.join(others)}"
    return f'the {whose} message has no {key}{told}; write "{key}": "…", or a list of parts'
