"""Agents and sessions: which there are, and how they come and go."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from trimtab.errors import PositionTaken, SessionNotFound
from trimtab.http_api_response_types import (
    AgentInfo,
    AgentList,
    DeadLetterSessionInfo,
    DeadLetterSessionList,
    SessionCreated,
    SessionInfo,
    SessionPage,
    SessionState,
)
from trimtab.log.event import TurnProgressRecord
from trimtab.server import forgetting
from trimtab.server.channels.http.problems import HttpProblem, build_session_not_found_problem
from trimtab.server.channels.http.request_context_and_operations import (
    EndpointResponse,
    RequestContext,
)
from trimtab.server.queue.protocol import DeadLetterSession, MessageQueue
from trimtab.server.tenant_agent_session_ids import SessionAddress, parse_session_address
from trimtab.session.session import Session
from trimtab.session.turn import is_model_reply_due
from trimtab.window.window import Window

MAX_COUNTED_PENDING = 100
"""Waiting messages that are counted."""


async def handle_list_agents(request: RequestContext) -> EndpointResponse:
    found = [
        AgentInfo(name=name, model=agent.spec.model.name, policy=agent.spec.session.policy)
        for name, agent in sorted(request.service.agents.items())
        if request.caller.may_use(name)
    ]
    return EndpointResponse(value=AgentList(agents=found))


async def handle_list_sessions(request: RequestContext) -> EndpointResponse:
    request.require_agent()
    prefix = f"{request.caller.tenant}/{request.path_params['agent']}/"
    limit: int = request.query_params["limit"]
    after = f"{prefix}{request.query_params['after'] or ''}"
    # One more than is shown says whether there are more.
    found = await request.service.store.sessions(after=after, limit=limit + 1)
    mine = [
        (one, a) for one in found if (a := _address_with_prefix(one.session, prefix)) is not None
    ]
    shown = [
        SessionInfo(
            agent=address.agent,
            name=address.name,
            position=one.position,
            messages=one.messages,
            updated=one.updated,
            parent=_parent_name(one.parent, prefix),
        )
        for one, address in mine[:limit]
    ]
    more = shown[-1].name if len(mine) > limit else None
    return EndpointResponse(value=SessionPage(sessions=shown, next=more))


async def handle_create_session(request: RequestContext) -> EndpointResponse:
    name = request.body.name or generate_session_name()
    address = request.session_address(name)
    session = str(address)
    if await request.service.store.position(session):
        raise _session_exists_problem(address)
    try:
        async with request.service.open_session(session) as opened:
            position = opened.window.seq
    except PositionTaken:
        raise _session_exists_problem(address) from None
    made = SessionCreated(agent=address.agent, name=name, position=position)
    return EndpointResponse(
        value=made, status=201, headers={"Location": build_session_path(address)}
    )


async def handle_get_session_state(request: RequestContext) -> EndpointResponse:
    session = await request.require_session_id()
    service = request.service
    waiting = await service.queue.pending(session, limit=MAX_COUNTED_PENDING)
    async with service.open_session(session) as opened:
        window = opened.window
        state = SessionState(
            agent=request.path_params["agent"],
            name=request.path_params["session"],
            position=window.seq,
            messages=window.conversation.total_messages,
            visible=window.visible_messages,
            model=window.settings.model,
            running=opened.turn_lock.locked(),
            waiting=len(waiting),
            failure_reason=await service.queue.dead_letter_reason(session)
            or _rejection_reason(window),
        )
    return EndpointResponse(value=state)


async def handle_delete_session(request: RequestContext) -> EndpointResponse:
    address = request.session_address()
    session = str(address)
    try:
        await forgetting.delete_session(request.service, session, by=request.caller.name)
    except SessionNotFound:
        raise build_session_not_found_problem(address.agent, address.name) from None
    request.server_state.hubs.notify_log_changed(session)
    return EndpointResponse(status=204)


async def handle_list_dead_letter_sessions(request: RequestContext) -> EndpointResponse:
    shown = [
        DeadLetterSessionInfo(
            agent=address.agent,
            name=address.name,
            reason=one.why,
            messages=one.messages,
            at=one.at,
        )
        for address, one in await list_callers_dead_letters(request, request.query_params["limit"])
    ]
    return EndpointResponse(value=DeadLetterSessionList(sessions=shown))


async def list_callers_dead_letters(
    request: RequestContext, limit: int
) -> list[tuple[SessionAddress, DeadLetterSession]]:
    """The dead letters of this caller, by session, the newest first."""
    prefix = f"{request.caller.tenant}/"
    return [
        (address, one)
        for one in await request.service.queue.list_dead_letters(prefix=prefix, limit=limit)
        if (address := parse_session_address(one.session)) is not None
        and request.caller.may_use(address.agent)
    ]


def reject_if_turn_running(is_running: bool, request: RequestContext) -> None:
    """Some things are not done to a session in which a turn runs."""
    if is_running:
        raise HttpProblem(
            "conflict",
            (
                f"a turn runs in session {request.path_params['session']}; stop it first, or wait "
                "until it ends"
            ),
        )


async def is_turn_running_elsewhere(queue: MessageQueue, session: Session) -> bool:
    """Whether a turn is open that another process runs, or goes on with where that one has died.

    One that was given up, or resumed and left, nobody may ever end: it stands in nobody's way.
    """
    if not await queue.pending(session.id, limit=1):
        return False
    return await queue.dead_letter_reason(session.id) is None and not await was_newest_turn_ended(
        session
    )


async def was_newest_turn_ended(session: Session) -> bool:
    """Whether the turn of the newest user message has been ended, however far it came."""
    user, ended = session.window.newest_user_entry, False
    since = user.seq if user is not None else 1
    async for event in session.store.events(session.id, [(since, None)]):
        if isinstance(event.body, TurnProgressRecord):
            ended = event.body.state == "ended"
    return ended


def build_session_path(address: SessionAddress) -> str:
    """The path of a session."""
    return f"/v1/agents/{address.agent}/sessions/{address.name}"


def generate_session_name() -> str:
    """A name that sorts by time and that nobody guesses."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(6)}"


def _address_with_prefix(session: str, prefix: str) -> SessionAddress | None:
    return parse_session_address(session) if session.startswith(prefix) else None


def _parent_name(parent: str | None, prefix: str) -> str | None:
    if parent is None or not parent.startswith(prefix):
        return None
    return parent.removeprefix(prefix)


def _rejection_reason(window: Window) -> str | None:
    """Why the newest message has no answer; None where that is for another reason."""
    if not window.accounting.rejection.last_sent_seq or not is_model_reply_due(window):
        return None
    return f"rejected: {window.accounting.rejection.provider_message}"


def _session_exists_problem(address: SessionAddress) -> HttpProblem:
    return HttpProblem(
        "conflict",
        f"agent {address.agent} has a session {address.name} already; choose another name, or send "
        "messages to that one",
    )
