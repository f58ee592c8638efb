"""The known parameters of a request's body, by API."""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ANTHROPIC_PARAMETERS = _names(
    """model messages max_tokens system tools tool_choice thinking stream stop_sequences metadata
    temperature top_p top_k service_tier container cache_control context_management mcp_servers
    output_config output_format inference_geo speed diagnostics user_profile_id
    workspace_id"""
)
ANTHROPIC_COUNT_PARAMETERS = _names(
    """model messages system tools tool_choice thinking cache_control compaction context_management
    mcp_servers output_config output_format speed user_profile_id workspace_id"""
)
CHAT_PARAMETERS = _names(
    """model messages tools tool_choice parallel_tool_calls functions function_call max_tokens
    max_completion_tokens stream stream_options temperature top_p top_logprobs logprobs n stop seed
    frequency_penalty presence_penalty logit_bias response_format modalities audio prediction
    metadata store user safety_identifier service_tier reasoning_effort verbosity moderation
    prompt_cache_key prompt_cache_options prompt_cache_retention web_search_options"""
)
RESPONSES_PARAMETERS = _names(
    """model input instructions tools tool_choice parallel_tool_calls max_output_tokens
    max_tool_calls stream stream_options temperature top_p top_logprobs text truncation reasoning
    include store previous_response_id conversation background metadata user safety_identifier
    service_tier prompt prompt_cache_key prompt_cache_options prompt_cache_retention
    context_management access_programs image moderation client_metadata"""
)
RESPONSES_COUNT_PARAMETERS = _names(
    """model input instructions tools tool_choice parallel_tool_calls personality reasoning text
    truncation previous_response_id conversation"""
)
