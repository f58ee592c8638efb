"""Amazon Bedrock: any model by `/model/{id}/converse`, in Bedrock's own format."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tests.simulators.clouds.aws_event_stream import AwsStream, encode_event
from tests.simulators.clouds.aws_signature import check_aws_credentials
from tests.simulators.clouds.base import CloudRequest, make_cloud_refusal
from tests.simulators.clouds.bedrock import (
    frame_stream_error,
    refuse_invalid,
    with_request_id,
    wrap_aws_error,
)
from trimtab.models.catalog import resolve_model_info
from trimtab.models.families import detect_model_family
from trimtab.testing.request_counter import dump_compact_json, list_array_objects
from trimtab.testing.server.options import ProviderSimulatorOptions
from trimtab.testing.server.responses import SimulatedResponse

_JsonObject = Mapping[str, Any]
_ReadBlock = Callable[[_JsonObject, int], dict[str, Any]]
_REQUEST_KEYS = frozenset(
    {
        *("messages", "system", "inferenceConfig", "toolConfig", "additionalModelRequestFields"),
        *("additionalModelResponseFieldPaths", "guardrailConfig", "performanceConfig"),
        *("promptVariables", "requestMetadata", "serviceTier", "outputConfig"),
    }
)
_INFERENCE_KEYS = {
    "maxTokens": "max_tokens",
    "temperature": "temperature",
    "topP": "top_p",
    "stopSequences": "stop_sequences",
}
_MODEL_ID = re.compile(
    r"(?:[a-z-]+\.)?[a-z0-9]+\.[\w.:-]+|arn:aws[\w-]*:bedrock:[a-z0-9-]*:\d*:[\w-]+/[\w.:-]+"
)
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CALL_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_IMAGE_FORMATS = ("png", "jpeg", "gif", "webp")
_DOCUMENT_TYPES = {"pdf": "application/pdf", "txt": "text/plain"}
_DOCUMENT_NAME = re.compile(r"[\w\-()\[\]]+(?: [\w\-()\[\]]+)*")
MAX_CACHE_POINTS = 4
MAX_DOCUMENTS = 5
_NOT_STREAMED_WITH_TOOLS = ("llama", "mistral")
_MODEL_ERROR_PREFIX = "The model returned the following errors: "


@dataclass(frozen=True, slots=True, kw_only=True)
class BedrockConverseCall:
    """One `Converse` or `ConverseStream`."""

    http: CloudRequest
    """The request."""
    model: str
    """The id of a model, of an inference profile, or an ARN."""
    streams: bool
    """Whether the reply is requested as a stream."""
    name: str = "bedrock_converse"
    dialect: str = "anthropic"

    def check_credentials(self, options: ProviderSimulatorOptions) -> str:
        return check_aws_credentials(self.http, options)

    def unwrap_request(self, body: _JsonObject) -> dict[str, Any]:
        if not _MODEL_ID.fullmatch(self.model):
            raise refuse_invalid("The provided model identifier is invalid.")
        _check_keys(body, _REQUEST_KEYS, "the request")
        limits: _JsonObject = body.get("inferenceConfig") or {}
        _check_keys(limits, frozenset(_INFERENCE_KEYS), "inferenceConfig")
        messages = list_array_objects(body.get("messages"))
        family = detect_model_family(self.model)
        has_tools = "toolConfig" in body
        _check_cache_points(body, family)
        _check_roles(messages)
        _check_pairs(messages, has_tools=has_tools)
        _check_documents(messages)
        _check_family(messages, family, streams=self.streams, has_tools=has_tools)
        more = dict(body.get("additionalModelRequestFields") or {})
        if "deepseek." in self.model:
            _check_no_thinking(messages)
            more.pop("thinking", None)  # Claude's own, whose rules are not DeepSeek's
        messages_request: dict[str, Any] = {"model": self.model}
        messages_request["max_tokens"] = resolve_model_info(self.model).max_output
        messages_request |= {
            ours: limits[theirs] for theirs, ours in _INFERENCE_KEYS.items() if theirs in limits
        }
        messages_request["messages"] = [
            {"role": message["role"], "content": _read_blocks(message.get("content"), index)}
            for index, message in enumerate(messages)
        ]
        if system := _read_marked(list_array_objects(body.get("system")), _read_system_block):
            messages_request["system"] = system
        if "toolConfig" in body:
            messages_request |= _read_tools(body["toolConfig"])
        messages_request |= more
        return {**messages_request, **({"stream": True} if self.streams else {})}

    def wrap_response(self, response: SimulatedResponse) -> SimulatedResponse:
        response = with_request_id(response)
        if response.events is not None:
            return AwsStream.of(response, _build_events(response.events), _frame_event)
        if response.status >= 400 or not isinstance(response.body, Mapping):
            return wrap_aws_error(response, _MODEL_ERROR_PREFIX)
        return replace(response, body=_build_reply(response.body))


def _check_keys(value: _JsonObject, known: frozenset[str], where: str) -> None:
    for name in value:
        if name not in known:
            raise refuse_invalid(f"Malformed input request: {where} has no field {name!r}")


def _check_cache_points(body: _JsonObject, family: str) -> None:
    config: _JsonObject = body.get("toolConfig") or {}
    places = {
        "/system": list_array_objects(body.get("system")),
        "/toolConfig/tools": list_array_objects(config.get("tools")),
    }
    for index, message in enumerate(list_array_objects(body.get("messages"))):
        places[f"/messages/{index}/content"] = list_array_objects(message.get("content"))
    points = [
        (place, number, block["cachePoint"], blocks[number - 1] if number else {})
        for place, blocks in places.items()
        for number, block in enumerate(blocks)
        if "cachePoint" in block
    ]
    if points and family not in ("claude", "nova"):
        raise make_cloud_refusal(
            "AccessDeniedException",
            "You invoked an unsupported model or your request did not allow prompt caching. "
            "See the documentation for more information.",
            403,
        )
    if len(points) > MAX_CACHE_POINTS:
        raise refuse_invalid(
            f"A request takes at most {MAX_CACHE_POINTS} cache points, and {len(points)} were given"
        )
    for place, number, point, before in points if family == "nova" else ():
        if place == "/toolConfig/tools" or "text" not in before:
            raise refuse_invalid(
                f"{_MODEL_ERROR_PREFIX}Malformed input request: #{place}/{number}: extraneous key "
                "[cachePoint] is not permitted, please reformat your input and try again."
            )
        if point.get("ttl", "5m") != "5m":
            raise refuse_invalid(
                "Extended TTL prompt caching is only supported for Anthropic models"
            )


def _check_documents(messages: Sequence[_JsonObject]) -> None:
    names: list[str] = []
    for index, message in enumerate(messages):
        blocks = list_array_objects(message.get("content"))
        inner = [
            part
            for block in blocks
            if "toolResult" in block
            for part in list_array_objects(block["toolResult"].get("content"))
        ]
        names += [
            block["document"].get("name") for block in (*blocks, *inner) if "document" in block
        ]
        if any("document" in block for block in blocks):
            if message.get("role") != "user":
                raise refuse_invalid("A document can only be in a message of the user.")
            if not any("text" in block for block in blocks):
                raise refuse_invalid(
                    f"The content at messages.{index} has a document, and must have a text block "
                    "besides."
                )
    if len(names) > MAX_DOCUMENTS:
        raise refuse_invalid(f"You can't include more than {MAX_DOCUMENTS} documents in a request.")
    if len(set(names)) < len(names):
        raise refuse_invalid(
            "Messages can't contain duplicate document names. Rename the document and retry your "
            "request."
        )


def _check_family(
    messages: Sequence[_JsonObject], family: str, *, streams: bool, has_tools: bool
) -> None:
    """Refuse what models of some families do not support."""
    blocks = [block for message in messages for block in list_array_objects(message.get("content"))]
    if streams and has_tools and family in _NOT_STREAMED_WITH_TOOLS:
        raise refuse_invalid("This model doesn't support tool use in streaming mode.")
    for block in blocks:
        if "status" in (block.get("toolResult") or {}) and family not in ("claude", "nova"):
            raise refuse_invalid(
                "This model doesn't support the status field. Remove status and try again."
            )


def _check_no_thinking(messages: Sequence[_JsonObject]) -> None:
    for message in messages:
        if any("reasoningContent" in block for block in list_array_objects(message.get("content"))):
            raise refuse_invalid(
                "User messages cannot contain reasoning content. Please remove the reasoning "
                "content and try again."
            )


def _check_roles(messages: Sequence[_JsonObject]) -> None:
    roles = [str(message.get("role")) for message in messages]
    for index, role in enumerate(roles):
        if role not in ("user", "assistant"):
            raise refuse_invalid(
                f"Value '{role}' at 'messages.{index}.member.role' failed to satisfy constraint: "
                "Member must satisfy enum value set: [user, assistant]"
            )
    if roles[:1] != ["user"]:
        raise refuse_invalid(
            "A conversation must start with a user message. Try again with a conversation that "
            "starts with a user message."
        )
    if any(one == following for one, following in pairwise(roles)):
        raise refuse_invalid(
            "A conversation must alternate between user and assistant roles. Make sure the "
            "conversation alternates between user and assistant roles and try again."
        )


def _check_pairs(messages: Sequence[_JsonObject], *, has_tools: bool) -> None:
    """Check that the results of all calls, and no others, are in the next message."""
    open_ids: list[str] = []
    for index, message in enumerate(messages):
        blocks = list_array_objects(message.get("content"))
        results = [block["toolResult"]["toolUseId"] for block in blocks if "toolResult" in block]
        uses = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
        if (results or uses) and not has_tools:
            raise refuse_invalid(
                "The toolConfig field must be defined when using toolUse and toolResult content "
                "blocks."
            )
        if missing := [one for one in open_ids if one not in results]:
            raise refuse_invalid(
                f"Expected toolResult blocks at messages.{index}.content for the following Ids: "
                f"{', '.join(missing)}"
            )
        if len(results) > len(open_ids):
            raise refuse_invalid(
                f"The number of toolResult blocks at messages.{index}.content exceeds the number "
                "of toolUse blocks of previous turn."
            )
        open_ids = uses


def _read_blocks(content: Any, index: int) -> list[dict[str, Any]]:
    blocks = list_array_objects(content)
    if not blocks:
        raise refuse_invalid(
            f"The content field in the Message object at messages.{index} is empty. Add a "
            "ContentBlock object to the content field and try again."
        )

    def read(block: _JsonObject, number: int) -> dict[str, Any]:
        return _read_block(block, f"{index}.content.{number}")

    return _read_marked(blocks, read)


def _read_marked(blocks: Sequence[_JsonObject], read: _ReadBlock) -> list[dict[str, Any]]:
    """Return blocks in the format of the Messages API. A cache point marks the block before it."""
    wire_blocks: list[dict[str, Any]] = []
    for number, block in enumerate(blocks):
        if len(block) != 1:
            raise refuse_invalid(f"A block must have exactly one field, not {sorted(block)}")
        if "cachePoint" not in block:
            wire_blocks.append(read(block, number))
            continue
        point: _JsonObject = block["cachePoint"]
        if not wire_blocks or "cache_control" in wire_blocks[-1] or point.get("type") != "default":
            raise refuse_invalid("A cachePoint must follow a block, and its type must be default.")
        ttl = {"ttl": point["ttl"]} if "ttl" in point else {}
        wire_blocks[-1]["cache_control"] = {"type": "ephemeral", **ttl}
    return wire_blocks


def _read_system_block(block: _JsonObject, number: int) -> dict[str, Any]:
    if not str(block.get("text", "")).strip():
        raise refuse_invalid(f"The text field of system.{number} is blank or missing.")
    return {"type": "text", "text": block["text"]}


def _read_block(block: _JsonObject, where: str) -> dict[str, Any]:
    [(kind, value)] = block.items()
    match kind:
        case "text":
            if not value.strip():
                raise refuse_invalid(
                    f"The text field in the ContentBlock object at messages.{where} is blank. Add "
                    "text to the text field, and try again."
                )
            return {"type": "text", "text": value}
        case "toolUse":
            _check_keys(
                value, frozenset({"toolUseId", "name", "input"}), f"messages.{where}.toolUse"
            )
            _check_tool_name(value["name"], where)
            _check_call_id(value["toolUseId"], f"{where}.member.toolUse.toolUseId")
            return {
                "type": "tool_use",
                "id": value["toolUseId"],
                "name": value["name"],
                "input": value["input"],
            }
        case "toolResult":
            result_keys = frozenset({"toolUseId", "content", "status"})
            _check_keys(value, result_keys, f"messages.{where}.toolResult")
            _check_call_id(value["toolUseId"], f"{where}.member.toolResult.toolUseId")
            if not value["content"]:
                raise refuse_invalid(f"The content of the toolResult at messages.{where} is empty")
            inner = [
                _read_block(part, f"{where}.toolResult.content.{number}")
                for number, part in enumerate(list_array_objects(value["content"]))
            ]
            error_mark = {"is_error": True} if value.get("status") == "error" else {}
            result = {"type": "tool_result", "tool_use_id": value["toolUseId"], "content": inner}
            return {**result, **error_mark}
        case "image":
            if value.get("format") not in _IMAGE_FORMATS:
                raise refuse_invalid(f"The format of the image at messages.{where} is not known")
            return _read_media("image", f"image/{value['format']}", value["source"], where)
        case "document":
            if not _DOCUMENT_NAME.fullmatch(value.get("name", "")):
                raise refuse_invalid(f"The name of the document at messages.{where} is invalid")
            kind_of = _DOCUMENT_TYPES.get(value.get("format", ""), "")
            return _read_media("document", kind_of, value["source"], where)
        case "reasoningContent":
            return _read_reasoning(value)
        case _:
            raise refuse_invalid(f"The block at messages.{where} is of no known kind: {kind}")


def _read_media(kind: str, media_type: str, source: _JsonObject, where: str) -> dict[str, Any]:
    data = source.get("bytes")
    try:
        raw = base64.b64decode(str(data), validate=True)
    except binascii.Error:
        raise refuse_invalid(f"The bytes at messages.{where} are not base64") from None
    if media_type == "text/plain":
        text = {"type": "text", "media_type": media_type, "data": raw.decode()}
        return {"type": kind, "source": text}
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": data}}


def _read_reasoning(value: _JsonObject) -> dict[str, Any]:
    if "redactedContent" in value:
        return {"type": "redacted_thinking", "data": value["redactedContent"]}
    reasoning = value["reasoningText"]
    if not reasoning.get("signature"):
        raise refuse_invalid(f"{_MODEL_ERROR_PREFIX}thinking.signature: Field required")
    return {"type": "thinking", "thinking": reasoning["text"], "signature": reasoning["signature"]}


def _check_tool_name(name: str, where: str) -> None:
    if not _TOOL_NAME.fullmatch(name):
        raise refuse_invalid(
            f"Value '{name}' at '{where}' failed to satisfy constraint: Member must satisfy "
            "regular expression pattern: [a-zA-Z0-9_-]+"
        )


def _check_call_id(call_id: str, where: str) -> None:
    if not _CALL_ID.fullmatch(call_id):
        raise refuse_invalid(
            f"Value '{call_id}' at 'messages.{where}' failed to satisfy constraint: Member must "
            "have length less than or equal to 64, and satisfy regular expression pattern: "
            "[a-zA-Z0-9_.:-]+"
        )


def _read_tools(config: _JsonObject) -> dict[str, Any]:
    _check_keys(config, frozenset({"tools", "toolChoice"}), "toolConfig")
    parameters: dict[str, Any] = {
        "tools": _read_marked(list_array_objects(config.get("tools")), _read_tool)
    }
    if not parameters["tools"]:
        raise refuse_invalid("Value at 'toolConfig.tools' must have length greater than 0")
    choice: _JsonObject = config.get("toolChoice") or {}
    for kind, value in choice.items():
        parameters["tool_choice"] = {"type": kind, **value}
    return parameters


def _read_tool(block: _JsonObject, number: int) -> dict[str, Any]:
    spec: _JsonObject = block.get("toolSpec") or {}
    _check_keys(
        spec,
        frozenset({"name", "description", "inputSchema", "strict"}),
        f"tools.{number}.toolSpec",
    )
    _check_tool_name(str(spec.get("name")), f"toolConfig.tools.{number}.member.toolSpec.name")
    description = {"description": spec["description"]} if "description" in spec else {}
    return {"name": spec["name"], **description, "input_schema": spec["inputSchema"]["json"]}


def _build_reply(body: _JsonObject) -> dict[str, Any]:
    content = [_build_block(block) for block in body["content"]]
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": body["stop_reason"],
        "usage": _build_usage(body["usage"]),
        "metrics": {"latencyMs": 1},
    }


def _build_block(block: _JsonObject) -> dict[str, Any]:
    match block["type"]:
        case "tool_use":
            use = {"toolUseId": block["id"], "name": block["name"], "input": block["input"]}
            return {"toolUse": use}
        case "thinking":
            reasoning = {"text": block["thinking"], "signature": block["signature"]}
            return {"reasoningContent": {"reasoningText": reasoning}}
        case "redacted_thinking":
            return {"reasoningContent": {"redactedContent": block["data"]}}
        case _:
            return {"text": block["text"]}


def _build_usage(usage: _JsonObject) -> dict[str, int]:
    read = usage["cache_read_input_tokens"]
    cache_writes = usage["cache_creation_input_tokens"]
    input_tokens = usage["input_tokens"]
    output = usage["output_tokens"]
    return {
        "inputTokens": input_tokens,
        "outputTokens": output,
        "totalTokens": input_tokens + read + cache_writes + output,
        "cacheReadInputTokens": read,
        "cacheWriteInputTokens": cache_writes,
    }


def _build_events(events: Any) -> Iterator[_JsonObject]:
    """Convert a stream of the Messages API to a stream of Converse."""
    usage: dict[str, Any] = {}
    for event in events:
        index = event.get("index")
        match event["type"]:
            case "message_start":
                usage = dict(event["message"]["usage"])
                yield {"messageStart": {"role": "assistant"}}
            case "content_block_start":
                yield from _build_block_start(index, event["content_block"])
            case "content_block_delta":
                delta = _build_delta(event["delta"])
                yield {"contentBlockDelta": {"delta": delta, "contentBlockIndex": index}}
            case "content_block_stop":
                yield {"contentBlockStop": {"contentBlockIndex": index}}
            case "message_delta":
                usage |= event["usage"]
                yield {"messageStop": {"stopReason": event["delta"]["stop_reason"]}}
                metadata = {"usage": _build_usage(usage), "metrics": {"latencyMs": 1}}
                yield {"metadata": metadata}
            case "error":
                yield event
            case _:
                continue


def _build_block_start(index: Any, block: _JsonObject) -> Iterator[_JsonObject]:
    """Return the start of a block. Only a tool call has one."""
    if block["type"] == "tool_use":
        start = {"toolUse": {"toolUseId": block["id"], "name": block["name"]}}
        yield {"contentBlockStart": {"start": start, "contentBlockIndex": index}}
    elif block["type"] == "redacted_thinking":
        delta = {"reasoningContent": {"redactedContent": block["data"]}}
        yield {"contentBlockDelta": {"delta": delta, "contentBlockIndex": index}}


def _build_delta(delta: _JsonObject) -> dict[str, Any]:
    match delta["type"]:
        case "input_json_delta":
            return {"toolUse": {"input": delta["partial_json"]}}
        case "thinking_delta":
            return {"reasoningContent": {"text": delta["thinking"]}}
        case "signature_delta":
            return {"reasoningContent": {"signature": delta["signature"]}}
        case _:
            return {"text": delta["text"]}


def _frame_event(event: _JsonObject) -> bytes:
    if event.get("type") == "error":
        return frame_stream_error(event)
    [(name, value)] = event.items()
    return encode_event(name, dump_compact_json(value).encode("utf-8", "surrogatepass"))
