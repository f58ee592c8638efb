"""What is one user's or one tenant's: a copy of it, its end, and the record of that.

All of it is the caller's tenant's: nobody can name another. A key that may use some agents only
reaches the sessions of these.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Path, Query
from starlette.responses import StreamingResponse

from trimtab.http_api_response_types import (
    ErasureRecordInfo,
    ErasureRecordList,
    ForgottenTotals,
    encode_json_bytes,
)
from trimtab.server import forgetting
from trimtab.server.channels.http.api_route import (
    ApiRequest,
    create_api_router,
    describe_problems,
    requires,
)
from trimtab.server.channels.http.parameters import PageSize, QueryText
from trimtab.server.channels.http.problems import HttpProblem
from trimtab.server.channels.http.request_bodies import EraseTenantBody
from trimtab.server.forgetting import ErasureTotals
from trimtab.server.tenant_agent_session_ids import NAME_PATTERN, is_valid_name

USER_PATH = "/v1/users/{user}"
UserName = Annotated[
    str,
    Path(
        description="The user, as the channel names them: `telegram:123`, `discord:456`, or the "
        "`user` of a message; 1 to 128 letters, digits and `_ . : @ + = -`.",
        json_schema_extra={"pattern": f"^{NAME_PATTERN}$"},
    ),
]


class JsonLinesResponse(StreamingResponse):
    """Lines of JSON, made while they are sent; whoever reads slowly is waited for."""

    media_type = "application/x-ndjson"


router = create_api_router("forgetting")


@router.delete(USER_PATH, openapi_extra=requires("admin"), responses=describe_problems(404))
async def erase_user(request: ApiRequest, user: UserName) -> ForgottenTotals:
    """Erase a user of your tenant: sessions that are the user's own are deleted; in sessions with
    others the user's messages and the answers to them are erased. It cannot be restored. Repeating
    this changes nothing."""
    totals = await forgetting.erase_user(
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
    """Read a copy of all that is kept of a user, hidden and waiting messages and files included, as
    lines of JSON. The last line has the kind `end`; without it the copy is cut off."""
    lines = forgetting.export_user(
        request.service, request.caller.tenant, _require_user(user), agents=request.caller.agents
    )
    return await _stream_lines(lines)


@router.delete("/v1/tenant", openapi_extra=requires("admin"))
async def erase_tenant(request: ApiRequest, body: EraseTenantBody) -> ForgottenTotals:
    """Erase all sessions of your tenant, with all that waits or is scheduled in them. It cannot be
    restored. Repeating this changes nothing."""
    tenant = _require_whole_tenant(request)
    if body.confirm != tenant:
        raise HttpProblem(
            "invalid-request",
            f"nothing was erased: this key is of the tenant {tenant}, and `confirm` names another",
        )
    totals = await forgetting.erase_tenant(request.service, tenant, by=request.caller.name)
    request.server_state.hubs.notify_all()
    return _describe_totals(totals)


@router.get("/v1/tenant/export", response_class=JsonLinesResponse, openapi_extra=requires("admin"))
async def export_tenant(request: ApiRequest) -> JsonLinesResponse:
    """Read a copy of all that is kept of your tenant, in the same lines."""
    return await _stream_lines(
        forgetting.export_tenant(request.service, _require_whole_tenant(request))
    )


@router.get("/v1/erasures", openapi_extra=requires("admin"))
async def list_erasures(
    request: ApiRequest,
    user: Annotated[
        QueryText | None, Query(description="Erasures of this user.", max_length=128)
    ] = None,
    session: Annotated[
        QueryText | None, Query(description="Those of a session, `AGENT/NAME`.", max_length=257)
    ] = None,
    limit: PageSize = 100,
) -> ErasureRecordList:
    """List what was erased for your tenant, the newest first, without the content."""
    records, tenant = request.service.erasure_records, _require_whole_tenant(request)
    if records is None:
        return ErasureRecordList(erasures=[])
    if user and session:
        raise HttpProblem("invalid-request", "user and session are both there; send one of them")
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
    """What fails before the first line still has a status of its own."""
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
            "users have names of 1 to 128 letters, digits and _ . : @ + = -, such as telegram:123",
        )
    return user


def _require_whole_tenant(request: ApiRequest) -> str:
    caller = request.caller
    if caller.agents is not None:
        raise HttpProblem(
            "forbidden",
            f"the key {caller.name} may use some agents only, and this is about all of the tenant",
        )
    return caller.tenant


def _describe_totals(totals: ErasureTotals) -> ForgottenTotals:
    return ForgottenTotals(**asdict(totals))
