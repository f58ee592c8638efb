"""The extractive summary: lines that were said, and a line of names."""

from tests.snapshots import snapshot
from trimtab.engine.log.message import Media, Message, Text, ToolCall, ToolResult, make_text_message
from trimtab.engine.summaries.extract import (
    MAX_LINE_CHARS,
    NAMES_LINE_PREFIX,
    extract_summary,
    keep_newest_lines,
)
from trimtab.engine.tokens.counter import BYTES_4_COUNTER

ROUND = [
    make_text_message("user", "\n  Fix the parser.\nIt fails."),
    Message(
        role="assistant",
        parts=(
            Text(text="Looking."),
            ToolCall(id="c1", name="read", arguments='{"path":\n "src/wire.py"}'),
        ),
    ),
    Message(
        role="tool",
        parts=(ToolResult(call_id="c1", content=(Text(text="def parse_header():\n  read_u8()"),)),),
    ),
]


def test_each_thing_said_is_one_line():
    assert extract_summary("", ROUND, BYTES_4_COUNTER) == snapshot("""\
- user: Fix the parser.
- assistant: Looking.
- called read {"path": "src/wire.py"}
- result: def parse_header():\
""")


def test_the_prior_summary_comes_first_without_its_blank_lines():
    assert (
        extract_summary("- one\n\n- two", ROUND[:1], BYTES_4_COUNTER)
        == "- one\n- two\n- user: Fix the parser."
    )


def test_long_lines_are_cut():
    line = extract_summary(
        "", [make_text_message("user", "word " * 100)], BYTES_4_COUNTER
    ).removeprefix("- user: ")
    assert len(line) == MAX_LINE_CHARS
    assert line.endswith("…")


def test_a_message_without_text_leaves_no_line():
    picture = Media(kind="image", mime="image/png", data="AA==")
    assert (
        extract_summary("", [Message(role="user", parts=(picture,))], BYTES_4_COUNTER, max_names=9)
        == ""
    )


def test_the_oldest_lines_go_where_there_is_no_room():
    prior = "\n".join(f"- line {number}" for number in range(100))
    kept = extract_summary(prior, ROUND[:1], BYTES_4_COUNTER, max_tokens=20).splitlines()
    assert kept[-1] == "- user: Fix the parser."
    assert kept[0] == f"- line {101 - len(kept)}"
    assert 1 < len(kept) < 10


def test_of_a_single_line_that_is_too_long_the_newest_words_stay():
    assert keep_newest_lines("one two three four", BYTES_4_COUNTER, 3) == "three four"


def test_names_are_listed_last_without_those_that_a_line_has():
    assert (
        extract_summary("", ROUND, BYTES_4_COUNTER, max_names=9).splitlines()[-1]
        == f"{NAMES_LINE_PREFIX}read_u8"
    )
    assert NAMES_LINE_PREFIX not in extract_summary("", ROUND, BYTES_4_COUNTER)


def test_the_prior_summarys_names_are_carried_on_in_one_line():
    prior = f"- user: before\n{NAMES_LINE_PREFIX}old_name, src/old.py"
    made = extract_summary(prior, ROUND, BYTES_4_COUNTER, max_names=9).splitlines()
    assert made[0] == "- user: before"
    assert made[-1] == f"{NAMES_LINE_PREFIX}old_name, src/old.py, read_u8"
    assert sum(line.startswith(NAMES_LINE_PREFIX) for line in made) == 1


def test_the_names_of_lines_that_go_are_still_listed():
    prior = "- called read src/old.py\n" + "\n".join(f"- line {n}" for n in range(100))
    made = extract_summary(prior, ROUND, BYTES_4_COUNTER, max_tokens=20, max_names=9)
    assert "called read src/old.py" not in made
    assert "src/old.py" in made.splitlines()[-1]


def test_a_word_that_a_line_was_cut_in_is_no_name():
    prior = "- called read src/old.py src/ver…\n" + "\n".join(f"- line {n}" for n in range(100))
    named = extract_summary(prior, [], BYTES_4_COUNTER, max_tokens=20, max_names=9).splitlines()[-1]
    assert named == f"{NAMES_LINE_PREFIX}src/old.py"


def test_names_are_listed_where_no_line_is_left():
    deep = make_text_message("user", "\n" * 2_000 + "deep_name")
    assert (
        extract_summary("", [deep], BYTES_4_COUNTER, max_names=9) == f"{NAMES_LINE_PREFIX}deep_name"
    )


def test_what_the_user_said_first_stays_in_a_quarter_of_the_tokens():
    said = [make_text_message("user", f"Rule {number}: be brief.") for number in range(6)]
    said += [make_text_message("assistant", f"Step {number} is done.") for number in range(50)]
    text = extract_summary("", said, BYTES_4_COUNTER, max_tokens=100)
    for _ in range(3):  # carried on and on
        more = [make_text_message("assistant", f"Later {number}.") for number in range(20)]
        text = extract_summary(text, more, BYTES_4_COUNTER, max_tokens=100)
    lines = text.splitlines()
    assert lines[:3] == [f"- user: Rule {number}: be brief." for number in range(3)]
    assert sum(line.startswith("- user: ") for line in lines) == 3
    assert lines[-1] == "- assistant: Later 19."
    assert BYTES_4_COUNTER.count(text) <= 100


def test_of_a_first_line_that_is_longer_than_its_share_the_beginning_stays():
    task = "Never touch invoices_2019. " + "All tests must stay green. " * 5
    said = [make_text_message("user", task)]
    said += [make_text_message("assistant", f"Step {number} is done.") for number in range(50)]
    said += [make_text_message("user", "Go on.")]
    lines = extract_summary("", said, BYTES_4_COUNTER, max_tokens=100).splitlines()
    assert lines[0].startswith("- user: Never touch invoices_2019. All")
    assert lines[0].endswith("…")
    assert lines[-1] == "- user: Go on."
    assert BYTES_4_COUNTER.count("\n".join(lines)) <= 100


def test_a_first_line_is_whole_where_all_behind_it_has_room():
    said = [make_text_message("user", "Fix the parser, and keep all tests green.")]
    assert extract_summary("- one\n- two", said, BYTES_4_COUNTER, max_tokens=16) == (
        "- two\n- user: Fix the parser, and keep all tests green."
    )
