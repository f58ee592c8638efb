"""`compact`: over a number of bytes, old results shrink to their first lines."""

import pytest

from tests.conversations import calls, chat, prose, result, results, use, user
from trimtab.engine.log.edits import format_first_line_placeholder
from trimtab.engine.log.event import Edit

VIEWED = "[Previously viewed: "


def loop(context, rounds, size=3_900):
    context.add(user("go"))
    request = {}
    for number in range(rounds):
        request = use(context, f"c{number}", prose(size, f"File: src/f{number}.rs"))
    return request


def viewed(request):
    return [text for text in results(request) if text.startswith(VIEWED)]


def test_a_cut_that_would_not_make_a_file_smaller_is_not_made():
    context = chat("compact")
    context.add(user("go"))
    assert results(use(context, "c1", prose(4_001))) == [prose(4_001)]


def test_new_results_count_among_the_newest_six():
    context = chat("compact")
    loop(context, 10)
    ids = [f"n{number}" for number in range(4)]
    context.add(calls(*ids))
    for each in ids:
        context.add(result(each, prose(3_900)))
    shown = results(context.request())
    assert [text.startswith(VIEWED) for text in shown] == [True] * 8 + [False] * 6


def test_results_the_model_has_not_seen_are_never_compacted():
    context = chat("compact")
    context.add(user("go"))
    ids = [f"n{number}" for number in range(15)]
    context.add(calls(*ids))
    for each in ids:
        context.add(result(each, prose(3_900)))
    assert viewed(context.request()) == []
    assert len(viewed(use(context, "c1", "ok"))) == 10


def test_compaction_says_the_bytes_and_the_limit():
    context = chat("compact")
    loop(context, 13)
    edits = [e.body for e in context.events if isinstance(e.body, Edit)]
    assert {edit.why for edit in edits} == {"50838 bytes over 50000"}


def test_blank_lines_before_the_first_are_passed_over():
    assert (
        format_first_line_placeholder("\n  \n  File: a.rs\nrest")
        == "[Previously viewed: File: a.rs]"
    )


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('{\n  "name": "trimtab",\n  "files": 12\n}', '{ "name": "trimtab", "files": 12 }'),
        ("1\n\nimport os", "1 import os"),
        ("[\n" + "  17,\n" * 90, ("[ " + "17, " * 90)[:100]),
        ("ok", "ok"),
    ],
)
def test_a_first_line_that_says_next_to_nothing_is_followed_by_the_next(text, kept):
    assert format_first_line_placeholder(text) == f"[Previously viewed: {kept}]"


def test_a_compacted_result_is_recalled_whole():
    context = chat("compact", recall=True)
    shown = results(loop(context, 13))
    assert shown[0] == "[Previously viewed: File: src/f0.rs · recall m4.0]"
    assert context.recall("m4.0") == prose(3_900, "File: src/f0.rs")


def test_a_placeholder_is_not_compacted_again():
    context = chat("compact")
    loop(context, 13)
    before = results(context.request())[:7]
    for number in range(20, 33):
        use(context, f"c{number}", prose(3_900, "File: x"))
    assert results(context.request())[:7] == before


def test_the_threshold_is_never_above_the_room():
    context = chat("compact", context_window=10_000, max_output_tokens=1_000)
    request = loop(context, 9)
    assert context.budget().available * 4 < 50_000
    assert len(viewed(request)) == 3


def test_an_explicit_keep_binds():
    context = chat("compact", limits={"tool_result_keep_first": 1, "tool_result_keep_last": 2})
    shown = results(loop(context, 13))
    assert [text.startswith(VIEWED) for text in shown] == [False] + [True] * 10 + [False] * 2


def test_both_keeps_at_zero_disable_compaction():
    context = chat("compact", limits={"tool_result_keep_first": 0, "tool_result_keep_last": 0})
    assert viewed(loop(context, 20)) == []


@pytest.mark.parametrize("strategy", ["tail", "both"])
def test_an_explicit_strategy_never_claims_that_the_start_is_shown(strategy):
    context = chat("compact", limits={"tool_result_truncation": strategy})
    context.add(user("go"))
    whole = prose(9_012)
    [shown] = results(use(context, "c1", whole))
    assert shown.endswith(whole[-1_900:])
    assert f"~1000 of ~2253 tokens ({strategy})]" in shown
