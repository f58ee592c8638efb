"""What is given wrongly is refused where it is given: what it is, and what is right."""

import json
from functools import reduce
from typing import Any, NamedTuple, cast, get_args

import pytest

from tests.context.contexts import READ
from tests.conversations import chat, said, user
from tests.recording import append
from trimtab import Context, fit
from trimtab.engine.log.call_failure import FAILURE_KINDS
from trimtab.engine.log.event import Settings
from trimtab.errors import FailureKind
from trimtab.types import PolicyLimits


class Wrong(NamedTuple):
    given: dict[str, Any]
    told: str


DEEP: Any = reduce(lambda inner, _: {"a": inner}, range(5_000), {})
WHOLE = "it must be a whole number of tokens"
POSITIVE = "it must be more than 0, or None if it is not set"
OPTIONS = [
    *(
        Wrong({name: value}, f"{name} is {value!r}; {told}")
        for name in ("context_window", "max_input_tokens", "max_output_tokens")
        for value, told in ((32000.5, WHOLE), (True, WHOLE), ("32k", WHOLE))
    ),
    Wrong({"context_window": -1}, "context_window is -1; it must be 0 (not set) or more"),
    *(
        Wrong({name: value}, f"{name} is {value}; {POSITIVE}")
        for name in ("max_input_tokens", "max_output_tokens")
        for value in (0, -1)
    ),
    Wrong(
        {"max_output_tokens": 50_000},
        "max_output_tokens is 50,000; gpt-4o writes 16,384 at most: use that or less",
    ),
    Wrong({"tools": "bash"}, "tools is 'bash'; it must be a list of tool definitions"),
    Wrong({"tools": READ}, "; it must be a list of tool definitions"),
    Wrong({"tools": [READ, "bash"]}, "tools[1] is str; a tool is {"),
    Wrong({"tools": [print]}, "tools[0] is builtin_function_or_method; a tool is {"),
    Wrong({"model": None}, "model is None; it must be the model's name, such as 'gpt-4o'"),
    Wrong({"model": 5}, "model is 5; it must be the model's name"),
    Wrong({"model": ""}, "model is ''; it must be the model's name"),
    Wrong({"system": 5}, "system is 5; it must be a text, or a list of the dialect's blocks"),
    Wrong({"system": user("hi")}, "; it must be a text, or a list of the dialect's blocks"),
    Wrong({"system": ["hi"]}, "system[0] is 'hi'; it must be a block or a message"),
    Wrong({"limits": ["a"]}, "limits is ['a']; it must be a mapping, such as {'max_tool"),
    Wrong({"params": ["a"]}, "params is ['a']; it must be a mapping, such as {'temperature': 0}"),
    Wrong(
        {"model_info": ["a"]},
        "model_info is ['a']; it must be a mapping, such as {'context_window'",
    ),
    Wrong({"policy": 5}, "policy is 5; it must be one of full, layered, compact, rolling"),
    Wrong({"tokenizer": "gpt2"}, "tokenizer is 'gpt2'; it must be a function that takes a text"),
    Wrong(
        {"redact": "email"},
        "redact is 'email'; it must be a function that takes a text and returns a text",
    ),
    Wrong({"goal": "cheap"}, "unknown goal 'cheap'; choose one of cost, balanced, quality"),
    Wrong({"summaries": "good"}, "unknown summaries 'good'; choose one of extractive, manual"),
    Wrong({"params": {"a": DEEP}}, "params: more than 200 lists and objects are nested"),
    Wrong(
        {"model_info": {"name": DEEP}},
        "model_info: more than 200 lists and objects are nested",
    ),
    Wrong({"tools": [{**READ, "input_schema": {"a": DEEP}}]}, "tools[0]: more than 200 lists and"),
    Wrong({"system": [{"type": "text", "text": "x", "a": DEEP}]}, "system[0]: more than 200 lists"),
    Wrong({"recall": "no"}, "recall is 'no'; it must be True, False or a text with {handle}"),
    *(
        Wrong({"params": {"seed": 1, key: 1}}, f"params contains {key!r}, which Trimtab {use}")
        for key, use in {
            "model": "sets itself; use model= instead",
            "messages": "sets itself; use add(message)",
            "input": "sets itself; use add(message)",
            "system": "sets itself; use system=",
            "instructions": "sets itself; use system=",
            "tools": "sets itself; use tools=",
            "max_tokens": "sets itself; use max_output_tokens=",
            "max_completion_tokens": "sets itself; use max_output_tokens=",
            "max_output_tokens": "sets itself; use max_output_tokens=",
            "stream": "sets itself; use request(stream=True)",
        }.items()
    ),
]
KNOBS = [
    Wrong({"max_history_tokens": "3"}, "max_history_tokens is '3'; it must be a whole number"),
    Wrong({"max_tool_result_tokens": 2.5}, "max_tool_result_tokens is 2.5; it must be a whole"),
    Wrong({"tool_result_keep_last": True}, "tool_result_keep_last is True; it must be a whole"),
    Wrong({"tools": ["bash"]}, "tools is ['bash']; it must be a mapping of settings"),
    Wrong({"tools": {"bash": 5}}, "tools.bash is 5; it must be a mapping of settings"),
    Wrong({"tools": {"bash": {"exempt": "no"}}}, "tools.bash.exempt is 'no'; it must be True or"),
    Wrong({"summary": 5}, "summary is 5; it must be a mapping of settings"),
    Wrong({"summary": {"window": "9"}}, "summary.window is '9'; it must be a whole number"),
    Wrong({"summary": {"price": "1"}}, "summary.price is '1'; it must be a number"),
    Wrong({"thresholds": {"trim": "90%"}}, "thresholds.trim is '90%'; it must be a number"),
]


def refusal(call, *args, **given) -> str:
    with pytest.raises((TypeError, ValueError)) as refused:
        call(*args, **given)
    told = str(refused.value)
    assert "\n" not in told
    return told


def test_an_output_that_thinking_may_use_up_is_refused():
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 2_000}}
    given = {"params": thinking, "max_output_tokens": 2_000}
    told = "max_output_tokens is 2,000, and thinking.budget_tokens may take 2,000 of it"
    assert told in refusal(Context, "claude-sonnet-4-5", **given)
    context = Context("claude-sonnet-4-5", params=thinking)
    assert told in refusal(context.configure, max_output_tokens=2_000)


def test_a_model_that_would_think_up_all_that_it_writes_is_refused():
    params = {"thinking": {"type": "enabled", "budget_tokens": 32_000}}
    told = "thinking.budget_tokens is 32,000, and claude-opus-4-1 writes 32,000 at most"
    assert told in refusal(Context, "claude-opus-4-1", params=params)
    assert told in refusal(Context("claude-opus-4-1").configure, params=params)
    context = Context("claude-sonnet-4-5", params=params)
    assert told in refusal(context.configure, model="claude-opus-4-1")
    assert "writes 30,000 at most" in refusal(context.configure, model_info={"max_output": 30_000})
    context.configure(model="claude-opus-4-1", model_info={"max_output": 33_000})
    context.add(user("hi"))
    assert context.request()["max_tokens"] == 33_000


def test_an_unknown_goal_is_refused_whatever_the_policy():
    def mine(window, budget):
        raise AssertionError

    told = "unknown goal 'cheap'; choose one of cost, balanced, quality"
    given: dict[str, Any] = {"goal": "cheap"}
    assert told in refusal(Context, "gpt-4o", policy=mine, **given)


def test_a_clock_that_cannot_be_asked_is_refused():
    wrong: Any = 5
    told = "clock is 5; it must be a function that returns seconds, such as time.time"
    assert refusal(Context, "gpt-4o", clock=wrong) == told
    assert refusal(Context.load, chat().dump(), clock=wrong) == told


def test_a_tail_that_is_no_text_is_refused():
    context = chat()
    context.add(user("hi"))
    assert refusal(context.request, volatile=5) == "volatile is 5; it must be a text, or None"


def test_arguments_that_are_nested_too_deep_are_refused_where_they_are_added():
    call = {"type": "tool_use", "id": "c1", "name": "read", "input": DEEP}
    told = "more than 200 lists and objects are nested; nest fewer"
    message = {"role": "assistant", "content": [call]}
    assert refusal(chat().add, message) == told
    assert refusal(chat().sync, [user("hi"), message]) == f"messages[1]: {told}"


@pytest.mark.parametrize("at", [0, -1, 99])
def test_a_fork_at_no_position_is_refused(at):
    context = Context("gpt-4o")
    assert f"cannot fork at {at}; positions go from 1 to 1" in refusal(context.fork, at=at)


@pytest.mark.parametrize(("given", "told"), OPTIONS)
def test_a_wrong_option_is_refused_where_it_is_given(given, told):
    assert told in refusal(Context, **{"model": "gpt-4o", **given})


@pytest.mark.parametrize(("given", "told"), OPTIONS)
def test_a_wrong_change_is_refused_in_the_same_words_and_changes_nothing(given, told):
    context = Context("gpt-4o")
    assert told in refusal(context.configure, **given)
    assert len(context.events) == 1
    assert context.options == Context("gpt-4o").options


@pytest.mark.parametrize(("given", "told"), KNOBS)
@pytest.mark.parametrize("policy", ["layered", lambda window, budget: None])
def test_a_wrong_knob_is_refused_whatever_the_policy(policy, given, told):
    assert told in refusal(Context, "gpt-4o", policy=policy, limits=given)


def test_a_knob_that_is_none_is_not_set():
    knobs = {"max_history_tokens": None, "summary": {"window": None}, "tools": None}
    context = Context("gpt-4o", policy="rolling", limits=cast("PolicyLimits", knobs))
    context.add(user("hi"))
    assert context.request()["messages"] == [user("hi")]


def test_a_window_of_0_is_not_set():
    assert Context("gpt-4o", context_window=0).budget().limit == 128_000
    assert Context("gpt-4o", context_window=0).budget().source == "model"


@pytest.mark.parametrize(
    "options",
    [
        {"model": "gpt-4o", "max_output_tokens": 16_384},
        {"model": "gpt-4o", "max_output_tokens": 50_000, "model_info": {"max_output": 64_000}},
        {"model": "llama-3.3-70b", "max_output_tokens": 50_000},
        {"model": "nobody-knows", "max_output_tokens": 50_000, "dialect": "openai_chat"},
    ],
)
def test_as_much_output_may_be_asked_for_as_the_entry_says_or_nobody_knows(options):
    assert Context(**options).budget().max_output == options["max_output_tokens"]


def test_another_model_that_writes_less_needs_another_output_limit():
    context = Context("gpt-5", max_output_tokens=50_000)
    assert "gpt-4o writes 16,384 at most" in refusal(context.configure, model="gpt-4o")
    context.configure(model="gpt-4o", max_output_tokens=16_000)
    assert context.budget().max_output == 16_000


def test_what_a_log_holds_is_taken_as_it_is():
    """It may have been given to a release that refused less."""
    context = Context("gpt-4o")
    settings = context.window.settings
    old: dict[str, Any] = {"params": {"max_tokens": 5}, "limits": {"max_output_tokens": 50_000}}
    names = Settings.__dataclass_fields__
    append(context, Settings(**{name: getattr(settings, name) for name in names} | old))
    again = Context.load(context.dump())
    again.configure(goal="cost")
    assert again.options.params == {"max_tokens": 5}


def test_what_is_for_one_provider_alone_stays_the_users():
    params = {"stream_options": {"include_obfuscation": False}, "store": True, "seed": 7}
    context = Context("gpt-4o", params=params)
    context.add(user("hi"))
    assert context.request().items() >= params.items()


def test_a_mapping_that_is_none_is_an_empty_one():
    context = Context("gpt-4o", params={"seed": 7}, limits={"max_history_tokens": 9})
    context.configure(params=None, limits=None, model_info=None)
    assert (context.options.params, context.options.limits) == ({}, {})


def test_a_tool_may_be_an_sdks_object():
    class Sdk:
        def to_dict(self):
            return READ

    tools: list[Any] = [Sdk()]
    given = Context("gpt-4o", tools=tools).window.settings
    assert given == Context("gpt-4o", tools=[READ]).window.settings


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("polcy", "configure has no option 'polcy'; did you mean 'policy'?"),
        ("max_output_token", "did you mean 'max_output_tokens'?"),
        ("zzz", "configure has no option 'zzz'; it has model, system, tools"),
    ],
)
def test_a_misspelt_option_is_told_by_the_name_of_the_nearest(name, told):
    assert told in refusal(Context("gpt-4o").configure, **{name: "full"})


@pytest.mark.parametrize(("returned", "told"), [(None, "None"), ([], "[]")])
def test_a_policy_that_returns_no_decision_is_named(returned, told):
    def mine(window, budget):
        return returned

    context = chat(mine)
    context.add(user("hi"))
    words = refusal(context.request)
    assert "mine' returned" in words
    assert f"returned {told}; it must return a Decision" in words


@pytest.mark.parametrize("verb", ["recall", "reveal", "pin", "erase", "rewind"])
@pytest.mark.parametrize("handle", [None, 2.5, ["m2"]])
def test_what_is_no_handle_is_refused_by_every_verb(verb, handle):
    told = f"{handle!r} is not a handle; handles look like m12.0, m12 or m3-m50"
    assert refusal(getattr(chat(), verb), handle) == told


def test_a_position_is_no_handle():
    assert "2 is not a handle" in refusal(chat().recall, 2)


@pytest.mark.parametrize(
    ("kind", "figures", "told"),
    [
        ("overflw", {"limit": 10}, "unknown error kind 'overflw'; choose one of overflow, "),
        ("overflow", {"limit": "8k"}, f"limit is '8k'; {WHOLE}"),
        ("overflow", {"limit": True}, f"limit is True; {WHOLE}"),
        ("overflow", {"limit": 0}, f"limit is 0; {POSITIVE}"),
        ("overflow", {"limit": -5}, f"limit is -5; {POSITIVE}"),
        ("overflow", {"input": "9k"}, f"input is '9k'; {WHOLE}"),
    ],
)
def test_an_error_that_teaches_nothing_is_refused(kind, figures, told):
    context = chat()
    context.add(user("hi"))
    context.request()
    count = len(context.events)
    assert told in refusal(context.fail, kind, **figures)
    assert len(context.events) == count


def test_the_kinds_of_errors_are_those_of_providers():
    assert get_args(FailureKind) == FAILURE_KINDS


def synced(messages):
    context = chat()
    try:
        context.sync(messages)
    finally:
        assert len(context.events) == 1


def fitted(messages):
    fit(messages, model="gpt-4o")


@pytest.mark.parametrize("call", [synced, fitted])
@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([user("a"), {"content": "b"}], "messages[1]: "),
        ([user("a"), said("b"), "c"], "messages[2]: "),
        ({"role": "user", "content": "a"}, "; it must be a list of messages"),
        ("hello", "messages is 'hello'; it must be a list of messages"),
        (None, "messages is None; it must be a list of messages"),
    ],
)
def test_of_a_list_that_cannot_be_read_the_place_is_told(call, messages, told):
    assert told in refusal(call, messages)


def test_a_list_is_read_as_what_it_is_before_the_place_is_told():
    """The first message alone could be of any dialect, and one without a text is none's but
    chat's."""
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    messages = [
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "nobody", "content": "hi"},
    ]
    words = refusal(fit, messages, model="claude-sonnet-4-5")
    assert "messages[2]: role 'nobody' is not a Chat Completions role" in words


NOT_MINE = "pass lines that dump() wrote"


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (["{}"], f"line 1 of the log is '{{}}', which is not an event; {NOT_MINE}"),
        (["[1]"], f"line 1 of the log is '[1]', which is not an event; {NOT_MINE}"),
        (["hello"], f"line 1 of the log is 'hello', which is not an event; {NOT_MINE}"),
        ([b"\xff"], "which is not an event"),
        ([None], "line 1 of the log is None, which is not an event"),
        (['{"version": 1, "seq": 1, "at": 0, "kind": "song"}'], "which is not an event"),
        (['{"version": 1, "seq": 1, "at": 0, "kind": "call"}'], "which is not an event"),
        (['{"version": 2, "seq": 1, "at": 0, "kind": "call"}'], "upgrade trimtab to read this log"),
        (['{"seq": 1, "at": 0, "kind": "call"}'], "which is not an event"),
        (["[" * 200_000], f"which is not an event; {NOT_MINE}"),
        ("hello", "pass the lines that dump() wrote; if you have one text, pass text.splitlines()"),
        (['{"version":1}{"version":1}'], f"{NOT_MINE}, one event a line"),
        (5, "the log is 5; pass the lines that dump() wrote"),
        ([], "the log has no settings event"),
    ],
)
def test_a_line_that_is_no_event_is_said_to_be_none(log, told):
    assert told in refusal(Context.load, log)


def test_the_line_that_is_no_event_is_told_by_its_number():
    assert "line 2 of the log" in refusal(Context.load, [*chat().dump(), "{}"])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("model", None), ("entry", "x"), ("limits", 3), ("tools", "x"), ("policy", 5)),
        *(("head", []), ("head", "x"), ("system", [5]), ("seq", "x"), ("at", None)),
    ],
)
def test_settings_that_are_damaged_are_told_by_their_line(key, value):
    first, *others = chat().dump()
    damaged = json.dumps({**json.loads(first), key: value})
    words = refusal(Context.load, [damaged, *others])
    assert "line 1 of the log is" in words
    assert NOT_MINE in words


def test_a_policy_of_ones_own_is_asked_for_when_its_log_is_loaded():
    def mine(window, budget):
        raise AssertionError

    lines = chat(mine).dump()
    words = refusal(Context.load, lines)
    assert "mine'. The log does not contain your own functions" in words
    assert "Pass the function again, as policy=f, to Context.load" in words
    assert Context.load(lines, policy=mine).options.policy is mine


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"policy": 5}, "policy is 5; it must be one of"),
        ({"policy": "best"}, "unknown policy 'best'; choose one of"),
        ({"tokenizer": "gpt2"}, "tokenizer is 'gpt2'; it must be a function"),
    ],
)
def test_what_a_log_is_loaded_with_is_looked_at_too(given, told):
    assert told in refusal(Context.load, chat().dump(), **given)
