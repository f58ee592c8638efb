"""What a caller is told when something cannot be done: RFC 9457, with what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.errors import PositionTaken, SessionBusy, SessionNotFound, StaleOwner, StoreUnavailable
from trimtab.policy.guard import CannotFit
from trimtab.server.service import AgentNotServed, QueueFull

PROBLEM_MEDIA_TYPE = "application/problem+json"
PROBLEM_TYPE_PREFIX = "urn:trimtab:problem:"
"""What every `type` begins with."""
STORE_RETRY_AFTER_S = 1
"""Seconds after which a store that could not be reached is worth another try."""
QUEUE_RETRY_AFTER_S = 5
"""Seconds after which a queue that was full is worth another try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemKind:
    """A kind of problem."""

    name: str
    """The last word of its `type`."""
    status: int
    """The HTTP status."""
    title: str
    """The same for every problem of this kind."""
    help: str
    """What to do about it."""


PROBLEM_KINDS = {
    kind.name: kind
    for kind in (
        ProblemKind(
            name="bad-request",
            status=400,
            title="The request cannot be read",
            help="Send valid HTTP; the OpenAPI document at /openapi.json shows every request.",
        ),
        ProblemKind(
            name="no-key",
            status=401,
            title="A valid API key is needed",
            help="Send `Authorization: Bearer KEY`; the operator makes keys with `trimtab keys "
            "create`.",
        ),
        ProblemKind(
            name="not-allowed",
            status=403,
            title="This may not be done from here",
            help="Ask the operator: which web pages, names and keys may do this is set where the "
            "server runs.",
        ),
        ProblemKind(
            name="not-found",
            status=404,
            title="There is nothing here",
            help="See /openapi.json for what there is, or list the sessions of an agent.",
        ),
        ProblemKind(
            name="wrong-method",
            status=405,
            title="This cannot be done with this method",
            help="Use one of the methods that the header `Allow` names.",
        ),
        ProblemKind(
            name="too-slow",
            status=408,
            title="The request took too long to arrive",
            help="Send it again, in one go.",
        ),
        ProblemKind(
            name="conflict",
            status=409,
            title="The session is not in a state for this",
            help="Read the detail, then try again.",
        ),
        ProblemKind(
            name="too-large",
            status=413,
            title="The request is too large",
            help="Send less; the operator sets the limit as `serve.max_body` in agent.yaml.",
        ),
        ProblemKind(
            name="wrong-type",
            status=415,
            title="Only JSON is understood",
            help="Send the body as JSON, with `Content-Type: application/json`.",
        ),
        ProblemKind(
            name="invalid",
            status=422,
            title="The request does not fit its description",
            help="Correct what the detail names; /openapi.json describes every field.",
        ),
        ProblemKind(
            name="too-many",
            status=429,
            title="Too many requests",
            help="Wait for as many seconds as the header `Retry-After` says.",
        ),
        ProblemKind(
            name="fault",
            status=500,
            title="The server made a mistake",
            help="Tell the operator the `instance`; it is in the server's log.",
        ),
        ProblemKind(
            name="unavailable",
            status=503,
            title="The server cannot do this now",
            help="Try again after as many seconds as the header `Retry-After` says.",
        ),
    )
}


class HttpProblem(Exception):
    """Raised where it is found; becomes the answer."""

    def __init__(
        self, kind: str, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        self.kind = PROBLEM_KINDS[kind]
        """What kind of problem it is."""
        self.detail = detail
        """What happened, with the numbers."""
        self.headers = dict(headers or {})
        """Sent besides."""
        self.extra_members = more
        """Further members of the document."""
        super().__init__(detail)

    def to_document(self) -> dict[str, Any]:
        """The document."""
        kind = self.kind
        return {
            "type": f"{PROBLEM_TYPE_PREFIX}{kind.name}",
            "title": kind.title,
            "status": kind.status,
            "detail": self.detail,
            "help": kind.help,
            **self.extra_members,
        }


def build_session_not_found_problem(agent: str, session_name: str) -> HttpProblem:
    """The one answer for a session that does not exist, and for one of another tenant."""
    return HttpProblem("not-found", f"agent {agent} has no session {session_name}")


def build_agent_not_found_problem(agent: str) -> HttpProblem:
    """The one answer for an agent that does not exist, and for one that a key may not use."""
    return HttpProblem("not-found", f"no agent {agent} is served for you")


def build_unavailable_problem(reason: str, retry_after_s: int = STORE_RETRY_AFTER_S) -> HttpProblem:
    """Something that passes."""
    return HttpProblem("unavailable", reason, headers={"Retry-After": str(retry_after_s)})


def convert_error_to_problem(error: Exception) -> HttpProblem | None:
    """What a known error of the parts below means to a caller; None for a mistake of ours."""
    match error:
        case HttpProblem():
            return error
        case SessionNotFound() | AgentNotServed():
            # Gone since it was looked for.
            return HttpProblem("not-found", "the session is not there any more")
        case QueueFull():
            headers = {"Retry-After": str(QUEUE_RETRY_AFTER_S)}
            return HttpProblem("too-many", str(error), headers=headers, waiting=error.waiting)
        case SessionBusy() | PositionTaken() | StaleOwner():
            return HttpProblem("conflict", "somebody else writes to this session; try again")
        case StoreUnavailable():
            return build_unavailable_problem("the store cannot be reached")
        case CannotFit():
            return HttpProblem("conflict", str(error))
        case _:
            return None
