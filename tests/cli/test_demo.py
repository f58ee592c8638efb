"""`trimtab demo`: it stays in its window, and reads back what was hidden."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from trimtab.cli.app import app
from trimtab.cli.demo import CULPRIT_COMMIT, STORY
from trimtab.cli.token_count import parse_token_count


@pytest.mark.parametrize("policy", ["auto", "layered"])
def test_the_demo_stays_in_its_window_and_recalls_what_was_hidden(policy):
    shown = CliRunner().invoke(app, ["demo", "--policy", policy, "--window", "16k"])
    assert shown.exit_code == 0
    rows = re.findall(r"([\d,]+) +([\d,]+)  [█░]+ \d+%", shown.output)
    said_and_sent = [tuple(int(number.replace(",", "")) for number in row) for row in rows]
    assert len(said_and_sent) == len(STORY) + 1
    assert all(sent <= 16_000 for _, sent in said_and_sent)
    assert said_and_sent[-1][0] > 2 * 16_000
    assert re.search(rf"recall m\d+\.0 → .*{CULPRIT_COMMIT}", shown.output)
    assert "is not in the context" in shown.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--window", "4k"], "use 8k or more"),
        (["--window", "many"], "many"),
        (["--policy", "best"], "choose from"),
    ],
)
def test_the_demo_refuses_options_that_make_no_sense(options, words):
    shown = CliRunner().invoke(app, ["demo", *options])
    assert (shown.exit_code, words in shown.output) == (2, True)


@pytest.mark.parametrize(
    ("text", "tokens"), [("200k", 200_000), ("1M", 1_000_000), ("1.5k", 1_500), ("64_000", 64_000)]
)
def test_windows_are_typed_as_people_do(text, tokens):
    assert parse_token_count(text) == tokens
