"""Errors of real providers: the same texts, statuses and bodies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from trimtab.errors import FailureKind
from trimtab.testing.server.responses import build_anthropic_error_body, build_openai_error_body

_MAX_CONTEXT_TEXT = (
    "This model's maximum context length is {limit} tokens. However, you requested {total} tokens "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderErrorTemplate:
    """An error to return. Its text may contain {limit}, {input}, {requested}, {total}."""

    kind: FailureKind
    """The kind of failure."""
    status: int = 400
    """The status of the HTTP response."""
    message: str = ""
    """The provider's message."""
    type: str | None = None
    """The error's type, if it is not the usual one for the status."""
    code: str | int | None = None
    """The error's code, in OpenAI's form."""
    body: Mapping[str, Any] | str | None = None
    """A body in an unusual form. A text is sent unchanged."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Additional headers."""

    def build_body(self, dialect: str, numbers: Mapping[str, int]) -> dict[str, Any] | str:
        """Return the body that an endpoint of a dialect sends."""
        if isinstance(self.body, str):
            return _fill_numbers(self.body, numbers)
        if self.body is not None:
            return _fill_numbers(dict(self.body), numbers)
        message = _fill_numbers(self.message, numbers)
        if dialect == "anthropic":
            return build_anthropic_error_body(self.status, message, self.type)
        return build_openai_error_body(self.status, message, error_type=self.type, code=self.code)


def _fill_numbers(value: Any, numbers: Mapping[str, int]) -> Any:
    if isinstance(value, str):
        name = value.removeprefix("{").removesuffix("}")
        if value == f"{{{name}}}" and name in numbers:
            # Alone it is a number in the JSON, too.
            return numbers[name]
        for name, number in numbers.items():
            value = value.replace(f"{{{name}}}", str(number))
        return value
    if isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        return {key: _fill_numbers(inner, numbers) for key, inner in mapping.items()}
    return value


def _overflow_fault(message: str, status: int = 400, **rest: Any) -> ProviderErrorTemplate:
    return ProviderErrorTemplate(kind="overflow", status=status, message=message, **rest)


OVERFLOW_FAULTS: Mapping[str, ProviderErrorTemplate] = {
    "anthropic": _overflow_fault("prompt is too long: {input} tokens > {limit} maximum"),
    "anthropic_sum": _overflow_fault(
        "input length and `max_tokens` exceed context limit: {input} + {requested} > {limit}, "
        "decrease input length or `max_tokens` and try again"
    ),
    "anthropic_413": _overflow_fault(
        "Request exceeds the maximum size", 413, type="request_too_large"
    ),
    "openai_chat": _overflow_fault(
        _MAX_CONTEXT_TEXT
        + "({input} in the messages, {requested} in the completion). Please reduce the "
        "length of the messages or completion.",
        code="context_length_exceeded",
    ),
    "openai_functions": _overflow_fault(
        _MAX_CONTEXT_TEXT
        + "({messages} in the messages, {functions} in the functions, and {requested} in "
        "the completion). Please reduce the length of the messages, functions, or completion.",
        code="context_length_exceeded",
    ),
    "openai_responses": _overflow_fault(
        "Your input exceeds the context window of this model. Please adjust your input and try "
        "again.",
        code="context_length_exceeded",
    ),
    "azure": _overflow_fault(
        "Input tokens exceed the configured limit of {limit} tokens. Your messages resulted in "
        "{input} tokens. Please reduce the length of the messages.",
        code="context_length_exceeded",
    ),
    "gemini": _overflow_fault(
        "The input token count ({input}) exceeds the maximum number of tokens allowed ({limit}).",
        code=400,
        type="INVALID_ARGUMENT",
    ),
    "vertex": _overflow_fault(
        "The input token count is {input} but model only supports up to {limit}.",
        code=400,
        type="INVALID_ARGUMENT",
    ),
    "bedrock": _overflow_fault(
        "Input is too long for requested model.", type="ValidationException"
    ),
    "bedrock_exceeds": _overflow_fault(
        "The input exceeds the maximum number of input tokens", type="ValidationException"
    ),
    "openrouter": _overflow_fault(
        "This endpoint's maximum context length is {limit} tokens. However, you requested about "
        "{total} tokens ({input} of text input, {requested} in the output). Please reduce the "
        "length of either one.",
        code=400,
    ),
    "openrouter_nested": _overflow_fault(
        "",
        body={
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {
                    "provider_name": "Anthropic",
                    "raw": json.dumps(
                        {
                            "type": "error",
                            "error": {
                                "type": "invalid_request_error",
                                "message": "prompt is too long: {input} tokens > {limit} maximum",
                            },
                        }
                    ),
                },
            }
        },
    ),
    "xai": _overflow_fault(
        "This model's maximum prompt length is {limit} but the request contains {input} tokens."
    ),
    "groq": _overflow_fault(
        "Please reduce the length of the messages or completion.", code="context_length_exceeded"
    ),
    "deepseek": _overflow_fault(
        _MAX_CONTEXT_TEXT
        + "({input} in the messages, {requested} in the completion). Please reduce the "
        "length of the messages or completion.",
        code="invalid_request_error",
    ),
    "mistral": _overflow_fault(
        "Prompt contains {input} tokens and 0 draft tokens, too large for model with {limit} "
        "maximum context length",
        code="3051",
    ),
    "vllm": _overflow_fault(
        _MAX_CONTEXT_TEXT
        + "({input} in the messages, {requested} in the completion). Please reduce the "
        "length of the messages or completion.",
        type="BadRequestError",
        code=400,
    ),
    "vllm_newer": _overflow_fault(
        "This model's maximum context length is {limit} tokens. However, your request has {input} "
        "input tokens plus {requested} 'max_tokens'. Please reduce the length of the input "
        "messages.",
        type="BadRequestError",
        code=400,
    ),
    "vllm_wrong_limit": _overflow_fault(
        "This model's maximum context length is 3 tokens. However, you requested {total} tokens "
        "({input} in the messages, {requested} in the completion).",
        type="BadRequestError",
        code=400,
    ),
    "llama_cpp": _overflow_fault(
        "",
        body={
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size, try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": "{input}",
                "n_ctx": "{limit}",
            }
        },
    ),
    "llama_cpp_python": _overflow_fault(
        "Requested tokens ({total}) exceed context window of {limit}"
    ),
    "lm_studio": _overflow_fault(
        "The number of tokens to keep from the initial prompt is greater than the context length."
    ),
    "ollama": _overflow_fault("prompt too long; exceeded max context length by 100 tokens"),
    "tgi": _overflow_fault(
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= {limit}. Given: "
        "{input} `inputs` tokens and {requested} `max_new_tokens`",
        422,
    ),
    "copilot": _overflow_fault(
        "prompt token count of {input} exceeds the limit of {limit}",
        code="model_max_prompt_tokens_exceeded",
    ),
    "minimax": _overflow_fault("invalid params, context window exceeds limit"),
    "kimi": _overflow_fault(
        "Invalid request: Your request exceeded model token limit: {limit} (requested: {total})"
    ),
    "qwen": _overflow_fault(
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, {limit}]",
        code="invalid_parameter_error",
    ),
    "zai": _overflow_fault("Prompt exceeds max length", code="1261"),
    "cohere": _overflow_fault(
        "too many tokens: total number of tokens in the prompt cannot exceed {limit} - received "
        "{input}. Try using a shorter prompt, or enabling prompt truncating."
    ),
    "cerebras": _overflow_fault(
        "Please reduce the length of the messages or completion. Current length is {input} while "
        "limit is {limit}",
        code="context_length_exceeded",
    ),
    "cerebras_400": _overflow_fault("", 400, body=""),
    "cerebras_413": _overflow_fault("", 413, body=""),
}
"""Errors for a request that is too long, in each provider's words."""

OTHER_FAULTS: Mapping[str, ProviderErrorTemplate] = {
    "rate_limit": ProviderErrorTemplate(
        kind="rate_limit",
        status=429,
        message="Rate limit reached on tokens per min (TPM): Limit 30000, Used 29000, Requested "
        "{total}. Please try again in 1s.",
        code="rate_limit_exceeded",
        headers={"retry-after": "1"},
    ),
    "rate_limit_long": ProviderErrorTemplate(
        kind="rate_limit",
        status=429,
        message="This request would exceed your organization's rate limit of 40,000 input tokens "
        "per minute. Please reduce the prompt length or the maximum tokens requested.",
        headers={"retry-after": "30"},
    ),
    "too_many_requests": ProviderErrorTemplate(
        kind="rate_limit", status=429, message="Too many requests"
    ),
    "overloaded": ProviderErrorTemplate(kind="overloaded", status=529, message="Overloaded"),
    "unavailable": ProviderErrorTemplate(
        kind="overloaded",
        status=503,
        message="The engine is currently overloaded, please try again later",
    ),
    "server_error": ProviderErrorTemplate(
        kind="server", status=500, message="Internal server error"
    ),
    "bad_gateway": ProviderErrorTemplate(
        kind="server", status=502, body="<html>502 Bad Gateway</html>"
    ),
    "deadline": ProviderErrorTemplate(
        kind="timeout", status=504, message="context deadline exceeded"
    ),
    "timed_out": ProviderErrorTemplate(kind="timeout", status=408, message="The request timed out"),
    "auth_token": ProviderErrorTemplate(
        kind="auth",
        status=401,
        message="Invalid token: the access token exceeds its maximum lifetime",
        code="invalid_api_key",
    ),
    "forbidden": ProviderErrorTemplate(
        kind="auth", status=403, message="Your token does not have access to this model"
    ),
    "unsupported_max_tokens": ProviderErrorTemplate(
        kind="refused",
        message="Unsupported parameter: 'max_tokens' is not supported with this model. Use "
        "'max_completion_tokens' instead.",
        code="unsupported_parameter",
    ),
    "string_above_max_length": ProviderErrorTemplate(
        kind="rejected",
        message="Invalid 'messages[0].content': string too long. Expected a string with maximum "
        "length 10485760, but got a string with length 12000000 instead.",
        code="string_above_max_length",
    ),
    "could_not_process": ProviderErrorTemplate(
        kind="rejected", message="Could not process image", code="image_parse_error"
    ),
    "content_policy": ProviderErrorTemplate(
        kind="rejected",
        message="Invalid prompt: your prompt was flagged as potentially violating our usage "
        "policy. Please try again with a different prompt",
        code="invalid_prompt",
    ),
    "credit_balance": ProviderErrorTemplate(
        kind="refused",
        message="Your credit balance is too low to access the Anthropic API. Please go to Plans & "
        "Billing to upgrade or purchase credits.",
    ),
    "payment": ProviderErrorTemplate(kind="refused", status=402, message="Insufficient Balance"),
    "image_too_large": ProviderErrorTemplate(
        kind="rejected",
        message="messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6291456 "
        "bytes > 5242880 bytes",
    ),
    "not_found": ProviderErrorTemplate(kind="refused", status=404, message="model: no-such-model"),
    "calls_without_results": ProviderErrorTemplate(
        kind="malformed",
        message="messages.2: `tool_use` ids were found without `tool_result` blocks immediately "
        "after: toolu_1. Each `tool_use` block must have a corresponding `tool_result` block in "
        "the next message.",
    ),
    "tool_calls_without_messages": ProviderErrorTemplate(
        kind="malformed",
        message="An assistant message with 'tool_calls' must be followed by tool messages "
        "responding to each 'tool_call_id'. The following tool_call_ids did not have response "
        "messages: call_1",
    ),
    "results_without_calls": ProviderErrorTemplate(
        kind="malformed",
        message="messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: "
        "toolu_1. Each `tool_result` block must have a corresponding `tool_use` block in the "
        "previous message.",
    ),
}
"""Errors that are not an overflow, although some contain similar words."""

PROVIDER_FAULTS: Mapping[str, ProviderErrorTemplate] = {**OVERFLOW_FAULTS, **OTHER_FAULTS}
"""Every fault that a script can name."""
