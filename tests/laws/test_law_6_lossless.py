"""Every hidden text is recalled byte for byte through its handle, and every picture as a part; or
the recall names the event that took it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.laws.lives import law
from tests.laws.oracle import Told, had_recall, tell
from tests.laws.wires import pieces
from tests.strategies.life import Hooks, Life
from tests.strategies.logs import Story, stories
from trimtab.engine.log.event import PayloadErasure, RetentionErasure, dump_canonical_json
from trimtab.engine.log.message import Media, OpaqueBlock, Part, ToolCall, ToolResult
from trimtab.errors import ErasedError

NOTICE = re.compile(
    r"\[conversation truncated — \d+ older messages omitted · recall (?P<handle>\S+)\]"
)


def text_of(part: Part) -> str:
    match part:
        case ToolCall():
            return part.arguments
        case Media():
            return ""
        case OpaqueBlock():
            return dump_canonical_json(part.data)
        case _:
            return part.text


def payloads(part: Part) -> list[tuple[str | None, str | None]]:
    """The pictures and files in a part."""
    held = part.content if isinstance(part, ToolResult) else (part,)
    return [(each.data, each.url) for each in held if isinstance(each, Media)]


def took(life: Life, seq: int, part: int) -> set[int]:
    """The events that destroyed a part."""
    found: set[int] = set()
    for event in life.events:
        match event.body:
            case PayloadErasure() as body if body.message == seq and body.part in (None, part):
                found.add(event.seq)
            case RetentionErasure() as body if event.seq > seq and seq < body.before:
                found.add(event.seq)
            case _:
                pass
    return found


def comes_back(life: Life, seq: int, part: int) -> None:
    handle = f"m{seq}.{part}"
    if by := took(life, seq, part):
        with pytest.raises(ErasedError, match=r"event \d+") as caught:
            life.context.recall(handle)
        named = re.search(r"event (\d+)", str(caught.value))
        assert named is not None
        assert int(named[1]) in by
    else:
        said, told = life.said[seq].parts[part], life.context.recall(handle)
        if held := payloads(said):
            assert payloads(life.context.recall_part(handle)) == held
            assert told.startswith(text_of(said))
            assert f"recall_part({handle!r})" in told
            assert not any(data and data in told for data, _ in held)
        else:
            assert told == text_of(said)


def a_range_comes_back(life: Life, handle: str, seqs: list[int]) -> None:
    places = [(seq, part) for seq in seqs for part in range(max(1, len(life.said[seq].parts)))]
    try:
        text = life.context.recall(handle)
    except ErasedError as error:
        named = re.search(r"event (\d+)", str(error))
        assert named is not None
        assert any(int(named[1]) in took(life, *place) for place in places)
        return
    for place in places:
        if not life.said[place[0]].parts:
            continue
        if by := took(life, *place):
            assert any(f"event {seq}" in text for seq in by), f"m{place[0]} is gone without a word"
        else:
            said = life.said[place[0]].parts[place[1]]
            assert text_of(said) in text
            if held := payloads(said):
                assert f"recall_part('m{place[0]}.{place[1]}')" in text
                assert not any(data and data in text for data, _ in held)


def nothing_is_lost(life: Life, request: dict[str, Any]) -> None:
    told = tell(life.events)
    for group, edit in told.hidden.items():
        for seq in told.groups[group]:
            for part in range(len(told.messages[seq].parts)):
                comes_back(life, seq, part)
        inside = [seq for seq in told.messages if edit.first <= seq <= edit.last]
        a_range_comes_back(life, edit.handle, inside)
    for seq, part in told.edits:
        comes_back(life, seq, part)
    if life.context.window.settings.recall:
        handles_lead_there(life, told, request)


def handles_lead_there(life: Life, told: Told, request: dict[str, Any]) -> None:
    """The notice on the wire leads to all that was dropped, and each cut to its own text."""
    if gone := told.dropped():
        now = life.context.window.settings
        found = pieces(request, now, life.last_call.volatile, told.front(now.recall))
        [named] = filter(None, (NOTICE.fullmatch(piece.text) for piece in found))
        a_range_comes_back(life, named["handle"], gone)
    for (seq, part), edit in told.edits.items():
        if told.group_of(seq) not in told.hidden and not took(life, seq, part):
            assert not had_recall(life.events, edit) or f"recall m{seq}.{part}]" in edit.text


@law(stories)
def test_what_is_hidden_or_cut_is_recalled_byte_for_byte(story: Story) -> Hooks:
    return Hooks(asked=nothing_is_lost)
