"""A mail on files, for one machine: a log of its own beside the sessions.

    .mail/mail.jsonl  letters that came, turns that ended, replies that left: a record a line
    .mail/lock        the process that serves

What waits is in memory; the log is there to make it again. Records that are handed in while one
write is under way go out together in the next, so many share one fsync. When most of the log speaks
of what is over, it is written anew with what waits alone, and the keys of the last replies.

So it is when something is deleted or erased, before that is acknowledged. The record that says so
stands in the log until it is done: whoever opens the log after a crash does it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from trimtab.stores.errors import StaleOwner, StoreError, StoreUnavailable
from trimtab.stores.files import FileStore
from trimtab.worker.box import DESTROYING, Box, erased, given_up
from trimtab.worker.files_log import MailLog
from trimtab.worker.letters import Inbound, Outbound
from trimtab.worker.mail import Dead
from trimtab.worker.records import Record, dump, from_letter, from_reply

ROOM = 1_048_576
"""Bytes that a log may have however little of it is alive."""

_log = logging.getLogger("trimtab.worker")


class FileMail:
    """Open it with `FileMail.open`; at most one process has it."""

    def __init__(
        self,
        store: FileStore,
        due: Callable[[str], None] = lambda _: None,
        *,
        clock: Callable[[], float] = time.time,
        room: int = ROOM,
    ) -> None:
        self.due = due
        """Called with the session of each letter that was posted."""
        self.replied: Callable[[], None] = lambda: None
        """Called where replies were written: `Delivery.due`."""
        self._store = store
        self._clock = clock
        self._room = room
        self._box = Box()
        self._number = 0
        self._log: MailLog | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trimtab-mail")
        self._queued: list[tuple[Record, bytes, asyncio.Future[None]]] = []
        self._flying: dict[tuple[str, str], asyncio.Future[None]] = {}
        self._writing: asyncio.Task[None] | None = None
        self._enough = room
        self._lean = False
        """Whether the log holds what waits and nothing else."""

    @classmethod
    async def open(
        cls,
        store: FileStore,
        due: Callable[[str], None] = lambda _: None,
        *,
        fsync: bool = True,
        **own: Any,
    ) -> FileMail:
        """The mail of a store's folder, as it was left. Raises `MailBusy` and `Damaged`."""
        mail = cls(store, due, **own)
        kinds = set[str]()

        def take(record: Record, size: int) -> None:
            kinds.add(record["kind"])
            mail._box.apply(record, size)

        try:
            log = await mail._in_thread(lambda: MailLog(store.root, take, fsync=fsync))
        except BaseException:
            mail._thread.shutdown(wait=False)
            raise
        mail._log, mail._number = log, mail._box.number
        if not kinds.isdisjoint(DESTROYING):
            await mail._compact(log)  # what a crash has cut short
        return mail

    async def post(self, letter: Inbound) -> bool:
        name = (letter.session, letter.key)
        if not self._box.waits(*name) and await self._store.find_key(*name) is not None:
            return False
        while (flying := self._flying.get(name)) is not None:
            # Whether it is kept is not known yet, so neither is whether this one is its double.
            await asyncio.wait([flying])
        if self._box.waits(*name):
            return False
        record = from_letter(replace(letter, number=self._next()))
        kept = self._put(record)
        self._flying[name] = kept
        kept.add_done_callback(lambda _: self._flying.pop(name, None))
        await asyncio.shield(kept)
        return True

    async def pending(self, session: str, *, after: int = 0, limit: int = 100) -> list[Inbound]:
        return self._box.pending(session, after, limit)

    async def finish(
        self, session: str, epoch: int, taken: Collection[int], replies: Sequence[Outbound]
    ) -> None:
        newest = await self._store.epoch(session)
        if epoch < newest:
            raise StaleOwner(session, epoch, newest)
        kept = self._numbered(replies) if await self._store.position(session) else []
        made = {"session": session, "taken": list(taken), "replies": kept}
        await asyncio.shield(self._put({"kind": "finished", **made}))

    async def waiting(self) -> list[str]:
        return self._box.waiting()

    async def depth(self, prefix: str = "") -> int:
        return self._box.depth(prefix)

    async def give_up(
        self, letter: Inbound, epoch: int | None, why: str, replies: Sequence[Outbound] = ()
    ) -> bool:
        session, made = letter.session, self._numbered(replies)
        if epoch is not None and epoch < await self._store.epoch(session):
            return False
        record = given_up(session, why, self._clock(), made, letter=letter.number)
        await asyncio.shield(self._put(record))
        return self._box.why_given_up(session) is not None

    async def dead(self, *, prefix: str = "", limit: int = 100) -> list[Dead]:
        return self._box.dead(prefix, limit)

    async def why_given_up(self, session: str) -> str | None:
        return self._box.why_given_up(session)

    async def revive(self, session: str) -> bool:
        if not self._box.is_dead(session):
            return False
        await asyncio.shield(self._put({"kind": "revived", "session": session}))
        if self._box.has_letters(session):
            self.due(session)
        self.replied()
        return True

    async def outgoing(self, doors: Collection[str], *, limit: int, lease: float) -> list[Outbound]:
        now = self._clock()
        found = self._box.outbox.lend(doors, limit=limit, now=now, lease=lease)
        if found:
            # Before anything is sent: after a crash it is known that it may have been.
            numbers = [reply.number for reply in found]
            await asyncio.shield(self._put({"kind": "begun", "numbers": numbers}))
        return found

    async def delivered(self, number: int) -> None:
        await asyncio.shield(self._put({"kind": "delivered", "number": number}))

    async def put_off(self, number: int, *, seconds: float, why: str, sent: bool) -> None:
        until = self._clock() + seconds
        told = {"number": number, "until": until, "sent": sent, "why": why}
        await asyncio.shield(self._put({"kind": "put_off", **told}))

    async def refused(self, number: int, why: str) -> None:
        told = {"number": number, "why": why, "at": self._clock()}
        await asyncio.shield(self._put({"kind": "refused", **told}))

    async def forget(self, session: str) -> None:
        await self._destroy(session, {"kind": "forgotten", "session": session})

    async def erase(self, session: str, positions: Collection[int], keys: Collection[str]) -> None:
        await self._destroy(session, erased(session, positions, keys))

    async def close(self) -> None:
        """Write what was handed in, and leave the folder to another process."""
        while self._writing is not None:
            await asyncio.wait([self._writing])
        log, self._log = self._log, None
        if log is not None:
            await self._in_thread(log.close)
            self._thread.shutdown(wait=False)

    async def _destroy(self, session: str, record: Record) -> None:
        """Done when the log is written anew; at once where nothing of the session is in it."""
        if not self._lean or self._writing is not None or self._box.knows(session):
            await asyncio.shield(self._put(record))

    def _numbered(self, replies: Sequence[Outbound]) -> list[Record]:
        return [from_reply(replace(reply, number=self._next())) for reply in replies]

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _put(self, record: Record) -> asyncio.Future[None]:
        """Hand in a record; what comes back is done when it is durable and applied."""
        if self._log is None:
            raise StoreUnavailable("the mail is closed; open it again to serve from this folder")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        # Whoever was cancelled does not ask how it ended.
        done.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._queued.append((record, dump(record), done))
        if self._writing is None:
            self._writing = loop.create_task(self._write(self._log))
        return done

    async def _write(self, log: MailLog) -> None:
        try:
            while self._queued:
                records, self._queued = self._queued, []
                destroying = await self._write_together(log, records)
                if destroying or log.size > max(self._enough, 2 * self._box.live):
                    await self._compact(log, destroying)
        finally:
            self._writing = None

    async def _write_together(
        self, log: MailLog, records: Sequence[tuple[Record, bytes, asyncio.Future[None]]]
    ) -> list[asyncio.Future[None]]:
        """Returns what waits until the log is written anew."""
        lines = [line for _, line, _ in records]
        self._lean = False
        try:
            await self._in_thread(lambda: log.append(lines))
        except Exception as error:  # noqa: BLE001 - each of them is told
            for _, _, done in records:
                done.set_exception(error)
            return []
        destroying: list[asyncio.Future[None]] = []
        for record, line, done in records:
            self._box.apply(record, len(line))
            if record["kind"] in DESTROYING:
                destroying.append(done)
                continue
            done.set_result(None)
            if record["kind"] == "letter":
                self.due(record["session"])
            elif record.get("replies"):
                self.replied()
        return destroying

    async def _compact(self, log: MailLog, destroying: Sequence[asyncio.Future[None]] = ()) -> None:
        """Nothing is applied meanwhile: this is the one task that does."""
        failed: StoreError | None = None
        try:
            await self._in_thread(lambda: log.replace(map(dump, self._box.records())))
        except StoreError as error:
            _log.warning("the mail's log keeps what is over for now: %s", error)
            failed = error
        self._lean = failed is None
        # Not again before it is worth it, whatever the keys take.
        self._enough = log.size + self._room
        for done in destroying:
            if failed is None:
                done.set_result(None)
            else:
                # Whoever wants something destroyed must not believe that it was.
                done.set_exception(failed)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
