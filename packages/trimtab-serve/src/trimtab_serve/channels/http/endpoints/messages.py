"""Send messages to an agent, and read its answers."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from trimtab.dialects.media import validate_and_convert_media
from trimtab.engine.log.edits import ERASED_PLACEHOLDER
from trimtab.engine.log.event import MessageAdded
from trimtab.engine.log.message import Media, Message, Part, Text
from trimtab.engine.log.redaction import redacted_message
from trimtab.errors import PositionTaken, StoreError, UnsupportedMedia
from trimtab.session.session import Session
from trimtab.stores.base import Store
from trimtab_serve.agent.agent import Agent
from trimtab_serve.channels.http.api_caller import ApiCaller
from trimtab_serve.channels.http.api_route import (
    ApiRequest,
    create_api_router,
    describe_problems,
    requires,
)
from trimtab_serve.channels.http.endpoints.sessions import (
    build_session_path,
    list_callers_dead_letters,
    was_newest_turn_ended,
)
from trimtab_serve.channels.http.message_keys import to_shown_key, to_stored_key
from trimtab_serve.channels.http.parameters import (
    SESSION_PATH,
    AgentName,
    IdempotencyKey,
    LastEventId,
    NoBody,
    QueryText,
    SessionName,
)
from trimtab_serve.channels.http.problems import (
    HttpProblem,
    build_session_not_found_problem,
    build_unavailable_problem,
)
from trimtab_serve.channels.http.projection import STREAM_EVENT_KINDS
from trimtab_serve.channels.http.request_bodies import (
    MESSAGE_KEY_PATTERN,
    SendMessageBody,
    build_invalid_fields_problem,
)
from trimtab_serve.channels.http.server_state import HttpServerState
from trimtab_serve.channels.http.sse import (
    EVENT_STREAM_MEDIA_TYPE,
    EventStreamResponse,
    SessionEventStream,
    StreamEndConditions,
    StreamPosition,
    parse_event_id,
)
from trimtab_serve.client.types import DeadLetterRetryResult, MessageAccepted, TurnControlResult
from trimtab_serve.queue.messages import InboundMessage
from trimtab_serve.queue.protocol import MessageQueue
from trimtab_serve.service.sender import find_sender
from trimtab_serve.service.service import AgentService

EVENT_STREAM_CONTENT: dict[str, Any] = {
    EVENT_STREAM_MEDIA_TYPE: {
        "schema": {
            "type": "string",
            "description": "Events. The data of each is JSON:\n\n"
            + "\n".join(f"- `{name}`: {text}" for name, text in STREAM_EVENT_KINDS.items()),
        }
    }
}
"""The description of a stream in the OpenAPI document."""
MAX_RETRIED_SESSIONS = 1_000
"""Maximum number of sessions that one call revives."""
FIRST_POLL_S = 0.1
MAX_POLL_S = 2.0
"""Seconds between two checks whether an abandoned message is being answered: first, and maximum."""


router = create_api_router("sessions")


@router.post(
    f"{SESSION_PATH}/messages",
    status_code=202,
    response_model=MessageAccepted,
    openapi_extra=requires("talk"),
    responses={
        200: {
            "description": "The answer, up to the end of the turn.",
            "content": EVENT_STREAM_CONTENT,
        },
        **describe_problems(409),
    },
)
async def send_message(
    request: ApiRequest,
    *,
    response: Response,
    agent: AgentName,
    session: SessionName,
    body: SendMessageBody,
    last_event_id: LastEventId = None,
    idempotency_key: IdempotencyKey = None,
) -> MessageAccepted | EventStreamResponse:
    """Send a message to the agent. The response means that it is queued and will be answered. With
    `Accept: text/event-stream`, the answer follows as events, up to the end of the turn. A message
    with a known key is not added again. If you also send `Last-Event-ID`, the events continue after
    that one."""
    if request.server_state.draining:
        raise build_unavailable_problem("the server is shutting down and accepts no new messages")
    address = request.session_address(agent, session)
    service = request.service
    shown_key = _choose_message_key(idempotency_key, body)
    key = to_stored_key(shown_key)
    read = _parse_last_event_id(last_event_id)
    message = _build_message(request.require_agent(agent), body)
    session_id = str(address)
    if not await service.store.position(session_id):
        if read is not None:
            raise build_session_not_found_problem(agent, session)  # deleted after it was read
        with suppress(PositionTaken):
            async with service.create_session(address):
                pass  # it exists now, so a caller that reads its events finds it
    position = await service.store.find_key(session_id, key)
    after = await service.store.position(session_id) if position is None else position - 1
    if request.wants_event_stream:
        # Subscribed before the post, so that no piece of the answer is missed.
        async with request.server_state.hubs.subscribe(session_id):
            if position is not None or not await service.post(
                _build_inbound_message(session_id, key, message)
            ):
                await _reject_reused_key(service, session_id, key, message, position)
        place, unknown = await _choose_start(
            service.store, session_id, read, StreamPosition(log_position=after)
        )
        return _answer_stream(
            request.server_state,
            request.caller,
            session_id,
            key,
            place,
            message_is_in_log=position is not None and position <= place.log_position,
            unknown_position=unknown,
        )
    new = position is None and await service.post(_build_inbound_message(session_id, key, message))
    if not new:
        await _reject_reused_key(service, session_id, key, message, position)
    events_url = f"{build_session_path(address)}/events"
    response.headers["Location"] = f"{events_url}?after={after}"
    return MessageAccepted(key=shown_key, duplicate=not new, after=after, events_url=events_url)


@router.get(
    f"{SESSION_PATH}/events",
    response_class=EventStreamResponse,
    openapi_extra=requires("read"),
    responses={200: {"content": EVENT_STREAM_CONTENT}},
)
async def follow_session(
    request: ApiRequest,
    agent: AgentName,
    session: SessionName,
    after: Annotated[
        QueryText | None,
        Query(
            description="The id of the last event you have, if you cannot send `Last-Event-ID`; 0 "
            "starts at the beginning.",
            max_length=60,
        ),
    ] = None,
    last_event_id: LastEventId = None,
) -> EventStreamResponse:
    """Follow a session as server-sent events, from now on or after `Last-Event-ID`. No event is
    missing or repeated."""
    session_id = await request.require_session_id(agent, session)
    store = request.service.store
    offer = request.server_state
    end = StreamPosition(log_position=await store.position(session_id))
    place, unknown = await _choose_start(
        store, session_id, _parse_last_event_id(last_event_id or after), end
    )
    end_conditions = StreamEndConditions(
        is_closing=lambda: offer.draining,
        is_caller_valid=lambda: offer.authentication.is_still_valid(request.caller),
        hold_read=lambda: offer.tenant_requests.hold_read(request.caller.tenant),
        log_is_verbatim=_is_log_verbatim(request.service, session_id),
    )
    return EventStreamResponse(
        open_frames=lambda: _open_frames(offer, session_id, place, end_conditions, unknown)
    )


@router.post(f"{SESSION_PATH}/stop", openapi_extra=requires("talk"))
async def stop(
    request: ApiRequest, agent: AgentName, session: SessionName, body: NoBody
) -> TurnControlResult:
    """Stop the running turn at once. The text so far is kept, and its tools are killed."""
    del body
    session_id = await request.require_session_id(agent, session)
    return TurnControlResult(done=request.service.stop_turn(session_id))


@router.post(
    f"{SESSION_PATH}/resume",
    status_code=202,
    openapi_extra=requires("talk"),
    responses=describe_problems(409),
)
async def resume(
    request: ApiRequest, agent: AgentName, session: SessionName, body: NoBody
) -> TurnControlResult:
    """Continue a turn that was stopped, or retry one that failed."""
    del body
    session_id = await request.require_session_id(agent, session)
    service = request.service
    if request.server_state.draining:
        raise build_unavailable_problem("the server is shutting down and starts no new turns")
    if await service.queue.revive(session_id):
        return TurnControlResult(done=True)
    # The queue keeps its messages until it has ended.
    await service.wait_for_ending_turn(session_id)
    waits = bool(await service.queue.pending(session_id, limit=1))
    async with service.open_session(session_id) as open_session:
        window = open_session.window
        if window.is_reply_due or window.conversation.open_calls():
            await _reopen_ended_turn(open_session)
        elif not waits:
            return TurnControlResult(done=False)
    await request.server_state.schedule_turn(session_id)
    return TurnControlResult(done=True)


async def _reopen_ended_turn(session: Session) -> None:
    """Claim a turn that was ended, so that it continues. Otherwise it stays ended."""
    recorder = session.recorder
    if await was_newest_turn_ended(session) and not recorder.turn_lock.locked():
        await recorder.claim()
        recorder.disown()  # no process runs it yet


@router.post("/v1/dead-letters/retry", status_code=202, openapi_extra=requires("admin"))
async def retry_all_dead_letters(request: ApiRequest, body: NoBody) -> DeadLetterRetryResult:
    """Retry the dead letters of the newest 1,000 sessions. Repeat it for more."""
    del body
    session_ids = [
        str(address)
        for address, _ in await list_callers_dead_letters(request, MAX_RETRIED_SESSIONS)
    ]
    outcomes = [await request.service.queue.revive(session) for session in session_ids]
    return DeadLetterRetryResult(sessions=sum(outcomes))


@router.post(
    "/v1/dead-letters/{agent}/{session}/retry", status_code=202, openapi_extra=requires("admin")
)
async def retry_dead_letters(
    request: ApiRequest, agent: AgentName, session: SessionName, body: NoBody
) -> TurnControlResult:
    """Retry the dead letters of a session."""
    del body
    session_id = str(request.session_address(agent, session))
    await request.service.store.position(session_id)  # refuses one that is in another database
    if not await request.service.queue.revive(session_id):
        raise HttpProblem("not-found", f"session {agent}/{session} has no dead letters")
    return TurnControlResult(done=True)


def _answer_stream(
    server_state: HttpServerState,
    caller: ApiCaller,
    session_id: str,
    key: str,
    start: StreamPosition,
    *,
    message_is_in_log: bool,
    unknown_position: StreamPosition | None,
) -> EventStreamResponse:
    """Return the stream of the answer to a message, up to the end of its turn."""
    service = server_state.service

    async def why() -> str | None:
        return await service.queue.dead_letter_reason(session_id)

    async def settled() -> bool:
        return await service.queue.find_waiting(session_id, key) is None

    async def gone() -> None:
        agent = service.agent_for(session_id)
        if agent.spec.session.on_disconnect == "pause":
            server_state.run_in_background(_pause_abandoned_turn(server_state, session_id, key))

    end_conditions = StreamEndConditions(
        is_closing=lambda: server_state.closing,
        is_caller_valid=lambda: server_state.authentication.is_still_valid(caller),
        hold_read=lambda: server_state.tenant_requests.hold_read(caller.tenant),
        until_answered_key=key,
        message_is_in_log=message_is_in_log,
        find_failure_reason=why,
        is_message_answered=settled,
        log_is_verbatim=_is_log_verbatim(service, session_id),
    )
    return EventStreamResponse(
        open_frames=lambda: _open_frames(
            server_state, session_id, start, end_conditions, unknown_position
        ),
        on_disconnect=gone,
    )


@asynccontextmanager
async def _open_frames(
    server_state: HttpServerState,
    session_id: str,
    start: StreamPosition,
    options: StreamEndConditions,
    unknown_position: StreamPosition | None,
) -> AsyncGenerator[AsyncIterator[bytes]]:
    async with server_state.hubs.subscribe(session_id) as hub:
        yield SessionEventStream(
            server_state.service.store,
            session_id,
            hub,
            start,
            options,
            unknown_position=unknown_position,
        ).iterate_frames()


async def _pause_abandoned_turn(server_state: HttpServerState, session: str, key: str) -> None:
    """Stop the turn for a message whose caller has gone. One task waits for each message."""
    pairs = server_state.abandoned_messages
    if (session, key) in pairs:
        return
    pairs.add((session, key))
    try:
        await _pause_turn_of_message(server_state.service, session, key)
    finally:
        pairs.discard((session, key))


async def _pause_turn_of_message(service: AgentService, session: str, key: str) -> None:
    """Stop the turn for a message whose caller has gone, even if it has not begun yet.

    Until the message is in the log, a running turn belongs to another message. After the message
    was answered, a running turn is its own only if no user message came since: then it was resumed.
    """
    wait = FIRST_POLL_S
    with suppress(StoreError):
        while True:
            rests = await _is_settled(service.queue, session, key)
            position = await service.store.find_key(session, key)
            is_own_turn = position is not None and (
                not rests or await _is_newest_user_message(service.store, session, position)
            )
            if (is_own_turn and service.pause_turn(session)) or rests:
                return
            await asyncio.sleep(wait)
            wait = min(MAX_POLL_S, wait * 2)


async def _is_settled(queue: MessageQueue, session: str, key: str) -> bool:
    """Whether no turn will answer a message, because one did or its turn was abandoned."""
    if await queue.find_waiting(session, key) is None:
        return True
    return await queue.dead_letter_reason(session) is not None


async def _is_newest_user_message(store: Store, session: str, position: int) -> bool:
    """Whether no user message came after this position."""
    async for event in store.events(session, [(position + 1, None)]):
        if isinstance(event.body, MessageAdded) and event.body.message.role == "user":
            return False
    return True


async def _reject_reused_key(
    service: AgentService, session: str, key: str, message: Message, known_position: int | None
) -> None:
    """Refuse a known key with other content, which would otherwise be dropped silently.

    An erased message cannot be compared. A redacted one is compared in its redacted form.
    """
    first_message = await service.find_message_by_key(session, key, known_position)
    if first_message is None or Text(text=ERASED_PLACEHOLDER) in first_message.parts:
        return
    redacted_copy = redacted_message(message, service.agent_for(session).redact)
    if first_message.parts not in (message.parts, redacted_copy.parts) or find_sender(
        first_message
    ) != find_sender(message):
        raise HttpProblem(
            "idempotency-key-reused",
            f"another message already has the key {to_shown_key(key)}, so this one was not added: "
            "use a new key for each message",
        )


def _build_inbound_message(session: str, key: str, message: Message) -> InboundMessage:
    return InboundMessage(session=session, message=message, key=key, at=time.time())


def _build_message(agent: Agent, body: SendMessageBody) -> Message:
    """Return the message for the log, if the agent's model supports all its parts."""
    user_message = body.to_message()
    takes = agent.accepted_media
    parts: list[Part] = []
    wrong: list[dict[str, str]] = []
    for number, part in enumerate(user_message.parts):
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
    return replace(user_message, parts=tuple(parts))


def _choose_message_key(header: str | None, body: SendMessageBody) -> str:
    if header is not None and body.key is not None and header != body.key:
        raise HttpProblem("invalid-request", "Idempotency-Key and key differ; send only one")
    if header is not None and not MESSAGE_KEY_PATTERN.fullmatch(header):
        raise HttpProblem(
            "invalid-request", "invalid Idempotency-Key: use 1 to 200 visible ASCII characters"
        )
    return body.key or header or secrets.token_hex(12)


async def _choose_start(
    store: Store, session: str, read: StreamPosition | None, otherwise: StreamPosition
) -> tuple[StreamPosition, StreamPosition | None]:
    """Return the start position: the caller's, or the other one.

    Also return the caller's position if the log does not reach it.
    """
    if read is None:
        return otherwise, None
    if read.log_position <= await store.position(session):
        return read, None
    return otherwise, read


def _parse_last_event_id(given: str | None) -> StreamPosition | None:
    """Return the position of the caller. None if it is not given."""
    if given is None:
        return None
    place = parse_event_id(given)
    if place is None:
        raise HttpProblem(
            "invalid-request", "Last-Event-ID and after must be an event id such as 12 or 12.57"
        )
    return place


def _is_log_verbatim(service: AgentService, session: str) -> bool:
    return service.agent_for(session).redact is None
