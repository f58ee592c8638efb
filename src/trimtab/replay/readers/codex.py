"""Codex rollouts: Responses items with times, between records of the session.

Reasoning and snapshots of the workspace are left out: the first is encrypted, the second never
sent. The rollout ends for us where the agent compacted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trimtab.core.event import Usage
from trimtab.core.message import Message
from trimtab.dialects import dialect
from trimtab.dialects.openai_responses_items import side
from trimtab.dialects.shapes import as_dict
from trimtab.replay.conversation import Conversation
from trimtab.replay.readers.claude_code import times_of
from trimtab.replay.readers.lines import Line, Unreadable, name_of, seconds, usage_of, why

_LEFT_OUT = ("reasoning", "ghost_snapshot", "compaction")


def fits(line: Line) -> bool:
    return isinstance(line.data.get("payload"), dict) and "type" in line.data


def read(path: Path, lines: Iterator[Line]) -> Iterator[Conversation]:
    groups: list[tuple[list[dict[str, Any]], float | None]] = []
    usage: dict[int, Usage] = {}
    meta: dict[str, Any] = {}
    for line in lines:
        payload = as_dict(line.data.get("payload")) or {}
        match line.data.get("type"):
            case "compacted":
                break
            case "session_meta":
                meta = meta or payload
            case "response_item" if payload.get("type") not in _LEFT_OUT:
                _take(groups, payload, seconds(line.data.get("timestamp")))
            case "event_msg" if payload.get("type") == "token_count":
                last = (as_dict(payload.get("info")) or {}).get("last_token_usage")
                if (told := usage_of(last)) is not None and groups:
                    usage[len(groups) - 1] = told
            case _:
                pass
    if groups:
        yield _conversation(path, groups, usage, meta)


def _take(
    groups: list[tuple[list[dict[str, Any]], float | None]],
    item: dict[str, Any],
    at: float | None,
) -> None:
    """The items of one reply stand together, as the dialect reads them."""
    if groups and side(item) == "assistant" == side(groups[-1][0][0]):
        groups[-1][0].append(item)
    else:
        groups.append(([item], at))


def _conversation(
    path: Path,
    groups: list[tuple[list[dict[str, Any]], float | None]],
    usage: dict[int, Usage],
    meta: dict[str, Any],
) -> Conversation:
    responses = dialect("openai_responses")
    try:
        messages = [responses.read_history(items)[0] for items, _ in groups]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Unreadable(path, 1, f"expected Responses items{why(error)}") from error
    start = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
    return Conversation(
        id=str(meta.get("id") or name_of(path)),
        source=str(path),
        messages=tuple(messages[start:]),
        system=(*_instructions(meta), *messages[:start]),
        times=times_of([at for _, at in groups[start:]]),
        usage=_replies(usage, messages, start) or None,
    )


def _replies(usage: dict[int, Usage], messages: list[Message], start: int) -> dict[int, Usage]:
    """Usage is told after the results of a reply's calls may have come: it is the reply's."""
    found: dict[int, Usage] = {}
    for index, told in usage.items():
        while index > start and messages[index].role != "assistant":
            index -= 1  # noqa: PLW2901 - walks back to the reply
        found[index - start] = told
    return found


def _instructions(meta: dict[str, Any]) -> tuple[Message, ...]:
    base = as_dict(meta.get("base_instructions")) or {}
    text = base.get("text") or meta.get("instructions")
    return dialect("openai_responses").read_system(text) if isinstance(text, str) and text else ()
