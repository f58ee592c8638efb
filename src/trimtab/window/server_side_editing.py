"""Edits that the caller's own parameters have the provider make: two managers of one prompt.

Anthropic takes `context_management` with edits that clear tool results or compact the conversation.
OpenAI's Responses take `context_management` with a compaction, and `truncation: "auto"`, which
drops items from the start. All of it happens after a request has left: what is counted then is less
than what was sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from trimtab.log.event import Settings

_CLEARING = "clear_tool_uses"
_HARMLESS = "clear_thinking"
"""Old thinking is left out by default as well; what is said and found stays."""


def list_server_side_edits(settings: Settings) -> tuple[str, ...]:
    """The edits that the provider is asked to make, by their names; empty for none."""
    params = settings.params
    more = params.get("extra_body")
    if isinstance(more, Mapping):
        params = {**params, **cast("Mapping[str, Any]", more)}
    managed: Any = params.get("context_management")
    match settings.dialect:
        case "anthropic" if isinstance(managed, Mapping):
            edits = cast("Mapping[str, Any]", managed).get("edits")
            return tuple(name for name in _type_names(edits) if not name.startswith(_HARMLESS))
        case "openai_responses":
            truncates = ("truncation: auto",) if params.get("truncation") == "auto" else ()
            return (*_type_names(managed), *truncates)
        case _:
            return ()


def tells_all_edits(names: Sequence[str]) -> bool:
    """Whether each reply says how many tokens they took out. A compaction goes on in silence: what
    it stands for is not read again."""
    return all(name.startswith(_CLEARING) for name in names)


def describe_server_side_editing(settings: Settings) -> str:
    """What it means for this context, in a sentence; empty where the provider edits nothing."""
    if not (names := list_server_side_edits(settings)):
        return ""
    who = f"the provider edits the request itself ({', '.join(names)})"
    if settings.policy == "auto":
        return f"{who}: auto steps back and hides only what does not fit"
    return f"{who}, and so does the policy {settings.policy}"


def _type_names(edits: Any) -> list[str]:
    if not isinstance(edits, list | tuple):
        return []
    listed = cast("Sequence[Any]", edits)
    named = [cast("Mapping[str, Any]", each) for each in listed if isinstance(each, Mapping)]
    return [str(each["type"]) for each in named if each.get("type")]
