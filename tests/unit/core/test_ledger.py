"""Where the tokens went, and how it is shown."""

import json
from dataclasses import replace

import pytest
from inline_snapshot import snapshot

from tests.conversations import calls, chat, claude, prose, result, talk, use, user
from trimtab.core.event import Usage
from trimtab.core.ledger import Ledger, Section, cost_of
from trimtab.core.message import Media, Message, Opaque, Text


def ledger(limit=200_000, **tokens):
    sections = tuple(Section(name=kind, kind=kind, tokens=size) for kind, size in tokens.items())
    return Ledger(
        model="m",
        limit=limit,
        source="model",
        sections=sections,
        hidden={},
        output_reserve=8_192,
        margin=1_000,
        last_usage=None,
        total_usage=Usage(input=0),
        calls=0,
        cost=None,
    )


def test_the_display_is_that_of_document_4():
    shown = str(ledger(system=1_835, summary=485, tools=48_640, messages=9_920))
    assert (
        shown
        == """\
                    Context Usage
  ████████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░ 60.9k/200.0k (30.4%)
  ├─ System:          1.8k (0.9%)
  ├─ Context summary: 485 (0.2%)
  ├─ Tool output:     48.6k (24.3%)
  ├─ Messages:        9.9k (5.0%)
  └─ Free space:      139.1k (69.6%)"""
    )


def test_the_summary_has_a_line_only_where_there_is_one():
    assert "Context summary" not in str(ledger(system=1_800, tools=48_600, messages=9_900))


@pytest.mark.parametrize(
    ("used", "filled"), [(0, 0), (5_000, 1), (100_000, 20), (199_999, 39), (300_000, 40)]
)
def test_the_bar_has_40_places(used, filled):
    bar = str(ledger(messages=used)).splitlines()[1].split()[0]
    assert bar == "█" * filled + "░" * (40 - filled)


@pytest.mark.parametrize(
    ("used", "shown", "level"),
    [
        (60_000, False, "normal"),
        (60_001, True, "normal"),
        (140_000, True, "normal"),
        (140_001, True, "high"),
        (180_000, True, "high"),
        (180_001, True, "critical"),
    ],
)
def test_it_is_worth_showing_above_30_percent_and_warns_at_70_and_90(used, shown, level):
    made = ledger(messages=used)
    assert (made.worth_showing, made.level) == (shown, level)


def test_large_windows_are_told_in_millions():
    shown = str(ledger(limit=1_000_000, messages=250_000)).splitlines()[1]
    assert shown.endswith(" 250.0k/1.0M (25.0%)")


def test_free_is_what_nothing_takes_or_reserves():
    assert ledger(messages=10_000).free == 200_000 - 10_000 - 1_000 - 8_192


def test_every_token_of_the_next_call_stands_in_one_section():
    context = claude(system="Be brief.", tools=[{"name": "read", "input_schema": {}}])
    context.add(user("go"))
    use(context, "c1", prose(400))
    report = context.report()
    assert report.used == context.budget().head.tokens + context.window.tokens
    assert [(section.name, section.kind) for section in report.sections] == snapshot(
        [
            ("system prompt", "system"),
            ("tool definition: read", "system"),
            ("tool use", "system"),
            ("request overhead", "system"),
            ("user", "messages"),
            ("tool call: read", "tools"),
            ("tool result: read", "tools"),
        ]
    )


def test_arguments_reasoning_and_pictures_are_counted():
    context = claude()
    context.add(user("go"))
    before = context.report().used
    context.add(calls("c1", arguments=json.dumps({"text": prose(4_000)})))
    with_arguments = context.report().used
    context.add(result("c1", "ok"))
    thinking = Opaque(data={"type": "thinking", "thinking": prose(4_000)}, thinking=True)
    context.add(Message(role="assistant", parts=(thinking,), origin="anthropic"))
    with_thinking = context.report().used
    picture = Media(kind="image", mime="image/png", data="A" * 100)
    context.add(Message(role="user", parts=(Text(text="see"), picture)))
    with_picture = context.report().used
    assert with_arguments - before > 700
    assert with_thinking - with_arguments > 700
    assert with_picture - with_thinking > 200


def test_every_parallel_call_is_counted():
    def grown(*ids):
        context = chat()
        context.add(user("go"))
        before = context.report().used
        context.add(calls(*ids, arguments=json.dumps({"text": prose(4_000)})))
        return context.report().used - before

    assert grown("a", "b", "c") > 2.9 * grown("a")


def test_what_is_hidden_is_told_by_kind():
    context = chat(
        context={
            "max_history_tokens": 100,
            "max_tool_result_tokens": 100,
            "tool_result_keep_first": 0,
            "tool_result_keep_last": 1,
        }
    )
    talk(context, 2, size=400)
    context.add(user("go"))
    use(context, "c1", prose(4_000))
    use(context, "c2", prose(4_000))
    hidden = context.report().hidden
    assert {kind: count for kind, (count, _) in hidden.items()} == {
        "drop": 4,
        "mask": 1,
        "truncate": 1,
    }
    assert all(tokens > 0 for _, tokens in hidden.values())


def test_a_summary_has_a_section_of_its_own():
    context = chat("rolling")
    talk(context, 10, size=200)
    context.request()
    report = context.report()
    assert report.tokens("summary") > 0
    assert "Context summary:" in str(report)


def test_the_breakdown_names_sections_hidden_parts_and_cost():
    context = claude(context={"max_history_tokens": 10})
    talk(context, 2)
    context.request()
    context.add(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5",
            "content": [{"type": "text", "text": "ok"}],
            "stop_reason": "end_turn",
            "usage": {
                "input_tokens": 100,
                "cache_read_input_tokens": 300,
                "output_tokens": 10,
            },
        }
    )
    text = context.report().breakdown()
    assert "hidden by drop: 2 (" in text
    assert "read from the provider's cache: 75.0% of all input" in text
    assert "cost so far: $0.0005 in 3 calls" in text
    assert "output reserve" in text


@pytest.mark.parametrize(("calls", "told"), [(1, "in 1 call"), (2, "in 2 calls")])
def test_one_call_is_not_told_as_several(calls, told):
    used = replace(ledger(messages=9), total_usage=Usage(input=9), cost=0.1, calls=calls)
    assert f"cost so far: $0.1000 {told}" in used.breakdown().splitlines()[-1]
    assert used.breakdown().endswith(told)


def test_each_term_of_the_breakdown_says_what_it_is():
    context = claude(tools=[{"name": "read", "input_schema": {}}])
    context.add(user("go"))
    use(context, "c1", prose(400))
    rows = context.report().breakdown().partition("\n\n")[2].splitlines()
    told = {row[:26].strip(): row.split("  ")[-1] for row in rows}
    assert told["tool definition: read"] == "System"
    assert told["tool use"] == "System; the provider adds it for tools"
    assert told["request overhead"] == "System; what frames a request"
    assert told["user"] == "Messages"
    assert told["tool result: read"] == "Tool output"
    assert told["output reserve"] == "kept for the reply"
    assert told["margin"] == "so that the estimate is an upper bound"
    assert told["free"] == "Free space − output reserve − margin"


def test_a_margin_below_nothing_says_why():
    made = replace(ledger(messages=10_000), margin=-585)
    row = next(row for row in made.breakdown().splitlines() if row.startswith("  margin"))
    assert row.split(maxsplit=2)[1:] == ["-585", "the provider counts fewer than estimated"]
    assert made.free == 200_000 - 10_000 - 8_192 + 585


def test_a_ledger_is_plain_json():
    context = chat()
    context.add(user("go"))
    told = context.report().to_dict()
    assert json.loads(json.dumps(told))["used"] == context.report().used
    assert {"free", "share", "level", "bound", "sections", "limit", "source"} <= set(told)


def test_cost_prices_cache_reads_and_writes_by_their_ratios():
    usage = Usage(input=1_000_000, output=100_000, cache_read=500_000, cache_write=100_000)
    entry = {"input_price": 3.0, "output_price": 15.0, "cache_read": 0.1, "cache_write": 1.25}
    assert cost_of(usage, entry) == pytest.approx((0.4 + 0.05 + 0.125) * 3 + 1.5)


def test_cost_is_unknown_without_prices():
    assert cost_of(Usage(input=10), {"input_price": 3.0}) is None
