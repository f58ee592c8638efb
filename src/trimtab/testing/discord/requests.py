"""What comes in by REST, how it is read, and how it is let fail."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, cast

from aiohttp import web

from trimtab.testing.discord.refusals import Refused, invalid

LARGEST = 10_485_760
"""Bytes that an uploaded file may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What came in, and what became of it."""

    method: str
    """`GET`, `POST`, …"""
    path: str
    """Behind the version: `/channels/1/messages`."""
    body: Any
    """The parsed JSON; None where there was none."""
    files: tuple[bytes, ...]
    """What was uploaded with it."""
    status: int
    """Of the response; 0 where the connection was cut."""
    pings: tuple[str, ...] = ()
    """Whom a message called."""


@dataclass(slots=True, kw_only=True)
class Fault:
    """What is to go wrong."""

    method: str
    """Of the requests it concerns."""
    path: re.Pattern[str]
    """Found in their paths."""
    refusal: Refused | None
    """What is answered; None where the connection is cut."""
    behind: bool
    """Whether the request is carried out nevertheless."""
    left: int
    """Times that it happens."""
    after: int = 0
    """Requests that pass before."""


async def read(request: web.Request) -> tuple[Any, tuple[bytes, ...]]:
    """The JSON of a request and the files that were uploaded with it, or the refusal."""
    if not request.content_type.startswith("multipart/"):
        return _json(await request.read()), ()
    form = await request.post()
    body = _json(str(form.get("payload_json", "")).encode())
    names = [name for name in form if name.startswith("files[")]
    found = tuple(cast("web.FileField", form[name]).file.read() for name in names)
    told = {str(one.get("id")) for one in _attachments(body)}
    if told != {name.removeprefix("files[").removesuffix("]") for name in names}:
        raise invalid("attachments", "ATTACHMENT_NOT_FOUND", "Attachment data not found")
    if any(len(one) > LARGEST for one in found):
        raise Refused(413, 40005, "Request entity too large")
    return body, found


def response(body: Any, status: int, headers: dict[str, str]) -> web.Response:
    # Clients look for exactly this type, without a character set.
    given = {**headers, "Content-Type": "application/json"}
    return web.Response(body=json.dumps(body).encode(), status=status, headers=given)


def fail(request: web.Request, fault: Fault) -> None:
    if fault.refusal is not None:
        raise fault.refusal
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError("the connection is cut, as asked")


def _attachments(body: Any) -> list[dict[str, Any]]:
    told = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    return told.get("attachments") or []


def _json(raw: bytes) -> Any:
    if not raw:
        return None
    try:
        return json.loads(raw)
    except ValueError:
        raise Refused(400, 50109, "The request body contains invalid JSON.") from None
