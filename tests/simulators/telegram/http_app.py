"""The Bot API over HTTP."""

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

from tests.simulators.telegram.api_errors import (
    NOT_FOUND_REFUSAL,
    UNAUTHORIZED_REFUSAL,
    TelegramRefusal,
    make_bad_request_refusal,
)
from tests.simulators.telegram.bot_methods import BOT_METHODS
from tests.simulators.telegram.simulator import TelegramSimulator, looks_like_bot_token


class _CutResponse(Response):
    """An incomplete answer: the server closes the connection before the end."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        headers = [(b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})


def build_bot_api_app(simulator: TelegramSimulator) -> Starlette:
    """Return an ASGI application for a Bot API."""

    async def method(request: Request) -> Response:
        try:
            params = await _read_params(request)
            _check_token(simulator, request.path_params["token"])
            name = str(request.path_params["method"])
            if name.lower() == "getupdates":
                updates = await simulator.get_updates(params, request.is_disconnected)
                # As ASCII: what is malformed must get out as well, halves of characters too.
                body = json.dumps({"ok": True, "result": updates})
                return Response(body, media_type="application/json")
            answer, trouble = simulator.call_method(name, params, BOT_METHODS.get(name))
        except TelegramRefusal as refusal:
            return JSONResponse(refusal.to_json(), refusal.code)
        except ClientDisconnect:  # the client was killed during its request
            return Response(status_code=400)
        except (ValueError, TypeError):
            refusal = make_bad_request_refusal("can't parse request")
            return JSONResponse(refusal.to_json(), refusal.code)
        if trouble is not None:
            return _CutResponse()
        return JSONResponse({"ok": True, "result": answer})

    async def file(request: Request) -> Response:
        data = simulator.files.get(str(request.path_params["file"]))
        if request.path_params["token"] != simulator.token or data is None:
            return JSONResponse(NOT_FOUND_REFUSAL.to_json(), 404)
        return Response(data, media_type="application/octet-stream")

    return Starlette(
        routes=[
            Route("/bot{token}/{method}", method, methods=["GET", "POST"]),
            Route("/file/bot{token}/files/{file}", file, methods=["GET"]),
        ]
    )


def _check_token(simulator: TelegramSimulator, token: str) -> None:
    if not looks_like_bot_token(token):
        raise NOT_FOUND_REFUSAL
    if token != simulator.token:
        raise UNAUTHORIZED_REFUSAL


async def _read_params(request: Request) -> Mapping[str, Any]:
    """Return the parameters, from any of the four ways to send them."""
    params: dict[str, Any] = dict(request.query_params)
    raw = await request.body()
    kind = request.headers.get("content-type", "")
    if kind.startswith("application/json"):
        params |= cast("dict[str, Any]", json.loads(raw))
    elif kind.startswith("multipart/form-data"):
        params |= _read_multipart(raw, kind)
    else:
        params |= dict(parse_qsl(raw.decode("utf-8", "replace"), keep_blank_values=True))
    return params


def _read_multipart(raw: bytes, content_type: str) -> dict[str, Any]:
    whole = BytesParser().parsebytes(f"Content-Type: {content_type}\r\n\r\n".encode() + raw)
    params: dict[str, Any] = {}
    files: dict[str, bytes] = {}
    for part in cast("list[Mail]", whole.get_payload()):
        name = str(part.get_param("name", header="content-disposition"))
        data = cast("bytes", part.get_payload(decode=True))
        if part.get_filename() is None:
            params[name] = data.decode("utf-8", "replace")
        else:
            files[name] = data
    for name, value in params.items():
        # `attach://name` stands for a file that comes along under that name.
        if isinstance(value, str) and value.startswith("attach://"):
            params[name] = files.get(value.removeprefix("attach://"), b"")
    return {**files, **params}
