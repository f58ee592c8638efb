"""What is said to an agent, and what it answers."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from trimtab.agent.agent import build_redactor
from trimtab.dialects.media_validation import UnsupportedMedia, validate_and_convert_media
from trimtab.errors import PositionTaken, StoreError
from trimtab.http_api_response_types import (
    DeadLetterRetryResult,
    MessageAccepted,
    TurnControlResult,
)
from trimtab.log.edits import ERASED_PLACEHOLDER
from trimtab.log.event import MessageAdded
from trimtab.log.message import Media, Message, Part, Text
from trimtab.redaction import redacted_message
from trimtab.server.channels.http.endpoints.sessions import (
    build_session_path,
    list_callers_dead_letters,
    was_newest_turn_ended,
)
from trimtab.server.channels.http.problems import (
    HttpProblem,
    build_session_not_found_problem,
    build_unavailable_problem,
)
from trimtab.server.channels.http.request_bodies import (
    MESSAGE_KEY_PATTERN,
    SendMessageBody,
    build_invalid_fields_problem,
)
from trimtab.server.channels.http.request_context_and_operations import (
    EndpointResponse,
    RequestContext,
)
from trimtab.server.channels.http.sse import (
    EventStreamResponse,
    SessionEventStream,
    StreamEndConditions,
    StreamPosition,
    parse_event_id,
)
from trimtab.server.queue.inbound_outbound import InboundMessage
from trimtab.server.queue.protocol import MessageQueue
from trimtab.session.session import Session
from trimtab.session.turn import is_model_reply_due
from trimtab.stores.base import Store

MAX_RETRIED_SESSIONS = 1_000
"""Sessions that are revived at once."""
FIRST_POLL_S, MAX_POLL_S = 0.1, 2.0
"""Seconds before it is looked again whether a message that nobody waits for is being answered: at
first, and at most."""


async def handle_enqueue_message(request: RequestContext) -> EndpointResponse | EventStreamResponse:
    """Queue a message; its answer is read elsewhere, or follows as a stream."""
    if request.server_state.draining:
        raise build_unavailable_problem("the server is shutting down and accepts no new messages")
    address, body = request.session_address(), request.body
    assert isinstance(body, SendMessageBody)  # noqa: S101 - what the operation says
    key, read = _choose_message_key(request, body), _parse_last_event_id(request)
    message = _build_message(request, body)
    session, service = str(address), request.service
    if not await service.store.position(session):
        if read is not None:
            raise build_session_not_found_problem(
                address.agent, address.name
            )  # deleted since it was read
        with suppress(PositionTaken):
            async with service.open_session(session):
                pass  # it is there now: whoever reads its events finds it
    said = await service.store.find_key(session, key)
    after = await service.store.position(session) if said is None else said - 1
    if request.wants_stream:
        # Listened to before it is posted, so that no piece of the answer is missed.
        async with request.server_state.hubs.subscribe(session):
            if said is not None or not await service.post(
                _build_inbound_message(session, key, message)
            ):
                await _reject_reused_key(request, session, key, message, said)
        place, unknown = await _choose_start(request, session, StreamPosition(log_position=after))
        return _answer_stream(
            request,
            session,
            key,
            place,
            message_is_in_log=said is not None and said <= place.log_position,
            unknown_position=unknown,
        )
    new = said is None and await service.post(_build_inbound_message(session, key, message))
    if not new:
        await _reject_reused_key(request, session, key, message, said)
    events_url = f"{build_session_path(address)}/events"
    accepted = MessageAccepted(key=key, duplicate=not new, after=after, events_url=events_url)
    headers = {"Location": f"{events_url}?after={after}"}
    return EndpointResponse(value=accepted, status=202, headers=headers)


async def handle_follow_session(request: RequestContext) -> EventStreamResponse:
    """Follow a session."""
    session = await request.require_session_id()
    end = StreamPosition(log_position=await request.service.store.position(session))
    place, unknown = await _choose_start(request, session, end)
    offer = request.server_state
    wanted = StreamEndConditions(
        is_closing=lambda: offer.draining, log_is_verbatim=_is_log_verbatim(request)
    )
    return EventStreamResponse(
        open_frames=lambda: _open_frames(request, session, place, wanted, unknown)
    )


async def handle_stop_turn(request: RequestContext) -> EndpointResponse:
    """Cut off the turn that runs."""
    return EndpointResponse(
        value=TurnControlResult(done=request.service.stop_turn(await request.require_session_id()))
    )


async def handle_resume_turn(request: RequestContext) -> EndpointResponse:
    """Go on with a turn that was stopped or given up."""
    session, service = await request.require_session_id(), request.service
    if request.server_state.draining:
        raise build_unavailable_problem("the server is about to stop and begins nothing new")
    if await service.queue.revive(session):
        return EndpointResponse(value=TurnControlResult(done=True), status=202)
    # What it answers is in the queue until it has ended.
    await service.wait_for_ending_turn(session)
    waits = bool(await service.queue.pending(session, limit=1))
    async with service.open_session(session) as opened:
        window = opened.window
        if is_model_reply_due(window) or window.conversation.open_calls():
            await _reopen_ended_turn(opened)
        elif not waits:
            return EndpointResponse(value=TurnControlResult(done=False), status=202)
    await request.server_state.schedule_turn(session)
    return EndpointResponse(value=TurnControlResult(done=True), status=202)


async def _reopen_ended_turn(session: Session) -> None:
    """A turn that somebody has ended stays so for those who merely look; claimed, it goes on."""
    if await was_newest_turn_ended(session) and not session.turn_lock.locked():
        await session.claim_turn()
        session.epoch = None  # nobody runs it yet


async def handle_retry_dead_letters(request: RequestContext) -> EndpointResponse:
    """Retry the dead letters of a session."""
    address = request.session_address()
    if not await request.service.queue.revive(str(address)):
        raise HttpProblem(
            "not-found", f"session {address.agent}/{address.name} has no dead letters"
        )
    return EndpointResponse(value=TurnControlResult(done=True), status=202)


async def handle_retry_all_dead_letters(request: RequestContext) -> EndpointResponse:
    """Retry all dead letters of this caller."""
    found = [
        str(address)
        for address, _ in await list_callers_dead_letters(request, MAX_RETRIED_SESSIONS)
    ]
    done = [await request.service.queue.revive(session) for session in found]
    return EndpointResponse(value=DeadLetterRetryResult(sessions=sum(done)), status=202)


def _answer_stream(
    request: RequestContext,
    session: str,
    key: str,
    start: StreamPosition,
    *,
    message_is_in_log: bool,
    unknown_position: StreamPosition | None,
) -> EventStreamResponse:
    """The answer to a message, up to the end of its turn."""
    offer = request.server_state

    async def why() -> str | None:
        return await request.service.queue.dead_letter_reason(session)

    async def settled() -> bool:
        waiting = await request.service.queue.pending(session)
        return all(queued.key != key for queued in waiting)

    async def gone() -> None:
        agent = request.service.agent_for(session)
        if agent.spec.session.on_disconnect == "pause":
            offer.run_in_background(_pause_abandoned_turn(request, session, key))

    wanted = StreamEndConditions(
        is_closing=lambda: offer.closing,
        until_answered_key=key,
        message_is_in_log=message_is_in_log,
        find_failure_reason=why,
        is_message_answered=settled,
        log_is_verbatim=_is_log_verbatim(request),
    )
    return EventStreamResponse(
        open_frames=lambda: _open_frames(request, session, start, wanted, unknown_position),
        on_disconnect=gone,
    )


@asynccontextmanager
async def _open_frames(
    request: RequestContext,
    session: str,
    start: StreamPosition,
    options: StreamEndConditions,
    unknown_position: StreamPosition | None,
) -> AsyncGenerator[AsyncIterator[bytes]]:
    async with request.server_state.hubs.subscribe(session) as hub:
        yield SessionEventStream(
            request.service.store, session, hub, start, options, unknown_position=unknown_position
        ).iterate_frames()


async def _pause_abandoned_turn(request: RequestContext, session: str, key: str) -> None:
    """Stop the turn that answers a message nobody waits for, also if it has yet to begin.

    Until the message is in the log, the turn that runs is another's; so is one that runs when it
    was answered, unless nothing was said since: then its own was resumed.
    """
    service, wait = request.service, FIRST_POLL_S
    with suppress(StoreError):
        while True:
            rests = await _is_settled(service.queue, session, key)
            said = await service.store.find_key(session, key)
            own = said is not None and (
                not rests or await _is_newest_user_message(service.store, session, said)
            )
            if (own and service.pause_turn(session)) or rests:
                return
            await asyncio.sleep(wait)
            wait = min(MAX_POLL_S, wait * 2)


async def _is_settled(queue: MessageQueue, session: str, key: str) -> bool:
    """Whether no turn will answer a message: one has, or it was given up."""
    waiting = await queue.pending(session)
    if all(queued.key != key for queued in waiting):
        return True
    return await queue.dead_letter_reason(session) is not None


async def _is_newest_user_message(store: Store, session: str, position: int) -> bool:
    """Whether no user has said anything since."""
    async for event in store.events(session, [(position + 1, None)]):
        if isinstance(event.body, MessageAdded) and event.body.message.role == "user":
            return False
    return True


async def _reject_reused_key(
    request: RequestContext, session: str, key: str, message: Message, known_position: int | None
) -> None:
    """A key that comes again must come with what was said under it: else that would be dropped
    without a word. What was erased cannot be compared; what was redacted is, as it was redacted."""
    said = await request.service.find_message_by_key(session, key, known_position)
    if said is None or Text(text=ERASED_PLACEHOLDER) in said.parts:
        return
    kept = redacted_message(message, build_redactor(request.require_agent().spec))
    if said.parts not in (message.parts, kept.parts):
        raise HttpProblem(
            "idempotency-key-reused",
            f"another message has the key {key} already, so this one was not added: give each "
            "message a key of its own",
        )


def _build_inbound_message(session: str, key: str, message: Message) -> InboundMessage:
    return InboundMessage(session=session, message=message, key=key, at=time.time())


def _build_message(request: RequestContext, body: SendMessageBody) -> Message:
    """What goes into the log, if the agent's model can be given all of it."""
    said, takes = body.to_message(), request.require_agent().accepted_media
    parts: list[Part] = []
    wrong: list[dict[str, str]] = []
    for number, part in enumerate(said.parts):
        try:
            parts.append(
                validate_and_convert_media(part, takes) if isinstance(part, Media) else part
            )
        except UnsupportedMedia as error:
            assert isinstance(part, Media)  # noqa: S101 - nothing else is looked at
            detail = f"the {part.kind} ({part.mime}) cannot be sent: {error.reason}"
            wrong.append({"field": f"parts.{number}.{error.media_field}", "detail": detail})
    if wrong:
        raise build_invalid_fields_problem(wrong)
    return replace(said, parts=tuple(parts))


def _choose_message_key(request: RequestContext, body: SendMessageBody) -> str:
    header = request.headers.get("idempotency-key")
    if header is not None and body.key is not None and header != body.key:
        raise HttpProblem("invalid-request", "Idempotency-Key and key differ; send one of them")
    if header is not None and not MESSAGE_KEY_PATTERN.fullmatch(header):
        raise HttpProblem(
            "invalid-request", "Idempotency-Key takes 1 to 200 visible ASCII characters"
        )
    return body.key or header or f"http-{secrets.token_hex(12)}"


async def _choose_start(
    request: RequestContext, session: str, otherwise: StreamPosition
) -> tuple[StreamPosition, StreamPosition | None]:
    """Where to begin: behind what the caller has, or otherwise there; and what he has, if the log
    does not reach it."""
    read = _parse_last_event_id(request)
    if read is None:
        return otherwise, None
    if read.log_position <= await request.service.store.position(session):
        return read, None
    return otherwise, read


def _parse_last_event_id(request: RequestContext) -> StreamPosition | None:
    """Up to where the caller has read; None where it is not said."""
    given = request.headers.get("last-event-id") or request.query_params.get("after")
    if given is None:
        return None
    place = parse_event_id(given)
    if place is None:
        raise HttpProblem(
            "invalid-request", "Last-Event-ID and after take an id of an event: 12, or 12.57"
        )
    return place


def _is_log_verbatim(request: RequestContext) -> bool:
    return not request.require_agent().spec.session.redact
