"""Amazon Bedrock: Claude by `/model/{id}/invoke`, in the format of the Messages API."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.simulators.clouds.aws_event_stream import AwsStream, encode_event, encode_exception
from tests.simulators.clouds.aws_signature import check_aws_credentials
from tests.simulators.clouds.base import CloudRequest, make_cloud_refusal, read_error
from trimtab.dialects.anthropic.model_features import parse_claude_version
from trimtab.testing.request_counter import dump_compact_json
from trimtab.testing.server.options import ProviderSimulatorOptions
from trimtab.testing.server.responses import ProviderRefusal, SimulatedResponse

BEDROCK_VERSION = "bedrock-2023-05-31"
NEWER_VERSION = "2026-10-21"
FIRST_NEWER_VERSION_MODEL: tuple[int, int] = (4, 7)
"""The version of Anthropic's API that Bedrock has for newer models, in addition to its own."""
REMOVED_IN_NEWER_VERSION = ("temperature", "top_p", "top_k")
_CLAUDE_ID = re.compile(
    r"(?:[a-z-]+\.)?anthropic\.claude-[\w.:-]+"
    r"|arn:aws[\w-]*:bedrock:[a-z0-9-]*:\d*:[\w-]+/[\w.:-]+"
)
_ANTHROPIC_ONLY = frozenset(
    {
        *("cache_control", "container", "diagnostics", "inference_geo", "mcp_servers"),
        *("service_tier", "speed", "user_profile_id", "workspace_id"),
    }
)
"""Parameters that Anthropic accepts and Bedrock does not."""
_ERROR_TYPES = {
    400: "ValidationException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
}
_STREAM_ERROR_TYPES = {
    "rate_limit_error": "throttlingException",
    "overloaded_error": "serviceUnavailableException",
    "api_error": "internalServerException",
    "timeout_error": "modelTimeoutException",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BedrockInvoke:
    """One `InvokeModel` or `InvokeModelWithResponseStream`."""

    http: CloudRequest
    """The request."""
    model: str
    """The id of a model, of an inference profile, or an ARN."""
    streams: bool
    """Whether the reply is requested as a stream."""
    name: str = "bedrock"
    dialect: str = "anthropic"

    def check_credentials(self, options: ProviderSimulatorOptions) -> str:
        return check_aws_credentials(self.http, options)

    def unwrap_request(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if not _CLAUDE_ID.fullmatch(self.model):
            raise refuse_invalid("The provided model identifier is invalid.")
        for name in body:
            if name in ("model", "stream") or name in _ANTHROPIC_ONLY:
                raise _refuse_malformed(f"extraneous key [{name}] is not permitted")
        check_version(body, self.model)
        inner = {name: body[name] for name in body if not name.startswith("anthropic_")}
        return {**inner, "model": self.model, **({"stream": True} if self.streams else {})}

    def wrap_response(self, response: SimulatedResponse) -> SimulatedResponse:
        response = with_request_id(response)
        if response.events is None:
            return wrap_aws_error(response)
        return AwsStream.of(response, _with_metrics(response.events), _frame_chunk)


def check_version(body: Mapping[str, Any], model: str) -> None:
    """Refuse a request without the version of the API, or with a version that the model does not
    support."""
    if "anthropic_version" not in body:
        raise _refuse_malformed("required key [anthropic_version] not found")
    version = body["anthropic_version"]
    newer = (parse_claude_version(model) or (0, 0)) >= FIRST_NEWER_VERSION_MODEL
    if version != BEDROCK_VERSION and not (version == NEWER_VERSION and newer):
        raise refuse_invalid(f"Invalid API version: {version}")
    if version == NEWER_VERSION:
        for name in REMOVED_IN_NEWER_VERSION:
            if name in body:
                raise refuse_invalid(f"{name}: Extra inputs are not permitted")


def refuse_invalid(message: str) -> ProviderRefusal:
    return make_cloud_refusal("ValidationException", message)


def _refuse_malformed(what: str) -> ProviderRefusal:
    return refuse_invalid(
        f"Malformed input request: #: {what}, please reformat your input and try again."
    )


def with_request_id(response: SimulatedResponse) -> SimulatedResponse:
    """Return the response with AWS's id of the request in its headers."""
    number = response.headers.get("request-id", "req_0")
    return replace(response, headers={**response.headers, "x-amzn-requestid": number})


def wrap_aws_error(response: SimulatedResponse, prefix: str = "") -> SimulatedResponse:
    """Return an error with AWS's body and its type in a header. Other responses are unchanged."""
    if (type_and_message := read_error(response)) is None:
        return response
    error_type, message = type_and_message
    if message.startswith("prompt is too long"):
        message = "Input is too long for requested model."
    if not error_type.endswith("Exception"):
        error_type = _ERROR_TYPES.get(response.status, "InternalServerException")
        message = prefix + message
    return replace(
        response,
        body={"message": message},
        headers={**response.headers, "x-amzn-errortype": f"{error_type}:http://amazon.example/"},
    )


def frame_stream_error(event: Mapping[str, Any]) -> bytes:
    """Return an error inside of a stream. It has no status."""
    error: Any = event.get("error")
    error_type = str(error.get("type"))
    exception_name = (
        error_type[:1].lower() + error_type[1:] if error_type.endswith("Exception") else None
    )
    kind = exception_name or _STREAM_ERROR_TYPES.get(error_type, "validationException")
    return encode_exception(kind, dump_compact_json({"message": error["message"]}).encode())


def _frame_chunk(event: Mapping[str, Any]) -> bytes:
    if event["type"] == "error":
        return frame_stream_error(event)
    inner = base64.b64encode(dump_compact_json(event).encode("utf-8", "surrogatepass")).decode()
    # AWS fills chunks up, so that their lengths tell nothing of the words within.
    padding = "abcdefghijklmnop"[: 1 + len(inner) % 15]
    return encode_event("chunk", dump_compact_json({"bytes": inner, "p": padding}).encode())


def _with_metrics(events: Any) -> Iterator[Mapping[str, Any]]:
    for event in events:
        if event["type"] == "message_stop":
            yield {**event, "amazon-bedrock-invocationMetrics": {"invocationLatency": 1}}
        elif event["type"] != "ping":
            yield event
