"""Errors of the HTTP API as problem details (RFC 9457), with advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.errors import (
    CannotFit,
    PositionTaken,
    SessionLockedByOtherProcess,
    SessionNotFound,
    StaleOwner,
    StoreFull,
    StoreNotWritable,
    StoreUnavailable,
)
from trimtab_serve.forgetting.erasure import CopyOfErasedData
from trimtab_serve.queue.address import NAME_DESCRIPTION, is_valid_name
from trimtab_serve.service.service import AgentNotServed, QueueFull
from trimtab_serve.usage.tenant_limits import MessageRateExceeded, TenantLimitReached

PROBLEM_MEDIA_TYPE = "application/problem+json"
PROBLEM_TYPE_PREFIX = "urn:trimtab:problem:"
"""Every `type` begins with this."""
STORE_RETRY_AFTER_S = 1
"""Seconds before a retry if the store was unavailable."""
QUEUE_RETRY_AFTER_S = 5
"""Seconds before a retry if the queue was full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemKind:
    """A kind of problem."""

    name: str
    """The last part of its `type`."""
    status: int
    """HTTP status."""
    title: str
    """The same for every problem of this kind."""
    help: str
    """What the caller can do about it."""


PROBLEM_KINDS = {
    kind.name: kind
    for kind in (
        ProblemKind(
            name="bad-request",
            status=400,
            title="The request is malformed",
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
            name="limit-reached",
            status=403,
            title="The tenant or the session stores as much as it may",
            help="Delete what is no longer needed; the operator sets `serve.tenant_limits`.",
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
            help="Follow the advice in `detail`, then try again.",
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
            help="Correct what `detail` names; /openapi.json describes every field.",
        ),
        ProblemKind(
            name="idempotency-key-reused",
            status=422,
            title="The idempotency key was used for another message",
            help="Use a new key for each message. To repeat a message, send it unchanged.",
        ),
        ProblemKind(
            name="too-many-requests",
            status=429,
            title="Too many requests",
            help="Wait for the number of seconds in the header `Retry-After`.",
        ),
        ProblemKind(
            name="internal-error",
            status=500,
            title="Internal error",
            help="Send the `instance` to the operator, who can find it in the server's log.",
        ),
        ProblemKind(
            name="service-unavailable",
            status=503,
            title="The service is unavailable",
            help="Try again after the number of seconds in the header `Retry-After`.",
        ),
    )
}


class HttpProblem(Exception):
    """An error that becomes the response."""

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        help: str | None = None,  # noqa: A002 - the name of the member
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        self.kind = PROBLEM_KINDS[kind]
        """The kind of problem."""
        self.detail = detail
        """What happened, with the numbers."""
        self.help = help or self.kind.help
        """What the caller can do about it."""
        self.headers = dict(headers or {})
        """Additional response headers."""
        self.extra_members = more
        """Additional members of the document."""
        super().__init__(detail)

    def to_document(self) -> dict[str, Any]:
        """Return the problem document."""
        kind = self.kind
        return {
            "type": f"{PROBLEM_TYPE_PREFIX}{kind.name}",
            "title": kind.title,
            "status": kind.status,
            "detail": self.detail,
            "help": self.help,
            **self.extra_members,
        }


def build_session_not_found_problem(agent: str, session_name: str) -> HttpProblem:
    """Build the response for a session that does not exist, or that belongs to another tenant."""
    detail = f"agent {agent} has no session {session_name}"
    if not is_valid_name(session_name):
        detail += f"; this cannot be the name of a session: a name is {NAME_DESCRIPTION}"
    return HttpProblem("not-found", detail)


def build_agent_not_found_problem(agent: str, *, has_keys: bool) -> HttpProblem:
    """Build the response for an agent that does not exist, or that the key may not use.

    `has_keys` says whether callers of this server need a key.
    """
    rest = ", or this key cannot use it" if has_keys else ""
    return HttpProblem(
        "not-found",
        f"agent {agent} does not exist{rest}",
        help="`GET /v1/agents` lists the agents that you can use.",
    )


def build_unavailable_problem(reason: str, retry_after_s: int = STORE_RETRY_AFTER_S) -> HttpProblem:
    """Build the response for a temporary failure."""
    return HttpProblem("service-unavailable", reason, headers={"Retry-After": str(retry_after_s)})


def describe_store_trouble(error: Exception) -> str:
    """Describe a store error by its kind only.

    Its message contains folders and hosts, and is in the log.
    """
    match error:
        case StoreFull():
            return "the store is full: no space is left to write"
        case StoreNotWritable():
            return "the store cannot be written to"
        case _:
            return "the store is unavailable"


def convert_error_to_problem(error: Exception) -> HttpProblem | None:
    """Return the problem for a known error. None for an internal error."""
    match error:
        case HttpProblem():
            return error
        case SessionNotFound() | AgentNotServed():
            # It was deleted after it was found.
            return HttpProblem("not-found", "the session no longer exists")
        case QueueFull():
            headers = {"Retry-After": str(QUEUE_RETRY_AFTER_S)}
            problem = HttpProblem("too-many-requests", str(error), headers=headers)
            if error.waiting is not None:
                problem.extra_members["waiting"] = error.waiting
            return problem
        case MessageRateExceeded():
            return HttpProblem(
                "too-many-requests",
                str(error),
                headers={"Retry-After": str(error.retry_after_s)},
                messages_per_minute=error.messages_per_minute,
            )
        case TenantLimitReached():
            return HttpProblem(
                "limit-reached", str(error), name=error.name, used=error.used, limit=error.limit
            )
        case SessionLockedByOtherProcess() | PositionTaken() | StaleOwner():
            return HttpProblem("conflict", "another process is writing to this session; try again")
        case StoreUnavailable():
            return build_unavailable_problem(describe_store_trouble(error))
        case CannotFit() | CopyOfErasedData():
            return HttpProblem("conflict", str(error))
        case _:
            return None
