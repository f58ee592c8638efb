"""What a caller may send. Anything besides is refused with the field named."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trimtab.core.message import Media, Message, Part, Text, text_message
from trimtab.gateways.http.problems import Problem
from trimtab.worker.naming import NAME

Name = Annotated[str, Field(pattern=f"^{NAME}$", max_length=128)]
KEY = re.compile(r"[!-~]{1,200}")
Key = Annotated[str, Field(pattern=f"^{KEY.pattern}$")]
SHOWN = 20
"""Mistakes of one body that are told."""


class Body(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )


class Nothing(Body):
    """A request that needs no body."""


class NewSession(Body):
    """A session to be."""

    name: Name | None = None
    """What it is called; a name is made where it is missing."""


class TextPart(Body):
    """Text in a message of several parts."""

    type: Literal["text"]
    """What it is."""
    text: Annotated[str, Field(min_length=1)]
    """The text."""


class MediaPart(Body):
    """A picture or another file in a message of several parts: either `data` or `url`."""

    type: Literal["image", "document", "audio", "video", "file"]
    """What a model perceives in it."""
    mime: Annotated[str, Field(max_length=200, pattern=r"^[\w.+-]+/[\w.+-]+$")]
    """Its media type: `image/png`."""
    data: Annotated[str, Field(min_length=1, pattern=r"^[A-Za-z0-9+/]+={0,2}$")] | None = None
    """The content in Base64."""
    url: Annotated[str, Field(pattern=r"^https://", max_length=2_000)] | None = None
    """Where the provider fetches it; this server never does."""

    @model_validator(mode="after")
    def _one_source(self) -> MediaPart:
        if (self.data is None) is (self.url is None):
            raise ValueError("give either data or url")
        return self


AnyPart = Annotated[TextPart | MediaPart, Field(discriminator="type")]


class NewMessage(Body):
    """Something said to the agent: either `text` or `parts`."""

    text: Annotated[str, Field(min_length=1)] | None = None
    """What is said."""
    parts: Annotated[tuple[AnyPart, ...], Field(min_length=1, max_length=50)] | None = None
    """What is said and shown, in order."""
    key: Key | None = None
    """Your own for this message: sent again with the same key it is not said again. One is made
    where it is missing."""

    @model_validator(mode="after")
    def _one_content(self) -> NewMessage:
        if (self.text is None) is (self.parts is None):
            raise ValueError("give either text or parts")
        return self

    def message(self) -> Message:
        """What goes into the log."""
        if self.text is not None:
            return text_message("user", self.text)
        parts = tuple(_part(part) for part in self.parts or ())
        return Message(role="user", parts=parts, plain=False)


class Undo(Body):
    """How far to go back."""

    to: Annotated[str, Field(pattern=r"^m[0-9]{1,18}$")] | None = None
    """The last message that stays, `m12`; where it is missing the newest message of the user and
    all behind it are undone."""


class Erase(Body):
    """What is to be destroyed."""

    handle: Annotated[str, Field(pattern=r"^m[0-9]{1,18}(\.[0-9]{1,9}|-m[0-9]{1,18})?$")]
    """A message `m12`, one part of it `m12.0`, or all from one to another, `m3-m50`."""
    why: Annotated[str, Field(max_length=1_000)] = ""
    """Who asked for it, or which rule; it stays in the log."""


class NewFork(Body):
    """A session that shares the past of another."""

    name: Name | None = None
    """What the copy is called; a name is made where it is missing."""
    at: Annotated[int, Field(ge=1, le=2**62)] | None = None
    """The position up to which the past is shared; all of it where it is missing."""


def checked(body: type[Body], raw: bytes) -> Body:
    """The body, or a `Problem` that names what is wrong with it."""
    try:
        return body.model_validate_json(raw or b"{}")
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
    wrong = [
        {"field": ".".join(map(str, each["loc"])) or "body", "why": _why(each["type"], each["msg"])}
        for each in found[:SHOWN]
    ]
    raise invalid(wrong)


def invalid(wrong: Sequence[Mapping[str, str]]) -> Problem:
    """What is wrong with a body: each `field` with its `why`."""
    told = "; ".join(f"{each['field']}: {each['why']}" for each in wrong)
    return Problem("invalid", told, fields=list(wrong))


def _why(kind: str, told: str) -> str:
    if kind == "extra_forbidden":
        return "there is no such field"
    return told.removeprefix("Value error, ").replace("Input should", "it should")


def _part(part: TextPart | MediaPart) -> Part:
    if isinstance(part, TextPart):
        return Text(text=part.text)
    return Media(kind=part.type, mime=part.mime, data=part.data, url=part.url)
