"""List, create, read and delete agents' sessions."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import Body, Query
from starlette.responses import Response

from trimtab.engine.log.event import TurnProgressRecord
from trimtab.engine.window.window import Window
from trimtab.errors import PositionTaken, SessionNotFound
from trimtab.session.session import Session
from trimtab.session.spending import MICROS_PER_DOLLAR
from trimtab.stores.base import NEWER_THAN_ALL
from trimtab.stores.factory import find_spending_ledger
from trimtab.stores.spending import format_utc_day
from trimtab_serve.channels.http.api_route import (
    ApiRequest,
    create_api_router,
    describe_problems,
    requires,
)
from trimtab_serve.channels.http.parameters import (
    AGENT_PATH,
    SESSION_PATH,
    AgentName,
    PageSize,
    QueryText,
    SessionName,
)
from trimtab_serve.channels.http.problems import HttpProblem, build_session_not_found_problem
from trimtab_serve.channels.http.request_bodies import CreateSessionBody
from trimtab_serve.client.types import (
    AgentInfo,
    AgentList,
    DeadLetterSessionInfo,
    DeadLetterSessionList,
    SessionCreated,
    SessionInfo,
    SessionPage,
    SessionState,
    TenantUsage,
)
from trimtab_serve.forgetting import erasure
from trimtab_serve.queue.address import SessionAddress, parse_session_address
from trimtab_serve.queue.protocol import DeadLetterSession, MessageQueue

router = create_api_router("sessions")


@router.get("/v1/agents", openapi_extra=requires("read"))
async def list_agents(request: ApiRequest) -> AgentList:
    """List the agents that you may use."""
    infos = [
        AgentInfo(name=name, model=agent.spec.model.name, policy=agent.spec.session.policy)
        for name, agent in sorted(request.service.agents.items())
        if request.caller.may_use(name)
    ]
    return AgentList(agents=infos)


@router.get("/v1/usage", openapi_extra=requires("read"), responses=describe_problems(404))
async def get_usage(request: ApiRequest) -> TenantUsage:
    """Read what your tenant stores and costs, and its limits."""
    tenant_limits = request.service.tenant_limits
    if tenant_limits is None:
        raise HttpProblem("not-found", "this server does not count what tenants store")
    tenant = request.caller.tenant
    totals = await tenant_limits.find_totals(tenant)
    limits = tenant_limits.limits_of(tenant)
    cost_today = None
    if limits.cost_per_day is not None:
        ledger = find_spending_ledger(request.service.store)
        micros = await ledger.find_tenant_total(tenant, format_utc_day(time.time()))
        cost_today = micros / MICROS_PER_DOLLAR
    return TenantUsage(
        tenant=tenant,
        sessions=totals.sessions,
        max_sessions=limits.sessions,
        stored_bytes=totals.stored_bytes,
        max_stored_bytes=limits.bytes,
        max_session_bytes=limits.session_bytes,
        max_messages_per_minute=limits.messages_per_minute,
        cost_today=cost_today,
        max_cost_per_day=limits.cost_per_day,
    )


@router.get(f"{AGENT_PATH}/sessions", openapi_extra=requires("read"))
async def list_sessions(
    request: ApiRequest,
    agent: AgentName,
    order: Annotated[
        Literal["name", "recent"],
        Query(description="`recent` lists the last active sessions first."),
    ] = "name",
    after: Annotated[
        QueryText, Query(description="`next` of the previous page.", max_length=192)
    ] = "",
    limit: PageSize = 100,
) -> SessionPage:
    """List the sessions of an agent by name, or by their last activity."""
    request.require_agent(agent)
    prefix = f"{request.caller.tenant}/{agent}/"
    store = request.service.store
    # One more than shown, to know whether there are more.
    if order == "recent":
        before = _parse_recency_cursor(prefix, after)
        entries = await store.recent_sessions(prefix, before=before, limit=limit + 1)
    else:
        entries = await store.sessions(after=f"{prefix}{after}", limit=limit + 1)
    mine = [
        (one, a) for one in entries if (a := _address_with_prefix(one.session, prefix)) is not None
    ]
    infos = [
        SessionInfo(
            agent=address.agent,
            name=address.name,
            position=one.position,
            messages=one.messages,
            updated=one.updated,
            active=one.active,
            parent=_parent_name(one.parent, prefix),
        )
        for one, address in mine[:limit]
    ]
    if len(mine) <= limit:
        return SessionPage(sessions=infos, next=None)
    last = infos[-1]
    return SessionPage(
        sessions=infos, next=f"{last.active!r}/{last.name}" if order == "recent" else last.name
    )


@router.post(
    f"{AGENT_PATH}/sessions",
    status_code=201,
    openapi_extra=requires("talk"),
    responses=describe_problems(409),
)
async def create_session(
    request: ApiRequest,
    response: Response,
    agent: AgentName,
    body: Annotated[CreateSessionBody, Body(default_factory=CreateSessionBody)],
) -> SessionCreated:
    """Create a session. Optional: sending the first message creates it."""
    name = body.name or generate_session_name()
    address = request.session_address(agent, name)
    session = str(address)
    if await request.service.store.position(session):
        raise _session_exists_problem(address)
    try:
        async with request.service.create_session(address) as open_session:
            position = open_session.window.seq
    except PositionTaken:
        raise _session_exists_problem(address) from None
    response.headers["Location"] = build_session_path(address)
    return SessionCreated(agent=address.agent, name=name, position=position)


@router.get(SESSION_PATH, openapi_extra=requires("read"))
async def get_session(request: ApiRequest, agent: AgentName, session: SessionName) -> SessionState:
    """Read the state of a session."""
    session_id = await request.require_session_id(agent, session)
    service = request.service
    waiting = await service.queue.measure_waiting(session_id)
    async with service.open_session(session_id) as open_session:
        window = open_session.window
        return SessionState(
            agent=agent,
            name=session,
            position=window.seq,
            messages=window.conversation.total_messages,
            visible=window.visible_messages,
            model=window.settings.model,
            running=open_session.recorder.turn_lock.locked(),
            waiting=waiting.messages,
            failure_reason=await service.queue.dead_letter_reason(session_id)
            or _rejection_reason(window),
        )


@router.delete(SESSION_PATH, status_code=204, openapi_extra=requires("admin"))
async def delete_session(request: ApiRequest, agent: AgentName, session: SessionName) -> Response:
    """Delete a session with everything derived from it and its waiting messages. A running turn is
    cancelled."""
    session_id = str(request.session_address(agent, session))
    try:
        await erasure.delete_session(request.service, session_id, by=request.caller.name)
    except SessionNotFound:
        raise build_session_not_found_problem(agent, session) from None
    request.server_state.hubs.notify_log_changed(session_id)
    return Response(status_code=204)


@router.get("/v1/dead-letters", openapi_extra=requires("read"))
async def list_dead_letters(request: ApiRequest, limit: PageSize = 100) -> DeadLetterSessionList:
    """List your sessions with dead letters, newest first. These are messages whose turn failed and
    is not retried, and replies that could not be delivered."""
    infos = [
        DeadLetterSessionInfo(
            agent=address.agent,
            name=address.name,
            reason=one.why,
            messages=one.messages,
            at=one.at,
        )
        for address, one in await list_callers_dead_letters(request, limit)
    ]
    return DeadLetterSessionList(sessions=infos)


async def list_callers_dead_letters(
    request: ApiRequest, limit: int
) -> list[tuple[SessionAddress, DeadLetterSession]]:
    """Return the sessions with dead letters that this caller may see, newest first."""
    prefix = f"{request.caller.tenant}/"
    return [
        (address, one)
        for one in await request.service.queue.list_dead_letters(prefix=prefix, limit=limit)
        if (address := parse_session_address(one.session)) is not None
        and request.caller.may_use(address.agent)
    ]


def reject_if_turn_running(is_running: bool, session_name: str) -> None:
    """Raise a conflict if a turn is running in a session."""
    if is_running:
        raise HttpProblem(
            "conflict",
            f"a turn is running in session {session_name}; stop it, or wait until it ends",
        )


async def is_turn_running_elsewhere(queue: MessageQueue, session: Session) -> bool:
    """Whether another process runs a turn, or will take it over from a dead process.

    A turn that was abandoned, or resumed and left, may never end, so it does not count.
    """
    if not await queue.pending(session.id, limit=1):
        return False
    return await queue.dead_letter_reason(session.id) is None and not await was_newest_turn_ended(
        session
    )


async def was_newest_turn_ended(session: Session) -> bool:
    """Whether the turn of the newest user message was ended, complete or not."""
    user = session.window.newest_user_entry
    has_ended = False
    since = user.seq if user is not None else 1
    async for event in session.store.events(session.id, [(since, None)]):
        if isinstance(event.body, TurnProgressRecord):
            has_ended = event.body.state == "ended"
    return has_ended


def build_session_path(address: SessionAddress) -> str:
    """Return the path of a session."""
    return f"/v1/agents/{address.agent}/sessions/{address.name}"


def generate_session_name() -> str:
    """Return a name that sorts by time and is hard to guess."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(6)}"


def _address_with_prefix(session: str, prefix: str) -> SessionAddress | None:
    return parse_session_address(session) if session.startswith(prefix) else None


def _parse_recency_cursor(prefix: str, cursor: str) -> tuple[float, str]:
    """Return the time and the id of the last session of a page. `SECONDS/NAME` names them."""
    if not cursor:
        return NEWER_THAN_ALL
    active, _, name = cursor.partition("/")
    try:
        return float(active), f"{prefix}{name}"
    except ValueError:
        raise HttpProblem(
            "invalid-request", "`after` is not `next` of a page with `order=recent`"
        ) from None


def _parent_name(parent: str | None, prefix: str) -> str | None:
    if parent is None or not parent.startswith(prefix):
        return None
    return parent.removeprefix(prefix)


def _rejection_reason(window: Window) -> str | None:
    """Return the provider's rejection of the newest message. None if it was not rejected."""
    if not window.accounting.rejection.last_sent_seq or not window.is_reply_due:
        return None
    return f"rejected: {window.accounting.rejection.provider_message}"


def _session_exists_problem(address: SessionAddress) -> HttpProblem:
    return HttpProblem(
        "conflict",
        f"agent {address.agent} already has a session {address.name}; choose another name, or send "
        "messages to that one",
    )
