"""Import the files of the previous release into the database, once.

    .mail/mail.jsonl          messages and replies, one change per line
    .schedules/events.jsonl   schedules and their runs, one change per line

Each line becomes the statement that does the same. One transaction imports everything and records
which files it read. The files are deleted after it. If this process ends before, the next one
deletes them.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from sqlite3 import Connection, Cursor
from typing import Any

from trimtab.errors import LogDamaged
from trimtab.server.queue.inbound_outbound import (
    OutboundMessage,
    QueueRecord,
    ReplyRoute,
    check_queue_record_version,
    inbound_from_record,
    outbound_from_record,
)
from trimtab.server.queue.sqlite_rows import (
    end_reply,
    erase_messages,
    forget_session,
    give_up_session,
    insert_message,
    insert_reply,
    remove_messages,
    revive_session,
)
from trimtab.server.schedules.schedule import schedule_from_json, schedule_run_from_json
from trimtab.server.schedules.sqlite_rows import (
    get_schedule,
    move_schedule,
    remove_schedule,
    write_schedule,
)
from trimtab.server.sqlite.queries import SQLITE_QUERIES, encode_name
from trimtab.stores.files.disk import fsync_folder
from trimtab.stores.files.lock import FolderLock
from trimtab.stores.files.log_file import parse_log_line

OLD_QUEUE_LOG, OLD_SCHEDULE_LOG = Path(".mail/mail.jsonl"), Path(".schedules/events.jsonl")
OLD_FOLDERS = (OLD_QUEUE_LOG.parent, OLD_SCHEDULE_LOG.parent)

_log = logging.getLogger("trimtab.server")


def has_old_files(root: Path) -> bool:
    """Whether the previous release left files in a store's folder."""
    return any((root / folder).exists() for folder in OLD_FOLDERS)


def take_over_old_files(root: Path, connection: Connection) -> None:
    """Import the files, and delete them.

    Raises `SessionLockedByOtherProcess` if a process of the previous release uses them, and
    `LogDamaged`.
    """
    with ExitStack() as held:
        logs = [root / log for log in (OLD_QUEUE_LOG, OLD_SCHEDULE_LOG)]
        logs = [log for log in logs if log.parent.exists()]
        for log in logs:
            held.callback(FolderLock(log.parent, log.parent.name).release)
        connection.execute("BEGIN IMMEDIATE")
        for log in logs:
            if log.exists() and _note_taken_over(connection, log):
                take = _QueueReplay if log.name == OLD_QUEUE_LOG.name else _ScheduleReplay
                replay = take(connection)
                for record in _read_whole_batches(log):
                    replay.apply(record)
                _log.info("imported %s into the database", log)
        connection.execute("COMMIT")
        # Remove the data that was deleted on the way.
        connection.execute("VACUUM")
        for log in logs:
            shutil.rmtree(log.parent)
        fsync_folder(root)


def _note_taken_over(connection: Connection, log: Path) -> bool:
    """Record the file, and return whether it is new."""
    found = log.stat()
    name = f"{log.name} {found.st_ino} {found.st_mtime_ns} {found.st_size}"
    return bool(
        connection.execute("INSERT OR IGNORE INTO taken_over (path) VALUES (?)", [name]).rowcount
    )


def _read_whole_batches(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a log. A batch that a crash truncated was never acknowledged.

    All lines of a batch except its last end in a space. All except its first begin with one.
    """
    batch: list[dict[str, Any]] = []
    with log.open("rb") as file:
        for line in file:
            record = parse_log_line(line)
            if record is None or line.startswith(b" ") != bool(batch):
                break
            batch.append(record)
            if not line.endswith(b" \n"):
                yield from batch
                batch = []
        for line in file:
            if not line.startswith(b" ") and parse_log_line(line) is not None:
                raise LogDamaged(
                    f"{log} of the previous release has an unreadable line before readable ones; "
                    "restore it from a backup, or move it away to start without it"
                )


class _QueueReplay:
    """Replays the changes of messages and replies on the tables."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._numbers: dict[int, int] = {}
        """The new number of each old number of a message or a reply."""

    def apply(self, line: QueueRecord) -> None:
        record, connection = check_queue_record_version(line), self._connection
        match record["kind"]:
            case "head":
                for key in record["known"]:
                    self._remember_key(key)
            case "letter":
                inbound = inbound_from_record(record)
                self._numbers[inbound.number] = insert_message(connection, inbound) or 0
            case "finished":
                numbers = [*map(self._now, record["taken"])]
                remove_messages(connection, record["session"], numbers)
                self._keep_replies(record["replies"])
            case "given_up":
                why, at = record["why"], record["at"]
                number = self._find_message(record["session"], record.get("letter"))
                if give_up_session(connection, record["session"], number, why, at):
                    self._keep_replies(record["replies"])
            case "revived":
                revive_session(connection, record["session"])
            case "forgotten":
                forget_session(connection, record["session"])
            case "erased":
                erase_messages(connection, record["session"], record["positions"], record["keys"])
            case _:
                self._apply_to_replies(record)

    def _apply_to_replies(self, record: QueueRecord) -> None:
        match record["kind"]:
            case "reply":
                self._keep_replies([record])
            case "begun":
                for number in record["numbers"]:
                    self._run("lend", self._now(number), 0.0)
            case "put_off":
                why, undone = encode_name(record.get("why", "")), 0 if record["sent"] else 1
                self._run("put_off", self._now(record["number"]), record["until"], why, undone)
            case "delivered":
                end_reply(self._connection, "delivered", self._now(record["number"]), 0.0)
            case "refused":
                number, why = self._now(record["number"]), encode_name(record["why"])
                end_reply(self._connection, "refused", number, why, record["at"])
            case kind:
                raise ValueError(f"unknown queue record kind {kind!r}")

    def _keep_replies(self, records: Sequence[QueueRecord]) -> None:
        for record in records:
            reply = outbound_from_record(record)
            number = insert_reply(self._connection, reply, record.get("until", 0.0))
            self._numbers[reply.number] = number or 0

    def _remember_key(self, key: str) -> None:
        """Store the key of a delivered reply. It begins with the three parts of a session's id."""
        reply = OutboundMessage(
            session="/".join(key.split("/")[:3]),
            seq=0,
            text="",
            route=ReplyRoute(channel="", address={}),
            key=key,
        )
        if (number := insert_reply(self._connection, reply, 0.0)) is not None:
            end_reply(self._connection, "delivered", number, 0.0)

    def _find_message(self, session: str, number: int | None) -> int:
        """Return the message with which its session was abandoned. Return any in a rewritten
        log."""
        if number is not None:
            return self._now(number)
        row = self._run("pending", encode_name(session), 0, 1).fetchone()
        return 0 if row is None else row[0]

    def _now(self, number: int) -> int:
        """Return the new number. 0, which is never used, if it is gone."""
        return self._numbers.get(number, 0)

    def _run(self, query_name: str, *values: object) -> Cursor:
        return self._connection.execute(SQLITE_QUERIES[query_name], values)


class _ScheduleReplay:
    """Replays the changes of schedules on the tables."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def apply(self, record: QueueRecord) -> None:
        connection = self._connection
        match record["kind"]:
            case "kept":
                made = schedule_from_json(record["schedule"])
                write_schedule(connection, made)
                self._move(made.id, made.next_run_at, record["runs"])
            case "moved":
                if get_schedule(connection, record["id"]) is not None:
                    self._move(record["id"], record["next_run_at"], record["runs"])
            case "removed":
                for one in record["ids"]:
                    remove_schedule(connection, one)
            case kind:
                raise ValueError(f"unknown schedule record kind {kind!r}; upgrade trimtab")

    def _move(
        self, schedule_id: str, next_run_at: float | None, runs: Sequence[QueueRecord]
    ) -> None:
        entries = [schedule_run_from_json(run) for run in runs]
        move_schedule(self._connection, schedule_id, next_run_at, entries)
