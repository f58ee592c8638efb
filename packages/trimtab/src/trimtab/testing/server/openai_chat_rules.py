"""The rules of Chat Completions beyond the dialect's, and its errors for a full window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from trimtab.checking import find_output_limit_errors
from trimtab.dialects import get_dialect
from trimtab.models.catalog import ModelInfo
from trimtab.testing.pair_check import find_pairing_error
from trimtab.testing.request_counter import RequestBlock, RequestCounter, list_array_objects
from trimtab.testing.server.known_parameter_names import CHAT_PARAMETERS
from trimtab.testing.server.openai_rules import (
    check_cache_breakpoints,
    check_json_object_list,
    reject_bad_media_or_forbidden_text,
    reject_unknown_parameters,
    sum_tool_definition_tokens,
)
from trimtab.testing.server.options import ProviderSimulatorOptions
from trimtab.testing.server.responses import make_openai_refusal as refused

JsonObject = Mapping[str, Any]
_CONTENT_PART_TYPES = ("text", "image_url", "input_audio", "file")


def validate_chat_request(request: JsonObject, options: ProviderSimulatorOptions) -> None:
    reject_unknown_parameters(request, CHAT_PARAMETERS)
    check_json_object_list(request, "messages")
    for wrong in get_dialect("openai_chat").find_request_errors(request):
        raise refused(wrong, param="messages")
    if (wrong := find_pairing_error(request, "openai_chat")) is not None:
        raise refused(f"Invalid parameter: {wrong}", param="messages")
    check_cache_breakpoints(request, "messages", "content", _CONTENT_PART_TYPES)
    reject_bad_media_or_forbidden_text(request, "openai_chat", options)
    if options.template == "strict":
        _examine_template(list_array_objects(request["messages"]))


def _examine_template(messages: Sequence[JsonObject]) -> None:
    """Check the rules that the chat templates of open models enforce."""
    roles = [str(message.get("role")) for message in messages]
    if roles[0] in ("system", "developer"):
        roles = roles[1:]
    if any(role in ("system", "developer") for role in roles):
        raise refused("System message must be at the beginning.")
    spoken = [role for role in roles if role in ("user", "assistant")]
    if spoken[:1] != ["user"]:
        raise refused("Conversation roles must alternate user/assistant/user/assistant/...")
    for one, next_one in pairwise(roles):
        if one == next_one != "tool":
            raise refused("Conversation roles must alternate user/assistant/user/assistant/...")


def compute_chat_limit_or_refuse(
    request: JsonObject,
    input_tokens: int,
    blocks: Sequence[RequestBlock],
    counter: RequestCounter,
    model_info: ModelInfo,
) -> int:
    """Return the maximum number of tokens for the reply, if the request fits."""
    name = "max_completion_tokens" if "max_completion_tokens" in request else "max_tokens"
    requested_output = request.get(name)
    for wrong in find_output_limit_errors(request):
        raise refused(wrong, param=name, code="invalid_value")
    window = model_info.context_window
    functions = sum_tool_definition_tokens(blocks, counter)
    if requested_output is not None and input_tokens + requested_output > window:
        inside = f"{input_tokens - functions} in the messages, "
        inside += f"{functions} in the functions, and " if functions else ""
        shorter = "messages, functions, or completion" if functions else "messages or completion"
        raise _overflow(
            f"This model's maximum context length is {window} tokens. However, you requested "
            f"{input_tokens + requested_output} tokens ({inside}{requested_output} in the "
            f"completion). Please reduce the length of the {shorter}."
        )
    if input_tokens > window:
        raise _overflow(
            f"This model's maximum context length is {window} tokens. However, your messages "
            f"resulted in {input_tokens} tokens. Please reduce the length of the messages."
        )
    if input_tokens > model_info.input_limit:
        raise _overflow(
            f"Input tokens exceed the configured limit of {model_info.input_limit} tokens. Your "
            f"messages resulted in {input_tokens} tokens. Please reduce the length of the messages."
        )
    return min(requested_output or model_info.max_output, window - input_tokens)


def _overflow(message: str) -> Exception:
    return refused(message, param="messages", code="context_length_exceeded", cause="overflow")
