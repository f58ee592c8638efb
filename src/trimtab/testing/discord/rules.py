"""What Discord accepts as a message, and whom it would call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from trimtab.testing.discord.refusals import Refused, invalid

NONCE = 25
"""Characters that a nonce may have."""
_EVERYONE = re.compile(r"@(everyone|here)")
_ROLE = re.compile(r"<@&(\d+)>")
_USER = re.compile(r"<@!?(\d+)>")
_PARSE = {"everyone", "roles", "users"}


def checked(body: Any, longest: int) -> dict[str, Any]:
    """The body of a message that may be posted; else the refusal."""
    if not isinstance(body, dict):
        raise Refused(400, 50109, "The request body contains invalid JSON.")
    told = cast("dict[str, Any]", body)
    content = told.get("content")
    if content is not None and not isinstance(content, str):
        raise invalid("content", "BASE_TYPE_BAD_TYPE", "Could not interpret as string.")
    if not (content or "").strip() and not told.get("embeds") and not told.get("attachments"):
        raise Refused(400, 50006, "Cannot send an empty message")
    # As UTF-16, where an emoji counts twice: whoever keeps to this is right either way.
    if len((content or "").encode("utf-16-le", "surrogatepass")) // 2 > longest:
        raise invalid("content", "BASE_TYPE_MAX_LENGTH", f"Must be {longest} or fewer in length.")
    _check_nonce(told)
    _check_mentions(told.get("allowed_mentions"))
    return told


def _check_nonce(body: Mapping[str, Any]) -> None:
    nonce = body.get("nonce")
    if nonce is not None and not isinstance(nonce, int | str):
        raise invalid("nonce", "NONCE_TYPE_INVALID", "Nonce must be an integer or a string.")
    if isinstance(nonce, str) and len(nonce) > NONCE:
        raise invalid("nonce", "NONCE_TYPE_TOO_LONG", f"Must be {NONCE} or fewer in length.")
    if not isinstance(body.get("enforce_nonce", False), bool):
        raise invalid("enforce_nonce", "BASE_TYPE_BAD_TYPE", "Must be either true or false.")


def _check_mentions(allowed: Any) -> None:
    if allowed is None:
        return
    if not isinstance(allowed, dict):
        raise invalid("allowed_mentions", "DICT_TYPE_CONVERT", "Only dictionaries may be used.")
    told = cast("dict[str, Any]", allowed)
    parse = cast("list[str]", told.get("parse", []))
    if not set(parse) <= _PARSE:
        raise invalid("allowed_mentions", "BASE_TYPE_CHOICES", f"Value must be one of {_PARSE}.")
    for kind in ("users", "roles"):
        if told.get(kind) and kind in parse:
            why = f"parse:['{kind}'] and {kind}: [ids...] are mutually exclusive."
            raise invalid("allowed_mentions", "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE", why)


def pings(body: Mapping[str, Any], replied: str | None) -> list[str]:
    """Whom a message calls: `everyone`, `role 1`, `user 2`; all in it where nothing is said."""
    content = str(body.get("content") or "")
    allowed = cast("dict[str, Any] | None", body.get("allowed_mentions"))
    parse = _PARSE if allowed is None else set(cast("list[str]", allowed.get("parse", [])))
    named = allowed or {}
    found: list[str] = []
    if "everyone" in parse and _EVERYONE.search(content):
        found.append("everyone")
    for kind, pattern in (("role", _ROLE), ("user", _USER)):
        some = {str(one) for one in named.get(f"{kind}s", [])}
        called = [match[1] for match in pattern.finditer(content)]
        found += [f"{kind} {one}" for one in called if f"{kind}s" in parse or one in some]
    if replied is not None and (allowed is None or allowed.get("replied_user", False)):
        found.append(f"user {replied}")
    return found
