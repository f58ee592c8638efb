"""What somebody asks of the process that holds a folder's schedules: a small file each, beside its
log. The process does it when it looks next, and takes the file away."""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from trimtab.stores.files.disk import NEW, make_folder, put_file, writing

Verb = Literal["pause", "resume", "run-now", "remove"]
VERBS: tuple[Verb, ...] = get_args(Verb)
FOLDER = "asked"
"""In the folder of the schedules."""

_log = logging.getLogger("trimtab.schedules")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One thing that is to be done about a schedule."""

    verb: Verb
    """What."""
    schedule: str
    """The id of which."""
    at: float
    """When it was asked, in seconds since the epoch."""


def ask(folder: Path, wanted: Asked) -> Path:
    """Hand it in; returns the file that is gone when it is done."""
    # By time, so that what is asked first is done first.
    path = folder / FOLDER / f"{time.time_ns():020d}-{os.getpid()}.json"
    with writing(path):
        make_folder(path.parent)
        put_file(path, json.dumps(asdict(wanted)).encode(), fsync=True)
    return path


def waiting(folder: Path) -> list[tuple[Asked, Path]]:
    """What was asked, the oldest first, each with the file to be taken away."""
    try:
        paths = sorted((folder / FOLDER).iterdir())
    except FileNotFoundError:
        return []
    found: list[tuple[Asked, Path]] = []
    for path in paths:
        if path.name.endswith(NEW):
            continue
        try:
            found.append((_read(path), path))
        except FileNotFoundError:
            continue  # whoever asked has waited long enough
        except (ValueError, KeyError, TypeError) as error:
            _log.warning("%s cannot be understood and is put away: %s", path, error)
            path.unlink(missing_ok=True)
    return found


def _read(path: Path) -> Asked:
    said: Any = json.loads(path.read_bytes())
    given = cast("dict[str, Any]", said)
    if given["verb"] not in VERBS:
        raise ValueError(f"nobody knows how to {given['verb']!r}; it is of a later release")
    return Asked(verb=given["verb"], schedule=str(given["schedule"]), at=float(given["at"]))
