"""Session ids and keys in the form that PostgreSQL can store.

A text column accepts neither NUL nor half of a surrogate pair. Both are escaped in a way that keeps
the order of code points. So a list of sessions has the same order in every store.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from hashlib import sha256
from uuid import UUID

from trimtab.stores.postgres.queries import PARTITION_COUNT

_MASK = 0xFFFFFFFF
_PARTITION_HASH_SEED = 0x7A5B22367996DCFD
"""PostgreSQL's own seed for partitions."""
_SESSION_HASH_PREFIX = b"trimtab session\0"
_SUBJECT_HASH_PREFIX = b"trimtab subject\0"
_CHARS_TO_ESCAPE = re.compile("[\x00\x01\ud800-\udfff\ue000]")
_ESCAPE_SEQUENCE = re.compile("\x01([\x01\x02])|\ue000(~|[0-9a-f]{4})")


@lru_cache(maxsize=4096)
def compute_session_uuid(session: str) -> UUID:
    """Return the key of a session's rows: its id if that is a UUID, otherwise a hash of the id.

    Computed keys have UUID version 8. A caller's own UUID of that version is also hashed, so that
    two ids never share a key.
    """
    try:
        uuid = UUID(session)
    except ValueError:
        uuid = None
    if uuid is not None and str(uuid) == session and uuid.version != 8:
        return uuid
    digest = bytearray(
        sha256(_SESSION_HASH_PREFIX + session.encode("utf-8", "surrogatepass")).digest()[:16]
    )
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return UUID(bytes=bytes(digest))


def compute_lock_key(purpose: str, session: str) -> int:
    """Return the number of an advisory lock of a session."""
    lock_name = f"trimtab {purpose}\0{session}".encode("utf-8", "surrogatepass")
    return int.from_bytes(sha256(lock_name).digest()[:8], "big", signed=True)


def compute_subject_hash(scope: str, subject: str) -> int:
    """Return what the rows of a subject have in common.

    It has the same size for every subject, whatever characters that has. Two subjects with one hash
    only make a search read more.
    """
    subject_name = f"{scope}\0{subject}".encode("utf-8", "surrogatepass")
    return int.from_bytes(
        sha256(_SUBJECT_HASH_PREFIX + subject_name).digest()[:8], "big", signed=True
    )


@lru_cache(maxsize=4096)
def compute_partition(session: str) -> int:
    """Return the partition of a session's rows, with PostgreSQL's own partition hash.

    The hash is the same in every version, because dumps depend on it. A row for a wrong partition
    would be refused.
    """
    low, middle, high, last = struct.unpack("<4I", compute_session_uuid(session).bytes)
    start = (0x9E3779B9 + 16 + 3923095) & _MASK
    a, b, c = _mix_hash(
        (start + (_PARTITION_HASH_SEED >> 32)) & _MASK,
        (start + _PARTITION_HASH_SEED) & _MASK,
        start,
    )
    a, b, c = _mix_hash((a + low) & _MASK, (b + middle) & _MASK, (c + high) & _MASK)
    b, c = _finish_hash((a + last) & _MASK, b, c)
    return ((b << 32 | c) + 0x49A0F4DD15E5A8E3) % PARTITION_COUNT


def escape_for_text_column(text: str) -> str:
    """Return a name or key as it is stored. Only characters that a text column refuses are
    escaped."""
    return _CHARS_TO_ESCAPE.sub(_escape_char, text)


def unescape_from_text_column(escaped: str) -> str:
    """Return the text that `escape_for_text_column` escaped."""
    return _ESCAPE_SEQUENCE.sub(_unescape_char, escaped)


def _mix_hash(a: int, b: int, c: int) -> tuple[int, int, int]:
    for bits in (4, 6, 8, 16, 19, 4):
        # Each step takes one number from another, turns it into it, and adds the third.
        a = (a - c) & _MASK ^ _rotate_left(c, bits)
        c = (c + b) & _MASK
        a, b, c = b, c, a
    return a, b, c


def _finish_hash(a: int, b: int, c: int) -> tuple[int, int]:
    for bits in (14, 11, 25, 16, 4, 14, 24):
        c = (c ^ b) - _rotate_left(b, bits) & _MASK
        a, b, c = b, c, a
    return a, b


def _rotate_left(number: int, bits: int) -> int:
    return (number << bits | number >> (32 - bits)) & _MASK


def _escape_char(match: re.Match[str]) -> str:
    char = match.group()
    if char <= "\x01":
        return "\x01" + chr(ord(char) + 1)
    # "~" sorts behind every digit, as U+E000 itself does behind every surrogate.
    return "\ue000~" if char == "\ue000" else f"\ue000{ord(char):04x}"


def _unescape_char(match: re.Match[str]) -> str:
    low, high = match.groups()
    if low:
        return chr(ord(low) - 1)
    return "\ue000" if high == "~" else chr(int(high, 16))
