"""Texts as a terminal shows them."""

import io

import pytest

from trimtab.cli.stderr_messages import print_error_for_exit
from trimtab.cli.text_format import wrap_for_terminal, wrap_text

TOLD = "session.context.trigger is 32000 here; write 32000 per million, and never break a word"


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("width", [30, 47, 60])
def test_lines_are_broken_at_words_and_go_on_indented(width):
    first, *more = wrap_text(TOLD, width, "    ").split("\n")
    assert more
    assert max(map(len, [first, *more])) <= width
    assert all(line.startswith("    ") for line in more)
    assert " ".join([first, *(line.strip() for line in more)]) == TOLD


def test_what_fits_and_words_that_do_not_stay_as_they_are():
    assert wrap_text("a   b\n  c", 20) == "a   b\n  c"
    assert wrap_text("a saving of at least 12 % of it", 24) == "a saving of at least\n12 % of it"
    assert wrap_text("see " + "x" * 50, 30).split("\n") == ["see", "x" * 50]


def test_a_pipe_gets_lines_as_they_are(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert wrap_for_terminal(io.StringIO(), TOLD) == TOLD
    assert "\n" in wrap_for_terminal(Screen(), TOLD)


def test_a_refusal_breaks_no_word_at_the_edge_of_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    print_error_for_exit(f"agent.yaml has 2 problems:\n  {TOLD}\n  {TOLD}")
    lines = capsys.readouterr().err.splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(" ".join(lines).split()).count(TOLD) == 2
