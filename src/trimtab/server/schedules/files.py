"""Schedules on files: a log of their own beside the sessions, run by the one process that holds it.

What is removed leaves the log at once: it is written anew, also after a crash in between.

A due run is posted first and noted then. Whoever is ended in between posts it again, under the same
key, which the queue or the session's log knows: it is one run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import TypeVar

from trimtab.errors import StoreError
from trimtab.server.queue.inbound_outbound import InboundMessage
from trimtab.server.schedules.catch_up import decide_due_runs
from trimtab.server.schedules.command_files import list_schedule_command_files
from trimtab.server.schedules.protocol import (
    MAX_RUN_LOG_ENTRIES,
    ScheduleNotPosted,
    TooManySchedules,
    execute_schedule_command,
)
from trimtab.server.schedules.schedule import (
    Schedule,
    ScheduleRunLogEntry,
    apply_schedule_change,
    build_run_message,
    paused_schedule,
    resumed_schedule,
)
from trimtab.server.schedules.single_writer_jsonl import JsonlLog, read_jsonl_log
from trimtab.server.schedules.state import (
    ScheduleRecord,
    ScheduleState,
    build_due_run_record,
    build_removal_record,
    build_schedule_record,
)

T = TypeVar("T")
PostMessage = Callable[[InboundMessage], Awaitable[bool]]
"""Keeps a message durably: `AgentService.post`."""
FindMessageKey = Callable[[str, str], Awaitable[int | None]]
"""Whether a session's log has a key: `Store.find_key`."""

SCHEDULES_FOLDER = ".schedules"
"""In the store's folder; no session's folder begins with a dot."""
MAX_SPARE_LOG_LINES = 1_000
"""Lines that a log may have besides those it needs, before it is written anew."""

log = logging.getLogger("trimtab.schedules")


class FileScheduleStore:
    """Opened by `open`."""

    def __init__(
        self, jsonl_log: JsonlLog, state: ScheduleState, post: PostMessage, find_key: FindMessageKey
    ) -> None:
        self._jsonl_log = jsonl_log
        self._state = state
        self._post = post
        self._find_key = find_key
        self._lock = asyncio.Lock()
        self._has_removed_records = False
        """Whether the log may still say what was removed."""

    @classmethod
    async def open(
        cls, root: Path | str, *, post: PostMessage, find_key: FindMessageKey, fsync: bool = True
    ) -> FileScheduleStore:
        """Take up the schedules of a store's folder.

        Raises `SessionLockedByOtherProcess` where another process has them.
        """
        journal = await asyncio.to_thread(JsonlLog, Path(root) / SCHEDULES_FOLDER, fsync=fsync)
        try:
            book = _fold_records(journal.records)
        except BaseException:
            journal.close()
            raise
        made = cls(journal, book, post, find_key)
        made._has_removed_records = any(record["kind"] == "removed" for record in journal.records)
        journal.records = []
        try:
            await made._compact_removed()  # what a crash has cut short
        except StoreError as error:
            log.warning(
                "the log of the schedules could not be compacted; removed entries stay for now: %s",
                error,
            )
        return made

    async def upsert(self, schedule: Schedule) -> None:
        async with self._lock:
            was = self._state.get(schedule.id)
            now = schedule if was is None else apply_schedule_change(was, schedule)
            if now != was:
                await self._write(build_schedule_record(now))

    async def add(self, schedule: Schedule, *, limit: int) -> Schedule:
        async with self._lock:
            found = self._state.get(schedule.id)
            if found is not None:
                return found
            theirs = self._state.find(session=schedule.session)
            if sum(one.next_run_at is not None for one in theirs) >= limit:
                raise TooManySchedules(schedule.session, limit)
            if old := self._state.list_expired_ids(schedule.created_at):
                await self._write(build_removal_record(old))
            await self._write(build_schedule_record(schedule))
            return schedule

    async def remove(self, schedule_id: str) -> bool:
        async with self._lock:
            found = self._state.get(schedule_id) is not None
            if found:
                await self._write(build_removal_record([schedule_id]))
            await self._compact_removed()
            return found

    async def pause(self, schedule_id: str) -> bool:
        async with self._lock:
            return await self._change_schedule(schedule_id, paused_schedule)

    async def resume(self, schedule_id: str, now: float) -> bool:
        async with self._lock:
            return await self._change_schedule(schedule_id, lambda was: resumed_schedule(was, now))

    async def run_now(self, schedule_id: str, now: float) -> bool:
        async with self._lock:
            found = self._state.get(schedule_id)
            if found is None:
                return False
            if any(
                run.due == now for run in self._state.list_runs(schedule_id, MAX_RUN_LOG_ENTRIES)
            ):
                return True  # asked again by what a crash has left
            await self._post_once(build_run_message(found, now, now))
            made = ScheduleRunLogEntry(schedule=found.id, due=now, at=now)
            await self._write(build_due_run_record(found.id, found.next_run_at, [made]))
            return True

    async def forget_session(self, session: str) -> None:
        async with self._lock:
            mine = [one.id for one in self._state.find(session=session) if one.origin == "tool"]
            if mine:
                await self._write(build_removal_record(mine))
            await self._compact_removed()

    async def get(self, schedule_id: str) -> Schedule | None:
        return self._state.get(schedule_id)

    async def find(
        self, *, session: str | None = None, agent: str | None = None, limit: int = 1000
    ) -> list[Schedule]:
        return self._state.find(session, agent)[:limit]

    async def list_runs(
        self, *, schedule_id: str | None = None, limit: int = 100
    ) -> list[ScheduleRunLogEntry]:
        return self._state.list_runs(schedule_id, limit)

    async def next_due(
        self, agents: Collection[str], *, excluding: Collection[str] = ()
    ) -> float | None:
        found = self._state.first_due(agents, excluding)
        return None if found is None else found.next_run_at

    async def run_next_due(
        self, now: float, agents: Collection[str], *, excluding: Collection[str] = ()
    ) -> Schedule | None:
        await self._execute_commands()
        async with self._lock:
            found = self._state.first_due(agents, excluding)
            if found is None or found.next_run_at is None or found.next_run_at > now:
                return None
            try:
                verdict = decide_due_runs(found, now)
                for due in verdict.due_times:
                    await self._post_once(build_run_message(found, due, now))
            except StoreError:
                raise
            except Exception as error:
                raise ScheduleNotPosted(found.id, error) from error
            await self._write(
                build_due_run_record(
                    found.id, verdict.next_run_at, verdict.build_run_log(found, now)
                )
            )
            return found

    async def close(self) -> None:
        async with self._lock:
            await asyncio.to_thread(self._jsonl_log.close)

    async def _execute_commands(self) -> None:
        """Do what somebody has asked by a file."""
        for wanted, path in await asyncio.to_thread(
            list_schedule_command_files, self._jsonl_log.folder
        ):
            try:
                await execute_schedule_command(self, wanted)
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 - what is due must not wait for it
                log.warning(
                    "%s of schedule %s failed and is retried: %s",
                    wanted.verb,
                    wanted.schedule,
                    error,
                )
            else:
                await asyncio.to_thread(path.unlink, missing_ok=True)

    async def _change_schedule(
        self, schedule_id: str, change: Callable[[Schedule], Schedule]
    ) -> bool:
        was = self._state.get(schedule_id)
        if was is not None and (now := change(was)) != was:
            await self._write(build_schedule_record(now))
        return was is not None

    async def _post_once(self, inbound: InboundMessage) -> None:
        # After a crash it may have been posted, answered and taken out of the queue.
        if await self._find_key(inbound.session, inbound.key) is None:
            await self._post(inbound)

    async def _write(self, record: ScheduleRecord) -> None:
        # Whoever is cancelled meanwhile leaves no line that the book does not know of.
        writing = asyncio.ensure_future(self._write_and_apply(record))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])
            raise

    async def _write_and_apply(self, record: ScheduleRecord) -> None:
        await asyncio.to_thread(self._jsonl_log.append, record)
        self._state.apply(record)
        self._has_removed_records |= record["kind"] == "removed"
        if self._jsonl_log.lines > 2 * self._state.size + MAX_SPARE_LOG_LINES:
            await self._compact_log()

    async def _compact_removed(self) -> None:
        """Let the log not say what was removed, when whoever wanted that is told that it is."""
        if self._has_removed_records:
            await self._compact_log()

    async def _compact_log(self) -> None:
        await asyncio.to_thread(self._jsonl_log.replace, list(self._state.records()))
        self._has_removed_records = False


async def read_schedule_state(root: Path | str) -> ScheduleState:
    """The schedules of a store's folder as they stand, whoever holds them."""
    lines, _ = await asyncio.to_thread(read_jsonl_log, Path(root) / SCHEDULES_FOLDER)
    return _fold_records(lines)


def _fold_records(records: list[ScheduleRecord]) -> ScheduleState:
    book = ScheduleState()
    for line in records:
        book.apply(line)
    return book
