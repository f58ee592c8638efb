"""The words that stand in for what is hidden, to the letter."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.engine.log.edits import (
    HandleTarget,
    apply_edit_to_part,
    apply_truncate_edit,
    erase_message_payload,
    extract_editable_text,
    format_dropped_messages_notice,
    format_first_line_placeholder,
    format_mask_placeholder,
    frame_summary_for_model,
    parse_handle,
    replace_long_arguments,
)
from trimtab.engine.log.event import DEFAULT_RECALL_HINT, Edit
from trimtab.engine.log.message import Media, Message, OpaqueBlock, Text, ToolCall, ToolResult
from trimtab.engine.log.text_cuts import (
    add_recall_handle,
    count_chars_within_bytes,
    count_tail_chars_within_bytes,
    format_byte_truncation_indicator,
    format_truncation_indicator,
)

CALL = ToolCall(id="c1", name="read", arguments='{"path":"a"}')
IMAGE = Media(kind="image", url="https://example.org/a.png")


def mask(text="[gone]"):
    return Edit(op="mask", first=1, last=1, part=0, text=text)


def cut(head=0, tail=0, text="…"):
    return Edit(op="truncate", first=1, last=1, part=0, text=text, head=head, tail=tail)


FRAME = "Summary of the earlier conversation, for reference: the newest user message wins"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            format_truncation_indicator("head", 8000, 52000),
            "[truncated: kept first ~8000 of ~52000 tokens (head)]",
        ),
        (
            format_truncation_indicator("tail", 8000, 52000),
            "[truncated: kept last ~8000 of ~52000 tokens (tail)]",
        ),
        (
            format_truncation_indicator("both", 8000, 52000),
            "[truncated: kept first+last ~8000 of ~52000 tokens (both)]",
        ),
        (
            format_byte_truncation_indicator(4000, 9012),
            "...\n[truncated, showing first 4000 bytes of 9012 total]",
        ),
        (format_mask_placeholder(12000), "[result masked — ~12000 tokens removed]"),
        (
            format_dropped_messages_notice(47),
            "[conversation truncated — 47 older messages omitted]",
        ),
        (
            format_first_line_placeholder("File: src/main.rs\nx"),
            "[Previously viewed: File: src/main.rs]",
        ),
        (format_first_line_placeholder(""), "[Previously viewed: ]"),
        (
            frame_summary_for_model("So far.", "m3-m9", ""),
            f"[{FRAME}]\nSo far.",
        ),
        (
            frame_summary_for_model("So far.", "m3-m9", DEFAULT_RECALL_HINT),
            f"[{FRAME} · recall m3-m9]\nSo far.",
        ),
    ],
)
def test_a_text_is_exactly(text, expected):
    assert text == expected


@pytest.mark.parametrize(
    ("text", "handle", "expected"),
    [
        (format_mask_placeholder(12), "m7.0", "[result masked — ~12 tokens removed · recall m7.0]"),
        (
            format_dropped_messages_notice(3),
            "m2-m9",
            "[conversation truncated — 3 older messages omitted · recall m2-m9]",
        ),
        (
            format_truncation_indicator("tail", 8, 52),
            "m7.1",
            "[truncated: kept last ~8 of ~52 tokens (tail) · recall m7.1]",
        ),
        (
            format_byte_truncation_indicator(8, 52),
            "m7.0",
            "...\n[truncated, showing first 8 bytes of 52 total · recall m7.0]",
        ),
        ("no bracket", "m1", "no bracket"),
    ],
)
def test_a_handle_stands_before_the_closing_bracket(text, handle, expected):
    assert add_recall_handle(text, handle, DEFAULT_RECALL_HINT) == expected


@pytest.mark.parametrize(
    ("text", "handle"),
    [
        ("m12.0", HandleTarget(first_seq=12, last_seq=12, part_index=0)),
        ("m12", HandleTarget(first_seq=12, last_seq=12)),
        ("m3-m50", HandleTarget(first_seq=3, last_seq=50)),
        (" m3-50 ", HandleTarget(first_seq=3, last_seq=50)),
    ],
)
def test_a_handle_names_a_part_a_message_or_a_range(text, handle):
    assert parse_handle(text) == handle


@pytest.mark.parametrize("text", ["", "12", "m", "m1.", "m1-", "m1.2.3", "x m1"])
def test_what_is_no_handle_is_refused_with_examples(text):
    with pytest.raises(ValueError, match=r"is not a handle; handles look like m12\.0, m12"):
        parse_handle(text)


@pytest.mark.parametrize(
    "edit",
    [
        Edit(op="mask", first=12, last=12, part=0),
        Edit(op="drop", first=12, last=12),
        Edit(op="summarise", first=3, last=50),
    ],
)
def test_an_edits_handle_names_what_it_hides(edit):
    named = parse_handle(edit.handle)
    assert (named.first_seq, named.last_seq, named.part_index) == (edit.first, edit.last, edit.part)


@pytest.mark.parametrize(("head", "tail"), [(3, 0), (0, 3), (3, 3)])
def test_a_cut_result_keeps_its_pictures_whichever_end_is_kept(head, tail):
    result = ToolResult(call_id="c", content=(Text(text="a long text"), IMAGE))
    seen = apply_edit_to_part(result, cut(head, tail))
    assert isinstance(seen, ToolResult)
    assert seen.content == (Text(text=apply_truncate_edit("a long text", cut(head, tail))), IMAGE)


def test_a_masked_result_keeps_the_call_it_answers_and_its_failure():
    result = ToolResult(
        call_id="c1", content=(Text(text="x"), IMAGE), is_error=True, plain=False, extra={"a": 1}
    )
    assert apply_edit_to_part(result, mask()) == ToolResult(
        call_id="c1", content=(Text(text="[gone]"),), is_error=True
    )


@pytest.mark.parametrize(
    ("edit", "text"),
    [(cut(head=2), "ab…"), (cut(tail=2), "…ef"), (cut(head=1, tail=1), "a…f"), (cut(), "…")],
)
def test_a_cut_text_keeps_what_the_edit_says(edit, text):
    assert apply_truncate_edit("abcdef", edit) == text


def test_a_result_cut_at_its_end_keeps_its_pictures():
    result = ToolResult(call_id="c1", content=(Text(text="abcdef"), IMAGE), plain=False)
    seen = apply_edit_to_part(result, cut(head=2))
    assert isinstance(seen, ToolResult)
    assert seen.content == (Text(text="ab…"), IMAGE)


@pytest.mark.parametrize(
    ("part", "seen"),
    [
        (Text(text="abcdef"), Text(text="[gone]")),
        (IMAGE, Text(text="[gone]")),
        (OpaqueBlock(data={"type": "x"}), Text(text="[gone]")),
    ],
)
def test_any_other_part_is_masked_as_a_text(part, seen):
    assert apply_edit_to_part(part, mask()) == seen


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (Text(text="a"), "a"),
        (ToolResult(call_id="c", content=(Text(text="a"), IMAGE, Text(text="b"))), "a\nb"),
        (CALL, ""),
        (IMAGE, ""),
        (OpaqueBlock(data={}), ""),
    ],
)
def test_only_texts_and_results_can_be_cut(part, text):
    assert extract_editable_text(part) == text


def test_erasing_leaves_calls_and_results_paired():
    message = Message(role="assistant", parts=(Text(text="secret"), CALL), extra={"k": "secret"})
    assert erase_message_payload(message, None) == Message(
        role="assistant",
        parts=(Text(text="[erased]"), ToolCall(id="c1", name="read", arguments="{}")),
    )
    answer = Message(role="tool", parts=(ToolResult(call_id="c1", content=(Text(text="secret"),)),))
    assert erase_message_payload(answer, 0).results == (
        ToolResult(call_id="c1", content=(Text(text="[erased]"),)),
    )


def test_erasing_one_part_leaves_the_others():
    message = Message(role="user", parts=(Text(text="a"), IMAGE))
    assert erase_message_payload(message, 1).parts == (Text(text="a"), Text(text="[erased]"))


@pytest.mark.slow
@given(st.text(max_size=40), st.integers(-1, 200))
def test_a_byte_limit_keeps_whole_characters_and_as_many_as_fit(text, limit):
    for count, piece in (
        (count_chars_within_bytes(text, limit), lambda n: text[:n]),
        (count_tail_chars_within_bytes(text, limit), lambda n: text[len(text) - n :]),
    ):
        assert len(piece(count).encode()) <= max(limit, 0)
        if count < len(text):
            assert len(piece(count + 1).encode()) > limit


@given(st.text(max_size=400))
def test_a_first_line_is_one_line_of_at_most_100_characters(text):
    line = (
        format_first_line_placeholder(text).removeprefix("[Previously viewed: ").removesuffix("]")
    )
    assert len(line) <= 100
    assert len(line.splitlines()) <= 1


CUT = "[cut]"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"text":"0123456789","n":1.5}', {"text": CUT, "n": 1.5}),
        ('{"a":{"b":["0123456789","short"]},"c":null}', {"a": {"b": [CUT, "short"]}, "c": None}),
        ('{"text":"short"}', {"text": "short"}),
    ],
)
def test_of_a_calls_arguments_only_long_texts_are_left_out(arguments, shown):
    assert json.loads(replace_long_arguments(arguments, 8, CUT)) == shown


@pytest.mark.parametrize(
    "arguments",
    ["not json", "[1]", '"0123456789"', "[" * 3_000, '{"x":1e999,"text":"0123456789"}', "{}", ""],
)
def test_arguments_that_cannot_be_cut_stay_as_they_are(arguments):
    assert replace_long_arguments(arguments, 8, CUT) == arguments
