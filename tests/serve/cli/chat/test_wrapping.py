"""Words that come in pieces, broken into lines at spaces."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from trimtab_serve.cli.chat.turn_screen import StreamingWordWrapper


def wrapped(pieces: list[str], width: int) -> str:
    words = StreamingWordWrapper()
    return "".join(words.feed(piece, width) for piece in pieces) + words.flush(width)


def cut(text: str, sizes: list[int]) -> list[str]:
    pieces: list[str] = []
    for size in sizes:
        pieces.append(text[:size])
        text = text[size:]
    return [*pieces, text]


PROSE = st.text(st.sampled_from("abc de\nfg"), max_size=200)


@given(PROSE, st.lists(st.integers(1, 9), max_size=30), st.integers(12, 40))
def test_no_line_of_short_words_is_too_wide_and_no_word_is_lost(text, sizes, width):
    made = wrapped(cut(text, sizes), width)
    assert made.split() == text.split()
    short = all(len(word) <= width for word in text.split())
    assert not short or all(cell_len(line.rstrip()) <= width for line in made.splitlines())


@given(PROSE, st.lists(st.integers(1, 9), max_size=30), st.integers(12, 40))
def test_how_a_text_is_cut_into_pieces_makes_no_difference(text, sizes, width):
    assert wrapped(cut(text, sizes), width) == wrapped([text], width)


def test_code_is_left_as_it_is():
    line = "print('a line of code that is longer than the window is wide')"
    text = f"See:\n```python\n{line}\n```\nand more words that go beyond the window"
    made = wrapped([text], 20)
    assert line in made.splitlines()
    assert "and more words that\ngo beyond the window" in made


def test_text_without_spaces_is_passed_on_as_it_comes():
    words = StreamingWordWrapper()
    assert words.feed("漢字漢字", 20) == "漢字漢字"


def test_a_word_that_is_shown_early_is_not_torn_from_its_end():
    words = StreamingWordWrapper()
    made = words.feed("say hel", 9) + words.flush(9) + words.feed("lo to me ", 9)
    assert made + words.flush(9) == "say hello\nto me"
