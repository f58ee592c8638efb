"""What `trimtab models` says."""

import json

import pytest
from typer.testing import CliRunner

from trimtab.cli.app import app

NOVEMBER = 1_795_000_000.0
CACHE_LINE = (
    "cache          found by the provider itself; reading costs 0.05 and writing 1 times the "
    "normal input price; kept for 300 s, from 4,096 tokens"
)


@pytest.fixture(autouse=True)
def november(monkeypatch):
    monkeypatch.setattr("trimtab.models.catalog.time.time", lambda: NOVEMBER)


def models(*words, status=0):
    done = CliRunner().invoke(app, ["models", *words])
    assert done.exit_code == status, done.output
    return done.stdout if status == 0 else done.stderr


def test_models_are_listed_by_maker_with_limits_and_prices():
    said = models().splitlines()
    assert "anthropic" in said
    assert said.index("anthropic") < said.index("openai")
    (row,) = (line for line in said if line.startswith("gpt-6-sol "))
    assert row.split() == ["gpt-6-sol", "1,050,000", "128,000", "2", "10"]


def test_a_list_is_narrowed_by_maker_and_by_text():
    said = models("--maker", "Google", "--search", "argon").splitlines()
    assert said[1] == "google"
    assert said[2].split()[0] == "gemini-4-argon"
    assert said[2].endswith("new price 2026-12-01")
    assert len(said) == 3


def test_a_list_is_printed_as_json():
    rows = json.loads(models("--maker", "openai", "--json"))
    row = next(row for row in rows if row["name"] == "gpt-4")
    assert (row["maker"], row["context_window"], row["retires"]) == ("openai", 8_192, "2026-10-23")


def test_an_unknown_maker_is_refused_with_those_there_are():
    assert "its makers: anthropic, openai" in models("--maker", "acme", status=2)
    assert "no model matches 'zzz'" in models("--search", "zzz", status=1)


def test_one_model_is_explained_with_the_prices_of_today_and_when_they_change():
    assert models("gemini-4-argon").splitlines() == [
        "model          gemini-4-argon, of google",
        "window         1,048,576 tokens of input and output together",
        "output         up to 1,048,576 tokens, requested as max_tokens",
        "dialect        openai_chat",
        "tokenizer      gemma3",
        "prices         $2 in and $10 out per million tokens",
        "               $4 in and $20 out from 2026-12-01 on",
        CACHE_LINE,
    ]


def test_a_form_of_a_known_model_is_told_with_its_retirement():
    said = models("gpt-4-0613")
    assert "gpt-4-0613 is a form of gpt-4, of openai" in said
    assert "its maker retired it on 2026-10-23" in said


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("prod-eu", "a window of 128,000 tokens is assumed because its name is not known. If"),
        (
            "claude-next",
            "a window of 200,000 tokens is assumed because of 'claude' in its name. If",
        ),
        ("gpt-5.22", "because of 'gpt-5' in its name; similar names: gpt-5.2"),
        ("kimi", "because its name is not known; similar names: kimi-k2"),
    ],
)
def test_an_unknown_name_is_told_with_what_it_gets_and_why(name, why):
    said = models(name)
    assert "not in the catalog: " in said
    assert why in said
    assert "model_info: NAME" in said
    assert json.loads(models(name, "--json"))["in_catalog"] is False


def test_a_model_of_the_responses_api_is_asked_for_output_in_its_words():
    assert "requested as max_output_tokens" in models("gpt-5.3-codex")
