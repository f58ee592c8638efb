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

from trimtab.stores.files.disk import (
    UNFINISHED_SUFFIX,
    make_private_folder,
    translate_write_errors,
    write_file_atomically,
)

ScheduleVerb = Literal["pause", "resume", "run-now", "remove"]
SCHEDULE_VERBS: tuple[ScheduleVerb, ...] = get_args(ScheduleVerb)
COMMANDS_FOLDER = "asked"
"""In the folder of the schedules."""

_log = logging.getLogger("trimtab.schedules")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleControlRequest:
    """One thing that is to be done about a schedule."""

    verb: ScheduleVerb
    """What."""
    schedule: str
    """The id of which."""
    at: float
    """When it was asked, in seconds since the epoch."""


def write_schedule_command_file(folder: Path, command: ScheduleControlRequest) -> Path:
    """Hand it in; returns the file that is gone when it is done."""
    # By time, so that what is asked first is done first.
    path = folder / COMMANDS_FOLDER / f"{time.time_ns():020d}-{os.getpid()}.json"
    with translate_write_errors(path):
        make_private_folder(path.parent)
        write_file_atomically(path, json.dumps(asdict(command)).encode(), fsync=True)
    return path


def list_schedule_command_files(folder: Path) -> list[tuple[ScheduleControlRequest, Path]]:
    """What was asked, the oldest first, each with the file to be taken away."""
    try:
        paths = sorted((folder / COMMANDS_FOLDER).iterdir())
    except FileNotFoundError:
        return []
    found: list[tuple[ScheduleControlRequest, Path]] = []
    for path in paths:
        if path.name.endswith(UNFINISHED_SUFFIX):
            continue
        try:
            found.append((_read_command(path), path))
        except FileNotFoundError:
            continue  # whoever asked has waited long enough
        except (ValueError, KeyError, TypeError) as error:
            _log.warning("%s is not a valid command and is ignored: %s", path, error)
            path.unlink(missing_ok=True)
    return found


def _read_command(path: Path) -> ScheduleControlRequest:
    said: Any = json.loads(path.read_bytes())
    given = cast("dict[str, Any]", said)
    if given["verb"] not in SCHEDULE_VERBS:
        raise ValueError(f"the command {given['verb']!r} is of a later release; upgrade trimtab")
    return ScheduleControlRequest(
        verb=given["verb"], schedule=str(given["schedule"]), at=float(given["at"])
    )
