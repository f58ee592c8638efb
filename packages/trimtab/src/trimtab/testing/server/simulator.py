"""The simulated provider itself, without sockets: bytes of a request in, a response out."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, cast

from trimtab.engine.log.event import Usage
from trimtab.models.catalog import ModelInfo
from trimtab.testing.replies import ReplyMetadata, ScriptedReply, SeededIds
from trimtab.testing.request_counter import RequestBlock, RequestCounter
from trimtab.testing.server import (
    anthropic_rules,
    openai_chat_rules,
    openai_responses,
    openai_rules,
)
from trimtab.testing.server.cache_diagnosis import CacheDiagnoses
from trimtab.testing.server.client_requests import wants_summary, write_summary
from trimtab.testing.server.message_threads import MessageThreads
from trimtab.testing.server.options import ProviderSimulatorOptions
from trimtab.testing.server.prompt_cache import ServerPromptCache
from trimtab.testing.server.provider_error_catalog import PROVIDER_FAULTS
from trimtab.testing.server.request_log import RecordedRequest, RequestLog
from trimtab.testing.server.responses import (
    ProviderRefusal,
    SimulatedResponse,
    build_anthropic_error_body,
    build_openai_error_body,
)
from trimtab.testing.server.script import ScriptStep, SimulatorScript, find_newest_user_text
from trimtab.testing.server.script_step_replies import MeasuredReply, generate_reply
from trimtab.testing.server.server_side_editing import (
    EditedRequest,
    edit_anthropic_request,
    edit_responses_request,
)
from trimtab.testing.wire_formats import get_wire_format

MAX_ANTHROPIC_BODY_BYTES = 32_000_000
"""Maximum size of a body of the Messages API in bytes."""
MAX_OPENAI_BODY_BYTES = 512_000_000
"""The same for OpenAI's APIs. OpenAI documents this limit, and a lower one for images."""
STEP_HEADER = "x-simulate"
"""The header with a request's own step, as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _AcceptedRequest:
    """A request that was accepted."""

    dialect: str
    """The dialect of the endpoint."""
    request: Mapping[str, Any]
    """The request as received."""
    full_request: Mapping[str, Any]
    """The request with what it refers to."""
    key: str
    """The API key."""
    blocks: list[RequestBlock]
    """The blocks of the request."""
    counter: RequestCounter
    """The counter for the blocks."""
    model_info: ModelInfo
    """What is known about the model."""
    input_tokens: int
    """The number of input tokens."""
    output_limit: int
    """Maximum number of tokens for the reply."""
    edited: EditedRequest
    """The request with the provider's own edits."""

    @property
    def requested_output(self) -> int:
        return _requested_output(self.request)


class ProviderSimulator:
    """A simulated provider with three APIs, for tests. Requests are handled one after the other.

    Serve it with `serve_simulated_provider`.

    Args:
        options: The options. By default those of `ProviderSimulatorOptions`.
        clock: The clock in seconds since the epoch, for caches.
    """

    def __init__(
        self,
        options: ProviderSimulatorOptions | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._options = options or ProviderSimulatorOptions()
        self._clock = clock
        self._ahead = 0.0
        self._counters: dict[str, RequestCounter] = {}
        self._ids = SeededIds(self._options.seed or secrets.token_hex(3))
        self._kept = openai_responses.StoredResponses()
        self._threads = MessageThreads()
        self._diagnoses = CacheDiagnoses()
        self.script = SimulatorScript()
        """The next steps of the model."""
        self.records = RequestLog()
        """The received requests."""
        self.cache = ServerPromptCache()
        """The stored prefixes."""

    @property
    def options(self) -> ProviderSimulatorOptions:
        """The current options."""
        return self._options

    def configure(self, **changes: Any) -> None:
        """Change options for all further requests."""
        self._options = replace(self._options, **changes)
        self._counters.clear()

    def now(self) -> float:
        """Return the simulated time, which decides when caches expire."""
        return self._clock() + self._ahead

    def advance_clock(self, seconds: float) -> None:
        """Move the simulated time forward."""
        self._ahead += seconds

    def stats(self) -> dict[str, int]:
        """Return the number of requests, and their outcomes."""
        return self.records.stats()

    def reset(self) -> None:
        """Forget requests, counts, scripts and caches. Options and ids continue."""
        self.records.clear()
        self.cache.clear()
        self.script = SimulatorScript()
        self._kept = openai_responses.StoredResponses()
        self._threads = MessageThreads()
        self._diagnoses = CacheDiagnoses()

    def handle_request(
        self, dialect: str, headers: Mapping[str, str], raw_body: bytes
    ) -> SimulatedResponse:
        """Return the response to a request of a dialect."""
        record = self.records.start_record(dialect, raw_body if self._options.keeps else b"")
        try:
            accepted_request = self._accept(dialect, headers, raw_body, record)
            step = self._choose_step(accepted_request, headers)
            if step.fault is not None:
                return self._build_fault(accepted_request, step, record)
            return self._build_reply(accepted_request, step, record)
        except ProviderRefusal as refusal:
            record.fate = refusal.cause
            record.status = refusal.status
            record.message = str(refusal)
            return self._build_refusal(dialect, raw_body, refusal)
        finally:
            self.records.finish_record(record)

    def _choose_step(self, asked: _AcceptedRequest, headers: Mapping[str, str]) -> ScriptStep:
        """Return the next step of the script, or a summary if the request asks for one and the
        script has one or goes on with a call."""
        header = headers.get(STEP_HEADER)
        newest = find_newest_user_text(asked.full_request)
        if header is None and wants_summary(asked.full_request):
            if self.script.summary is not None:
                return self.script.summary
            if self.script.next_step_calls(asked.key, newest):
                return ScriptStep(text=write_summary(asked.full_request))
        return self.script.take_step(asked.key, header, newest)

    def handle_count_request(
        self, dialect: str, headers: Mapping[str, str], raw_body: bytes
    ) -> SimulatedResponse:
        """Return the provider's own count of a request. It is not recorded."""
        rules = anthropic_rules if dialect == "anthropic" else openai_rules
        try:
            rules.check_api_key(headers, self._options)
            request = whole = self._parse_body(raw_body, dialect)
            if dialect == "anthropic":
                anthropic_rules.validate_anthropic_request(
                    request, self._options, for_token_count=True
                )
            else:
                whole = self._kept.expand_request(request, for_token_count=True)
                openai_responses.validate_responses_request(
                    request, whole, self._kept, self._options
                )
        except ProviderRefusal as refusal:
            return SimulatedResponse(status=refusal.status, body=refusal.body)
        counter = self._counter(request["model"])
        count_json = {"input_tokens": counter.total_tokens(counter.split_blocks(whole, dialect))}
        if dialect != "anthropic":
            count_json = {"object": "response.input_tokens", **count_json}
        return SimulatedResponse(body=count_json)

    def _accept(
        self,
        dialect: str,
        headers: Mapping[str, str],
        raw_body: bytes,
        record: RecordedRequest,
    ) -> _AcceptedRequest:
        request = whole = self._read_request(dialect, headers, raw_body, record)
        match dialect:
            case "anthropic":
                whole = self._threads.expand_request(request, headers)
                anthropic_rules.validate_anthropic_request(whole, self._options)
            case "openai_chat":
                openai_chat_rules.validate_chat_request(request, self._options)
            case _:
                whole = self._kept.expand_request(request)
                openai_responses.validate_responses_request(
                    request, whole, self._kept, self._options
                )
        entry = self._options.resolve_model_info(request["model"], dialect)
        counter = self._counter(request["model"])
        edited_request = EditedRequest(request=whole)
        if dialect == "anthropic":
            edited_request = edit_anthropic_request(whole, headers, counter)
        elif dialect == "openai_responses":
            most = min(entry.input_limit, entry.context_window - _requested_output(request))
            edited_request = edit_responses_request(whole, counter, input_limit=most)
        pieces = counter.split_blocks(edited_request.request, dialect)
        record.tokens = tokens = counter.total_tokens(pieces)
        match dialect:
            case "anthropic":
                room = anthropic_rules.compute_anthropic_limit_or_refuse(
                    request, tokens, entry, self._options
                )
            case "openai_chat" if self._options.truncates:
                room = request.get("max_tokens") or entry.context_window
            case "openai_chat":
                room = openai_chat_rules.compute_chat_limit_or_refuse(
                    request, tokens, pieces, counter, entry
                )
            case _:
                room = openai_responses.compute_responses_limit_or_refuse(request, tokens, entry)
        return _AcceptedRequest(
            dialect=dialect,
            request=request,
            full_request=whole,
            key=record.key,
            blocks=pieces,
            counter=counter,
            model_info=entry,
            input_tokens=tokens,
            output_limit=room,
            edited=edited_request,
        )

    def _read_request(
        self,
        dialect: str,
        headers: Mapping[str, str],
        raw_body: bytes,
        record: RecordedRequest,
    ) -> dict[str, Any]:
        """Return the request in the form of its dialect, and record who sent it."""
        rules = anthropic_rules if dialect == "anthropic" else openai_rules
        record.key = rules.check_api_key(headers, self._options)
        return self._parse_body(raw_body, dialect)

    def _parse_body(
        self, raw_body: bytes, dialect: str, max_bytes: int | None = None
    ) -> dict[str, Any]:
        if max_bytes is None:
            is_anthropic = dialect == "anthropic"
            max_bytes = MAX_ANTHROPIC_BODY_BYTES if is_anthropic else MAX_OPENAI_BODY_BYTES
        build = build_anthropic_error_body if dialect == "anthropic" else build_openai_error_body
        if len(raw_body) > (self._options.max_body_bytes or max_bytes):
            body = build(413, "Request exceeds the maximum size")
            raise ProviderRefusal(413, body, cause="overflow")
        try:
            request = json.loads(raw_body)
        except ValueError:
            request = None
        if isinstance(request, dict):
            return cast("dict[str, Any]", request)
        body = build(400, "We could not parse the JSON body of your request.")
        raise ProviderRefusal(400, body)

    def _counter(self, model: str) -> RequestCounter:
        if model not in self._counters:
            count = self._options.get_token_counter(model)
            self._counters[model] = RequestCounter(count, scale=self._options.heavier)
        return self._counters[model]

    def _build_reply(
        self, accepted: _AcceptedRequest, step: ScriptStep, record: RecordedRequest
    ) -> SimulatedResponse:
        spoken = generate_reply(
            step,
            accepted.full_request,
            seed=self.records.total,
            thinks=self._options.thinks and _wants_thinking(accepted),
            counter=accepted.counter,
            max_tokens=accepted.output_limit,
            cut_stop_reason=_choose_cut_stop(accepted),
        )
        reply = get_wire_format(accepted.dialect).build_reply_body(
            spoken.reply, self._build_metadata(accepted, step, spoken)
        )
        if accepted.dialect == "openai_responses":
            self._kept.store_reply(accepted.full_request, reply)
        elif accepted.dialect == "anthropic":
            self._threads.store_reply(accepted.request, accepted.full_request, reply)
        self._diagnoses.add_to_reply(accepted.dialect, reply, accepted.request, accepted.blocks)
        record.reply = reply
        events = None
        if accepted.request.get("stream"):
            events = get_wire_format(accepted.dialect).stream_reply_events(reply, accepted.request)
        return SimulatedResponse(
            body=reply,
            events=events,
            has_event_names=accepted.dialect != "openai_chat",
            headers={"request-id": f"req_{record.number}", "x-request-id": f"req_{record.number}"},
            cut=step.cut,
            delay=step.delay,
            pace=step.pace,
        )

    def _build_metadata(
        self, accepted: _AcceptedRequest, step: ScriptStep, sized: MeasuredReply
    ) -> ReplyMetadata:
        usage = Usage(input=accepted.input_tokens, output=sized.tokens)
        shown_tokens = step.truncate
        if self._options.truncates and accepted.input_tokens > accepted.model_info.context_window:
            shown_tokens = accepted.model_info.context_window // 2
        hours = 0
        if shown_tokens is not None:
            usage = replace(usage, input=min(accepted.input_tokens, shown_tokens))
        else:
            request = accepted.request
            options: Mapping[str, Any] = request.get("prompt_cache_options") or {}
            bill = self.cache.record_request(
                f"{accepted.key}\0{request['model']}\0{request.get('prompt_cache_key', '')}",
                accepted.blocks,
                salt=json.dumps([request.get("thinking"), request.get("tool_choice")]),
                model_info=accepted.model_info,
                scale_tokens=accepted.counter.scale_tokens,
                now=self.now(),
                is_anthropic=accepted.dialect == "anthropic",
                marks_end=accepted.dialect != "anthropic" and options.get("mode") != "explicit",
            )
            usage = replace(usage, cache_read=bill.read, cache_write=bill.written)
            hours = bill.hour_written
        return ReplyMetadata(
            model=accepted.request["model"],
            ids=self._ids,
            usage=usage,
            thinking_tokens=sized.thinking_tokens,
            hour_cache_tokens=hours,
            created=math.floor(self.now()),
            previous_signature=anthropic_rules.find_signature_to_chain_from(accepted.request)
            if accepted.dialect == "anthropic"
            else "",
            encrypts_reasoning="reasoning.encrypted_content"
            in (accepted.request.get("include") or ()),
            request=accepted.request,
            applied_edits=accepted.edited.applied_edits,
            compacted_tokens=accepted.edited.compacted_tokens,
        )

    def _build_fault(
        self, accepted: _AcceptedRequest, step: ScriptStep, record: RecordedRequest
    ) -> SimulatedResponse:
        fault = PROVIDER_FAULTS[str(step.fault)]
        input_tokens = accepted.input_tokens if step.input is None else step.input
        requested_output = accepted.requested_output if step.requested is None else step.requested
        functions = openai_rules.sum_tool_definition_tokens(accepted.blocks, accepted.counter)
        numbers = {
            "limit": accepted.model_info.context_window if step.limit is None else step.limit,
            "input": input_tokens,
            "messages": input_tokens - functions,
            "functions": functions,
            "requested": requested_output,
            "total": input_tokens + requested_output,
        }
        body = fault.build_body(accepted.dialect, numbers)
        record.fate = "fault"
        record.status = fault.status
        record.message = f"{step.fault}: {body if isinstance(body, str) else json.dumps(body)}"
        headers = dict(fault.headers)
        if step.retry_after is not None:
            headers["retry-after"] = f"{step.retry_after:g}"
        late = step.in_stream is not None and accepted.request.get("stream")
        fails_in_stream = (
            accepted.dialect == "openai_responses" and step.fault == "openai_responses"
        )
        if isinstance(body, dict) and accepted.request.get("stream") and (late or fails_in_stream):
            record.status = 200
            return self._build_stream_fault(accepted, step, body)
        return SimulatedResponse(status=fault.status, body=body, headers=headers, delay=step.delay)

    def _build_stream_fault(
        self, accepted: _AcceptedRequest, step: ScriptStep, body: Mapping[str, Any]
    ) -> SimulatedResponse:
        """Return the first events of a reply, and then the error as this API streams it."""
        spoken = generate_reply(
            replace(step, fault=None),
            accepted.request,
            seed=self.records.total,
            thinks=False,
            counter=accepted.counter,
            max_tokens=accepted.output_limit,
            cut_stop_reason=_choose_cut_stop(accepted),
        )
        reply = get_wire_format(accepted.dialect).build_reply_body(
            spoken.reply, self._build_metadata(accepted, step, spoken)
        )
        before = get_wire_format(accepted.dialect).stream_reply_events(reply, accepted.request)
        first = islice(before, 2 if step.in_stream is None else step.in_stream)
        return SimulatedResponse(
            events=_end_with_error(first, accepted.dialect, reply, body),
            has_event_names=accepted.dialect != "openai_chat",
            delay=step.delay,
            pace=step.pace,
        )

    def _build_refusal(
        self, dialect: str, raw_body: bytes, refusal: ProviderRefusal
    ) -> SimulatedResponse:
        """Build the refusal. Responses sends a window error of a stream inside of the stream."""
        if refusal.cause == "overflow" and refusal.status != 413 and dialect == "openai_responses":
            request = self._parse_body(raw_body, dialect)
            if request.get("stream"):
                frame = ReplyMetadata(
                    model=request["model"], ids=self._ids, usage=Usage(input=0), request=request
                )
                reply = get_wire_format(dialect).build_reply_body(ScriptedReply(), frame)
                events = get_wire_format(dialect).stream_reply_events(reply, request)
                return SimulatedResponse(
                    events=_end_with_error(islice(events, 2), dialect, reply, refusal.body)
                )
        return SimulatedResponse(status=refusal.status, body=refusal.body)


def _requested_output(request: Mapping[str, Any]) -> int:
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    return next((request[name] for name in names if request.get(name)), 0)


def _end_with_error(
    events: Iterator[dict[str, Any]],
    dialect: str,
    reply: Mapping[str, Any],
    body: Mapping[str, Any],
) -> Iterator[Mapping[str, Any]]:
    number = 0
    for event in events:
        number += 1
        yield event
    if dialect == "openai_responses":
        error = body["error"]
        error_json = {"code": error.get("code") or "server_error", "message": error["message"]}
        failed_reply: dict[str, Any] = {
            **reply,
            "status": "failed",
            "output": [],
            "usage": None,
            "error": error_json,
        }
        yield {"type": "response.failed", "sequence_number": number, "response": failed_reply}
    else:
        yield body


def _wants_thinking(accepted: _AcceptedRequest) -> bool:
    match accepted.dialect:
        case "anthropic":
            return anthropic_rules.asks_for_thinking(accepted.request)
        case "openai_responses":
            return openai_rules.is_openai_reasoning_model(accepted.request["model"])
        case _:
            return False


def _choose_cut_stop(accepted: _AcceptedRequest) -> str:
    match accepted.dialect:
        case "anthropic":
            return anthropic_rules.choose_cut_stop_reason(accepted.request, accepted.output_limit)
        case "openai_chat":
            return "length"
        case _:
            return "max_output_tokens"
