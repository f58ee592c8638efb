"""The built-in patterns: what is around a match does not hide it, and no text takes long."""

import time

import pytest

from trimtab.engine.log.redaction import (
    MAX_STREAM_CHARS_HELD,
    REDACTION_PATTERNS,
    StreamRedactor,
    redactor,
)

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijklmnop"  # noqa: S105 - nobody's
KEY = "-----BEGIN PRIVATE KEY-----\nMIIE ab-c\n-----END PRIVATE KEY-----"
EXAMPLES = {
    "email": ["ann@example.org", "ann%40example.org", f"{'a' * 90}@{'b' * 90}.org"],
    "iban": [
        "DE89370400440532013000",
        "DE89 3704 0044 0532 0130 00",
        "DE89-3704-0044-0532-0130-00",
    ],
    "card": ["4111111111111111", "4111 1111 1111 1111", "4111\u00a01111\u00a01111\u00a01111"],
    "secret": [
        "sk-" + "a" * 20,
        "github_pat_" + "A" * 30,
        "ASIA" + "A" * 16,
        "AIza" + "b" * 35,
        TOKEN,
        KEY,
    ],
}
CASES = [(name, text) for name, texts in EXAMPLES.items() for text in texts]
AROUND = ["", ".", "_", "-", ":", "=", "(", '"', "é "]
KINDS = list(REDACTION_PATTERNS)


@pytest.mark.parametrize(("name", "text"), CASES)
@pytest.mark.parametrize("repeats", [1, 65])
@pytest.mark.parametrize("leader", AROUND)
def test_no_leader_hides_a_match(name, text, leader, repeats):
    """A dot leader of 65 characters once hid an address."""
    clean = redactor(name)(f"Ann {leader * repeats}{text} Bob")
    assert text not in clean
    assert f"[redacted: {name}]" in clean
    assert clean.startswith("Ann ")
    assert clean.endswith(" Bob")


def test_of_many_numbers_before_a_card_none_lets_a_part_of_it_through():
    assert redactor("card")("ref 2026 11 19 4111 1111 1111 1111") == "ref [redacted: card]"


@pytest.mark.parametrize(
    "text",
    ["550e8400-e29b-41d4-a716-446655440000", "task-something-very-long-name", "2026-11-19 17:40"],
)
def test_identifiers_and_dates_stay(text):
    assert redactor(*KINDS)(text) == text


EVIL = ["a", ".", "a@", "a@b.", "%40", "1", "1 ", "1" * 12 + " x ", "AB12", "AB12 ", "sk-"]
EVIL += ["-eyJ", "eyJaaaaaaaaaa.", "-----BEGIN PRIVATE KEY-----", "-----BEGIN A ", "-", "AKIA"]


@pytest.mark.parametrize("name", KINDS)
def test_no_text_takes_more_than_linear_time(name):
    redact = redactor(name)

    def spend(chars):
        started = time.process_time()
        for piece in EVIL:
            redact(piece * (chars // len(piece)) + "x")
        return time.process_time() - started

    spend(2_000)
    assert spend(32_000) < 12 * max(spend(8_000), 0.002)


def test_a_text_that_is_redacted_twice_stays_the_same():
    import re

    redact = redactor("email", re.compile(r"[a-z]{8}"), re.compile("redacted|email"))
    once = redact("redacted ann@example.org aaaaaaaa")
    assert redact(once) == once


def stream(text, size, redact):
    redacting = StreamRedactor(redact)
    pieces = [redacting.feed(text[at : at + size]) for at in range(0, len(text), size)]
    return [*pieces, redacting.finish()]


@pytest.mark.parametrize("size", [1, 3, 7, 64, 10_000])
def test_a_stream_shows_the_same_as_the_whole_text(size):
    filler = "and then some words of a reply that is long enough " * 12
    text = filler + filler.join(
        f" {example} " for examples in EXAMPLES.values() for example in examples
    )
    redact = redactor(*KINDS)
    assert "".join(stream(text, size, redact)) == redact(text)


def test_a_stream_comes_while_the_reply_is_written():
    pieces = stream("word " * 1_000, 5, redactor("email"))
    shown = "".join(pieces[:-1])
    assert len(shown) >= 4_000


def test_a_match_that_never_ends_ends_the_stream_and_shows_nothing_of_it():
    text = "see " + "x" * (2 * MAX_STREAM_CHARS_HELD) + "@example.org and more words"
    assert "x" not in "".join(stream(text, 100, redactor("email")))
