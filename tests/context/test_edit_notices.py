"""What `on_edit` and the log hear of what is hidden."""

import logging

import pytest

from tests.conversations import user
from trimtab import Context, EditNotice
from trimtab.errors import CannotFit
from trimtab.log import Edit
from trimtab.types import ContextOptions

FILLER = "lorem ipsum dolor sit amet "
OPENING = "the swordfish swims "


def call(number):
    call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def result(number, text):
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text}


def hearing(**options):
    """A context, and the list of what it tells."""
    heard: list[EditNotice] = []
    context = Context("gpt-4o", on_edit=heard.append, **options)
    context.add(user("Read all of it."))
    return context, heard


def read(context, rounds, *, size=400):
    for number in range(rounds):
        context.request()
        context.add(call(number))
        context.add(result(number, OPENING + FILLER * size))
    context.request()


def edits(context):
    return [event.body for event in context.events if isinstance(event.body, Edit)]


def told(edit):
    return edit.handle, edit.op, edit.why


@pytest.mark.parametrize("policy", ["layered", "compact", "rolling", "thresholds", "auto", "full"])
def test_every_recorded_edit_is_told_once_with_its_handle_and_reason(policy):
    context, heard = hearing(policy=policy, context_window=16_000, max_output_tokens=500)
    read(context, 30)
    assert heard
    assert [(n.handle, n.op, n.reason) for n in heard] == [told(edit) for edit in edits(context)]
    for notice in heard:
        assert notice.tokens_before > notice.tokens_after >= 0
        assert notice.count >= 1
        assert notice.reason


def test_a_masked_result_says_what_it_took_and_what_stands_in():
    context, heard = hearing(policy="compact", limits={"max_context_bytes": 20_000})
    read(context, 12)
    masked = next(notice for notice in heard if notice.op == "mask")
    whole = context.recall(masked.handle)
    assert whole.startswith(OPENING)
    assert masked.count == 1
    assert masked.tokens_before > 1_000 > masked.tokens_after


def test_the_summary_that_another_one_replaces_counts_as_hidden():
    context, heard = hearing(policy="rolling", context_window=64_000)
    for number in range(60):
        context.request()
        context.add({"role": "assistant", "content": f"Answer {number}: {FILLER}"})
        context.add(user(f"Question {number}: {FILLER}"))
    summaries = [notice for notice in heard if notice.op == "summarise"]
    sizes = [edit.size.tokens for edit in edits(context) if edit.op == "summarise"]
    assert len(summaries) > 2
    assert [notice.tokens_after for notice in summaries] == sizes
    for notice, replaced_tokens in zip(summaries[1:], sizes, strict=False):
        assert notice.tokens_before > notice.tokens_after
        assert notice.tokens_before > replaced_tokens


def test_what_is_hidden_after_a_refusal_is_told():
    context, heard = hearing(policy="full", context_window=100_000)
    read(context, 20)
    assert heard == []
    assert context.fail("overflow", limit=20_000)
    context.request()
    assert {notice.op for notice in heard} <= {"truncate", "mask", "drop", "summarise"}
    assert [(n.handle, n.op, n.reason) for n in heard] == [told(edit) for edit in edits(context)]
    assert heard


def test_neither_a_preview_nor_a_loaded_log_tells_anything():
    context, heard = hearing(policy="compact", limits={"max_context_bytes": 20_000})
    read(context, 12)
    context.add(call(99))
    context.add(result(99, FILLER * 3_000))
    before = list(heard)
    assert context.preview().edits
    assert heard == before
    Context.load(context.dump(), on_edit=heard.append)
    context.fork()
    assert heard == before


def test_a_loaded_context_tells_what_it_hides_itself():
    context, _ = hearing(policy="compact", limits={"max_context_bytes": 20_000})
    read(context, 6)
    heard: list[EditNotice] = []
    loaded = Context.load(context.dump(), on_edit=heard.append)
    loaded.add(call(99))
    loaded.add(result(99, FILLER * 3_000))
    position = loaded.window.seq
    loaded.request()
    new = [event.body for event in loaded.events if event.seq > position]
    assert [n.handle for n in heard] == [edit.handle for edit in new if isinstance(edit, Edit)]
    assert heard


def test_a_hook_that_raises_changes_nothing_but_the_log_lines(caplog):
    def fail(notice):
        raise KeyError(notice.handle)

    options: ContextOptions = {"policy": "compact", "limits": {"max_context_bytes": 20_000}}
    broken = Context("gpt-4o", on_edit=fail, clock=lambda: 1.0, **options)
    whole = Context("gpt-4o", clock=lambda: 1.0, **options)
    for context in (broken, whole):
        context.add(user("Read all of it."))
        read(context, 12)
    assert broken.request() == whole.request()
    assert broken.dump() == whole.dump()
    assert "on_edit failed for mask" in caplog.text


def test_a_hook_may_ask_the_context():
    recalled: list[str] = []
    context = Context(
        "gpt-4o",
        policy="compact",
        limits={"max_context_bytes": 20_000},
        on_edit=lambda notice: recalled.append(context.recall(notice.handle)),
    )
    context.add(user("Read all of it."))
    read(context, 12)
    assert recalled
    assert all(text.startswith(OPENING) for text in recalled)


def test_one_line_a_decision_says_what_and_why_and_nothing_that_was_said(caplog):
    caplog.set_level(logging.INFO, logger="trimtab.context")
    context = Context("gpt-4o", policy="compact", limits={"max_context_bytes": 20_000})
    context.add(user("Read all of it."))
    read(context, 12)
    lines = [record.getMessage() for record in caplog.records if record.name == "trimtab.context"]
    deciding = {
        event.seq for event in context.events if event.body.__class__.__name__ == "ModelCall"
    }
    assert 0 < len(lines) <= len(deciding)
    named = [f"{edit.op} {edit.handle}" for edit in edits(context)]
    assert all(any(name in line for line in lines) for name in named)
    assert all("tokens became" in line for line in lines)
    assert "swordfish" not in caplog.text
    assert "lorem" not in caplog.text


def test_edits_of_a_request_that_cannot_fit_are_not_told():
    context, heard = hearing(policy="full", context_window=2_000, system=FILLER * 2_000)
    with pytest.raises(CannotFit):
        context.request()
    assert heard == []
    assert edits(context) == []


def test_what_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="on_edit"):
        Context("gpt-4o", on_edit="print")  # pyright: ignore[reportArgumentType]
