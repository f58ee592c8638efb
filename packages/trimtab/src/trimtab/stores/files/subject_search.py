"""Search the logs of a folder for subjects.

There is no index of subjects: the bytes of the logs are searched. So a session cannot be missed
because an index was lost in a crash or did not come along with a copied folder.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from trimtab.stores.files.log_file import LOG_FILE, parse_log_line
from trimtab.stores.subjects import session_subject

_CHUNK_BYTES = 4 * 1024 * 1024
_FORK_MARK = b'"kind":"fork"'


def may_have_subject(folder: Path, subjects: Collection[str]) -> bool:
    """Whether the log in a session's folder may have one of the subjects.

    It is False only if that is certain. A line that is not whole may have any.
    """
    # As `encode_event_line_and_blobs` writes a text.
    needles = [json.dumps(subject).encode() for subject in subjects]
    rest = b""
    try:
        with (folder / LOG_FILE).open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                *lines, rest = (rest + chunk).split(b"\n")
                if any(_may_name(line, needles, subjects) for line in lines):
                    return True
    except FileNotFoundError:
        return False
    # An append that is not complete, or was never acknowledged.
    return any(needle in rest for needle in needles)


def _may_name(line: bytes, needles: Collection[bytes], subjects: Collection[str]) -> bool:
    if not line.lstrip(b" ").startswith(b'{"version":') or not line.rstrip(b" ").endswith(b"}"):
        return True
    if any(needle in line for needle in needles):
        return True
    if _FORK_MARK not in line:
        return False
    data = parse_log_line(line + b"\n")
    return data is None or session_subject(str(data.get("parent", ""))) in subjects
