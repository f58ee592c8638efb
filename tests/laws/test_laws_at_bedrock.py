"""The laws hold for what goes to Bedrock: by Converse for any model, by InvokeModel for Claude."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from tests.laws.converse import (
    StrictBedrock,
    said_at_converse,
    said_to_claude,
    written_by_boto3,
)
from tests.laws.lives import law
from tests.laws.oracle import Told, tell
from tests.laws.test_law_2_pairs import erased
from tests.laws.wires import Piece
from tests.provider_rules.converse import check
from tests.strategies.life import Hooks, Life
from tests.strategies.logs import BEDROCK_MODELS, Story, bedrock_stories
from trimtab.engine.tokens.counter import measure_request_head
from trimtab.providers.converse_format import build_converse_request

pytest.importorskip("boto3")

BEDROCK = StrictBedrock()
STATUS = re.compile(r"claude|nova")
"""Models that a result may tell by a field that it is an error."""


def accepted(told: Told, refusal: str) -> bool:
    """Whether Bedrock takes it, but for what is the user's own wish: thinking that they erased in
    a loop that is still open, and a reply to go on with."""
    if "thinking" in refusal and any(erased(message) for message in told.messages.values()):
        return True
    prefills = told.messages[max(told.messages)].role == "assistant"
    return not refusal or (prefills and "prefill" in refusal)


def bedrock_takes_it(life: Life, request: dict[str, Any]) -> None:
    told, model = tell(life.events), str(request["model"])
    asked = build_converse_request(request)
    assert list(check(asked)) == []
    refusal = BEDROCK.refusal_at_converse(model, written_by_boto3(asked))
    assert accepted(told, refusal), refusal
    if "anthropic." in model:
        body = {name: value for name, value in request.items() if name not in ("model", "stream")}
        body["anthropic_version"] = "bedrock-2023-05-31"
        refusal = BEDROCK.refusal_at_invoke(model, json.dumps(body).encode())
        assert accepted(told, refusal), refusal


def in_words(piece: Piece) -> Piece:
    """A failure as a model without a status of results is told it."""
    if piece.kind != "result" or not piece.text.startswith("(failed) "):
        return piece
    text = piece.text.removeprefix("(failed) ")
    stands_in = text.startswith("[") and text.endswith("]")
    told = stands_in or text[:5].lower() == "error"
    return replace(piece, text=text if told else f"Error: {text}")


def nothing_is_lost_on_the_way(request: dict[str, Any]) -> None:
    """Word for word, block for block; only a reply to go on with loses the space at its end."""
    sent = list(said_to_claude(request))
    if not STATUS.search(str(request["model"])):
        sent = [in_words(piece) for piece in sent]
    if sent and (sent[-1].kind, sent[-1].role) == ("text", "assistant"):
        sent[-1] = replace(sent[-1], text=sent[-1].text.rstrip())
    assert list(said_at_converse(build_converse_request(request))) == sent


def it_is_no_larger_than_promised(life: Life, request: dict[str, Any]) -> None:
    """What Converse is told besides is within the bound."""
    window = life.context.window
    now, count = window.settings, window.counter.count
    total = measure_request_head(now.system, now.tools, window.counter, now.params).tokens
    asked = build_converse_request(request)
    for message in asked["messages"]:
        for block in message["content"]:
            # Of an odd text the estimate may be lower with the id of its call before it.
            total += sum(min(count(t), count(f"{call_id}\n{t}")) for call_id, t in texts_in(block))
    assert total <= life.last_call.bound


def texts_in(block: dict[str, Any]) -> list[tuple[str, str]]:
    """Each with the id of the call that it answers."""
    if "toolResult" in block:
        result = block["toolResult"]
        return [(result["toolUseId"], part["text"]) for part in result["content"] if "text" in part]
    return [("", block["text"])] if "text" in block else []


def at_bedrock(life: Life, request: dict[str, Any]) -> None:
    if request.get("model") in BEDROCK_MODELS:
        bedrock_takes_it(life, request)
        nothing_is_lost_on_the_way(request)
        it_is_no_larger_than_promised(life, request)


@pytest.mark.slow
@law(bedrock_stories)
def test_bedrock_takes_each_request_whole(story: Story) -> Hooks:
    return Hooks(asked=at_bedrock)


def test_the_simulator_refuses_what_it_should():
    """Else it would prove nothing that it takes the others."""
    assert "must start with a user message" in BEDROCK.refusal_at_converse(
        "amazon.nova-pro-v1:0", b"{}"
    )
    assert "anthropic_version" in BEDROCK.refusal_at_invoke("anthropic.claude-opus-4-7", b"{}")
