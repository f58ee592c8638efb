"""An agent's file as text, or why it cannot be read."""

from __future__ import annotations

from pathlib import Path

from trimtab.agent.problems import AgentFileError, Place, Problem

FILE = "agent.yaml"
"""What the file is called unless the user says otherwise."""
LARGEST = 1_000_000
"""Bytes of a file that is still taken for an agent's, or for a prompt."""


def text_of(path: Path) -> str:
    """The text of the file; raises `AgentFileError`."""
    try:
        if path.is_dir():
            raise _refused(path, f"is a folder; name the file in it: {path / FILE}")
        with path.open("rb") as opened:
            raw = opened.read(LARGEST + 1)
    except FileNotFoundError:
        raise _refused(path, "does not exist; `trimtab init` writes one that works") from None
    except (OSError, ValueError) as error:
        if isinstance(error, AgentFileError):
            raise
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise _refused(path, f"cannot be read ({why}); check its name and permissions") from None
    if len(raw) > LARGEST:
        raise _refused(path, f"has more than {LARGEST:,} bytes; that is no agent's file")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = len(raw[raw.rfind(b"\n", 0, error.start) + 1 : error.start].decode("utf-8")) + 1
        place = Place(line=line, column=column)
        text = f"the byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise AgentFileError(path, [Problem(text=text, place=place)]) from None


def _refused(path: Path, why: str) -> AgentFileError:
    return AgentFileError(path, [Problem(text=why)])
