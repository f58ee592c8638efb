"""The rules of the Messages API beyond those of the dialect, and its errors for a full window."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trimtab.checking import find_output_limit_errors
from trimtab.dialects import get_dialect
from trimtab.dialects.anthropic.model_features import parse_claude_version
from trimtab.models.catalog import ModelInfo
from trimtab.testing.media_check import find_media_error
from trimtab.testing.pair_check import find_pairing_error
from trimtab.testing.request_counter import list_array_objects
from trimtab.testing.server.known_parameter_names import (
    ANTHROPIC_COUNT_PARAMETERS,
    ANTHROPIC_PARAMETERS,
)
from trimtab.testing.server.options import ProviderSimulatorOptions
from trimtab.testing.server.responses import make_anthropic_refusal as refused
from trimtab.testing.signatures import find_signature_fault

JsonObject = Mapping[str, Any]
THINKING_BLOCK_TYPES = ("thinking", "redacted_thinking")
_UNLIMITED_OUTPUT_TOKENS = 1 << 31
"""An output limit above any thinking budget, for requests that are only counted."""


def check_api_key(headers: Mapping[str, str], options: ProviderSimulatorOptions) -> str:
    """Return the API key if it is accepted."""
    bearer = headers.get("authorization", "").removeprefix("Bearer ").strip()
    key = headers.get("x-api-key") or bearer
    if not key:
        raise refused("x-api-key header is required", 401, cause="auth")
    if options.api_keys and key not in options.api_keys:
        raise refused("invalid x-api-key", 401, cause="auth")
    if not headers.get("anthropic-version"):
        raise refused("anthropic-version: header is required")
    return key


def validate_anthropic_request(
    request: JsonObject, options: ProviderSimulatorOptions, *, for_token_count: bool = False
) -> None:
    """Refuse a request that breaks a rule, in the order in which the API finds it."""
    names = ANTHROPIC_COUNT_PARAMETERS if for_token_count else ANTHROPIC_PARAMETERS
    for name in request:
        if name not in names:
            raise refused(f"{name}: Extra inputs are not permitted")
    if not isinstance(request.get("model"), str) or not request["model"]:
        raise refused("model: Field required")
    if not isinstance(request.get("messages"), list):
        raise refused("messages: Input should be a valid list")
    full_request = (
        {"max_tokens": _UNLIMITED_OUTPUT_TOKENS, **request} if for_token_count else request
    )
    for wrong in get_dialect("anthropic").find_request_errors(full_request):
        raise refused(wrong)
    if (wrong := find_pairing_error(request, "anthropic")) is not None:
        raise refused(f"messages: {wrong}")
    _examine_thinking(request, options)
    if (media := find_media_error(request, "anthropic")) is not None:
        raise refused(media.message)
    if options.forbidden and options.forbidden in json.dumps(request["messages"]):
        raise refused("Output blocked by content filtering policy")


def asks_for_thinking(request: JsonObject) -> bool:
    """Return whether the request asks for thinking."""
    config: JsonObject = request.get("thinking") or {}
    return config.get("type") in ("enabled", "adaptive")


def _examine_thinking(request: JsonObject, options: ProviderSimulatorOptions) -> None:
    if not options.signatures:
        return
    previous = ""
    for index, number, block in iterate_thinking_blocks(request):
        text, signature = read_thinking_and_signature(block)
        where = f"messages.{index}.content.{number}"
        match find_signature_fault(text, signature, previous):
            case "forged":
                kind = block["type"]
                field = "signature" if kind == "thinking" else "data"
                raise refused(f"{where}: Invalid `{field}` in `{kind}` block")
            # Rounds before this one may be gone, but what a message holds is one.
            case "cut" if number:
                raise refused(
                    f"{where}: `thinking` or `redacted_thinking` blocks in the latest assistant "
                    "message cannot be modified. These blocks must remain as they were in the "
                    "original response."
                )
            case _:
                previous = signature


def iterate_thinking_blocks(request: JsonObject) -> Iterator[tuple[int, int, JsonObject]]:
    """Yield thinking blocks with their positions."""
    for index, message in enumerate(list_array_objects(request.get("messages"))):
        if message.get("role") == "assistant":
            for number, block in enumerate(list_array_objects(message.get("content"))):
                if block.get("type") in THINKING_BLOCK_TYPES:
                    yield index, number, block


def read_thinking_and_signature(block: JsonObject) -> tuple[str, str]:
    """Return the text and the signature of a thinking block."""
    if block["type"] == "thinking":
        return str(block.get("thinking")), str(block.get("signature"))
    mark, _, signature = str(block.get("data")).partition(".")
    return mark, signature


def find_signature_to_chain_from(request: JsonObject) -> str:
    """Return the signature that the next thought follows: the last one of the open loop, or
    none."""
    messages = list_array_objects(request.get("messages"))
    if not messages or not list_array_objects(messages[-1].get("content")):
        return ""
    if any(
        block.get("type") != "tool_result" for block in list_array_objects(messages[-1]["content"])
    ):
        # A new word of the user ends the loop.
        return ""
    blocks = [block for _, _, block in iterate_thinking_blocks(request)]
    return read_thinking_and_signature(blocks[-1])[1] if blocks else ""


def compute_anthropic_limit_or_refuse(
    request: JsonObject, input_tokens: int, model_info: ModelInfo, options: ProviderSimulatorOptions
) -> int:
    """Return the maximum number of tokens for the reply, if the request fits."""
    window = model_info.context_window
    requested_output = int(request["max_tokens"])
    if input_tokens > model_info.input_limit:
        raise refused(
            f"prompt is too long: {input_tokens} tokens > {model_info.input_limit} maximum",
            cause="overflow",
        )
    for wrong in find_output_limit_errors(request):
        raise refused(wrong)
    if input_tokens + requested_output > window and not writes_until_window_full(
        request["model"], options
    ):
        raise refused(
            f"input length and `max_tokens` exceed context limit: {input_tokens} + "
            f"{requested_output} > {window}, "
            "decrease input length or `max_tokens` and try again",
            cause="overflow",
        )
    return min(requested_output, window - input_tokens)


def writes_until_window_full(model: str, options: ProviderSimulatorOptions) -> bool:
    """Return whether the model writes until its window is full."""
    if options.stops_at_window is not None:
        return options.stops_at_window
    version = parse_claude_version(model)
    return version is not None and version >= (4, 5)


def choose_cut_stop_reason(request: JsonObject, output_limit: int) -> str:
    """Return the stop reason of a reply that had no space left."""
    return (
        "max_tokens" if output_limit == request["max_tokens"] else "model_context_window_exceeded"
    )
