"""What a provider says of its own prompt cache, beside what our log tells; over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lazy import anthropic, openai
from trimtab import Context
from trimtab.engine.log.event import Usage
from trimtab.engine.tokens.cost import compute_cost_usd
from trimtab.testing.server import serve_simulated_provider
from trimtab.types import DialectName

CLAUDE, GPT = "claude-sonnet-4-6", "gpt-5.6"
PROMPT = "You answer briefly and you know this by heart. " * 400
OTHER_PROMPT = "You answer at length, and you know none of it. " * 400
ASKING: dict[str, dict[str, Any]] = {
    "anthropic": {"diagnostics": {"previous_message_id": None}},
    "openai_responses": {"prompt_cache_options": {"comparison_response_id": None}},
}
MODELS = {"anthropic": CLAUDE, "openai_responses": GPT}
each_provider = pytest.mark.parametrize("dialect", ASKING)


@pytest.fixture(scope="module")
def served():
    with serve_simulated_provider() as running:
        yield running


@pytest.fixture
def ask(served):
    """Send the next request of a context by its provider's SDK and add the reply."""
    served.simulator.reset()
    claude = anthropic.Anthropic(base_url=served.url, api_key="k", max_retries=0)
    gpt = openai.OpenAI(base_url=served.openai_url, api_key="k", max_retries=0)

    def send(context: Context, text: str, *, stream: bool = False):
        context.add({"role": "user", "content": text})
        request = context.request(stream=stream)
        if "messages" in request:
            reply = claude.messages.create(**request)
        else:
            reply = gpt.responses.create(**request)
        if stream:
            for _ in context.watch(reply):
                pass
        else:
            context.add(reply)
        return request

    with claude, gpt:
        yield send


def asking(dialect: DialectName, **options: Any) -> Context:
    made: dict[str, Any] = {"system": PROMPT, "params": ASKING[dialect], **options}
    return Context(MODELS[dialect], dialect=dialect, **made)


def compared(request: Any) -> object:
    if "messages" in request:
        return request["diagnostics"]["previous_message_id"]
    return request.get("prompt_cache_options", {}).get("comparison_response_id")


@each_provider
@pytest.mark.parametrize("stream", [False, True])
def test_each_request_names_the_reply_before_it(ask, dialect, stream):
    context = asking(dialect)
    first = ask(context, "One?", stream=stream)
    replied = context.window.conversation.last_reply_id
    assert replied is not None
    second = ask(context, "Two?", stream=stream)
    assert (compared(first), compared(second)) == (None, replied)


@each_provider
def test_a_request_that_was_made_is_shown_with_the_id_that_it_named(ask, dialect):
    context = asking(dialect)
    ask(context, "One?")
    sent = ask(context, "Two?")
    ask(context, "Three?")
    calls = [event.seq for event in context.events if hasattr(event.body, "max_output")]
    assert context.rebuild_request(calls[1]) == sent
    assert Context.load(context.dump()).rebuild_request(calls[1]) == sent


@each_provider
def test_nothing_is_told_where_nothing_was_missed(ask, dialect):
    context = asking(dialect)
    for text in ("One?", "Two?", "Three?"):
        ask(context, text)
    report = context.report()
    assert report.cache_hit is not None
    assert report.cache_hit > 0.5
    assert (report.cache_miss, report.cache_misses) == ("", {})


REASONS = {"anthropic": "system changed", "openai_responses": "input changed"}


@each_provider
@pytest.mark.parametrize("stream", [False, True])
def test_the_provider_s_reason_stands_beside_ours(ask, dialect, stream):
    context = asking(dialect)
    ask(context, "One?", stream=stream)
    context.configure(system=OTHER_PROMPT)
    ask(context, "Two?", stream=stream)
    told = context.report().cache_miss
    assert f"the provider says {REASONS[dialect]}; settings were changed" in told
    assert context.report().cache_misses == {REASONS[dialect].replace(" ", "_"): 1}
    assert told in context.report().breakdown()
    assert told == Context.load(context.dump()).report().cache_miss


@each_provider
def test_the_tokens_that_were_missed_are_told(ask, dialect):
    context = asking(dialect)
    ask(context, "One?")
    whole = context.report().total_usage.input
    context.configure(system=OTHER_PROMPT)
    ask(context, "Two?")
    missed = context.window.accounting.cache_misses.last_missed_tokens
    assert whole * 0.95 <= missed <= whole
    assert f"about {missed:,} tokens" in context.report().cache_miss


def test_hiding_messages_is_ours_and_the_provider_sees_the_messages_changed(ask):
    context = asking("anthropic", policy="full", tools=[READ])
    context.add({"role": "user", "content": "Read."})
    for name in map(str, range(8)):
        context.add({"role": "assistant", "content": [{**CALL, "id": name}]})
        context.add({"role": "user", "content": [{**RESULT, "tool_use_id": name}]})
    ask(context, "One?")
    assert context.compact().edits
    ask(context, "Two?")
    told = context.report().cache_miss
    assert "the provider says messages changed; messages were hidden (" in told


READ: dict[str, Any] = {"name": "read", "description": "Read.", "input_schema": {"type": "object"}}
CALL: dict[str, Any] = {"type": "tool_use", "name": "read", "input": {}}
RESULT: dict[str, Any] = {"type": "tool_result", "content": "a line of the file\n" * 300}


def test_a_request_that_somebody_changes_on_its_way_is_told_as_not_ours():
    """A gateway that writes the time into the prompt: the provider sees another one each time."""
    context = asking("anthropic")
    for number in range(3):
        context.add({"role": "user", "content": "What now?"})
        context.request()
        context.add(claude_reply(number, reason="system_changed" if number else None))
    told = context.report().cache_miss
    assert "the provider says system changed" in told
    assert "Trimtab had not changed anything that was sent before" in told
    # It cannot be relied on, whoever is at fault, and that is what the arithmetic goes by.
    assert context.window.accounting.cache_misses.miss_rate > 0


def test_a_diagnosis_shows_that_there_is_a_cache_though_nothing_was_ever_read():
    told, silent = asking("openai_responses", params={}), asking("openai_responses", params={})
    for number in range(3):
        for context, reason in ((told, "prompt_cache_key_changed"), (silent, None)):
            context.add({"role": "user", "content": "What now?"})
            context.request()
            context.add(gpt_reply(number, reason if number else None))
    assert told.window.accounting.cache_misses.miss_rate > 0
    assert silent.window.accounting.cache_misses.miss_rate == 0


@pytest.mark.parametrize("reason", ["unavailable", "previous_message_not_found"])
def test_a_diagnosis_that_found_nothing_out_is_no_miss(reason):
    context = asking("anthropic")
    context.add({"role": "user", "content": "What now?"})
    context.request()
    context.add(claude_reply(1, reason=reason, missed=False))
    assert context.report().cache_misses == {}


def test_an_id_of_another_provider_is_not_compared_with(ask):
    params = {**ASKING["anthropic"], **ASKING["openai_responses"]}
    context = Context(GPT, dialect="openai_responses", system=PROMPT, params=params)
    ask(context, "One?")
    context.configure(model=CLAUDE)
    request = ask(context, "Two?")
    assert compared(request) is None
    assert "prompt_cache_options" not in request


def test_nobody_is_asked_who_was_not_named_in_params(ask):
    context = asking("anthropic", params={})
    ask(context, "One?")
    assert "diagnostics" not in ask(context, "Two?")


def test_tokens_kept_for_an_hour_cost_what_an_hour_costs(ask):
    marked = [{"type": "text", "text": PROMPT, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    context = Context(CLAUDE, system=marked)
    ask(context, "One?")
    used = context.report().total_usage
    assert 0 < used.cache_write_long <= used.cache_write
    price = context.window.settings.entry["input_price"] / 1_000_000
    short = Usage(input=1_000, cache_write=1_000)
    long = Usage(input=1_000, cache_write=1_000, cache_write_long=1_000)
    entry = context.window.settings.entry
    assert compute_cost_usd(short, entry) == pytest.approx(1_250 * price)
    assert compute_cost_usd(long, entry) == pytest.approx(2_000 * price)


def claude_reply(number: int, *, reason: str | None, missed: bool = True):
    told = {"type": reason, **({"cache_missed_input_tokens": 3_900} if missed else {})}
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": CLAUDE,
        "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "Nothing."}],
        "diagnostics": None if reason is None else {"cache_miss_reason": told},
        "usage": {
            "input_tokens": 20,
            "cache_creation_input_tokens": 4_000,
            "cache_read_input_tokens": 0,
            "output_tokens": 3,
        },
    }


def gpt_reply(number: int, reason: str | None):
    said = [{"type": "output_text", "text": "Nothing.", "annotations": []}]
    miss = {"type": "cache_miss", "reason": reason, "cache_missed_tokens": 3_900}
    return {
        "id": f"resp_{number}",
        "object": "response",
        "status": "completed",
        "output": [{"type": "message", "id": f"m{number}", "role": "assistant", "content": said}],
        "prompt_cache_diagnostics": miss if reason else None,
        "usage": {"input_tokens": 4_030, "output_tokens": 3},
    }
