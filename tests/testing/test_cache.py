"""Prompt caches: what is read and written, for how long, and how each provider reports it."""

import pytest

from tests.testing.requests import CLAUDE, GPT, MARKED, TOOLS, long, marked, user

BREAKPOINT = {"prompt_cache_breakpoint": {"mode": "explicit"}}


@pytest.fixture
def ask(claude):
    """What one call read, wrote and paid in full."""

    def asked(*blocks, **more):
        given = {"model": CLAUDE, "max_tokens": 100, "messages": [user(list(blocks))], **more}
        usage = claude.messages.create(**given).usage
        return (
            usage.cache_read_input_tokens,
            usage.cache_creation_input_tokens,
            usage.input_tokens,
        )

    return asked


def text(words):
    return {"type": "text", "text": words}


def test_what_was_marked_is_read_again_and_left_out_of_the_input(ask, simulator):
    read, written, fresh = ask(marked(long(1_500)), text("one"))
    assert (read, fresh) == (0, 4)
    assert written + fresh == simulator.records.requests[-1].tokens
    assert ask(marked(long(1_500)), text("two")) == (written, 0, 4)


def test_a_prefix_below_the_models_minimum_is_not_kept(ask):
    for _ in range(2):
        read, written, _ = ask(marked(long(300)), text("one"))
        assert (read, written) == (0, 0)


def test_five_minutes_slide_with_each_use(ask, simulator):
    _, size, _ = ask(marked(long(1_500)))
    for _ in range(3):
        simulator.advance_clock(200)
        assert ask(marked(long(1_500)))[0] == size
    simulator.advance_clock(301)
    assert ask(marked(long(1_500)))[:2] == (0, size)


def test_an_hour_is_an_hour_and_reported_apart(claude, simulator):
    blocks = [marked(long(1_500), "1h"), marked(long(1_400))]
    given = {"model": CLAUDE, "max_tokens": 100, "messages": [user(blocks)]}
    usage = claude.messages.create(**given).usage
    hour, short = (
        usage.cache_creation.ephemeral_1h_input_tokens,
        usage.cache_creation.ephemeral_5m_input_tokens,
    )
    assert hour + short == usage.cache_creation_input_tokens
    assert min(hour, short) > 2_000
    simulator.advance_clock(3_000)
    usage = claude.messages.create(**given).usage
    assert (usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (hour, short)


def test_a_use_prolongs_an_hour_by_an_hour(ask, simulator):
    _, size, _ = ask(marked(long(1_500), "1h"), text("one"))
    for _ in range(3):
        simulator.advance_clock(3_000)
        assert ask(text(long(1_500)), marked("two"))[0] == size


def test_a_changed_prefix_is_a_miss(ask):
    _, size, _ = ask(marked(long(1_500)))
    assert ask(text("first"), marked(long(1_500)))[0] == 0
    assert ask(marked(long(1_500)))[0] == size


def test_a_mark_looks_back_over_twenty_blocks(ask):
    _, size, _ = ask(marked(long(1_500)))
    near = [text(f"block {number}") for number in range(18)]
    assert ask(text(long(1_500)), *near, marked("end"))[0] == size
    far = [text(f"other {number}") for number in range(19)]
    assert ask(text(long(1_500)), *far, marked("end"))[0] == 0


def test_what_another_key_or_model_has_written_is_not_read(ask):
    _, size, _ = ask(marked(long(1_500)))
    assert size > 0
    assert ask(marked(long(1_500)), extra_headers={"x-api-key": "other"})[0] == 0
    assert ask(marked(long(1_500)), model="claude-sonnet-5")[0] == 0


def test_another_thinking_keeps_the_head_and_loses_the_messages(ask):
    head = {"system": [marked(long(1_500))]}
    _, whole, _ = ask(marked(long(1_400)), **head)
    read, written, _ = ask(marked(long(1_400)), **head, thinking={"type": "adaptive"})
    assert read > 0
    assert written > 0
    assert read + written == whole


def test_chat_reads_its_prefix_in_steps_of_128_tokens(gpt, simulator):
    def cached(*words):
        messages = [user(each) for each in words]
        usage = gpt.chat.completions.create(model=GPT, messages=messages).usage
        assert usage.prompt_tokens == simulator.records.requests[-1].tokens
        return usage.prompt_tokens_details.cached_tokens

    assert cached(long(1_500), "one") == 0
    hit = cached(long(1_500), "two")
    assert hit >= 1_024
    assert hit % 128 == 0
    assert 0 < cached(long(1_200), "three") < hit
    simulator.advance_clock(301)
    assert cached(long(1_500), "four") == 0
    assert cached(long(300)) == cached(long(300)) == 0


def test_breakpoints_are_written_and_read_exactly(gpt, simulator):
    def used(*parts):
        given = {"model": MARKED, "messages": [user([part]) for part in parts]}
        options = {"mode": "explicit"}
        usage = gpt.chat.completions.create(**given, prompt_cache_options=options).usage
        return usage.prompt_tokens_details

    first = used({**text(long(1_500)), **BREAKPOINT}, text("one"))
    assert (first.cached_tokens, first.cache_write_tokens > 1_024) == (0, True)
    # The same words unmarked are the same prefix.
    second = used(text(long(1_500)), text("two"))
    assert (second.cached_tokens, second.cache_write_tokens) == (first.cache_write_tokens, 0)
    simulator.advance_clock(1_801)
    assert used(text(long(1_500)), text("three")).cached_tokens == 0


def test_responses_reports_reads_inside_of_its_input(gpt):
    given = {"model": GPT, "input": long(1_500), "tools": TOOLS["openai_responses"]}
    gpt.responses.create(**given)
    usage = gpt.responses.create(**given).usage
    assert 1_024 <= usage.input_tokens_details.cached_tokens <= usage.input_tokens
