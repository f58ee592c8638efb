"""Export and erase the data of a user or a tenant, and list erasures.

A caller reaches only its own tenant. A key for some agents reaches only their sessions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Path, Query
from starlette.responses import StreamingResponse

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
    ForgottenTotals,
    encode_json_bytes,
)
from trimtab_serve.forgetting import erasure
from trimtab_serve.forgetting.erasure import ErasureTotals
from trimtab_serve.queue.address import NAME_PATTERN, is_valid_name

USER_PATH = "/v1/users/{user}"
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


@router.delete(USER_PATH, openapi_extra=requires("admin"), responses=describe_problems(404))
async def erase_user(request: ApiRequest, user: UserName) -> ForgottenTotals:
    """Erase a user of your tenant. The user's own sessions are deleted. In shared sessions, the
    user's messages and the answers to them are erased. It cannot be restored. Repeating this
    changes nothing."""
    totals = await erasure.erase_user(
        request.service,
        request.caller.tenant,
        _require_user(user),
        by=request.caller.name,
        agents=request.caller.agents,
    )
    request.server_state.hubs.notify_all()
    return _describe_totals(totals)


@router.get(
    f"{USER_PATH}/export",
    response_class=JsonLinesResponse,
    openapi_extra=requires("admin"),
    responses=describe_problems(404),
)
async def export_user(request: ApiRequest, user: UserName) -> JsonLinesResponse:
    """Export all stored data of a user as lines of JSON. It includes hidden and waiting messages
    and files. The last line has the kind `end`. Without it, the copy is incomplete."""
    lines = erasure.export_user(
        request.service, request.caller.tenant, _require_user(user), agents=request.caller.agents
    )
    return await _stream_lines(lines)


@router.delete("/v1/tenant", openapi_extra=requires("admin"))
async def erase_tenant(request: ApiRequest, body: EraseTenantBody) -> ForgottenTotals:
    """Erase all sessions of your tenant with their waiting messages and schedules. It cannot be
    restored. Repeating this changes nothing."""
    tenant = _require_whole_tenant(request)
    if body.confirm != tenant:
        raise HttpProblem(
            "invalid-request",
            f"nothing was erased: `confirm` must be {tenant}, the tenant of this key",
        )
    totals = await erasure.erase_tenant(request.service, tenant, by=request.caller.name)
    request.server_state.hubs.notify_all()
    return _describe_totals(totals)


@router.get("/v1/tenant/export", response_class=JsonLinesResponse, openapi_extra=requires("admin"))
async def export_tenant(request: ApiRequest) -> JsonLinesResponse:
    """Export all stored data of your tenant as lines of JSON, in the same format."""
    return await _stream_lines(
        erasure.export_tenant(request.service, _require_whole_tenant(request))
    )


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
    records, tenant = request.service.erasure_records, _require_whole_tenant(request)
    if records is None:
        return ErasureRecordList(erasures=[])
    if user and session:
        raise HttpProblem("invalid-request", "user and session exclude each other; send only one")
    target = None
    if user or session:
        target = await records.digest(user or f"{tenant}/{session}")
    found = await records.newest(tenant, target=target, limit=limit)
    return ErasureRecordList(
        erasures=[
            ErasureRecordInfo(
                **{name: value for name, value in asdict(one).items() if name != "tenant"}
            )
            for one in found
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


def _describe_totals(totals: ErasureTotals) -> ForgottenTotals:
    return ForgottenTotals(**asdict(totals))
