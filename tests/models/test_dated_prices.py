"""A call costs what it cost on its own day."""

from typing import Any, cast

import pytest

from trimtab import Context
from trimtab.models import ModelInfoValues

DECEMBER = 1_796_083_200.0
"""2026-12-01 in UTC, when gemini-4-argon goes from $2 and $10 to $4 and $20."""


class Clock:
    def __init__(self, now):
        self.now = now

    def __call__(self):
        return self.now


def reply(number):
    return {
        "id": f"c{number}",
        "object": "chat.completion",
        "model": "gemini-4-argon",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": f"answer {number}"},
            }
        ],
        "usage": {"prompt_tokens": 1_000, "completion_tokens": 100, "total_tokens": 1_100},
    }


def call(context, number):
    context.add({"role": "user", "content": f"question {number}"})
    context.request()
    context.add(reply(number))


def test_calls_before_and_after_the_day_keep_their_own_price():
    clock = Clock(DECEMBER - 60)
    context = Context("gemini-4-argon", clock=clock)
    call(context, 1)
    assert context.report().cost == pytest.approx(0.003)
    clock.now = DECEMBER + 60
    assert context.report().cost == pytest.approx(0.003)
    call(context, 2)
    assert context.report().cost == pytest.approx(0.003 + 0.006)


def test_a_log_that_is_read_years_later_costs_the_same():
    clock = Clock(DECEMBER - 60)
    context = Context("gemini-4-argon", clock=clock)
    call(context, 1)
    clock.now = DECEMBER + 60
    call(context, 2)
    clock.now = DECEMBER + 400 * 86_400
    again = Context.load(context.dump(), clock=clock)
    assert again.report().cost == pytest.approx(0.009)
    again.configure(system="Be brief.")
    assert again.report().cost == pytest.approx(0.009)
    assert again.window.settings.entry["input_price"] == 4
    assert "price_changes" not in again.window.settings.entry
    call(again, 3)
    assert again.report().cost == pytest.approx(0.015)


def test_a_preview_costs_what_it_would_today():
    clock = Clock(DECEMBER - 60)
    context = Context("gemini-4-argon", clock=clock)
    context.add({"role": "user", "content": "question " * 100})
    today = context.preview().cost
    assert today is not None
    clock.now = DECEMBER
    assert context.preview().cost == pytest.approx(2 * today)


def test_what_the_cache_costs_may_change_as_well():
    own = {
        "cache_read": 0.1,
        "price_changes": [{"from_date": "2026-12-01", "cache_read": 0.5}],
    }
    clock = Clock(DECEMBER - 60)
    context = Context("gemini-4-argon", model_info=cast("ModelInfoValues", own), clock=clock)
    usage: dict[str, Any] = {
        "prompt_tokens": 1_000_000,
        "completion_tokens": 0,
        "total_tokens": 1_000_000,
    }
    usage["prompt_tokens_details"] = {"cached_tokens": 1_000_000}
    costs = []
    for number in (1, 2):
        context.add({"role": "user", "content": "more"})
        context.request()
        context.add({**reply(number), "usage": usage})
        costs.append(context.report().cost)
        clock.now = DECEMBER
    assert costs == pytest.approx([0.2, 0.2 + 1.0])
