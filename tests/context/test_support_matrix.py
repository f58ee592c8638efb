"""What an outside user tried, row by row: each row has a test, written from what is promised.

Rows that have files of their own are held there: pictures in test_media.py and in the files on
pictures beside it, edits by the provider in test_server_side_editing.py, streams of the SDKs' own
helpers in tests/testing/test_sdk_stream_helpers.py, types in tests/typing, and threads, copies and
counting by the provider in files of these names.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any

import pytest

from tests.lazy import anthropic, openai
from trimtab import Context, check, fit
from trimtab.engine.log.event import CallOutcome, Edit
from trimtab.testing.server import serve_simulated_provider
from trimtab.types import DialectName

CLAUDE, GPT, REASONER = "claude-sonnet-4-6", "gpt-4o", "gpt-5.2"
MODELS = {"anthropic": CLAUDE, "openai_chat": GPT, "openai_responses": REASONER}
READ: dict[str, Any] = {"name": "read", "description": "Read.", "input_schema": {"type": "object"}}
each_dialect = pytest.mark.parametrize("dialect", MODELS)


@pytest.fixture(scope="module")
def served():
    with serve_simulated_provider() as running:
        yield running


@pytest.fixture
def claude(served):
    served.simulator.reset()
    with anthropic.Anthropic(base_url=served.url, api_key="k", max_retries=0) as client:
        yield client


@pytest.fixture
def gpt(served):
    served.simulator.reset()
    with openai.OpenAI(base_url=served.openai_url, api_key="k", max_retries=0) as client:
        yield client


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def made(dialect: DialectName, **options: Any) -> Context:
    return Context(MODELS[dialect], dialect=dialect, tools=[READ], **options)


def asked(dialect: DialectName, **options: Any) -> Context:
    context = made(dialect, **options)
    context.add(user("Look."))
    return context


def call(dialect: str, name: str = "t1", arguments: str = "{}") -> Any:
    match dialect:
        case "anthropic":
            block = {"type": "tool_use", "id": name, "name": "read", "input": json.loads(arguments)}
            return {"role": "assistant", "content": [block]}
        case "openai_chat":
            function = {"name": "read", "arguments": arguments}
            calls = [{"id": name, "type": "function", "function": function}]
            return {"role": "assistant", "content": None, "tool_calls": calls}
        case _:
            item = {"type": "function_call", "call_id": name, "name": "read"}
            return {**item, "arguments": arguments}


def result(dialect: str, name: str = "t1", text: Any = "found", **more: Any) -> Any:
    match dialect:
        case "anthropic":
            block = {"type": "tool_result", "tool_use_id": name, "content": text, **more}
            return {"role": "user", "content": [block]}
        case "openai_chat":
            return {"role": "tool", "tool_call_id": name, "content": text}
        case _:
            return {"type": "function_call_output", "call_id": name, "output": text}


def sent(context: Context) -> list[Any]:
    request = context.request()
    assert check(request, dialect_name=context.window.settings.dialect) == []
    return request["messages"] if "messages" in request else request["input"]


def claude_reply(text: str = "Ok.", **changes: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": CLAUDE,
        "stop_reason": "end_turn",
        "content": [{"type": "text", "text": text}],
        "usage": {"input_tokens": 20, "output_tokens": 3},
        **changes,
    }


@each_dialect
def test_what_the_caller_edits_afterwards_changes_nothing_that_was_said(dialect):
    said = user([{"type": "text", "text": "first"}]) if dialect == "anthropic" else user("first")
    context = made(dialect)
    context.add(said)
    before = json.dumps(context.request())
    said["content"] = "changed"
    assert json.dumps(context.request()) == before


@each_dialect
def test_lists_of_a_request_are_the_caller_s_to_change(dialect):
    context = asked(dialect)
    request = context.request()
    before = json.dumps(request)
    request["tools"].clear()
    (request["messages"] if "messages" in request else request["input"]).append(user("mine"))
    assert json.dumps(context.request()) == before


@dataclass
class Point:
    x: object


class Scalar:
    def __repr__(self):
        return "np.float32(1.5)"


class Awaitable:
    def __await__(self):
        yield


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("hello", "a text has no role"),
        ([user("x")], "add takes one message; sync"),
        (7, "expected a mapping or an SDK object, got int"),
        (None, "got NoneType; pass a message, or the reply that the SDK returned"),
        ((word for word in ["a", "b"]), r"got generator; a stream is read by watch\(stream\)"),
        (Awaitable(), "got Awaitable; await it, and pass the result"),
        (b"x", "expected a mapping or an SDK object, got bytes"),
        (Point(1), "expected a mapping or an SDK object, got Point"),
        ({"rol": "user", "content": "x"}, "role"),
        (user(b"x"), "content is b'x'"),
        (
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "t", "name": "read", "input": {"x": Scalar()}}
                ],
            },
            r"content\[0\].input.x is np.float32\(1.5\)",
        ),
    ],
)
def test_what_is_no_message_is_refused_in_words_with_its_place(item, words):
    context = made("anthropic")
    with pytest.raises((TypeError, ValueError), match=words):
        context.add(item)
    assert len(context.events) == 1, "nothing was added"


def test_models_of_pydantic_are_taken_and_a_class_of_them_is_refused():
    pydantic = pytest.importorskip("pydantic")

    class Said(pydantic.BaseModel):
        role: str
        content: str

    class Read(pydantic.BaseModel):
        """Read a file."""

        path: str

    tool = openai.pydantic_function_tool(Read, name="read_file")
    context = Context(GPT, tools=[tool])
    context.add(Said(role="user", content="hi"))
    assert sent(context) == [user("hi")]
    assert context.request()["tools"][0]["function"]["name"] == "read_file"
    with pytest.raises(
        TypeError, match=r"response_format.*not a class: pass the schema of the class"
    ):
        Context(GPT, params={"response_format": Read})


def test_a_forgotten_reply_is_told_in_the_log(caplog):
    context = asked("anthropic")
    context.request()
    context.add(user("And?"))
    message = sent(context)[-1]
    assert [block["text"] for block in message["content"]] == ["Look.", "And?"]
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("trimtab.context", logging.WARNING)
    assert "got no reply" in record.getMessage()
    assert "add(reply)" in record.getMessage()
    caplog.clear()
    context.preview()
    assert caplog.records == [], "what is only looked at is told when it is sent"


@pytest.mark.parametrize("ending", ["reply", "bare", "fail", "again"])
def test_where_nothing_is_forgotten_nothing_is_told(caplog, ending):
    context = asked("anthropic")
    context.request()
    match ending:
        case "reply":
            context.add(claude_reply(usage={"input_tokens": 550, "output_tokens": 3}))
        case "bare":
            context.add({"role": "assistant", "content": "Ok."})
        case "fail":
            context.fail("network")
        case _:
            context.request()
    if ending != "again":
        context.add(user("And?"))
    context.request()
    assert caplog.messages == []


def test_a_reply_of_role_and_content_alone_is_taken_without_its_usage(claude):
    """Anthropic's own idiom. What was used is not in it: no cost, no calibration."""
    bare, whole = asked("anthropic"), asked("anthropic")
    reply = claude.messages.create(**bare.request())
    bare.add({"role": reply.role, "content": reply.content})
    whole.request()
    whole.add(reply)
    for context in (bare, whole):
        context.add(user("And?"))
    assert sent(bare) == sent(whole)
    assert (bare.report().last_usage, bare.report().total_usage.input) == (None, 0)
    assert whole.report().total_usage.input > 0


@each_dialect
def test_results_that_are_missing_late_orphaned_doubled_or_early_leave_pairs_whole(dialect):
    ways = {
        "missing": [call(dialect), user("Go on.")],
        "late": [call(dialect), user("Go on."), result(dialect)],
        "orphan": [result(dialect, "nobody")],
        "twice": [call(dialect), result(dialect), result(dialect)],
        "early": [result(dialect), call(dialect), result(dialect)],
        "interrupted": [call(dialect), user("Stop."), result(dialect), user("Go on.")],
    }
    for items in ways.values():
        context = asked(dialect)
        for item in items:
            context.add(item)
        sent(context)
        context.add(user("Next."))
        sent(context)


@each_dialect
def test_a_stream_that_is_left_early_leaves_no_trace(claude, gpt, dialect):
    context = asked(dialect)
    request = context.request(stream=True)
    match dialect:
        case "anthropic":
            stream = claude.messages.create(**request)
        case "openai_chat":
            stream = gpt.chat.completions.create(**request)
        case _:
            stream = gpt.responses.create(**request)
    before = len(context.events)
    for _ in context.watch(stream):
        break
    stream.close()
    assert len(context.events) == before
    context.add(user("And?"))
    texts = json.dumps(sent(context))
    assert "Look." in texts
    assert "And?" in texts


def test_three_turns_at_once_stay_one_valid_conversation():
    """They are not three conversations: what the three say stands in one, and the usage is the
    first one's, for there is one open call at a time."""
    context = made("anthropic")
    for number in range(3):
        context.add(user(f"q{number}"))
        context.request()
    for number in range(3):
        context.add(claude_reply(f"a{number}", id=f"msg_{number}"))
    context.add(user("Next."))
    told = json.dumps(sent(context))
    assert all(f'"{kind}{number}"' in told for kind in "qa" for number in range(3))
    outcomes = [event.body for event in context.events if isinstance(event.body, CallOutcome)]
    assert len([outcome for outcome in outcomes if outcome.usage]) == 1


def test_a_raw_response_is_refused_with_what_to_give(claude, gpt):
    for context, create in (
        (asked("anthropic"), claude.messages.with_raw_response.create),
        (asked("openai_chat"), gpt.chat.completions.with_raw_response.create),
        (asked("openai_responses"), gpt.responses.with_raw_response.create),
    ):
        raw = create(**context.request())
        with pytest.raises(
            TypeError, match=r"raw HTTP response: pass the result of its \.parse\(\)"
        ):
            context.add(raw)
        context.add(raw.parse())
        assert context.report().total_usage.input > 0


def test_a_request_goes_into_a_batch_and_its_reply_comes_from_one():
    context = asked("anthropic")
    line = json.loads(json.dumps({"custom_id": "1", "params": context.request()}))
    assert check(line["params"]) == []
    context.add({"type": "succeeded", "message": claude_reply()}["message"])
    chat = asked("openai_chat")
    body = json.loads(json.dumps(chat.request()))
    assert check(body) == []
    choice = {"index": 0, "message": {"role": "assistant", "content": "Ok."}}
    usage = {"prompt_tokens": 12, "completion_tokens": 2}
    chat.add({"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage})
    assert chat.report().total_usage.input == 12


def test_a_conversation_goes_from_provider_to_provider_and_back_with_its_thinking():
    context = asked("anthropic", params={"thinking": {"type": "adaptive"}})
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
    context.add({"role": "assistant", "content": [thought, *call("anthropic")["content"]]})
    context.add(result("anthropic", text="boom", is_error=True))
    context.configure(model=GPT)
    chat = sent(context)
    assert "Hm." not in json.dumps(chat)
    assert chat[-1]["content"] == "Error: boom"
    context.configure(model=REASONER, dialect="openai_responses")
    assert sent(context)[-1]["output"] == "Error: boom"
    context.configure(model=CLAUDE)
    back = sent(context)
    assert back[1]["content"][0] == thought
    assert back[2]["content"][0]["is_error"] is True


def test_parameters_of_another_provider_are_left_out_and_that_is_told(caplog):
    params: dict[str, Any] = {"thinking": {"type": "adaptive"}, "stop_sequences": ["END"]}
    context = asked("anthropic", params=params)
    assert caplog.messages == []
    context.configure(model=GPT)
    assert not params.keys() & context.request().keys()
    (line,) = caplog.messages
    assert "requests to gpt-4o leave out thinking, stop_sequences" in line
    context.configure(model=CLAUDE)
    assert params.items() <= context.request().items()


def test_parameters_in_another_provider_s_form_are_noticed_by_check():
    context = asked("anthropic", params={"tool_choice": {"type": "any"}})
    assert check(context.request()) == []
    context.configure(model=GPT)
    (wrong,) = check(context.request())
    assert "Invalid value for 'tool_choice.type': 'any'" in wrong


FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
RIGHT = [
    ("anthropic", {"tool_choice": {"type": "tool", "name": "read"}}),
    ("anthropic", {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
    (
        "anthropic",
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
    ),
    ("anthropic", {"metadata": {"user_id": "u"}, "stop_sequences": ["END"]}),
    ("openai_chat", {"tool_choice": "required"}),
    ("openai_chat", {"tool_choice": {"type": "function", "function": {"name": "read"}}}),
    ("openai_chat", {"response_format": FORMAT, "stop": ["a", "b"], "metadata": {"k": "v"}}),
    ("openai_chat", {"response_format": {"type": "json_object"}, "stop": "END"}),
    ("openai_responses", {"tool_choice": {"type": "function", "name": "read"}}),
    ("openai_responses", {"tool_choice": {"type": "web_search"}}),
    (
        "openai_responses",
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}},
    ),
]
WRONG = [
    ("anthropic", {"tool_choice": "auto"}, "valid dictionary"),
    ("anthropic", {"tool_choice": {"type": "function"}}, "expected tags: 'auto', 'any', 'tool'"),
    ("anthropic", {"tool_choice": {"type": "tool"}}, "tool_choice.tool.name: Field required"),
    ("anthropic", {"tool_choice": {"type": "tool", "name": "x"}}, "Tool 'x' not found"),
    ("anthropic", {"output_config": {"format": {"type": "json_object"}}}, "'json_schema'"),
    ("anthropic", {"output_config": {"format": {"type": "json_schema"}}}, "schema: Field required"),
    ("anthropic", {"metadata": "me"}, "metadata: Input should be a valid dictionary"),
    ("anthropic", {"stop_sequences": "END"}, "stop_sequences: Input should be a valid list"),
    ("openai_chat", {"tool_choice": "always"}, "'none', 'auto', 'required'"),
    ("openai_chat", {"tool_choice": {"type": "tool", "name": "read"}}, "'tool_choice.type'"),
    ("openai_chat", {"tool_choice": {"type": "function"}}, "'tool_choice.function.name'"),
    (
        "openai_chat",
        {"tool_choice": {"type": "function", "function": {"name": "x"}}},
        "'x' not found",
    ),
    ("openai_chat", {"tool_choice": 3}, "expected a string or an object"),
    ("openai_chat", {"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ("openai_chat", {"response_format": "json"}, "expected an object"),
    ("openai_chat", {"stop": list("abcde")}, "maximum length 4"),
    (
        "openai_responses",
        {"tool_choice": {"type": "function", "function": {"name": "read"}}},
        "Unknown parameter: 'tool_choice.function'",
    ),
    ("openai_responses", {"text": {"format": FORMAT}}, "'text.format.name'"),
    ("openai_responses", {"text": "json"}, "expected an object"),
]


@pytest.mark.parametrize(("dialect", "params"), RIGHT)
def test_parameters_are_passed_on_and_accepted(dialect, params):
    request = asked(dialect, params=params).request()
    assert params.items() <= request.items()
    assert check(request, dialect_name=dialect) == []


@pytest.mark.parametrize(("dialect", "params", "words"), WRONG)
def test_parameters_of_a_wrong_form_are_noticed_by_check(dialect, params, words):
    wrong = check(asked(dialect, params=params).request(), dialect_name=dialect)
    assert words in " ".join(wrong)


def test_other_servers_may_take_other_forms():
    """Of a model that is not OpenAI's nobody knows what its server takes."""
    params = {"tool_choice": "any", "response_format": {"type": "json", "schema": {}}}
    context = Context("mistral-large-latest", tools=[READ], params=params)
    context.add(user("hi"))
    assert check(context.request()) == []


def test_a_tool_choice_without_tools_is_noticed():
    for model, choice in ((GPT, "auto"), (CLAUDE, {"type": "auto"})):
        context = Context(model, params={"tool_choice": choice})
        context.add(user("hi"))
        assert "tools" in " ".join(check(context.request()))


def test_the_schema_of_a_reply_is_counted():
    schema = {"type": "object", "properties": {f"field_{n}": {"type": "string"} for n in range(50)}}
    shape = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    plain, shaped = asked("openai_chat"), asked("openai_chat", params={"response_format": shape})
    assert shaped.report().used > plain.report().used + 300


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("max_tokens", "max_output_tokens="),
        ("stream", r"request\(stream=True\)"),
        ("instructions", "system="),
        ("tools", "tools="),
        ("model", "model="),
    ],
)
def test_parameters_that_have_an_option_are_refused_with_its_name(name, option):
    with pytest.raises(ValueError, match=f"'{name}', which Trimtab sets itself; use {option}"):
        Context(GPT, params={name: 1})


def test_a_stored_response_does_not_ask_for_its_reasoning():
    stored, own = (asked("openai_responses", params={"store": each}) for each in (True, False))
    assert "include" not in stored.request()
    assert own.request()["include"] == ["reasoning.encrypted_content"]


def test_items_are_added_one_by_one_but_for_a_thought_alone():
    context = asked("openai_responses")
    with pytest.raises(ValueError, match="reasoning item cannot be sent alone"):
        context.add({"type": "reasoning", "id": "rs_1", "summary": []})
    context.add(call("openai_responses"))
    context.add(result("openai_responses"))
    assert [item.get("type") for item in sent(context)[1:]] == [
        "function_call",
        "function_call_output",
    ]


def test_halves_of_surrogates_are_sent_as_one_can_and_recalled_as_they_were():
    text = "a\ud800b\x00c 👩‍💻"
    context = made("anthropic")
    handle = context.add(user(text))
    body = json.dumps(sent(context), ensure_ascii=False)
    body.encode("utf-8")
    assert "a\ufffdb" in body
    assert context.recall(f"{handle}.0") == text


def test_tools_come_and_go_and_a_name_stands_once():
    many = [{**READ, "name": f"tool_{number}"} for number in range(200)]
    context = Context(GPT)
    context.add(user("hi"))
    assert "tools" not in context.request()
    context.configure(tools=many)
    assert len(context.request()["tools"]) == 200
    assert check(context.request()) == []
    with pytest.raises(ValueError, match="tool_7"):
        context.configure(tools=[*many, many[7]])
    with pytest.raises(ValueError, match="recall"):
        Context(GPT, tools=[{**READ, "name": "recall"}], recall=True)


@pytest.mark.parametrize("model", [GPT, REASONER])
def test_tools_cost_at_openai_what_openai_adds(gpt, model):
    """A flat 500 tokens made small prompts read thrice as large as they were."""
    context = Context(model, dialect="openai_chat", tools=[READ])
    context.add(user("hi"))
    used = context.report().used
    reply = gpt.chat.completions.create(**context.request())
    assert reply.usage.prompt_tokens <= used <= reply.usage.prompt_tokens * 2


def test_thinking_is_asked_for_and_a_budget_above_the_output_is_refused():
    adaptive = asked("anthropic", params={"thinking": {"type": "adaptive"}})
    assert adaptive.request()["thinking"] == {"type": "adaptive"}
    budget = {"thinking": {"type": "enabled", "budget_tokens": 4_000}}
    old = Context("claude-sonnet-4-5", params=budget)
    old.add(user("hi"))
    assert old.request()["max_tokens"] > 4_000
    with pytest.raises(ValueError, match=r"thinking\.budget_tokens"):
        Context("claude-sonnet-4-5", params=budget, max_output_tokens=4_000)


def test_a_provider_s_own_tool_stays_with_its_provider():
    search = {"type": "web_search_20250305", "name": "web_search"}
    context = Context(CLAUDE, tools=[search], context_window=8_000)
    context.add(user("Search."))
    used = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}
    for _ in range(30):
        context.add(
            {"role": "assistant", "content": [used, found, {"type": "text", "text": "Hm."}]}
        )
        context.add(user("More, please. " * 40))
        sent(context)
    with pytest.raises(ValueError, match="web_search"):
        Context(GPT, tools=[search])


@pytest.mark.parametrize(
    ("options", "ttls"),
    [
        ({"cache": "off"}, []),
        ({"model_info": {"cache_style": "none"}}, []),
        ({"model_info": {"cache_style": "automatic"}}, []),
        ({}, [None, None]),
        ({"cache": "1h"}, ["1h", "1h"]),
        ({"model_info": {"cache_ttl": 3_600}}, ["1h", "1h"]),
    ],
)
def test_marks_and_arithmetic_say_the_same_of_the_cache(options, ttls):
    context = Context(CLAUDE, system="Be brief.", **options)
    context.add(user("hi"))
    request = context.request()
    blocks = [*(request["system"] if ttls else []), *request["messages"][-1]["content"]]
    marks = [block["cache_control"] for block in blocks if "cache_control" in block]
    assert [mark.get("ttl") for mark in marks] == ttls
    entry = context.window.settings.entry
    if ttls:
        price = {None: (300, 1.25), "1h": (3_600, 2.0)}[ttls[0]]
        assert (entry["cache_ttl"], entry["cache_write"]) == price


def test_system_messages_of_a_list_come_after_the_prompt_in_sync_and_in_fit():
    history = [{"role": "system", "content": "B"}, user("x")]
    context = Context(GPT, system="A")
    context.sync(history)
    fitted = fit(history, model=GPT, system="A")
    assert sent(context) == fitted.messages
    assert [message["content"] for message in sent(context)] == ["A", "B", "x"]


def test_a_system_message_that_leaves_the_list_leaves_the_request():
    context = Context(GPT, system="A")
    context.sync([{"role": "system", "content": "B"}, user("x")])
    context.sync([{"role": "system", "content": "C"}, user("x")])
    assert [message["content"] for message in sent(context)] == ["A", "C", "x"]
    loaded = Context.load(context.dump())
    loaded.sync([{"role": "system", "content": "D"}, user("x")])
    assert [message["content"] for message in sent(loaded)] == ["A", "D", "x"]
    loaded.sync([user("x")])
    assert [message["content"] for message in sent(loaded)] == ["A", "x"]
    loaded.configure(system="Z")
    assert [message["content"] for message in sent(loaded)] == ["Z", "x"]


def test_messages_that_were_fitted_may_be_fitted_again():
    messages = [user("first")]
    for _ in range(4):
        fitted = fit(messages, model=GPT, system="EXTRA")
        messages = [*fitted.messages, {"role": "assistant", "content": "a"}, user("b")]
    assert json.dumps(messages).count("EXTRA") == 1
    context = Context(GPT, system="EXTRA")
    context.sync(messages)
    assert json.dumps(sent(context)).count("EXTRA") == 1


@pytest.mark.parametrize("model", [CLAUDE, "claude-opus-4-8", GPT])
def test_a_system_message_that_is_added_first_invents_nothing(model):
    context = Context(model)
    context.add({"role": "system", "content": "Be brief."})
    context.add(user("hi"))
    texts = json.dumps(sent(context))
    assert "Be brief." in texts
    assert "conversation start" not in texts


@pytest.mark.parametrize(
    "model",
    [
        "anthropic.claude-sonnet-4-5-20250929-v1:0",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "claude-sonnet-4-5@20250929",
    ],
)
def test_names_of_the_clouds_are_the_models_that_they_name(model):
    context = Context(model)
    assert (context.budget().limit, context.window.settings.dialect) == (200_000, "anthropic")


@pytest.mark.parametrize("model", ["qwen3", "llama3.2", "gemma3", "ollama/qwen3"])
def test_a_local_name_wants_a_dialect(model):
    with pytest.raises(ValueError, match="pass dialect= one of anthropic, openai_chat"):
        Context(model)
    context = Context(model, dialect="openai_chat")
    context.add(user("hi"))
    assert "max_tokens" in context.request()


def test_signatures_and_empty_call_ids_of_gemini_s_compatible_api_stay_whole():
    context = Context("gemini-3.1-pro", dialect="openai_chat", tools=[READ])
    context.add(user("Look."))
    signed = {"extra_content": {"google": {"thought_signature": "sig"}}}
    for _ in range(2):
        calls = call("openai_chat", "")
        calls["tool_calls"][0] |= signed
        context.add(calls)
        context.add(result("openai_chat", ""))
    messages = sent(context)
    made_calls = [each for m in messages for each in m.get("tool_calls", ())]
    assert all(each["extra_content"] == signed["extra_content"] for each in made_calls)
    ids = [each["id"] for each in made_calls]
    assert len(set(ids)) == 2
    assert [m["tool_call_id"] for m in messages if m["role"] == "tool"] == ids


@pytest.mark.parametrize("policy", ["full", "compact", "auto", "layered", "rolling", "thresholds"])
def test_b1_usage_that_cannot_be_true_does_not_let_requests_exceed_the_window(served, policy):
    window = 32_000
    context = Context(CLAUDE, context_window=window, policy=policy)
    for number in range(40):
        context.add(user("lorem ipsum dolor sit amet " * 300))
        request = context.request()
        count = served.simulator._counter(CLAUDE)
        real = count.total_tokens(count.split_blocks(request, "anthropic"))
        assert real + request["max_tokens"] <= window
        usage = {"input_tokens": 200, "output_tokens": 1}
        context.add(claude_reply("ok", id=f"msg_{number}", usage=usage))
    report = context.report()
    assert report.used <= report.bound <= window
    assert "usage is ignored" in report.doubt


def test_b11_fitting_a_list_reads_it_about_once():
    """The work of one `fit` follows the length of its list; counted by what is tokenized."""
    rounds = 100
    messages = [user("Look at all of it.")]
    for number in range(rounds):
        messages += [call("openai_chat", f"t{number}")]
        messages += [result("openai_chat", f"t{number}", f"{number} line of output\n" * 800)]
    read = 0

    def tokens(text: str) -> int:
        nonlocal read
        read += len(text)
        return len(text) // 4 + 1

    fitted = fit(messages, model=GPT, context_window=32_000, tokenizer=tokens)
    assert any(isinstance(event.body, Edit) for event in fitted.context.events)
    assert read < 3 * sum(len(json.dumps(message)) for message in messages)
