"""Operations that change a session: compact, undo, erase, fork."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import Body
from starlette.responses import Response

from trimtab.errors import SessionExists, SessionNotFound
from trimtab.session.session import Session
from trimtab_serve.channels.http.api_route import (
    ApiRequest,
    create_api_router,
    describe_problems,
    requires,
)
from trimtab_serve.channels.http.endpoints.sessions import (
    build_session_path,
    generate_session_name,
    is_turn_running_elsewhere,
    reject_if_turn_running,
)
from trimtab_serve.channels.http.parameters import SESSION_PATH, AgentName, NoBody, SessionName
from trimtab_serve.channels.http.problems import HttpProblem
from trimtab_serve.channels.http.request_bodies import EraseBody, ForkBody, UndoBody
from trimtab_serve.client.types import CompactionResult, EraseResult, SessionCreated, UndoResult
from trimtab_serve.forgetting import erasure

router = create_api_router("sessions")


@router.post(
    f"{SESSION_PATH}/compact", openapi_extra=requires("talk"), responses=describe_problems(409)
)
async def compact(
    request: ApiRequest, agent: AgentName, session: SessionName, body: NoBody
) -> CompactionResult:
    """Compact the context now. Nothing is lost."""
    del body
    session_id = await request.require_session_id(agent, session)
    async with request.service.open_session(session_id) as open_session:
        compaction, totals = await open_session.recorder.compact()
    request.server_state.hubs.notify_log_changed(session_id)
    return CompactionResult(
        before=compaction.tokens_before, after=compaction.tokens_after, hidden=totals
    )


@router.post(
    f"{SESSION_PATH}/undo", openapi_extra=requires("talk"), responses=describe_problems(409)
)
async def undo(
    request: ApiRequest,
    agent: AgentName,
    session: SessionName,
    body: Annotated[UndoBody, Body(default_factory=UndoBody)],
) -> UndoResult:
    """Undo the newest message of the user and all after it, or more. Effects of tools are not
    undone."""
    session_id = await request.require_session_id(agent, session)
    async with request.service.open_session(session_id) as open_session:
        turn_lock = open_session.recorder.turn_lock
        reject_if_turn_running(turn_lock.locked(), session)
        async with turn_lock:
            reject_if_turn_running(
                await is_turn_running_elsewhere(request.service.queue, open_session), session
            )
            undo_report = await _undo_messages(open_session, body.to)
    request.server_state.hubs.notify_log_changed(session_id)
    return undo_report


@router.post(
    f"{SESSION_PATH}/erase", openapi_extra=requires("admin"), responses=describe_problems(409)
)
async def erase(
    request: ApiRequest, agent: AgentName, session: SessionName, body: EraseBody
) -> EraseResult:
    """Erase a message, or a part of it, with everything derived from it. It cannot be restored. A
    running turn is cancelled and starts again without it. Repeating this changes nothing."""
    session_id = await request.require_session_id(agent, session)
    try:
        erasure_record = await erasure.erase_message(
            request.service, session_id, body.handle, why=body.reason, by=request.caller.name
        )
    except SessionNotFound:
        raise
    except LookupError as error:
        raise HttpProblem("not-found", str(error)) from None
    request.server_state.hubs.notify_log_changed(session_id)
    prefix = session_id.removesuffix(session)
    forks = [fork.removeprefix(prefix) for fork in erasure_record.forks if fork.startswith(prefix)]
    return EraseResult(handles=[*erasure_record.handles], forks=forks)


@router.post(
    f"{SESSION_PATH}/fork",
    status_code=201,
    openapi_extra=requires("talk"),
    responses=describe_problems(409),
)
async def fork(
    request: ApiRequest,
    response: Response,
    agent: AgentName,
    session: SessionName,
    body: Annotated[ForkBody, Body(default_factory=ForkBody)],
) -> SessionCreated:
    """Create a session that begins with the history of this one."""
    session_id = await request.require_session_id(agent, session)
    address = request.session_address(agent, body.name or generate_session_name())
    at = body.at
    start_time = time.time()
    async with (
        request.service.make_fork(address),
        request.service.open_session(session_id) as open_session,
    ):
        last = open_session.window.seq
        if at is not None and at > last:
            raise HttpProblem(
                "invalid-request", f"`at` is {at}, but the session's positions are 1 to {last}"
            )
        try:
            copy = await open_session.fork(str(address), at=at)
        except SessionExists:
            raise _session_exists_problem(address.name) from None
        position = copy.window.seq
        await copy.close()
    await erasure.delete_copy_of_erased_data(request.service, str(address), start_time)
    response.headers["Location"] = build_session_path(address)
    return SessionCreated(agent=address.agent, name=address.name, position=position)


async def _undo_messages(session: Session, handle: str | None) -> UndoResult:
    async with session.claim_turn(wait=None):
        if handle is not None:
            return await _rewind_to_message(session, int(handle[1:]))
        undone = await session.undo()
    if undone is None:
        return UndoResult(to=session.window.seq, messages=0, text="")
    return UndoResult(to=undone.position, messages=undone.messages, text=undone.text)


async def _rewind_to_message(session: Session, seq: int) -> UndoResult:
    if not 0 < seq <= session.window.seq:
        raise HttpProblem(
            "not-found", f"m{seq} does not exist; the last position is m{session.window.seq}"
        )
    after = [entry for position, entry in session.window.entries.items() if position > seq]
    text = next((entry.message.text for entry in after if entry.message.role == "user"), "")
    before = session.window.conversation.total_messages
    await session.rewind(seq)
    return UndoResult(
        to=seq, messages=before - session.window.conversation.total_messages, text=text
    )


def _session_exists_problem(name: str) -> HttpProblem:
    return HttpProblem("conflict", f"session {name} already exists; choose another name")
