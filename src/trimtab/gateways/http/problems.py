"""What a caller is told when something cannot be done: RFC 9457, with what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.core.guard import CannotFit
from trimtab.stores.errors import (
    NoSession,
    PositionTaken,
    SessionBusy,
    StaleOwner,
    StoreUnavailable,
)
from trimtab.worker.service import Crowded, NoAgent

MEDIA = "application/problem+json"
PREFIX = "urn:trimtab:problem:"
"""What every `type` begins with."""
SOON = 1
"""Seconds after which a store that could not be reached is worth another try."""
LATER = 5
"""Seconds after which a queue that was full is worth another try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of problem."""

    name: str
    """The last word of its `type`."""
    status: int
    """The HTTP status."""
    title: str
    """The same for every problem of this kind."""
    help: str
    """What to do about it."""


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            name="bad-request",
            status=400,
            title="The request cannot be read",
            help="Send valid HTTP; the OpenAPI document at /openapi.json shows every request.",
        ),
        Kind(
            name="no-key",
            status=401,
            title="A valid API key is needed",
            help="Send `Authorization: Bearer KEY`; the operator makes keys with `trimtab keys "
            "create`.",
        ),
        Kind(
            name="not-allowed",
            status=403,
            title="This may not be done from here",
            help="Ask the operator: which web pages, names and keys may do this is set where the "
            "server runs.",
        ),
        Kind(
            name="not-found",
            status=404,
            title="There is nothing here",
            help="See /openapi.json for what there is, or list the sessions of an agent.",
        ),
        Kind(
            name="wrong-method",
            status=405,
            title="This cannot be done with this method",
            help="Use one of the methods that the header `Allow` names.",
        ),
        Kind(
            name="too-slow",
            status=408,
            title="The request took too long to arrive",
            help="Send it again, in one go.",
        ),
        Kind(
            name="conflict",
            status=409,
            title="The session is not in a state for this",
            help="Read the detail, then try again.",
        ),
        Kind(
            name="too-large",
            status=413,
            title="The request is too large",
            help="Send less; the operator sets the limit as `serve.max_body` in agent.yaml.",
        ),
        Kind(
            name="wrong-type",
            status=415,
            title="Only JSON is understood",
            help="Send the body as JSON, with `Content-Type: application/json`.",
        ),
        Kind(
            name="invalid",
            status=422,
            title="The request does not fit its description",
            help="Correct what the detail names; /openapi.json describes every field.",
        ),
        Kind(
            name="too-many",
            status=429,
            title="Too many requests",
            help="Wait for as many seconds as the header `Retry-After` says.",
        ),
        Kind(
            name="fault",
            status=500,
            title="The server made a mistake",
            help="Tell the operator the `instance`; it is in the server's log.",
        ),
        Kind(
            name="unavailable",
            status=503,
            title="The server cannot do this now",
            help="Try again after as many seconds as the header `Retry-After` says.",
        ),
    )
}


class Problem(Exception):
    """Raised where it is found; becomes the answer."""

    def __init__(
        self, kind: str, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        self.kind = KINDS[kind]
        """What kind of problem it is."""
        self.detail = detail
        """What happened, with the numbers."""
        self.headers = dict(headers or {})
        """Sent besides."""
        self.more = more
        """Further members of the document."""
        super().__init__(detail)

    def body(self) -> dict[str, Any]:
        """The document."""
        kind = self.kind
        return {
            "type": f"{PREFIX}{kind.name}",
            "title": kind.title,
            "status": kind.status,
            "detail": self.detail,
            "help": kind.help,
            **self.more,
        }


def no_session(agent: str, name: str) -> Problem:
    """The one answer for a session that does not exist, and for one of another tenant."""
    return Problem("not-found", f"agent {agent} has no session {name}")


def no_agent(agent: str) -> Problem:
    """The one answer for an agent that does not exist, and for one that a key may not use."""
    return Problem("not-found", f"no agent {agent} is served for you")


def not_now(why: str, seconds: int = SOON) -> Problem:
    """Something that passes."""
    return Problem("unavailable", why, headers={"Retry-After": str(seconds)})


def problem_of(error: Exception) -> Problem | None:
    """What a known error of the parts below means to a caller; None for a mistake of ours."""
    match error:
        case Problem():
            return error
        case NoSession() | NoAgent():
            # Gone since it was looked for.
            return Problem("not-found", "the session is not there any more")
        case Crowded():
            headers = {"Retry-After": str(LATER)}
            return Problem("too-many", str(error), headers=headers, waiting=error.waiting)
        case SessionBusy() | PositionTaken() | StaleOwner():
            return Problem("conflict", "somebody else writes to this session; try again")
        case StoreUnavailable():
            return not_now("the store cannot be reached")
        case CannotFit():
            return Problem("conflict", str(error))
        case _:
            return None
