"""Edits that the caller's own parameters tell the provider to make.

Anthropic accepts `context_management` with edits that clear tool results or compact the
conversation. OpenAI's Responses API accepts `context_management` with a compaction, and
`truncation: "auto"`, which drops items from the start. All of this happens after a request was
sent, so the provider counts less than what was sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from trimtab.engine.log.event import Settings

_CLEARING = "clear_tool_uses"
_HARMLESS = "clear_thinking"
"""This edit is harmless: providers also remove old thinking by default, and messages and results
stay."""


def list_server_side_edits(settings: Settings) -> tuple[str, ...]:
    """Return the names of the edits that the provider is told to make; empty for none."""
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
    """Whether each reply says how many tokens the edits removed. A compaction does not say it."""
    return all(name.startswith(_CLEARING) for name in names)


def describe_server_side_editing(settings: Settings) -> str:
    """Describe what server-side editing means for this context in one sentence; empty if there is
    none."""
    if not (names := list_server_side_edits(settings)):
        return ""
    who = f"the provider edits the request itself ({', '.join(names)})"
    if settings.policy == "auto":
        return f"{who}, so the policy auto hides only what does not fit"
    return f"{who}, and the policy {settings.policy} also edits it"


def _type_names(edits: Any) -> list[str]:
    if not isinstance(edits, list | tuple):
        return []
    listed = cast("Sequence[Any]", edits)
    named = [cast("Mapping[str, Any]", each) for each in listed if isinstance(each, Mapping)]
    return [str(each["type"]) for each in named if each.get("type")]
