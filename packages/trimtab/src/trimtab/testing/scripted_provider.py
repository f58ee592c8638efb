"""A provider for tests that returns scripted replies without any network."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from trimtab.dialects import get_dialect as dialect_of
from trimtab.engine.log.event import Usage
from trimtab.engine.tokens.counter import make_piecewise_counter
from trimtab.errors import ProviderError, ProviderFailureDetails, TrimtabError
from trimtab.models.catalog import resolve_model_info
from trimtab.testing.media_check import find_media_error
from trimtab.testing.pair_check import find_pairing_error
from trimtab.testing.replies import ReplyMetadata, ScriptedCall, ScriptedReply, SeededIds
from trimtab.testing.request_counter import RequestCounter
from trimtab.testing.tool_arguments import dump_tool_arguments
from trimtab.testing.wire_formats import get_wire_format


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenReply:
    """A reply that fails before it is complete."""

    reply: ScriptedReply
    """The reply that would have been sent."""
    failure: ProviderFailureDetails
    """The failure that is raised instead of the rest."""
    events_before_failure: int = 3
    """Number of stream events before the failure. Without a stream, no events are sent."""


ScriptedFailure: TypeAlias = "ProviderFailureDetails | BrokenReply | Exception"
"""A call of the script that fails."""
ReplyLike: TypeAlias = (
    "str | ScriptedCall | Sequence[ScriptedCall] | ScriptedReply | ScriptedFailure"
)
"""One reply of a script, in the shortest form that says it."""
ReplySource: TypeAlias = "ReplyLike | Callable[[Mapping[str, Any]], ReplyLike]"
"""A script: replies in order, or a function that writes each."""


class InvalidRequestSent(TrimtabError, AssertionError):
    """A test sent a request that the real API would refuse.

    Attributes:
        violations: The rules that the request breaks.
    """

    def __init__(self, request_number: int, violations: Sequence[str]) -> None:
        self.violations = tuple(violations)
        lines = "\n".join(f"- {each}" for each in violations)
        super().__init__(
            f"request {request_number} breaks {len(violations)} rules of its API:\n{lines}"
        )


class ScriptExhausted(TrimtabError, AssertionError):
    """A test sent more requests than the script has replies."""

    def __init__(self, reply_count: int) -> None:
        super().__init__(
            f"request {reply_count + 1} arrived, but the script has only {reply_count} replies; "
            "add a reply, or find the unexpected call"
        )


class ScriptedProvider:
    """A `Provider` for tests. Each request gets the next scripted reply.

    A reply is one of these:

    - a text, a `ScriptedCall` or several, or a `ScriptedReply` with all parts
    - a `ProviderFailureDetails` or an exception, which is raised
    - a `BrokenReply`, which fails in the middle of a stream
    - a function that gets the request and returns one of these

    Requests are checked as the real API would check them. A request that it would refuse raises
    `InvalidRequestSent`. A request after the last reply raises `ScriptExhausted`.

    Args:
        dialect: `anthropic`, `openai_chat` or `openai_responses`.
        replies: The replies, in order.
        seed: Part of every id. The same seed gives the same ids.
    """

    def __init__(
        self, dialect: str, replies: Iterable[ReplySource] = (), *, seed: str = ""
    ) -> None:
        self._dialect = dialect_of(dialect)
        self._wire = get_wire_format(dialect)
        self._replies = list(replies)
        self._ids = SeededIds(seed)
        self._counters: dict[str, RequestCounter] = {}
        self.requests: list[dict[str, Any]] = []
        """Copies of all requests, in order, including those that failed or were refused."""
        self.closed = False
        """Whether `close` was called."""

    @property
    def dialect(self) -> str:
        """The wire format of the provider."""
        return self._dialect.name

    @property
    def replies_left(self) -> int:
        """The number of replies that no request has used yet."""
        return max(0, len(self._replies) - len(self.requests))

    def add_replies(self, *replies: ReplySource) -> None:
        """Append replies to the script."""
        self._replies += replies

    async def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the next reply: the events of a stream if the request sets `stream`, otherwise one
        body.

        Raises:
            InvalidRequestSent: The real API would refuse the request.
            ScriptExhausted: The script has no replies left.
            ProviderError: The reply is a failure.
        """
        number = len(self.requests)
        self.requests.append(copy.deepcopy(dict(request)))
        self._check(request, number + 1)
        if number >= len(self._replies):
            raise ScriptExhausted(len(self._replies))
        next_reply = self._replies[number]
        reply = _to_scripted_reply(next_reply(request) if callable(next_reply) else next_reply)
        limit = reply.events_before_failure if isinstance(reply, BrokenReply) else None
        answer = reply.reply if isinstance(reply, BrokenReply) else reply
        body = self._wire.build_reply_body(answer, self._frame(answer, request))
        events = (
            self._wire.stream_reply_events(body, request) if request.get("stream") else iter([body])
        )
        for count, event in enumerate(events):
            if limit is not None and (count >= limit or not request.get("stream")):
                break
            yield event
        if isinstance(reply, BrokenReply):
            raise ProviderError(reply.failure)

    async def close(self) -> None:
        """Set `closed`. Nothing needs to be released."""
        self.closed = True

    def _check(self, request: Mapping[str, Any], number: int) -> None:
        wrong = self._dialect.find_request_errors(request)
        if not wrong and (pair := find_pairing_error(request, self.dialect)) is not None:
            wrong = [pair]
        if not wrong and (media := find_media_error(request, self.dialect)) is not None:
            wrong = [media.message]
        if wrong:
            raise InvalidRequestSent(number, wrong)

    def _frame(self, answer: ScriptedReply, request: Mapping[str, Any]) -> ReplyMetadata:
        model = str(request.get("model", ""))
        usage = answer.usage
        if usage is None:
            usage = self._usage(answer, request, model)
        return ReplyMetadata(model=model, ids=self._ids, usage=usage, request=request)

    def _usage(self, answer: ScriptedReply, request: Mapping[str, Any], model: str) -> Usage:
        """Estimate the usage as Trimtab does, so that a test learns nothing new about the model."""
        if model not in self._counters:
            self._counters[model] = RequestCounter(
                make_piecewise_counter(resolve_model_info(model).tokenizer).count
            )
        counter = self._counters[model]
        call_texts = (f"{call.name} {dump_tool_arguments(call.arguments)}" for call in answer.calls)
        reply_text = " ".join([answer.thinking or "", answer.text, *call_texts])
        total = counter.total_tokens(counter.split_blocks(request, self.dialect))
        return Usage(input=total, output=counter.count_text(reply_text))


def _to_scripted_reply(reply: ReplyLike) -> ScriptedReply | BrokenReply:
    match reply:
        case str():
            return ScriptedReply(text=reply)
        case ScriptedCall():
            return ScriptedReply(calls=(reply,))
        case ScriptedReply() | BrokenReply():
            return reply
        case ProviderFailureDetails():
            raise ProviderError(reply)
        case Exception():
            raise reply
        case _:
            return ScriptedReply(calls=tuple(reply))
