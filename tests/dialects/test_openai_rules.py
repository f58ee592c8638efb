from typing import Any

import pytest

from trimtab.dialects import get_dialect

USER = {"role": "user", "content": "hi"}


def call(call_id="c1", arguments: Any = "{}"):
    function = {"name": "f", "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def calling(*calls):
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def answer(call_id="c1"):
    return {"role": "tool", "tool_call_id": call_id, "content": "ok"}


def chat(*messages, **keys):
    return {"messages": list(messages), **keys}


def calls_named(name):
    return calling(call() | {"function": {"name": name, "arguments": "{}"}})


def function(name="f"):
    return {"type": "function", "function": {"name": name}}


CHAT = {
    "there are no messages": ("too short", chat(), chat(USER)),
    "a role is unknown": ("messages[1].role", chat(USER, {"role": "bot"}), chat(USER, USER)),
    "a result has no call": (
        "must be a response to a preceding message with 'tool_calls'",
        chat(USER, answer()),
        chat(USER, calling(call()), answer()),
    ),
    "a call has no result": (
        "must be followed by tool messages responding to each 'tool_call_id'",
        chat(USER, calling(call()), USER),
        chat(USER, calling(call()), answer(), USER),
    ),
    "one of two parallel calls has no result": (
        "did not have response messages: c2",
        chat(USER, calling(call(), call("c2")), answer()),
        chat(USER, calling(call(), call("c2")), answer("c2"), answer()),
    ),
    "a user speaks between call and result": (
        "must be a response to a preceding message",
        chat(USER, calling(call()), USER, answer()),
        chat(USER, calling(call()), answer(), USER),
    ),
    "a call's id is doubled": (
        "duplicate id c1",
        chat(USER, calling(call(), call()), answer()),
        chat(USER, calling(call(), call("c2")), answer(), answer("c2")),
    ),
    "a call is answered twice": (
        "duplicate tool message",
        chat(USER, calling(call()), answer(), answer()),
        chat(USER, calling(call()), answer(), calling(call()), answer()),
    ),
    "an assistant says and calls nothing": (
        "messages[1].content",
        chat(USER, {"role": "assistant", "content": None}),
        chat(USER, {"role": "assistant", "content": None, "refusal": "no"}),
    ),
    "the list of calls is empty": (
        "messages[1].tool_calls: [] is too short",
        chat(USER, {"role": "assistant", "content": "x", "tool_calls": []}),
        chat(USER, {"role": "assistant", "content": "x", "tool_calls": None}),
    ),
    "arguments are no string": (
        "tool_calls[0].function.arguments",
        chat(USER, calling(call(arguments={"a": 1})), answer()),
        chat(USER, calling(call(arguments='{"a": 1}')), answer()),
    ),
    "a custom call's input is no string": (
        "tool_calls[0].custom.input",
        chat(USER, calling({"id": "c1", "type": "custom", "custom": {"name": "f"}}), answer()),
        chat(
            USER,
            calling({"id": "c1", "type": "custom", "custom": {"name": "f", "input": "x"}}),
            answer(),
        ),
    ),
    "a call has no name": (
        "function.name",
        chat(USER, calling(call() | {"function": {"arguments": "{}"}}), answer()),
        chat(USER, calling(call()), answer()),
    ),
    "a call has no id": (
        "tool_calls[0].id",
        chat(USER, calling(call("")), answer("")),
        chat(USER, calling(call()), answer()),
    ),
    "a result has no content": (
        "must have content",
        chat(USER, calling(call()), answer() | {"content": None}),
        chat(USER, calling(call()), answer() | {"content": ""}),
    ),
    "the list of tools is empty": ("tools: [] is too short", chat(USER, tools=[]), chat(USER)),
    "two tools have one name": (
        "tools[1]: duplicate name f",
        chat(USER, tools=[function(), function()]),
        chat(USER, tools=[function(), function("g")]),
    ),
    "a tool has no type": (
        "Missing required parameter: 'tools[0].type'.",
        chat(USER, tools=[{"name": "f", "parameters": {}}]),
        chat(USER, tools=[{"type": "browser_search"}]),
    ),
    "a tool has another API's form": (
        "Missing required parameter: 'tools[0].function'.",
        chat(USER, tools=[{"type": "function", "name": "f"}]),
        chat(USER, tools=[function()]),
    ),
    "thinking is asked of OpenAI": (
        "Unknown parameter: 'thinking'.",
        chat(USER, model="gpt-4o", thinking={"type": "enabled"}),
        chat(USER, model="glm-4.6", thinking={"type": "enabled"}),
    ),
    "an entry is no object": (
        "Invalid type for 'messages[1]': expected an object.",
        chat(USER, "hi"),
        chat(USER, USER),
    ),
    "no entry is an object": (
        "Invalid type for 'messages[0]': expected an object.",
        chat(None),
        chat(USER),
    ),
    "a user says nothing": (
        "messages[0].content: expected a string or a list",
        chat({"role": "user"}),
        chat({"role": "user", "content": ""}),
    ),
    "a developer's content is no text": (
        "messages[0].content",
        chat({"role": "developer", "content": {"type": "text", "text": "x"}}),
        chat({"role": "developer", "content": [{"type": "text", "text": "x"}]}),
    ),
    "a system prompt is null": (
        "messages[0].content",
        chat({"role": "system", "content": None}, USER),
        chat({"role": "system", "content": "x"}, USER),
    ),
    "a user's content is an empty list": (
        "messages[0].content: expected a string or a list that is not empty",
        chat({"role": "user", "content": []}),
        chat({"role": "user", "content": [{"type": "text", "text": "hi"}]}),
    ),
    "a call's name has other letters": (
        "Invalid 'messages[1].tool_calls[0].function.name': string does not match pattern.",
        chat(USER, calls_named("a.b"), answer(), model="gpt-4o"),
        chat(USER, calls_named("a_B-9"), answer(), model="gpt-4o"),
    ),
    "a call's name is too long": (
        "Invalid 'messages[1].tool_calls[0].function.name': string too long.",
        chat(USER, calls_named("f" * 65), answer(), model="gpt-4o"),
        chat(USER, calls_named("f" * 64), answer(), model="gpt-4o"),
    ),
    "a call's id is too long": (
        "Invalid 'messages[1].tool_calls[0].id': string too long.",
        chat(USER, calling(call("c" * 41)), answer("c" * 41), model="gpt-4o"),
        chat(USER, calling(call("c" * 40)), answer("c" * 40), model="gpt-4o"),
    ),
    "another server's ids are sent to OpenAI": (
        "tool_calls[0].id': string too long",
        chat(USER, calling(call("c" * 46)), answer("c" * 46), model="gpt-4o"),
        chat(USER, calling(call("c" * 46)), answer("c" * 46), model="llama3"),
    ),
    "a tool's name has other letters": (
        "Invalid 'tools[0].function.name': string does not match pattern.",
        chat(USER, tools=[function("a b")]),
        chat(USER, tools=[function("a-b")]),
    ),
    "a custom tool's name is too long": (
        "Invalid 'tools[0].custom.name': string too long.",
        chat(USER, tools=[{"type": "custom", "custom": {"name": "f" * 65}}]),
        chat(USER, tools=[{"type": "custom", "custom": {"name": "f" * 64}}]),
    ),
    "a tool's name is no text": (
        "Invalid 'tools[0].function.name': string does not match pattern.",
        chat(USER, tools=[{"type": "function", "function": {"name": ["f"]}}]),
        chat(USER, tools=[function()]),
    ),
    "a tool has no name": (
        "tools[0]: a name",
        chat(USER, tools=[function("")]),
        chat(USER, tools=[function()]),
    ),
}


def item(call_id="c1", **keys):
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}", **keys}


def output(call_id="c1", **keys):
    return {"type": "function_call_output", "call_id": call_id, "output": "ok", **keys}


def responses(*items, **keys):
    return {"input": list(items), **keys}


REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
SAID = {"role": "assistant", "content": "so"}
DEFERRED = {"type": "function", "name": "f", "defer_loading": True}
SEARCH = {"type": "tool_search_call", "call_id": "c1", "execution": "client", "arguments": {}}
HOSTED = SEARCH | {"call_id": None, "execution": "server"}
HOSTED_FOUND = HOSTED | {"type": "tool_search_output", "tools": [DEFERRED]}

RESPONSES = {
    "there is no input": ("at least one item", responses(), {"input": "hi"}),
    "a role is unknown": (
        "input[0].role",
        responses({"role": "tool", "content": "x"}),
        responses({"role": "developer", "content": "x"}),
    ),
    "a message has no content": (
        "input[0].content",
        responses({"role": "user"}),
        responses(USER),
    ),
    "a user's text has the type of another API": (
        "Invalid value: 'text' at input[0].content[0].type",
        responses({"role": "user", "content": [{"type": "text", "text": "x"}]}),
        responses({"role": "user", "content": [{"type": "input_text", "text": "x"}]}),
    ),
    "the model's text has the type of a user's": (
        "Invalid value: 'input_text' at input[1].content[0].type",
        responses(USER, {"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}),
        responses(USER, {"role": "assistant", "content": [{"type": "output_text", "text": "x"}]}),
    ),
    "a call has no output": (
        "No tool output found for function call c1.",
        responses(USER, item()),
        responses(USER, item(), output()),
    ),
    "an output has no call": (
        "No tool call found for function call output with call_id c1.",
        responses(USER, output()),
        responses(USER, output(), previous_response_id="resp_1"),
    ),
    "an output stands before its call": (
        "No tool call found",
        responses(output(), item()),
        responses(item(), USER, output()),
    ),
    "a call's id comes again": (
        "duplicate call_id c1",
        responses(item(), output(), item(), output()),
        responses(item(), output(), item("c2"), output("c2")),
    ),
    "a call is answered twice": (
        "duplicate output",
        responses(item(), output(), output()),
        responses(item(), output()),
    ),
    "a custom call has no output": (
        "No tool output found for custom tool call c1.",
        responses(USER, {"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": ""}),
        responses(
            USER,
            {"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": ""},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
        ),
    ),
    "an output is of another kind than its call": (
        "No tool call found for function call output with call_id c1.",
        responses(
            USER,
            {"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": ""},
            output(),
        ),
        responses(item(), output()),
    ),
    "arguments are no string": (
        "input[0].arguments",
        responses(item(arguments={}), output()),
        responses(item(), output()),
    ),
    "an output is missing from its item": (
        "input[1].output",
        responses(item(), output(output=None)),
        responses(item(), output(output=[])),
    ),
    "reasoning leads to nothing": (
        "Item 'rs_1' of type 'reasoning' was provided without its required following item",
        responses(USER, REASONING),
        responses(USER, REASONING, SAID),
    ),
    "reasoning is followed by the user": (
        "required following item",
        responses(USER, REASONING, USER),
        responses(USER, REASONING, item(), output()),
    ),
    "two tools have one name": (
        "tools[1].name",
        responses(USER, tools=[{"type": "function", "name": "f"}] * 2),
        responses(USER, tools=[{"type": "function", "name": "f"}, {"type": "web_search"}]),
    ),
    "a tool has no type": (
        "Missing required parameter: 'tools[0].type'.",
        {"input": "hi", "tools": [{"name": "f"}]},
        {"input": "hi", "tools": [{"type": "function", "name": "f"}]},
    ),
    "tools are deferred and nothing searches them": (
        "Deferred tools require tools.tool_search.",
        responses(USER, tools=[{"type": "namespace", "name": "n", "tools": [DEFERRED]}]),
        responses(USER, tools=[{"type": "tool_search"}, DEFERRED]),
    ),
    "a search of the caller's has no output": (
        "No tool output found for tool search call c1.",
        responses(USER, SEARCH),
        responses(USER, SEARCH, SEARCH | {"type": "tool_search_output", "tools": []}),
    ),
    "two searches of the provider's have no ids": (
        "No tool output found for function call c1.",
        responses(USER, HOSTED, HOSTED_FOUND, HOSTED, HOSTED_FOUND, item()),
        responses(USER, HOSTED, HOSTED_FOUND, HOSTED, HOSTED_FOUND),
    ),
    "thinking is asked of OpenAI": (
        "Unknown parameter: 'thinking'.",
        responses(USER, thinking={"type": "enabled"}),
        responses(USER, reasoning={"effort": "low"}),
    ),
    "an entry is no object": (
        "Invalid type for 'input[1]': expected an object.",
        responses(USER, ["hi"]),
        responses(USER, USER),
    ),
    "reasoning is asked of a model without any": (
        "Encrypted content is not supported with this model.",
        responses(USER, model="gpt-4o", include=["reasoning.encrypted_content"]),
        responses(USER, model="gpt-5", include=["reasoning.encrypted_content"]),
    ),
    "a model without reasoning is asked for more than it has": (
        "Encrypted content is not supported with this model.",
        responses(USER, model="gpt-5-chat-latest", include=["reasoning.encrypted_content"]),
        responses(USER, model="gpt-5-chat-latest", include=["file_search_call.results"]),
    ),
    "a call's name has other letters": (
        "Invalid 'input[0].name': string does not match pattern.",
        responses(item(name="a.b"), output()),
        responses(item(name="a_b"), output()),
    ),
    "a call's name is too long": (
        "Invalid 'input[0].name': string too long.",
        responses(item(name="f" * 65), output()),
        responses(item(name="f" * 64), output()),
    ),
    "a call's id is too long": (
        "Expected a string with maximum length 64, but got a string with length 65 instead.",
        responses(item("c" * 65), output("c" * 65), model="gpt-5"),
        responses(item("c" * 64), output("c" * 64), model="gpt-5"),
    ),
    "another server's ids are sent to OpenAI": (
        "Invalid 'input[0].call_id': string too long.",
        responses(item("c" * 77), output("c" * 77), model="gpt-4o"),
        responses(item("c" * 77), output("c" * 77), model="llama3"),
    ),
    "a tool's name has other letters": (
        "Invalid 'tools[0].name': string does not match pattern.",
        responses(USER, tools=[{"type": "function", "name": "a.b"}]),
        responses(USER, tools=[{"type": "function", "name": "a-b"}]),
    ),
    "a tool has no name": (
        "tools[0].name",
        responses(USER, tools=[{"type": "function"}]),
        responses(USER, tools=[{"type": "file_search"}]),
    ),
}
BOTH = [("openai_chat", CHAT, case) for case in CHAT] + [
    ("openai_responses", RESPONSES, case) for case in RESPONSES
]


@pytest.mark.parametrize(("name", "cases", "case"), BOTH, ids=[f"{b[0]}: {b[2]}" for b in BOTH])
def test_a_request_is_refused_and_its_repaired_twin_passes_where(name, cases, case):
    words, refused, repaired = cases[case]
    found = get_dialect(name).find_request_errors(refused)
    assert any(words in each for each in found), found
    assert get_dialect(name).find_request_errors(repaired) == []


def test_items_of_unknown_types_are_accepted():
    assert (
        get_dialect("openai_responses").find_request_errors(
            responses(USER, {"type": "of_tomorrow"})
        )
        == []
    )
