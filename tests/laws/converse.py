"""What the arguments of a Converse call say, read from them alone, and who takes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from tests.laws.wires import Piece, texts_of
from tests.simulators.clouds.base import CloudRequest
from tests.simulators.clouds.bedrock import BedrockInvoke
from tests.simulators.clouds.bedrock_converse import BedrockConverseCall
from tests.simulators.clouds.simulator import CloudSimulator
from trimtab.testing.server.options import ProviderSimulatorOptions

Wire = Mapping[str, Any]
NO_OUTPUT = "(no output)"
BESIDE_A_DOCUMENT = "(a document)"
OMITTED = re.compile(r"\[document \d+ omitted: only the newest 5 documents are sent\]")


def said_to_claude(request: Wire) -> Iterator[Piece]:
    """All that stands in the messages of the Messages API, thinking left out."""
    for message in request["messages"]:
        role = "user" if message["role"] == "system" else message["role"]
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            match block["type"]:
                case "text":
                    yield Piece(kind="text", role=role, text=block["text"])
                case "tool_use":
                    words = json.dumps(block["input"], ensure_ascii=False)
                    yield Piece(kind="call", role=role, text=words)
                case "tool_result":
                    yield Piece(kind="result", role=role, text=_result_text(block))
                case "image" | "document" as kind:
                    yield Piece(kind="media", role=role, id=kind)
                case kind:
                    assert kind in ("thinking", "redacted_thinking"), kind


def _result_text(block: Wire) -> str:
    text = texts_of(block.get("content")) or ("" if _has_media(block) else NO_OUTPUT)
    return f"(failed) {text}" if block.get("is_error") else text


def _has_media(block: Wire) -> bool:
    content = block.get("content")
    return isinstance(content, list) and any("source" in part for part in content)


def said_at_converse(asked: Wire) -> Iterator[Piece]:
    """The same, of the arguments of a Converse call; what it says besides is left out."""
    for message in asked["messages"]:
        for block in message["content"]:
            yield from _said(message["role"], block)


def _said(role: str, block: Wire) -> Iterator[Piece]:
    [(kind, value)] = block.items()
    match kind:
        case "text" if OMITTED.fullmatch(value):
            yield Piece(kind="media", role=role, id="document")
        case "text":
            if value != BESIDE_A_DOCUMENT:
                yield Piece(kind="text", role=role, text=value)
        case "toolUse":
            words = json.dumps(value["input"], ensure_ascii=False)
            yield Piece(kind="call", role=role, text=words)
        case "toolResult":
            text = texts_of([part for part in value["content"] if "text" in part])
            failure_mark = "(failed) " if value.get("status") == "error" else ""
            yield Piece(kind="result", role=role, text=failure_mark + OMITTED.sub("", text))
        case "image" | "document":
            yield Piece(kind="media", role=role, id=kind)
        case _:
            assert kind in ("reasoningContent", "cachePoint"), kind


@cache
def _aws() -> tuple[Any, Any, Any]:
    """boto3's own idea of a Converse call: its shape, what checks one, and what writes it."""
    import botocore.serialize
    import botocore.session
    import botocore.validate

    service = botocore.session.get_session().get_service_model("bedrock-runtime")
    return (
        service.operation_model("Converse"),
        botocore.validate.ParamValidator(),
        botocore.serialize.create_serializer("rest-json"),
    )


def written_by_boto3(asked: Wire) -> bytes:
    """The body that boto3 sends; fails if boto3 refuses the arguments."""
    operation, validator, serializer = _aws()
    report = validator.validate(asked, operation.input_shape)
    assert not report.has_errors(), report.generate_report()
    return serializer.serialize_to_request(asked, operation)["body"]


class StrictBedrock:
    """The simulator, asked without a socket. Of lengths it says nothing here."""

    def __init__(self) -> None:
        self._simulator = CloudSimulator(
            ProviderSimulatorOptions(
                window=1_000_000_000, tokenizer=len, signatures=False, thinks=False, keeps=False
            )
        )

    def refusal_at_converse(self, model: str, body: bytes) -> str:
        """Why it refuses a body; empty if it takes it."""
        return self._refusal(BedrockConverseCall(http=_post(body), model=model, streams=False))

    def refusal_at_invoke(self, model: str, body: bytes) -> str:
        return self._refusal(BedrockInvoke(http=_post(body), model=model, streams=False))

    def _refusal(self, call: Any) -> str:
        answer = self._simulator.handle_cloud_request(call)
        self._simulator.records.clear()
        return "" if answer.status == 200 else f"{answer.status}: {answer.body}"


def _post(body: bytes) -> CloudRequest:
    return CloudRequest(
        method="POST", raw_path="/", query="", headers={"authorization": "Bearer k"}, body=body
    )
