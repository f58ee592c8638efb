"""A long output made short: what stays, and what is said of what does not."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.durations import measure_cpu_s
from trimtab.engine.log.excerpts import KeptPieces, render_kept_pieces, select_kept_pieces
from trimtab.engine.text.terminal import render_as_terminal

MARKER = re.compile(
    r"\[… (?:the line above (?P<repeats>[\d,]+) more times?"
    r"|(?:(?P<characters>[\d,]+) characters?)?(?: and )?(?:(?P<lines>[\d,]+) lines?)? left out) …\]"
)


def bytes4(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass")) // 4


def words(text: str) -> int:
    """Not additive: two halves of a word are two, and a run of blanks is nothing."""
    return len(re.findall(r"\w+|[^\w\s]", text))


def newlines(text: str) -> int:
    """Dear ends of lines, so that sums of parts are too small."""
    return len(text) + 7 * text.count("\n")


COUNTS: tuple[Callable[[str], int], ...] = (len, bytes4, words, newlines)
LINES = st.lists(
    st.one_of(
        st.sampled_from(
            ["", "x", "the same line", "\x1b[32mthe same line\x1b[0m", "a\rthe same line"]
        ),
        st.sampled_from(
            ["ValueError: bad", "error: no", "done\r", "0 errors", "}", "\ud83d\ude00" * 9]
        ),
        st.text("ab 😀\x1b[0m\r", max_size=60),
        st.integers(0, 9999).map(lambda number: f"line {number} of an output"),
        st.integers(200, 3000).map(lambda size: "long line " * (size // 10)),
    ),
    max_size=60,
)
TEXTS = st.tuples(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans()).map(
    lambda made: made[1].join(made[0]) + made[1] * made[2]
)
ROOMS = st.one_of(st.sampled_from([0, 1, 2, 10, 20]), st.integers(0, 3000))


def numbers_of(lines: list[str]) -> tuple[int, int]:
    """Lines that the markers say are left out, and those that they say are repeats."""
    left_out = repeats = 0
    for line in lines:
        if found := MARKER.fullmatch(line):
            left_out += int((found["lines"] or "0").replace(",", ""))
            repeats += int((found["repeats"] or "0").replace(",", ""))
    return left_out, repeats


def lines_of(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


@given(TEXTS, ROOMS, st.sampled_from(COUNTS))
@example(text="x" * 5000, room=100, count=len)
@example(text="", room=0, count=len)
def test_what_stays_fits(text: str, room: int, count: Callable[[str], int]) -> None:
    assert count(render_kept_pieces(text, select_kept_pieces(text, room, count).pieces)) <= room


@given(TEXTS, ROOMS, st.sampled_from(COUNTS))
def test_pieces_are_ranges_of_the_text_in_order(
    text: str, room: int, count: Callable[[str], int]
) -> None:
    pieces = select_kept_pieces(text, room, count).pieces
    places = [place for piece in pieces for place in piece]
    assert places == sorted(places)
    assert all(begin < end for begin, end in pieces)
    assert all(one[1] < two[0] for one, two in pairwise(pieces))
    assert not places or (places[0] >= 0 and places[-1] <= len(text))


@given(TEXTS, ROOMS, st.sampled_from(COUNTS))
def test_the_same_text_is_cut_the_same(text: str, room: int, count: Callable[[str], int]) -> None:
    again = "".join(list(text))
    assert select_kept_pieces(again, room, count) == (made := select_kept_pieces(text, room, count))
    assert render_kept_pieces(again, made.pieces) == render_kept_pieces(text, list(made.pieces))


@given(TEXTS, ROOMS, st.sampled_from(COUNTS))
def test_each_line_that_is_shown_is_a_line_of_the_text_in_its_order_or_a_marker(
    text: str, room: int, count: Callable[[str], int]
) -> None:
    originals = iter(lines_of(render_as_terminal(text)))
    original = ""
    for line in lines_of(render_kept_pieces(text, select_kept_pieces(text, room, count).pieces)):
        if MARKER.fullmatch(line):
            continue
        # two parts of one line are both in it; all others are in a line that comes later
        while line.rstrip("\r") not in original or (not original and line):
            original = next(originals)


@given(TEXTS, ROOMS, st.sampled_from(COUNTS))
def test_lines_shown_and_numbers_in_markers_add_up(
    text: str, room: int, count: Callable[[str], int]
) -> None:
    made = select_kept_pieces(text, room, count)
    assert made.total_lines == len(lines_of(text))
    if not made.pieces:
        assert (made.shown_lines, made.repeated_lines, made.error_lines) == (0, 0, 0)
        return
    left_out, repeats = numbers_of(lines_of(render_kept_pieces(text, made.pieces)))
    assert repeats == made.repeated_lines
    assert made.shown_lines + left_out + repeats == made.total_lines


@given(TEXTS, ROOMS, st.sampled_from(COUNTS))
def test_a_text_that_fits_stays_whole(text: str, room: int, count: Callable[[str], int]) -> None:
    made = select_kept_pieces(text, room, count)
    if count(render_as_terminal(text)) <= room:
        assert render_kept_pieces(text, made.pieces) == render_as_terminal(text)
        assert made.shown_lines == made.total_lines


@given(TEXTS)
def test_all_of_a_text_is_the_text_as_a_terminal_shows_it(text: str) -> None:
    assert render_kept_pieces(text, ((0, len(text)),)) == render_as_terminal(text)


@given(TEXTS, st.lists(st.integers(0, 2000), max_size=8))
def test_any_pieces_of_whole_lines_add_up(text: str, places: list[int]) -> None:
    starts = [0, *(found.end() for found in re.finditer("\n", text)), len(text)]
    chosen = sorted({starts[place % len(starts)] for place in places})
    pieces = list(zip(chosen[::2], chosen[1::2], strict=False))
    shown = lines_of(render_kept_pieces(text, pieces))
    left_out, repeats = numbers_of(shown)
    inside = sum(len(lines_of(text[begin:end])) for begin, end in pieces)
    if pieces:
        assert inside + left_out + repeats == len(lines_of(text))


@given(TEXTS, ROOMS)
def test_no_code_is_cut_in_half_and_no_character(text: str, room: int) -> None:
    whole = render_as_terminal(text)
    for begin, end in select_kept_pieces(text, room, len).pieces:
        assert render_as_terminal(text[begin:end]).rstrip("\r\n") in whole
        for place in (begin, end):
            assert text[place - 1 : place + 1] != "\ud83d\ude00"


@given(st.text("ab\n", max_size=300), st.integers(0, 300))
def test_lines_of_one_character_are_never_told_as_repeats_to_save_room(
    text: str, room: int
) -> None:
    short = "\n".join(line[:1] for line in text.split("\n"))
    made = select_kept_pieces(short, room, len)
    assert len(render_kept_pieces(short, made.pieces)) <= len(short)


@given(st.lists(st.sampled_from(["ab", "a longer line", "a"]), max_size=40))
def test_telling_repeats_makes_a_text_shorter(lines: list[str]) -> None:
    text = "\n".join(lines)
    made = select_kept_pieces(text, len(text) - 1, len)
    assert len(render_kept_pieces(text, made.pieces)) < max(len(text), 1)


def log(lines: int) -> list[str]:
    return [
        f"12:00:{number % 60:02} step {number} did what it had to do" for number in range(lines)
    ]


def seen(
    text: str, room: int, count: Callable[[str], int] = bytes4
) -> tuple[KeptPieces, list[str]]:
    made = select_kept_pieces(text, room, count)
    return made, render_kept_pieces(text, made.pieces).split("\n")


def test_a_stack_trace_in_the_middle_of_a_long_log_is_shown() -> None:
    lines = log(5000)
    lines[2500:2500] = [
        "Traceback (most recent call last):",
        '  File "app.py", line 3, in main',
        "    run()",
        "ValueError: the number is odd",
        "",
    ]
    made, shown = seen("\n".join(lines), 500)
    assert "ValueError: the number is odd" in shown
    assert "Traceback (most recent call last):" in shown
    assert '  File "app.py", line 3, in main' in shown
    assert shown[0] == lines[0]
    assert shown[-1] == lines[-1]
    assert made.error_lines == 2
    assert [bool(MARKER.fullmatch(line)) for line in shown].count(True) == 2


def test_head_and_tail_get_what_errors_do_not_need() -> None:
    made, shown = seen("\n".join(log(5000)), 1000)
    at = next(at for at, line in enumerate(shown) if MARKER.fullmatch(line))
    assert made.error_lines == 0
    assert bytes4("\n".join(shown)) > 950
    assert 0.5 < at / len(shown) < 0.6


def test_errors_are_taken_from_all_over_the_middle_and_those_alike_once() -> None:
    lines = log(6000)
    for at in range(1000, 5000, 40):
        lines[at] = f"error: file {chr(97 + at // 40 % 26)}{chr(97 + at // 1040 % 26)} is missing"
        lines[at + 7] = f"error: request {at} timed out"
    _, shown = seen("\n".join(lines), 1500)
    errors = [line for line in shown if line.startswith("error: file")]
    assert len(errors) > 4
    places = [lines.index(line) for line in errors]
    assert places[0] == 1000
    assert places[-1] > 4000
    assert sum("timed out" in line for line in shown) <= 1


def test_output_of_pytest_keeps_the_reason_of_the_failure() -> None:
    lines = [
        "============================= test session starts ==============================",
        *(f"tests/test_{number}.py::test_it PASSED" for number in range(2000)),
        "=================================== FAILURES ===================================",
        "    def test_odd():",
        ">       assert number == 2",
        "E       assert 3 == 2",
        "tests/test_odd.py:3: AssertionError",
        *(f"tests/test_{number}.py::test_more PASSED" for number in range(2000)),
        "FAILED tests/test_odd.py::test_odd - assert 3 == 2",
        "======================= 1 failed, 4000 passed in 3.20s =========================",
    ]
    _, shown = seen("\n".join(lines), 400)
    assert "E       assert 3 == 2" in shown
    assert "tests/test_odd.py:3: AssertionError" in shown
    assert shown[-1] == lines[-1]


def test_progress_is_one_line_and_a_line_said_again_is_said_once() -> None:
    bar = "".join(f"\r\x1b[2Kfetching {part}%" for part in range(101))
    text = f"npm install\n{bar}\n" + "npm http fetch GET 200 registry\n" * 49 + "added 3 packages\n"
    made, _ = seen(text, 40)
    assert render_kept_pieces(text, made.pieces) == (
        "npm install\nfetching 100%\nnpm http fetch GET 200 registry\n"
        "[… the line above 48 more times …]\nadded 3 packages\n"
    )
    assert (made.total_lines, made.shown_lines, made.repeated_lines) == (52, 4, 48)


def test_colours_do_not_hide_that_a_line_is_said_again() -> None:
    text = "\n".join(f"\x1b[3{number % 8}mwaiting for the server\x1b[0m" for number in range(30))
    _, shown = seen(text, 20)
    assert shown == ["waiting for the server", "[… the line above 29 more times …]"]


def test_one_giant_line_is_cut_inside() -> None:
    text = "abcdefghij" * 200_000
    made, shown = seen(text, 300)
    assert made.total_lines == made.shown_lines == 1
    assert len(made.pieces) == 2
    assert shown[0] == text[: len(shown[0])]
    assert shown[2] == text[-len(shown[2]) :]
    hidden = len(text) - len(shown[0]) - len(shown[2])
    assert shown[1] == f"[… {hidden:,} characters left out …]"


def test_a_giant_line_among_others_is_cut_inside_and_they_stay() -> None:
    text = "\n".join(["$ cat data.json", '{"a": 1}, ' * 100_000, "$ echo done", "done"])
    made, shown = seen(text, 300)
    assert shown[0] == "$ cat data.json"
    assert shown[-2:] == ["$ echo done", "done"]
    assert made.shown_lines == 4


def test_an_error_in_a_long_line_is_shown_with_what_is_around_it() -> None:
    lines = log(3000)
    lines[1500] = "x" * 3000 + " fatal: the disk is full " + "y" * 3000
    made, shown = seen("\n".join(lines), 1500)
    around = next(line for line in shown if "the disk is full" in line)
    assert len(around) <= 400
    assert made.error_lines == 1
    assert sum("characters and" in line for line in shown) == 2


def test_ends_of_lines_of_windows_stay() -> None:
    text = "\r\n".join(log(300))
    made, _ = seen(text, 200)
    shown = render_kept_pieces(text, made.pieces)
    assert shown.startswith("12:00:00 step 0 did what it had to do\r\n")
    assert [line.endswith("\r") for line in shown.split("\n")].count(False) == 2


def test_of_only_blank_lines_some_stay_and_their_number_is_told() -> None:
    text = "\n" * 100_000
    made, _ = seen(text, 100)
    shown = render_kept_pieces(text, made.pieces)
    assert sum(numbers_of(shown.split("\n"))) + made.shown_lines == 100_000
    assert bytes4(shown) <= 100


def test_a_gap_that_is_smaller_than_its_marker_is_no_gap() -> None:
    lines = log(3000)
    lines[1500:1503] = ["error: one", "a", "b"]
    lines[1504:1504] = ["error: two"]
    lines[1503] = "c"
    _, shown = seen("\n".join(lines), 600)
    at = shown.index("error: one")
    assert shown[at : at + 5] == ["error: one", "a", "b", "c", "error: two"]


GAPS = {
    "lines": ("a\nb\nc\nd\n", [(2, 4)], "[… 1 line left out …]\nb\n[… 2 lines left out …]"),
    "lines without a last newline": ("a\nb\nc", [(0, 2)], "a\n[… 2 lines left out …]"),
    "thousands": ("a\n" + "b\n" * 1200, [(0, 2)], "a\n[… 1,200 lines left out …]"),
    "repeats": ("a\na\na\nb", [(0, 2), (6, 7)], "a\n[… the line above 2 more times …]\nb"),
    "one repeat": ("a\na\n", [(0, 2)], "a\n[… the line above 1 more time …]"),
    "repeats in colour": (
        "a\n\x1b[1ma\x1b[0m\nc\ra\r\nb",
        [(0, 2), (17, 18)],
        "a\n[… the line above 2 more times …]\nb",
    ),
    "repeats, and then others": ("a\na\nb\nc", [(0, 2)], "a\n[… 3 lines left out …]"),
    "others, and then repeats": ("a\nb\na\na", [(0, 2)], "a\n[… 3 lines left out …]"),
    "others of the same size": ("aa\nbb\ncc\n", [(0, 3)], "aa\n[… 2 lines left out …]"),
    "others between repeats": ("a\na\nb\na\n", [(0, 2)], "a\n[… 3 lines left out …]"),
    "repeats of a line of which a part is shown": (
        "abcd\nabcd\nabcd\n",
        [(2, 5)],
        "[… 2 characters left out …]\ncd\n[… 2 lines left out …]",
    ),
    "inside of a line": ("abcdef", [(0, 1), (4, 6)], "a\n[… 3 characters left out …]\nef"),
    "from one line into another": (
        "abc\nd\nefg\n",
        [(0, 1), (7, 10)],
        "a\n[… 3 characters and 1 line left out …]\nfg\n",
    ),
    "to the end of a line": ("abc\nd", [(0, 1), (4, 5)], "a\n[… 2 characters left out …]\nd"),
    "an end of a line alone": ("abc\nd", [(0, 3), (4, 5)], "abc\n[… 1 character left out …]\nd"),
}


@pytest.mark.parametrize(("text", "pieces", "shown"), GAPS.values(), ids=GAPS.keys())
def test_a_gap_says_what_it_holds(text: str, pieces: list[tuple[int, int]], shown: str) -> None:
    assert render_kept_pieces(text, pieces) == shown


@pytest.mark.parametrize("room", range(60, 90))
def test_a_character_of_two_halves_stays_whole(room: int) -> None:
    text = "x" * (room % 2) + "\ud83d\ude00" * 500
    made = select_kept_pieces(text, room, len)
    assert len(made.pieces) == 2
    for begin, end in made.pieces:
        assert text[begin] != "\ude00"
        assert text[end - 1] != "\ud83d"


def test_blank_lines_are_not_told_as_repeats_while_there_is_room_for_them() -> None:
    text = "\n".join(["first", *[" " * 9] * 12, "last"])
    assert select_kept_pieces(text, 90, len).shown_lines > 3


def test_errors_alike_are_shown_once() -> None:
    lines = log(4000)
    lines[1000:3000:50] = [f"error: request {number} timed out" for number in range(1, 41)]
    made, shown = seen("\n".join(lines), 1500)
    assert made.error_lines == 1
    assert [line for line in shown if "timed out" in line] == ["error: request 1 timed out"]


def test_a_failure_is_not_taken_for_alike_with_none() -> None:
    lines = log(4000)
    lines[1500] = "suite: 12 passed, 0 failed"
    lines[2500] = "suite: 11 passed, 1 failed"
    _, shown = seen("\n".join(lines), 500)
    assert lines[2500] in shown
    assert lines[1500] not in shown


def test_errors_in_head_and_tail_are_not_counted_again() -> None:
    lines = ["error: at the start", *log(4000), "error: at the end"]
    made, shown = seen("\n".join(lines), 500)
    assert (shown[0], shown[-1]) == (lines[0], lines[-1])
    assert made.error_lines == 0


def test_a_cut_of_one_long_line_counts_no_more_of_it_than_may_fit() -> None:
    counted_chars = 0

    def count(text: str) -> int:
        nonlocal counted_chars
        counted_chars += len(text)
        return bytes4(text)

    text = "abc defg " * 100_000
    made = select_kept_pieces(text, 500, count, total_tokens=bytes4(text))
    assert made.pieces
    assert counted_chars < 100_000


@pytest.mark.parametrize("room", [-5, 0, 1, 3])
def test_where_there_is_no_room_nothing_stays_and_no_marker(room: int) -> None:
    text = "\n".join(log(100))
    made = select_kept_pieces(text, room, bytes4)
    assert made == KeptPieces(
        pieces=(), total_lines=100, shown_lines=0, error_lines=0, repeated_lines=0, tokens=0
    )
    assert render_kept_pieces(text, made.pieces) == ""


BIG = {
    "log": "\n".join(log(25_000)),
    "one line": "x" * 1_000_000,
    "minified": '{"error": "no"}, ' * 60_000,
    "blank lines": "\n" * 1_000_000,
    "one line again and again": "the same line\n" * 70_000,
    "errors": "\n".join(f"error {chr(97 + at % 26)}{at}" for at in range(80_000)),
    "colours": "".join(f"\x1b[32mok\x1b[0m test {at}\r\n" for at in range(35_000)),
    "one line of colours": "\x1b[32mx\x1b[0m y" * 80_000,
    "progress": "".join(f"\rfetching {at}" for at in range(60_000)),
}


@pytest.mark.parametrize("name", BIG)
def test_a_megabyte_is_cut_in_time(name: str) -> None:
    calls = 0

    def count(text: str) -> int:
        nonlocal calls
        calls += 1
        return bytes4(text)

    def cut() -> None:
        nonlocal calls
        calls = 0
        select_kept_pieces(BIG[name], 8000, count)

    # A tenth of it on a machine with nothing else to do.
    assert measure_cpu_s(cut, enough_s=3) <= 3
    assert calls < 500


@pytest.mark.parametrize("power", [1, 3, 8, 20])
def test_a_cut_is_found_in_few_counts_however_unevenly_tokens_grow(power):
    counts: list[int] = []

    def count(piece: str) -> int:
        counts.append(len(piece))
        return int((len(piece) / 2_000) ** power)

    select_kept_pieces("x" * 40_000, 900, count)
    assert len(counts) < 1_000
