"""Room: every term of the subtraction."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conversations import calls, chat, claude, prose, result, user
from trimtab import Context, Usage, check
from trimtab.engine.log.event import Edit, Settings, Size
from trimtab.engine.policy.budget import (
    DEFAULT_ACTOR_MESSAGE_LIMIT,
    DEFAULT_OUTPUT_TOKENS,
    Budget,
    build_budget,
    bytes_to_tokens,
    compute_max_messages_in_memory,
)
from trimtab.engine.tokens.counter import compute_input_upper_bound, make_piecewise_counter
from trimtab.engine.window.accounting import DEFAULT_WINDOW_TOKENS, resolve_token_limit_and_source
from trimtab.errors import CannotFit
from trimtab.models.catalog import guess_context_window_from_name, resolve_model_info


def settings(limits=None, entry=None, head=(0, 0)):
    return Settings(
        model="m",
        dialect="openai_chat",
        renderer=1,
        limits=limits or {},
        entry={"context_window": 200_000, "max_output": 64_000} if entry is None else entry,
        head=Size(bytes=head[0], tokens=head[1]),
    )


def budget(learned=None, ratio=1.0, margin=0.15, volatile=0, **given):
    return build_budget(
        settings(**given),
        learned_limit=learned,
        ratio=ratio,
        margin=margin,
        volatile_tokens=volatile,
    )


@pytest.mark.parametrize(
    ("limits", "learned", "entry", "expected"),
    [
        ({"max_input_tokens": 150_000}, None, None, (150_000, "max_input_tokens")),
        ({"max_input_tokens": 500_000}, None, None, (500_000, "max_input_tokens")),
        (
            {"max_input_tokens": 100, "context_window": 200},
            None,
            None,
            (100, "max_input_tokens"),
        ),
        ({"context_window": 50_000}, None, None, (50_000, "context_window")),
        ({"context_window": 0}, None, None, (200_000, "model")),
        ({}, 32_768, None, (32_768, "learned")),
        ({}, 400_000, None, (400_000, "learned")),
        ({}, None, None, (200_000, "model")),
        ({}, None, {}, (128_000, "default")),
    ],
)
def test_the_limit_is_the_first_that_is_known(limits, learned, entry, expected):
    assert resolve_token_limit_and_source(settings(limits=limits, entry=entry), learned) == expected


@pytest.mark.parametrize("name", ["max_input_tokens", "context_window"])
def test_an_explicit_limit_above_a_learned_one_is_lowered_to_it(name):
    assert resolve_token_limit_and_source(settings(limits={name: 200_000}), 131_072) == (
        131_072,
        "learned",
    )


@pytest.mark.parametrize("name", ["max_input_tokens", "context_window"])
def test_an_explicit_limit_below_a_learned_one_stays(name):
    assert resolve_token_limit_and_source(settings(limits={name: 50_000}), 131_072) == (
        50_000,
        name,
    )


@pytest.mark.parametrize(
    ("model", "window"),
    [("claude-next-9", 200_000), ("grok-9-new", 131_072), ("nobody-knows", 128_000)],
)
def test_a_model_without_an_entry_gets_the_window_of_its_name(model, window):
    context = chat(model=model, context_window=None)
    assert context.budget().limit == window == resolve_model_info(model).context_window


@pytest.mark.parametrize(
    ("known", "limit", "unknown", "pattern"),
    [
        ("grok-4", 256_000, "grok-4.99", 2_000_000),
        ("deepseek-chat", 131_072, "deepseek-nobody-knows", 128_000),
        ("gpt-5", 272_000 + DEFAULT_OUTPUT_TOKENS, "gpt-5.99", 400_000),
    ],
)
def test_what_the_catalog_knows_of_a_model_comes_before_the_pattern_of_its_name(
    known, limit, unknown, pattern
):
    assert (
        guess_context_window_from_name(known) == guess_context_window_from_name(unknown) == pattern
    )
    assert chat(model=known, context_window=None).budget().limit == limit
    assert chat(model=unknown, context_window=None).budget().limit == pattern


@pytest.mark.parametrize(
    ("limits", "entry", "reserve"),
    [
        ({"max_output_tokens": 100}, None, 100),
        ({"max_output_tokens": 50_000}, None, 50_000),
        ({}, None, DEFAULT_OUTPUT_TOKENS),
        ({}, {"context_window": 200_000, "max_output": 4_096}, 4_096),
        ({}, {"context_window": 8_000, "max_output": 64_000}, 2_000),
        ({}, {}, DEFAULT_OUTPUT_TOKENS),
    ],
)
def test_the_reserve_is_explicit_or_the_least_of_three(limits, entry, reserve):
    assert budget(limits=limits, entry=entry).max_output == reserve


THINKING = {"thinking": {"type": "enabled", "budget_tokens": 16_000}}


@pytest.mark.parametrize(
    ("own", "reserve", "least"),
    [
        ({}, 16_000 + 8_192, 16_000 + 256),
        ({"model_info": {"max_output": 20_000}}, 20_000, 16_000 + 256),
        ({"max_output_tokens": 17_000}, 17_000, 17_000),
    ],
)
def test_what_the_model_may_think_is_reserved_beside_its_reply(own, reserve, least):
    context = Context("claude-sonnet-4-5", params=THINKING, **own)
    budget = context.budget()
    assert (budget.max_output, budget.least_output) == (reserve, least)
    context.add({"role": "user", "content": "hi"})
    assert check(context.request()) == []


def test_available_is_the_formula_of_document_0():
    made = budget(
        limits={"max_input_tokens": 150_000, "max_output_tokens": 8_192}, head=(10_000, 99)
    )
    assert made.available == 150_000 - 2_500 - 8_192 - 15_000


def test_available_and_room_are_never_negative():
    made = budget(limits={"max_input_tokens": 1_000, "max_output_tokens": 900}, head=(9_999, 9_999))
    assert (made.available, made.room, made.tokens_at_share(0.7)) == (0, 0, 0)


def test_room_takes_off_output_margin_head_and_tail():
    made = budget(
        limits={"context_window": 100_000, "max_output_tokens": 8_000},
        head=(0, 2_000),
        volatile=500,
    )
    assert made.room == int((100_000 - 8_000) / 1.15) - 2_000 - 500


def test_room_shrinks_by_what_the_provider_counts_more_than_we_do():
    assert budget(ratio=2.0).room == int(budget(ratio=1.0).room / 2)


@pytest.mark.parametrize(("ratio", "believed"), [(0.01, 0.25), (0.5, 0.5), (1.5, 1.5), (90.0, 4.0)])
def test_a_learned_ratio_is_believed_within_bounds(ratio, believed):
    assert budget(ratio=ratio).ratio == believed


def test_a_share_counts_the_head_and_never_exceeds_the_room():
    made = budget(limits={"context_window": 200_000, "max_output_tokens": 8_192}, head=(0, 1_800))
    assert made.tokens_at_share(0.7) == 140_000 - 1_800
    assert made.tokens_at_share(0.9) == made.room < 180_000 - 1_800


def test_an_input_limit_of_the_model_leaves_the_output_beside_it():
    entry = {"context_window": 400_000, "input_limit": 272_000, "max_output": 128_000}
    assert budget(entry=entry).limit == 272_000 + DEFAULT_OUTPUT_TOKENS
    assert budget(entry=entry, limits={"context_window": 400_000}).limit == 400_000


def test_a_price_cliff_is_a_soft_limit_unless_the_user_sets_one():
    entry = {"context_window": 1_000_000, "max_output": 8_192, "soft_window": 200_000}
    assert budget(entry=entry).soft_limit == 200_000
    assert budget(entry=entry).limit == 1_000_000
    assert budget(entry=entry, limits={"max_input_tokens": 900_000}).soft_limit == 900_000


def test_below_a_price_cliff_available_and_shares_are_those_of_the_cheap_window():
    entry = {"context_window": 1_000_000, "max_output": 8_192, "soft_window": 200_000}
    made = budget(entry=entry, head=(4_000, 1_000))
    assert made.available == 200_000 - 1_000 - 8_192 - 20_000
    assert made.tokens_at_share(0.7) == 140_000 - 1_000
    assert made.room == int((200_000 - 8_192) / 1.15) - 1_000


@pytest.mark.parametrize(
    ("tokens", "messages"),
    [
        (1_000, 100),
        (10_000, 100),
        (10_399, 102),
        (100_000, 1_000),
        (128_000, 1_280),
        (200_000, 2_000),
        (1_000_000, 2_000),
        (None, 1_000),
        (0, 1_000),
    ],
)
def test_a_session_keeps_twice_the_messages_that_fit_at_200_tokens_each(tokens, messages):
    assert compute_max_messages_in_memory(tokens) == messages
    assert DEFAULT_ACTOR_MESSAGE_LIMIT == 1_000


def test_a_quarter_is_rounded_up():
    assert [bytes_to_tokens(size) for size in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_system_prompt_and_tools_are_in_the_head():
    tool = {"name": "read", "input_schema": {"type": "object"}, "description": prose(4_000)}
    bare, full = claude(), claude(system=prose(4_000), tools=[tool])
    assert full.budget().head.bytes >= bare.budget().head.bytes + 8_000
    assert full.budget().room < bare.budget().room - 1_500
    assert full.budget().available <= bare.budget().available - 2_000


def test_the_default_window_is_128000():
    assert DEFAULT_WINDOW_TOKENS == 128_000


@given(
    limit=st.integers(100, 2_000_000),
    output=st.integers(1, 100_000),
    head=st.integers(0, 50_000),
    part=st.floats(0, 2),
)
def test_a_trigger_is_never_above_the_room(limit, output, head, part):
    made = Budget(
        limit=limit,
        source="default",
        soft_limit=limit,
        head=Size(bytes=head * 4, tokens=head),
        max_output=output,
    )
    assert 0 <= made.tokens_at_share(part) <= made.room <= limit


@pytest.mark.parametrize("policy", ["auto", "layered", "thresholds"])
def test_a_thinking_budget_leaves_room_in_a_small_window(policy):
    thinks = {"thinking": {"type": "enabled", "budget_tokens": 24_000}}
    context = claude(policy, context_window=32_000, params=thinks)
    for number in range(4):
        context.add(user(f"question {number}"))
        context.request()
        context.add({"role": "assistant", "content": f"answer {number}"})
    context.add(user("And?"))
    context.request()
    assert context.window.visible_messages == 9


def test_input_alone_stays_below_what_a_model_takes_of_it():
    """Less output is asked for before a request fails; that makes no room for more input."""
    context = Context("gpt-5", policy="full", tokenizer=lambda text: len(text) // 4)
    entry = context.window.settings.entry
    context.pin(context.add(user("x" * 4 * (entry["input_limit"] + 1_000))))
    with pytest.raises(CannotFit):
        context.request()


def test_a_learned_ratio_below_one_enlarges_the_room_and_lowers_no_bound():
    counter = make_piecewise_counter(None)
    assert budget(ratio=0.5).room > 1.9 * budget(ratio=1.0).room
    bounds = {
        compute_input_upper_bound(counter=counter, new_tokens=1_000, learned_ratio=ratio)
        for ratio in (0.25, 0.5, 1.0)
    }
    assert len(bounds) == 1


def test_a_model_that_is_not_in_the_catalog_hides_nothing_below_70_percent_of_its_real_room():
    """Its server counts 0.6 of what the estimate for an unknown tokenizer says."""
    tools = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
    context = Context(
        "qwen3:8b",
        dialect="openai_chat",
        context_window=32_768,
        max_output_tokens=2_000,
        tools=tools,
    )
    context.add(user("Go."))
    for number in range(60):
        context.request()
        if any(isinstance(event.body, Edit) for event in context.events):
            break
        call = context.window.last_call
        assert call is not None
        real_tokens = int(0.6 * (call.body.tokens - 500))  # the server adds nothing for tools
        context.add(calls(f"c{number}", tool="read"), usage=Usage(input=max(20, real_tokens)))
        lines = (f"def function_{number}_{line}(value): return {line}\n" for line in range(60))
        context.add(result(f"c{number}", "".join(lines)))
    assert not context.report().doubt
    assert number > 10
    assert real_tokens > 0.7 * 30_768
