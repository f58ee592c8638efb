"""`RedactedConversations`: which conversations are redacted, also of those that left the memory.

A call that forgets the redaction of its conversation must be refused after a restart as well, even
if there is no store or the store cannot be read. So their digests are in a file of their own.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path

_BEGUN, _ENDED = b"+", b"-"
_DIGEST_CHARS = 32

log = logging.getLogger("trimtab.sidecar")


def locate_file(environ: Mapping[str, str]) -> Path:
    """Return the file in the folder in which the user's programs keep their state."""
    base = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "trimtab" / "redacted"


class RedactedConversations:
    """The redacted conversations of one user.

    Args:
        path: The file that keeps them. None keeps them in memory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._digests: set[bytes] = set()
        self._read_bytes = 0
        self.is_known = True
        """Whether the file can be read: if not, any conversation may be a redacted one."""
        self._read_new_lines()

    def __contains__(self, conversation_id: str) -> bool:
        digest = _compute_digest(conversation_id)
        if digest not in self._digests:
            self._read_new_lines()  # of another process
        return digest in self._digests

    def note(self, conversation_id: str, *, is_redacted: bool) -> None:
        """Remember that a conversation is redacted, or that it no longer is."""
        digest = _compute_digest(conversation_id)
        if (conversation_id in self) is is_redacted:
            return
        self._apply(_BEGUN if is_redacted else _ENDED, digest)
        if self._path is None:
            return
        line = (_BEGUN if is_redacted else _ENDED) + digest + b"\n"
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            file = os.open(self._path, flags, 0o600)
            try:
                os.write(file, line)
            finally:
                os.close(file)
        except OSError as error:
            log.error(  # noqa: TRY400 - the system's own words
                "after a restart the sidecar does not know that a conversation is redacted: %s",
                error,
            )

    def _read_new_lines(self) -> None:
        """Read what was added to the file. A line that was cut off says nothing."""
        if self._path is None:
            return
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(file, "rb") as lines:
                lines.seek(self._read_bytes)
                for line in lines:
                    self._read_bytes += len(line)
                    if len(line) == 1 + _DIGEST_CHARS + 1:
                        self._apply(line[:1], line[1:-1])
            self.is_known = True
        except FileNotFoundError:
            self.is_known = True
        except OSError as error:
            self.is_known = False
            log.warning("%s cannot be read: %s", self._path, error)

    def _apply(self, change: bytes, digest: bytes) -> None:
        if change == _BEGUN:
            self._digests.add(digest)
        elif change == _ENDED:
            self._digests.discard(digest)


def _compute_digest(conversation_id: str) -> bytes:
    return hashlib.sha256(conversation_id.encode()).hexdigest()[:_DIGEST_CHARS].encode()
