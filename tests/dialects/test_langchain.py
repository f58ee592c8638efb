"""LangChain's messages are read as they are."""

from __future__ import annotations

import pytest

from tests.pictures import png, text
from trimtab import Context, fit
from trimtab.checking import check
from trimtab.engine.log.event import MessageAdded

core = pytest.importorskip("langchain_core.messages", reason="langchain-core is not installed")

TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
CALL = {"name": "read", "args": {"path": "a.py"}, "id": "c1", "type": "tool_call"}


def conversation():
    return [
        core.SystemMessage("You are careful."),
        core.HumanMessage("Look at a.py."),
        core.AIMessage("", tool_calls=[CALL]),
        core.ToolMessage("print(1)", tool_call_id="c1"),
        core.AIMessage("It prints 1."),
        core.HumanMessage("And then?"),
    ]


@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5"])
@pytest.mark.parametrize("way", ["add", "sync", "fit"])
def test_a_conversation_is_sent_as_it_was_said(model, way):
    messages = conversation()
    if way == "fit":
        request = fit(messages, model=model, tools=TOOLS).request
    else:
        context = Context(model=model, tools=TOOLS)
        if way == "sync":
            context.sync(messages)
        else:
            context.configure(system=messages[0].content)
            for message in messages[1:]:
                if message.type == "ai":
                    context.request()
                context.add(message)
        request = context.request()
    assert check(request) == []
    said = str(request)
    for words in ("You are careful.", "Look at a.py.", "print(1)", "It prints 1.", "And then?"):
        assert said.count(words) == 1
    assert "a.py" in said


def test_a_history_that_grows_is_matched_with_what_is_known():
    context = Context(model="gpt-4o", tools=TOOLS)
    messages = conversation()
    context.sync(messages[:-1])
    before = context.window.seq
    context.sync(messages)
    said = [event.body for event in context.events if event.seq > before]
    assert [body.message.text for body in said if isinstance(body, MessageAdded)] == ["And then?"]
    assert not context.window.base.rewinds


def change_text(messages):
    messages[1].content = "Look at b.py."


def change_argument(messages):
    messages[2].tool_calls[0]["args"]["path"] = "b.py"


def change_result_block(messages):
    messages[3].content[0]["text"] = "print('b.py')"


@pytest.mark.parametrize("change", [change_text, change_argument, change_result_block])
@pytest.mark.parametrize("with_ids", [True, False])
def test_a_message_that_was_changed_in_place_is_sent_as_it_is_now(change, with_ids):
    def make():
        messages = conversation()
        messages[2] = core.AIMessage("", tool_calls=[{**CALL, "args": {"path": "a.py"}}])
        messages[3] = core.ToolMessage([{"type": "text", "text": "print(1)"}], tool_call_id="c1")
        return messages

    messages, expected = make(), make()
    ids = [f"id-{index}" for index in range(len(messages))] if with_ids else None
    context = Context(model="gpt-4o", tools=TOOLS)
    context.sync(messages, ids=ids)
    before = context.request()["messages"]
    change(messages)
    change(expected)
    context.sync(messages, ids=ids)
    fresh = Context(model="gpt-4o", tools=TOOLS)
    fresh.sync(expected)
    assert context.request()["messages"] == fresh.request()["messages"] != before


def test_usage_of_a_reply_is_heard():
    context = Context(model="gpt-4o")
    context.add(core.HumanMessage("Hello"))
    context.request()
    usage = {
        "input_tokens": 40,
        "output_tokens": 7,
        "total_tokens": 47,
        "input_token_details": {"cache_read": 16},
    }
    context.add(core.AIMessage("Hi", usage_metadata=usage, response_metadata={"model_name": "x"}))
    heard = context.report().last_usage
    assert heard is not None
    assert (heard.input, heard.output, heard.cache_read) == (40, 7, 16)


def test_signed_thinking_of_claude_comes_back_as_it_was():
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
    use = {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.py"}}
    reply = core.AIMessage(
        [thinking, {"type": "text", "text": "I look."}, use],
        tool_calls=[CALL],
        usage_metadata={"input_tokens": 40, "output_tokens": 7, "total_tokens": 47},
        response_metadata={"model_name": "claude-sonnet-4-5", "stop_reason": "tool_use"},
    )
    context = Context(
        model="claude-sonnet-4-5",
        tools=[{"name": "read", "input_schema": {"type": "object"}}],
        params={"thinking": {"type": "enabled", "budget_tokens": 2_000}},
    )
    context.add(core.HumanMessage("Look at a.py."))
    context.request()
    context.add(reply)
    context.add(core.ToolMessage("no such file", tool_call_id="c1", status="error"))
    request = context.request()
    assert check(request) == []
    sent = request["messages"][1]["content"]
    assert [block["type"] for block in sent] == ["thinking", "text", "tool_use"]
    assert sent[0] == thinking
    assert request["messages"][2]["content"][0]["is_error"] is True
    heard = context.report().last_usage
    assert heard is not None
    assert heard.input == 40


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,{}"}},
        {"type": "image", "source_type": "base64", "mime_type": "image/png", "data": "{}"},
        {"type": "image", "base64": "{}", "mime_type": "image/png"},
    ],
)
def test_a_picture_is_a_picture(block):
    data = text(png(64, 64))

    def filled(value):
        if isinstance(value, dict):
            return {key: filled(inner) for key, inner in value.items()}
        return value.replace("{}", data) if isinstance(value, str) else value

    context = Context(model="gpt-4o")
    said = [{"type": "text", "text": "What is it?"}, filled(block)]
    context.add(core.HumanMessage(said))
    request = context.request()
    assert check(request) == []
    [sent] = [part for part in request["messages"][0]["content"] if part["type"] == "image_url"]
    assert sent["image_url"]["url"].endswith(data)


def test_a_call_that_could_not_be_parsed_is_said_as_it_was_written():
    broken = {**CALL, "args": "{oops", "error": "x", "type": "invalid_tool_call"}
    context = Context(model="gpt-4o", tools=TOOLS)
    context.add(core.HumanMessage("Look."))
    context.request()
    context.add(core.AIMessage("", invalid_tool_calls=[broken]))
    context.add(core.ToolMessage("arguments are no JSON", tool_call_id="c1", status="error"))
    assert check(context.request()) == []


def test_what_is_no_message_to_a_model_is_refused_in_words():
    context = Context(model="gpt-4o")
    with pytest.raises(ValueError, match="type 'remove' cannot be sent to a model"):
        context.add(core.RemoveMessage(id="x"))


def made(**fields):
    """A message as a careless integration builds it: nobody has looked at its fields."""
    whole = {"type": "ai", "tool_calls": [], "invalid_tool_calls": [], "usage_metadata": None}
    rest = {"additional_kwargs": {}, "response_metadata": {}, "id": None, "name": None}
    return core.AIMessage.model_construct(**{**whole, **rest, "content": "", **fields})


@pytest.mark.parametrize("way", ["sync", "fit"])
@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5"])
def test_a_reply_in_anthropic_s_blocks_goes_with_results_in_a_list(model, way):
    use = {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.py"}}
    blocks = [{"type": "text", "text": "I look."}, use]
    messages = conversation()
    messages[2] = core.AIMessage(blocks, tool_calls=[CALL])
    if way == "fit":
        request = fit(messages, model=model, tools=TOOLS).request
    else:
        context = Context(model=model, tools=TOOLS)
        context.sync(messages)
        before = context.window.seq
        context.sync(messages)
        assert context.window.seq == before
        request = context.request()
    assert check(request) == []
    assert all(str(request).count(words) == 1 for words in ("I look.", "print(1)", "It prints 1."))


@pytest.mark.parametrize(
    "reply",
    [
        made(content=None),
        made(content="Yes.", usage_metadata={"input_tokens": None}),
        made(content="Yes.", usage_metadata={"output_tokens": 3}),
        made(invalid_tool_calls=[{"name": None, "args": None, "id": None, "error": None}]),
    ],
)
@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5", "gpt-5.2"])
def test_a_reply_with_fields_left_empty_is_read(model, reply):
    context = Context(model=model)
    context.add(core.HumanMessage("Is it?"))
    context.request()
    context.add(reply)
    context.add(core.HumanMessage("And now?"))
    assert check(context.request()) == []


def test_a_block_that_is_none_is_refused_in_words():
    said = core.HumanMessage.model_construct(
        content=["a", ["b"]], type="human", additional_kwargs={}, response_metadata={}
    )
    with pytest.raises(TypeError, match=r"content\[1\] is list; it must be a text or a block"):
        Context(model="gpt-4o").add(said)


STREAMED_BY_CLAUDE = [
    {"type": "text", "text": "I look.", "index": 0},
    {
        "type": "tool_use",
        "id": "c1",
        "name": "read",
        "input": {},
        "index": 1,
        "partial_json": '{"path": "a.py"}',
    },
]
OF_RESPONSES = [
    {"type": "text", "text": "I look.", "annotations": [], "id": "msg_1"},
    {"type": "function_call", "call_id": "c1", "id": "fc_1", "name": "read", "arguments": "{}"},
]
IN_LANGCHAIN_S_FORMAT = [{"type": "text", "text": "I look."}, CALL]


@pytest.mark.parametrize("content", [STREAMED_BY_CLAUDE, OF_RESPONSES, IN_LANGCHAIN_S_FORMAT])
@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5", "gpt-5.2"])
def test_a_call_is_read_once_with_its_arguments(model, content):
    context = Context(model=model, tools=TOOLS)
    context.sync(
        [
            core.HumanMessage("Look at it."),
            core.AIMessage(content, tool_calls=[CALL]),
            core.ToolMessage("print(1)", tool_call_id="c1"),
        ]
    )
    request = context.request()
    assert check(request) == []
    assert str(request).count("a.py") == 1
    assert "partial_json" not in str(request)
    said = context.view()[1].message
    assert [type(part).__name__ for part in said.parts] == ["Text", "ToolCall"]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "media", "mime_type": "image/png", "data": text(png(64, 64))},
        {"type": "image_url", "image_url": f"data:image/png;base64,{text(png(64, 64))}"},
        {"type": "video", "mime_type": "video/mp4", "base64": "AAAA" * 40_000},
    ],
)
def test_media_of_other_integrations_are_not_counted_as_text(block):
    context = Context(model="gemini-2.5-pro", dialect="openai_chat")
    context.sync([core.HumanMessage([{"type": "text", "text": "What is it?"}, block])])
    context.request()
    assert context.report().has_media
    assert context.report().used < 10_000


@pytest.mark.parametrize(
    "content",
    [
        "It prints 1.",
        [{"type": "text", "text": "It prints 1.", "index": 0}],
        [
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
            {"type": "text", "text": "It prints 1.", "annotations": [], "id": "msg_1"},
        ],
        [
            {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
            {"type": "text", "text": "It prints 1."},
        ],
    ],
)
@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5", "gpt-5.2"])
def test_a_reply_that_was_added_is_known_in_the_list_that_follows(model, content):
    dialect = "openai_responses" if model == "gpt-5.2" else None
    context = Context(model=model, dialect=dialect)
    usage = {"input_tokens": 40, "output_tokens": 7, "total_tokens": 47}
    asked = core.HumanMessage("What does it print?", id="h1")
    reply = core.AIMessage(content, id="a1", usage_metadata=usage)
    context.sync([asked], ids=["h1"])
    context.request()
    context.add(reply)
    context.sync([asked, reply, core.HumanMessage("And then?", id="h2")], ids=["h1", "a1", "h2"])
    assert not context.window.base.rewinds
    heard = context.report().last_usage
    assert heard is not None
    assert heard.input == 40


def test_writes_to_claude_s_cache_are_heard_by_their_lifetime():
    context = Context(model="claude-sonnet-4-5")
    context.add(core.HumanMessage("Hello"))
    context.request()
    details = {
        "cache_read": 10,
        "cache_creation": 0,
        "ephemeral_5m_input_tokens": 20,
        "ephemeral_1h_input_tokens": 5,
    }
    usage = {"input_tokens": 40, "output_tokens": 7, "total_tokens": 47}
    context.add(core.AIMessage("Hi", usage_metadata={**usage, "input_token_details": details}))
    heard = context.report().last_usage
    assert heard is not None
    assert (heard.cache_read, heard.cache_write, heard.cache_write_long) == (10, 25, 5)
