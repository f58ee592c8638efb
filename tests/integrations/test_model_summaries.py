"""With `summaries="model"` the framework's own model writes summaries; else lines are extracted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.conversations import prose
from tests.session.summarised_chats import GOOD
from trimtab.engine.log.event import SummaryAttempt, Usage
from trimtab.errors import ProviderError, ProviderFailureDetails
from trimtab.integrations.conversations import Conversations
from trimtab.integrations.model_summaries import ModelAnswer
from trimtab.session import Session

pytestmark = pytest.mark.anyio

ROLLING: dict[str, Any] = {"policy": "rolling", "limits": {"summary": {"list_tokens": 300}}}
USAGE = Usage(input=900, output=60)


class FrameworkModel:
    """What a module passes as `ask_model`."""

    def __init__(self, answer: Callable[[str], str] | None = None) -> None:
        self.answer = answer or (lambda _: GOOD)
        self.prompts: list[str] = []
        self.loops: list[asyncio.AbstractEventLoop] = []

    async def __call__(self, system: str, text: str) -> ModelAnswer:
        self.loops.append(asyncio.get_running_loop())
        self.prompts.append(text)
        assert "Goal and latest request:" in system
        return ModelAnswer(text=self.answer(text), usage=USAGE)


def history(length: int) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [
        {"role": roles[n % 2], "content": prose(600, f"message {n} of item_{n}")}
        for n in range(length)
    ]


async def live(
    conversations: Conversations, model: FrameworkModel | None, calls: int = 12, **head: Any
) -> list[str]:
    """The text of each request of a conversation."""
    texts: list[str] = []
    for call in range(calls):
        messages = history(2 * call + 1)
        before = repr(messages)
        view = await conversations.fit(
            "c", messages, model="gpt-4o", dialect="openai_chat", ask_model=model, **head
        )
        assert repr(messages) == before, "the framework's history is never changed"
        texts.append("\n".join(shown.message.text for shown in view))
    return texts


async def attempts(conversations: Conversations) -> list[SummaryAttempt]:
    async def read(session: Session) -> list[SummaryAttempt]:
        events = [event.body async for event in session.store.events(session.id)]
        return [body for body in events if isinstance(body, SummaryAttempt)]

    return await conversations.use_session("c", read)


async def test_the_frameworks_model_writes_the_summary_on_the_loop_that_waits_for_the_fit():
    model = FrameworkModel()
    conversations = Conversations(summaries="model", **ROLLING)
    texts = await live(conversations, model)
    assert "- some were answered" in texts[-1]
    assert "message 0 of item_0" not in texts[-1]
    assert {*model.loops} == {asyncio.get_running_loop()}
    assert "message 0 of item_0" in model.prompts[0]
    first = (await attempts(conversations))[0]
    assert (first.model, first.usage) == ("gpt-4o", USAGE)
    await conversations.close()


@pytest.mark.parametrize("summaries", ["extractive", "model"])
async def test_without_the_option_or_without_an_asker_lines_are_extracted(summaries):
    model = FrameworkModel() if summaries == "extractive" else None
    conversations = Conversations(summaries=summaries, **ROLLING)
    texts = await live(conversations, model, calls=30)
    assert model is None or not model.prompts
    assert "item_0" in texts[-1]
    assert len(texts[-1]) < len("".join(message["content"] for message in history(59))) / 2
    await conversations.close()


def fail(_: str) -> str:
    raise RuntimeError("the model is down")


@pytest.mark.parametrize(("answer", "outcome"), [(fail, "failed"), (lambda _: "", "rejected")])
async def test_a_summary_that_fails_or_is_empty_falls_back_to_the_extract(answer, outcome):
    model = FrameworkModel(answer)
    conversations = Conversations(summaries="model", **ROLLING)
    texts = await live(conversations, model, calls=40)
    assert {attempt.outcome for attempt in await attempts(conversations)} == {outcome}
    assert 1 < len(model.prompts) < 12, "again, and not at every call"
    assert "- user: message 0 of item_0" in texts[-1], "the extract"
    assert len(texts[-1]) < 0.6 * sum(len(message["content"]) for message in history(79))
    await conversations.close()


async def test_a_summary_that_is_refused_for_its_length_is_asked_for_in_smaller_pieces():
    lengths: list[int] = []

    def refuse_long(text: str) -> str:
        lengths.append(len(text))
        if len(text) > 4_000:
            details = ProviderFailureDetails(kind="overflow", message="too long", limit=1_800)
            raise ProviderError(details)
        return GOOD

    conversations = Conversations(summaries="model", **ROLLING)
    texts = await live(conversations, FrameworkModel(refuse_long))
    assert lengths[0] > 4_000 > lengths[1]
    assert "- some were answered" in texts[-1]
    await conversations.close()


def test_code_without_an_event_loop_gets_summaries_too():
    model = FrameworkModel()
    conversations = Conversations(summaries="model", **ROLLING)
    texts = conversations.run(live(conversations, model))
    assert "- some were answered" in texts[-1]
    conversations.run(conversations.close())


async def test_under_auto_the_settings_do_not_change_from_call_to_call():
    conversations = Conversations(summaries="model", context_window=6_000)
    await live(conversations, FrameworkModel(), max_output_tokens=500)

    async def count_settings(session: Session) -> int:
        return [e.body.__class__.__name__ async for e in session.store.events(session.id)].count(
            "Settings"
        )

    assert await conversations.use_session("c", count_settings) == 1
    await conversations.close()
