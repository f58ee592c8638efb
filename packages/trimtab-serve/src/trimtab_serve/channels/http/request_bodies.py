"""The bodies of requests. An unknown field is refused and named."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from trimtab.engine.log.message import Media, Message, Part, Text, make_text_message
from trimtab_serve.channels.http.problems import HttpProblem
from trimtab_serve.channels.http.public_address import is_public_https_url
from trimtab_serve.queue.address import NAME_PATTERN
from trimtab_serve.service.sender import with_sender

SessionNameField = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$", max_length=128)]
UserNameField = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$", max_length=128)]
MESSAGE_KEY_PATTERN = re.compile(r"[!-~]{1,200}")
MessageKeyField = Annotated[str, Field(pattern=f"^{MESSAGE_KEY_PATTERN.pattern}$")]
MAX_REPORTED_ERRORS = 20
"""Maximum number of reported errors of one body."""
MAX_COMPARED_CHARS = 100
"""Characters of an unknown field that are compared with the known ones."""


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
    """Its name. If it is missing, the server generates one."""


class TextPartBody(RequestBody):
    """Text in a message of several parts."""

    type: Literal["text"]
    """The type of the part."""
    text: Annotated[str, Field(min_length=1)]
    """The text."""


class MediaPartBody(RequestBody):
    """A picture or another file in a message of several parts: either `data` or `url`."""

    type: Literal["image", "document", "audio", "video", "file"]
    """The kind of content."""
    mime: Annotated[str, Field(max_length=200, pattern=r"^[\w.+-]+/[\w.+-]+$")]
    """Its media type: `image/png`."""
    data: Annotated[str, Field(min_length=1, pattern=r"^[A-Za-z0-9+/]+={0,2}$")] | None = None
    """The content in Base64."""
    url: Annotated[str, Field(pattern=r"^https://", max_length=2_000)] | None = None
    """The address from which the provider fetches it. This server never does. Addresses in private
    networks are refused."""

    @field_validator("url")
    @classmethod
    def _public(cls, url: str | None) -> str | None:
        if url is not None and not is_public_https_url(url):
            raise ValueError(
                "its host must be a public name such as images.example.com or a public IP "
                "address; send the content as `data` otherwise"
            )
        return url

    @model_validator(mode="after")
    def _one_source(self) -> MediaPartBody:
        if (self.data is None) is (self.url is None):
            raise ValueError("set either data or url")
        return self


MessagePartBody = Annotated[TextPartBody | MediaPartBody, Field(discriminator="type")]


class SendMessageBody(RequestBody):
    """A message to the agent: either `text` or `parts`."""

    text: Annotated[str, Field(min_length=1)] | None = None
    """The text of the message."""
    parts: Annotated[tuple[MessagePartBody, ...], Field(min_length=1, max_length=50)] | None = None
    """Text, pictures and files, in order."""
    key: MessageKeyField | None = None
    """An idempotency key. A message with a known key is not added again. If it is missing, the
    server generates one."""
    user: UserNameField | None = None
    """The user who sends it, by a name of your choice. It is stored beside the message and not sent
    to the model. You can export and erase a user's messages by it."""

    @model_validator(mode="after")
    def _one_content(self) -> SendMessageBody:
        if (self.text is None) is (self.parts is None):
            raise ValueError("set either text or parts")
        return self

    def to_message(self) -> Message:
        """Return the message for the log."""
        if self.text is not None:
            message = make_text_message("user", self.text)
        else:
            parts = tuple(_to_message_part(part) for part in self.parts or ())
            message = Message(role="user", parts=parts, plain=False)
        return message if self.user is None else with_sender(message, self.user)


class UndoBody(RequestBody):
    """How far to go back."""

    to: Annotated[str, Field(pattern=r"^m[0-9]{1,18}$")] | None = None
    """The last message that stays, such as `m12`. If it is missing, the newest message of the user
    and all after it are undone."""


class EraseBody(RequestBody):
    """What to erase."""

    handle: Annotated[str, Field(pattern=r"^m[0-9]{1,18}(\.[0-9]{1,9}|-m[0-9]{1,18})?$")]
    """A message `m12`, one part of it `m12.0`, or a range `m3-m50`."""
    reason: Annotated[str, Field(max_length=1_000)] = ""
    """The user who asked for it, or the rule that requires it. It stays in the log."""


class EraseTenantBody(RequestBody):
    """The confirmation."""

    confirm: Annotated[str, Field(min_length=1, max_length=128)]
    """The name of the tenant whose data is erased. It must be the tenant of the key."""


class ForkBody(RequestBody):
    """A new session that begins with the history of another."""

    name: SessionNameField | None = None
    """The name of the copy. If it is missing, the server generates one."""
    at: Annotated[int, Field(ge=1, le=2**62)] | None = None
    """The position up to which the history is copied. If it is missing, all of it is copied."""


def parse_request_body(body_model: type[RequestBody], raw_body: bytes) -> RequestBody:
    """Return the body. Raises `HttpProblem` that names what is wrong."""
    try:
        body = body_model.model_validate_json(raw_body or b"{}")
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
    else:
        json.loads(raw_body or b"{}", object_pairs_hook=_refuse_repeated_names)
        return body
    raise build_validation_problem([(each["loc"], each) for each in errors], body_model)


def _refuse_repeated_names(pairs: Sequence[tuple[str, Any]]) -> None:
    """Raise `HttpProblem` if a name is repeated: another program may read the other value."""
    names = set[str]()
    for name, _ in pairs:
        if name in names:
            problem = {"field": name, "detail": "the body has this field twice"}
            raise build_invalid_fields_problem([problem])
        names.add(name)


def build_validation_problem(
    errors: Sequence[tuple[tuple[int | str, ...], Mapping[str, Any]]],
    body_model: type[RequestBody] | None = None,
) -> HttpProblem:
    """Return the problem for pydantic's errors, with the place of each.

    If the model of the body is given, the problem names the fields that an unknown one may mean.
    """
    return build_invalid_fields_problem(
        [
            {
                "field": ".".join(map(str, where)) or "body",
                "detail": _explain_unknown_field(list(where), body_model)
                if error["type"] == "extra_forbidden"
                else _explain_validation_error(error["msg"]),
            }
            for where, error in errors[:MAX_REPORTED_ERRORS]
        ]
    )


def build_invalid_fields_problem(field_problems: Sequence[Mapping[str, str]]) -> HttpProblem:
    """Return the problem for an invalid body: each `field` with its `detail`."""
    detail = "; ".join(f"{each['field']}: {each['detail']}" for each in field_problems)
    return HttpProblem("invalid-request", detail, errors=list(field_problems))


def _explain_validation_error(message: str) -> str:
    return message.removeprefix("Value error, ").replace("Input should", "it should")


def _explain_unknown_field(where: Sequence[int | str], body_model: type[RequestBody] | None) -> str:
    if len(where) > 1:
        # The only fields inside others are those of a part: parts, its number, its type, the field.
        body_model = TextPartBody if where[-2] == "text" else MediaPartBody
    field_names = list(body_model.model_fields) if body_model is not None else []
    if close_names := get_close_matches(str(where[-1])[:MAX_COMPARED_CHARS], field_names, n=1):
        return f"unknown field (did you mean {close_names[0]}?)"
    return (
        f"unknown field (the known fields are {', '.join(field_names)})"
        if field_names
        else "unknown field"
    )


def _to_message_part(part: TextPartBody | MediaPartBody) -> Part:
    if isinstance(part, TextPartBody):
        return Text(text=part.text)
    return Media(kind=part.type, mime=part.mime, data=part.data, url=part.url)
