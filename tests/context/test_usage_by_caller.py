"""Usage that a caller passes by hand, or that a stream does not bring."""

import logging

import pytest

from tests.conversations import said, user
from tests.replies import stream
from trimtab import Context, Usage
from trimtab.verbs.warnings import warn_once


def test_usage_whose_input_leaves_out_cached_tokens_is_refused():
    """Anthropic's own numbers. They gave a cache hit of 583."""
    context = Context("claude-sonnet-5-5")
    context.add(user("Hello."))
    context.request()
    with pytest.raises(ValueError, match=r"usage\.input is 12, .* pass input=7912"):
        context.add(said("Hi."), usage=Usage(input=12, cache_read=7_000, cache_write=900))
    assert len(context.window.entries) == 1
    context.add(said("Hi."), usage=Usage(input=7_912, cache_read=7_000, cache_write=900))
    assert context.report().cache_hit == pytest.approx(7_000 / 7_912)


def test_a_stream_without_usage_is_warned_of(caplog):
    warn_once.cache_clear()
    context = Context("gpt-4o")
    context.add(user("Hello."))
    context.request()
    events = [{**event, "usage": None} for event in map(dict, stream("openai_chat"))]
    with caplog.at_level(logging.WARNING, logger="trimtab.context"):
        for _ in context.watch(events):
            pass
    assert "ended without usage" in caplog.text
    assert context.report().cost is None
