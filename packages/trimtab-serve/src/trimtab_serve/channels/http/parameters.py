"""Path, query and header parameters that several operations share."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Header, Path, Query
from pydantic import AfterValidator, BeforeValidator

from trimtab_serve.channels.http.request_bodies import MESSAGE_KEY_PATTERN, EmptyBody
from trimtab_serve.queue.address import NAME_DESCRIPTION, NAME_PATTERN

AGENT_PATH = "/v1/agents/{agent}"
SESSION_PATH = f"{AGENT_PATH}/sessions/{{session}}"
HANDLE_PATTERN = r"^m[0-9]{1,18}(\.[0-9]{1,9}|-m?[0-9]{1,18})?$"
EVENT_ID_PATTERN = r"^[0-9]{1,18}(\.[0-9]{1,18}){0,2}$"
MAX_POSITION = 2**62
MAX_NUMBER_DIGITS = 19


def _require_digits(text: object) -> object:
    """Refuse numbers that only Python accepts: `1_0`, ` 5`, `+5`, `5.0`."""
    if isinstance(text, str) and not (
        text.isascii() and text.isdigit() and len(text) <= MAX_NUMBER_DIGITS
    ):
        raise ValueError("it should be a whole number")
    return text


def _refuse_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("it should not contain a NUL")
    return text


QueryText = Annotated[str, AfterValidator(_refuse_nul)]

# An invalid name does not exist, so it is a 404. The pattern is only for the document.
AgentName = Annotated[
    str, Path(description="The agent.", json_schema_extra={"pattern": f"^{NAME_PATTERN}$"})
]
SessionName = Annotated[
    str,
    Path(
        description=f"The session: {NAME_DESCRIPTION}.",
        json_schema_extra={"pattern": f"^{NAME_PATTERN}$"},
    ),
]
MessageHandle = Annotated[
    str,
    Path(
        description="A message `m12`, its part `m12.0`, or a range `m3-m50`.",
        json_schema_extra={"pattern": HANDLE_PATTERN},
    ),
]
ONLY_DIGITS = BeforeValidator(_require_digits)
"""Comes after the bounds of a number in a query, so that the document shows these."""
PageSize = Annotated[
    int, Query(description="Maximum number of results.", ge=1, le=1_000), ONLY_DIGITS
]
LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        description="The id of the last event you have, to continue after it; browsers send it "
        "themselves.",
        json_schema_extra={"pattern": EVENT_ID_PATTERN},
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="The same as `key` in the body.",
        json_schema_extra={"pattern": f"^{MESSAGE_KEY_PATTERN.pattern}$"},
    ),
]
NoBody = Annotated[EmptyBody, Body(default_factory=EmptyBody)]
"""For an operation without a body. A caller may send `{}`."""
