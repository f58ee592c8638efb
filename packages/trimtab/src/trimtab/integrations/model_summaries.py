"""Summaries by a framework's own model: `summaries="model"`.

A module says how its framework's model answers one question. The model is called on the event loop
that waits for the fit, because its connections belong to that loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Literal, NamedTuple, cast

from trimtab.engine.log.event import Usage
from trimtab.errors import ProviderError
from trimtab.integrations.refusal import find_refusal
from trimtab.models.catalog import ModelInfoValues
from trimtab.session.events import TurnEvent
from trimtab.session.model_summaries import summarise_oversized_results, summarise_session_if_due
from trimtab.session.session import Session
from trimtab.session.summariser import Summariser

SummaryWriter = Literal["extractive", "model"]
"""Who writes summaries: nobody (lines of the conversation are extracted), or the framework's
model."""


class ModelAnswer(NamedTuple):
    """What a framework's model has answered."""

    text: str
    """The text of its reply."""
    usage: Usage | None
    """What the provider reported; None for nothing."""


AskModel = Callable[[str, str], Awaitable[ModelAnswer]]
"""Asks the framework's model with a system prompt and a text."""


async def summarise_before_call(
    session: Session, ask: AskModel, loop: asyncio.AbstractEventLoop
) -> None:
    """Let the framework's model write the summaries that are due before the next call.

    If one fails or is unusable, the session goes on without it: with an extract if there is no more
    room.
    """
    settings = session.window.settings
    summariser = Summariser(
        provider=_FrameworkModel(ask, loop),
        model=settings.model,
        context_window=session.budget().limit,
        model_info=cast("ModelInfoValues", session.options.model_info),
    )
    await summarise_oversized_results(session, summariser, _ignore_event)
    for instead_of_placeholder in (False, True):
        await summarise_session_if_due(
            session, summariser, instead_of_placeholder=instead_of_placeholder
        )


def _ignore_event(_: TurnEvent) -> None:
    pass


class _FrameworkModel:
    """The framework's model as a provider."""

    dialect = "openai_chat"

    def __init__(self, ask: AskModel, loop: asyncio.AbstractEventLoop) -> None:
        self._ask = ask
        self._loop = loop

    async def send(self, request: Mapping[str, Any]) -> AsyncGenerator[Mapping[str, Any]]:
        system, user = request["messages"]
        try:
            answer = await self._ask_on_its_loop(system["content"], user["content"])
        except Exception as error:
            failure = find_refusal(error)
            if failure is None:
                raise
            raise ProviderError(failure) from error
        yield _build_body(answer)

    async def _ask_on_its_loop(self, system: str, text: str) -> ModelAnswer:
        if self._loop is asyncio.get_running_loop():
            return await self._ask(system, text)

        async def ask() -> ModelAnswer:
            return await self._ask(system, text)

        future = asyncio.run_coroutine_threadsafe(ask(), self._loop)
        return await asyncio.wrap_future(future)

    async def close(self) -> None:
        """The framework closes its model."""


def _build_body(answer: ModelAnswer) -> dict[str, Any]:
    message = {"role": "assistant", "content": answer.text}
    body: dict[str, Any] = {
        "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
    }
    if answer.usage is not None:
        body["usage"] = {
            "prompt_tokens": answer.usage.input,
            "completion_tokens": answer.usage.output,
            "prompt_tokens_details": {"cached_tokens": answer.usage.cache_read},
        }
    return body
