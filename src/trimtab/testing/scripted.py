"""A provider that says what a test tells it to, without any network."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from trimtab.catalog import resolve
from trimtab.core.event import Usage
from trimtab.core.tokens import piecewise
from trimtab.dialects import dialect as dialect_of
from trimtab.providers.provider import Failure, ProviderError
from trimtab.testing.answer import Answer, Call, Frame, Ids
from trimtab.testing.arguments import as_text
from trimtab.testing.counting import RequestCounter
from trimtab.testing.media import refused_media
from trimtab.testing.pairing import unpaired
from trimtab.testing.wires import wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A reply that breaks off."""

    answer: Answer
    """What would have been said."""
    failure: Failure
    """What is raised instead of the rest."""
    events: int = 3
    """How many of a stream's events come before; without a stream none do."""


Reply: TypeAlias = "str | Call | Sequence[Call] | Answer | Failure | Broken | Exception"
Scripted: TypeAlias = "Reply | Callable[[Mapping[str, Any]], Reply]"


class RequestRefused(AssertionError):
    """A request that the real API would refuse."""

    def __init__(self, number: int, violations: Sequence[str]) -> None:
        self.violations = tuple(violations)
        lines = "\n".join(f"- {each}" for each in violations)
        super().__init__(f"request {number} breaks {len(violations)} rules of its API:\n{lines}")


class NoReplyLeft(AssertionError):
    """More requests than replies."""

    def __init__(self, replies: int) -> None:
        super().__init__(
            f"request {replies + 1} came, and the script has {replies} replies; script another "
            "one, or find out who called"
        )


class ScriptedProvider:
    """A `Provider` for tests. Each request takes the next of the replies:

    a text, a `Call` or several, an `Answer` with all of it, a `Failure` or an exception to be
    raised, a `Broken` stream, or a function of the request that returns one of these. Requests are
    checked as the API would check them; one that it would refuse raises `RequestRefused`.
    """

    def __init__(self, dialect: str, replies: Iterable[Scripted] = (), *, seed: str = "") -> None:
        self._dialect = dialect_of(dialect)
        self._wire = wire(dialect)
        self._replies = list(replies)
        self._ids = Ids(seed)
        self._counters: dict[str, RequestCounter] = {}
        self.requests: list[dict[str, Any]] = []
        """Copies of all requests, in order; those that failed or were refused included."""
        self.closed = False
        """Whether `close` was called."""

    @property
    def dialect(self) -> str:
        """The wire format it speaks."""
        return self._dialect.name

    @property
    def left(self) -> int:
        """How many replies nobody has asked for yet."""
        return max(0, len(self._replies) - len(self.requests))

    def add(self, *replies: Scripted) -> None:
        """Append to the script."""
        self._replies += replies

    async def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """The next reply: a stream's events where `stream` is set, else one whole body."""
        number = len(self.requests)
        self.requests.append(copy.deepcopy(dict(request)))
        self._check(request, number + 1)
        if number >= len(self._replies):
            raise NoReplyLeft(len(self._replies))
        scripted = self._replies[number]
        reply = _answer(scripted(request) if callable(scripted) else scripted)
        limit = reply.events if isinstance(reply, Broken) else None
        answer = reply.answer if isinstance(reply, Broken) else reply
        body = self._wire.reply(answer, self._frame(answer, request))
        events = self._wire.events(body, request) if request.get("stream") else iter([body])
        for count, event in enumerate(events):
            if limit is not None and (count >= limit or not request.get("stream")):
                break
            yield event
        if isinstance(reply, Broken):
            raise ProviderError(reply.failure)

    async def close(self) -> None:
        """Nothing is held."""
        self.closed = True

    def _check(self, request: Mapping[str, Any], number: int) -> None:
        wrong = self._dialect.check(request)
        if not wrong and (pair := unpaired(request, self.dialect)) is not None:
            wrong = [pair]
        if not wrong and (media := refused_media(request, self.dialect)) is not None:
            wrong = [media.message]
        if wrong:
            raise RequestRefused(number, wrong)

    def _frame(self, answer: Answer, request: Mapping[str, Any]) -> Frame:
        model = str(request.get("model", ""))
        usage = answer.usage
        if usage is None:
            usage = self._usage(answer, request, model)
        return Frame(model=model, ids=self._ids, usage=usage, request=request)

    def _usage(self, answer: Answer, request: Mapping[str, Any], model: str) -> Usage:
        """As Trimtab itself estimates it, so that a test learns nothing about the model."""
        if model not in self._counters:
            self._counters[model] = RequestCounter(piecewise(resolve(model).tokenizer).count)
        counter = self._counters[model]
        called = (f"{call.name} {as_text(call.arguments)}" for call in answer.calls)
        said = " ".join([answer.thinking or "", answer.text, *called])
        total = counter.total(counter.pieces(request, self.dialect))
        return Usage(input=total, output=counter.text(said))


def _answer(reply: Reply) -> Answer | Broken:
    match reply:
        case str():
            return Answer(text=reply)
        case Call():
            return Answer(calls=(reply,))
        case Answer() | Broken():
            return reply
        case Failure():
            raise ProviderError(reply)
        case Exception():
            raise reply
        case _:
            return Answer(calls=tuple(reply))
