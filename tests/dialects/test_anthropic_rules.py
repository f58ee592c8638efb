import copy

import pytest

from trimtab.dialects import get_dialect

check = get_dialect("anthropic").find_request_errors


def use(call_id="t1", name="f"):
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def result(call_id="t1"):
    return {"type": "tool_result", "tool_use_id": call_id, "content": "ok"}


def text(words="hello"):
    return {"type": "text", "text": words}


def user(*content):
    return {"role": "user", "content": list(content) or "hi"}


def assistant(*content):
    return {"role": "assistant", "content": list(content)}


def request(*messages, **keys):
    return {"model": "m", "max_tokens": 2_000, "messages": list(messages), **keys}


SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
REMOTE = {"type": "mcp_tool_use", "id": "mcp_1", "name": "f", "server_name": "s", "input": {}}
MARK = {"cache_control": {"type": "ephemeral"}}
HOUR_MARK = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}
ENABLED = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
TOOL = {"name": "f", "input_schema": {"type": "object"}}
DEFERRED = TOOL | {"defer_loading": True}
REFERENCE = {"type": "tool_reference", "tool_name": "f"}
FOUND = (
    SEARCH | {"name": "tool_search_tool_regex"},
    {
        "type": "tool_search_tool_result",
        "tool_use_id": "srv_1",
        "content": {"type": "tool_search_tool_search_result", "tool_references": [REFERENCE]},
    },
)

CASES = {
    "a limit of output is missing": (
        "max_tokens",
        {"messages": [user()]},
        request(user()),
    ),
    "there are no messages": ("at least one message", request(), request(user())),
    "the assistant speaks first": (
        'first message must use the "user" role',
        request(assistant(text())),
        request(user(), assistant(text())),
    ),
    "a role is unknown": (
        "messages.1.role",
        request(user(), {"role": "tool", "content": "x"}),
        request(user(), user()),
    ),
    "a call has no result": (
        "`tool_use` ids were found without `tool_result` blocks immediately after: t1",
        request(user(), assistant(use()), user(text())),
        request(user(), assistant(use()), user(result(), text())),
    ),
    "one of two parallel calls has no result": (
        "immediately after: t2",
        request(user(), assistant(use(), use("t2")), user(result())),
        request(user(), assistant(use(), use("t2")), user(result("t2"), result())),
    ),
    "the last message is a call": (
        "immediately after: t1",
        request(user(), assistant(use())),
        request(user(), assistant(use()), user(result())),
    ),
    "a result comes too late": (
        "unexpected `tool_use_id`",
        request(user(), assistant(use()), user(text()), assistant(text()), user(result())),
        request(user(), assistant(use()), user(result()), assistant(text()), user()),
    ),
    "a result has no call": (
        "unexpected `tool_use_id` found in `tool_result` blocks: t9",
        request(user(), assistant(text()), user(result("t9"))),
        request(user(), assistant(text()), user(text())),
    ),
    "a call is answered twice": (
        "single result",
        request(user(), assistant(use()), user(result(), result())),
        request(user(), assistant(use()), user(result())),
    ),
    "text stands before a result": (
        "must come first",
        request(user(), assistant(use()), user(text(), result())),
        request(user(), assistant(use()), user(result()), user(text())),
    ),
    "a call's id comes again": (
        "must be unique",
        request(user(), assistant(use()), user(result()), assistant(use()), user(result())),
        request(user(), assistant(use()), user(result()), assistant(use("b")), user(result("b"))),
    ),
    "an id has other letters": (
        "should match pattern",
        request(user(), assistant(use("a:b")), user(result("a:b"))),
        request(user(), assistant(use("a_b")), user(result("a_b"))),
    ),
    "a call's name has other letters": (
        "not a valid tool name",
        request(user(), assistant(use(name="a.b")), user(result())),
        request(user(), assistant(use(name="a-b")), user(result())),
    ),
    "a call's input is no object": (
        "valid dictionary",
        request(user(), assistant(use() | {"input": "x"}), user(result())),
        request(user(), assistant(use() | {"input": {"x": 1}}), user(result())),
    ),
    "a text is empty": (
        "messages.0.content.1: text content blocks",
        request(user(text(), text(" \n"))),
        request(user(text())),
    ),
    "a text in a result is empty": (
        "messages.2.content.0.tool_result.content.0",
        request(user(), assistant(use()), user(result() | {"content": [text("")]})),
        request(user(), assistant(use()), user(result() | {"content": ""})),
    ),
    "a message has no content": (
        "non-empty content",
        request({"role": "user", "content": []}),
        request(user()),
    ),
    "a reply to be continued ends in white space": (
        "trailing whitespace",
        request(user(), assistant(text("so "))),
        request(user(), assistant(text("so "), text("then"))),
    ),
    "a newer model is to continue a reply": (
        "does not support assistant message prefill",
        request(user(), assistant(text()), model="claude-opus-4-6"),
        request(user(), assistant(text()), model="claude-sonnet-4-5-20250929"),
    ),
    "a reply of a newer model did not pause": (
        "does not support assistant message prefill",
        request(user(), assistant(text()), model="claude-opus-5"),
        request(user(), assistant(SEARCH, text()), model="claude-opus-5"),
    ),
    "a reply in several messages did not pause": (
        "does not support assistant message prefill",
        request(user(), assistant(SEARCH), user(), assistant(text()), model="claude-opus-5"),
        request(user(), assistant(SEARCH), assistant(text()), model="claude-opus-5"),
    ),
    "a reply did not pause for a remote tool": (
        "does not support assistant message prefill",
        request(user(), assistant(text()), model="claude-opus-5"),
        request(user(), assistant(REMOTE, text()), model="claude-opus-5"),
    ),
    "an entry is no object": (
        "messages.1: Input should be a valid dictionary",
        request(user(), "hi"),
        request(user(), user()),
    ),
    "there are five cache marks": (
        "maximum of 4 blocks with cache_control may be provided. Found 5",
        request(
            user(text() | MARK, text() | MARK),
            assistant(use()),
            user(result() | {"content": [text() | MARK]}),
            system=[text() | MARK],
            tools=[TOOL | MARK],
        ),
        request(
            user(text() | MARK, text()),
            assistant(use()),
            user(result() | {"content": [text() | MARK]}),
            system=[text() | MARK],
            tools=[TOOL | MARK],
        ),
    ),
    "a cache mark is on thinking": (
        "messages.1.content.0.cache_control",
        request(user(), assistant(THINKING | MARK, text()), user()),
        request(user(), assistant(THINKING, text() | MARK), user()),
    ),
    "a mark of an hour follows one of five minutes": (
        "messages.0.content.0.cache_control: a ttl='1h' cache_control block must not come after",
        request(user(text() | HOUR_MARK), tools=[TOOL], system=[text() | MARK]),
        request(user(text() | MARK), tools=[TOOL | HOUR_MARK], system=[text() | HOUR_MARK]),
    ),
    "a mark inside a result comes before that on the result": (
        "messages.2.content.0.cache_control: a ttl='1h' cache_control block",
        request(
            user(), assistant(use()), user(result() | {"content": [text() | MARK]} | HOUR_MARK)
        ),
        request(
            user(), assistant(use()), user(result() | {"content": [text() | HOUR_MARK]} | MARK)
        ),
    ),
    "a mark has an unknown time": (
        "cache_control.ttl: Input should be '5m' or '1h'",
        request(user(text() | {"cache_control": {"type": "ephemeral", "ttl": "2h"}})),
        request(user(text() | {"cache_control": {"type": "ephemeral", "ttl": "5m"}})),
    ),
    "thinking has no signature": (
        "messages.1.content.0.thinking.signature: Field required",
        request(
            user(),
            assistant({"type": "thinking", "thinking": "hm"}, text()),
            user(),
            model="claude-sonnet-4-5",
        ),
        request(user(), assistant(THINKING, text()), user(), model="claude-sonnet-4-5"),
    ),
    "a reply ends in thinking": (
        "messages.1: The final block in an assistant message cannot be `thinking`.",
        request(user(), assistant(THINKING), user(), model="claude-sonnet-4-5"),
        request(user(), assistant(THINKING, text()), user(), model="claude-sonnet-4-5"),
    ),
    "an open tool loop has lost its thinking": (
        "Expected `thinking` or `redacted_thinking`, but found `tool_use`",
        request(user(), assistant(use()), user(result()), **ENABLED),
        request(user(), assistant(THINKING, use()), user(result()), **ENABLED),
    ),
    "a thinking budget is not below the output": (
        "`max_tokens` must be greater than `thinking.budget_tokens` (1024 is not above 1024)",
        request(user(), **ENABLED) | {"max_tokens": 1_024},
        request(user(), **ENABLED) | {"max_tokens": 1_025},
    ),
    "a parameter is one of OpenAI's": (
        "max_completion_tokens: Extra inputs are not permitted",
        request(user(), max_completion_tokens=9),
        request(user(), temperature=0.5),
    ),
    "a tool has no name": (
        "tools.0.name: Field required",
        request(user(), tools=[{"input_schema": {"type": "object"}}]),
        request(user(), tools=[{"type": "web_search_20250305", "name": "web_search"}]),
    ),
    "a tool has no schema": (
        "tools.0.input_schema: Field required",
        request(user(), tools=[{"name": "f", "parameters": {"type": "object"}}]),
        request(user(), tools=[TOOL | {"type": "custom"}]),
    ),
    "two tools have one name": (
        "tools.1.name",
        request(user(), tools=[TOOL, TOOL]),
        request(user(), tools=[TOOL, TOOL | {"name": "g"}]),
    ),
    "all tools are deferred": (
        "At least one tool must have defer_loading=false",
        request(user(), tools=[DEFERRED]),
        request(user(), tools=[DEFERRED, TOOL | {"name": "g"}]),
    ),
    "a deferred tool has a cache mark": (
        "cannot have both defer_loading=true and cache_control",
        request(user(), tools=[TOOL | {"name": "g"}, DEFERRED | MARK]),
        request(user(), tools=[TOOL | {"name": "g"} | MARK, DEFERRED]),
    ),
    "a search found a tool that is gone": (
        "Tool reference 'f' not found in available tools",
        request(user(), assistant(*FOUND), user(), tools=[TOOL | {"name": "g"}]),
        request(user(), assistant(*FOUND), user(), tools=[TOOL | {"name": "g"}, DEFERRED]),
    ),
    "a result refers to a tool that is gone": (
        "Tool reference 'f' not found in available tools",
        request(user(), assistant(use()), user(result() | {"content": [REFERENCE]})),
        request(user(), assistant(use()), user(result() | {"content": [REFERENCE]}), tools=[TOOL]),
    ),
    "a result has words beside a reference": (
        "cannot be mixed",
        request(
            user(),
            assistant(use()),
            user(result() | {"content": [REFERENCE, text()]}),
            tools=[TOOL],
        ),
        request(user(), assistant(use()), user(result() | {"content": [REFERENCE]}), tools=[TOOL]),
    ),
    "a tool's name is too long": (
        "tools.0.name",
        request(user(), tools=[TOOL | {"name": "x" * 129}]),
        request(user(), tools=[TOOL | {"name": "x" * 128}]),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_request_is_refused_where(case):
    words, refused, _ = CASES[case]
    found = check(refused)
    assert len(found) >= 1
    assert any(words in each for each in found), found


@pytest.mark.parametrize("case", CASES)
def test_the_repaired_request_passes_where(case):
    repaired = CASES[case][2]
    before = copy.deepcopy(repaired)
    assert check(repaired) == []
    assert repaired == before


def test_messages_of_one_role_in_a_row_are_accepted():
    assert check(request(user(), user(), assistant(text()), assistant(text()), user())) == []


def test_results_may_be_spread_over_a_run_of_user_messages():
    assert (
        check(request(user(), assistant(use(), use("b")), user(result()), user(result("b")))) == []
    )
