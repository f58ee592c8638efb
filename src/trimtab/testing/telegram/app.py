"""The Bot API behind HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from email.message import Message as Mail
from email.parser import BytesParser
from typing import Any, cast
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from trimtab.testing.telegram.api import BotApi, well_formed
from trimtab.testing.telegram.refusals import NOT_FOUND, UNAUTHORIZED, Refusal, bad


class _Cut(Response):
    """An answer that ends without an end: the server closes the connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        headers = [(b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})


def app_of(api: BotApi) -> Starlette:
    """An ASGI application around a Bot API."""

    async def method(request: Request) -> Response:
        try:
            given = await _given(request)
            _let_in(api, request.path_params["token"])
            name = str(request.path_params["method"])
            if name.lower() == "getupdates":
                found = await api.updates(given, request.is_disconnected)
                # As ASCII: what is malformed must get out as well, halves of characters too.
                told = json.dumps({"ok": True, "result": found})
                return Response(told, media_type="application/json")
            answer, trouble = api.call(name, given)
        except Refusal as refusal:
            return JSONResponse(refusal.body(), refusal.code)
        except ClientDisconnect:  # whoever asked was killed in the middle of it
            return Response(status_code=400)
        except (ValueError, TypeError):
            refusal = bad("can't parse request")
            return JSONResponse(refusal.body(), refusal.code)
        if trouble is not None:
            return _Cut()
        return JSONResponse({"ok": True, "result": answer})

    async def file(request: Request) -> Response:
        data = api.files.get(str(request.path_params["file"]))
        if request.path_params["token"] != api.token or data is None:
            return JSONResponse(NOT_FOUND.body(), 404)
        return Response(data, media_type="application/octet-stream")

    return Starlette(
        routes=[
            Route("/bot{token}/{method}", method, methods=["GET", "POST"]),
            Route("/file/bot{token}/files/{file}", file, methods=["GET"]),
        ]
    )


def _let_in(api: BotApi, token: str) -> None:
    if not well_formed(token):
        raise NOT_FOUND
    if token != api.token:
        raise UNAUTHORIZED


async def _given(request: Request) -> Mapping[str, Any]:
    """The parameters, in whichever of the four ways they are given."""
    found: dict[str, Any] = dict(request.query_params)
    raw, kind = await request.body(), request.headers.get("content-type", "")
    if kind.startswith("application/json"):
        found |= cast("dict[str, Any]", json.loads(raw))
    elif kind.startswith("multipart/form-data"):
        found |= _parts(raw, kind)
    else:
        found |= dict(parse_qsl(raw.decode("utf-8", "replace"), keep_blank_values=True))
    return found


def _parts(raw: bytes, kind: str) -> dict[str, Any]:
    whole = BytesParser().parsebytes(f"Content-Type: {kind}\r\n\r\n".encode() + raw)
    found: dict[str, Any] = {}
    files: dict[str, bytes] = {}
    for part in cast("list[Mail]", whole.get_payload()):
        name = str(part.get_param("name", header="content-disposition"))
        data = cast("bytes", part.get_payload(decode=True))
        if part.get_filename() is None:
            found[name] = data.decode("utf-8", "replace")
        else:
            files[name] = data
    for name, value in found.items():
        # `attach://name` stands for a file that comes along under that name.
        if isinstance(value, str) and value.startswith("attach://"):
            found[name] = files.get(value.removeprefix("attach://"), b"")
    return {**files, **found}
