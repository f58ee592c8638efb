"""What a person does to a session besides talking."""

from __future__ import annotations

from trimtab.errors import SessionExists, SessionNotFound
from trimtab.http_api_response_types import (
    CompactionResult,
    EraseResult,
    SessionCreated,
    UndoResult,
)
from trimtab.server import forgetting
from trimtab.server.channels.http.endpoints.sessions import (
    build_session_path,
    generate_session_name,
    is_turn_running_elsewhere,
    reject_if_turn_running,
)
from trimtab.server.channels.http.problems import HttpProblem
from trimtab.server.channels.http.request_context_and_operations import (
    EndpointResponse,
    RequestContext,
)
from trimtab.session.session import Session


async def handle_compact_context(request: RequestContext) -> EndpointResponse:
    """Make the context smaller now; nothing is lost."""
    session = await request.require_session_id()
    async with request.service.open_session(session) as opened:
        done = await opened.compact()
    request.server_state.hubs.notify_log_changed(session)
    return EndpointResponse(
        value=CompactionResult(
            before=done.tokens_before, after=done.tokens_after, hidden=[*done.hidden]
        )
    )


async def handle_undo_messages(request: RequestContext) -> EndpointResponse:
    """Take back the newest message of the user and all behind it, or more."""
    session = await request.require_session_id()
    async with request.service.open_session(session) as opened:
        reject_if_turn_running(opened.turn_lock.locked(), request)
        async with opened.turn_lock:
            reject_if_turn_running(
                await is_turn_running_elsewhere(request.service.queue, opened), request
            )
            told = await _undo_messages(opened, request.body.to)
    request.server_state.hubs.notify_log_changed(session)
    return EndpointResponse(value=told)


async def handle_erase_message(request: RequestContext) -> EndpointResponse:
    """Destroy a message, and all that was made from it."""
    session = await request.require_session_id()
    try:
        done = await forgetting.erase_message(
            request.service,
            session,
            request.body.handle,
            why=request.body.reason,
            by=request.caller.name,
        )
    except SessionNotFound:
        raise
    except LookupError as error:
        raise HttpProblem("not-found", str(error)) from None
    request.server_state.hubs.notify_log_changed(session)
    prefix = session.removesuffix(request.path_params["session"])
    forks = [fork.removeprefix(prefix) for fork in done.forks if fork.startswith(prefix)]
    return EndpointResponse(value=EraseResult(handles=[*done.handles], forks=forks))


async def handle_fork_session(request: RequestContext) -> EndpointResponse:
    """A new session that shares the past of this one."""
    session = await request.require_session_id()
    address = request.session_address(request.body.name or generate_session_name())
    at: int | None = request.body.at
    async with request.service.open_session(session) as opened:
        last = opened.window.seq
        if at is not None and at > last:
            raise HttpProblem("invalid-request", f"at is {at}; positions go from 1 to {last}")
        try:
            made = await opened.fork(str(address), at=at)
        except SessionExists:
            raise _session_exists_problem(address.name) from None
        position = made.window.seq
        await made.close()
    told = SessionCreated(agent=address.agent, name=address.name, position=position)
    return EndpointResponse(
        value=told, status=201, headers={"Location": build_session_path(address)}
    )


async def _undo_messages(session: Session, handle: str | None) -> UndoResult:
    async with session.hold_turn():
        if handle is not None:
            return await _rewind_to_message(session, int(handle[1:]))
        undone = await session.undo()
    if undone is None:
        return UndoResult(to=session.window.seq, messages=0, text="")
    return UndoResult(to=undone.position, messages=undone.messages, text=undone.text)


async def _rewind_to_message(session: Session, seq: int) -> UndoResult:
    if not 0 < seq <= session.window.seq:
        raise HttpProblem(
            "not-found", f"nothing is called m{seq}; positions go up to m{session.window.seq}"
        )
    after = [entry for position, entry in session.window.entries.items() if position > seq]
    text = next((entry.message.text for entry in after if entry.message.role == "user"), "")
    before = session.window.conversation.total_messages
    await session.rewind(seq)
    return UndoResult(
        to=seq, messages=before - session.window.conversation.total_messages, text=text
    )


def _session_exists_problem(name: str) -> HttpProblem:
    return HttpProblem("conflict", f"there is a session {name} already; choose another name")
