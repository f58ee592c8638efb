"""One turn of a served session: log the waiting messages, run the model, send replies.

Every step can be repeated. A message whose key is in the log is not added twice. A logged reply is
not requested again. Messages stay in the queue until both are done.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.dialects.media import replace_unsupported_media
from trimtab.engine.log.event import TurnProgressRecord
from trimtab.engine.log.message import Message
from trimtab.engine.policy.rejections import list_unanswered_entries
from trimtab.errors import CannotFit, HistoryNotInMemory, ProviderError
from trimtab.session import Session
from trimtab.session.events import TurnEvent, TurnFinished, UserNotice
from trimtab.session.tools import OnEvent
from trimtab.session.turn import TurnHooks
from trimtab_serve.agent.agent import Agent
from trimtab_serve.metrics.recording import observe_answer_delays
from trimtab_serve.queue.messages import InboundMessage
from trimtab_serve.queue.protocol import MessageQueue
from trimtab_serve.service.message_size import count_message_chars
from trimtab_serve.service.put_off import find_log_key
from trimtab_serve.service.replies import build_apology_reply as build_apology_reply
from trimtab_serve.service.replies import build_provider_rejection_replies, build_turn_replies
from trimtab_serve.service.replies import extract_assistant_text as extract_assistant_text

log = logging.getLogger("trimtab.server")

MAX_MESSAGES_PER_TURN = 50
"""Maximum number of messages that one turn takes. The rest is for the next turn."""
MAX_CHARS_PER_TURN = 4_000_000
"""Maximum number of characters of these messages, if there is more than one."""
MAX_DEBOUNCE_PAUSES = 10
"""Maximum number of pauses in which a turn waits for more messages before it begins."""


@dataclass(slots=True, kw_only=True)
class TurnRunReport:
    """The result of a turn, for the code that ran it."""

    epoch: int | None = None
    """The newest claim of the session that the turn knew. None if it did not get that far."""
    full: bool = False
    """Whether the turn took as many messages as it may, so that more may be waiting."""


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
        self._chars = 0
        self._left_messages = False
        self._unplaced: InboundMessage | None = None
        self._log_keys: dict[int, str] = {}
        """By the number of a message: its key in the log."""
        self._positions: dict[int, int] = {}
        """By the number of a message: its position in the log."""
        self._notices: list[str] = []
        self._epoch = session.window.accounting.epoch
        self._stop = asyncio.Event()
        self._pause_requested = False
        self._rejected_before = False

    @property
    def epoch(self) -> int:
        """The newest claim that the turn knew. This is its own claim as soon as it has one."""
        return self._epoch

    @property
    def is_full(self) -> bool:
        """Whether the turn has taken as many messages as it may."""
        return self._left_messages or len(self._messages) >= MAX_MESSAGES_PER_TURN

    @property
    def is_ending(self) -> bool:
        """Whether the turn was asked to end."""
        return self._pause_requested or self._stop.is_set()

    def stop(self) -> None:
        """Cancel the running reply or tools, and end the turn."""
        self._stop.set()

    def pause(self) -> None:
        """End the turn after the current step."""
        self._pause_requested = True

    async def run(
        self, pending: Sequence[InboundMessage] | None = None, *, debounce: bool = True
    ) -> TurnFinished:
        """Answer the waiting messages, and continue what an earlier attempt left.

        `pending` is what the queue returned for this turn. If it is None, the turn reads the queue.
        With `debounce`, the turn waits for messages that people write in pieces. Without it, the
        caller has already waited. If there is nothing to do, nothing is written.

        A message that cannot fit waits until the later ones are answered. So it fails alone: the
        error of the last turn, in which nothing else waits, is raised.
        """
        if pending is None:
            pending = await self._queue.pending(self._session.id, limit=MAX_MESSAGES_PER_TURN)
        messages = await self._debounce_messages(pending) if debounce else pending
        while True:
            try:
                return await self._answer(self._take(messages))
            except CannotFit:
                messages = await self._list_messages_after_unfit()
                if not messages or not await self._put_off(self._messages):
                    raise

    async def _list_messages_after_unfit(self) -> Sequence[InboundMessage]:
        """Return what waits behind the messages of this turn. Nothing if tools have run for these,
        because a turn that is put off runs its tools again."""
        replied_seq = self._session.window.conversation.last_assistant_seq
        if not self._messages or self._positions[self._messages[0].number] <= replied_seq:
            return []
        last = self._messages[-1].number
        return await self._queue.pending(self._session.id, after=last, limit=MAX_MESSAGES_PER_TURN)

    async def _answer(self, messages: Sequence[InboundMessage]) -> TurnFinished:
        # The newest message is logged together with the claim, which saves one append.
        newest = messages[-1] if messages and await self._is_new(messages[-1]) else None
        await self._add_to_log(messages if newest is None else messages[:-1])
        # Read before the claim, so that any later claim makes this turn stale.
        self._epoch = self._session.window.accounting.epoch
        finish_event = TurnFinished(reason="done", calls=0)
        if newest is not None:
            self._messages.append(newest)
            self._unplaced = newest
        if newest is not None or await self._has_work():
            self._epoch += 1  # its own claim, if the turn fails before it reports the claim
            finish_event = await self._run_agent_turn(newest)
            await self._place_newest()  # if it ended before its first request
        if self._messages:
            numbers = [message.number for message in self._messages]
            replies = await build_turn_replies(
                self._session,
                self._messages,
                positions={self._positions[number] for number in numbers},
                notices=self._notices,
                finished=finish_event,
            )
            if finish_event.reason == "rejected":
                replies += build_provider_rejection_replies(
                    self._session, self._messages, previous_message_rejected=self._rejected_before
                )
            await self._queue.finish_turn(self._session.id, self._epoch, numbers, replies)
            now = time.time()
            observe_answer_delays(self._agent.spec.name, [now - each.at for each in self._messages])
        return finish_event

    async def _is_new(self, inbound: InboundMessage) -> bool:
        """Whether the message needs a reply and is not known to be in the log."""
        log_key = await self._find_log_key(inbound)
        positions = self._session.window.base.seq_by_idempotency_key
        return inbound.message.role == "user" and log_key not in positions

    async def _find_log_key(self, inbound: InboundMessage) -> str:
        if inbound.number not in self._log_keys:
            self._log_keys[inbound.number] = await find_log_key(self._session, inbound.key)
        return self._log_keys[inbound.number]

    async def _run_agent_turn(self, newest: InboundMessage | None) -> TurnFinished:
        """Run the agent. If the provider rejects the content, end the turn without an error.

        The sender gets a reply, and the next message goes without the rejected content.
        """
        window = self._session.window
        self._rejected_before = bool(window.accounting.rejection.last_sent_seq)
        message = None if newest is None else self._replace_media(newest)
        try:
            return await self._agent.run_turn(
                self._session,
                message,
                key=None if newest is None else await self._find_log_key(newest),
                wait=None,  # it has the lease; the epoch stops a turn that has lost it
                on_event=self._on_turn_event,
                stop=self._stop,
                hooks=TurnHooks(
                    before_request=self._before_request,
                    on_rejection=self._put_off_newer_half,
                    schedule_summary=self._agent.schedule_summary,
                    # Messages that arrive while the last reply is written get their own turn.
                    end_with_reply=True,
                ),
            )
        except ProviderError as error:
            if error.failure.kind != "rejected":
                raise
            words = self._session.window.accounting.rejection.provider_message
            log.warning(
                "turn of session %s: provider rejected the content: %s", self._session.id, words
            )
            return TurnFinished(reason="rejected", calls=0)

    async def _put_off_newer_half(self, _: Exception) -> bool:
        """Leave the newer half of what was rejected to the next turns, because one message must not
        prevent the answers to the others. Return whether there was more than one.

        Results of tools count as one, before the messages that came while the tools ran.
        """
        window = self._session.window
        replied_seq = window.conversation.last_assistant_seq
        rejected = [m for m in self._messages if self._positions[m.number] > replied_seq]
        has_results = any(e.message.results for e in list_unanswered_entries(window))
        kept = max(0, (len(rejected) + has_results) // 2 - has_results)
        if len(rejected) + has_results < 2:
            return False
        return await self._put_off(rejected[kept:])

    async def _put_off(self, newest: Sequence[InboundMessage]) -> bool:
        """Leave the newest messages of this turn to a later one. Return whether it was possible."""
        try:
            await self._session.recorder.put_off(self._positions[newest[0].number])
        except HistoryNotInMemory:
            return False
        self._messages = [message for message in self._messages if message not in newest]
        for message in newest:
            del self._positions[message.number]
            del self._log_keys[message.number]
        self._left_messages = True
        return True

    async def _debounce_messages(
        self, pending: Sequence[InboundMessage]
    ) -> Sequence[InboundMessage]:
        """Wait until no more messages arrive for a moment, because people write in pieces."""
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
        self._epoch = self._session.recorder.epoch or 0
        await self._place_newest()
        # Tools take time, so new messages may have come. Before the first request, all were just
        # read.
        ran = bool(
            self._session.window.conversation.rounds
            and self._session.window.conversation.rounds[-1].calls
        )
        if ran and not self.is_full and self._agent.spec.session.on_message == "steer":
            last = self._messages[-1].number if self._messages else 0
            room = MAX_MESSAGES_PER_TURN - len(self._messages)
            pending = await self._queue.pending(self._session.id, after=last, limit=room)
            await self._add_to_log(self._take(pending))
        return not self.is_ending

    def _take(self, pending: Sequence[InboundMessage]) -> Sequence[InboundMessage]:
        """Return the first of these messages, up to `MAX_CHARS_PER_TURN` with those before."""
        for number, inbound in enumerate(pending):
            self._chars += count_message_chars(inbound.message)
            if self._chars > MAX_CHARS_PER_TURN and (number or self._messages):
                self._left_messages = True
                return pending[:number]
        return pending

    async def _add_to_log(self, messages: Sequence[InboundMessage]) -> None:
        """Add each message to the log once."""
        for inbound in messages:
            log_key = await self._find_log_key(inbound)
            handle = await self._session.add(self._replace_media(inbound), key=log_key)
            self._positions[inbound.number] = int(handle.removeprefix("m"))
            self._messages.append(inbound)

    async def _place_newest(self) -> None:
        """Find the log position of the message that was added with the claim."""
        if (inbound := self._unplaced) is None:
            return
        self._unplaced = None
        window = self._session.window
        log_key = await self._find_log_key(inbound)
        at = window.base.seq_by_idempotency_key.get(log_key)
        if at is None:  # a checkpoint has dropped the key
            at = await self._session.store.find_key(self._session.id, log_key)
        self._positions[inbound.number] = window.seq if at is None else at

    def _replace_media(self, queued: InboundMessage) -> Message:
        """Replace media that the model does not support, so that later messages are not blocked.

        Such messages were written for another model.
        """
        return replace_unsupported_media(queued.message, self._session.media_support)

    async def _has_work(self) -> bool:
        """Whether the model owes a reply, or a tool has to run."""
        window = self._session.window
        if not window.conversation.open_calls() and not window.is_reply_due:
            return False
        return bool(self._messages) or not await self._was_turn_ended()

    async def _was_turn_ended(self) -> bool:
        """Whether the last turn was stopped by a user or ended at its limit."""
        has_ended = False
        window = self._session.window
        since = window.newest_user_entry.seq if window.newest_user_entry is not None else 1
        async for event in self._session.store.events(self._session.id, [(since, None)]):
            if isinstance(event.body, TurnProgressRecord):
                has_ended = event.body.state == "ended"
        return has_ended

    def _on_turn_event(self, event: TurnEvent) -> None:
        if isinstance(event, UserNotice):
            self._notices.append(event.text)
        self._on_event(event)
