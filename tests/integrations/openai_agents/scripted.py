"""A model of the SDK that follows a script and keeps what it was given, object by object."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents import Model, ModelResponse, Usage
from agents.models._response_terminal import response_terminal_failure_error
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseCreatedEvent,
    ResponseErrorEvent,
    ResponseFailedEvent,
    ResponseFunctionToolCall,
    ResponseIncompleteEvent,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseOutputText,
)
from openai.types.responses.response import IncompleteDetails
from openai.types.responses.response_error import ResponseError

TOO_LONG = "Your input exceeds the context window of this model. Please adjust your input."


class TooLong(Exception):
    """As OpenAI's SDK raises it."""

    status_code = 400

    def __init__(self) -> None:
        self.body = {"code": "context_length_exceeded", "message": TOO_LONG}
        super().__init__(TOO_LONG)


def say(text: str, name: str = "msg_1") -> ResponseOutputMessage:
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(
        id=name, type="message", role="assistant", status="completed", content=[part]
    )


def call_tool(name: str, arguments: str, call_id: str) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        type="function_call", name=name, arguments=arguments, call_id=call_id, id=f"fc_{call_id}"
    )


@dataclass
class ScriptedModel(Model):
    """Each step is a list of items, an exception, or the name of an event that ends a stream."""

    steps: list[Any] = field(default_factory=list)
    model: str = "gpt-4o"
    inputs: list[Any] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)

    def _take(self, names: Sequence[str], values: Sequence[Any], more: dict[str, Any]) -> Any:
        request = dict(zip(names, values, strict=False)) | more
        self.requests.append(request)
        self.inputs.append(request["input"])
        step = self.steps.pop(0) if self.steps else [say("Done.")]
        if isinstance(step, Exception):
            raise step
        return step

    async def get_response(self, *values: Any, **more: Any) -> ModelResponse:
        step = self._take(ARGUMENTS, values, more)
        if step == "incomplete":
            raise response_terminal_failure_error("response.incomplete", build_cut_response())
        return ModelResponse(output=step, usage=Usage(), response_id=None)

    async def stream_response(self, *values: Any, **more: Any) -> AsyncIterator[Any]:
        step = self._take(ARGUMENTS, values, more)
        yield ResponseCreatedEvent(
            type="response.created", sequence_number=0, response=build_response([])
        )
        if step == "failed":
            error = ResponseError.model_construct(code="context_length_exceeded", message=TOO_LONG)
            failed = build_response([]).model_copy(update={"status": "failed", "error": error})
            yield ResponseFailedEvent(type="response.failed", sequence_number=1, response=failed)
            return
        if step == "error":
            yield ResponseErrorEvent(
                type="error", sequence_number=1, code="context_length_exceeded", message=TOO_LONG
            )
            return
        if step == "incomplete":
            yield ResponseIncompleteEvent(
                type="response.incomplete", sequence_number=1, response=build_cut_response()
            )
            return
        for index, item in enumerate(step):
            if isinstance(item, Exception):
                raise item
            yield ResponseOutputItemDoneEvent(
                type="response.output_item.done", sequence_number=1, output_index=index, item=item
            )
        yield ResponseCompletedEvent(
            type="response.completed", sequence_number=2, response=build_response(step)
        )


ARGUMENTS = (
    "system_instructions",
    "input",
    "model_settings",
    "tools",
    "output_schema",
    "handoffs",
    "tracing",
)


def build_response(output: list[Any]) -> Response:
    return Response(
        id="resp_1",
        created_at=0,
        model="gpt-4o",
        object="response",
        output=output,
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        status="completed",
    )


def build_cut_response() -> Response:
    """A reply that ended because the window was full, as LM Studio tells it."""
    details = IncompleteDetails.model_construct(reason="context_length_exceeded")
    update = {"status": "incomplete", "incomplete_details": details}
    return build_response([]).model_copy(update=update)
