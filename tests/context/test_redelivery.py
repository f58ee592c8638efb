"""A sender may deliver a message twice: the model is asked once, unless nobody has replied yet."""

from __future__ import annotations

import pytest

from tests.context.contexts import messages, start
from tests.conversations import said, user
from tests.lazy import anthropic, openai
from tests.replies import DIALECTS, REPLY, result
from trimtab import Context, check, fit
from trimtab.errors import NoReplyDue
from trimtab.testing import serve_simulated_provider

PAY = user("Pay 10 to the harbour.")


def deliver(context: Context) -> int:
    """Do as the documents say, and return how many calls were made."""
    context.add(PAY, key="update-871")
    if not context.window.is_reply_due:
        return 0
    request = context.request()
    assert check(request) == []
    context.add(REPLY[context.window.settings.dialect]("Paid."))
    return 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_message_that_comes_again_after_its_reply_is_not_answered_again(dialect):
    context = start(dialect)
    assert [deliver(context) for _ in range(3)] == [1, 0, 0]
    assert [deliver(Context.load(context.dump())) for _ in range(2)] == [0, 0]
    assert context.report().calls == 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_message_that_comes_again_before_its_reply_is_answered(dialect):
    context = start(dialect)
    context.add(PAY, key="update-871")
    request = context.request()
    # The process dies here.
    again = Context.load(context.dump())
    again.add(PAY, key="update-871")
    assert again.window.is_reply_due
    assert again.request() == request
    assert deliver(again) == 1
    assert deliver(again) == 0


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_reply_is_due_until_the_last_result_was_answered(dialect):
    context = start(dialect)
    assert not context.window.is_reply_due
    context.add(PAY)
    context.request()
    context.add(REPLY[dialect]("Let me see.", calls=("c1",)))
    assert context.window.is_reply_due
    context.add(result(dialect, "c1", "It is free."))
    assert context.window.is_reply_due
    context.request()
    context.add(REPLY[dialect]("Paid."))
    assert not context.window.is_reply_due


@pytest.mark.process
@pytest.mark.parametrize(
    ("model", "dialect"),
    [
        ("claude-sonnet-5-5", "anthropic"),
        ("gpt-4o", "openai_chat"),
        ("gpt-4o", "openai_responses"),
    ],
)
def test_a_caller_who_does_not_look_is_told_that_the_message_was_answered(model, dialect):
    with serve_simulated_provider() as served:
        claude = anthropic.Anthropic(base_url=served.url, api_key="any", max_retries=0)
        gpt = openai.OpenAI(base_url=f"{served.url}/v1", api_key="any", max_retries=0)
        create = {
            "anthropic": claude.messages.create,
            "openai_chat": gpt.chat.completions.create,
            "openai_responses": gpt.responses.create,
        }[dialect]
        context = Context(model, dialect=dialect)
        context.add(PAY, key="update-871")
        reply = context.add(create(**context.request()))
        assert context.add(PAY, key="update-871") == "m2"
        with pytest.raises(NoReplyDue, match=rf"{reply} is its reply .* rewind\(\)"):
            create(**context.request(volatile="It is noon."))
        assert len(served.simulator.records.requests) == 1
        context.rewind("m2")
        context.add(create(**context.request()))
        assert len(served.simulator.records.requests) == 2


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_reply_that_the_caller_has_begun_is_continued(dialect):
    context = start(dialect)
    for _ in range(2):
        context.add(user("Answer in JSON."))
        context.add({"role": "assistant", "content": "{"})
        request = context.request()
        assert check(request) == []
        assert messages(request)[-1]["role"] == "assistant"
        assert context.request() == request, "it may be sent again until there is a reply"
        context.add(REPLY[dialect]('"paid": 10}'))
        with pytest.raises(NoReplyDue):
            context.request()


def test_a_model_that_continues_no_reply_is_not_asked_to():
    context = Context("claude-sonnet-5-5")
    context.add(PAY)
    context.add(said("{"))
    with pytest.raises(NoReplyDue, match="m3, and claude-sonnet-5-5 does not continue one"):
        context.request()
    assert context.preview().report.used
    context.add(user("Go on."))
    assert check(context.request()) == []


def test_a_list_of_the_caller_may_end_with_a_reply():
    listed = [PAY, said("Paid.")]
    assert fit(listed, model="gpt-4o").messages == listed
    context = Context("gpt-4o")
    context.sync(listed[:1])
    context.request()
    context.add(said("Paid."))
    context.sync(listed)
    assert context.request()["messages"] == listed


def test_before_the_first_message_nothing_is_due():
    with pytest.raises(NoReplyDue, match="no message yet"):
        Context("gpt-4o").request()
