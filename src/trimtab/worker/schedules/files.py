"""Schedules on files: a log of their own beside the sessions, run by the one process that holds it.

What is removed leaves the log at once: it is written anew, also after a crash in between.

A due run is posted first and noted then. Whoever is ended in between posts it again, under the same
key, which the mail or the session's log knows: it is one run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import TypeVar

from trimtab.stores.errors import StoreError
from trimtab.worker.letters import Inbound
from trimtab.worker.schedules.asked import waiting
from trimtab.worker.schedules.book import Book, Record, kept, moved, removed
from trimtab.worker.schedules.journal import Journal, read
from trimtab.worker.schedules.missed import judge
from trimtab.worker.schedules.schedule import Run, Schedule, changed, letter, paused, resumed
from trimtab.worker.schedules.schedules import RUNS, CannotRun, TooMany, do

T = TypeVar("T")
Post = Callable[[Inbound], Awaitable[bool]]
"""Keeps a letter durably: `Service.post`."""
FindKey = Callable[[str, str], Awaitable[int | None]]
"""Whether a session's log has a key: `Store.find_key`."""

FOLDER = ".schedules"
"""In the store's folder; no session's folder begins with a dot."""
SPARE = 1_000
"""Lines that a log may have besides those it needs, before it is written anew."""

log = logging.getLogger("trimtab.schedules")


class FileSchedules:
    """Opened by `open`."""

    def __init__(self, journal: Journal, book: Book, post: Post, find_key: FindKey) -> None:
        self._journal = journal
        self._book = book
        self._post = post
        self._find_key = find_key
        self._gate = asyncio.Lock()
        self._removed = False
        """Whether the log may still say what was removed."""

    @classmethod
    async def open(
        cls, root: Path | str, *, post: Post, find_key: FindKey, fsync: bool = True
    ) -> FileSchedules:
        """Take up the schedules of a store's folder; `SessionBusy` where another has them."""
        journal = await asyncio.to_thread(Journal, Path(root) / FOLDER, fsync=fsync)
        try:
            book = _folded(journal.records)
        except BaseException:
            journal.close()
            raise
        made = cls(journal, book, post, find_key)
        made._removed = any(record["kind"] == "removed" for record in journal.records)
        journal.records = []
        try:
            await made._clear()  # what a crash has cut short
        except StoreError as error:
            log.warning("the log of the schedules keeps what was removed for now: %s", error)
        return made

    async def keep(self, schedule: Schedule) -> None:
        async with self._gate:
            was = self._book.get(schedule.id)
            now = schedule if was is None else changed(was, schedule)
            if now != was:
                await self._write(kept(now))

    async def add(self, schedule: Schedule, *, most: int) -> Schedule:
        async with self._gate:
            found = self._book.get(schedule.id)
            if found is not None:
                return found
            theirs = self._book.find(session=schedule.session)
            if sum(one.next_run_at is not None for one in theirs) >= most:
                raise TooMany(schedule.session, most)
            if old := self._book.old(schedule.created_at):
                await self._write(removed(old))
            await self._write(kept(schedule))
            return schedule

    async def remove(self, schedule: str) -> bool:
        async with self._gate:
            found = self._book.get(schedule) is not None
            if found:
                await self._write(removed([schedule]))
            await self._clear()
            return found

    async def pause(self, schedule: str) -> bool:
        async with self._gate:
            return await self._changed(schedule, paused)

    async def resume(self, schedule: str, now: float) -> bool:
        async with self._gate:
            return await self._changed(schedule, lambda was: resumed(was, now))

    async def run_now(self, schedule: str, now: float) -> bool:
        async with self._gate:
            found = self._book.get(schedule)
            if found is None:
                return False
            if any(run.due == now for run in self._book.runs(schedule, RUNS)):
                return True  # asked again by what a crash has left
            await self._deliver(letter(found, now, now))
            made = Run(schedule=found.id, due=now, at=now)
            await self._write(moved(found.id, found.next_run_at, [made]))
            return True

    async def forget(self, session: str) -> None:
        async with self._gate:
            mine = [one.id for one in self._book.find(session=session) if one.origin == "tool"]
            if mine:
                await self._write(removed(mine))
            await self._clear()

    async def get(self, schedule: str) -> Schedule | None:
        return self._book.get(schedule)

    async def find(
        self, *, session: str | None = None, agent: str | None = None, limit: int = 1000
    ) -> list[Schedule]:
        return self._book.find(session, agent)[:limit]

    async def runs(self, *, schedule: str | None = None, limit: int = 100) -> list[Run]:
        return self._book.runs(schedule, limit)

    async def next_due(
        self, agents: Collection[str], *, without: Collection[str] = ()
    ) -> float | None:
        found = self._book.first(agents, without)
        return None if found is None else found.next_run_at

    async def run_next(
        self, now: float, agents: Collection[str], *, without: Collection[str] = ()
    ) -> Schedule | None:
        await self._obey()
        async with self._gate:
            found = self._book.first(agents, without)
            if found is None or found.next_run_at is None or found.next_run_at > now:
                return None
            try:
                verdict = judge(found, now)
                for due in verdict.due:
                    await self._deliver(letter(found, due, now))
            except StoreError:
                raise
            except Exception as error:
                raise CannotRun(found.id, error) from error
            await self._write(moved(found.id, verdict.next_run_at, verdict.runs(found, now)))
            return found

    async def close(self) -> None:
        async with self._gate:
            await asyncio.to_thread(self._journal.close)

    async def _obey(self) -> None:
        """Do what somebody has asked by a file."""
        for wanted, path in await asyncio.to_thread(waiting, self._journal.folder):
            try:
                await do(self, wanted)
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 - what is due must not wait for it
                log.warning("%s of %s is tried again: %s", wanted.verb, wanted.schedule, error)
            else:
                await asyncio.to_thread(path.unlink, missing_ok=True)

    async def _changed(self, schedule: str, change: Callable[[Schedule], Schedule]) -> bool:
        was = self._book.get(schedule)
        if was is not None and (now := change(was)) != was:
            await self._write(kept(now))
        return was is not None

    async def _deliver(self, made: Inbound) -> None:
        # After a crash it may have been posted, answered and taken out of the mail.
        if await self._find_key(made.session, made.key) is None:
            await self._post(made)

    async def _write(self, record: Record) -> None:
        # Whoever is cancelled meanwhile leaves no line that the book does not know of.
        writing = asyncio.ensure_future(self._written(record))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])
            raise

    async def _written(self, record: Record) -> None:
        await asyncio.to_thread(self._journal.append, record)
        self._book.apply(record)
        self._removed |= record["kind"] == "removed"
        if self._journal.lines > 2 * self._book.size + SPARE:
            await self._shorten()

    async def _clear(self) -> None:
        """Let the log not say what was removed, when whoever wanted that is told that it is."""
        if self._removed:
            await self._shorten()

    async def _shorten(self) -> None:
        await asyncio.to_thread(self._journal.replace, list(self._book.records()))
        self._removed = False


async def look(root: Path | str) -> Book:
    """The schedules of a store's folder as they stand, whoever holds them."""
    lines, _ = await asyncio.to_thread(read, Path(root) / FOLDER)
    return _folded(lines)


def _folded(lines: list[Record]) -> Book:
    book = Book()
    for line in lines:
        book.apply(line)
    return book
