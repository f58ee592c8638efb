"""Show a reply in the chat while it is written.

This shows only a draft. The reply itself is sent through the outbox and replaces the draft.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field

from telegram.error import RetryAfter, TelegramError

from trimtab.session.events import AssistantReplied, ModelCallRetried, TextDelta, TurnFinished
from trimtab_serve.channels.telegram.message_splitting import (
    MAX_REPLY_UTF16_UNITS,
    split_telegram_message,
)
from trimtab_serve.channels.telegram.paced_sender import TelegramSender, TelegramTarget
from trimtab_serve.channels.telegram.styled_text import StyledText, convert_markdown_to_styled_text
from trimtab_serve.channels.typing_indicator import TURN_SILENCE_TIMEOUT_S
from trimtab_serve.service.events.bus import EventBus, EventsMissed, ReceivedEvent
from trimtab_serve.service.turn import extract_assistant_text

NEXT_TURN_WAIT_S = 30.0
"""Seconds to wait for the next turn before the watch ends."""
DRAFT_TTL_S = 900.0
"""Seconds for which a draft waits for its reply."""
CLOSE_TIMEOUT_S = 5.0
"""Seconds for watches to end by themselves."""
DRAFT_SUFFIX = " …"
"""Ends a draft."""

log = logging.getLogger("trimtab.telegram")


@dataclass(slots=True, kw_only=True)
class DraftMessage:
    """A message in the chat that shows a part of a draft."""

    message_id: int
    """Id of the message."""
    styled_text: StyledText
    """The text of the message."""


@dataclass(slots=True, kw_only=True)
class LiveReplyDraft:
    """A reply while it is being written."""

    text: str = ""
    """The text so far."""
    final_text: str | None = None
    """The whole text, as soon as it is complete."""
    has_unshown_text: bool = False
    """Whether some text is not shown yet."""
    is_frozen: bool = False
    """Whether it is no longer updated."""
    messages: list[DraftMessage] = field(default_factory=list[DraftMessage])
    """The messages that show it."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the code that changes what is shown."""

    def matches_reply(self, reply_text: str) -> bool:
        """Whether a reply is the final text of this draft, or its continuation."""
        if self.final_text is not None:
            return self.final_text == reply_text
        return bool(self.text.strip()) and reply_text.startswith(self.text.strip())


class LiveDraftSender:
    """Watches the sessions with recent messages."""

    def __init__(self, event_bus: EventBus, sender: TelegramSender, *, show_drafts: bool) -> None:
        self._event_bus = event_bus
        self._sender = sender
        self._show_drafts = show_drafts
        self._watches: dict[str, _SessionWatch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def watch_session(self, session_id: str, target: TelegramTarget) -> None:
        """Watch a session, because a message was posted and a turn will follow."""
        if not self._show_drafts:
            return
        watch = self._watches.get(session_id)
        if watch is not None:
            watch.extend(target)
            return
        watch = self._watches[session_id] = _SessionWatch(self._sender, target)
        stack = ExitStack()
        # Here and not in the task, because the turn may begin to write before the task starts.
        watch.queue = stack.enter_context(self._event_bus.subscribe(session_id))
        task = asyncio.create_task(
            self._run_watch(session_id, watch), name=f"telegram watch {session_id}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: stack.close())

    @asynccontextmanager
    async def take_over_draft(
        self, session_id: str, reply_text: str
    ) -> AsyncGenerator[list[DraftMessage]]:
        """Yield the messages that already show the reply, so that they become the reply.

        Nothing else changes them during the block.
        """
        watch = self._watches.get(session_id)
        draft = None if watch is None else watch.find_draft(reply_text)
        if watch is None or draft is None:
            yield []
            return
        async with draft.lock:
            draft.final_text = reply_text
            yield draft.messages
            watch.drafts.remove(draft)

    async def close(self) -> None:
        """Stop watching, and delete unfinished drafts, because the replies will be sent whole."""
        for watch in self._watches.values():
            watch.stop()
        if self._tasks:
            # A message that is being sent has no id yet, so it cannot be deleted.
            await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT_S)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run_watch(self, session_id: str, watch: _SessionWatch) -> None:
        try:
            await watch.run()
        finally:
            if self._watches.get(session_id) is watch:
                del self._watches[session_id]
            await watch.delete_unclaimed_drafts()


class _SessionWatch:
    """Watches one session."""

    def __init__(self, sender: TelegramSender, target: TelegramTarget) -> None:
        self._sender = sender
        self._target = target
        self.queue: asyncio.Queue[ReceivedEvent] = asyncio.Queue()
        self.drafts: list[LiveReplyDraft] = []
        self._current_draft: LiveReplyDraft | None = None
        self._is_turn_running = True
        self._last_event_at = time.monotonic()
        self._next_draft_update_at = 0.0
        self._wakeup = asyncio.Event()
        self._is_stopped = False

    def extend(self, target: TelegramTarget) -> None:
        """Watch longer, because another message was posted."""
        self._target, self._last_event_at = target, time.monotonic()
        self._is_turn_running = True
        self._wakeup.set()

    def find_draft(self, reply_text: str) -> LiveReplyDraft | None:
        """Return the oldest draft of a reply. Waiting events are handled first."""
        while not self.queue.empty():
            self._handle_event(self.queue.get_nowait())
        return next((draft for draft in self.drafts if draft.matches_reply(reply_text)), None)

    def stop(self) -> None:
        """Stop after this step."""
        self._is_stopped = True
        self._wakeup.set()

    async def run(self) -> None:
        while not self._is_stopped:
            now = time.monotonic()
            if now > self._expires_at():
                return
            draft = self._current_draft
            if draft is not None and draft.has_unshown_text and now >= self._next_draft_update_at:
                await self._update_draft_in_chat(draft)
                self._next_draft_update_at = time.monotonic() + self._sender.draft_interval_s(
                    self._target
                )
            await self._wait_for_event(self._next_wakeup())

    def _expires_at(self) -> float:
        """Return when the watch ends, unless an event comes before."""
        if self.drafts:
            return self._last_event_at + DRAFT_TTL_S
        wait = TURN_SILENCE_TIMEOUT_S if self._is_turn_running else NEXT_TURN_WAIT_S
        return self._last_event_at + wait

    def _next_wakeup(self) -> float:
        """Return when there is something to do, even without an event."""
        due = self._expires_at()
        if self._current_draft is not None and self._current_draft.has_unshown_text:
            due = min(due, max(self._next_draft_update_at, time.monotonic() + 0.01))
        return due

    async def _wait_for_event(self, deadline: float) -> None:
        """Handle the waiting events, or wait for one until the deadline."""
        self._wakeup.clear()
        getting = asyncio.ensure_future(self.queue.get())
        waking = asyncio.ensure_future(self._wakeup.wait())
        try:
            wait = max(0.0, deadline - time.monotonic()) + 0.001
            await asyncio.wait({getting, waking}, timeout=wait, return_when="FIRST_COMPLETED")
        finally:
            waking.cancel()
            if not getting.cancel():
                self._handle_event(getting.result())
        while not self.queue.empty():
            self._handle_event(self.queue.get_nowait())

    def _handle_event(self, event: ReceivedEvent) -> None:
        self._last_event_at = time.monotonic()
        self._is_turn_running = not isinstance(event, TurnFinished)
        match event:
            case TextDelta(kind="text"):
                self._append_to_draft(event.text)
            case ModelCallRetried():
                if self._current_draft is not None:
                    self._current_draft.text = ""
                    self._current_draft.has_unshown_text = False
            case AssistantReplied():
                self._finish_draft(extract_assistant_text(event.message))
            case EventsMissed():
                if self._current_draft is not None:
                    self._current_draft.is_frozen = True
                    self._current_draft.has_unshown_text = False
            case _:
                pass

    def _append_to_draft(self, text: str) -> None:
        draft = self._current_draft
        if draft is None:
            draft = self._current_draft = LiveReplyDraft()
            self.drafts.append(draft)
            # A reply that is complete within a moment needs no draft.
            self._next_draft_update_at = time.monotonic() + self._sender.draft_interval_s(
                self._target
            )
        draft.text += text
        draft.has_unshown_text = not draft.is_frozen and bool(draft.text.strip())

    def _finish_draft(self, reply_text: str) -> None:
        draft = self._current_draft
        self._current_draft = None
        if draft is None:
            return
        draft.final_text = reply_text
        draft.has_unshown_text = False
        if not draft.messages and not draft.lock.locked():
            self.drafts.remove(draft)

    async def _update_draft_in_chat(self, draft: LiveReplyDraft) -> None:
        """Show the new text. One message is sent or edited at a time."""
        if self._sender.rate_limit_wait_s(self._target) > 0:
            return
        async with draft.lock:
            if draft.final_text is not None:
                return
            pieces = split_telegram_message(
                convert_markdown_to_styled_text(draft.text.rstrip() + DRAFT_SUFFIX),
                MAX_REPLY_UTF16_UNITS,
            )
            for number, piece in enumerate(pieces):
                if number >= len(draft.messages) or draft.messages[number].styled_text != piece:
                    await self._show_piece(draft, number, piece)
                    break
            else:
                draft.has_unshown_text = False

    async def _show_piece(self, draft: LiveReplyDraft, number: int, piece: StyledText) -> None:
        await self._sender.wait_for_slot(self._target)
        try:
            if number < len(draft.messages):
                draft_message = draft.messages[number]
                await self._sender.edit_message(self._target, draft_message.message_id, piece)
                draft_message.styled_text = piece
            else:
                place = self._target
                to = place if number == 0 else TelegramTarget(chat=place.chat, topic=place.topic)
                message = await self._sender.send_message(to, piece)
                draft.messages.append(DraftMessage(message_id=message, styled_text=piece))
        except RetryAfter:
            return
        except TelegramError as error:
            log.info("a draft is no longer updated: %s", type(error).__name__)
            draft.is_frozen = True
            draft.has_unshown_text = False

    async def delete_unclaimed_drafts(self) -> None:
        """Delete drafts that no reply has replaced."""
        for draft in self.drafts:
            for draft_message in draft.messages:
                await self._sender.delete_message(self._target, draft_message.message_id)
