"""The check of the wording finds what it is for, and leaves plain sentences alone."""

import pytest

from tests.contracts.plain_words import ROOT, Passage, find_in, read_page, read_source

PLANTED = [
    "A number that is none is a `ValueError`.",
    "Begin behind this id.",
    "So many messages and calls.",
    "The fleet was not looked after: %r",
    "This process was not heard: %r",
    "Job %d is broken off: %s",
    "Nobody knows how to 'x'; it is of a later release.",
    "'a b' is no name for a session; take letters, digits and _.:@+=-, 128 at most.",
    "Not needed: the first message begins one, too.",
    "In earnest the provider is one of these.",
    "A name stands once.",
    "Who watches a session hears what happens in it, whichever process its turn runs in.",
    "Whoever finds a way around one of these has found a fault.",
    "Like `context_window` it is for input and output together, and it goes before it.",
    "Left out, a thinking budget comes on top.",
    "What it tells is taken anew, and has to be erased again.",
    "A summary that may tell of it goes whole.",
    "What an estimate counts too little would else be taken for the weight of the words around it.",
    "Ask so before each request where the window is small.",
    "What you set in `limits` binds in each of them, but for `thresholds`.",
    "The user is told once that the message is kept.",
    "A letter waits until the session is free.",
]
PLAIN = [
    "There is no key in this file.",
    "The folder where sessions are stored is private.",
    "The error says where the file is damaged.",
    "This value is no longer used, and no more than 10 are kept.",
    "Use letters, digits and underscores.",
    "A dead letter stays until an operator retries it.",
    "Run it behind a reverse proxy.",
    "If you leave it out, the budget is added. Nothing else changes.",
    "What does a trim tab do?",
    "This is too large, and too many calls were made.",
    "Who may read it? Nobody.",
]


def found(text: str) -> list[str]:
    return [one.advice for one in find_in(Passage(path=ROOT / "x.md", line=1, text=text))]


@pytest.mark.parametrize("sentence", PLANTED)
def test_a_sentence_of_the_old_kind_is_found(sentence):
    assert found(sentence)


@pytest.mark.parametrize("sentence", PLAIN)
def test_a_plain_sentence_is_left_alone(sentence):
    assert found(sentence) == []


def test_a_sentence_that_is_too_long_is_found():
    assert found("It keeps " + "one word and " * 13 + "ends.") != []
    assert found("It keeps this. " * 30) == []


def test_a_page_is_read_without_its_code_and_with_its_tables(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# Where it is no heading\n\nOne `is no` two\n[of](where.md) three.\n\n"
        "- first\n  goes on\n- second\n\n| a | it stands once |\n|---|---|\n\n"
        "```python\nwhere = 'behind'\n```\n\n<!-- anew -->\nLast.\n",
        encoding="utf-8",
    )
    assert [(one.line, one.text) for one in read_page(page)] == [
        (3, "One … two of three."),
        (6, "first goes on"),
        (8, "second"),
        (10, "a"),
        (10, "it stands once"),
        (18, "Last."),
    ]


def test_strings_and_docstrings_of_a_module_are_read(tmp_path):
    module = tmp_path / "module.py"
    module.write_text(
        '"""A module that is documented."""\n'
        "QUERY = 'SELECT one FROM two WHERE three'\n"
        "def f(name):\n    raise ValueError(f'invalid name {name!r} in '\n        'this file')\n",
        encoding="utf-8",
    )
    assert [(one.line, one.text) for one in read_source(module)] == [
        (1, "A module that is documented."),
        (4, "invalid name … in this file"),
    ]
