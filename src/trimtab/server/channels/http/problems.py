"""Errors of the HTTP API as problem details (RFC 9457), with what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.errors import (
    PositionTaken,
    SessionLockedByOtherProcess,
    SessionNotFound,
    StaleOwner,
    StoreFull,
    StoreNotWritable,
    StoreUnavailable,
)
from trimtab.policy.guard import CannotFit
from trimtab.server.pausable_forks import ForksPaused
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
            name="unauthorized",
            status=401,
            title="A valid API key is required",
            help="Send `Authorization: Bearer KEY`; the operator creates keys with `trimtab keys "
            "create`.",
        ),
        ProblemKind(
            name="forbidden",
            status=403,
            title="The caller is not allowed to do this",
            help="Ask the operator, who sets which web pages, host names and keys may do this.",
        ),
        ProblemKind(
            name="not-found",
            status=404,
            title="Not found",
            help="See /openapi.json for all paths, or list the sessions of an agent.",
        ),
        ProblemKind(
            name="method-not-allowed",
            status=405,
            title="The method is not allowed here",
            help="Use one of the methods that the header `Allow` names.",
        ),
        ProblemKind(
            name="request-timeout",
            status=408,
            title="The request took too long to arrive",
            help="Send it again.",
        ),
        ProblemKind(
            name="conflict",
            status=409,
            title="The request conflicts with the state of the session",
            help="Read the detail, then try again.",
        ),
        ProblemKind(
            name="content-too-large",
            status=413,
            title="The request is too large",
            help="Send less; the operator sets the limit as `serve.max_body_bytes` in agent.yaml.",
        ),
        ProblemKind(
            name="unsupported-media-type",
            status=415,
            title="The body must be JSON",
            help="Send the body as JSON, with `Content-Type: application/json`.",
        ),
        ProblemKind(
            name="invalid-request",
            status=422,
            title="The request is invalid",
            help="Correct what the detail names; /openapi.json describes every field.",
        ),
        ProblemKind(
            name="idempotency-key-reused",
            status=422,
            title="The idempotency key was used for another message",
            help="Give each message a key of its own; send a message again as it was.",
        ),
        ProblemKind(
            name="too-many-requests",
            status=429,
            title="Too many requests",
            help="Wait for the seconds that the header `Retry-After` names.",
        ),
        ProblemKind(
            name="internal-error",
            status=500,
            title="Internal error",
            help="Give the `instance` to the operator; it is in the server's log.",
        ),
        ProblemKind(
            name="service-unavailable",
            status=503,
            title="The service is unavailable",
            help="Try again after the seconds that the header `Retry-After` names.",
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
    return HttpProblem("not-found", f"there is no agent {agent}, or this key may not use it")


def build_unavailable_problem(reason: str, retry_after_s: int = STORE_RETRY_AFTER_S) -> HttpProblem:
    """Something that passes."""
    return HttpProblem("service-unavailable", reason, headers={"Retry-After": str(retry_after_s)})


def describe_store_trouble(error: Exception) -> str:
    """Why the store does not work, by its kind alone: its own words name folders and hosts, and
    are in the log."""
    match error:
        case StoreFull():
            return "the store is full: no space is left to write"
        case StoreNotWritable():
            return "the store cannot be written to"
        case _:
            return "the store is unavailable"


def convert_error_to_problem(error: Exception) -> HttpProblem | None:
    """What a known error of the parts below means to a caller; None for a mistake of ours."""
    match error:
        case HttpProblem():
            return error
        case SessionNotFound() | AgentNotServed():
            # Gone since it was looked for.
            return HttpProblem("not-found", "the session does not exist any more")
        case QueueFull():
            headers = {"Retry-After": str(QUEUE_RETRY_AFTER_S)}
            return HttpProblem(
                "too-many-requests", str(error), headers=headers, waiting=error.waiting
            )
        case SessionLockedByOtherProcess() | PositionTaken() | StaleOwner():
            return HttpProblem("conflict", "another process writes to this session; try again")
        case StoreUnavailable():
            return build_unavailable_problem(describe_store_trouble(error))
        case CannotFit() | ForksPaused():
            return HttpProblem("conflict", str(error))
        case _:
            return None
