"""A session of a served agent, from a program's side."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar
from urllib.parse import quote

from trimtab.client.sse import StreamEvent
from trimtab.client.transport import HttpTransport, ReconnectingStream
from trimtab.errors import TrimtabError
from trimtab.http_api_response_types import (
    CompactionResult,
    ContextUsageInfo,
    EraseResult,
    HistoryPage,
    MessageAccepted,
    MessageInfo,
    RecalledText,
    SearchResultsText,
    SessionCreated,
    SessionState,
    TurnControlResult,
    UndoResult,
    VisibilityInfo,
)

T = TypeVar("T")
MessageContent = str | Sequence[Mapping[str, Any]]
"""A text, or parts as the OpenAPI document describes them."""
FINAL_EVENT_KINDS = ("turn.finished", "turn.failed")
"""What the answer to a message ends with."""


class RemoteTurnFailed(TrimtabError):
    """The turn failed and is not retried unless you call `RemoteSession.resume`. Or the provider
    rejected the content of the message, and the next one is sent without it. Or the session was
    deleted meanwhile."""


class RemoteSession:
    """One session; made by `Client.session` and `Client.create`."""

    def __init__(self, transport: HttpTransport, agent: str, name: str) -> None:
        self.agent = agent
        """Who answers in it."""
        self.name = name
        """What it is called."""
        self._wire = transport
        self._path = f"/v1/agents/{quote(agent, safe='')}/sessions/{quote(name, safe='')}"

    async def send(
        self, message: MessageContent, *, key: str | None = None, user: str | None = None
    ) -> MessageAccepted:
        """Say something; it is kept when this returns, and answered in its turn.

        `user` says who speaks: what they said can be exported and erased by it.
        """
        body = _message_body(message, key, user)
        return await self._ask(MessageAccepted, "POST", "/messages", json=body)

    async def stream(
        self, message: MessageContent, *, key: str | None = None, user: str | None = None
    ) -> AsyncGenerator[StreamEvent]:
        """Say something and see the answer being made, up to the end of the turn.

        A connection that breaks is taken up again without a gap or a repeat; a turn that was
        paused because of it goes on.
        """
        body = _message_body(message, key or f"client-{secrets.token_hex(12)}", user)
        reading, resumed = (
            ReconnectingStream(self._wire, "POST", f"{self._path}/messages", body=body),
            0,
        )
        while True:
            async with aclosing(reading.iter_events(FINAL_EVENT_KINDS)) as events:
                async for event in events:
                    paused = event.kind == "turn.finished" and event.data["reason"] == "stopped"
                    if paused and reading.disconnects > resumed:
                        break
                    yield event
                else:
                    return
            resumed = reading.disconnects
            if not await self.resume():
                return

    async def ask(
        self, message: MessageContent, *, key: str | None = None, user: str | None = None
    ) -> str:
        """Say something and wait for the answer: the last thing said in the turn."""
        text = ""
        async with aclosing(self.stream(message, key=key, user=user)) as events:
            async for event in events:
                if event.kind == "turn.failed":
                    raise RemoteTurnFailed(event.data["reason"])
                if event.kind == "turn.finished" and event.data["reason"] in (
                    "rejected",
                    "cost_ceiling",
                ):
                    raise RemoteTurnFailed(f"{event.data['reason']}: {event.data['detail']}")
                if event.kind == "message" and event.data["role"] == "assistant":
                    text = event.data["text"]
        return text

    async def follow_events(self, after: str | None = None) -> AsyncGenerator[StreamEvent]:
        """What happens in it from now on, or behind an event's id; `0` begins at the beginning.

        It ends with `turn.failed` if the session is deleted.
        """
        reading = ReconnectingStream(self._wire, "GET", f"{self._path}/events")
        reading.last_event_id = after
        async with aclosing(reading.iter_events(("turn.failed",))) as events:
            async for event in events:
                yield event

    async def state(self) -> SessionState:
        """How it stands."""
        return await self._ask(SessionState, "GET", "")

    async def history(self, *, after: int = 0, page_size: int = 100) -> AsyncGenerator[MessageInfo]:
        """All that was said behind a position, hidden from the model or not."""
        position: int | None = after
        while position is not None:
            query = {"after": position, "limit": page_size}
            found = await self._ask(HistoryPage, "GET", "/history", params=query)
            for message in found.messages:
                yield message
            position = found.next

    async def context(self) -> ContextUsageInfo:
        """Where the tokens of the next call would go."""
        return await self._ask(ContextUsageInfo, "GET", "/context")

    async def why(self, handle: str) -> VisibilityInfo:
        """Why the model sees a message, or a part of it, as it does."""
        return await self._ask(VisibilityInfo, "GET", f"/why/{quote(handle, safe='')}")

    async def recall(self, handle: str) -> str:
        """A text exactly as it was said, hidden or not."""
        return (await self._ask(RecalledText, "GET", f"/recall/{quote(handle, safe='')}")).text

    async def search(self, query: str) -> str:
        """Passages that hold the words, with their handles."""
        return (await self._ask(SearchResultsText, "GET", "/search", params={"q": query})).text

    async def compact(self) -> CompactionResult:
        """Make the context smaller now; nothing is lost."""
        return await self._ask(CompactionResult, "POST", "/compact", json={})

    async def undo(self, to: str | None = None) -> UndoResult:
        """Take back the newest message of the user and all behind it, or all behind a handle."""
        return await self._ask(UndoResult, "POST", "/undo", json=_without_nones(to=to))

    async def erase(self, handle: str, *, reason: str = "") -> EraseResult:
        """Destroy a message, a part of it or all from one to another; it cannot be brought back."""
        return await self._ask(
            EraseResult, "POST", "/erase", json={"handle": handle, "reason": reason}
        )

    async def fork(self, name: str | None = None, *, at: int | None = None) -> RemoteSession:
        """A new session that shares the past of this one, up to a position."""
        made = await self._ask(
            SessionCreated, "POST", "/fork", json=_without_nones(name=name, at=at)
        )
        return RemoteSession(self._wire, made.agent, made.name)

    async def stop(self) -> bool:
        """Cut off the turn that runs; its text so far is kept. False where none runs there."""
        return (await self._ask(TurnControlResult, "POST", "/stop", json={})).done

    async def resume(self) -> bool:
        """Go on with a turn that was stopped or given up; False where there is nothing to do."""
        return (await self._ask(TurnControlResult, "POST", "/resume", json={})).done

    async def delete(self) -> None:
        """Remove it with all that was made from it."""
        await self._wire.send_request("DELETE", self._path)

    async def _ask(self, kind: type[T], method: str, path: str, **sent: Any) -> T:
        return await self._wire.request_value(kind, method, f"{self._path}{path}", **sent)


def _message_body(message: MessageContent, key: str | None, user: str | None) -> dict[str, Any]:
    said: dict[str, Any] = (
        {"text": message} if isinstance(message, str) else {"parts": list(message)}
    )
    return {**said, **_without_nones(key=key, user=user)}


def _without_nones(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
