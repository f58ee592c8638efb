"""Agents at work: the one place where doors hand in what is said, and where turns are run.

A door (HTTP, a chat platform, a schedule) posts letters and delivers replies. It has no budget
logic of its own: every turn goes through `run_turn`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from trimtab.agent.agent import Agent
from trimtab.core.event import Said
from trimtab.core.message import Message
from trimtab.observe.serving import letter_posted
from trimtab.session import Session
from trimtab.session.happenings import Ended
from trimtab.stores.store import Store
from trimtab.worker.crowd import Crowd
from trimtab.worker.letters import Inbound
from trimtab.worker.live import Live
from trimtab.worker.mail import Mail
from trimtab.worker.naming import address_of
from trimtab.worker.sessions import KEPT, Sessions
from trimtab.worker.turns import BATCH, Attempt, Turning


class NoAgent(LookupError):
    """No agent of that name is served."""

    def __init__(self, name: str, served: Mapping[str, Agent]) -> None:
        super().__init__(f"no agent {name!r} is served here; there is {', '.join(sorted(served))}")


class Crowded(RuntimeError):
    """More waits than is worth waiting for: come again later."""

    def __init__(self, waiting: int, limit: int) -> None:
        self.waiting = waiting
        """Messages that wait."""
        self.limit = limit
        """Messages that may."""
        super().__init__(f"{waiting:,} messages wait and {limit:,} may; try again in a while")


@dataclass(slots=True, kw_only=True)
class Service:
    """What doors and runners share."""

    agents: Mapping[str, Agent]
    """Who is served, by name. All keep their sessions in the one store."""
    store: Store
    """Where sessions are."""
    mail: Mail
    """What has come in and what must go out."""
    live: Live
    """Who hears what happens."""
    max_waiting: int = 10_000
    """Letters of one tenant that may wait; beyond that new ones are refused."""
    kept: int = KEPT
    """Sessions that stay open while nobody uses them."""
    forgetting: list[Callable[[str], Awaitable[None]]] = field(
        default_factory=list["Callable[[str], Awaitable[None]]"]
    )
    """Told of each session that is deleted: what is kept of it elsewhere goes with it."""
    sessions: Sessions = field(init=False)
    """Those that are open."""
    _crowd: Crowd = field(init=False)
    _running: dict[str, _Turn] = field(init=False, default_factory=dict[str, "_Turn"])

    def __post_init__(self) -> None:
        self.sessions = Sessions(self._open, kept=self.kept)
        self._crowd = Crowd(self.mail.depth)

    async def post(self, letter: Inbound) -> bool:
        """Take something in: when this returns it is kept, and a turn will follow.

        False where the sender's key is known already, as one that waits or one that is in the log.
        Raises `NoAgent` and `Crowded`.
        """
        self.agent_of(letter.session)
        tenant = letter.session.partition("/")[0]
        waiting = await self._crowd.waiting(f"{tenant}/", self.max_waiting)
        if waiting >= self.max_waiting:
            letter_posted(tenant, "crowded")
            raise Crowded(waiting, self.max_waiting)
        kept = await self.mail.post(letter)
        if kept:
            self._crowd.came(f"{tenant}/")
        letter_posted(tenant, "taken" if kept else "known")
        return kept

    async def said_under(
        self, session: str, key: str, position: int | None = None
    ) -> Message | None:
        """What was said under a key, in the log or waiting for it; None for nothing. Who knows the
        position of it in the log says so."""
        position = position or await self.store.find_key(session, key)
        if position is not None:
            async for event in self.store.events(session, [(position, position)]):
                if isinstance(event.body, Said):
                    return event.body.message
        for letter in await self.mail.pending(session):
            if letter.key == key:
                return letter.message
        return None

    def agent_of(self, session: str) -> Agent:
        """Who answers in a session."""
        address = address_of(session)
        if address is None or address.agent not in self.agents:
            raise NoAgent(address.agent if address is not None else session, self.agents)
        return self.agents[address.agent]

    def using(self, session: str) -> AbstractAsyncContextManager[Session]:
        """A session as it stands now, new where there is none."""
        return self.sessions.using(session)

    async def answer(
        self, session: str, *, gather: bool = True, attempt: Attempt | None = None
    ) -> Ended:
        """Run one turn: what a runner does when one is due.

        Without `gather` it does not wait for what people write in pieces: the runner has.
        `attempt` says how far it came.
        """
        agent = self.agent_of(session)
        waiting = await self.mail.pending(session, limit=BATCH)
        if not waiting and not await self.store.position(session):
            return Ended(why="done", calls=0)  # deleted, and not to be begun anew by this
        async with self.using(session) as opened:
            turning = Turning(
                agent, self.mail, opened, tell=lambda happening: self.live.tell(session, happening)
            )
            task = asyncio.ensure_future(turning.run(waiting, gather=gather))
            mine = self._running[session] = _Turn(turning=turning, task=task)
            try:
                return await task
            except asyncio.CancelledError:
                if not mine.dropped:
                    raise
            finally:
                if attempt is not None:
                    attempt.epoch, attempt.full = turning.epoch, turning.full
                if self._running.get(session) is mine:
                    del self._running[session]
        # The session's place is held until nothing of it is left that another turn could take up.
        await mine.deleted.wait()
        return Ended(why="stopped", calls=0)

    def stop(self, session: str) -> bool:
        """Let the turn that runs end after its step, in whichever process; False where it does not
        run in this one, and may not run at all."""
        here = self.stop_here(session)
        if not here:
            self.live.ask_to_stop(session)
        return here

    def stop_here(self, session: str) -> bool:
        """The same, asked by another process."""
        found = self._running.get(session)
        if found is not None:
            found.turning.stop()
        return found is not None

    async def delete(self, session: str) -> None:
        """Remove a session and all that waits in it; a turn that runs here is broken off.

        Raises `NoSession`.
        """
        found = self._running.get(session)
        try:
            if found is not None:
                # First the letters: whoever takes the session up from here on finds none.
                await self.mail.forget(session)
                await found.drop()
            for forget in self.forgetting:
                await forget(session)
            await self.mail.forget(session)
            await self.sessions.forget(session)
            await self.store.delete(session)
        finally:
            if found is not None:
                found.deleted.set()

    async def close(self) -> None:
        """Give back what is held."""
        await self.sessions.close()
        await self.mail.close()

    async def _open(self, session: str) -> Session:
        return await self.agent_of(session).session(session)


@dataclass(slots=True, kw_only=True)
class _Turn:
    """A turn that runs here."""

    turning: Turning
    """What can be stopped."""
    task: asyncio.Future[Ended]
    """What can be broken off."""
    dropped: bool = False
    """Whether it was, because its session is deleted."""
    deleted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when that is done."""

    async def drop(self) -> None:
        """Break it off."""
        self.dropped = True
        self.task.cancel()
        await asyncio.wait([self.task])
