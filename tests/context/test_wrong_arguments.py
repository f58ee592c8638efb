"""What a caller gets wrong is named, with what to write instead."""

from __future__ import annotations

import copy
import logging
import pickle

import pytest

from tests.conversations import user
from trimtab import Context, fit

MISSPELT = "claude-sonet-5-5"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("max_tokens", "use max_output_tokens= instead"),
        ("stream", r"use request\(stream=True\) instead"),
        ("temperature", r"params=\{'temperature': …\}"),
        ("sytem", "did you mean 'system'"),
    ],
)
def test_an_unknown_option_of_a_context_is_named_with_the_right_one(name, advice):
    with pytest.raises(TypeError, match=f"Context has no option '{name}'; .*{advice}"):
        Context("gpt-4o", **{name: 1})
    with pytest.raises(TypeError, match=f"Context has no option '{name}'; .*{advice}"):
        fit([user("Hello.")], model="gpt-4o", **{name: 1})


def test_an_unknown_argument_of_a_request_is_named_with_the_option():
    context = Context("gpt-4o")
    context.add(user("Hello."))
    with pytest.raises(TypeError, match=r"Context.request has no .*params=\{'temperature': …\}"):
        context.request(temperature=1)
    with pytest.raises(TypeError, match="use max_output_tokens= instead"):
        context.request(max_tokens=1)


def test_a_misspelt_model_is_said_once_in_the_log_and_in_every_report(caplog):
    caplog.set_level(logging.WARNING, "trimtab.context")
    contexts = [Context(MISSPELT) for _ in range(3)]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert f"no model '{MISSPELT}'; did you mean 'claude-sonnet-5-5'?" in said[0]
    assert "200,000 tokens and no prices" in said[0]
    for context in contexts:
        assert context.report().model_doubt == said[0]
        assert said[0] in context.report().breakdown()


@pytest.mark.parametrize(
    ("model", "model_info"),
    [("claude-sonnet-5-5", None), ("gpt-99-mega", None), ("claude-sonet-5-5", "claude-sonnet-5-5")],
)
def test_a_listed_a_foreign_and_a_described_model_are_not_doubted(model, model_info, caplog):
    context = Context(model, model_info=model_info)
    assert context.report().model_doubt == ""
    assert not caplog.records


def test_a_context_says_how_to_keep_it_instead_of_pickling_it():
    context = Context("gpt-4o")
    context.add(user("Hello."))
    with pytest.raises(TypeError, match=r"pickle context.dump\(\), .* Context.load\(lines\)"):
        pickle.dumps(context)
    kept = pickle.dumps(context.dump())
    assert Context.load(pickle.loads(kept)).request() == context.request()  # noqa: S301 - our own


def test_a_copy_is_made_even_if_its_hook_has_the_context():
    class Chat:
        def __init__(self):
            self.context = Context("gpt-4o", on_edit=self.hear)

        def hear(self, notice):
            pass

    chat = Chat()
    twin = copy.deepcopy(chat)
    twin.context.add(user("Only here."))
    assert twin.context.window.seq > chat.context.window.seq


@pytest.mark.parametrize(
    ("count", "error"), [(-1, ValueError), (0, ValueError), (2.5, TypeError), (None, TypeError)]
)
def test_a_tokenizer_that_counts_nothing_is_refused(count, error):
    with pytest.raises(error, match=rf"tokenizer returned {count} for 'Hello.'; it must be"):
        Context("gpt-4o", tokenizer=lambda text: count)
