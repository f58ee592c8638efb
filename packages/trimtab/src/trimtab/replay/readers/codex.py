"""Read Codex rollouts: Responses items with times, between records of the session.

Reasoning and snapshots of the workspace are left out: reasoning is encrypted, and snapshots are
never sent. Reading stops at the point where the agent compacted its context.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from trimtab.dialects import get_dialect
from trimtab.dialects.json_values import dict_or_none
from trimtab.dialects.openai_responses.items import find_item_role
from trimtab.engine.log.event import Usage
from trimtab.engine.log.message import Message
from trimtab.replay.readers.claude_code import make_times_monotonic
from trimtab.replay.readers.json_files import (
    JsonLine,
    UnreadableRecording,
    derive_conversation_id,
    format_value_error,
    parse_iso_timestamp,
    parse_recorded_usage,
)
from trimtab.replay.selection import RecordedConversation

_SKIPPED_ITEM_TYPES = ("reasoning", "ghost_snapshot", "compaction")


def is_codex_line(line: JsonLine) -> bool:
    return isinstance(line.data.get("payload"), dict) and "type" in line.data


def read_codex_rollout(path: Path, lines: Iterator[JsonLine]) -> Iterator[RecordedConversation]:
    groups: list[tuple[list[dict[str, Any]], float | None]] = []
    usage: dict[int, Usage] = {}
    meta: dict[str, Any] = {}
    model: str | None = None
    for line in lines:
        payload = dict_or_none(line.data.get("payload")) or {}
        match line.data.get("type"):
            case "compacted":
                break
            case "session_meta":
                meta = meta or payload
            case "turn_context":
                model = str(payload.get("model") or "") or model
            case "response_item" if payload.get("type") not in _SKIPPED_ITEM_TYPES:
                _add_item(groups, payload, parse_iso_timestamp(line.data.get("timestamp")))
            case "event_msg" if payload.get("type") == "token_count":
                last = (dict_or_none(payload.get("info")) or {}).get("last_token_usage")
                if (told := parse_recorded_usage(last)) is not None and groups:
                    usage[len(groups) - 1] = told
            case _:
                pass
    if groups:
        yield replace(_conversation(path, groups, usage, meta), model=model)


def _add_item(
    groups: list[tuple[list[dict[str, Any]], float | None]],
    item: dict[str, Any],
    at: float | None,
) -> None:
    """Add an item. The items of one reply stay together, as the dialect needs them."""
    if groups and find_item_role(item) == "assistant" == find_item_role(groups[-1][0][0]):
        groups[-1][0].append(item)
    else:
        groups.append(([item], at))


def _conversation(
    path: Path,
    groups: list[tuple[list[dict[str, Any]], float | None]],
    usage: dict[int, Usage],
    meta: dict[str, Any],
) -> RecordedConversation:
    responses = get_dialect("openai_responses")
    try:
        messages = [responses.parse_history(items)[0] for items, _ in groups]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnreadableRecording(
            path, 1, f"expected Responses items{format_value_error(error)}"
        ) from error
    start = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
    return RecordedConversation(
        id=str(meta.get("id") or derive_conversation_id(path)),
        source=str(path),
        messages=tuple(messages[start:]),
        system=(*_instructions(meta), *messages[:start]),
        times=make_times_monotonic([at for _, at in groups[start:]]),
        usage=_assign_usage_to_replies(usage, messages, start) or None,
    )


def _assign_usage_to_replies(
    usage: dict[int, Usage], messages: list[Message], start: int
) -> dict[int, Usage]:
    """Assign usage to replies. It may be reported after the results of a reply's tool calls."""
    found: dict[int, Usage] = {}
    for index, told in usage.items():
        while index > start and messages[index].role != "assistant":
            index -= 1  # noqa: PLW2901 - walks back to the reply
        found[index - start] = told
    return found


def _instructions(meta: dict[str, Any]) -> tuple[Message, ...]:
    base = dict_or_none(meta.get("base_instructions")) or {}
    text = base.get("text") or meta.get("instructions")
    return (
        get_dialect("openai_responses").parse_system_messages(text)
        if isinstance(text, str) and text
        else ()
    )
