"""Request parameters that only some APIs have.

They may still be set after a change of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ANTHROPIC_ONLY = (
    *("betas", "container", "diagnostics", "inference_geo", "mcp_servers", "output_config"),
    *("output_format", "speed", "stop_sequences", "thinking", "top_k"),
)
_CHAT_ONLY = (
    *("audio", "frequency_penalty", "logit_bias", "logprobs", "max_completion_tokens"),
    *("modalities", "n", "prediction", "presence_penalty", "reasoning_effort"),
    *("response_format", "seed", "stop", "stream_options", "verbosity", "web_search_options"),
)
_RESPONSES_ONLY = (
    *("background", "include", "max_output_tokens", "max_tool_calls", "reasoning", "text"),
    *("truncation",),
)
_OPENAI_ONLY = (
    *("parallel_tool_calls", "prompt_cache_key", "prompt_cache_options"),
    *("prompt_cache_retention", "safety_identifier", "store", "top_logprobs", "user"),
)
FOREIGN_PARAMETERS: Mapping[str, frozenset[str]] = {
    "anthropic": frozenset((*_CHAT_ONLY, *_RESPONSES_ONLY, *_OPENAI_ONLY)),
    "openai_chat": frozenset(
        (*_ANTHROPIC_ONLY, *_RESPONSES_ONLY, "cache_control", "context_management")
    ),
    "openai_responses": frozenset((*_ANTHROPIC_ONLY, *_CHAT_ONLY, "cache_control")),
}
"""By dialect: parameters of the others that it rejects."""


def drop_foreign_parameters(dialect: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters without those that only other APIs have."""
    foreign = find_foreign_parameters(dialect, params)
    return {key: value for key, value in params.items() if key not in foreign}


def find_foreign_parameters(dialect: str, params: Mapping[str, Any]) -> list[str]:
    """Return the names of parameters that only other APIs have."""
    names = [key for key in params if key in FOREIGN_PARAMETERS[dialect]]
    management = params.get("context_management")
    # Anthropic's is an object, that of Responses a list.
    if management is not None and isinstance(management, Mapping) is not (dialect == "anthropic"):
        names.append("context_management")
    return list(dict.fromkeys(names))
