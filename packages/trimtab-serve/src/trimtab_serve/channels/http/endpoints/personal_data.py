"""Export and erase the data of a user or a tenant, and list erasures.

A caller reaches only its own tenant. A key for some agents reaches only their sessions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Path, Query
from starlette.responses import Response, StreamingResponse

from trimtab.errors import StoreUnavailable
from trimtab_serve.channels.http.api_caller import ApiCaller
from trimtab_serve.channels.http.api_route import (
    ApiRequest,
    create_api_router,
    describe_problems,
    requires,
)
from trimtab_serve.channels.http.parameters import PageSize, QueryText
from trimtab_serve.channels.http.problems import HttpProblem
from trimtab_serve.channels.http.request_bodies import EraseTenantBody
from trimtab_serve.client.types import (
    ErasureRecordInfo,
    ErasureRecordList,
    ErasureStatus,
    encode_json_bytes,
)
from trimtab_serve.forgetting import erasure, export
from trimtab_serve.queue.address import NAME_PATTERN, is_valid_name
from trimtab_serve.service.erasure_records import ErasureJob, list_running_and_recorded

USER_PATH = "/v1/users/{user}"
MAX_WAIT_S = 2.0
"""Seconds that a request waits for the end of an erasure."""
log = logging.getLogger("trimtab.server")
UserName = Annotated[
    str,
    Path(
        description="The user, as the channel names them: `telegram:123`, `discord:456`, or the "
        "`user` of a message. It has 1 to 128 letters, digits and `_ . : @ + = -`.",
        json_schema_extra={"pattern": f"^{NAME_PATTERN}$"},
    ),
]


class JsonLinesResponse(StreamingResponse):
    """Lines of JSON, produced at the speed of the reader."""

    media_type = "application/x-ndjson"


router = create_api_router("forgetting")


@router.delete(
    USER_PATH, openapi_extra=requires("admin"), responses=describe_problems(404), status_code=202
)
async def erase_user(request: ApiRequest, response: Response, user: UserName) -> ErasureStatus:
    """Erase a user of your tenant. The user's own sessions are deleted. In shared sessions, the
    user's messages and the answers to them are erased. It cannot be restored. The answer is 200 if
    it is finished, and 202 if it continues. Repeating this changes nothing."""
    return await _erase(request, response, user=_require_user(user), agents=request.caller.agents)


@router.get(
    f"{USER_PATH}/export",
    response_class=JsonLinesResponse,
    openapi_extra=requires("admin"),
    responses=describe_problems(404),
)
async def export_user(request: ApiRequest, user: UserName) -> JsonLinesResponse:
    """Export all stored data of a user as lines of JSON. It includes hidden and waiting messages
    and files. The last line has the kind `end`. Without it, the copy is incomplete."""
    lines = export.export_user(
        request.service, request.caller.tenant, _require_user(user), agents=request.caller.agents
    )
    return await _stream_lines(lines)


@router.delete("/v1/tenant", openapi_extra=requires("admin"), status_code=202)
async def erase_tenant(
    request: ApiRequest, response: Response, body: EraseTenantBody
) -> ErasureStatus:
    """Erase all sessions of your tenant with their waiting messages and schedules. It cannot be
    restored. The answer is 200 if it is finished, and 202 if it continues. Repeating this changes
    nothing."""
    tenant = _require_whole_tenant(request)
    if body.confirm != tenant:
        raise HttpProblem(
            "invalid-request",
            f"nothing was erased: `confirm` must be {tenant}, the tenant of this key",
        )
    return await _erase(request, response)


@router.get("/v1/tenant/export", response_class=JsonLinesResponse, openapi_extra=requires("admin"))
async def export_tenant(request: ApiRequest) -> JsonLinesResponse:
    """Export all stored data of your tenant as lines of JSON, in the same format."""
    return await _stream_lines(
        export.export_tenant(request.service, _require_whole_tenant(request))
    )


@router.get(
    "/v1/erasures/{erasure_id}",
    openapi_extra=requires("admin"),
    responses=describe_problems(404),
)
async def get_erasure(
    request: ApiRequest,
    erasure_id: Annotated[str, Path(description="The `id` of the erasure.", max_length=64)],
) -> ErasureStatus:
    """Read the state of the erasure of a user or a tenant, until a day after its end."""
    caller = request.caller
    job = await erasure.find_erasure(request.service.erasure_records, caller.tenant, erasure_id)
    if job is None or not _may_see(caller, job):
        raise HttpProblem(
            "not-found",
            "there is no such erasure, or it ended more than a day ago; GET /v1/erasures lists all",
        )
    return _describe_job(job)


@router.get("/v1/erasures", openapi_extra=requires("admin"))
async def list_erasures(
    request: ApiRequest,
    user: Annotated[
        QueryText | None, Query(description="Only erasures of this user.", max_length=128)
    ] = None,
    session: Annotated[
        QueryText | None,
        Query(description="Only erasures of this session, `AGENT/NAME`.", max_length=257),
    ] = None,
    limit: PageSize = 100,
) -> ErasureRecordList:
    """List the erasures of your tenant, newest first, without the erased content."""
    records = request.service.erasure_records
    tenant = _require_whole_tenant(request)
    if user and session:
        raise HttpProblem("invalid-request", "user and session exclude each other; send only one")
    target = None
    if user or session:
        target = await records.digest(user or f"{tenant}/{session}")
    erasures = await list_running_and_recorded(records, tenant, target=target, limit=limit)
    return ErasureRecordList(
        erasures=[
            ErasureRecordInfo(
                **{name: value for name, value in asdict(one).items() if name != "tenant"}
            )
            for one in erasures
        ]
    )


async def _stream_lines(lines: AsyncIterator[Mapping[str, Any]]) -> JsonLinesResponse:
    """Return the response. An error before the first line still gets its own status."""
    first = await anext(lines, None)

    async def encode_lines() -> AsyncIterator[bytes]:
        if first is not None:
            yield encode_json_bytes(first) + b"\n"
        async for line in lines:
            yield encode_json_bytes(line) + b"\n"

    return JsonLinesResponse(encode_lines())


def _require_user(user: str) -> str:
    if not is_valid_name(user):
        raise HttpProblem(
            "not-found",
            "invalid user: use 1 to 128 letters, digits and _ . : @ + = -, such as telegram:123",
        )
    return user


def _require_whole_tenant(request: ApiRequest) -> str:
    caller = request.caller
    if caller.agents is not None:
        raise HttpProblem(
            "forbidden",
            f"key {caller.name} is limited to some agents, and this needs a key for all agents",
        )
    return caller.tenant


async def _erase(
    request: ApiRequest,
    response: Response,
    *,
    user: str = "",
    agents: Collection[str] | None = None,
) -> ErasureStatus:
    """Start an erasure, and wait a moment for its end."""
    service = request.service
    tenant = request.caller.tenant
    records = service.erasure_records
    job = await erasure.start_erasure(
        records, tenant, user=user, agents=agents, by=request.caller.name
    )
    is_over = asyncio.Event()

    async def run() -> None:
        try:
            await erasure.run_erasure(service, job.id)
        except StoreUnavailable as error:
            log.warning("erasure %s will be tried again: %s", job.id, error)
        finally:
            request.server_state.hubs.notify_all()
            is_over.set()

    request.server_state.run_in_background(run())
    with suppress(TimeoutError):
        await asyncio.wait_for(is_over.wait(), MAX_WAIT_S)
    job = await erasure.find_erasure(records, tenant, job.id) or job
    if job.finished_at is not None:
        response.status_code = 200
    response.headers["Location"] = f"/v1/erasures/{job.id}"
    return _describe_job(job)


def _may_see(caller: ApiCaller, job: ErasureJob) -> bool:
    """Whether a caller reaches all agents whose sessions the job searches."""
    if caller.agents is None:
        return True
    return job.agents is not None and {*job.agents} <= {*caller.agents}


def _describe_job(job: ErasureJob) -> ErasureStatus:
    return ErasureStatus(
        id=job.id,
        state=job.state,
        to_do=job.to_do,
        sessions=job.sessions,
        messages=job.messages,
        waiting=job.waiting,
        unreadable=[*job.unreadable],
        configured_schedules=[*job.configured_schedules],
        reason=job.reason,
    )
