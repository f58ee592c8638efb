"""Requests from a command on this machine to the process that serves a folder.

Each request is a small file beside the queue. The process handles it at its next poll and writes an
answer file.

A user who can write to this folder can also change the sessions directly, so no key is needed.
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

from trimtab.errors import StoreError, StoreUnavailable
from trimtab.stores.files.disk import (
    make_private_folder,
    translate_write_errors,
    write_file_atomically,
)
from trimtab.stores.files.lock import find_lock_holder
from trimtab_serve.forgetting import erasure
from trimtab_serve.queue.sqlite.database import SERVER_FOLDER
from trimtab_serve.service.erasure_records import BY_COMMAND_LINE
from trimtab_serve.service.service import AgentService

CONTROL_FOLDER = "asked"
"""Name of the folder, inside the folder of the server."""
REQUEST_SUFFIX = ".json"
ANSWER_SUFFIX = ".answer"
"""File name endings of a request and of its answer."""
CONTROL_POLL_S = 0.5
"""Seconds between two polls for requests."""
CONTROL_TIMEOUT_S = 60.0
"""Seconds that a request may take. A turn that is cancelled stops its tools first."""
ANSWER_POLL_S = 0.05
"""Seconds between two polls for the answer."""

log = logging.getLogger("trimtab.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRequest:
    """A request to delete a session, or to erase a message in it."""

    verb: Literal["erase", "delete"]
    """What."""
    session: str = ""
    """The id of the session."""
    handle: str = ""
    """Handle of the message or part to erase."""
    why: str = ""
    """The user who asked for it, or the rule that requires it."""


async def send_control_request(root: Path, request: ControlRequest) -> Mapping[str, Any]:
    """Ask the process that serves a folder to do something, and return its answer.

    Raises `StoreUnavailable` if the process has ended or does not answer in time. Raises
    `ValueError` with the server's error message if it cannot do it.
    """
    request_file = await asyncio.to_thread(
        _write_request, root / SERVER_FOLDER / CONTROL_FOLDER, request
    )
    answer = request_file.with_suffix(ANSWER_SUFFIX)
    deadline = time.monotonic() + CONTROL_TIMEOUT_S
    try:
        while not await asyncio.to_thread(answer.exists):
            holder = await asyncio.to_thread(find_lock_holder, root / SERVER_FOLDER)
            if holder is None or time.monotonic() > deadline:
                answer_json = (
                    "has ended"
                    if holder is None
                    else f"did not handle it in {CONTROL_TIMEOUT_S:g} s"
                )
                raise StoreUnavailable(
                    f"the process that serves {root} {answer_json}, so the request was withdrawn; "
                    "try again"
                )
            await asyncio.sleep(ANSWER_POLL_S)
        answer_json = json.loads(await asyncio.to_thread(answer.read_bytes))
    finally:
        for path in (request_file, answer):
            path.unlink(missing_ok=True)
    if "error" in answer_json:
        raise ValueError(answer_json["error"])
    return answer_json


async def serve_control_requests(root: Path, service: AgentService) -> None:
    """Handle requests until cancelled."""
    folder = root / SERVER_FOLDER / CONTROL_FOLDER
    _delete_stale_answers(folder)
    while True:
        try:
            for path in await asyncio.to_thread(_list_requests, folder):
                answer = await _execute_request(service, path)
                await asyncio.to_thread(_write_answer, path, answer)
        except OSError as error:
            # The caller times out by itself. A failure here must not stop the server.
            log.warning("handling requests in %s failed: %s", folder, error)
        await asyncio.sleep(CONTROL_POLL_S)


async def _execute_request(service: AgentService, path: Path) -> Mapping[str, Any]:
    try:
        request = ControlRequest(**json.loads(await asyncio.to_thread(path.read_bytes)))
        match request.verb:
            case "delete":
                await erasure.delete_session(service, request.session, by=BY_COMMAND_LINE)
                return {}
            case "erase":
                erasure_record = await erasure.erase_message(
                    service, request.session, request.handle, why=request.why, by=BY_COMMAND_LINE
                )
    except (LookupError, StoreError, ValueError, TypeError, OSError) as error:
        return {"error": str(error)}
    except Exception:
        log.exception("request %s failed", path)
        return {"error": "the server failed; see its log"}
    return {"handles": erasure_record.handles, "forks": erasure_record.forks}


def _write_request(folder: Path, request: ControlRequest) -> Path:
    # The name begins with the time, so requests are handled in order.
    path = folder / f"{time.time_ns():020d}-{os.getpid()}{REQUEST_SUFFIX}"
    with translate_write_errors(path):
        make_private_folder(folder)
        write_file_atomically(path, json.dumps(asdict(request)).encode(), fsync=True)
    return path


def _list_requests(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{REQUEST_SUFFIX}"))


def _write_answer(path: Path, answer: Mapping[str, Any]) -> None:
    if path.exists():  # otherwise the caller has given up
        write_file_atomically(
            path.with_suffix(ANSWER_SUFFIX), json.dumps(answer).encode(), fsync=False
        )
        path.unlink(missing_ok=True)


def _delete_stale_answers(folder: Path) -> None:
    """Delete answers that no caller has read."""
    for path in folder.glob(f"*{ANSWER_SUFFIX}*"):
        path.unlink(missing_ok=True)
