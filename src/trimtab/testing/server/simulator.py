"""The simulated provider itself: a request's bytes in, what goes back out, no sockets."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, cast

from trimtab.catalog import Entry
from trimtab.core.event import Usage
from trimtab.testing.answer import Answer, Frame, Ids
from trimtab.testing.counting import Piece, RequestCounter
from trimtab.testing.server import anthropic, openai, openai_chat, openai_responses
from trimtab.testing.server.cache import PromptCache
from trimtab.testing.server.faults import FAULTS
from trimtab.testing.server.options import Options
from trimtab.testing.server.outcome import Outcome
from trimtab.testing.server.records import Record, Records
from trimtab.testing.server.refusals import Refused, anthropic_body, openai_body
from trimtab.testing.server.script import Script, Step, newest_word
from trimtab.testing.server.speech import Spoken, speak
from trimtab.testing.wires import wire

LARGEST = 32_000_000
"""Bytes of a body that are taken."""
HEADER = "x-simulate"
"""A request's own step, as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A request that was taken."""

    dialect: str
    """Of the endpoint."""
    request: Mapping[str, Any]
    """As it came."""
    whole: Mapping[str, Any]
    """With what it refers to."""
    key: str
    """The API key."""
    pieces: list[Piece]
    """Its blocks."""
    counter: RequestCounter
    """What they were counted with."""
    entry: Entry
    """What is known of the model."""
    tokens: int
    """Its input."""
    room: int
    """Tokens that the reply may take."""

    @property
    def requested(self) -> int:
        names = ("max_tokens", "max_completion_tokens", "max_output_tokens")
        return next((self.request[name] for name in names if name in self.request), 0)


class Simulator:
    """One provider with three APIs. Everything is done at once and in order."""

    def __init__(
        self, options: Options | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._options = options or Options()
        self._clock = clock
        self._ahead = 0.0
        self._counters: dict[str, RequestCounter] = {}
        self._ids = Ids(self._options.seed or secrets.token_hex(3))
        self._kept = openai_responses.Kept()
        self.script = Script()
        """What the model does next."""
        self.records = Records()
        """What was received."""
        self.cache = PromptCache()
        """Prefixes that are stored."""

    @property
    def options(self) -> Options:
        """How it is set up now."""
        return self._options

    def configure(self, **changes: Any) -> None:
        """Change options for all requests to come."""
        self._options = replace(self._options, **changes)
        self._counters.clear()

    def now(self) -> float:
        """The time by which caches live."""
        return self._clock() + self._ahead

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._ahead += seconds

    def stats(self) -> dict[str, int]:
        """How many requests came, and what became of them."""
        return self.records.stats()

    def reset(self) -> None:
        """Forget requests, counts, scripts and caches; options and ids go on."""
        self.records.clear()
        self.cache.clear()
        self.script = Script()
        self._kept = openai_responses.Kept()

    def answer(self, dialect: str, headers: Mapping[str, str], raw: bytes) -> Outcome:
        """What goes back for a request of a dialect."""
        record = self.records.open(dialect, raw if self._options.keeps else b"")
        try:
            asked = self._take(dialect, headers, raw, record)
            said = newest_word(asked.whole)
            step = self.script.take(asked.key, headers.get(HEADER), said)
            if step.fault is not None:
                return self._fail(asked, step, record)
            return self._reply(asked, step, record)
        except Refused as refusal:
            record.fate, record.status = refusal.cause, refusal.status
            record.message = str(refusal)
            return self._refusal(dialect, raw, refusal)
        finally:
            self.records.close(record)

    def count(self, headers: Mapping[str, str], raw: bytes) -> Outcome:
        """Anthropic's own count of a request; it is not recorded."""
        try:
            anthropic.authenticate(headers, self._options)
            request = _parsed(raw, "anthropic")
            anthropic.examine(request, self._options, counting=True)
        except Refused as refusal:
            return Outcome(status=refusal.status, body=refusal.body)
        counter = self._counter(request["model"])
        return Outcome(body={"input_tokens": counter.total(counter.pieces(request, "anthropic"))})

    def _take(self, dialect: str, headers: Mapping[str, str], raw: bytes, record: Record) -> _Asked:
        own = anthropic if dialect == "anthropic" else openai
        record.key = key = own.authenticate(headers, self._options)
        request = whole = _parsed(raw, dialect)
        match dialect:
            case "anthropic":
                anthropic.examine(request, self._options)
            case "openai_chat":
                openai_chat.examine(request, self._options)
            case _:
                whole = self._kept.whole(request)
                openai_responses.examine(request, whole, self._kept, self._options)
        entry = self._options.entry(request["model"], dialect)
        counter = self._counter(request["model"])
        pieces = counter.pieces(whole, dialect)
        record.tokens = tokens = counter.total(pieces)
        match dialect:
            case "anthropic":
                room = anthropic.admit(request, tokens, entry, self._options)
            case "openai_chat" if self._options.truncates:
                room = request.get("max_tokens") or entry.context_window
            case "openai_chat":
                room = openai_chat.admit(request, tokens, pieces, counter, entry)
            case _:
                room = openai_responses.admit(request, tokens, entry)
        return _Asked(
            dialect=dialect,
            request=request,
            whole=whole,
            key=key,
            pieces=pieces,
            counter=counter,
            entry=entry,
            tokens=tokens,
            room=room,
        )

    def _counter(self, model: str) -> RequestCounter:
        if model not in self._counters:
            count = self._options.count(model)
            self._counters[model] = RequestCounter(count, heavier=self._options.heavier)
        return self._counters[model]

    def _reply(self, asked: _Asked, step: Step, record: Record) -> Outcome:
        spoken = speak(
            step,
            asked.request,
            number=self.records.made,
            thinks=self._options.thinks and _thinks(asked),
            counter=asked.counter,
            room=asked.room,
            cut_stop=_cut_stop(asked),
        )
        reply = wire(asked.dialect).reply(spoken.answer, self._frame(asked, step, spoken))
        if asked.dialect == "openai_responses":
            self._kept.keep(asked.whole, reply)
        record.reply = reply
        events = None
        if asked.request.get("stream"):
            events = wire(asked.dialect).events(reply, asked.request)
        return Outcome(
            body=reply,
            events=events,
            named=asked.dialect != "openai_chat",
            headers={"request-id": f"req_{record.number}", "x-request-id": f"req_{record.number}"},
            cut=step.cut,
            delay=step.delay,
            pace=step.pace,
        )

    def _frame(self, asked: _Asked, step: Step, spoken: Spoken) -> Frame:
        usage = Usage(input=asked.tokens, output=spoken.tokens)
        shown = step.truncate
        if self._options.truncates and asked.tokens > asked.entry.context_window:
            shown = asked.entry.context_window // 2
        hours = 0
        if shown is not None:
            usage = replace(usage, input=min(asked.tokens, shown))
        else:
            request = asked.request
            options: Mapping[str, Any] = request.get("prompt_cache_options") or {}
            bill = self.cache.bill(
                f"{asked.key}\0{request['model']}\0{request.get('prompt_cache_key', '')}",
                asked.pieces,
                salt=json.dumps([request.get("thinking"), request.get("tool_choice")]),
                rules=asked.entry,
                scaled=asked.counter.scaled,
                now=self.now(),
                anthropic=asked.dialect == "anthropic",
                implicit=asked.dialect != "anthropic" and options.get("mode") != "explicit",
            )
            usage = replace(usage, cache_read=bill.read, cache_write=bill.written)
            hours = bill.long_lived
        return Frame(
            model=asked.request["model"],
            ids=self._ids,
            usage=usage,
            thought=spoken.thought,
            long_lived=hours,
            created=math.floor(self.now()),
            previous=anthropic.last_seal(asked.request) if asked.dialect == "anthropic" else "",
            sealed="reasoning.encrypted_content" in (asked.request.get("include") or ()),
            request=asked.request,
        )

    def _fail(self, asked: _Asked, step: Step, record: Record) -> Outcome:
        fault = FAULTS[str(step.fault)]
        told = asked.tokens if step.input is None else step.input
        requested = asked.requested if step.requested is None else step.requested
        functions = openai.in_functions(asked.pieces, asked.counter)
        numbers = {
            "limit": asked.entry.context_window if step.limit is None else step.limit,
            "input": told,
            "messages": told - functions,
            "functions": functions,
            "requested": requested,
            "total": told + requested,
        }
        body = fault.payload(asked.dialect, numbers)
        record.fate, record.status = "fault", fault.status
        record.message = f"{step.fault}: {body if isinstance(body, str) else json.dumps(body)}"
        headers = dict(fault.headers)
        if step.retry_after is not None:
            headers["retry-after"] = f"{step.retry_after:g}"
        late = step.in_stream is not None and asked.request.get("stream")
        failed = asked.dialect == "openai_responses" and step.fault == "openai_responses"
        if isinstance(body, dict) and asked.request.get("stream") and (late or failed):
            record.status = 200
            return self._fail_in_stream(asked, step, body)
        return Outcome(status=fault.status, body=body, headers=headers, delay=step.delay)

    def _fail_in_stream(self, asked: _Asked, step: Step, body: Mapping[str, Any]) -> Outcome:
        """The first events of a reply, and then the error as this API streams it."""
        spoken = speak(
            replace(step, fault=None),
            asked.request,
            number=self.records.made,
            thinks=False,
            counter=asked.counter,
            room=asked.room,
            cut_stop=_cut_stop(asked),
        )
        reply = wire(asked.dialect).reply(spoken.answer, self._frame(asked, step, spoken))
        before = wire(asked.dialect).events(reply, asked.request)
        first = islice(before, 2 if step.in_stream is None else step.in_stream)
        return Outcome(
            events=_broken_off(first, asked.dialect, reply, body),
            named=asked.dialect != "openai_chat",
            delay=step.delay,
            pace=step.pace,
        )

    def _refusal(self, dialect: str, raw: bytes, refusal: Refused) -> Outcome:
        """Responses tells a stream that its input is too long inside of the stream."""
        if refusal.cause == "overflow" and dialect == "openai_responses":
            request = _parsed(raw, dialect)
            if request.get("stream"):
                frame = Frame(
                    model=request["model"], ids=self._ids, usage=Usage(input=0), request=request
                )
                reply = wire(dialect).reply(Answer(), frame)
                events = wire(dialect).events(reply, request)
                return Outcome(events=_broken_off(islice(events, 2), dialect, reply, refusal.body))
        return Outcome(status=refusal.status, body=refusal.body)


def _broken_off(
    first: Iterator[dict[str, Any]], dialect: str, reply: Mapping[str, Any], body: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    number = 0
    for event in first:
        number += 1
        yield event
    if dialect == "openai_responses":
        error = body["error"]
        told = {"code": error.get("code") or "server_error", "message": error["message"]}
        failed: dict[str, Any] = {
            **reply,
            "status": "failed",
            "output": [],
            "usage": None,
            "error": told,
        }
        yield {"type": "response.failed", "sequence_number": number, "response": failed}
    else:
        yield body


def _thinks(asked: _Asked) -> bool:
    match asked.dialect:
        case "anthropic":
            return anthropic.thinks(asked.request)
        case "openai_responses":
            return openai.reasons(asked.request["model"])
        case _:
            return False


def _cut_stop(asked: _Asked) -> str:
    match asked.dialect:
        case "anthropic":
            return anthropic.cut_stop(asked.request, asked.room)
        case "openai_chat":
            return "length"
        case _:
            return "max_output_tokens"


def _parsed(raw: bytes, dialect: str) -> dict[str, Any]:
    if len(raw) > LARGEST:
        body = anthropic_body(413, "Request exceeds the maximum size")
        raise Refused(413, body, cause="overflow")
    try:
        request = json.loads(raw)
    except ValueError:
        request = None
    if isinstance(request, dict):
        return cast("dict[str, Any]", request)
    message = "We could not parse the JSON body of your request."
    made = anthropic_body if dialect == "anthropic" else openai_body
    raise Refused(400, made(400, message))
