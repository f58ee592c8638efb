"""Streams of Bedrock: the real SDKs parse each one that the simulator sends, and what breaks one is
told in words, asked again where that may help, and never heard twice."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.providers.canned import Answer, serving
from tests.providers.clouds import AWS, HAIKU, make, request_of
from tests.simulators.clouds.aws_event_stream import encode_event, encode_exception
from trimtab import Session, run_turn
from trimtab.dialects import get_dialect
from trimtab.errors import ProviderError
from trimtab.providers.retries import with_retries
from trimtab.testing import MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

NAMES = ("bedrock", "bedrock_converse")
EVENT_STREAM = "application/vnd.amazon.eventstream"
THINKING: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
TOOL = {"name": "depth", "input_schema": {"type": "object", "properties": {}}}
LOOK = {"name": "depth", "arguments": {"place": "Kölner Brücke 🌉", "deep": [1, {"a": None}]}}
REPLIES: dict[str, Any] = {
    "text": "Good morning, 世界 🙂.",
    "long": {"text": "a line of many\n" * 400},
    "a call": {"calls": [LOOK]},
    "a text and calls": {"text": "Let me look.", "calls": [LOOK, {"name": "depth"}]},
    "thinking, a text and a call": {"thinking": "Hm, deep.", "text": "So.", "calls": [LOOK]},
    "cut at its limit": {"text": "Half a", "stop": "max_tokens"},
}


@pytest.fixture(autouse=True)
def reset(served):
    yield
    served.simulator.reset()


def request_for(step: Any) -> dict[str, Any]:
    thinks = THINKING if isinstance(step, dict) and "thinking" in step else {}
    said = [{"role": "user", "content": "How deep is it?"}]
    return {"max_tokens": 4_000, "messages": said, "tools": [TOOL], **thinks}


def as_told(content: list[Any]) -> list[dict[str, Any]]:
    """What a reply says, without ids and signatures."""
    left_out = ("id", "signature", "citations", "caller", "toolUseId")
    return [
        {name: value for name, value in block.items() if name not in left_out and value is not None}
        for block in content
    ]


def sent_reply(served) -> list[dict[str, Any]]:
    [record] = served.simulator.records.requests
    assert record.status == 200, record.message
    return as_told(record.reply["content"])


KEYS: dict[str, Any] = {
    "aws_region": AWS["AWS_REGION"],
    "aws_access_key": AWS["AWS_ACCESS_KEY_ID"],
    "aws_secret_key": AWS["AWS_SECRET_ACCESS_KEY"],
    "max_retries": 0,
}


@pytest.mark.parametrize("told", REPLIES)
async def test_anthropics_bedrock_clients_parse_each_stream(served, told):
    from anthropic.lib.bedrock import AnthropicBedrock, AsyncAnthropicBedrock

    asked: Any = {"model": HAIKU, **request_for(REPLIES[told])}
    asked["extra_body"] = {"anthropic_version": "bedrock-2023-05-31"}
    served.simulator.script.set_replies([REPLIES[told]])
    async with (
        AsyncAnthropicBedrock(base_url=served.url, **KEYS) as client,
        client.messages.stream(**asked) as stream,
    ):
        found = await stream.get_final_message()
    assert as_told([block.to_dict() for block in found.content]) == sent_reply(served)
    served.simulator.records.clear()
    served.simulator.script.set_replies([REPLIES[told]])
    found = await asyncio.to_thread(ask_in_turn, AnthropicBedrock, served.url, asked)
    assert as_told([block.to_dict() for block in found.content]) == sent_reply(served)
    assert found.usage.output_tokens > 0


def ask_in_turn(client_type: Any, url: str, asked: dict[str, Any]) -> Any:
    with client_type(base_url=url, **KEYS) as client, client.messages.stream(**asked) as stream:
        return stream.get_final_message()


@pytest.mark.parametrize("told", REPLIES)
async def test_boto3_parses_each_stream_as_it_parses_the_whole_reply(served, told):
    from trimtab.providers.converse_format import build_converse_request, parse_converse_reply

    client = boto3_client(served.url)
    asked = build_converse_request({"model": HAIKU, **request_for(REPLIES[told])})
    served.simulator.script.set_replies([REPLIES[told], REPLIES[told]])
    whole = await asyncio.to_thread(client.converse, **asked)
    answer = await asyncio.to_thread(client.converse_stream, **asked)
    events = await asyncio.to_thread(list, answer["stream"])
    client.close()
    streamed, usage, stop = assembled(events)
    first, second = served.simulator.records.requests
    content = as_told(parse_converse_reply(whole, HAIKU)["content"])
    assert content == as_told(streamed) == as_told(second.reply["content"])
    assert stop == whole["stopReason"] == first.reply["stop_reason"]
    assert usage["outputTokens"] == second.reply["usage"]["output_tokens"]


def boto3_client(url: str) -> Any:
    import boto3
    from botocore.config import Config

    session = boto3.Session(
        region_name=AWS["AWS_REGION"],
        aws_access_key_id=AWS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=AWS["AWS_SECRET_ACCESS_KEY"],
    )
    once = Config(retries={"total_max_attempts": 1})
    return session.client("bedrock-runtime", endpoint_url=url, config=once)


def assembled(events: list[Any]) -> tuple[list[dict[str, Any]], Any, Any]:
    """The blocks, the usage and the stop reason of a stream, put together as AWS documents it."""
    blocks: dict[int, dict[str, Any]] = {}
    usage = stop = None
    for event in events:
        [(kind, value)] = event.items()
        match kind:
            case "contentBlockStart":
                use = value["start"]["toolUse"]
                block = {"type": "tool_use", "name": use["name"], "input": ""}
                blocks[value["contentBlockIndex"]] = block
            case "contentBlockDelta":
                delta = value["delta"]
                block = blocks.setdefault(value["contentBlockIndex"], {})
                if "toolUse" in delta:
                    block["input"] += delta["toolUse"]["input"]
                elif "text" in delta:
                    block["type"], block["text"] = "text", block.get("text", "") + delta["text"]
                elif "text" in delta["reasoningContent"]:
                    thought = block.get("thinking", "") + delta["reasoningContent"]["text"]
                    block.update(type="thinking", thinking=thought)
            case "messageStop":
                stop = value["stopReason"]
            case "metadata":
                usage = value["usage"]
            case _:
                assert kind in ("messageStart", "contentBlockStop")
    for block in blocks.values():
        if block["type"] == "tool_use":
            block["input"] = json.loads(block["input"] or "{}")
    return [blocks[index] for index in sorted(blocks)], usage, stop


# What breaks a stream.


def chunk(event: dict[str, Any]) -> bytes:
    import base64

    inner = base64.b64encode(json.dumps(event).encode()).decode()
    return encode_event("chunk", json.dumps({"bytes": inner}).encode())


def frames(name: str) -> list[bytes]:
    """A whole reply, `Good morning.`, as Bedrock frames it."""
    if name == "bedrock":
        message = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": []}
        message |= {"stop_reason": None, "usage": {"input_tokens": 9, "output_tokens": 1}}
        text = {"type": "text", "text": ""}
        return [
            chunk({"type": "message_start", "message": message}),
            chunk({"type": "content_block_start", "index": 0, "content_block": text}),
            *(
                chunk({"type": "content_block_delta", "index": 0, "delta": {**text, **delta}})
                for delta in (
                    {"type": "text_delta", "text": "Good "},
                    {"type": "text_delta", "text": "morning."},
                )
            ),
            chunk({"type": "content_block_stop", "index": 0}),
            chunk(
                {
                    "type": "message_delta",
                    "delta": {"stop_reason": "end_turn"},
                    "usage": {"output_tokens": 3},
                }
            ),
            chunk({"type": "message_stop"}),
        ]
    events = {
        "messageStart": [{"role": "assistant"}],
        "contentBlockDelta": [
            {"delta": {"text": text}, "contentBlockIndex": 0} for text in ("Good ", "morning.")
        ],
        "contentBlockStop": [{"contentBlockIndex": 0}],
        "messageStop": [{"stopReason": "end_turn"}],
        "metadata": [{"usage": {"inputTokens": 9, "outputTokens": 3, "totalTokens": 12}}],
    }
    return [
        encode_event(kind, json.dumps(value).encode())
        for kind, values in events.items()
        for value in values
    ]


def answered(data: bytes, *, whole: bool = True) -> Answer:
    return Answer(events=(data,), kind=EVENT_STREAM, whole=whole)


async def read(name: str, *answers: Answer) -> list[str | ProviderError]:
    """Of replies that arrive as these bytes, one after the other: the text, or the failure."""
    async with serving(*answers) as server:
        provider = make(name, server.url)
        try:
            return [await read_one(provider, request_of(name, stream=True)) for _ in answers]
        finally:
            await provider.close()


async def read_one(provider: Any, request: dict[str, Any]) -> str | ProviderError:
    accumulator = get_dialect("anthropic").create_reply_accumulator()
    try:
        async with asyncio.timeout(10):
            async for event in provider.send(request):
                accumulator.feed(event)
    except ProviderError as error:
        return error
    reply = accumulator.reply_body()
    assert reply is not None
    return "".join(block["text"] for block in reply["content"])


def failure_of(outcome: str | ProviderError) -> Any:
    assert isinstance(outcome, ProviderError), outcome
    return outcome.failure


@pytest.mark.parametrize("name", NAMES)
async def test_an_exception_within_a_stream_is_told_in_its_words(name):
    kinds = {
        "throttlingException": "rate_limit",
        "serviceUnavailableException": "overloaded",
        "internalServerException": "server",
        "modelStreamErrorException": "server",
        "validationException": "rejected",
        # Converse knows none of this kind.
        **({"modelTimeoutException": "timeout"} if name == "bedrock" else {}),
    }
    told = json.dumps({"message": "Something of the model's went wrong."}).encode()
    for after in (0, 3):
        before = b"".join(frames(name)[:after])
        broken = [answered(before + encode_exception(kind, told)) for kind in kinds]
        failures = [failure_of(each) for each in await read(name, *broken)]
        assert [failure.kind for failure in failures] == list(kinds.values())
        assert all("Something of the model's went wrong." in f.message for f in failures)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("name", NAMES)
async def test_a_stream_that_ends_anywhere_before_its_end_is_a_servers_failure(name, whole):
    parts = frames(name)
    # What Converse says last is the usage: without it the reply is whole.
    last = {"bedrock": len(parts), "bedrock_converse": len(parts) - 1}[name]
    befores = [b"".join(parts[:number]) for number in range(last)]
    cut = [*befores, *(b + part[: len(part) // 2] for b, part in zip(befores, parts, strict=False))]
    outcomes = await read(name, *(answered(data, whole=whole) for data in cut))
    assert {failure_of(each).kind for each in outcomes} <= {"server", "network"}
    assert all(failure_of(each).message for each in outcomes)
    assert await read(name, answered(b"".join(parts[:last]))) == ["Good morning."]


@pytest.mark.parametrize("name", NAMES)
async def test_a_damaged_frame_is_a_servers_failure_and_nobody_takes_it_for_words(name):
    parts, damaged = frames(name), []
    for number in (0, 2):
        # The length, its checksum, a header, the payload, and the checksum of all.
        for place in (1, 8, 14, len(parts[number]) - 10, len(parts[number]) - 1):
            frame = bytearray(parts[number])
            frame[place] ^= 1
            damaged.append(b"".join([*parts[:number], bytes(frame), *parts[number + 1 :]]))
    whole, *outcomes = await read(name, answered(b"".join(parts)), *map(answered, damaged))
    assert whole == "Good morning."
    assert {failure_of(each).kind for each in outcomes} == {"server"}


# What a user then sees.


async def turn(provider: Any) -> Any:
    session = await Session.create(MemoryStore(), "s", model=HAIKU, dialect="anthropic")
    try:
        ended = await run_turn(
            session, provider, message={"role": "user", "content": "Hi."}, stream=True
        )
        said = session.window.entries.values()
        return ended, [each.message for each in said if each.message.role == "assistant"]
    finally:
        await provider.close()


async def no_wait(seconds: float) -> None:
    """Time passes."""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fault", ["overloaded", "rate_limit", "server_error"])
async def test_what_may_pass_is_asked_again_and_said_once(served, name, fault):
    provider = with_retries(make(name, served.url), sleep=no_wait)
    served.simulator.script.set_replies(
        [{"fault": fault}, {"fault": fault, "in_stream": 1}, "Good morning."]
    )
    ended, said = await turn(provider)
    assert ended.reason == "done"
    assert [message.parts[0].text for message in said] == ["Good morning."]
    assert served.simulator.stats()["requests"] == 3


@pytest.mark.parametrize("name", NAMES)
async def test_a_connection_that_is_cut_is_tried_again(served, name):
    provider = with_retries(make(name, served.url), sleep=no_wait)
    served.simulator.script.set_replies([{"text": 50, "cut": 1}, "Good morning."])
    ended, said = await turn(provider)
    assert (ended.reason, len(said)) == ("done", 1)
