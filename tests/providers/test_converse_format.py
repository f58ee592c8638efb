"""What Converse is sent where it is stricter than the Messages API, and how replies are read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pictures import PDF_TEXT, PNG_TEXT
from tests.provider_rules.converse import check
from tests.providers.clouds import HAIKU, NOVA, make, request_of
from tests.simulators.clouds.local_server import serve_simulated_clouds
from trimtab import Context
from trimtab.errors import ProviderError
from trimtab.providers.converse_format import (
    ConverseStreamParser,
    build_converse_request,
    parse_converse_reply,
    split_into_events,
)

pytestmark = pytest.mark.anyio

LLAMA = "us.meta.llama3-3-70b-instruct-v1:0"
DEEPSEEK = "us.deepseek.r1-v1:0"
OWN_PROFILE = "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/ab12cd34ef56"
MARK = {"cache_control": {"type": "ephemeral"}}
POINT = {"cachePoint": {"type": "default"}}
TOOL = {"name": "read", "input_schema": {"type": "object"}}
PDF = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": PDF_TEXT},
}
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_TEXT}}
SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
UNSIGNED = {"type": "thinking", "thinking": "Hm.", "signature": ""}


@pytest.fixture
def served():
    with serve_simulated_clouds(signatures=False) as started:
        yield started


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def call(call_id: str = "a") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "read", "input": {}}


def result(content: Any, call_id: str = "a", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def built(*messages: Any, model: str = NOVA, **more: Any) -> dict[str, Any]:
    """The arguments, which keep every rule of Converse."""
    asked = build_converse_request(
        {"model": model, "max_tokens": 500, "messages": list(messages), **more}
    )
    assert list(check(asked)) == []
    return asked


def contents(asked: dict[str, Any]) -> list[Any]:
    return [message["content"] for message in asked["messages"]]


def test_each_document_has_a_name_of_its_own_wherever_it_stands():
    asked = built(
        user(PDF, text("Read.")),
        assistant(call()),
        user(result([PDF, PDF])),
        assistant(text("Done.")),
        user(PDF, text("And this.")),
        tools=[TOOL],
    )
    told = str(asked)
    assert all(told.count(f"'document {number}'") == 1 for number in (1, 2, 3, 4))


def test_of_more_than_five_documents_the_newest_five_are_sent():
    said = [user(PDF, text("Read.")), assistant(text("Done."))] * 7
    *first, last = contents(built(*said, user(text("Which?"))))
    omitted = "[document 2 omitted: only the newest 5 documents are sent]"
    assert first[2][0] == {"text": omitted}
    assert first[4][0]["document"]["name"] == "document 3"
    assert last == [{"text": "Which?"}]


def test_beside_a_document_stands_a_text():
    [content] = contents(built(user(PDF)))
    assert content[1] == {"text": "(a document)"}


@pytest.mark.parametrize("model", [HAIKU, NOVA, LLAMA, DEEPSEEK])
def test_thinking_that_nobody_signed_is_not_sent_back(model):
    _, said, _ = contents(
        built(user(text("Hi.")), assistant(UNSIGNED, text("Yes.")), user(text("?")), model=model)
    )
    assert said == [{"text": "Yes."}]
    _, said, _ = contents(
        built(user(text("Hi.")), assistant(SIGNED, text("Yes.")), user(text("?")), model=model)
    )
    if model == DEEPSEEK:
        assert said == [{"text": "Yes."}], "it refuses all thinking, signed or not"
        return
    assert said[0]["reasoningContent"]["reasoningText"] == {"text": "Hm.", "signature": "c2ln"}


def test_a_reply_of_thinking_alone_leaves_no_empty_message():
    assert contents(built(user(text("Hi.")), assistant(UNSIGNED), user(text("And?")))) == [
        [{"text": "Hi."}, {"text": "And?"}]
    ]


def test_a_long_id_is_the_same_for_a_call_and_its_result():
    asked = built(
        user(text("Hi.")), assistant(call("i" * 80)), user(result("ok", "i" * 80)), tools=[TOOL]
    )
    _, [use], [answer] = contents(asked)
    assert use["toolUse"]["toolUseId"] == answer["toolResult"]["toolUseId"]


def test_calls_without_tools_define_the_tools_that_they_name():
    """An agent whose tools were taken away goes on with its history."""
    asked = built(user(text("Hi.")), assistant(call()), user(result("ok")))
    [tool] = asked["toolConfig"]["tools"]
    assert tool["toolSpec"]["name"] == "read"
    assert "toolConfig" not in built(user(text("Hi.")))


@pytest.mark.parametrize(
    ("model", "content", "status"),
    [
        (HAIKU, [{"text": "no such file"}], "error"),
        (NOVA, [{"text": "no such file"}], "error"),
        (LLAMA, [{"text": "Error: no such file"}], None),
        (OWN_PROFILE, [{"text": "Error: no such file"}], None),
    ],
)
def test_a_failed_tool_says_so_as_the_model_takes_it(model, content, status):
    failed = result("no such file", is_error=True)
    said = (user(text("Hi.")), assistant(call()), user(failed))
    answer = contents(built(*said, model=model, tools=[TOOL]))[2][0]["toolResult"]
    assert (answer["content"], answer.get("status")) == (content, status)


def test_a_tool_that_the_server_runs_has_no_form():
    search = {"type": "web_search_20250305", "name": "web_search"}
    with pytest.raises(ProviderError, match="does not support tools of type 'web_search_20250305'"):
        build_converse_request({"model": NOVA, "messages": [user(text("Hi."))], "tools": [search]})


# Cache points.


def points(asked: dict[str, Any]) -> dict[str, int]:
    lists = {
        "system": asked.get("system", []),
        "tools": asked.get("toolConfig", {}).get("tools", []),
        "messages": [block for content in contents(asked) for block in content],
    }
    return {place: blocks.count(POINT) for place, blocks in lists.items()}


def test_cache_points_follow_what_was_marked_and_are_four_at_most():
    context = Context(HAIKU, system="You help.", tools=[TOOL], context_window=20_000)
    most = 0
    for number in range(30):
        context.add(user(text(f"Question {number}. " + "word " * 200)))
        context.add(assistant(call(f"c{number}")))
        context.add(user(result("line\n" * 200, f"c{number}")))
        found = points(built(*(request := context.request())["messages"], **_head(request)))
        assert found["system"] == 1
        assert found["messages"] >= 1
        most = max(most, sum(found.values()))
        context.add(assistant(text("Fine.")))
    assert 2 <= most <= 4


def _head(request: dict[str, Any]) -> dict[str, Any]:
    return {name: request[name] for name in ("model", "system", "tools") if name in request}


def test_nova_caches_up_to_the_text_before_a_marked_result():
    asked = built(
        user(text("Look.", **MARK)),
        assistant(text("So."), call()),
        user(result("4.2 m", cache_control=MARK["cache_control"])),
        system=[text("You help.", cache_control={"type": "ephemeral", "ttl": "1h"})],
        tools=[{**TOOL, **MARK}],
    )
    assert points(asked) == {"system": 1, "tools": 0, "messages": 2}
    first, second, third = contents(asked)
    assert first == [{"text": "Look."}, POINT]
    assert second[:2] == [{"text": "So."}, POINT]
    assert POINT not in third


def test_claude_keeps_how_long_a_cache_lasts():
    asked = built(user(text("Hi.", cache_control={"type": "ephemeral", "ttl": "1h"})), model=HAIKU)
    assert contents(asked)[0][1] == {"cachePoint": {"type": "default", "ttl": "1h"}}


@pytest.mark.parametrize("model", [LLAMA, DEEPSEEK, OWN_PROFILE, "mistral.mistral-large-2407-v1:0"])
def test_a_model_without_a_cache_gets_no_cache_point(model):
    asked = built(
        user(text("Hi.", **MARK)),
        model=model,
        system=[text("You help.", **MARK)],
        tools=[{**TOOL, **MARK}],
    )
    assert points(asked) == {"system": 0, "tools": 0, "messages": 0}


# The strict simulator.


@pytest.mark.parametrize(
    ("model", "change", "words"),
    [
        (
            NOVA,
            {
                "toolConfig": {
                    "tools": [{"toolSpec": {"name": "read", "inputSchema": {"json": {}}}}, POINT]
                }
            },
            "#/toolConfig/tools/1: extraneous key [cachePoint]",
        ),
        (
            NOVA,
            {"system": [{"text": "a"}, {"cachePoint": {"type": "default", "ttl": "1h"}}]},
            "Extended TTL",
        ),
        (
            HAIKU,
            {"messages": [{"role": "user", "content": [{"text": "a"}, POINT] * 5}]},
            "at most 4 cache points",
        ),
        (LLAMA, {"system": [{"text": "a"}, POINT]}, "did not allow prompt caching"),
    ],
)
async def test_the_simulator_refuses_what_bedrock_refuses(served, model, change, words):
    import httpx2

    body = {"messages": [{"role": "user", "content": [{"text": "Hi."}]}], **change}
    async with httpx2.AsyncClient(headers={"authorization": "Bearer k"}) as client:
        answer = await client.post(f"{served.url}/model/{model}/converse", json=body)
    assert answer.status_code in (400, 403)
    assert words in answer.json()["message"]


# Models that are not streamed, and replies that cannot be read.


@pytest.mark.slow
async def test_a_model_that_is_not_streamed_with_tools_is_asked_for_its_whole_reply(served):
    step = {"text": "Let me look.", "calls": [{"name": "read", "arguments": {"path": "a.py"}}]}
    served.simulator.script.set_replies([step, step])
    provider = make("bedrock_converse", served.url)
    request = request_of("bedrock_converse", stream=True, model=LLAMA, tools=[TOOL])
    first, second = [[event["type"] async for event in provider.send(request)] for _ in range(2)]
    await provider.close()
    assert first == second
    assert first[0] == "message_start"
    assert first[-2:] == ["message_delta", "message_stop"]
    # It is refused once; after that nobody asks for a stream.
    assert [record.status for record in served.simulator.records.requests] == [400, 200, 200]


def test_a_whole_reply_as_a_stream_says_the_same():
    answer = {
        "output": {
            "message": {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}},
                    {"reasoningContent": {"redactedContent": b"xyz"}},
                    {"text": "So."},
                    {"toolUse": {"toolUseId": "a", "name": "read", "input": {"path": "ä"}}},
                ],
            }
        },
        "stopReason": "tool_use",
        "usage": {"inputTokens": 5, "outputTokens": 7, "totalTokens": 12},
    }
    from trimtab.dialects import get_dialect

    accumulator = get_dialect("anthropic").create_reply_accumulator()
    parser = ConverseStreamParser(NOVA, "msg_bedrock")
    for event in split_into_events(answer):
        for wire in parser.feed(event):
            accumulator.feed(wire)
    reply, whole = accumulator.reply_body(), parse_converse_reply(answer, NOVA)
    assert reply is not None
    names = ("content", "stop_reason", "role")
    assert {name: reply[name] for name in names} == {name: whole[name] for name in names}
    assert reply["usage"]["output_tokens"] == 7


@pytest.mark.parametrize("reason", ["malformed_tool_use", "malformed_model_output"])
def test_a_reply_that_the_model_garbled_may_be_asked_for_again(reason):
    answer = {"output": {"message": {"content": [{"text": "{{"}]}}, "stopReason": reason}
    with pytest.raises(ProviderError, match=reason) as caught:
        parse_converse_reply(answer, NOVA)
    assert caught.value.failure.kind == "server"
    parser = ConverseStreamParser(NOVA, "msg_1")
    with pytest.raises(ProviderError, match=reason):
        _ = [wire for event in split_into_events(answer) for wire in parser.feed(event)]


def test_thinking_whose_words_are_withheld_is_read():
    content = [{"reasoningContent": {"reasoningText": {"signature": "c2ln"}}}, {"text": "Yes."}]
    answer = {"output": {"message": {"content": content}}, "stopReason": "end_turn"}
    thought = parse_converse_reply(answer, HAIKU)["content"][0]
    assert thought == {"type": "thinking", "thinking": "", "signature": "c2ln"}
