"""Export the data of a user or a tenant, line by line."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from trimtab.engine.log.event import Edit, Event, MessageAdded, ToolResultRepair
from trimtab.engine.log.message import Message, Text, message_to_json
from trimtab.errors import LogDamaged, SessionNotFound
from trimtab_serve.forgetting.user_shares import (
    find_user_shares,
    list_tenant_sessions,
    list_waiting,
    without_tenant,
)
from trimtab_serve.service.sender import find_sender
from trimtab_serve.service.service import AgentService

EXPORT_VERSION = 1
"""Version of the export format."""
MAX_LISTED_SCHEDULES = 1_000_000


async def export_user(
    service: AgentService, tenant: str, user: str, *, agents: Collection[str] | None = None
) -> AsyncIterator[Mapping[str, Any]]:
    """Yield all stored data of a user, line by line: the data that `erase_user` would erase."""
    unreadable: list[str] = []
    counts = _ExportCounts()
    yield {"kind": "export", "v": EXPORT_VERSION, "tenant": tenant, "user": user, "at": time.time()}
    for share in await find_user_shares(service, tenant, user, agents, unreadable):
        only = None if share.is_own else frozenset(share.positions)
        keys = None if share.is_own else frozenset(share.waiting_keys)
        async for line in _export_session(service, share.session, only, keys):
            yield counts.add(line)
    yield counts.end(unreadable)


async def export_tenant(service: AgentService, tenant: str) -> AsyncIterator[Mapping[str, Any]]:
    """Yield all stored data of a tenant, line by line."""
    unreadable: list[str] = []
    counts = _ExportCounts()
    yield {"kind": "export", "v": EXPORT_VERSION, "tenant": tenant, "at": time.time()}
    async for session in list_tenant_sessions(service, tenant):
        try:
            async for line in _export_session(service, session, None, None):
                yield counts.add(line)
        except LogDamaged:
            unreadable.append(without_tenant(session))
    yield counts.end(unreadable)


@dataclass(slots=True)
class _ExportCounts:
    """Counts the lines of an export, so that a reader notices a truncated copy."""

    sessions: int = 0
    messages: int = 0

    def add(self, line: Mapping[str, Any]) -> Mapping[str, Any]:
        self.sessions += line["kind"] == "session"
        self.messages += line["kind"] in ("message", "waiting")
        return line

    def end(self, unreadable: Sequence[str]) -> Mapping[str, Any]:
        return {
            "kind": "end",
            "sessions": self.sessions,
            "messages": self.messages,
            "unreadable": [*unreadable],
        }


async def _export_session(
    service: AgentService,
    session: str,
    positions: frozenset[int] | None,
    waiting_keys: frozenset[str] | None,
) -> AsyncIterator[Mapping[str, Any]]:
    """Yield a session line by line: all of it, or the messages at these positions."""
    name = without_tenant(session)
    yield {"kind": "session", "session": name, "whole": positions is None}
    with suppress(SessionNotFound):
        async for event in service.store.events(session):
            if positions is None or event.seq in positions:
                line = _describe_event(event, whole=positions is None)
                if line is not None:
                    yield {**line, "session": name}
    async for inbound in list_waiting(service, session):
        if waiting_keys is None or inbound.key in waiting_keys:
            description = _describe_message(inbound.message)
            yield {"kind": "waiting", "at": inbound.at, **description, "session": name}
    if positions is None and service.schedules is not None:
        for one in await service.schedules.find(session=session, limit=MAX_LISTED_SCHEDULES):
            schedule_json = {"text": one.message, "due": one.next_run_at, "at": one.created_at}
            yield {"kind": "schedule", **schedule_json, "session": name}


def _describe_event(event: Event, *, whole: bool) -> Mapping[str, Any] | None:
    body = event.body
    if isinstance(body, MessageAdded | ToolResultRepair):
        description = _describe_message(body.message)
        return {"kind": "message", "handle": f"m{event.seq}", "at": event.at, **description}
    if whole and isinstance(body, Edit) and body.op == "summarise" and body.text:
        span = f"m{body.first}-m{body.last}"
        return {"kind": "summary", "covers": span, "at": event.at, "text": body.text}
    return None


def _describe_message(message: Message) -> Mapping[str, Any]:
    """Return its text, and its parts if it has others than text. Pictures and files are in
    Base64."""
    description: dict[str, Any] = {"role": message.role, "text": message.text}
    if (user := find_sender(message)) is not None:
        description["user"] = user
    if len(message.parts) != 1 or not isinstance(message.parts[0], Text):
        description["parts"] = message_to_json(message)["parts"]
    return description
