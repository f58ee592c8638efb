"""The Messages API, asked by Anthropic's own SDK over a socket."""

from __future__ import annotations

import asyncio

import pytest

from tests.lazy import anthropic
from tests.testing.requests import CLAUDE, THINKING, TOOLS, results, user


def ask(client, **more):
    given = {"model": CLAUDE, "max_tokens": 2_000, "messages": [user("hello")], **more}
    return client.messages.create(**given)


def whole(client, **more):
    given = {"model": CLAUDE, "max_tokens": 2_000, "messages": [user("hello")], **more}
    with client.messages.stream(**given) as stream:
        return stream.get_final_message()


def test_a_text_comes_whole(claude, simulator):
    simulator.script.set_replies(["Good morning."])
    reply = ask(claude)
    assert [block.text for block in reply.content] == ["Good morning."]
    assert (reply.stop_reason, reply.usage.output_tokens) == ("end_turn", 3)


def test_a_streamed_text_is_the_same_as_a_whole_one(claude, simulator):
    text = "A text that is long enough to come in several pieces of a stream."
    simulator.script.set_replies([text, text])
    one, other = ask(claude), whole(claude)
    assert other.content[0].text == one.content[0].text == text
    assert other.usage.model_dump() == one.usage.model_dump()
    assert other.stop_reason == one.stop_reason


@pytest.mark.parametrize("get", [ask, whole])
def test_calls_are_made_in_the_callers_tools(claude, simulator, get):
    simulator.script.set_replies([{"calls": 3}])
    reply = get(claude, tools=TOOLS["anthropic"])
    assert [block.name for block in reply.content] == ["read"] * 3
    assert len({block.id for block in reply.content}) == 3
    assert all(block.input["path"] and block.input["line"] >= 1 for block in reply.content)
    assert reply.stop_reason == "tool_use"


@pytest.mark.parametrize("get", [ask, whole])
def test_a_signed_thought_comes_first_and_is_taken_back(claude, simulator, get):
    simulator.script.set_replies([{"calls": 2, "text": "Let me look."}, "Done."])
    more = {"thinking": THINKING, "tools": TOOLS["anthropic"]}
    reply = get(claude, **more)
    assert [block.type for block in reply.content] == ["thinking", "text", "tool_use", "tool_use"]
    said = [block.to_dict() for block in reply.content if block.type != "text"]
    for block in said:
        block.pop("caller", None)
    ids = [block["id"] for block in said if block["type"] == "tool_use"]
    messages = [user("hello"), {"role": "assistant", "content": said}, results(*ids)]
    assert get(claude, messages=messages, **more).content[-1].text == "Done."
    assert simulator.stats()["refused"] == 0


def test_redacted_thinking_is_taken_back(claude, simulator):
    simulator.script.set_replies([{"calls": 1, "redacted": True}, "Done."])
    more = {"thinking": THINKING, "tools": TOOLS["anthropic"]}
    reply = ask(claude, **more)
    said = [{"type": "redacted_thinking", "data": reply.content[0].data}]
    call = reply.content[1]
    said.append({"type": "tool_use", "id": call.id, "name": call.name, "input": call.input})
    messages = [user("hello"), {"role": "assistant", "content": said}, results(call.id)]
    assert ask(claude, messages=messages, **more).content[-1].text == "Done."


def test_a_reply_is_cut_at_max_tokens(claude, simulator):
    simulator.script.set_replies([{"text": 200}])
    reply = ask(claude, max_tokens=20)
    assert reply.stop_reason == "max_tokens"
    assert 10 < reply.usage.output_tokens <= 20


def test_the_asynchronous_client_is_served_as_well(served):
    async def go():
        async with anthropic.AsyncAnthropic(base_url=served.url, api_key="k") as client:
            reply = await ask(client)
            async with client.messages.stream(
                model=CLAUDE, max_tokens=100, messages=[user("hello")]
            ) as stream:
                streamed = await stream.get_final_message()
        return reply, streamed

    reply, streamed = asyncio.run(go())
    assert reply.content[0].to_dict() != streamed.content[0].to_dict()
    assert reply.id != streamed.id


def test_the_count_endpoint_counts_what_a_call_reports(claude):
    given = {"model": CLAUDE, "messages": [user("hello there")], "tools": TOOLS["anthropic"]}
    counted = claude.messages.count_tokens(**given)
    assert counted.input_tokens == ask(claude, **given).usage.input_tokens
