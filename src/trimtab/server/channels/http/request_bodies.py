"""The bodies of requests. An unknown field is refused and named."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trimtab.log.message import Media, Message, Part, Text, make_text_message
from trimtab.server.channels.http.problems import HttpProblem
from trimtab.server.message_senders import with_sender
from trimtab.server.tenant_agent_session_ids import NAME_PATTERN

SessionNameField = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$", max_length=128)]
UserNameField = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$", max_length=128)]
MESSAGE_KEY_PATTERN = re.compile(r"[!-~]{1,200}")
MessageKeyField = Annotated[str, Field(pattern=f"^{MESSAGE_KEY_PATTERN.pattern}$")]
MAX_REPORTED_ERRORS = 20
"""Errors of one body that are reported."""


class RequestBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )


class EmptyBody(RequestBody):
    """A request that needs no body."""


class CreateSessionBody(RequestBody):
    """A new session."""

    name: SessionNameField | None = None
    """Its name; one is generated if it is missing."""


class TextPartBody(RequestBody):
    """Text in a message of several parts."""

    type: Literal["text"]
    """What it is."""
    text: Annotated[str, Field(min_length=1)]
    """The text."""


class MediaPartBody(RequestBody):
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
    def _one_source(self) -> MediaPartBody:
        if (self.data is None) is (self.url is None):
            raise ValueError("give either data or url")
        return self


MessagePartBody = Annotated[TextPartBody | MediaPartBody, Field(discriminator="type")]


class SendMessageBody(RequestBody):
    """A message to the agent: either `text` or `parts`."""

    text: Annotated[str, Field(min_length=1)] | None = None
    """The text of the message."""
    parts: Annotated[tuple[MessagePartBody, ...], Field(min_length=1, max_length=50)] | None = None
    """Text, pictures and files, in order."""
    key: MessageKeyField | None = None
    """An idempotency key: a message with a key that is known is not added again. One is generated
    if it is missing."""
    user: UserNameField | None = None
    """Who says it, by a name of yours. It is kept beside the message and not sent to the model;
    what a user said can be exported and erased by it."""

    @model_validator(mode="after")
    def _one_content(self) -> SendMessageBody:
        if (self.text is None) is (self.parts is None):
            raise ValueError("give either text or parts")
        return self

    def to_message(self) -> Message:
        """What goes into the log."""
        if self.text is not None:
            said = make_text_message("user", self.text)
        else:
            parts = tuple(_to_message_part(part) for part in self.parts or ())
            said = Message(role="user", parts=parts, plain=False)
        return said if self.user is None else with_sender(said, self.user)


class UndoBody(RequestBody):
    """How far to go back."""

    to: Annotated[str, Field(pattern=r"^m[0-9]{1,18}$")] | None = None
    """The last message that stays, such as `m12`; if it is missing, the newest message of the user
    and all after it are undone."""


class EraseBody(RequestBody):
    """What to erase."""

    handle: Annotated[str, Field(pattern=r"^m[0-9]{1,18}(\.[0-9]{1,9}|-m[0-9]{1,18})?$")]
    """A message `m12`, one part of it `m12.0`, or all from one to another, `m3-m50`."""
    reason: Annotated[str, Field(max_length=1_000)] = ""
    """Who asked for it, or which rule; it stays in the log."""


class EraseTenantBody(RequestBody):
    """A word of confirmation."""

    confirm: Annotated[str, Field(min_length=1, max_length=128)]
    """The name of the tenant whose data is erased: that of the key."""


class ForkBody(RequestBody):
    """A new session that begins with the history of another."""

    name: SessionNameField | None = None
    """The name of the copy; one is generated if it is missing."""
    at: Annotated[int, Field(ge=1, le=2**62)] | None = None
    """The position up to which the history is copied; all of it if it is missing."""


def parse_request_body(body_model: type[RequestBody], raw_body: bytes) -> RequestBody:
    """The body, or a `HttpProblem` that names what is wrong with it."""
    try:
        return body_model.model_validate_json(raw_body or b"{}")
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
    raise build_validation_problem([(each["loc"], each) for each in found])


def build_validation_problem(
    errors: Sequence[tuple[tuple[int | str, ...], Mapping[str, Any]]],
) -> HttpProblem:
    """Errors of pydantic, each with where it is, as a problem that names each field."""
    return build_invalid_fields_problem(
        [
            {
                "field": ".".join(map(str, where)) or "body",
                "detail": _explain_validation_error(error["type"], error["msg"]),
            }
            for where, error in errors[:MAX_REPORTED_ERRORS]
        ]
    )


def build_invalid_fields_problem(field_problems: Sequence[Mapping[str, str]]) -> HttpProblem:
    """What is wrong with a body: each `field` with its `detail`."""
    detail = "; ".join(f"{each['field']}: {each['detail']}" for each in field_problems)
    return HttpProblem("invalid-request", detail, errors=list(field_problems))


def _explain_validation_error(error_type: str, message: str) -> str:
    if error_type == "extra_forbidden":
        return "there is no such field"
    return message.removeprefix("Value error, ").replace("Input should", "it should")


def _to_message_part(part: TextPartBody | MediaPartBody) -> Part:
    if isinstance(part, TextPartBody):
        return Text(text=part.text)
    return Media(kind=part.type, mime=part.mime, data=part.data, url=part.url)
