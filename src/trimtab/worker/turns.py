"""One turn of a served session: what waits goes into the log, the model answers, replies go out.

Whatever happens meanwhile, the same again does no harm: a message whose key is in the log is not
added twice, a reply that is there is not asked for again, and the letters stay until both are done.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.agent.agent import Agent
from trimtab.core.event import Turn
from trimtab.dialects.media import softened_message
from trimtab.observe.serving import letters_answered
from trimtab.providers.provider import ProviderError
from trimtab.session import Session
from trimtab.session.happenings import Ended, Happening, Notice
from trimtab.session.tools import Tell
from trimtab.session.turn import wants_reply
from trimtab.worker.letters import Inbound
from trimtab.worker.mail import Mail
from trimtab.worker.replies import apology as apology
from trimtab.worker.replies import rejection_of, replies_of
from trimtab.worker.replies import said_to_user as said_to_user

log = logging.getLogger("trimtab.worker")

BATCH = 50
"""Letters that one turn takes; what is behind them is for the next."""
PATIENCE = 10
"""Pauses that a turn waits for more before it begins, however often more comes."""


@dataclass(slots=True, kw_only=True)
class Attempt:
    """What there is to know of a turn, for whoever ran it."""

    epoch: int | None = None
    """The newest claim of its session that it knew of; None where it did not come so far."""
    full: bool = False
    """Whether it took as many letters as a turn may: there may be more that nobody else looks
    after."""


class Turning:
    """A turn while it runs."""

    def __init__(self, agent: Agent, mail: Mail, session: Session, *, tell: Tell) -> None:
        self._agent = agent
        self._mail = mail
        self._session = session
        self._tell = tell
        self._taken: list[Inbound] = []
        self._first = 0
        self._notices: list[str] = []
        self._epoch = session.window.epoch
        self._stop = False
        self._again = False

    @property
    def epoch(self) -> int:
        """The newest claim that it knew of: its own, once it has one."""
        return self._epoch

    @property
    def full(self) -> bool:
        """Whether it has taken as many letters as it may."""
        return len(self._taken) >= BATCH

    def stop(self) -> None:
        """End after this step."""
        self._stop = True

    async def run(self, waiting: Sequence[Inbound] | None = None, *, gather: bool = True) -> Ended:
        """Answer what waits, and go on with what an earlier attempt has left.

        `waiting` is what the mail has given for this turn; None asks it. With `gather` it waits for
        what people write in pieces; without, somebody has done so. Where there is nothing to do,
        nothing is written.
        """
        if waiting is None:
            waiting = await self._mail.pending(self._session.id, limit=BATCH)
        await self._take(await self._gathered(waiting) if gather else waiting)
        # Before the claim, so that whoever claims from here on makes this turn a stale one.
        self._epoch = self._session.window.epoch
        ended = Ended(why="done", calls=0)
        if await self._is_open():
            self._epoch += 1  # its own, if it fails before it has told
            ended = await self._answered()
        if self._taken:
            numbers = [letter.number for letter in self._taken]
            replies = await replies_of(
                self._session, self._taken, first=self._first, notices=self._notices, ended=ended
            )
            if ended.why == "rejected":
                replies += rejection_of(self._session, self._taken, again=self._again)
            await self._mail.finish(self._session.id, self._epoch, numbers, replies)
            now = time.time()
            letters_answered(self._agent.spec.name, [now - each.at for each in self._taken])
        return ended

    async def _answered(self) -> Ended:
        """What the provider does not take is no matter for an operator: its sender is told, and
        the next message goes without it."""
        window = self._session.window
        self._again = bool(window.rejection.position)
        try:
            return await self._agent.turn(self._session, tell=self._hear, between=self._between)
        except ProviderError as error:
            if error.failure.kind != "rejected":
                raise
            words = self._session.window.rejection.words
            log.warning("turn of %s: what was said was rejected: %s", self._session.id, words)
            return Ended(why="rejected", calls=0)

    async def _gathered(self, waiting: Sequence[Inbound]) -> Sequence[Inbound]:
        """Wait until nothing more comes for a moment: people write in pieces."""
        pause = self._agent.spec.session.debounce
        before = 0
        for _ in range(PATIENCE if pause else 0):
            if len(waiting) in (before, BATCH):
                break
            before = len(waiting)
            await asyncio.sleep(pause)
            waiting = await self._mail.pending(self._session.id, limit=BATCH)
        return waiting

    async def _between(self) -> bool:
        self._epoch = self._session.epoch or 0
        # While tools ran time has passed. Before the first request all was taken a moment ago, and
        # what comes while the last reply is written has a turn of its own.
        ran = bool(self._session.window.rounds and self._session.window.rounds[-1].calls)
        room = BATCH - len(self._taken)
        if ran and room > 0 and self._agent.spec.session.on_message == "steer":
            last = self._taken[-1].number if self._taken else 0
            await self._take(await self._mail.pending(self._session.id, after=last, limit=room))
        return not self._stop

    async def _take(self, letters: Sequence[Inbound]) -> None:
        """Put into the log what has come, each once."""
        for letter in letters:
            # A letter of an earlier release, or for another model, must not be in the way of all
            # that follow it.
            message = softened_message(letter.message, self._session.takes)
            handle = await self._session.add(message, key=letter.key)
            # Where all of it stood in the log already, the replies do as well.
            at = int(handle.removeprefix("m"))
            self._first = min(self._first or at, at)
            self._taken.append(letter)

    async def _is_open(self) -> bool:
        """Whether the model has something to say, or a tool to be run."""
        window = self._session.window
        if not window.open_calls() and not wants_reply(window):
            return False
        return bool(self._taken) or not await self._was_ended()

    async def _was_ended(self) -> bool:
        """Whether the last turn was ended as it is: stopped by somebody, or at its limit."""
        ended, window = False, self._session.window
        since = window.newest_user.seq if window.newest_user is not None else 1
        async for event in self._session.store.events(self._session.id, [(since, None)]):
            if isinstance(event.body, Turn):
                ended = event.body.state == "ended"
        return ended

    def _hear(self, happening: Happening) -> None:
        if isinstance(happening, Notice):
            self._notices.append(happening.text)
        self._tell(happening)
