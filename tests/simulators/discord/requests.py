"""The rules for message bodies and mentions, the recorded requests, and faults to simulate."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from aiohttp import web

from tests.simulators.discord.api_errors import DiscordRefusal, make_invalid_field_refusal

MAX_NONCE_CHARS = 25
"""Maximum number of characters in a nonce."""
_EVERYONE_PATTERN = re.compile(r"@(everyone|here)")
_ROLE_PATTERN = re.compile(r"<@&(\d+)>")
_USER_PATTERN = re.compile(r"<@!?(\d+)>")
_MENTION_TYPES = {"everyone", "roles", "users"}


def validate_message_body(body: Any, max_chars: int) -> dict[str, Any]:
    """Return the body of a valid message. Raises a refusal otherwise."""
    if not isinstance(body, dict):
        raise DiscordRefusal(400, 50109, "The request body contains invalid JSON.")
    message = cast("dict[str, Any]", body)
    content = message.get("content")
    if content is not None and not isinstance(content, str):
        raise make_invalid_field_refusal(
            "content", "BASE_TYPE_BAD_TYPE", "Could not interpret as string."
        )
    if not (content or "").strip() and not message.get("embeds") and not message.get("attachments"):
        raise DiscordRefusal(400, 50006, "Cannot send an empty message")
    # In UTF-16 units, in which an emoji counts twice. A shorter text is valid by any count.
    if len((content or "").encode("utf-16-le", "surrogatepass")) // 2 > max_chars:
        raise make_invalid_field_refusal(
            "content", "BASE_TYPE_MAX_LENGTH", f"Must be {max_chars} or fewer in length."
        )
    _check_nonce(message)
    _check_mentions(message.get("allowed_mentions"))
    return message


def _check_nonce(body: Mapping[str, Any]) -> None:
    nonce = body.get("nonce")
    if nonce is not None and not isinstance(nonce, int | str):
        raise make_invalid_field_refusal(
            "nonce", "NONCE_TYPE_INVALID", "Nonce must be an integer or a string."
        )
    if isinstance(nonce, str) and len(nonce) > MAX_NONCE_CHARS:
        raise make_invalid_field_refusal(
            "nonce", "NONCE_TYPE_TOO_LONG", f"Must be {MAX_NONCE_CHARS} or fewer in length."
        )
    if not isinstance(body.get("enforce_nonce", False), bool):
        raise make_invalid_field_refusal(
            "enforce_nonce", "BASE_TYPE_BAD_TYPE", "Must be either true or false."
        )


def _check_mentions(allowed_mentions: Any) -> None:
    if allowed_mentions is None:
        return
    if not isinstance(allowed_mentions, dict):
        raise make_invalid_field_refusal(
            "allowed_mentions", "DICT_TYPE_CONVERT", "Only dictionaries may be used."
        )
    mentions = cast("dict[str, Any]", allowed_mentions)
    parse = cast("list[str]", mentions.get("parse", []))
    if not set(parse) <= _MENTION_TYPES:
        raise make_invalid_field_refusal(
            "allowed_mentions", "BASE_TYPE_CHOICES", f"Value must be one of {_MENTION_TYPES}."
        )
    for kind in ("users", "roles"):
        if mentions.get(kind) and kind in parse:
            why = f"parse:['{kind}'] and {kind}: [ids...] are mutually exclusive."
            raise make_invalid_field_refusal(
                "allowed_mentions", "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE", why
            )


def list_pinged_targets(body: Mapping[str, Any], replied_user_id: str | None) -> list[str]:
    """Return whom a message pings: `everyone`, `role 1`, `user 2`. By default every mention
    counts."""
    content = str(body.get("content") or "")
    allowed_mentions = cast("dict[str, Any] | None", body.get("allowed_mentions"))
    parse = (
        _MENTION_TYPES
        if allowed_mentions is None
        else set(cast("list[str]", allowed_mentions.get("parse", [])))
    )
    id_lists = allowed_mentions or {}
    targets: list[str] = []
    if "everyone" in parse and _EVERYONE_PATTERN.search(content):
        targets.append("everyone")
    for kind, pattern in (("role", _ROLE_PATTERN), ("user", _USER_PATTERN)):
        some = {str(one) for one in id_lists.get(f"{kind}s", [])}
        ids = [match[1] for match in pattern.finditer(content)]
        targets += [f"{kind} {one}" for one in ids if f"{kind}s" in parse or one in some]
    if replied_user_id is not None and (
        allowed_mentions is None or allowed_mentions.get("replied_user", False)
    ):
        targets.append(f"user {replied_user_id}")
    return targets


MAX_UPLOAD_BYTES = 10_485_760
"""Maximum size of an uploaded file in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDiscordRequest:
    """A request and its outcome."""

    method: str
    """`GET`, `POST`, …"""
    path: str
    """The path after the version: `/channels/1/messages`."""
    body: Any
    """The parsed JSON. None if there was none."""
    files: tuple[bytes, ...]
    """The uploaded files."""
    status: int
    """The status of the response. 0 if the connection was cut."""
    pings: tuple[str, ...] = ()
    """Whom the message pinged."""


@dataclass(slots=True, kw_only=True)
class DiscordFault:
    """A fault to simulate."""

    method: str
    """The method of the requests that fail."""
    path: re.Pattern[str]
    """The pattern that their paths contain."""
    refusal: DiscordRefusal | None
    """The error to answer with. If it is None, the connection is cut."""
    carries_out_first: bool
    """Whether the request is carried out nevertheless."""
    times_left: int
    """How many more times it happens."""
    requests_before: int = 0
    """Number of requests that pass before it."""


async def read_json_and_files(request: web.Request) -> tuple[Any, tuple[bytes, ...]]:
    """Return the JSON of a request and its uploaded files. Raises a refusal if they are invalid."""
    if not request.content_type.startswith("multipart/"):
        return _parse_json(await request.read()), ()
    form = await request.post()
    body = _parse_json(str(form.get("payload_json", "")).encode())
    names = [name for name in form if name.startswith("files[")]
    files = tuple(cast("web.FileField", form[name]).file.read() for name in names)
    attachment_ids = {str(one.get("id")) for one in _list_attachments(body)}
    if attachment_ids != {name.removeprefix("files[").removesuffix("]") for name in names}:
        raise make_invalid_field_refusal(
            "attachments", "ATTACHMENT_NOT_FOUND", "Attachment data not found"
        )
    if any(len(one) > MAX_UPLOAD_BYTES for one in files):
        raise DiscordRefusal(413, 40005, "Request entity too large")
    return body, files


def make_json_response(body: Any, status: int, headers: dict[str, str]) -> web.Response:
    # Clients look for exactly this type, without a character set.
    all_headers = {**headers, "Content-Type": "application/json"}
    return web.Response(body=json.dumps(body).encode(), status=status, headers=all_headers)


def raise_discord_fault(request: web.Request, fault: DiscordFault) -> None:
    if fault.refusal is not None:
        raise fault.refusal
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError("the connection is cut, as asked")


def _list_attachments(body: Any) -> list[dict[str, Any]]:
    message = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    return message.get("attachments") or []


def _parse_json(raw: bytes) -> Any:
    if not raw:
        return None
    try:
        return json.loads(raw)
    except ValueError:
        raise DiscordRefusal(400, 50109, "The request body contains invalid JSON.") from None
