"""Find the calls that stay in the request: the newest todo list, and the newest call of each exempt
tool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from trimtab.engine.log.message import OpaqueBlock, ToolCall
from trimtab.engine.window.structure import Group
from trimtab.engine.window.todo_list import PartKey
from trimtab.engine.window.window import Window

KEPT_CALLS_ROOM_DIVISOR = 8
"""These calls may take this part of the room together, with what cannot be hidden without them."""
_STUB_TOKENS = 60
"""Approximate tokens that stay of a part that is cut or masked."""


class KeptCalls(NamedTuple):
    """Calls and results that stay as they are, and the groups that hold them."""

    parts: frozenset[PartKey]
    """The calls and results."""
    groups: frozenset[int]
    """Indexes of their groups."""


NO_KEPT_CALLS = KeptCalls(frozenset(), frozenset())


def find_kept_calls(window: Window, room_tokens: int) -> KeptCalls:
    """Return the calls to keep. A list that is larger than its share of the room is not kept.

    The whole todo list comes before its changes, and the newest change before the others.
    """
    list_parts, *changes = [call.parts for call in window.conversation.todo_calls] or [()]
    parts: set[PartKey] = set()
    stub_tokens_by_group: dict[int, int] = {}
    groups: set[int] = set()
    free_tokens = room_tokens // KEPT_CALLS_ROOM_DIVISOR
    for call_parts in (list_parts, *reversed(changes), *_newest_exempt_calls(window)):
        new_parts = [key for key in call_parts if key not in parts]
        if not new_parts or not all(seq in window.entries for seq, _ in new_parts):
            continue
        group = window.entries[new_parts[0][0]].round.group
        if group.hidden is not None:
            continue
        if group.index not in stub_tokens_by_group:
            stub_tokens_by_group[group.index] = _count_stub_tokens(group)
        tokens = 0 if group.index in groups else stub_tokens_by_group[group.index]
        for seq, part in new_parts:
            tokens += max(0, window.entries[seq].shown_size(part).tokens - _STUB_TOKENS)
        if tokens <= free_tokens:
            free_tokens -= tokens
            groups.add(group.index)
            parts.update(new_parts)
    return KeptCalls(frozenset(parts), frozenset(groups))


def _count_stub_tokens(group: Group) -> int:
    """Count what stays of a group if all that may be cut or masked is."""
    return sum(
        entry.shown_size(part).tokens
        if isinstance(content, OpaqueBlock)
        else min(entry.shown_size(part).tokens, _STUB_TOKENS)
        for entry in group.entries()
        for part, content in enumerate(entry.message.parts)
    )


def holds_only_earlier_todo_lists(window: Window, group: Group) -> bool:
    """Whether all calls of a group wrote or read a todo list that is no longer the newest."""
    todo_calls = window.conversation.todo_calls
    if not todo_calls or todo_calls[0].file_name:
        return False
    newest = {seq for call in todo_calls for seq, _ in call.parts}
    calls = [*group.calls()]
    return (
        bool(calls)
        and all(call.name == todo_calls[0].tool for call in calls)
        and not any(entry.seq in newest for entry in group.entries())
    )


def _newest_exempt_calls(window: Window) -> Iterator[tuple[PartKey, ...]]:
    """Yield the newest visible call of each exempt tool, with its result."""
    tools = set(_list_exempt_tools(window.settings.policy_params.get("context")))
    for result in reversed(window.results.values()) if tools else ():
        if result.tool not in tools:
            continue
        tools.discard(result.tool)
        for entry in result.entry.round.entries:
            for part, content in enumerate(entry.message.parts):
                if isinstance(content, ToolCall) and content.id == result.call.id:
                    yield (entry.seq, part), result.key
        if not tools:
            return


def _list_exempt_tools(context_settings: Any) -> Iterable[str]:
    if not isinstance(context_settings, Mapping):
        return
    tools: Any = cast("Mapping[str, Any]", context_settings).get("tools") or {}
    for name, tool in cast("Mapping[str, Mapping[str, Any]]", tools).items():
        if tool.get("exempt"):
            yield name
