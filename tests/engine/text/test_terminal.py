"""What a terminal would show of a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.durations import measure_cpu_s
from trimtab.engine.text.terminal import map_displayed_characters, render_as_terminal

WRITTEN = st.lists(
    st.one_of(
        st.sampled_from("ab0;m]\\é😀\n\r\x07\x1b\x9b"),
        st.sampled_from(["\r\n", "\x1b[0m", "\x1b[38;5;1m", "\x1b[2K", "\x1b(B", "\x1b7"]),
        st.sampled_from(["\x1b]0;title\x07", "\x1b]8;;http://a\x1b\\", "\x1bPq#0\x1b\\"]),
    )
).map("".join)

SHOWN = {
    "colours": ("\x1b[1;31mred\x1b[0m", "red"),
    "cursor": ("\x1b[2K\x1b[1Aup", "up"),
    "one character for the introducer": ("\x9b31mred", "red"),
    "title with a bell": ("\x1b]0;my title\x07rest", "rest"),
    "link": ("\x1b]8;;http://a\x1b\\text\x1b]8;;\x1b\\", "text"),
    "title without end": ("\x1b]0;my title\nrest", "0;my title\nrest"),
    "character set": ("\x1b(Btext\x1b=", "text"),
    "device string": ("\x1bPq#0\x1b\\text", "text"),
    "code cut off": ("text\x1b[31", "text"),
    "escape at the end": ("text\x1b", "text"),
    "code cut off by a newline": ("a\x1b[3\nb", "a\nb"),
    "progress": ("10%\r50%\r100%\ndone\n", "100%\ndone\n"),
    "progress with colours": ("\x1b[32m10%\r\x1b[32m99%\x1b[0m\n", "99%\n"),
    "windows": ("a\r\nb\r\n", "a\r\nb\r\n"),
    "windows, twice": ("a\r\r\nb", "a\r\nb"),
    "progress on windows": ("10%\r99%\r\nb", "99%\r\nb"),
    "return at the end": ("50%\r99%\r", "99%"),
    "brackets are no codes": ("[31m a[0]", "[31m a[0]"),
}


@pytest.mark.parametrize(("text", "shown"), SHOWN.values(), ids=SHOWN.keys())
def test_only_what_is_on_the_screen_is_shown(text: str, shown: str) -> None:
    assert render_as_terminal(text) == shown


@given(WRITTEN)
def test_lines_stay_lines_and_no_code_stays(text: str) -> None:
    shown = render_as_terminal(text)
    assert shown.count("\n") == text.count("\n")
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    assert render_as_terminal(shown) == shown


@given(WRITTEN, WRITTEN)
def test_lines_are_stripped_one_by_one(one: str, two: str) -> None:
    assert render_as_terminal(f"{one}\n{two}") == render_as_terminal(
        f"{one}\n"
    ) + render_as_terminal(two)


@given(WRITTEN.filter(lambda text: "\n" not in text))
def test_each_shown_character_has_its_place_in_what_was_written(line: str) -> None:
    where = map_displayed_characters(line)
    shown = render_as_terminal(line)
    found = [where.find_source_offset(number) for number in range(len(shown))]
    assert "".join(line[at] for at in found) == shown
    assert found == sorted(set(found))


@pytest.mark.parametrize(
    "text",
    [
        "\x1b]" * 500_000,
        "\x1b[" * 500_000,
        "\r" * 1_000_000,
        "\x1b]a" * 300_000,
        "a\r" * 500_000,
        "\x1b[" + "1;" * 500_000,
        "\x1bP" + "x" * 1_000_000,
        "\x1b" + " " * 1_000_000,
    ],
    ids=lambda text: repr(text[:6]),
)
def test_a_megabyte_of_codes_is_stripped_in_time(text: str) -> None:
    assert measure_cpu_s(lambda: render_as_terminal(text), enough_s=2) <= 2
