"""The rules of both of OpenAI's APIs beyond those of the dialects."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from trimtab.testing.media_check import find_media_error
from trimtab.testing.request_counter import RequestBlock, RequestCounter, list_array_objects
from trimtab.testing.server.options import ProviderSimulatorOptions
from trimtab.testing.server.responses import make_openai_refusal as refused

JsonObject = Mapping[str, Any]
_GPT_VERSION = re.compile(r"gpt-(\d+)(?:\.(\d+))?")
_REASONING_MODEL = re.compile(r"^(?:o\d|gpt-[5-9](?!.*chat))")


def check_api_key(headers: Mapping[str, str], options: ProviderSimulatorOptions) -> str:
    """Return the API key if it is accepted."""
    key = headers.get("authorization", "").removeprefix("Bearer ").strip()
    if not key:
        raise refused(
            "You didn't provide an API key. You need to provide your API key in an Authorization "
            "header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
            401,
            cause="auth",
        )
    if options.api_keys and key not in options.api_keys:
        raise refused(
            f"Incorrect API key provided: {key[:3]}***. You can find your API key at "
            "https://platform.openai.com/account/api-keys.",
            401,
            code="invalid_api_key",
            cause="auth",
        )
    return key


def reject_unknown_parameters(request: JsonObject, known_names: frozenset[str]) -> None:
    """Refuse parameters that the API does not know."""
    for name in request:
        if name not in known_names:
            raise refused(f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
    if not isinstance(request.get("model"), str) or not request["model"]:
        raise refused("you must provide a model parameter")


def check_json_object_list(request: JsonObject, key: str) -> None:
    """Refuse anything except a list of objects."""
    json_list = request.get(key)
    if not isinstance(json_list, list):
        raise refused(
            f"Invalid type for '{key}': expected an array of objects.",
            param=key,
            code="invalid_type",
        )
    for index, each in enumerate(cast("list[Any]", json_list)):
        if not isinstance(each, dict):
            name = f"{key}[{index}]"
            raise refused(
                f"Invalid type for '{name}': expected an object.", param=name, code="invalid_type"
            )


def reject_bad_media_or_forbidden_text(
    request: JsonObject, dialect: str, options: ProviderSimulatorOptions
) -> None:
    """Refuse images and documents that cannot be read, and forbidden text."""
    if (media := find_media_error(request, dialect)) is not None:
        raise refused(media.message, param=media.param, code=media.code)
    messages = request.get("messages", request.get("input"))
    if options.forbidden and options.forbidden in json.dumps(messages):
        raise refused(
            "Invalid prompt: your prompt was flagged as potentially violating our usage policy. "
            "Please try again with a different prompt",
            code="invalid_prompt",
        )


def is_openai_reasoning_model(model: str) -> bool:
    """Return whether the model reasons before it answers."""
    return _REASONING_MODEL.match(model) is not None


def supports_cache_breakpoints(model: str) -> bool:
    """Return whether the model knows the field, as GPT-5.6 and later do."""
    match = _GPT_VERSION.match(model)
    return match is not None and (int(match[1]), int(match[2] or 0)) >= (5, 6)


def check_cache_breakpoints(
    request: JsonObject, key: str, content_key: str, part_types: Sequence[str]
) -> None:
    """Allow breakpoints only on content parts, and only if the model knows them."""
    for index, holder in enumerate(list_array_objects(request.get(key))):
        if "prompt_cache_breakpoint" in holder:
            name = f"{key}[{index}].prompt_cache_breakpoint"
            raise refused(f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
        inner = "output" if "output" in holder else content_key
        for number, part in enumerate(list_array_objects(holder.get(inner))):
            if "prompt_cache_breakpoint" not in part:
                continue
            name = f"{key}[{index}].{inner}[{number}].prompt_cache_breakpoint"
            if part.get("type") not in part_types or not supports_cache_breakpoints(
                request["model"]
            ):
                raise refused(f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
            breakpoint_json: JsonObject = part["prompt_cache_breakpoint"] or {}
            if breakpoint_json.get("mode") != "explicit":
                raise refused(
                    f"Invalid value for '{name}.mode': expected 'explicit'.",
                    param=name,
                    code="invalid_value",
                )


def sum_tool_definition_tokens(blocks: Sequence[RequestBlock], counter: RequestCounter) -> int:
    """Return the number of tokens of the tools' definitions."""
    return counter.scale_tokens(sum(piece.tokens for piece in blocks if piece.section == "tools"))
