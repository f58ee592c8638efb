"""The addresses at which clouds accept requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.simulators.clouds.azure import AzureCall
from tests.simulators.clouds.base import Cloud, CloudRequest
from tests.simulators.clouds.bedrock import BedrockInvoke
from tests.simulators.clouds.bedrock_converse import BedrockConverseCall
from tests.simulators.clouds.vertex import VertexPredict

Handle = Callable[[Cloud], Response]
MakeCloud = Callable[[CloudRequest, Request], Cloud]
_VERTEX = "/v1/projects/{project}/locations/{region}/publishers/anthropic/models/{model}"


def build_cloud_routes(handle: Handle) -> list[Route]:
    """Return the routes of Bedrock, Vertex and Azure."""
    makers: dict[str, MakeCloud] = {
        "/openai/deployments/{name}/chat/completions": lambda http, request: AzureCall(
            http=http, dialect="openai_chat", deployment=request.path_params["name"]
        ),
        "/openai/responses": lambda http, _: AzureCall(http=http, dialect="openai_responses"),
        "/openai/v1/responses": lambda http, _: AzureCall(
            http=http, dialect="openai_responses", is_v1=True
        ),
        "/openai/v1/chat/completions": lambda http, _: AzureCall(
            http=http, dialect="openai_chat", is_v1=True
        ),
    }
    for streams, path in ((False, "invoke"), (True, "invoke-with-response-stream")):
        makers[f"/model/{{model:path}}/{path}"] = _make_with_model(BedrockInvoke, streams=streams)
    for streams, path in ((False, "converse"), (True, "converse-stream")):
        makers[f"/model/{{model:path}}/{path}"] = _make_with_model(
            BedrockConverseCall, streams=streams
        )
    for streams, method in ((False, "rawPredict"), (True, "streamRawPredict")):
        makers[f"{_VERTEX}:{method}"] = _make_with_model(VertexPredict, streams=streams)
    return [Route(path, _endpoint(handle, make), methods=["POST"]) for path, make in makers.items()]


def _make_with_model(cloud: Callable[..., Cloud], *, streams: bool) -> MakeCloud:
    return lambda http, request: cloud(
        http=http, model=request.path_params["model"], streams=streams
    )


def _endpoint(handle: Handle, make: MakeCloud) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        http = CloudRequest(
            method=request.method,
            raw_path=request.scope["raw_path"].decode("ascii").partition("?")[0],
            query=request.url.query,
            headers=request.headers,
            body=await request.body(),
        )
        return handle(make(http, request))

    return endpoint
