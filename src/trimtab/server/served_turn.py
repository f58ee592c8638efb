"""One turn of a served session: what waits goes into the log, the model answers, replies go out.

Whatever happens meanwhile, the same again does no harm: a message whose key is in the log is not
added twice, a reply that is there is not asked for again, and messages stay until both are done.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.agent.agent import Agent
from trimtab.dialects.media_validation import replace_unsupported_media
from trimtab.log.event import TurnProgressRecord
from trimtab.log.message import Message
from trimtab.observe.server_metrics import observe_answer_delays
from trimtab.providers.protocol_and_failures import ProviderError
from trimtab.server.queue.inbound_outbound import InboundMessage
from trimtab.server.queue.protocol import MessageQueue
from trimtab.server.replies import build_apology_reply as build_apology_reply
from trimtab.server.replies import build_provider_rejection_replies, build_turn_replies
from trimtab.server.replies import extract_assistant_text as extract_assistant_text
from trimtab.session import Session
from trimtab.session.events import TurnEvent, TurnFinished, UserNotice
from trimtab.session.tools import OnEvent
from trimtab.session.turn import is_model_reply_due

log = logging.getLogger("trimtab.server")

MAX_MESSAGES_PER_TURN = 50
"""Messages that one turn takes; what is behind them is for the next."""
MAX_DEBOUNCE_PAUSES = 10
"""Pauses that a turn waits for more before it begins, however often more comes."""


@dataclass(slots=True, kw_only=True)
class TurnRunReport:
    """What there is to know of a turn, for whoever ran it."""

    epoch: int | None = None
    """The newest claim of its session that it knew of; None where it did not come so far."""
    full: bool = False
    """Whether it took as many messages as a turn may: there may be more that nobody else looks
    after."""


class ServedTurn:
    """A turn while it runs."""

    def __init__(
        self, agent: Agent, queue: MessageQueue, session: Session, *, on_event: OnEvent
    ) -> None:
        self._agent = agent
        self._queue = queue
        self._session = session
        self._on_event = on_event
        self._messages: list[InboundMessage] = []
        self._unplaced: InboundMessage | None = None
        self._first_position = 0
        self._notices: list[str] = []
        self._epoch = session.window.accounting.epoch
        self._stop = asyncio.Event()
        self._pause_requested = False
        self._rejected_before = False

    @property
    def epoch(self) -> int:
        """The newest claim that it knew of: its own, once it has one."""
        return self._epoch

    @property
    def is_full(self) -> bool:
        """Whether it has taken as many messages as it may."""
        return len(self._messages) >= MAX_MESSAGES_PER_TURN

    @property
    def is_ending(self) -> bool:
        """Whether it was told to end."""
        return self._pause_requested or self._stop.is_set()

    def stop(self) -> None:
        """Cut off the reply or the tools that run, and end."""
        self._stop.set()

    def pause(self) -> None:
        """End after this step."""
        self._pause_requested = True

    async def run(
        self, pending: Sequence[InboundMessage] | None = None, *, debounce: bool = True
    ) -> TurnFinished:
        """Answer what waits, and go on with what an earlier attempt has left.

        `waiting` is what the queue has given for this turn; None asks it. With `gather` it waits
        for what people write in pieces; without, somebody has done so. Where there is nothing to
        do, nothing is written.
        """
        if pending is None:
            pending = await self._queue.pending(self._session.id, limit=MAX_MESSAGES_PER_TURN)
        messages = await self._debounce_messages(pending) if debounce else pending
        # The newest goes into the log in one step with the claim: an append less.
        newest = messages[-1] if messages and self._is_new(messages[-1]) else None
        await self._add_to_log(messages if newest is None else messages[:-1])
        # Before the claim, so that whoever claims from here on makes this turn a stale one.
        self._epoch = self._session.window.accounting.epoch
        ended = TurnFinished(reason="done", calls=0)
        if newest is not None:
            self._messages.append(newest)
            self._unplaced = newest
        if newest is not None or await self._has_work():
            self._epoch += 1  # its own, if it fails before it has told
            ended = await self._run_agent_turn(newest)
            await self._place_newest()  # if it ended before its first request
        if self._messages:
            numbers = [queued.number for queued in self._messages]
            replies = await build_turn_replies(
                self._session,
                self._messages,
                first_position=self._first_position,
                notices=self._notices,
                finished=ended,
            )
            if ended.reason == "rejected":
                replies += build_provider_rejection_replies(
                    self._session, self._messages, previous_message_rejected=self._rejected_before
                )
            await self._queue.finish_turn(self._session.id, self._epoch, numbers, replies)
            now = time.time()
            observe_answer_delays(self._agent.spec.name, [now - each.at for each in self._messages])
        return ended

    def _is_new(self, queued: InboundMessage) -> bool:
        """Whether it is a message that a reply is due to, and not in the log as far as is known."""
        known = self._session.window.base.seq_by_idempotency_key
        return queued.message.role == "user" and queued.key not in known

    async def _run_agent_turn(self, newest: InboundMessage | None) -> TurnFinished:
        """What the provider does not take is no matter for an operator: its sender is told, and
        the next message goes without it."""
        window = self._session.window
        self._rejected_before = bool(window.accounting.rejection.last_sent_seq)
        message = None if newest is None else self._replace_media(newest)
        try:
            return await self._agent.run_turn(
                self._session,
                message,
                key=None if newest is None else newest.key,
                claim_with_message=True,
                # What comes while the last reply is written has a turn of its own.
                end_with_reply=True,
                on_event=self._on_turn_event,
                before_request=self._before_request,
                stop=self._stop,
            )
        except ProviderError as error:
            if error.failure.kind != "rejected":
                raise
            words = self._session.window.accounting.rejection.provider_message
            log.warning(
                "turn of session %s: the provider rejected the content: %s", self._session.id, words
            )
            return TurnFinished(reason="rejected", calls=0)

    async def _debounce_messages(
        self, pending: Sequence[InboundMessage]
    ) -> Sequence[InboundMessage]:
        """Wait until nothing more comes for a moment: people write in pieces."""
        pause = self._agent.spec.session.debounce
        before = 0
        for _ in range(MAX_DEBOUNCE_PAUSES if pause else 0):
            if len(pending) in (before, MAX_MESSAGES_PER_TURN):
                break
            before = len(pending)
            await asyncio.sleep(pause)
            pending = await self._queue.pending(self._session.id, limit=MAX_MESSAGES_PER_TURN)
        return pending

    async def _before_request(self) -> bool:
        self._epoch = self._session.epoch or 0
        await self._place_newest()
        # While tools ran time has passed. Before the first request all was taken a moment ago.
        ran = bool(
            self._session.window.conversation.rounds
            and self._session.window.conversation.rounds[-1].calls
        )
        room = MAX_MESSAGES_PER_TURN - len(self._messages)
        if ran and room > 0 and self._agent.spec.session.on_message == "steer":
            last = self._messages[-1].number if self._messages else 0
            await self._add_to_log(
                await self._queue.pending(self._session.id, after=last, limit=room)
            )
        return not self.is_ending

    async def _add_to_log(self, messages: Sequence[InboundMessage]) -> None:
        """Put into the log what has come, each once."""
        for queued in messages:
            handle = await self._session.add(self._replace_media(queued), key=queued.key)
            self._note_position(int(handle.removeprefix("m")))
            self._messages.append(queued)

    async def _place_newest(self) -> None:
        """Learn where the message stands that was added with the claim."""
        if (queued := self._unplaced) is None:
            return
        self._unplaced = None
        window = self._session.window
        at = window.base.seq_by_idempotency_key.get(queued.key)
        if at is None:  # a checkpoint has let go of it
            at = await self._session.store.find_key(self._session.id, queued.key)
        self._note_position(window.seq if at is None else at)

    def _note_position(self, at: int) -> None:
        # Where all of it stood in the log already, the replies do as well.
        self._first_position = min(self._first_position or at, at)

    def _replace_media(self, queued: InboundMessage) -> Message:
        """A message of an earlier release, or for another model, must not be in the way of all that
        follow it."""
        return replace_unsupported_media(queued.message, self._session.media_support)

    async def _has_work(self) -> bool:
        """Whether the model has something to say, or a tool to be run."""
        window = self._session.window
        if not window.conversation.open_calls() and not is_model_reply_due(window):
            return False
        return bool(self._messages) or not await self._was_turn_ended()

    async def _was_turn_ended(self) -> bool:
        """Whether the last turn was ended as it is: stopped by somebody, or at its limit."""
        ended, window = False, self._session.window
        since = window.newest_user_entry.seq if window.newest_user_entry is not None else 1
        async for event in self._session.store.events(self._session.id, [(since, None)]):
            if isinstance(event.body, TurnProgressRecord):
                ended = event.body.state == "ended"
        return ended

    def _on_turn_event(self, event: TurnEvent) -> None:
        if isinstance(event, UserNotice):
            self._notices.append(event.text)
        self._on_event(event)
