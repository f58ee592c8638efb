"""Providers: send a dialect's requests through an official SDK, and classify the errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.lazy_names import export_on_demand

if TYPE_CHECKING:
    from trimtab.providers.anthropic import AnthropicProvider as AnthropicProvider
    from trimtab.providers.azure import AzureOpenAIProvider as AzureOpenAIProvider
    from trimtab.providers.azure import AzureResponsesProvider as AzureResponsesProvider
    from trimtab.providers.base import Provider as Provider
    from trimtab.providers.bedrock import AwsCredentials as AwsCredentials
    from trimtab.providers.bedrock import BedrockClaudeProvider as BedrockClaudeProvider
    from trimtab.providers.bedrock_converse import (
        BedrockConverseProvider as BedrockConverseProvider,
    )
    from trimtab.providers.circuit_breaker import CircuitBreaker as CircuitBreaker
    from trimtab.providers.circuit_breaker import CircuitBreakers as CircuitBreakers
    from trimtab.providers.error_parser import parse_error_response as parse_error_response
    from trimtab.providers.factory import create_provider as create_provider
    from trimtab.providers.openai import OpenAIChatProvider as OpenAIChatProvider
    from trimtab.providers.openai import OpenAIResponsesProvider as OpenAIResponsesProvider
    from trimtab.providers.retries import OnRetryWait as OnRetryWait
    from trimtab.providers.retries import with_retries as with_retries
    from trimtab.providers.vertex import VertexClaudeProvider as VertexClaudeProvider

_HOMES = {
    "AwsCredentials": "providers.bedrock",
    "CircuitBreaker": "providers.circuit_breaker",
    "CircuitBreakers": "providers.circuit_breaker",
    "OnRetryWait": "providers.retries",
    "AnthropicProvider": "providers.anthropic",
    "AzureOpenAIProvider": "providers.azure",
    "AzureResponsesProvider": "providers.azure",
    "BedrockClaudeProvider": "providers.bedrock",
    "BedrockConverseProvider": "providers.bedrock_converse",
    "OpenAIChatProvider": "providers.openai",
    "OpenAIResponsesProvider": "providers.openai",
    "Provider": "providers.base",
    "VertexClaudeProvider": "providers.vertex",
    "create_provider": "providers.factory",
    "parse_error_response": "providers.error_parser",
    "with_retries": "providers.retries",
}

__all__, __getattr__ = export_on_demand(__name__, _HOMES)
