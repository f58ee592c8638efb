"""A summary as text: its sections, its list, and how both are cut."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trimtab.engine.summaries.format import (
    DEFAULT_LIST_TOKENS,
    MAX_LIST_TOKENS,
    SUMMARY_SECTIONS,
    VerbatimList,
    compute_list_cap,
    cut_sections,
    cut_summary_to_caps,
    cut_verbatim_list,
    format_sections,
    format_verbatim_list,
    join_summary,
    parse_sections,
    sanitise_verbatim_item,
    split_summary,
)
from trimtab.engine.tokens.counter import make_piecewise_counter

COUNTER = make_piecewise_counter("o200k_base")

lines = st.lists(
    st.text(alphabet="abcdefghij 0123456789", min_size=3, max_size=200).map(lambda t: f"- x{t}"),
    max_size=12,
)
names = st.sampled_from([*SUMMARY_SECTIONS]).map(str)
bodies = st.dictionaries(names, lines).map(format_sections)
items = st.lists(
    st.text(min_size=1, max_size=300).map(sanitise_verbatim_item).filter(bool), max_size=60
)
lists = st.builds(
    lambda open_, listed: VerbatimList(open_questions=tuple(open_), items=tuple(listed)),
    items,
    items,
)


@pytest.mark.parametrize(
    "heading", ["Facts:", "Facts", "## Facts", "**Facts**", "**Facts:**", "2. Facts:", "facts:"]
)
def test_a_heading_is_found_however_a_model_writes_it(heading):
    assert parse_sections(f"{heading}\n- the port is 8443") == {"Facts": ["- the port is 8443"]}


def test_what_stands_on_a_heading_s_own_line_is_under_it():
    assert parse_sections("Facts: the port is 8443\n* and open") == {
        "Facts": ["- the port is 8443", "- and open"]
    }


def test_what_stands_before_the_first_heading_is_no_part_of_the_summary():
    assert parse_sections("Sure, here it is!\nFacts:\n- one") == {"Facts": ["- one"]}


def test_a_section_that_says_there_is_nothing_is_empty():
    told = parse_sections("Facts:\n- none\nDecisions:\n(none)\nPreferences:\nn/a\nWork done:\n-")
    assert told == {"Facts": [], "Decisions": [], "Preferences": [], "Work done": []}
    assert format_sections(told) == ""


def test_sections_stand_in_their_order_whatever_the_model_s():
    body = format_sections(parse_sections("Decisions:\n- b\nFacts:\n- a\nDecisions:\n- c"))
    assert body == "Facts:\n- a\nDecisions:\n- b\n- c"


def test_a_cut_takes_the_oldest_lines_of_the_longest_section_and_keeps_headings():
    facts = [f"- fact number {n} of very many facts" for n in range(100)]
    body = format_sections({"Goal and latest request": ["- the goal"], "Facts": facts})
    short = cut_sections(body, COUNTER, 100)
    assert COUNTER.count(short) <= 100
    assert short.startswith("Goal and latest request:\n- the goal\nFacts:\n")
    assert short.endswith(facts[-1])
    assert facts[0] not in short


def test_a_summary_without_sections_loses_its_oldest_lines():
    assert cut_sections("\n".join(f"line {n}" for n in range(200)), COUNTER, 30).endswith(
        "line 199"
    )


@given(bodies, st.integers(0, 600))
def test_a_cut_is_within_its_cap_and_does_nothing_the_second_time(body, cap):
    short = cut_sections(body, COUNTER, cap)
    assert COUNTER.count(short) <= cap
    assert cut_sections(short, COUNTER, cap) == short


@given(bodies, lists)
def test_a_list_is_read_as_it_was_written(body, listed):
    assert split_summary(join_summary(body, listed)) == (body, listed)


@given(lists, st.integers(0, 300))
def test_a_list_within_a_cap_is_its_beginning(listed, cap):
    kept = cut_verbatim_list(listed, COUNTER, cap)
    assert COUNTER.count(format_verbatim_list(kept)) <= cap
    assert listed.open_questions[: len(kept.open_questions)] == kept.open_questions
    assert listed.items[: len(kept.items)] == kept.items


@example(
    # Its lines in the opposite order count for less.
    body=(
        "Open questions and tasks:\n- x00000000000aaaaaa\n"
        "Files and artefacts:\n- xaa0\n- x000\n- x000"
    ),
    listed=VerbatimList(open_questions=(), items=()),
    first=39,
    second=0,
)
@given(bodies, lists, st.integers(0, 300), st.integers(0, 300))
def test_sections_and_list_have_caps_of_their_own(body, listed, first, second):
    told, kept = split_summary(
        cut_summary_to_caps(join_summary(body, listed), COUNTER, first, second)
    )
    assert COUNTER.count(told) <= first
    assert COUNTER.count(format_verbatim_list(kept)) <= second


@pytest.mark.parametrize(
    ("replaced", "before", "cap"),
    [
        (0, 0, 500),
        (6_250, 0, 500),
        (10_000, 0, 800),
        (50_000, 0, 4_000),
        (1_000_000, 0, 4_000),
        (0, 1_700, 1_700),  # little was said since: what is listed stays
        (1_000_000, 9_000, 4_000),
    ],
)
def test_a_list_may_take_8_percent_of_what_is_replaced_from_500_to_4000_tokens(
    replaced, before, cap
):
    assert compute_list_cap(replaced, before) == cap
    assert (DEFAULT_LIST_TOKENS, MAX_LIST_TOKENS) == (500, 4_000)
