"""The rules for the text of a message: its length, its entities, its markup."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from tests.simulators.telegram.api_errors import make_bad_request_refusal

MAX_TEXT_UNITS = {"text": 4_096, "caption": 1_024}
"""Maximum length in UTF-16 units."""
ENTITY_TYPES = frozenset({
    "mention", "hashtag", "cashtag", "bot_command", "url", "email", "phone_number", "bold",
    "italic", "underline", "strikethrough", "spoiler", "blockquote", "expandable_blockquote",
    "code", "pre", "text_link", "text_mention", "custom_emoji", "date_time",
})  # fmt: skip
_HTML_TAGS = frozenset({
    "b", "strong", "i", "em", "u", "ins", "s", "strike", "del", "a", "code", "pre", "tg-spoiler",
    "blockquote",
})  # fmt: skip
_HTML_TAG_PATTERN = re.compile(r"<(/?)([a-zA-Z-]*)[^>]*>")
_MARKDOWN_RESERVED = re.compile(r"(?<!\\)[>#+=|{}.!-]")


def validate_message_text(
    params: Mapping[str, Any], field_name: str
) -> tuple[str, list[dict[str, Any]]]:
    """Return the text and its entities, or raise a refusal."""
    text = str(params.get(field_name) or "")
    entities = _parse_entities(
        params.get("entities" if field_name == "text" else f"{field_name}_entities")
    )
    mode = params.get("parse_mode")
    if mode and not entities:
        _check_markup(text, str(mode))
    if field_name == "text" and not text.strip():
        raise make_bad_request_refusal("message text is empty")
    size = len(text.encode("utf-16-le")) // 2
    if size > MAX_TEXT_UNITS[field_name]:
        raise make_bad_request_refusal(
            "message is too long" if field_name == "text" else "message caption is too long"
        )
    for entity in entities:
        _check_entity(entity, text, size)
    return text, entities


def _parse_entities(value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    data = json.loads(value) if isinstance(value, str) else value
    if not isinstance(data, list):
        raise make_bad_request_refusal("can't parse entities: expected an Array")
    entities: list[dict[str, Any]] = []
    for one in cast("list[Any]", data):
        if not isinstance(one, dict):
            raise make_bad_request_refusal("can't parse MessageEntity: expected an Object")
        entity = cast("dict[str, Any]", one)
        for name in ("type", "offset", "length"):
            if name not in entity:
                raise make_bad_request_refusal(
                    f"can't parse MessageEntity: Can't find field \"{name}\""
                )
        entities.append(entity)
    return entities


def _check_entity(entity: Mapping[str, Any], text: str, size: int) -> None:
    offset = int(entity["offset"])
    length = int(entity["length"])
    if entity["type"] not in ENTITY_TYPES:
        raise make_bad_request_refusal(
            f'can\'t parse MessageEntity: Unsupported type "{entity["type"]}" specified'
        )
    for name, value in (("offset", offset), ("length", length)):
        if not 0 <= value <= 1_000_000:
            raise make_bad_request_refusal(f"receive an entity with incorrect {name} {value}")
    if offset > size:
        raise make_bad_request_refusal(
            f"entity begins after the end of the text at UTF-16 offset {offset}"
        )
    begins = f"entity beginning at UTF-16 offset {offset}"
    if offset + length > size:
        raise make_bad_request_refusal(
            f"{begins} ends after the end of the text at UTF-16 offset {offset + length}"
        )
    raw = text.encode("utf-16-le")
    if _splits(raw, offset):
        raise make_bad_request_refusal(
            f"entity begins in a middle of a UTF-16 symbol at offset {offset}"
        )
    if _splits(raw, offset + length):
        raise make_bad_request_refusal(
            f"{begins} ends in a middle of a UTF-16 symbol at offset {offset + length}"
        )
    if entity["type"] == "text_link":
        url = str(entity.get("url") or "")
        if not (urlsplit(url).netloc or urlsplit(url).path.strip("/")):
            raise make_bad_request_refusal(f"entity URL '{url}' is invalid: URL host is empty")


def _splits(raw: bytes, unit: int) -> bool:
    """Return whether the position is in the middle of a character of two units."""
    second = raw[2 * unit : 2 * unit + 2]
    return len(second) == 2 and 0xDC00 <= int.from_bytes(second, "little") <= 0xDFFF


def _check_markup(text: str, mode: str) -> None:
    match mode.lower():
        case "html":
            _check_html(text)
        case "markdownv2":
            if match := _MARKDOWN_RESERVED.search(text):
                raise make_bad_request_refusal(
                    f"can't parse entities: Character '{match[0]}' is reserved and must be escaped "
                    "with the preceding '\\'"
                )
        case "markdown":
            for sign in "*_`":
                if text.count(sign) % 2:
                    at = len(text[: text.rfind(sign)].encode())
                    why = "Can't find end of the entity starting at byte offset"
                    raise make_bad_request_refusal(f"can't parse entities: {why} {at}")
        case _:
            raise make_bad_request_refusal("unsupported parse_mode")


def _check_html(text: str) -> None:
    open_tags: list[str] = []
    for match in _HTML_TAG_PATTERN.finditer(text):
        name = match[2].lower()
        at = len(text[: match.start()].encode())
        if name not in _HTML_TAGS:
            raise make_bad_request_refusal(
                f'can\'t parse entities: Unsupported start tag "{name}" at byte offset {at}'
            )
        if not match[1]:
            open_tags.append(name)
        elif not open_tags or open_tags.pop() != name:
            raise make_bad_request_refusal(
                f"can't parse entities: Unexpected end tag at byte offset {at}"
            )
    if open_tags:
        raise make_bad_request_refusal(
            "can't parse entities: Can't find end tag corresponding to start tag "
            f'"{open_tags[-1]}"'
        )
