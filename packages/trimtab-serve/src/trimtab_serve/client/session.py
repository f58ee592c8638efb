"""The client's view of one session."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar
from urllib.parse import quote

from trimtab.engine.recall.visibility import VisibilityReason
from trimtab.errors import TrimtabError
from trimtab_serve.client.transport import HttpTransport, ReconnectingStream, StreamEvent
from trimtab_serve.client.types import (
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
)

T = TypeVar("T")
MessageContent = str | Sequence[Mapping[str, Any]]
"""A text, or message parts as the OpenAPI document describes them."""
FINAL_EVENT_KINDS = ("turn.finished", "turn.failed")
"""The last event of the answer to a message is one of these kinds."""


class RemoteTurnFailed(TrimtabError):
    """A turn did not end with an answer.

    There are four causes. The turn failed, and is retried only if you call `RemoteSession.resume`.
    The provider rejected the content of the message, and the next message is sent without it. A
    cost ceiling was reached. Or the session was deleted in the meantime.
    """


class RemoteSession:
    """One session. `Client.session` and `Client.create_session` return it."""

    def __init__(self, _transport: HttpTransport, agent: str, name: str) -> None:
        self.agent = agent
        """The name of the agent."""
        self.name = name
        """The name of the session."""
        self._wire = _transport
        self._path = f"/v1/agents/{quote(agent, safe='')}/sessions/{quote(name, safe='')}"

    async def send(
        self, message: MessageContent, *, key: str | None = None, user: str | None = None
    ) -> MessageAccepted:
        """Send a message. It is stored when this returns, and answered later.

        Args:
            message: A text, or message parts.
            key: An idempotency key. The server accepts a message with the same key only once.
            user: The user who speaks. Their messages can be exported and erased by this id.
        """
        body = _message_body(message, key, user)
        return await self._ask(MessageAccepted, "POST", "/messages", json=body)

    async def stream(
        self, message: MessageContent, *, key: str | None = None, user: str | None = None
    ) -> AsyncGenerator[StreamEvent]:
        """Send a message and yield the events of its turn, to the end of the turn.

        If the connection breaks, the stream reconnects without gaps or repeats. If the turn was
        paused because of that, the stream resumes it.

        Args:
            message: A text, or message parts.
            key: An idempotency key. By default, the client generates one.
            user: The user who speaks, as in `send`.
        """
        body = _message_body(message, key or f"client-{secrets.token_hex(12)}", user)
        reading = ReconnectingStream(self._wire, "POST", f"{self._path}/messages", body=body)
        resumptions = 0
        while True:
            async with aclosing(reading.iter_events(FINAL_EVENT_KINDS)) as events:
                async for event in events:
                    is_pause = event.kind == "turn.finished" and event.data["reason"] == "stopped"
                    if is_pause and reading.disconnects > resumptions:
                        break
                    yield event
                else:
                    return
            resumptions = reading.disconnects
            if not await self.resume():
                return

    async def ask(
        self, message: MessageContent, *, key: str | None = None, user: str | None = None
    ) -> str:
        """Send a message and return the answer: the last text of the turn.

        Args:
            message: A text, or message parts.
            key: An idempotency key, as in `stream`.
            user: The user who speaks, as in `send`.

        Raises:
            RemoteTurnFailed: The turn did not end with an answer.
        """
        text = ""
        failure = None
        async with aclosing(self.stream(message, key=key, user=user)) as events:
            async for event in events:
                match event.kind:
                    case "turn.failed":
                        failure = event.data["detail"]
                    case "turn.finished":
                        reason = event.data["reason"]
                        has_failed = reason in ("rejected", "cost_ceiling")
                        failure = f"{reason}: {event.data['detail']}" if has_failed else None
                    case "message" if event.data["role"] == "assistant":
                        text = event.data["text"]
                    case _:
                        pass
        if failure is not None:
            raise RemoteTurnFailed(failure)
        return text

    async def follow_events(self, after: str | None = None) -> AsyncGenerator[StreamEvent]:
        """Yield the session's events, from now on or after an event's id.

        The stream ends with `turn.failed` if the session is deleted.

        Args:
            after: Yield events after this id. `0` starts at the beginning. None starts now.
        """
        reading = ReconnectingStream(self._wire, "GET", f"{self._path}/events")
        reading.last_event_id = after
        async with aclosing(reading.iter_events(("turn.failed",))) as events:
            async for event in events:
                yield event

    async def state(self) -> SessionState:
        """Return the state of the session."""
        return await self._ask(SessionState, "GET", "")

    async def history(self, *, after: int = 0, page_size: int = 100) -> AsyncGenerator[MessageInfo]:
        """Yield all messages after a position, hidden from the model or not.

        Args:
            after: The position in the log after which to start.
            page_size: Number of messages to fetch with each request.
        """
        position: int | None = after
        while position is not None:
            query = {"after": position, "limit": page_size}
            page = await self._ask(HistoryPage, "GET", "/history", params=query)
            for message in page.messages:
                yield message
            position = page.next

    async def context(self) -> ContextUsageInfo:
        """Return how the next call would use its tokens."""
        return await self._ask(ContextUsageInfo, "GET", "/context")

    async def why(self, handle: str) -> VisibilityReason:
        """Explain why the model sees a message, or a part of it, as it does."""
        return await self._ask(VisibilityReason, "GET", f"/why/{quote(handle, safe='')}")

    async def recall(self, handle: str) -> str:
        """Return the exact text of a message or a part, even if it is hidden."""
        pieces: list[str] = []
        rest: str | None = quote(handle, safe="")
        while rest is not None:
            page = await self._ask(RecalledText, "GET", f"/recall/{rest}")
            pieces.append(page.text)
            rest = page.next
        return "".join(pieces)

    async def search(self, query: str) -> str:
        """Return passages that match the words, with their handles."""
        return (await self._ask(SearchResultsText, "GET", "/search", params={"q": query})).text

    async def compact(self) -> CompactionResult:
        """Make the context smaller now. Nothing is lost."""
        return await self._ask(CompactionResult, "POST", "/compact", json={})

    async def undo(self, to: str | None = None) -> UndoResult:
        """Undo the user's newest message and everything after it.

        Args:
            to: Undo everything after this handle instead.
        """
        return await self._ask(UndoResult, "POST", "/undo", json=_without_nones(to=to))

    async def erase(self, handle: str, *, reason: str = "") -> EraseResult:
        """Erase a message, a part of it or a range of messages. This cannot be undone.

        Args:
            handle: What to erase, such as `m12`, `m12.0` or `m3-m50`.
            reason: Who asked for it, or which rule requires it. The log keeps this text.
        """
        return await self._ask(
            EraseResult, "POST", "/erase", json={"handle": handle, "reason": reason}
        )

    async def fork(self, name: str | None = None, *, at: int | None = None) -> RemoteSession:
        """Create a session that shares the history of this one.

        Args:
            name: The name of the new session. If it is None, the server chooses one.
            at: The position up to which to copy. By default, everything is copied.
        """
        creation = await self._ask(
            SessionCreated, "POST", "/fork", json=_without_nones(name=name, at=at)
        )
        return RemoteSession(self._wire, creation.agent, creation.name)

    async def stop(self) -> bool:
        """Stop the running turn, and return whether there was one. Its text so far is kept."""
        return (await self._ask(TurnControlResult, "POST", "/stop", json={})).done

    async def resume(self) -> bool:
        """Continue a turn that was stopped or has failed. Return False if there is none."""
        return (await self._ask(TurnControlResult, "POST", "/resume", json={})).done

    async def delete(self) -> None:
        """Delete the session with everything that was made from it."""
        await self._wire.send_request("DELETE", self._path)

    async def _ask(self, kind: type[T], method: str, path: str, **sent: Any) -> T:
        return await self._wire.request_value(kind, method, f"{self._path}{path}", **sent)


def _message_body(message: MessageContent, key: str | None, user: str | None) -> dict[str, Any]:
    content: dict[str, Any] = (
        {"text": message} if isinstance(message, str) else {"parts": list(message)}
    )
    return {**content, **_without_nones(key=key, user=user)}


def _without_nones(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
