"""Chat Completions and Responses, asked by OpenAI's own SDK over a socket."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.lazy import openai
from tests.testing.requests import GPT, REASONER, TOOLS, user

ENCRYPTED = ["reasoning.encrypted_content"]


def chat(client, **more):
    return client.chat.completions.create(**{"model": GPT, "messages": [user("hello")], **more})


def chat_stream(client, **more):
    given = {"model": GPT, "messages": [user("hello")], **more}
    options = {"include_usage": True}
    with client.chat.completions.stream(**given, stream_options=options) as stream:
        return stream.until_done().get_final_completion()


def respond(client, **more):
    return client.responses.create(**{"model": GPT, "input": "hello", **more})


def respond_stream(client, **more):
    with client.responses.stream(**{"model": GPT, "input": "hello", **more}) as stream:
        return stream.until_done().get_final_response()


@pytest.mark.parametrize("get", [chat, chat_stream])
def test_a_chat_reply_says_what_the_script_says(gpt, simulator, get):
    simulator.script.set_replies(["A text that is long enough to come in several pieces."])
    reply = get(gpt)
    assert reply.choices[0].message.content.startswith("A text that is long enough")
    assert reply.choices[0].finish_reason == "stop"
    usage = reply.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens > 10


@pytest.mark.parametrize("get", [chat, chat_stream])
def test_chat_calls_are_made_in_the_callers_tools(gpt, simulator, get):
    simulator.script.set_replies([{"calls": 2}])
    reply = get(gpt, tools=TOOLS["openai_chat"])
    calls = reply.choices[0].message.tool_calls
    assert [call.function.name for call in calls] == ["read", "read"]
    assert all(json.loads(call.function.arguments)["path"] for call in calls)
    assert reply.choices[0].finish_reason == "tool_calls"


def test_usage_is_streamed_only_where_it_is_asked_for(gpt):
    stream = gpt.chat.completions.create(model=GPT, messages=[user("hello")], stream=True)
    assert all(chunk.usage is None and chunk.choices for chunk in stream)


def test_reasoning_content_is_told_as_open_servers_do(gpt, simulator):
    simulator.script.set_replies([{"thinking": "Hm.", "text": "Yes."}])
    assert chat(gpt).choices[0].message.reasoning_content == "Hm."


def test_a_chat_reply_is_cut_at_its_limit(gpt, simulator):
    simulator.script.set_replies([{"text": 200}])
    assert chat(gpt, max_tokens=20).choices[0].finish_reason == "length"


@pytest.mark.parametrize("get", [respond, respond_stream])
def test_a_response_says_what_the_script_says(gpt, simulator, get):
    simulator.script.set_replies(["A text that is long enough to come in several pieces."])
    reply = get(gpt)
    assert reply.output_text.startswith("A text that is long enough")
    assert (reply.status, reply.usage.total_tokens > 10) == ("completed", True)


@pytest.mark.parametrize("get", [respond, respond_stream])
def test_a_response_calls_tools_behind_its_reasoning(gpt, simulator, get):
    simulator.script.set_replies([{"calls": 2}, "Done."])
    tools = TOOLS["openai_responses"]
    reply = get(gpt, model=REASONER, tools=tools, store=False, include=ENCRYPTED)
    assert [item.type for item in reply.output] == ["reasoning", "function_call", "function_call"]
    items = [user("hello")]
    items += [item.to_dict() for item in reply.output]
    for item in items:
        item.pop("parsed_arguments", None)
    items += [
        {"type": "function_call_output", "call_id": item.call_id, "output": "found"}
        for item in reply.output[1:]
    ]
    ended = get(gpt, model=REASONER, input=items, tools=tools, store=False, include=ENCRYPTED)
    assert ended.output_text == "Done."


def test_a_response_that_has_no_room_is_incomplete(gpt, simulator):
    simulator.script.set_replies([{"text": 200}])
    reply = respond(gpt, max_output_tokens=20)
    assert reply.status == "incomplete"
    assert reply.incomplete_details.reason == "max_output_tokens"


def test_a_stored_response_is_gone_on_from(gpt):
    first = respond(gpt, model=REASONER)
    second = respond(gpt, model=REASONER, previous_response_id=first.id)
    assert second.usage.input_tokens > first.usage.input_tokens


def test_a_response_that_was_not_stored_is_not_found(gpt):
    first = respond(gpt, store=False)
    with pytest.raises(openai.BadRequestError) as caught:
        respond(gpt, previous_response_id=first.id)
    assert caught.value.code == "previous_response_not_found"


def test_the_asynchronous_client_is_served_as_well(served):
    async def go():
        async with openai.AsyncOpenAI(base_url=served.openai_url, api_key="k") as client:
            one = await chat(client)
            events = [event.type async for event in await respond(client, stream=True)]
        return one, events

    one, events = asyncio.run(go())
    assert one.choices[0].message.content
    assert (events[0], events[-1]) == ("response.created", "response.completed")
