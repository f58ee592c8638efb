"""A tokenizer of the caller's own goes with its model."""

from dataclasses import replace
from typing import Any

import pytest

from tests.conversations import chat, user
from tests.recording import append
from trimtab import Context
from trimtab.engine.tokens.counter import EXACT_NAME_PREFIX


def letters(text):
    return len(text)


def halves(text):
    return -(-len(text) // 2)


def test_with_another_model_the_estimate_counts_again():
    context = Context("gpt-4o", tokenizer=letters)
    context.add(user("x" * 1_000))
    context.configure(model="claude-sonnet-5-5")
    plain = Context("claude-sonnet-5-5")
    plain.add(user("x" * 1_000))
    assert context.options.tokenizer is None
    assert context.window.settings.counter == plain.window.settings.counter
    assert context.window.tokens == plain.window.tokens
    assert context.report().margin == plain.report().margin


def test_a_tokenizer_that_is_given_with_the_model_counts():
    context = Context("gpt-4o", tokenizer=letters)
    context.configure(model="claude-sonnet-5-5", tokenizer=halves)
    context.add(user("x" * 1_000))
    assert context.window.tokens == 504
    context.configure(model="gpt-4o", tokenizer=context.options.tokenizer)
    assert context.options.build_counter().tokenizer is halves


def test_the_model_that_is_set_already_keeps_its_tokenizer():
    context = chat(tokenizer=letters)
    count = len(context.events)
    context.configure(model="gpt-4o", dialect="openai_chat")
    context.configure(goal="cost")
    assert context.options.tokenizer is letters
    assert len(context.events) == count + 1


def test_a_fork_from_before_the_model_changed_counts_as_then():
    context = chat("full", tokenizer=letters)
    context.add(user("x" * 1_000))
    at = context.window.seq
    context.configure(model="claude-sonnet-5-5")
    twin = context.fork(at=at)
    assert (twin.options.tokenizer, twin.window.tokens) == (letters, 1_004)
    assert context.fork().window.settings.counter == context.window.settings.counter
    again = Context.load(context.dump())
    assert again.window.tokens == context.window.tokens


@pytest.mark.parametrize(
    ("counter", "kept"), [("piecewise/claude_v3/1", None), (f"{EXACT_NAME_PREFIX}letters", letters)]
)
def test_a_model_that_somebody_else_sets_has_the_tokenizer_that_they_set(counter, kept):
    context = chat(tokenizer=letters)
    other = replace(context.window.settings, model="claude-sonnet-4-5", counter=counter)
    append(context, other)
    assert context.options.tokenizer is kept


@pytest.mark.parametrize("returned", [[1, 2], 2.0, None, True, "2"])
def test_a_tokenizer_that_returns_no_number_is_refused_where_it_is_given(returned):
    def encode(text) -> Any:
        return returned

    context = chat()
    told = r"tokenizer returned .* for 'Hello.'; it must be a function that takes a text"
    with pytest.raises(TypeError, match=told):
        Context("gpt-4o", tokenizer=encode)
    with pytest.raises(TypeError, match=told):
        context.configure(tokenizer=encode)
    with pytest.raises(TypeError, match=told):
        Context.load(context.dump(), tokenizer=encode)
    assert len(context.events) == 1
