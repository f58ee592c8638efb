"""A call of a client, and its answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, cast

import trimtab
from trimtab.session.threads import run_in_thread_if_long
from trimtab.sidecar.json_text import JsonItem, JsonText, Levels, dump_json
from trimtab.sidecar.wire_body import BODY_LEVELS, WireBody

MAX_ID_BYTES = 256
"""Bytes of a conversation's id."""
MAX_COMPARED_NAMES = 100
"""Names of fields that are compared with a misspelt `redact`. It takes long."""
CALL_LEVELS: Levels = {"body": BODY_LEVELS, "options": {}}
"""What of a call is read with its places."""
_REDACTION_KEY = re.compile(r'"\w*redact\w*"\s*:', re.IGNORECASE)
"""A key that names a redaction. In a text of a body its quotes would be escaped."""


class Refusal(Exception):
    """A call cannot be answered.

    Args:
        status: The status, as in HTTP.
        error: What is wrong, and what is right.
        is_blocked: Whether the client must not send its body, because it was not redacted.
    """

    def __init__(self, status: int, error: str, *, is_blocked: bool = False) -> None:
        super().__init__(error)
        self.status = status
        self.is_blocked = is_blocked


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a call."""

    status: int = 200
    """The status, as in HTTP."""
    fields: Mapping[str, Any]
    """Its fields."""
    body: str | None = None
    """The text of its field `body`, if it has one."""

    def write(self, **more: Any) -> str:
        """Return it as JSON, with more fields before its own."""
        text = dump_json({**more, "version": trimtab.__version__, **self.fields})
        return text if self.body is None else f'{text[:-1]},"body":{self.body}}}'


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a client."""

    source: JsonText
    item: JsonItem

    @property
    def fields(self) -> dict[str, Any]:
        """Its fields."""
        return cast("dict[str, Any]", self.item.value)

    @property
    def short_id(self) -> str:
        """The conversation for a line of a log."""
        return str(self.fields.get("conversation"))[:40]

    @property
    def asks_to_redact(self) -> bool:
        """Whether it names a redaction, or may name one: in a wrong place, or misspelt."""
        options = self.fields.get("options")
        is_readable = not options or isinstance(options, dict)
        named = {name: value for name, value in self.fields.items() if name != "body"}
        return not is_readable or _names_redaction(named)

    @property
    def conversation_id(self) -> str:
        """The id of the conversation."""
        name = self.require_text("conversation")
        size = len(name.encode("utf-8", "surrogatepass"))
        if size > MAX_ID_BYTES:
            raise Refusal(400, f"conversation has {size:,} bytes; at most {MAX_ID_BYTES}")
        return name

    def check_fields(self, names: Collection[str]) -> None:
        """Refuse fields that the operation does not have: they may be misspelt."""
        if unknown := self.fields.keys() - {"id", "op", *names}:
            raise Refusal(400, f"unknown field {min(unknown)!r}; the fields are {', '.join(names)}")

    def read_text(self, name: str) -> str:
        """Return a field that may be missing."""
        text = self.fields.get(name)
        if text is None:
            return ""
        if not isinstance(text, str):
            raise Refusal(400, f"{name} must be a text")
        return text

    def require_text(self, name: str) -> str:
        """Return a field that must be there."""
        if text := self.read_text(name):
            return text
        raise Refusal(400, f"{name} is missing")

    def read_body(self) -> WireBody:
        """Return the body of a model call that it passes."""
        body = self.item.find("body")
        if body is None:
            raise ValueError("body is missing")
        return WireBody(self.source, body, dialect=self.read_text("dialect") or None)


def may_ask_to_redact(text: str) -> bool:
    """Whether a call that cannot be read may name a redaction."""
    return _REDACTION_KEY.search(text) is not None


def _names_redaction(fields: Mapping[str, Any]) -> bool:
    """Whether one of these fields, or one inside of them, seems to be called `redact`."""
    names: list[str] = []
    objects = [fields]
    while objects:
        for name, value in objects.pop().items():
            if value is not None and value != []:
                names.append(name.lower())
            if isinstance(value, dict):
                objects.append(cast("dict[str, Any]", value))
    is_like = any(
        get_close_matches(name, ["redact"], 1, 0.7) for name in names[:MAX_COMPARED_NAMES]
    )
    return is_like or any("redact" in name for name in names)


async def read_call(text: str) -> Call:
    """Read a call.

    Raises:
        Refusal: If it is not an object of JSON.
    """

    def read() -> Call:
        source = JsonText(text)
        return Call(source, source.read(CALL_LEVELS))

    try:
        call = await run_in_thread_if_long(read, len(text))
    except ValueError as error:
        raise Refusal(400, str(error), is_blocked=may_ask_to_redact(text)) from None
    if not isinstance(call.item.value, dict):
        error = "a call is an object of JSON"
        raise Refusal(400, error, is_blocked=may_ask_to_redact(text))
    if call.asks_to_redact or may_ask_to_redact(text):
        _refuse_repeated_fields(call)
    return call


def _refuse_repeated_fields(call: Call) -> None:
    """Refuse a call that redacts and has a field twice: the other value would not be redacted, and
    the provider may read it."""
    for item in (call.item, *(item for item in call.item.items or () if item.items)):
        names = Counter(field.key for field in item.items or () if field.key is not None)
        for name, count in names.items():
            if count > 1:
                error = f"not redacted, so do not send it: the field {name[:40]!r} is there twice"
                raise Refusal(400, error, is_blocked=True)
