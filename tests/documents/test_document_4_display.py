"""Document 4, Context Management with thresholds: the display of where the tokens go."""

from __future__ import annotations

import re

from tests.documents.product import (
    ANTHROPIC,
    FULL,
    ROLLING,
    THRESHOLDS,
    Talk,
    definition,
    summary_knobs,
)
from tests.documents.words import prose

EXAMPLE = """\
                    Context Usage
  ████████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░ 60.9k/200.0k (30.4%)
  ├─ System:          1.8k (0.9%)
  ├─ Context summary: 485 (0.2%)
  ├─ Tool output:     48.6k (24.3%)
  ├─ Messages:        9.9k (5.0%)
  └─ Free space:      139.1k (69.6%)"""
"""The document's own, without the arrows beside it."""
SIZES = {"system": 1_830, "summary": 485, "tools": 48_640, "messages": 9_915}
"""Tokens that are shown so."""


def drawn(lengths: dict[str, int]) -> Talk:
    """A conversation whose parts have texts of these lengths; each character is a token."""
    talk = Talk(
        "own",
        wire=ANTHROPIC,
        preset=ROLLING,
        by_hand=True,
        window=200_000,
        output=500,
        system="s" * lengths["system"],
        tools=[definition()],
        knobs={"max_tool_result_tokens": 100_000, **summary_knobs(names=0)},
        tokenizer=len,
    )
    for number in range(20):
        talk.user("u" * 400 if number < 19 else "u" * lengths["messages"])
        talk.reply("r" * 40)
    talk.request()
    talk.summarise("- " + "m" * lengths["summary"])
    talk.request()
    talk.call("read", path="p")
    talk.result("t" * lengths["tools"])
    talk.request()
    return talk


def test_the_display_of_the_documents_example_is_drawn_to_the_letter():
    lengths = {"system": 1_000, "summary": 300, "tools": 40_000, "messages": 5_000}
    found = drawn(lengths).sections
    talk = drawn({kind: lengths[kind] + SIZES[kind] - found[kind] for kind in SIZES})
    assert talk.sections == SIZES
    assert talk.display == EXAMPLE


def test_the_display_has_a_title_a_bar_of_40_and_sections_that_add_up():
    talk = Talk(
        "gpt-4o",
        wire=ANTHROPIC,
        preset=THRESHOLDS,
        window=100_000,
        output=500,
        system=prose(6_000),
        tools=[definition()],
    )
    for number in range(11):
        talk.exchange(number, 18_000)
    talk.user("now")
    talk.rounds(prose(7_000))
    title, bar, *rows = talk.display.splitlines()
    assert title.strip() == "Context Usage"
    blocks, share = re.fullmatch(r"  ([█░]{40}) \d+\.\dk/100\.0k \((\d+\.\d)%\)", bar).groups()  # pyright: ignore[reportOptionalMemberAccess]
    assert blocks == "█" * int(float(share) * 0.4) + "░" * (40 - int(float(share) * 0.4))
    form = re.compile(
        r"  (├|└)─ (System|Context summary|Tool output|Messages|Free space): +\S+ \(\S+%\)"
    )
    found = [form.fullmatch(row) for row in rows]
    assert [match and match[2] for match in found] == [
        *("System", "Context summary", "Tool output", "Messages", "Free space")
    ]
    assert "".join(match[1] for match in found if match) == "├├├├└"
    assert sum(talk.sections.values()) == talk.used
    shares = [float(each) for row in rows for each in re.findall(r"\(([\d.]+)%\)", row)]
    assert abs(sum(shares) - 100) < 0.3
    assert abs(sum(shares[:4]) - float(share)) < 0.3


def test_the_summary_has_a_line_only_when_there_is_one():
    talk = Talk(preset=ROLLING)
    shown = []
    for number in range(9):
        talk.exchange(number, 400)
        talk.request()
        shown.append("Context summary:" in talk.display)
        assert shown[-1] == (talk.summary is not None)
    assert shown == sorted(shown)
    assert set(shown) == {False, True}


def test_sizes_are_plain_below_1000_and_thousands_with_one_decimal_above():
    for size, told in (
        (485, "485"),
        (999, "999"),
        (1_000, "1.0k"),
        (1_849, "1.8k"),
        (60_900, "60.9k"),
    ):
        talk = Talk("own", wire=ANTHROPIC, window=200_000, system="s", tokenizer=len)
        talk = Talk(
            "own",
            wire=ANTHROPIC,
            window=200_000,
            system="s" * (1 + size - talk.sections["system"]),
            tokenizer=len,
        )
        talk.user("Hello")
        assert f"System:          {told} ({size / 2_000:.1f}%)" in talk.display
        assert "/200.0k (" in talk.display


def test_it_is_worth_showing_above_30_percent():
    talk = Talk("gpt-4o", wire=ANTHROPIC, preset=FULL, window=20_000, output=500)
    shares = []
    while not shares or shares[-1] < 0.35:
        talk.user(prose(400))
        shares.append(talk.used / 20_000)
        assert talk.worth_showing == (shares[-1] > 0.3), shares[-1]
    assert min(abs(share - 0.3) for share in shares) < 0.004


def test_calls_and_results_are_tool_output_prompt_and_definitions_system_the_rest_messages():
    def grown(talk: Talk, before: dict[str, int]) -> dict[str, int]:
        return {kind: talk.sections[kind] - before[kind] for kind in before}

    bare = Talk("own", wire=ANTHROPIC, preset=FULL, tokenizer=len).sections
    tools = [definition(description="d" * 3_000)]
    talk = Talk("own", wire=ANTHROPIC, preset=FULL, tokenizer=len, system="s" * 4_000, tools=tools)
    more = grown(talk, bare)
    assert 7_000 <= more["system"] <= 7_700
    assert (more["summary"], more["tools"], more["messages"]) == (0, 0, 0)
    before = talk.sections
    talk.user("u" * 2_000)
    talk.reply("r" * 1_000)
    more = grown(talk, before)
    assert 3_000 <= more["messages"] <= 3_020
    assert (more["system"], more["summary"], more["tools"]) == (0, 0, 0)
    before = talk.sections
    talk.call("read", path="p" * 4_000)
    talk.result("t" * 8_000)
    more = grown(talk, before)
    assert 12_000 <= more["tools"] <= 12_080
    assert (more["system"], more["summary"], more["messages"]) == (0, 0, 0)


def test_system_prompt_and_tools_are_counted_once_however_many_calls():
    talk = Talk(preset=FULL, system=prose(4_000), tools=[definition()])
    sizes = {talk.sections["system"]}
    for _ in range(6):
        talk.user("Hello")
        talk.request()
        talk.reply("Hello.")
        sizes.add(talk.sections["system"])
    assert len(sizes) == 1
    assert min(sizes) > 500
