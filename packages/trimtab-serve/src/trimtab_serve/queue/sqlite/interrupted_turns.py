"""Which turns ran when an earlier process of this folder vanished.

    .server/running  a digest of the session of each running turn

A process that is killed leaves its digests in the file, and the next process counts them. The file
is not forced to the disk: it has to survive the end of the process, not a power failure, which no
turn causes. So a turn costs two small writes into memory.
"""

from __future__ import annotations

import logging
import os
from hashlib import blake2b
from pathlib import Path
from sqlite3 import Connection
from typing import Self

from trimtab.stores.files.disk import open_private_file, translate_write_errors
from trimtab_serve.queue.protocol import MAX_INTERRUPTIONS
from trimtab_serve.queue.sqlite.database import SERVER_FOLDER
from trimtab_serve.queue.sqlite.queries import SQLITE_QUERIES, decode_name, encode_name
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue

FILE_NAME = "running"
DIGEST_BYTES = 16

log = logging.getLogger("trimtab.server")


class InterruptedTurns:
    """The turns that are running, and how often in a row earlier ones did not end.

    Created by `open`, released by `close`.
    """

    def __init__(self, descriptor: int) -> None:
        self.times: dict[str, int] = {}
        """How often in a row each session's turn was interrupted. Others are not listed."""
        self.exhausted: list[str] = []
        """The sessions whose turn was interrupted just now, and too often."""
        self._descriptor = descriptor
        self._free_places: list[int] = []
        self._places: dict[str, int] = {}

    @classmethod
    async def open(cls, queue: SqliteMessageQueue, root: Path) -> Self:
        """Count the turns that an earlier process did not end, and begin with none."""
        path = root / SERVER_FOLDER / FILE_NAME
        with translate_write_errors(path):
            descriptor = open_private_file(path, os.O_RDWR | os.O_CREAT)
        turns = cls(descriptor)
        try:
            content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
            digests = {
                content[start : start + DIGEST_BYTES]
                for start in range(0, len(content), DIGEST_BYTES)
            } - {bytes(DIGEST_BYTES)}

            def count(connection: Connection) -> list[bytes]:
                rows = connection.execute(SQLITE_QUERIES["waiting"]).fetchall() if digests else []
                names = [name for (name,) in rows if _digest(decode_name(name)) in digests]
                for name in names:
                    connection.execute(SQLITE_QUERIES["count_interruption"], [name])
                return names

            session_names = await queue.database.write(count)
            rows = await queue.database.read(
                lambda reader: reader.execute(SQLITE_QUERIES["interruptions"]).fetchall()
            )
            turns.times = {decode_name(name): times for name, times in rows}
            turns.exhausted = [
                session
                for session in map(decode_name, session_names)
                if turns.times[session] >= MAX_INTERRUPTIONS
            ]
            with translate_write_errors(path):
                os.ftruncate(descriptor, 0)
        except BaseException:
            turns.close()
            raise
        return turns

    def begin(self, session: str) -> None:
        """Note that a turn of this session begins."""
        place = self._free_places.pop() if self._free_places else len(self._places)
        self._places[session] = place
        self._write(place, _digest(session))

    def end(self, session: str) -> None:
        """Note that this process has survived the turn."""
        place = self._places.pop(session)
        self._free_places.append(place)
        self._write(place, bytes(DIGEST_BYTES))

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
        self._descriptor = -1  # the number may soon belong to another file

    def _write(self, place: int, digest: bytes) -> None:
        try:
            os.pwrite(self._descriptor, digest, place * DIGEST_BYTES)
        except OSError as error:
            log.warning("noting a running turn failed: %s", error)


def _digest(session: str) -> bytes:
    return blake2b(encode_name(session), digest_size=DIGEST_BYTES).digest()
