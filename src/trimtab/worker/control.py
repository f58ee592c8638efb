"""What somebody on this machine asks of the process that serves a folder: a small file each, beside
the mail. The process does it when it looks next, and puts its answer in the file's place.

Whoever may write there may change the sessions themselves, so nobody is asked for a key.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from trimtab.stores.errors import StoreError, StoreUnavailable
from trimtab.stores.files.disk import make_folder, put_file, writing
from trimtab.stores.files.lock import held_by
from trimtab.worker.files_log import FOLDER as MAIL
from trimtab.worker.service import Service

FOLDER = "asked"
"""In the folder of the mail."""
ASKED, ANSWERED = ".json", ".answer"
"""How the names of the two files end."""
LOOK = 0.5
"""Seconds between two looks at what is asked."""
PATIENCE = 60.0
"""Seconds that it may take: a turn that is broken off ends its tools first."""
BEAT = 0.05
"""Seconds between two looks at whether it is answered."""

log = logging.getLogger("trimtab.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be done to a session."""

    verb: Literal["erase", "delete"]
    """What."""
    session: str
    """The id of which."""
    handle: str = ""
    """What is to be erased."""
    why: str = ""
    """Who asked, or which rule."""


async def ask(root: Path, wanted: Request) -> Mapping[str, Any]:
    """Let the process that serves a folder do it; what it answers. Raises `StoreUnavailable`, and
    `ValueError` with its words where it cannot."""
    asked = await asyncio.to_thread(_hand_in, root / MAIL / FOLDER, wanted)
    answer, deadline = asked.with_suffix(ANSWERED), time.monotonic() + PATIENCE
    try:
        while not await asyncio.to_thread(answer.exists):
            holder = await asyncio.to_thread(held_by, root / MAIL)
            if holder is None or time.monotonic() > deadline:
                told = "has ended" if holder is None else f"has not done it in {PATIENCE:g} seconds"
                raise StoreUnavailable(
                    f"the process that serves {root} {told}, and is asked no more; try again"
                )
            await asyncio.sleep(BEAT)
        told = json.loads(await asyncio.to_thread(answer.read_bytes))
    finally:
        for path in (asked, answer):
            path.unlink(missing_ok=True)
    if "error" in told:
        raise ValueError(told["error"])
    return told


async def obey(root: Path, service: Service) -> None:
    """Do what is asked, until cancelled."""
    folder = root / MAIL / FOLDER
    _tidy(folder)
    while True:
        try:
            for path in await asyncio.to_thread(_waiting, folder):
                answer = await _answer(service, path)
                await asyncio.to_thread(_put_answer, path, answer)
        except OSError as error:
            # Whoever asks is told that nobody has answered; what is served must not stop for it.
            log.warning("what is asked for in %s was not answered: %s", folder, error)
        await asyncio.sleep(LOOK)


async def _answer(service: Service, path: Path) -> Mapping[str, Any]:
    try:
        wanted = Request(**json.loads(await asyncio.to_thread(path.read_bytes)))
        if wanted.verb == "delete":
            await service.delete(wanted.session)
            return {}
        done = await service.erase(wanted.session, wanted.handle, why=wanted.why)
    except (LookupError, StoreError, ValueError, TypeError, OSError) as error:
        return {"error": str(error)}
    except Exception:
        log.exception("what %s asks for could not be done", path)
        return {"error": "the server made a mistake; see its log"}
    return {"handles": done.handles, "forks": done.forks}


def _hand_in(folder: Path, wanted: Request) -> Path:
    # By time, so that what is asked first is done first.
    path = folder / f"{time.time_ns():020d}-{os.getpid()}{ASKED}"
    with writing(path):
        make_folder(folder)
        put_file(path, json.dumps(asdict(wanted)).encode(), fsync=True)
    return path


def _waiting(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{ASKED}"))


def _put_answer(path: Path, answer: Mapping[str, Any]) -> None:
    if path.exists():  # else whoever asked has waited long enough
        put_file(path.with_suffix(ANSWERED), json.dumps(answer).encode(), fsync=False)
        path.unlink(missing_ok=True)


def _tidy(folder: Path) -> None:
    """Answers that nobody has read."""
    for path in folder.glob(f"*{ANSWERED}*"):
        path.unlink(missing_ok=True)
