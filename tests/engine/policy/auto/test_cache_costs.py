"""What a cache that is read costs and saves, kept count of from call to call."""

import pytest

from tests.agents import Agent, source
from tests.conversations import prose, said, user
from tests.engine.policy.auto.contexts import Watched, above_the_mark, compacted, look_ahead
from tests.recording import decide, record_external_call
from trimtab import Context
from trimtab.engine.policy.auto import (
    MIN_GAIN_TOKENS,
    PAYBACK_FACTOR,
    CompactionForecast,
    compute_relative_cache_prices,
)
from trimtab.engine.policy.planning.plan import Plan

pytestmark = pytest.mark.usefixtures("low_mark")


def test_the_meter_grows_by_the_price_of_reading_what_could_go():
    watched = Watched()
    agent = Agent(policy=watched)
    agent.work(8)
    for _ in range(3):
        before = agent.meter
        agent.work(1)
        removed = watched.seen[-1][2].removed_tokens
        assert removed > MIN_GAIN_TOKENS
        assert agent.meter == pytest.approx(before + 0.1 * removed, abs=0.06)


def test_the_meter_is_kept_in_the_log():
    agent = above_the_mark()
    before = agent.meter
    twin = Context.load(agent.context.dump(), clock=agent.clock)
    assert twin.window.policy_note == {"meter": agent.meter}
    agent.clock.now += 1
    for context in (agent.context, twin):
        context.add(said(prose(40)))
        context.add(user("more"))
        context.request()
    assert twin.window.policy_note == agent.window.policy_note
    assert agent.meter > before


def test_the_meter_is_kept_by_calls_that_were_made_elsewhere():
    agent = above_the_mark()
    before = agent.meter
    agent.context.add(said(prose(40)))
    agent.context.add(user("more"))
    record_external_call(agent.context)
    assert agent.meter > before


def test_the_meter_starts_anew_after_a_compaction():
    agent = compacted()
    assert agent.call.note is None
    agent.work(2)
    assert 0 < agent.meter < 1_000


def test_the_meter_of_a_fork_starts_anew():
    agent = above_the_mark()
    fork = agent.context.fork()
    assert fork.window.policy_note is None
    agent.clock.now += 1
    made: list[float] = []
    for context in (agent.context, fork):
        context.add(said("ok"))
        context.add(user("more"))
        context.request()
        made.append((context.window.policy_note or {})["meter"])
    mine, forked = made
    assert 0 < forked < mine


def test_a_fork_inherits_the_warmth_of_the_cache():
    agent = above_the_mark()
    fork = agent.context.fork()
    fork.add(said("ok"))
    fork.add(user("more"))
    assert not decide(fork)
    agent.clock.now += 301
    assert decide(fork)


def test_a_warm_cache_is_left_alone_until_the_meter_has_paid_twice():
    watched = Watched()
    agent = Agent(policy=watched)
    agent.work(45)
    made = [bool(decision.edits) for *_, decision in watched.seen]
    due = [
        meter + prices.read_price * look.removed_tokens
        >= PAYBACK_FACTOR * (prices.write_price - prices.read_price) * look.rewritten_tokens
        for meter, prices, look, _ in watched.seen
    ]
    assert not any(prices.is_cold for _, prices, _, _ in watched.seen)
    assert made == due
    assert made.count(True) == 3
    assert made.index(True) > 5


@pytest.mark.parametrize("wrote", [0, 1])
def test_measured_misses_raise_the_price_of_a_read(wrote):
    agent = Agent(context_window=1_000_000)
    for number in range(6):
        size = agent.call.tokens
        agent.use(
            source(number, 8_000),
            usage={
                "input_tokens": size - wrote * size,
                "cache_creation_input_tokens": wrote * size,
                "cache_read_input_tokens": 0,
            },
        )
    prices = compute_relative_cache_prices(agent.window, agent.context.budget())
    missed = agent.window.accounting.cache_misses.miss_rate
    assert prices.read_price == pytest.approx((1 - missed) * 0.1 + missed * 1.25)
    assert (missed > 0.1) is bool(wrote)
    assert (prices.read_price > 0.2) is bool(wrote)


def test_reads_that_hit_leave_the_price_as_it_is():
    agent = Agent()
    for number in range(6):
        read = agent.call.tokens // 2
        agent.use(
            source(number, 8_000),
            usage={"input_tokens": agent.call.tokens - read, "cache_read_input_tokens": read},
        )
    assert agent.window.accounting.cache_misses.provider_reports_cache
    assert compute_relative_cache_prices(
        agent.window, agent.context.budget()
    ).read_price == pytest.approx(0.1)


def test_usage_without_a_word_of_caches_says_nothing_of_them():
    agent = Agent()
    for number in range(6):
        agent.use(source(number, 8_000), usage={"input_tokens": agent.call.tokens})
    assert not agent.window.accounting.cache_misses.provider_reports_cache
    assert compute_relative_cache_prices(
        agent.window, agent.context.budget()
    ).read_price == pytest.approx(0.1)


def test_what_is_new_in_a_call_is_not_written_again():
    agent = above_the_mark()
    before = agent.window.tokens
    agent.context.add(said(prose(8_000)))
    agent.context.add(user(prose(8_000)))
    look = ahead(agent)
    assert agent.window.tokens > before + 4_000
    assert before - 100 < look.removed_tokens + look.rewritten_tokens <= before


def ahead(agent: Agent) -> CompactionForecast:
    """What a compaction would do now."""
    return look_ahead(Plan(agent.window, agent.context.budget()))
