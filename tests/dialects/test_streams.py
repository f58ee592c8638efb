from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.lazy import anthropic, openai, pydantic
from trimtab.dialects import get_dialect
from trimtab.dialects.reading import to_plain_dict
from trimtab.engine.log.event import Usage

ANTHROPIC_REPLY: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [
        {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "ZGF0YQ=="},
        {
            "type": "text",
            "text": "It is so.",
            "citations": [
                {
                    "type": "char_location",
                    "cited_text": "so",
                    "document_index": 0,
                    "document_title": None,
                    "start_char_index": 0,
                    "end_char_index": 2,
                    "file_id": None,
                }
            ],
        },
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": [1, "é"]}},
        {"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 10,
        "cache_creation_input_tokens": 200,
        "cache_read_input_tokens": 3000,
        "output_tokens": 40,
    },
}


def anthropic_events():
    start = copy.deepcopy(ANTHROPIC_REPLY)
    start |= {"content": [], "stop_reason": None}
    start["usage"]["output_tokens"] = 1
    yield {"type": "message_start", "message": start}
    yield {"type": "ping"}
    for index, block in enumerate(ANTHROPIC_REPLY["content"]):
        at = {"index": index}
        begun, deltas = begin(block)
        yield {"type": "content_block_start", **at, "content_block": begun}
        for delta in deltas:
            yield {"type": "content_block_delta", **at, "delta": delta}
        yield {"type": "content_block_stop", **at}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 40, "input_tokens": None},
    }
    yield {"type": "message_stop"}


def begin(block):
    """The block as it starts, and the deltas that complete it."""
    match block["type"]:
        case "thinking":
            return {"type": "thinking", "thinking": "", "signature": ""}, [
                *({"type": "thinking_delta", "thinking": piece} for piece in ("Let me", " see.")),
                {"type": "signature_delta", "signature": "c2ln"},
            ]
        case "text":
            return {"type": "text", "text": "", "citations": None}, [
                {"type": "text_delta", "text": "It is"},
                {"type": "citations_delta", "citation": block["citations"][0]},
                {"type": "text_delta", "text": " so."},
            ]
        case "tool_use":
            text = json.dumps(block["input"]) if block["input"] else ""
            pieces = [text[:4], text[4:], ""]
            return block | {"input": {}}, [
                {"type": "input_json_delta", "partial_json": piece} for piece in pieces
            ]
        case _:
            return block, []


CHAT_REPLY: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-x",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "logprobs": None,
            "message": {
                "role": "assistant",
                "content": "It is so.",
                "refusal": None,
                "reasoning_content": "Let me see.",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    {
                        "id": "c2",
                        "type": "function",
                        "function": {"name": "g", "arguments": '{"a": 1}'},
                    },
                ],
            },
        }
    ],
    "usage": {
        "prompt_tokens": 100,
        "completion_tokens": 7,
        "total_tokens": 107,
        "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 30},
    },
}


def chunk(delta, **choice):
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x"}
    whole = {"index": 0, "delta": delta, "finish_reason": None, "logprobs": None, **choice}
    return {**head, "choices": [whole], "usage": None}


def fragment(index, **keys):
    return chunk({"tool_calls": [{"index": index, **keys}]})


def chat_chunks():
    yield chunk({"role": "assistant", "content": "", "refusal": None})
    yield chunk({"reasoning_content": "Let me "})
    yield chunk({"reasoning_content": "see."})
    yield chunk({"content": "It is"})
    yield chunk({"content": " so."})
    yield fragment(0, id="c1", type="function", function={"name": "f", "arguments": ""})
    yield fragment(0, function={"arguments": "{}"})
    yield fragment(1, id="c2", type="function", function={"name": "g", "arguments": '{"a"'})
    yield fragment(1, function={"arguments": ": 1}"})
    yield chunk({}, finish_reason="tool_calls")


def usage_chunk():
    return chunk({}) | {"choices": [], "usage": CHAT_REPLY["usage"]}


RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1.0,
    "model": "gpt-x",
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "Z0FB"},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "so", "annotations": []}],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c1",
            "name": "f",
            "arguments": "{}",
            "status": "completed",
        },
    ],
    "usage": {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 30},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 107,
    },
}


def gathered(name, events):
    gathering = get_dialect(name).create_reply_accumulator()
    for event in events:
        gathering.feed(event)
    return gathering.reply_body()


def test_an_anthropic_stream_gathers_to_the_unstreamed_reply():
    assert gathered("anthropic", anthropic_events()) == ANTHROPIC_REPLY


def test_an_anthropic_stream_of_sdk_objects_gathers_to_the_sdk_s_own_reply():
    parse = pydantic.TypeAdapter(anthropic.types.RawMessageStreamEvent).validate_python
    events = [
        to_plain_dict(parse(event)) for event in anthropic_events() if event["type"] != "ping"
    ]
    assert gathered("anthropic", events) == ANTHROPIC_REPLY
    whole = anthropic.types.Message.model_validate(ANTHROPIC_REPLY)
    assert to_plain_dict(whole) == ANTHROPIC_REPLY


def test_an_anthropic_reply_is_not_whole_before_its_stop():
    *most, _ = anthropic_events()
    assert gathered("anthropic", most) is None


def test_arguments_cut_off_by_the_limit_are_kept_as_text():
    events = [event for event in anthropic_events() if event.get("index") != 3]
    cut = {"type": "input_json_delta", "partial_json": '{"a": [1, '}
    start = ANTHROPIC_REPLY["content"][3] | {"input": {}}
    events[1:1] = [
        {"type": "content_block_start", "index": 3, "content_block": start},
        {"type": "content_block_delta", "index": 3, "delta": cut},
    ]
    reply = gathered("anthropic", events)
    assert reply is not None
    assert reply["content"][3]["input"] == {"arguments": '{"a": [1, '}


def test_chat_chunks_gather_to_the_unstreamed_reply():
    assert gathered("openai_chat", [*chat_chunks(), usage_chunk()]) == CHAT_REPLY


def test_chat_chunks_of_sdk_objects_gather_to_the_sdk_s_own_reply():
    events = [*chat_chunks(), usage_chunk()]
    parsed = [
        to_plain_dict(openai.types.chat.ChatCompletionChunk.model_validate(event))
        for event in events
    ]
    assert gathered("openai_chat", parsed) == CHAT_REPLY
    assert to_plain_dict(openai.types.chat.ChatCompletion.model_validate(CHAT_REPLY)) == CHAT_REPLY


def test_a_chat_reply_is_whole_at_its_finish_and_its_usage_comes_when_it_comes():
    spoken = get_dialect("openai_chat")
    gathering = spoken.create_reply_accumulator()
    for event in chat_chunks():
        assert gathering.reply_body() is None
        gathering.feed(event)
    early = gathering.reply_body()
    assert early is not None
    assert spoken.parse_reply(early).usage is None
    gathering.feed(usage_chunk())
    late = gathering.reply_body()
    assert late is not None
    assert spoken.parse_reply(late).usage == Usage(
        input=100, output=7, cache_read=64, cache_write=30
    )


def test_a_custom_call_and_calls_without_an_index_are_gathered():
    def piece(**keys):
        return chunk({"tool_calls": [keys]})

    events = [
        piece(id="c1", type="custom", custom={"name": "f", "input": "a"}),
        piece(custom={"input": "b"}),
        piece(id="c2", function={"name": "g", "arguments": "{}"}),
        chunk({}, finish_reason="tool_calls"),
    ]
    reply = gathered("openai_chat", events)
    assert reply is not None
    assert reply["choices"][0]["message"]["tool_calls"] == [
        {"id": "c1", "type": "custom", "custom": {"name": "f", "input": "ab"}},
        {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        pytest.param(
            [
                {"id": "c1", "function": {"name": "f", "arguments": '{"a":'}},
                {"function": {"arguments": "1}"}},
                {"id": "c2", "function": {"name": "f", "arguments": "{}"}},
                {"id": "c3", "custom": {"name": "g", "input": "x"}},
                {"custom": {"input": "y"}},
            ],
            [("c1", "f", '{"a":1}'), ("c2", "f", "{}"), ("c3", "g", "xy")],
            id="every call has an id",
        ),
        pytest.param(
            [
                {"id": "c1", "function": {"name": "f", "arguments": "{"}},
                {"id": "c2", "function": {"name": "f", "arguments": "["}},
                {"id": "c1", "function": {"name": "f", "arguments": "}"}},
                {"id": "c2", "function": {"arguments": "]"}},
            ],
            [("c1", "f", "{}"), ("c2", "f", "[]")],
            id="each fragment says its id again",
        ),
        pytest.param(
            [
                {"id": "", "function": {"name": "f", "arguments": "{"}},
                {"id": "c1", "function": {"name": "f", "arguments": ""}},
                {"id": "c2", "function": {"name": None, "arguments": "}"}},
            ],
            [("c2", "f", "{}")],
            id="an id comes late, and another without a name",
        ),
    ],
)
def test_calls_that_share_an_index_are_told_apart_by_id_and_name(pieces, calls):
    events = [fragment(0, **piece) for piece in pieces]
    events += [
        fragment(1, id="c9", function={"name": "h", "arguments": "{}"}),
        chunk({}, finish_reason="tool_calls"),
    ]
    reply = gathered("openai_chat", events)
    assert reply is not None
    made = get_dialect("openai_chat").parse_reply(reply).message.calls
    assert [(call.id, call.name, call.arguments) for call in made] == [*calls, ("c9", "h", "{}")]


@pytest.mark.parametrize("kind", ["response.completed", "response.incomplete"])
def test_a_response_is_gathered_from_its_last_event(kind):
    events = [
        {"type": "response.created", "response": RESPONSE | {"output": []}},
        {"type": kind, "response": RESPONSE, "sequence_number": 9},
    ]
    assert gathered("openai_responses", events[:1]) is None
    assert gathered("openai_responses", events) == RESPONSE


def test_a_response_of_sdk_objects_is_gathered():
    event = {"type": "response.completed", "response": RESPONSE, "sequence_number": 9}
    parsed = pydantic.TypeAdapter(openai.types.responses.ResponseStreamEvent).validate_python(event)
    assert gathered("openai_responses", [to_plain_dict(parsed)]) == RESPONSE
    assert to_plain_dict(openai.types.responses.Response.model_validate(RESPONSE)) == RESPONSE


def test_a_failed_response_is_no_reply():
    assert gathered("openai_responses", [{"type": "response.failed", "response": RESPONSE}]) is None


def test_a_response_that_ends_bare_takes_the_items_that_were_sent_one_by_one():
    events = [
        {"type": "response.output_item.done", "output_index": index, "item": item}
        for index, item in enumerate(RESPONSE["output"])
    ]
    events.append({"type": "response.completed", "response": RESPONSE | {"output": []}})
    assert gathered("openai_responses", events) == RESPONSE


def test_usage_means_the_same_in_every_dialect():
    read = [
        get_dialect(name).parse_reply(wire).usage
        for name, wire in [
            ("anthropic", ANTHROPIC_REPLY),
            ("openai_chat", CHAT_REPLY),
            ("openai_responses", RESPONSE),
        ]
    ]
    assert read == [
        Usage(input=3210, output=40, cache_read=3000, cache_write=200),
        Usage(input=100, output=7, cache_read=64, cache_write=30),
        Usage(input=100, output=7, cache_read=64, cache_write=30),
    ]


def test_deepseek_s_cache_hits_are_read():
    reply = CHAT_REPLY | {"usage": {"prompt_tokens": 9, "prompt_cache_hit_tokens": 5}}
    assert get_dialect("openai_chat").parse_reply(reply).usage == Usage(input=9, cache_read=5)


def test_a_reply_without_usage_has_none():
    for name, wire in [("anthropic", ANTHROPIC_REPLY), ("openai_responses", RESPONSE)]:
        assert get_dialect(name).parse_reply(wire | {"usage": None}).usage is None


def test_a_reply_goes_back_to_its_provider_as_it_came():
    anthropic, chat, responses = map(get_dialect, ("anthropic", "openai_chat", "openai_responses"))
    said = anthropic.parse_reply(ANTHROPIC_REPLY)
    assert (said.stop, said.id) == ("tool_use", "msg_1")
    sent = anthropic.serialize_history([said.message])
    assert sent == [{"role": "assistant", "content": ANTHROPIC_REPLY["content"]}]
    said = chat.parse_reply(CHAT_REPLY)
    assert (said.stop, said.id) == ("tool_calls", "chatcmpl-1")
    message = dict(CHAT_REPLY["choices"][0]["message"])
    del message["refusal"]  # a null, which says nothing
    assert chat.serialize_history([said.message]) == [message]
    said = responses.parse_reply(RESPONSE)
    assert (said.stop, said.id) == ("completed", "resp_1")
    assert responses.serialize_history([said.message]) == RESPONSE["output"]


def test_a_reply_says_why_it_is_incomplete():
    cut = RESPONSE | {
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
    }
    assert get_dialect("openai_responses").parse_reply(cut).stop == "max_output_tokens"


def test_a_failed_response_cannot_be_read():
    failed = RESPONSE | {"status": "failed", "error": {"code": "x", "message": "too long"}}
    with pytest.raises(ValueError, match="too long"):
        get_dialect("openai_responses").parse_reply(failed)


def test_several_choices_are_refused_with_what_to_do():
    two = CHAT_REPLY | {"choices": CHAT_REPLY["choices"] * 2}
    with pytest.raises(ValueError, match=r"2 choices.*n=1"):
        get_dialect("openai_chat").parse_reply(two)


def test_each_dialect_knows_its_own_replies_alone():
    replies = {
        "anthropic": ANTHROPIC_REPLY,
        "openai_chat": CHAT_REPLY,
        "openai_responses": RESPONSE,
    }
    for name in replies:
        told = {other for other, wire in replies.items() if get_dialect(name).is_reply_body(wire)}
        assert told == {name}
        assert not get_dialect(name).is_reply_body({"role": "assistant", "content": "hi"})


def test_a_call_that_the_provider_answered_itself_stays_opaque():
    call = {"type": "shell_call", "id": "sh_1", "call_id": "c9", "action": {"commands": ["ls"]}}
    output = {"type": "shell_call_output", "id": "so_1", "call_id": "c9", "output": []}
    reply = RESPONSE | {"output": [call, output, *RESPONSE["output"]]}
    spoken = get_dialect("openai_responses")
    said = spoken.parse_reply(reply).message
    assert [each.id for each in said.calls] == ["c1"]
    assert said.results == ()
    assert spoken.serialize_history([said]) == reply["output"]


def test_a_null_behind_the_usage_does_not_erase_it():
    events = [usage_chunk(), *chat_chunks()]
    reply = gathered("openai_chat", events)
    assert reply is not None
    assert reply["usage"] == CHAT_REPLY["usage"]
