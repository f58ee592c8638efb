"""Tools that a provider keeps out of the prompt until a search loads them."""

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.combinations import in_pairs
from tests.context.contexts import start
from trimtab import Context, check

DIALECTS = ("anthropic", "openai_chat", "openai_responses")
WORDS = "Find the open tickets of one customer by their state, owner and date. " * 12
SCHEMA = {"type": "object", "properties": {"query": {"type": "string", "description": WORDS}}}
SEARCH_SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}}


def definition(dialect, name, *, deferred=True, schema: Any = SCHEMA):
    flag = {"defer_loading": True} if deferred else {}
    match dialect:
        case "anthropic":
            return {"name": name, "description": "Tickets.", "input_schema": schema, **flag}
        case "openai_chat":
            body = {"name": name, "description": "Tickets.", "parameters": schema}
            return {"type": "function", "function": {**body, **flag}}
        case _:
            body = {"type": "function", "name": name, "description": "Tickets."}
            return {**body, "parameters": schema, "strict": False, **flag}


def toolbox(dialect, count):
    """Deferred tools, and the tool that searches them."""
    deferred = [definition(dialect, f"tool_{number}") for number in range(count)]
    match dialect:
        case "anthropic":
            name = "tool_search_tool_bm25"
            return [{"type": f"{name}_20251119", "name": name}, *deferred]
        case "openai_chat":
            search = definition(dialect, "search", deferred=False, schema=SEARCH_SCHEMA)
            return [search, *deferred]
        case _:
            given = {"name": "crm", "description": "Customers.", "tools": deferred}
            return [{"type": "tool_search"}, {"type": "namespace", **given}]


def searched(dialect, name):
    """A search that loads a tool, as the provider or the caller's own program answers it."""
    match dialect:
        case "anthropic":
            ask = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "tool_search_tool_bm25"}
            found = [{"type": "tool_reference", "tool_name": name}]
            body = {"type": "tool_search_tool_search_result", "tool_references": found}
            done = {"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_1", "content": body}
            return [{"role": "assistant", "content": [{**ask, "input": {"query": "x"}}, done]}]
        case "openai_chat":
            body = {"name": "search", "arguments": '{"query": "x"}'}
            call = {"id": "call_s", "type": "function", "function": body}
            found = [{"type": "tool_reference", "name": name}]
            return [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_s", "content": found},
            ]
        case _:
            inner = definition(dialect, name)
            crm = {"type": "namespace", "name": "crm", "description": "", "tools": [inner]}
            given = {"call_id": None, "execution": "server", "status": "completed"}
            ask = {"type": "tool_search_call", "id": "tsc_1", "arguments": {}, **given}
            done = {"type": "tool_search_output", "id": "tso_1", "tools": [crm], **given}
            return [{"id": "resp_1", "object": "response", "output": [ask, done]}]


def called(dialect, name, number, text):
    """A call of a tool, and its result."""
    given = json.dumps({"query": str(number)})
    match dialect:
        case "anthropic":
            call = {"type": "tool_use", "id": f"toolu_{number}", "name": name}
            done = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": text}
            return [
                {"role": "assistant", "content": [{**call, "input": json.loads(given)}]},
                {"role": "user", "content": [done]},
            ]
        case "openai_chat":
            body = {"name": name, "arguments": given}
            call = {"id": f"call_{number}", "type": "function", "function": body}
            return [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": f"call_{number}", "content": text},
            ]
        case _:
            call = {"type": "function_call", "call_id": f"call_{number}", "name": name}
            done = {"type": "function_call_output", "call_id": f"call_{number}", "output": text}
            return [{**call, "arguments": given, "namespace": "crm"}, done]


def add_all(context, messages):
    for message in messages:
        context.add(message)


def said(dialect, text):
    if dialect != "openai_responses":
        return {"role": "assistant", "content": text}
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "content": [part]}


def blocks_of(request):
    """All objects of the messages, in the order in which the model reads them."""

    def inside(value):
        if isinstance(value, dict):
            yield value
            value = list(value.values())
        if isinstance(value, list):
            for each in value:
                yield from inside(each)

    yield from inside(request.get("messages", request.get("input")))


def calls_without_their_tool(request):
    """The names of deferred tools that are called before anything in the request loads them."""
    loaded, lost = set(), []
    for block in blocks_of(request):
        name = str(block.get("name"))
        if block.get("type") == "tool_reference":
            loaded.add(block.get("tool_name") or name)
        elif block.get("type") == "function" and "parameters" in block:
            loaded.add(name)
        elif name.startswith("tool_") and ("input" in block or "arguments" in block):
            lost += [] if name in loaded or "search" in name else [name]
    return lost


def used_with(dialect, tools):
    context = start(dialect, tools=tools, context_window=200_000)
    context.add({"role": "user", "content": "Go."})
    return context.report().used


@pytest.mark.parametrize("dialect", DIALECTS)
def test_deferred_tools_do_not_count_before_they_are_loaded(dialect):
    few, many = used_with(dialect, toolbox(dialect, 1)), used_with(dialect, toolbox(dialect, 60))
    plain = used_with(
        dialect, [definition(dialect, f"tool_{n}", deferred=False) for n in range(60)]
    )
    assert many == few
    assert plain > 8_000


def test_the_responses_api_shows_name_and_description_of_a_deferred_function():
    named = [definition("openai_responses", f"tool_{n}") for n in range(100)]
    long = [{**each, "description": WORDS} for each in named]
    bare = used_with("openai_responses", [{"type": "tool_search"}])
    assert used_with("openai_responses", [{"type": "tool_search"}, *named]) - bare < 4_000
    assert used_with("openai_responses", [{"type": "tool_search"}, *long]) - bare > 14_000


def test_a_toolset_counts_only_the_listed_tools_that_are_not_deferred():
    listed = [definition("anthropic", f"tool_{n}", deferred=False) for n in range(50)]
    toolset = {"type": "mcp_toolset", "mcp_server_name": "crm", "tools": listed}
    deferred = {**toolset, "default_config": {"defer_loading": True}}
    whole, none = used_with("anthropic", [toolset]), used_with("anthropic", [deferred])
    one = {**deferred, "configs": {"tool_3": {"defer_loading": False}}}
    each = (whole - none) / 50
    assert none < 1_000 < each * 50
    assert used_with("anthropic", [one]) - none == pytest.approx(each, rel=0.1)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_loaded_tool_counts_as_long_as_its_load_is_seen(dialect):
    context = start(dialect, tools=toolbox(dialect, 5), context_window=200_000)
    context.add({"role": "user", "content": "Go."})
    before = context.report().used
    add_all(context, searched(dialect, "tool_3"))
    grown = context.report().used - before
    alone = used_with(dialect, [definition(dialect, "tool_3", deferred=False)])
    size = alone - used_with(dialect, [definition(dialect, "tool_3", deferred=False, schema={})])
    assert size <= grown < size + 300
    assert Context.load(context.dump()).report().used == context.report().used


def test_a_loaded_definition_that_was_changed_is_counted_again():
    context = start("anthropic", tools=toolbox("anthropic", 5), context_window=200_000)
    context.add({"role": "user", "content": "Go."})
    add_all(context, searched("anthropic", "tool_3"))
    before = context.report().used
    short = definition("anthropic", "tool_3", schema={"type": "object"})
    context.configure(tools=[*toolbox("anthropic", 3), short])
    assert context.report().used < before - 100
    assert Context.load(context.dump()).report().used == context.report().used


PRESETS: dict[str, dict[str, Any]] = {
    "cost": {"goal": "cost"},
    "balanced": {},
    "manual": {"summaries": "manual"},
    **{name: {"policy": name} for name in ("layered", "compact", "rolling", "thresholds", "full")},
}


def worked(dialect, **options):
    """A context in which searches loaded one tool, before each request after a call of it."""
    context = start(
        dialect, tools=toolbox(dialect, 5), context_window=9_000, max_output_tokens=500, **options
    )
    for turn in range(12):
        context.add({"role": "user", "content": f"Question {turn}."})
        if turn in (0, 7):
            add_all(context, [*searched(dialect, "tool_3"), said(dialect, "I found it.")])
            context.add({"role": "user", "content": "Go on."})
        add_all(context, called(dialect, "tool_3", turn, f"Ticket {turn} is open. " * 90))
        yield context
        context.add(said(dialect, f"Answer {turn}. " * 30))


@pytest.mark.parametrize(("preset", "dialect"), in_pairs([*PRESETS], DIALECTS, together=1))
def test_no_call_is_sent_without_what_loaded_its_tool(preset, dialect):
    sizes = []
    for context in worked(dialect, **PRESETS[preset]):
        request = context.request()
        assert calls_without_their_tool(request) == []
        sizes.append(len(json.dumps(request)))
    assert any(after < before for before, after in pairwise(sizes)), "nothing was ever hidden"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_loaded_a_tool_goes_with_the_last_of_its_calls(dialect):
    *_, context = worked(dialect, policy="rolling")
    request = context.request()
    for number in range(10):
        context.add({"role": "user", "content": f"And {number}? {'Say more. ' * 60}"})
        request = context.request()
        context.add(said(dialect, f"No {number}."))
    assert not any(block.get("name") == "tool_3" for block in blocks_of(request))
    assert not any("tool_3" in str(block.get("tool_name")) for block in blocks_of(request))


def test_a_revealed_call_comes_back_with_what_loaded_its_tool():
    *_, context = worked("anthropic", policy="rolling")
    context.request()
    (handle,) = [e.seq for e in context.events if "toolu_4" in str(e) and "ToolCall(" in str(e)]
    context.reveal(f"m{handle}")
    request = context.request()
    assert "toolu_4" in json.dumps(request)
    assert calls_without_their_tool(request) == []


def test_a_result_that_loads_tools_is_never_cut_or_masked():
    found = {"type": "tool_reference", "name": "tool_3"}
    text = {"type": "text", "text": "The best match is tool_3. " * 200}
    ask, done = searched("openai_chat", "tool_3")
    context = start(
        "openai_chat",
        tools=toolbox("openai_chat", 5),
        context_window=12_000,
        limits={"max_tool_result_tokens": 100, "tool_result_keep_last": 1},
    )
    context.add({"role": "user", "content": "Go."})
    add_all(context, [ask, {**done, "content": [text, found]}])
    request = context.request()
    for number in range(12):
        add_all(context, called("openai_chat", "tool_3", number, "A ticket. " * 200))
        request = context.request()
    assert [text, found] in [message["content"] for message in request["messages"]]


def test_no_deferred_tool_carries_a_cache_mark():
    tools = toolbox("anthropic", 3)
    context = start("anthropic", tools=tools[:2], context_window=200_000)
    context.configure(turn_tools=tools[2:])
    context.add({"role": "user", "content": "Go. " * 4_000})
    request = context.request()
    marked = [tool["name"] for tool in request["tools"] if "cache_control" in tool]
    assert marked == ["tool_search_tool_bm25"]
    assert check(request, dialect_name="anthropic") == []


def test_a_search_that_the_caller_runs_stays_with_its_answer():
    given = {"call_id": "call_s", "execution": "client", "status": "completed"}
    ask = {"type": "tool_search_call", "id": "tsc_1", "arguments": {"goal": "tickets"}, **given}
    tools = [definition("openai_responses", "tool_3")]
    done = {"type": "tool_search_output", "tools": tools, **given}
    search = {"type": "tool_search", "execution": "client", "parameters": SEARCH_SCHEMA}
    context = start("openai_responses", tools=[search], policy="rolling", context_window=9_000)
    context.add({"role": "user", "content": "Go."})
    context.add({"id": "resp_1", "object": "response", "output": [ask]})
    assert [call.id for call in context.window.conversation.open_calls()] == ["call_s"]
    context.add(done)
    request = context.request()
    for number in range(15):
        add_all(context, called("openai_responses", "tool_3", number, "A ticket. " * 200))
        request = context.request()
        assert calls_without_their_tool(request) == []
        assert check(request, dialect_name="openai_responses") == []
        context.add(said("openai_responses", "Done."))
        context.add({"role": "user", "content": "Go on."})
    assert [item for item in request["input"] if "search" in item.get("type", "")] == [ask, done]


def test_tools_that_a_system_message_adds_and_removes_pass_whole_and_count():
    tools = toolbox("anthropic", 5)
    context = start(
        "anthropic", model="claude-opus-5", tools=tools, policy="rolling", context_window=9_000
    )
    added = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "tool_3"}}
    removed = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "tool_4"}}
    context.add({"role": "user", "content": "Go."})
    before = context.report().used
    context.add({"role": "system", "content": [added, removed]})
    assert context.report().used - before > 150
    request = context.request()
    for number in range(12):
        add_all(context, called("anthropic", "tool_3", number, "A ticket. " * 200))
        request = context.request()
        context.add(said("anthropic", "Done."))
        context.add({"role": "user", "content": "Go on."})
    bare = [
        {key: block[key] for key in ("type", "tool")}
        for block in blocks_of(request)
        if "tool" in block
    ]
    assert bare == [added, removed]
    assert check(request) == []
