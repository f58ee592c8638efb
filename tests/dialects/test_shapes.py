from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.lazy import anthropic, openai
from trimtab.dialects import DIALECT_NAMES, get_dialect
from trimtab.dialects.provider_safe_values import ensure_arguments_json, parse_tool_arguments
from trimtab.dialects.reading import detect_dialect, parse_any_tool_call, to_plain_dict


@pytest.mark.parametrize("name", DIALECT_NAMES)
def test_a_dialect_is_found_by_its_name(name):
    assert get_dialect(name).name == name
    assert get_dialect(name).allows_system_notices is (name != "anthropic")


DETECTED = {
    "anthropic": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f"}]},
        {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "tool_result"}]},
        {"role": "user", "content": [{"type": "image", "source": {}}]},
        {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"a": 1}}]},
        {"role": "assistant", "content": [{"type": "bash_code_execution_tool_result"}]},
        {"id": "m", "type": "message", "role": "assistant", "content": [], "stop_reason": None},
    ],
    "openai_chat": [
        {"role": "tool", "tool_call_id": "c", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "assistant", "content": "x", "refusal": None},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {"id": "c", "object": "chat.completion", "choices": []},
    ],
    "openai_responses": [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "message", "role": "user", "content": "x"},
        {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
        {"type": "message", "role": "assistant", "content": [], "status": "completed"},
        {"id": "r", "object": "response", "output": []},
    ],
}


@pytest.mark.parametrize("name", DIALECT_NAMES)
@pytest.mark.parametrize("default", DIALECT_NAMES)
def test_a_shape_tells_its_dialect_whatever_the_default(name, default):
    for wire in DETECTED[name]:
        assert detect_dialect(wire, get_dialect(default)).name == name, wire


@pytest.mark.parametrize("default", DIALECT_NAMES)
def test_a_shape_that_tells_nothing_is_the_default_s(default):
    for content in ("x", [{"type": "text", "text": "x"}], [{"type": "of_tomorrow"}]):
        wire = {"role": "user", "content": content}
        assert detect_dialect(wire, get_dialect(default)).name == default


def test_a_developer_is_one_of_openai_s():
    wire = {"role": "developer", "content": "x"}
    found = [detect_dialect(wire, get_dialect(default)).name for default in DIALECT_NAMES]
    assert found == ["openai_chat", "openai_chat", "openai_responses"]


def test_an_sdk_s_object_becomes_what_the_server_sent():
    message = openai.types.chat.ChatCompletionMessage.model_validate(
        {
            "role": "assistant",
            "content": None,
            "of_tomorrow": [1],
        }
    )
    assert to_plain_dict(message) == {"role": "assistant", "content": None, "of_tomorrow": [1]}


def test_a_field_that_was_deleted_after_it_was_set_is_left_out():
    sent = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x"}}
    choice = openai.types.chat.chat_completion.Choice.model_validate(sent | {"logprobs": None})
    del choice.logprobs  # as LiteLLM does; it stays among the fields that are set
    assert "logprobs" in choice.model_fields_set
    assert to_plain_dict(choice) == sent


def test_what_an_sdk_parsed_on_top_is_not_sent_back():
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    parsed = openai.types.responses.ParsedResponseFunctionToolCall.model_validate(
        call | {"parsed_arguments": {}}
    )
    assert to_plain_dict(parsed) == call
    text: dict[str, Any] = {"type": "text", "text": "{}", "citations": None}
    message = {
        "role": "assistant",
        "content": [anthropic.types.parsed_message.ParsedTextBlock[Any](**text, parsed_output={})],
    }
    assert to_plain_dict(message) == {"role": "assistant", "content": [text]}


def test_a_field_goes_by_its_name_on_the_wire():
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "async": True}
    assert (
        to_plain_dict(openai.types.responses.ResponseFunctionToolCall.model_validate(call)) == call
    )


def test_a_mapping_that_holds_sdk_objects_becomes_plain_and_nobody_else_s():
    given: dict[str, Any] = {
        "role": "assistant",
        "content": [
            anthropic.types.TextBlock(type="text", text="x"),
            anthropic.types.ToolUseBlock.model_validate(
                {"type": "tool_use", "id": "t", "name": "f", "input": {}}
            ),
        ],
        "deep": {"list": [1]},
    }
    wire = to_plain_dict(given)
    assert wire == {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "x"},
            {"type": "tool_use", "id": "t", "name": "f", "input": {}},
        ],
        "deep": {"list": [1]},
    }
    given["deep"]["list"].append(2)
    assert wire["deep"] == {"list": [1]}


def test_what_is_nested_deeper_than_can_be_sent_is_refused_with_the_limit():
    deep: Any = 1
    for _ in range(199):
        deep = [deep]
    assert to_plain_dict({"a": deep}) == {"a": deep}
    with pytest.raises(ValueError, match="more than 200 lists and objects are nested"):
        to_plain_dict({"a": [deep]})


def test_what_is_no_mapping_is_refused_by_its_type():
    with pytest.raises(TypeError, match="list"):
        to_plain_dict([1])


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ("", {}),
        ('{"a": 1}', {"a": 1}),
        ("[1]", {"arguments": "[1]"}),
        ('{"a": ', {"arguments": '{"a": '}),
    ],
)
def test_arguments_are_an_object_whatever_the_model_wrote(arguments, read):
    assert parse_tool_arguments(arguments) == read
    assert json.loads(ensure_arguments_json(arguments)) == read


def test_arguments_that_are_an_object_keep_their_spelling():
    assert ensure_arguments_json('{"b" : 1,  "a":2}') == '{"b" : 1,  "a":2}'


def test_legacy_function_calls_are_refused_with_what_to_use():
    spoken = get_dialect("openai_chat")
    for wire in (
        {"role": "function", "name": "f", "content": "x"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": ""}},
    ):
        with pytest.raises(ValueError, match="use tool_calls"):
            spoken.parse_message(wire)


@pytest.mark.parametrize("name", ["anthropic", "openai_responses"])
def test_a_chat_tool_message_is_refused_by_the_others(name):
    with pytest.raises(ValueError, match="'tool'"):
        get_dialect(name).parse_message({"role": "tool", "content": "x"})


WRONG = {
    "the user message has no content, but the unknown key 'text'": {"role": "user", "text": "2+2?"},
    "the user message has no content; write": {"role": "user", "content": None},
    "the system message has no content": {"role": "system"},
    "content of the user message is int": {"role": "user", "content": 5},
    "content of the user message is dict": {"role": "user", "content": {"type": "text"}},
    r"content\[1\] of the user message is str": {"role": "user", "content": [{"type": "x"}, "b"]},
    r"content\[1\] of the user message has no type; a text is": {
        "role": "user",
        "content": [{"type": "text", "text": "first"}, {"text": "second"}],
    },
    r"content\[0\] of the user message is of type 'text' and has no text": {
        "role": "user",
        "content": [{"type": "text", "text": None}],
    },
    r"content\[0\] of the user message has a text that is int": {
        "role": "user",
        "content": [{"type": "text", "text": 5}],
    },
    r"content\[0\] of the user message is of type 'image_url' and has no image_url": {
        "role": "user",
        "content": [{"type": "image_url"}],
    },
    r"content\[0\] of the assistant message has no type": {
        "role": "assistant",
        "content": [{"text": "said"}],
    },
    r"the message has no role: write \{\"role\": \"user\"": {"content": "x"},
}


@pytest.mark.parametrize("name", DIALECT_NAMES)
@pytest.mark.parametrize("why", WRONG)
def test_a_message_without_content_is_refused_with_what_is_there_instead(name, why):
    with pytest.raises(ValueError, match=why):
        get_dialect(name).parse_message(WRONG[why])


@pytest.mark.parametrize("name", DIALECT_NAMES)
def test_a_part_of_a_system_prompt_without_a_type_is_refused(name):
    with pytest.raises(ValueError, match=r"content\[0\] of the system message has no type"):
        get_dialect(name).parse_system_messages([{"text": "Be brief."}])


BLOCKS: list[Any] = [
    {"type": "tool_result", "tool_use_id": "a", "content": "X"},
    {"type": "text", "text": "hello"},
    {"type": "input_text", "text": "hello"},
    {"type": "output_text", "text": "hello", "annotations": []},
    {"type": "image_url", "image_url": {"url": "x"}},
    {"type": "image", "source": {}},
    {"type": "tool_use", "id": "t", "name": "f", "input": {}},
    {"type": "thinking", "thinking": "hm", "signature": "s"},
    {"type": "refusal", "refusal": "no"},
    {"type": "document", "source": {}},
    {"type": "web_search_tool_result", "tool_use_id": "t", "content": []},
    {"type": "function", "id": "c", "function": {"name": "f", "arguments": "{}"}},
]


@pytest.mark.parametrize("default", DIALECT_NAMES)
def test_a_block_without_a_message_is_refused_with_what_to_do(default):
    for block in (*BLOCKS, anthropic.types.TextBlock(type="text", text="hello")):
        wire = to_plain_dict(block)
        told = f"a block of type {wire['type']!r} has no role: put it into a message, "
        with pytest.raises(ValueError, match=told + '{"role": "user", "content": '):
            detect_dialect(wire, get_dialect(default)).parse_message(wire)


def test_a_block_among_items_is_refused_as_well():
    items = [{"type": "reasoning", "id": "r", "summary": []}, {"type": "text", "text": "x"}]
    with pytest.raises(ValueError, match="a block of type 'text' has no role"):
        get_dialect("openai_responses").parse_history(items)


ITEMS: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"},
    {"type": "web_search_call", "id": "ws_1"},
    {"type": "local_shell_call_output", "id": "x", "output": "ok"},
    {"type": "mcp_list_tools", "id": "mcp_1", "tools": []},
    {"type": "item_reference", "id": "msg_1"},
]


@pytest.mark.parametrize("default", DIALECT_NAMES)
def test_an_item_of_the_responses_api_needs_no_role(default):
    for item in ITEMS:
        spoken = detect_dialect(item, get_dialect(default))
        assert spoken.serialize_history([spoken.parse_message(item)]) == [item]


def test_an_item_of_an_unknown_type_is_kept_only_where_its_api_is_spoken():
    item = {"type": "item_of_tomorrow", "status": "completed"}
    spoken = detect_dialect(item, get_dialect("openai_responses"))
    assert spoken.serialize_history([spoken.parse_message(item)]) == [item]
    for name in ("anthropic", "openai_chat"):
        with pytest.raises(ValueError, match="'item_of_tomorrow' has no role"):
            detect_dialect(item, get_dialect(name)).parse_message(item)


def test_an_item_may_be_referred_to_by_its_id_alone():
    spoken = get_dialect("openai_responses")
    assert spoken.serialize_history([spoken.parse_message({"id": "msg_1"})]) == [{"id": "msg_1"}]


def test_what_is_no_call_is_not_read_as_one():
    for wire in ({"type": "text", "text": "x"}, {"type": "reasoning", "id": "r"}, {"name": "f"}):
        with pytest.raises(ValueError, match="expected a tool call"):
            parse_any_tool_call(wire)


RESULTS_WITHOUT_CONTENT = {
    "openai_chat": {"role": "tool", "tool_call_id": "c", "output": "x"},
    "openai_responses": {"type": "function_call_output", "call_id": "c", "content": "x"},
}


@pytest.mark.parametrize("name", RESULTS_WITHOUT_CONTENT)
def test_a_result_under_a_wrong_key_is_refused_with_that_key(name):
    wire = RESULTS_WITHOUT_CONTENT[name]
    with pytest.raises(ValueError, match=f"unknown key {list(wire)[-1]!r}"):
        get_dialect(name).parse_message(wire)


def test_a_result_of_a_wrong_type_is_refused_by_its_type():
    block = {"type": "tool_result", "tool_use_id": "t", "content": 5}
    with pytest.raises(ValueError, match="content of the tool_result message is int"):
        get_dialect("anthropic").parse_message({"role": "user", "content": [block]})
    with pytest.raises(ValueError, match="content of the tool message is int"):
        get_dialect("openai_chat").parse_message(
            {"role": "tool", "tool_call_id": "c", "content": 5}
        )
    item = {"type": "function_call_output", "call_id": "c", "output": 5}
    with pytest.raises(ValueError, match="output of the function_call_output message is int"):
        get_dialect("openai_responses").parse_message(item)


@pytest.mark.parametrize("name", ["anthropic", "openai_chat"])
def test_a_reply_s_content_of_a_wrong_type_is_refused_by_its_type(name):
    with pytest.raises(ValueError, match="content of the assistant message is int"):
        get_dialect(name).parse_message({"role": "assistant", "content": 5})


NO_OBJECT = [None, 5, "x", []]


@pytest.mark.parametrize("wrong", NO_OBJECT)
def test_a_call_or_a_block_of_a_reply_that_is_no_object_is_refused_by_its_type(wrong):
    told = rf"\[0\] of the assistant message is {type(wrong).__name__}; it must be an object"
    with pytest.raises(ValueError, match=f"tool_calls{told}"):
        get_dialect("openai_chat").parse_message({"role": "assistant", "tool_calls": [wrong]})
    with pytest.raises(ValueError, match=f"content{told}"):
        get_dialect("anthropic").parse_reply({"type": "message", "content": [wrong]})
    with pytest.raises(ValueError, match=f"choice is {type(wrong).__name__}; it must be an obj"):
        get_dialect("openai_chat").parse_reply({"choices": [{"message": wrong}]})


CALLS_BY_NO_TEXT = {
    "id of a tool call is int": {"id": 5, "function": {"name": "f", "arguments": "{}"}},
    "name of a tool call is list": {"id": "c", "function": {"name": ["f"], "arguments": "{}"}},
    "name of a tool call is NoneType": {"type": "tool_use", "id": "c", "name": None, "input": {}},
    "name of a tool call is int": {"type": "function_call", "call_id": "c", "name": 5},
    "arguments of a tool call is dict": {
        "type": "function_call",
        "call_id": "c",
        "name": "f",
        "arguments": {},
    },
}


@pytest.mark.parametrize("told", CALLS_BY_NO_TEXT)
def test_a_call_that_is_known_by_no_text_is_refused(told):
    with pytest.raises(ValueError, match=f"{told}; it must be a text"):
        parse_any_tool_call(CALLS_BY_NO_TEXT[told])


def test_a_result_for_a_call_that_is_known_by_no_text_is_refused():
    wire = {"role": "tool", "tool_call_id": 5, "content": "x"}
    with pytest.raises(ValueError, match="id of a tool result is int; it must be a text"):
        get_dialect("openai_chat").parse_message(wire)


@pytest.mark.parametrize("name", DIALECT_NAMES)
@pytest.mark.parametrize("role", [["user"], {}, 5])
def test_a_role_that_is_no_text_is_refused_as_an_unknown_one(name, role):
    with pytest.raises(ValueError, match=rf"^role {re.escape(repr(role))} "):
        get_dialect(name).parse_message({"role": role, "content": "x"})


def test_the_answer_to_a_call_that_is_known_by_no_text_stays_with_its_provider():
    item = {"type": "function_call", "call_id": [], "name": "f", "arguments": "{}"}
    answer = {"type": "function_call_output", "call_id": [], "output": "x"}
    [message] = get_dialect("openai_responses").parse_history([item, answer])
    assert [
        block.body for block in get_dialect("openai_responses").render_round_blocks([message])
    ] == [
        item,
        answer,
    ]


def test_a_tool_may_say_that_it_returned_nothing_and_a_model_may_say_nothing():
    nothing = get_dialect("openai_chat").parse_message(
        {"role": "tool", "tool_call_id": "c", "content": None}
    )
    assert nothing.results[0].content == ()
    for name in ("anthropic", "openai_chat"):
        assert get_dialect(name).parse_message({"role": "assistant"}).parts == ()


@pytest.mark.parametrize("item", [{"id": "x"}, {"type": ["message"]}, {"type": None}])
def test_an_output_item_without_a_type_is_left_out_of_a_reply(item):
    message = {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Hello.", "annotations": []}],
    }
    body = {"object": "response", "status": "completed", "output": [item, message]}
    reply = get_dialect("openai_responses").parse_reply(body)
    assert reply.message.text == "Hello."
    assert len(reply.message.parts) == 1
