"""What is one user's or one tenant's: a copy of it, its end, and the record of that.

All of it is the caller's tenant's: nobody can name another. A key that may use some agents only
reaches the sessions of these.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from typing import Any

from trimtab.http_api_response_types import (
    ErasureRecordInfo,
    ErasureRecordList,
    ForgottenTotals,
    encode_json_bytes,
)
from trimtab.server import forgetting
from trimtab.server.channels.http.problems import HttpProblem
from trimtab.server.channels.http.request_context_and_operations import (
    EndpointResponse,
    RequestContext,
)
from trimtab.server.forgetting import ErasureTotals
from trimtab.server.tenant_agent_session_ids import is_valid_name

JSON_LINES_MEDIA_TYPE = "application/x-ndjson"


async def handle_erase_user(request: RequestContext) -> EndpointResponse:
    """Forget a user."""
    totals = await forgetting.erase_user(
        request.service,
        request.caller.tenant,
        _require_user(request),
        by=request.caller.name,
        agents=request.caller.agents,
    )
    request.server_state.hubs.notify_all()
    return EndpointResponse(value=_describe_totals(totals))


async def handle_export_user(request: RequestContext) -> EndpointResponse:
    """A copy of all that is a user's."""
    lines = forgetting.export_user(
        request.service,
        request.caller.tenant,
        _require_user(request),
        agents=request.caller.agents,
    )
    return EndpointResponse(chunks=_encode_lines(lines), media_type=JSON_LINES_MEDIA_TYPE)


async def handle_erase_tenant(request: RequestContext) -> EndpointResponse:
    """Forget all that is the caller's tenant's."""
    tenant = _require_whole_tenant(request)
    if request.body.confirm != tenant:
        raise HttpProblem(
            "invalid-request",
            f"nothing was erased: this key is of the tenant {tenant}, and `confirm` names another",
        )
    totals = await forgetting.erase_tenant(request.service, tenant, by=request.caller.name)
    request.server_state.hubs.notify_all()
    return EndpointResponse(value=_describe_totals(totals))


async def handle_export_tenant(request: RequestContext) -> EndpointResponse:
    """A copy of all that is the caller's tenant's."""
    lines = forgetting.export_tenant(request.service, _require_whole_tenant(request))
    return EndpointResponse(chunks=_encode_lines(lines), media_type=JSON_LINES_MEDIA_TYPE)


async def handle_list_erasures(request: RequestContext) -> EndpointResponse:
    """What was erased, without the content."""
    records, tenant = request.service.erasure_records, request.caller.tenant
    if records is None:
        return EndpointResponse(value=ErasureRecordList(erasures=[]))
    user, session = request.query_params["user"], request.query_params["session"]
    if user and session:
        raise HttpProblem("invalid-request", "user and session are both there; send one of them")
    target = None
    if user or session:
        target = await records.digest(user or f"{tenant}/{session}")
    found = await records.newest(tenant, target=target, limit=request.query_params["limit"])
    return EndpointResponse(
        value=ErasureRecordList(
            erasures=[
                ErasureRecordInfo(
                    **{name: value for name, value in asdict(one).items() if name != "tenant"}
                )
                for one in found
            ]
        )
    )


async def _encode_lines(lines: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[bytes]:
    async for line in lines:
        yield encode_json_bytes(line) + b"\n"


def _require_user(request: RequestContext) -> str:
    user = request.path_params["user"]
    if not is_valid_name(user):
        raise HttpProblem(
            "not-found",
            "users have names of 1 to 128 letters, digits and _ . : @ + = -, such as telegram:123",
        )
    return user


def _require_whole_tenant(request: RequestContext) -> str:
    caller = request.caller
    if caller.agents is not None:
        raise HttpProblem(
            "forbidden",
            f"the key {caller.name} may use some agents only, and this is about all of the tenant",
        )
    return caller.tenant


def _describe_totals(totals: ErasureTotals) -> ForgottenTotals:
    return ForgottenTotals(**asdict(totals))
