"""What goes to Bedrock is what was recorded, to the last field: a change there is seen here."""

from __future__ import annotations

import json

import pytest

from tests.golden import bedrock
from tests.golden.bedrock import MODELS, log_file, sent, sent_file
from tests.golden.record import requests


def golden(name):
    return json.loads(sent_file(name).read_text(encoding="ascii"))


@pytest.mark.parametrize("name", MODELS)
def test_a_recorded_conversation_goes_to_bedrock_as_it_did(name):
    log = log_file(name).read_text(encoding="ascii").splitlines()
    assert sent(name, [json.loads(each) for each in requests(log)]) == golden(name)


@pytest.mark.parametrize("name", MODELS)
def test_the_conversation_is_recorded_as_it_was(name):
    log = log_file(name).read_text(encoding="ascii").splitlines()
    assert bedrock.conversation(name).dump() == log


def test_claude_is_asked_in_bedrocks_version_and_named_by_the_address_alone():
    for body in golden("bedrock"):
        assert body["anthropic_version"] == "bedrock-2023-05-31"
        assert not {"model", "stream"} & body.keys()
        assert 1 <= str(body).count("cache_control") <= 4


@pytest.mark.parametrize(
    ("name", "status", "points"),
    [
        ("bedrock_converse", True, True),
        ("bedrock_llama", False, False),
    ],
)
def test_the_recorded_conversation_meets_all_that_converse_has_a_form_for(name, status, points):
    told = json.dumps(golden(name))
    kinds = ("image", "document", "toolUse", "toolResult", "reasoningContent", "toolSpec")
    assert all(f'"{kind}"' in told for kind in kinds)
    assert ('"status": "error"' in told, '"cachePoint"' in told) == (status, points)
    assert "(no output)" in told
    assert "document 3" in told
