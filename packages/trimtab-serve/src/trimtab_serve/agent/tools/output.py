"""Collect the output of a program: keep its head and its tail, and show them as plain text."""

from __future__ import annotations

import codecs
import re

BINARY_SIGNATURES = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"RIFF", "a RIFF file (WebP, WAV or AVI)"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive, or a document that is one"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\x7fELF", "an ELF program"),
    (b"\xcf\xfa\xed\xfe", "a Mach-O program"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)
"""The kinds of most binary files, by their first bytes."""
MAX_UNREADABLE_SHARE = 0.1
"""An output is binary above this share of characters that do not occur in text."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, hyperlinks and other strings
    r"|\x1b[ -/]*[0-~]"
)
_OVERSTRUCK = re.compile(r"[^\n]\x08")
_CONTROLS = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")


class HeadTailBuffer:
    """The first and the last bytes of a stream, and their total number."""

    __slots__ = ("_half", "_head", "_tail", "total_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._half = max(1, max_bytes // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0
        """Number of bytes that arrived."""

    def add(self, chunk: bytes) -> None:
        self.total_bytes += len(chunk)
        if room := self._half - len(self._head):
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk[-self._half :]
        # Cut now and then, not each time: the cost stays that of the bytes that came.
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    @property
    def head(self) -> bytes:
        return bytes(self._head)

    @property
    def tail(self) -> bytes:
        return bytes(self._tail[-self._half :])

    @property
    def omitted_bytes(self) -> int:
        """Return the number of bytes that are in neither the head nor the tail."""
        return self.total_bytes - len(self._head) - min(len(self._tail), self._half)

    def to_text(self) -> str:
        """Return the text as a terminal would show it. For binary data, return what it is."""
        if not self.omitted_bytes:
            head = (self.head + self.tail).decode("utf-8", "replace")
            tail = ""
        else:
            # A character that was cut in two is none.
            head = codecs.getincrementaldecoder("utf-8")("replace").decode(self.head)
            tail = self.tail.lstrip(bytes(range(0x80, 0xC0))).decode("utf-8", "replace")
        if kind := describe_binary_kind(self.head, head + tail):
            return f"[binary output, {self.total_bytes:,} bytes, {kind}: not shown]"
        if not self.omitted_bytes:
            return strip_terminal_codes(head)
        left_out = f"[… {self.omitted_bytes:,} bytes left out …]"
        return (
            f"{strip_terminal_codes(head).rstrip()}\n{left_out}\n"
            f"{strip_terminal_codes(tail).lstrip()}"
        )


def describe_binary_kind(first_bytes: bytes, text: str) -> str | None:
    """Return the kind of binary data, by its first bytes or by its characters. None for text."""
    for magic, kind in BINARY_SIGNATURES:
        if first_bytes.startswith(magic):
            return f"it seems to be {kind}"
    # Escapes and backspaces are what terminals read; a NUL now and then ends names in lists.
    odd = sum(map(text.count, "\ufffd\0")) + len(_CONTROLS.findall(_without_escapes(text)))
    return "of an unknown kind" if odd > len(text) * MAX_UNREADABLE_SHARE else None


def strip_terminal_codes(text: str) -> str:
    """Remove colours, overwritten progress bars and control characters from a text."""
    text = _without_escapes(text).replace("\r\n", "\n").replace("\0", "\n")
    if "\r" in text:
        text = "\n".join(_last_drawn(line) for line in text.split("\n"))
    return _CONTROLS.sub("", text)


def keep_head_and_tail(text: str, max_bytes: int) -> str:
    """Cut a text to about this many bytes: keep head and tail, and say how much is missing."""
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return text
    buffer = HeadTailBuffer(max_bytes)
    buffer.add(data)
    return buffer.to_text()


def _without_escapes(text: str) -> str:
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return _OVERSTRUCK.sub("", text) if "\x08" in text else text


def _last_drawn(line: str) -> str:
    pieces = [each for each in line.split("\r") if each.strip()]
    return pieces[-1] if pieces else ""
