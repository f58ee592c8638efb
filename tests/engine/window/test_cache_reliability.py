"""How far a cache may be relied on, by what is reported."""

import pytest

from tests.agents import Agent
from trimtab.engine.log.event import Usage
from trimtab.engine.window.accounting import MISS_RATE_WINDOW_CALLS, CacheMissTracker


def heard(*usages: Usage, expected: int = 10_000, minimum: int = 1_024) -> CacheMissTracker:
    meter = CacheMissTracker()
    for usage in usages:
        meter.expected_read_tokens = expected
        meter.record_usage(usage, minimum)
    return meter


HIT = Usage(input=12_000, cache_read=10_000, cache_write=2_000)
MISS = Usage(input=12_000, cache_read=0, cache_write=12_000)
SILENT = Usage(input=12_000)


def test_reads_that_come_leave_the_rate_at_zero():
    assert heard(*[HIT] * 5).miss_rate == 0


def test_a_miss_counts_one_in_twenty():
    assert heard(MISS).miss_rate == pytest.approx(1 / MISS_RATE_WINDOW_CALLS)
    assert heard(*[MISS] * 200).miss_rate == pytest.approx(1, abs=1e-3)


def test_hits_make_a_miss_forgotten():
    once = heard(MISS).miss_rate
    assert 0 < heard(MISS, *[HIT] * 10).miss_rate < once


def test_a_read_of_half_of_what_was_expected_is_a_hit():
    assert heard(Usage(input=12_000, cache_read=5_000)).miss_rate == 0
    assert heard(Usage(input=12_000, cache_read=4_999)).miss_rate > 0


def test_silence_says_nothing_until_the_provider_has_reported_once():
    assert heard(*[SILENT] * 5).miss_rate == 0
    assert not heard(*[SILENT] * 5).provider_reports_cache
    assert heard(HIT, SILENT).miss_rate > 0


def test_nothing_is_learned_where_nothing_was_expected():
    assert heard(MISS, expected=0).miss_rate == 0
    assert heard(MISS, expected=1_024).miss_rate == 0
    assert heard(MISS, expected=1_025).miss_rate > 0


def usage(tokens: int, read: int = 0) -> dict[str, int]:
    return {
        "input_tokens": 0,
        "cache_creation_input_tokens": tokens - read,
        "cache_read_input_tokens": read,
    }


def warm() -> Agent:
    """An agent whose next call should be read from the cache up to 5,000 tokens."""
    agent = Agent(policy="full")
    agent.work(2)
    agent.ask(usage=usage(5_000))
    agent.answer("ok")
    return agent


def test_a_call_expects_what_the_last_one_sent():
    agent = warm()
    agent.context.request()
    assert agent.window.accounting.cache_misses.expected_read_tokens == 5_000
    agent.ask(usage=usage(6_000))
    assert agent.window.accounting.cache_misses.miss_rate == pytest.approx(
        1 / MISS_RATE_WINDOW_CALLS
    )


def test_a_call_after_the_caches_time_expects_nothing():
    agent = warm()
    agent.clock.now += 301
    agent.context.request()
    assert agent.window.accounting.cache_misses.expected_read_tokens == 0


def test_a_call_after_an_edit_of_what_was_sent_expects_nothing():
    agent = warm()
    agent.context.erase("m6")
    agent.context.request()
    assert agent.window.accounting.cache_misses.expected_read_tokens == 0


def test_a_call_with_changed_tools_expects_nothing():
    agent = warm()
    agent.context.configure(system="Be brief.")
    agent.context.request()
    assert agent.window.accounting.cache_misses.expected_read_tokens == 0


def test_a_call_without_a_reported_one_before_it_expects_nothing():
    agent = Agent(policy="full")
    agent.work(3)
    assert agent.window.accounting.cache_misses.expected_read_tokens == 0
