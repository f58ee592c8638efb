"""A queue on files, for one machine: a log of its own beside the sessions.

    .mail/mail.jsonl  messages that came, turns that ended, replies that left: a record a line
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

from trimtab.errors import StaleOwner, StoreError, StoreUnavailable
from trimtab.server.queue.file_log import FileQueueLog
from trimtab.server.queue.inbound_outbound import (
    InboundMessage,
    OutboundMessage,
    QueueRecord,
    encode_queue_record,
    inbound_to_record,
    outbound_to_record,
)
from trimtab.server.queue.protocol import DeadLetterSession
from trimtab.server.queue.state import (
    ERASING_RECORD_KINDS,
    QueueState,
    build_dead_letter_record,
    build_erasure_record,
)
from trimtab.stores.files import FileStore

MIN_COMPACTION_BYTES = 1_048_576
"""Bytes that a log may have however little of it is alive."""

_log = logging.getLogger("trimtab.server")


class FileMessageQueue:
    """Open it with `FileMessageQueue.open`; at most one process has it."""

    def __init__(
        self,
        store: FileStore,
        on_posted: Callable[[str], None] = lambda _: None,
        *,
        clock: Callable[[], float] = time.time,
        min_compaction_bytes: int = MIN_COMPACTION_BYTES,
    ) -> None:
        self.on_posted = on_posted
        """Called with the session of each message that was posted."""
        self.on_replies: Callable[[], None] = lambda: None
        """Called where replies were written: `ReplyDelivery.due`."""
        self._store = store
        self._clock = clock
        self._min_compaction_bytes = min_compaction_bytes
        self._state = QueueState()
        self._number = 0
        self._log: FileQueueLog | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trimtab-queue")
        self._queued: list[tuple[QueueRecord, bytes, asyncio.Future[None]]] = []
        self._unacknowledged: dict[tuple[str, str], asyncio.Future[None]] = {}
        self._writing: asyncio.Task[None] | None = None
        self._compact_above_bytes = min_compaction_bytes
        self._is_compacted = False
        """Whether the log holds what waits and nothing else."""

    @classmethod
    async def open(
        cls,
        store: FileStore,
        on_posted: Callable[[str], None] = lambda _: None,
        *,
        fsync: bool = True,
        **options: Any,
    ) -> FileMessageQueue:
        """The queue of a store's folder, as it was left. Raises `QueueInUse` and `LogDamaged`."""
        queue = cls(store, on_posted, **options)
        kinds = set[str]()

        def take(record: QueueRecord, size: int) -> None:
            kinds.add(record["kind"])
            queue._state.apply(record, size)

        try:
            log = await queue._in_thread(lambda: FileQueueLog(store.root, take, fsync=fsync))
        except BaseException:
            queue._thread.shutdown(wait=False)
            raise
        queue._log, queue._number = log, queue._state.last_number
        if not kinds.isdisjoint(ERASING_RECORD_KINDS):
            await queue._compact(log)  # what a crash has cut short
        return queue

    async def post(self, inbound: InboundMessage) -> bool:
        name = (inbound.session, inbound.key)
        if not self._state.has_message(*name) and await self._store.find_key(*name) is not None:
            return False
        while (flying := self._unacknowledged.get(name)) is not None:
            # Whether it is kept is not known yet, so neither is whether this one is its double.
            await asyncio.wait([flying])
        if self._state.has_message(*name):
            return False
        record = inbound_to_record(replace(inbound, number=self._next()))
        kept = self._write_record(record)
        self._unacknowledged[name] = kept
        kept.add_done_callback(lambda _: self._unacknowledged.pop(name, None))
        await asyncio.shield(kept)
        return True

    async def pending(
        self, session: str, *, after: int = 0, limit: int = 100
    ) -> list[InboundMessage]:
        return self._state.pending(session, after, limit)

    async def finish_turn(
        self,
        session: str,
        epoch: int,
        answered: Collection[int],
        replies: Sequence[OutboundMessage],
    ) -> None:
        newest = await self._store.latest_epoch(session)
        if epoch < newest:
            raise StaleOwner(session, epoch, newest)
        kept = self._numbered(replies) if await self._store.position(session) else []
        made = {"session": session, "taken": list(answered), "replies": kept}
        await asyncio.shield(self._write_record({"kind": "finished", **made}))

    async def list_waiting_sessions(self) -> list[str]:
        return self._state.waiting_sessions()

    async def depth(self, prefix: str = "") -> int:
        return self._state.depth(prefix)

    async def oldest_waiting_at(self) -> float | None:
        return self._state.oldest_waiting_at()

    async def dead_letter_session(
        self,
        inbound: InboundMessage,
        epoch: int | None,
        why: str,
        replies: Sequence[OutboundMessage] = (),
    ) -> bool:
        session, made = inbound.session, self._numbered(replies)
        if epoch is not None and epoch < await self._store.latest_epoch(session):
            return False
        record = build_dead_letter_record(
            session, why, self._clock(), made, message_number=inbound.number
        )
        await asyncio.shield(self._write_record(record))
        return self._state.dead_letter_reason(session) is not None

    async def list_dead_letters(
        self, *, prefix: str = "", limit: int = 100
    ) -> list[DeadLetterSession]:
        return self._state.dead_letters(prefix, limit)

    async def dead_letter_reason(self, session: str) -> str | None:
        return self._state.dead_letter_reason(session)

    async def revive(self, session: str) -> bool:
        if not self._state.has_dead_letters(session):
            return False
        await asyncio.shield(self._write_record({"kind": "revived", "session": session}))
        if self._state.has_messages(session):
            self.on_posted(session)
        self.on_replies()
        return True

    async def lease_replies(
        self, channels: Collection[str], *, limit: int, lease_s: float
    ) -> list[OutboundMessage]:
        now = self._clock()
        found = self._state.outbox.lease_due(channels, limit=limit, now=now, lease_s=lease_s)
        if found:
            # Before anything is sent: after a crash it is known that it may have been.
            numbers = [reply.number for reply in found]
            await asyncio.shield(self._write_record({"kind": "begun", "numbers": numbers}))
        return found

    async def mark_delivered(self, number: int) -> None:
        await asyncio.shield(self._write_record({"kind": "delivered", "number": number}))

    async def postpone_reply(
        self, number: int, *, delay_s: float, why: str, maybe_sent: bool
    ) -> None:
        until = self._clock() + delay_s
        told = {"number": number, "until": until, "sent": maybe_sent, "why": why}
        await asyncio.shield(self._write_record({"kind": "put_off", **told}))

    async def mark_undeliverable(self, number: int, why: str) -> None:
        told = {"number": number, "why": why, "at": self._clock()}
        await asyncio.shield(self._write_record({"kind": "refused", **told}))

    async def forget_session(self, session: str) -> None:
        await self._erase_durably(session, {"kind": "forgotten", "session": session})

    async def erase_messages(
        self, session: str, positions: Collection[int], keys: Collection[str]
    ) -> None:
        await self._erase_durably(session, build_erasure_record(session, positions, keys))

    async def check_writable(self) -> None:
        if self._log is None:
            raise StoreUnavailable("the queue is closed; open it again to serve from this folder")
        await self._in_thread(self._log.check_writable)

    async def close(self) -> None:
        """Write what was handed in, and leave the folder to another process."""
        while self._writing is not None:
            await asyncio.wait([self._writing])
        log, self._log = self._log, None
        if log is not None:
            await self._in_thread(log.close)
            self._thread.shutdown(wait=False)

    async def _erase_durably(self, session: str, record: QueueRecord) -> None:
        """Done when the log is written anew; at once where nothing of the session is in it."""
        if not self._is_compacted or self._writing is not None or self._state.has_session(session):
            await asyncio.shield(self._write_record(record))

    def _numbered(self, replies: Sequence[OutboundMessage]) -> list[QueueRecord]:
        return [outbound_to_record(replace(reply, number=self._next())) for reply in replies]

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _write_record(self, record: QueueRecord) -> asyncio.Future[None]:
        """Hand in a record; what comes back is done when it is durable and applied."""
        if self._log is None:
            raise StoreUnavailable("the queue is closed; open it again to serve from this folder")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        # Whoever was cancelled does not ask how it ended.
        done.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._queued.append((record, encode_queue_record(record), done))
        if self._writing is None:
            self._writing = loop.create_task(self._write(self._log))
        return done

    async def _write(self, log: FileQueueLog) -> None:
        try:
            while self._queued:
                records, self._queued = self._queued, []
                destroying = await self._write_together(log, records)
                if destroying or log.size > max(
                    self._compact_above_bytes, 2 * self._state.live_bytes
                ):
                    await self._compact(log, destroying)
        finally:
            self._writing = None

    async def _write_together(
        self, log: FileQueueLog, records: Sequence[tuple[QueueRecord, bytes, asyncio.Future[None]]]
    ) -> list[asyncio.Future[None]]:
        """Returns what waits until the log is written anew."""
        lines = [line for _, line, _ in records]
        self._is_compacted = False
        try:
            await self._in_thread(lambda: log.append(lines))
        except Exception as error:  # noqa: BLE001 - each of them is told
            for _, _, done in records:
                done.set_exception(error)
            return []
        destroying: list[asyncio.Future[None]] = []
        for record, line, done in records:
            self._state.apply(record, len(line))
            if record["kind"] in ERASING_RECORD_KINDS:
                destroying.append(done)
                continue
            done.set_result(None)
            if record["kind"] == "letter":
                self.on_posted(record["session"])
            elif record.get("replies"):
                self.on_replies()
        return destroying

    async def _compact(
        self, log: FileQueueLog, destroying: Sequence[asyncio.Future[None]] = ()
    ) -> None:
        """Nothing is applied meanwhile: this is the one task that does."""
        failed: StoreError | None = None
        try:
            await self._in_thread(
                lambda: log.replace(map(encode_queue_record, self._state.records()))
            )
        except StoreError as error:
            _log.warning(
                "the queue's log could not be compacted; finished entries stay for now: %s", error
            )
            failed = error
        self._is_compacted = failed is None
        # Not again before it is worth it, whatever the keys take.
        self._compact_above_bytes = log.size + self._min_compaction_bytes
        for done in destroying:
            if failed is None:
                done.set_result(None)
            else:
                # Whoever wants something destroyed must not believe that it was.
                done.set_exception(failed)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
