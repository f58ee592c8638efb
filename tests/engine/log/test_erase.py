import pytest

from trimtab.engine.log.edits import ERASED_PLACEHOLDER, parse_handle
from trimtab.engine.log.erase import ErasurePlanner, erase_event_payload, make_event_eraser
from trimtab.engine.log.event import (
    Edit,
    Event,
    MessageAdded,
    PayloadErasure,
    RetentionErasure,
    Settings,
    Size,
    ToolResultRepair,
    TurnProgressRecord,
)
from trimtab.engine.log.message import Message, Role, Text, ToolCall, ToolResult, make_text_message

SIZES = (Size(bytes=4, tokens=1),)


def said(seq: int, text: str = "secret", *, recalled: bool = False) -> Event:
    body = MessageAdded(
        message=make_text_message("user", text), sizes=SIZES, key=f"k{seq}", recalled=recalled
    )
    return Event(seq=seq, at=1.0, body=body)


def edit(seq: int, op, first: int, last: int, part: int | None = None) -> Event:
    return Event(
        seq=seq, at=1.0, body=Edit(op=op, first=first, last=last, part=part, text="a secret")
    )


def erases(events, handle: str) -> list[PayloadErasure]:
    return ErasurePlanner(parse_handle(handle), "asked", events).list_pending_erasures()


def named(events, handle: str) -> list[tuple[int, int | None]]:
    return [(e.message, e.part) for e in erases(events, handle)]


def test_a_message_goes_with_every_later_answer_of_the_recall_tools():
    log = [said(1), said(2, recalled=True), said(3), said(4), said(5, recalled=True)]
    assert named(log, "m3") == [(3, None), (5, None)]
    assert [erase.why for erase in erases(log, "m3")] == ["asked", "may repeat m3; asked"]


def told(seq: int, *parts) -> Event:
    role: Role = "assistant" if isinstance(parts[0], ToolCall) else "user"
    return Event(
        seq=seq, at=1.0, body=MessageAdded(message=Message(role=role, parts=parts), sizes=SIZES)
    )


def settings(seq: int, *, recall: bool) -> Event:
    return Event(
        seq=seq, at=1.0, body=Settings(model="m", dialect="anthropic", renderer=1, recall=recall)
    )


def test_answers_of_the_recall_tools_go_wherever_they_stand():
    """Beside those of others, behind a repair, and when the tools are no longer there."""
    asks = told(
        3,
        ToolCall(id="r", name="recall", arguments="{}"),
        ToolCall(id="t", name="read", arguments="{}"),
    )
    copy, own = (ToolResult(call_id=name, content=(Text(text="secret"),)) for name in ("r", "t"))
    log = [settings(1, recall=True), said(2), asks, settings(4, recall=False)]
    assert named([*log, told(5, copy, own)], "m2") == [(2, None), (5, 0)]
    assert named([*log, told(5, own), told(6, copy)], "m2") == [(2, None), (6, None)]


def test_a_tool_of_the_users_own_that_is_called_so_keeps_its_results():
    asks = told(3, ToolCall(id="r", name="recall", arguments="{}"))
    own = ToolResult(call_id="r", content=(Text(text="mine"),))
    assert named([settings(1, recall=False), said(2), asks, told(4, own)], "m2") == [(2, None)]
    again = [
        told(5, ToolCall(id="r", name="read", arguments="{}")),
        told(6, own),
    ]
    assert named([settings(1, recall=True), said(2), asks, *again], "m2") == [(2, None)]


def test_a_range_and_a_part_are_taken_as_they_are_named():
    repaired = Event(
        seq=2, at=1.0, body=ToolResultRepair(message=make_text_message("tool", "x"), sizes=SIZES)
    )
    log = [said(1), repaired, said(3), edit(4, "drop", 1, 1)]
    assert named(log, "m1-m2") == [(1, None), (2, None)]
    assert named(log, "m3.0") == [(3, 0)]


@pytest.mark.parametrize("handle", ["m9", "m4", "m3.1"])
def test_what_is_not_there_cannot_be_erased(handle):
    log = [said(3), edit(4, "drop", 3, 3), said(5, recalled=True)]
    with pytest.raises(LookupError, match=f"nothing was erased: there is no {handle}"):
        erases(log, handle)


def test_the_payload_goes_and_position_time_and_key_stay():
    done = make_event_eraser([PayloadErasure(message=2)])(said(2))
    assert isinstance(done.body, MessageAdded)
    assert (done.seq, done.at, done.body.key) == (2, 1.0, "k2")
    assert done.body.message.text == ERASED_PLACEHOLDER
    assert done.body.sizes == ()
    assert make_event_eraser([PayloadErasure(message=2)])(said(3)) == said(3)


def test_a_call_keeps_its_name_and_id_so_that_its_result_has_a_partner():
    call = ToolCall(id="c", name="read", arguments='{"a":1}', extra={"x": "secret"})
    message = Message(role="assistant", parts=(Text(text="keep"), call), extra={"y": "secret"})
    event = Event(seq=2, at=1.0, body=MessageAdded(message=message, sizes=SIZES))
    done = make_event_eraser([PayloadErasure(message=2, part=1)])(event)
    assert isinstance(done.body, MessageAdded)
    assert done.body.message.parts == (
        Text(text="keep"),
        ToolCall(id="c", name="read", arguments="{}"),
    )
    assert "secret" not in str(done)


@pytest.mark.parametrize(
    ("op", "first", "last", "part", "erased"),
    [
        ("summarise", 1, 9, None, True),
        ("summarise", 5, 5, None, True),
        ("summarise", 6, 9, None, False),
        ("mask", 5, 5, 0, True),
        ("mask", 5, 5, 1, False),
        ("mask", 4, 4, 0, False),
        ("truncate", 5, 5, 0, True),
    ],
)
def test_words_that_may_quote_it_go_and_others_stay(op, first, last, part, erased):
    before = edit(9, op, first, last, part)
    done = make_event_eraser([PayloadErasure(message=5, part=0)])(before)
    assert isinstance(done.body, Edit)
    assert done.body.text == (ERASED_PLACEHOLDER if erased else "a secret")
    assert done == erase_event_payload(before, 5, 5, 0)


def test_many_are_erased_at_once():
    change = make_event_eraser(
        [PayloadErasure(message=2), PayloadErasure(message=4, part=0), PayloadErasure(message=900)]
    )
    texts = [str(change(said(seq)).body).count("secret") for seq in range(1, 6)]
    assert texts == [1, 0, 1, 0, 1]
    done = change(edit(999, "summarise", 100, 901)).body
    assert isinstance(done, Edit)
    assert done.text == ERASED_PLACEHOLDER


def erased(seq: int, message: int, part: int | None = None) -> Event:
    return Event(seq=seq, at=1.0, body=PayloadErasure(message=message, part=part))


def test_what_was_erased_before_is_not_erased_again():
    log = [said(1), said(2, recalled=True), erased(3, 1), erased(4, 2)]
    found = ErasurePlanner(parse_handle("m1"), "asked", log)
    assert found.list_pending_erasures() == []
    assert [(one.message, one.part) for one in found.erasures] == [(1, None), (2, None)]


def test_an_answer_that_came_after_an_erasure_tells_nothing_of_it():
    log = [said(1), erased(2, 1), said(3, recalled=True)]
    assert [one.message for one in ErasurePlanner(parse_handle("m1"), "asked", log).erasures] == [1]
    retained = Event(seq=2, at=1.0, body=RetentionErasure(before=2))
    assert named([said(1), retained, said(3, recalled=True)], "m1") == []


@pytest.mark.parametrize(("first", "then", "left"), [("m1.0", "m1", 1), ("m1", "m1.0", 0)])
def test_a_message_of_which_a_part_was_erased_is_not_erased_yet(first, then, left):
    gone = parse_handle(first)
    log = [said(1), erased(2, 1, gone.part_index)]
    assert len(named(log, then)) == left


def test_what_else_is_kept_of_a_message_is_known_by_its_key_its_words_and_its_tools():
    key = "s/1/m2.0/call"
    started = Event(seq=3, at=1.0, body=TurnProgressRecord(state="tool_started", epoch=1, key=key))
    log = [said(1, "secret"), said(2, "another"), started]
    found = ErasurePlanner(parse_handle("m1"), "asked", log)
    assert (found.message_keys, found.user_texts, found.tool_keys, found.is_turn_open) == (
        {"k1"},
        ["secret"],
        [key],
        True,
    )
    ended = Event(seq=4, at=1.0, body=TurnProgressRecord(state="ended", epoch=1))
    assert not ErasurePlanner(parse_handle("m1"), "asked", [*log, ended]).is_turn_open
