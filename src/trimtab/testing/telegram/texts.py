"""What a message may say: its length, its entities, its markup."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from trimtab.testing.telegram.refusals import bad

LONGEST = {"text": 4_096, "caption": 1_024}
"""UTF-16 units."""
KINDS = frozenset({
    "mention", "hashtag", "cashtag", "bot_command", "url", "email", "phone_number", "bold",
    "italic", "underline", "strikethrough", "spoiler", "blockquote", "expandable_blockquote",
    "code", "pre", "text_link", "text_mention", "custom_emoji", "date_time",
})  # fmt: skip
_TAGS = frozenset({
    "b", "strong", "i", "em", "u", "ins", "s", "strike", "del", "a", "code", "pre", "tg-spoiler",
    "blockquote",
})  # fmt: skip
_TAG = re.compile(r"<(/?)([a-zA-Z-]*)[^>]*>")
_RESERVED = re.compile(r"(?<!\\)[>#+=|{}.!-]")


def checked(given: Mapping[str, Any], what: str) -> tuple[str, list[dict[str, Any]]]:
    """The text and its entities, or a refusal."""
    text = str(given.get(what) or "")
    entities = _entities(given.get("entities" if what == "text" else f"{what}_entities"))
    mode = given.get("parse_mode")
    if mode and not entities:
        _parse(text, str(mode))
    if what == "text" and not text.strip():
        raise bad("message text is empty")
    size = len(text.encode("utf-16-le")) // 2
    if size > LONGEST[what]:
        raise bad("message is too long" if what == "text" else "message caption is too long")
    for entity in entities:
        _check(entity, text, size)
    return text, entities


def _entities(given: Any) -> list[dict[str, Any]]:
    if given is None:
        return []
    data = json.loads(given) if isinstance(given, str) else given
    if not isinstance(data, list):
        raise bad("can't parse entities: expected an Array")
    found: list[dict[str, Any]] = []
    for one in cast("list[Any]", data):
        if not isinstance(one, dict):
            raise bad("can't parse MessageEntity: expected an Object")
        entity = cast("dict[str, Any]", one)
        for name in ("type", "offset", "length"):
            if name not in entity:
                raise bad(f"can't parse MessageEntity: Can't find field \"{name}\"")
        found.append(entity)
    return found


def _check(entity: Mapping[str, Any], text: str, size: int) -> None:
    offset, length = int(entity["offset"]), int(entity["length"])
    if entity["type"] not in KINDS:
        raise bad(f'can\'t parse MessageEntity: Unsupported type "{entity["type"]}" specified')
    for name, value in (("offset", offset), ("length", length)):
        if not 0 <= value <= 1_000_000:
            raise bad(f"receive an entity with incorrect {name} {value}")
    if offset > size:
        raise bad(f"entity begins after the end of the text at UTF-16 offset {offset}")
    begins = f"entity beginning at UTF-16 offset {offset}"
    if offset + length > size:
        raise bad(f"{begins} ends after the end of the text at UTF-16 offset {offset + length}")
    raw = text.encode("utf-16-le")
    if _splits(raw, offset):
        raise bad(f"entity begins in a middle of a UTF-16 symbol at offset {offset}")
    if _splits(raw, offset + length):
        raise bad(f"{begins} ends in a middle of a UTF-16 symbol at offset {offset + length}")
    if entity["type"] == "text_link":
        url = str(entity.get("url") or "")
        if not (urlsplit(url).netloc or urlsplit(url).path.strip("/")):
            raise bad(f"entity URL '{url}' is invalid: URL host is empty")


def _splits(raw: bytes, unit: int) -> bool:
    """Whether a character of two units has its second one there."""
    second = raw[2 * unit : 2 * unit + 2]
    return len(second) == 2 and 0xDC00 <= int.from_bytes(second, "little") <= 0xDFFF


def _parse(text: str, mode: str) -> None:
    match mode.lower():
        case "html":
            _parse_html(text)
        case "markdownv2":
            if found := _RESERVED.search(text):
                raise bad(
                    f"can't parse entities: Character '{found[0]}' is reserved and must be escaped "
                    "with the preceding '\\'"
                )
        case "markdown":
            for sign in "*_`":
                if text.count(sign) % 2:
                    at = len(text[: text.rfind(sign)].encode())
                    why = "Can't find end of the entity starting at byte offset"
                    raise bad(f"can't parse entities: {why} {at}")
        case _:
            raise bad("unsupported parse_mode")


def _parse_html(text: str) -> None:
    opened: list[str] = []
    for found in _TAG.finditer(text):
        name, at = found[2].lower(), len(text[: found.start()].encode())
        if name not in _TAGS:
            raise bad(f'can\'t parse entities: Unsupported start tag "{name}" at byte offset {at}')
        if not found[1]:
            opened.append(name)
        elif not opened or opened.pop() != name:
            raise bad(f"can't parse entities: Unexpected end tag at byte offset {at}")
    if opened:
        raise bad(
            f"can't parse entities: Can't find end tag corresponding to start tag \"{opened[-1]}\""
        )
