"""Which provider serves a model: by the provider's name, otherwise by the model's, and the
environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from trimtab.dialects import DIALECT_NAMES
from trimtab.errors import MissingApiKeyError, MissingBaseUrlError
from trimtab.models.catalog import ModelInfo, resolve_model_info
from trimtab.providers.base import Provider

ProviderName = Literal[
    "anthropic",
    "openai",
    "openai_responses",
    "ollama",
    "openrouter",
    "deepseek",
    "gemini",
    "groq",
    "mistral",
    "xai",
    "vllm",
    "llama.cpp",
    "bedrock",
    "azure",
    "azure_responses",
    "vertex",
]
CLOUD_NAMES: tuple[ProviderName, ...] = ("bedrock", "azure", "azure_responses", "vertex")
"""Clouds that serve the models of other makers, under their own names and with their own
credentials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEndpoint:
    """A server of models."""

    dialect: str = "openai_chat"
    """The dialect of its API."""
    key_variable: str | None = None
    """The environment variable with its key; None if it needs no key."""
    base_url: str | None = None
    """Its address; None for the default of the SDK."""
    url_variable: str | None = None
    """The environment variable that may name another address."""
    example_url: str | None = None
    """A usual address, for servers that everybody runs at their own address."""
    model_prefixes: tuple[str, ...] = ()
    """How the names of its own models begin."""
    aliases: tuple[str, ...] = ()
    """Its other names."""
    credentials: str | None = None
    """The place of credentials that are more than a single key."""
    own_extra: str | None = None
    """The extra with its packages, if it needs more than the SDK of its dialect."""

    @property
    def extra(self) -> str:
        """The extra that installs what it needs."""
        return self.own_extra or ("anthropic" if self.dialect == "anthropic" else "openai")

    @property
    def key_source(self) -> str | None:
        """The place of its key or credentials; None if it needs none."""
        return self.key_variable or self.credentials


_OPENAI_VARIABLES = ("OPENAI_API_KEY", "OPENAI_BASE_URL")
ENDPOINT_BY_PROVIDER: dict[ProviderName, ProviderEndpoint] = {
    "anthropic": ProviderEndpoint(
        dialect="anthropic",
        key_variable="ANTHROPIC_API_KEY",
        url_variable="ANTHROPIC_BASE_URL",
        model_prefixes=("claude",),
    ),
    "openai": ProviderEndpoint(
        key_variable=_OPENAI_VARIABLES[0],
        url_variable=_OPENAI_VARIABLES[1],
        model_prefixes=("gpt",),
        aliases=("chatgpt",),
    ),
    "openai_responses": ProviderEndpoint(
        dialect="openai_responses",
        key_variable=_OPENAI_VARIABLES[0],
        url_variable=_OPENAI_VARIABLES[1],
        aliases=("responses",),
    ),
    "ollama": ProviderEndpoint(base_url="http://localhost:11434/v1"),
    "openrouter": ProviderEndpoint(
        key_variable="OPENROUTER_API_KEY", base_url="https://openrouter.ai/api/v1"
    ),
    "deepseek": ProviderEndpoint(
        key_variable="DEEPSEEK_API_KEY",
        base_url="https://api.deepseek.com",
        model_prefixes=("deepseek",),
    ),
    "gemini": ProviderEndpoint(
        key_variable="GEMINI_API_KEY",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai/",
        model_prefixes=("gemini",),
        aliases=("google",),
    ),
    "groq": ProviderEndpoint(
        key_variable="GROQ_API_KEY", base_url="https://api.groq.com/openai/v1"
    ),
    "mistral": ProviderEndpoint(
        key_variable="MISTRAL_API_KEY",
        base_url="https://api.mistral.ai/v1",
        model_prefixes=("mistral",),
    ),
    "xai": ProviderEndpoint(
        key_variable="XAI_API_KEY",
        base_url="https://api.x.ai/v1",
        model_prefixes=("grok",),
        aliases=("x.ai",),
    ),
    "vllm": ProviderEndpoint(
        key_variable=_OPENAI_VARIABLES[0],
        url_variable=_OPENAI_VARIABLES[1],
        example_url="http://localhost:8000/v1",
    ),
    "llama.cpp": ProviderEndpoint(
        key_variable=_OPENAI_VARIABLES[0],
        url_variable=_OPENAI_VARIABLES[1],
        example_url="http://localhost:8080/v1",
        aliases=("llamacpp", "llama_cpp", "llama"),
    ),
    "bedrock": ProviderEndpoint(
        dialect="anthropic",
        url_variable="AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
        aliases=("aws", "amazon", "amazon_bedrock"),
        credentials="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE, or "
        "AWS_BEARER_TOKEN_BEDROCK)",
        own_extra="bedrock",
    ),
    "azure": ProviderEndpoint(
        key_variable="AZURE_OPENAI_API_KEY",
        url_variable="AZURE_OPENAI_ENDPOINT",
        example_url="https://my-resource.openai.azure.com",
        aliases=("azure_openai", "azureopenai"),
    ),
    "azure_responses": ProviderEndpoint(
        dialect="openai_responses",
        key_variable="AZURE_OPENAI_API_KEY",
        url_variable="AZURE_OPENAI_ENDPOINT",
        example_url="https://my-resource.openai.azure.com",
    ),
    "vertex": ProviderEndpoint(
        dialect="anthropic",
        aliases=("vertexai", "vertex_ai", "google_vertex"),
        credentials="GOOGLE_APPLICATION_CREDENTIALS (or `gcloud auth application-default login`)",
        own_extra="vertex",
    ),
}
"""By name. A key is sent only to its own provider."""

_HEADER_VARIABLE_BY_SDK = {
    "anthropic": "ANTHROPIC_CUSTOM_HEADERS",
    "openai": "OPENAI_CUSTOM_HEADERS",
}
"""By SDK: the variable with headers for all requests. The SDKs read only `os.environ`."""
_PLACEHOLDER_KEY = "unused"
"""The SDKs require a key, but servers on one's own machine do not."""


def create_provider(
    model: str,
    *,
    provider: str | None = None,
    dialect: str | None = None,
    model_info: Mapping[str, Any] | str | None = None,
    api_key: str | None = None,
    base_url: str | None = None,
    timeout: float = 600.0,
    region: str | None = None,
    project: str | None = None,
    api_version: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Provider:
    """Create the provider that serves a model.

    Args:
        model: The model's name as the provider knows it.
        provider: The provider's name. By default the maker of the model, or the server at
            `base_url`.
        dialect: The wire format. By default the provider's, otherwise the catalog's. A model of
            unknown dialect at your own server is called through Chat Completions.
        model_info: As in `Context`. For a deployment it says which model it is.
        api_key: The key. By default it is read from the variable that the provider documents.
        base_url: The server's address. By default `ANTHROPIC_BASE_URL` or `OPENAI_BASE_URL` for
            these two, otherwise the provider's own address.
        timeout: Seconds without any data, not for the whole reply.
        region: The region of Bedrock or Vertex.
        project: The project of Vertex.
        api_version: The API version of Azure.
        environ: The environment variables. By default those of the process.

    Returns:
        The provider. It does not retry; wrap it in `with_retries`.

    Raises:
        MissingApiKeyError: If no key, or no address, is found.
        MissingSdkError: If the provider's SDK is not installed.
        ValueError: If the provider or the dialect is unknown.

    Example:
        Call a model with retries::

            provider = with_retries(create_provider("claude-sonnet-5-5"))
    """
    # Not a default argument: `help` would show the keys in it.
    environ = os.environ if environ is None else environ
    info = resolve_model_info(model, model_info)
    server = None if provider is None else find_provider_endpoint(provider)
    if provider is not None and provider in CLOUD_NAMES:
        from trimtab.providers.clouds import CloudSettings, create_cloud_provider

        settings = CloudSettings(
            api_key=api_key,
            base_url=base_url,
            timeout=timeout,
            region=region,
            project=project,
            api_version=api_version,
        )
        return create_cloud_provider(provider, model, settings, environ)
    dialect_name = dialect or _choose_dialect(info, server)
    if dialect_name not in (None, *DIALECT_NAMES):
        raise ValueError(
            f"unknown dialect {dialect_name!r}; choose one of {', '.join(DIALECT_NAMES)}"
        )
    server = server or _guess_endpoint(model, info, dialect_name, base_url, environ)
    key = api_key or (environ.get(server.key_variable) if server.key_variable else None)
    elsewhere = environ.get(server.url_variable) if server.url_variable else None
    others = _describe_other_keys(environ)
    url, key = _resolve_url_and_key(
        server, model, provider, url=base_url or elsewhere, key=key, others=others
    )
    if dialect_name == "anthropic":
        from trimtab.providers.anthropic import AnthropicProvider

        headers = _read_custom_headers(environ, "anthropic")
        return AnthropicProvider(api_key=key, base_url=url, timeout=timeout, headers=headers)
    from trimtab.providers.openai import OpenAIChatProvider, OpenAIResponsesProvider

    make = OpenAIResponsesProvider if dialect_name == "openai_responses" else OpenAIChatProvider
    return make(
        api_key=key, base_url=url, timeout=timeout, headers=_read_custom_headers(environ, "openai")
    )


def _read_custom_headers(environ: Mapping[str, str], sdk: str) -> dict[str, str]:
    """Read headers from the environment, one per line, as the SDKs do."""
    lines = environ.get(_HEADER_VARIABLE_BY_SDK[sdk], "").splitlines()
    pairs = (line.partition(":") for line in lines if ":" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _choose_dialect(info: ModelInfo, endpoint: ProviderEndpoint | None) -> str | None:
    own_dialect = info.dialect
    # Some models of OpenAI's are served by its newer API only.
    newer = endpoint is ENDPOINT_BY_PROVIDER["openai"] and own_dialect == "openai_responses"
    return own_dialect if endpoint is None or newer else endpoint.dialect


def find_provider_endpoint(provider_name: str) -> ProviderEndpoint:
    """Return the provider with this name."""
    if provider_name in ENDPOINT_BY_PROVIDER:
        return ENDPOINT_BY_PROVIDER[provider_name]
    likely_name = suggest_provider_name(provider_name)
    guess = f"did you mean {likely_name}? Choose" if likely_name else "choose"
    raise ValueError(
        f"unknown provider {provider_name!r}; {guess} one of {', '.join(ENDPOINT_BY_PROVIDER)}"
    )


def suggest_provider_name(unknown_provider_name: str) -> ProviderName | None:
    """Return the provider that an unknown name most likely means."""
    names: dict[str, ProviderName] = {}
    for name, server in ENDPOINT_BY_PROVIDER.items():
        names |= dict.fromkeys((name, *server.aliases, *server.model_prefixes), name)
    close = get_close_matches(unknown_provider_name.lower(), names, n=1)
    return names[close[0]] if close else None


def _guess_endpoint(
    model: str,
    info: ModelInfo,
    dialect: str | None,
    base_url: str | None,
    environ: Mapping[str, str],
) -> ProviderEndpoint:
    if dialect == "anthropic":
        return ENDPOINT_BY_PROVIDER["anthropic"]
    if base_url or environ.get(_OPENAI_VARIABLES[1]):
        return ENDPOINT_BY_PROVIDER["openai"]
    name = (info.base_model or model).lower()
    for server in ENDPOINT_BY_PROVIDER.values():
        # The maker's own API has another dialect.
        if server.dialect != "anthropic" and name.startswith(server.model_prefixes):
            return server
    # `o3`, `chatgpt-…`, `ft:gpt-…`; a path (`vendor/model`) is a name at somebody else's server.
    if "/" not in name and info.output_param == "max_completion_tokens":
        return ENDPOINT_BY_PROVIDER["openai"]
    raise MissingBaseUrlError(
        f"unknown provider for model {model!r}; name the provider "
        f"({', '.join(ENDPOINT_BY_PROVIDER)}), or set "
        "OPENAI_BASE_URL or give base_url, such as http://localhost:11434/v1 for Ollama or "
        "https://openrouter.ai/api/v1"
    )


def _describe_other_keys(environ: Mapping[str, str]) -> str:
    """Describe which keys are set, for users who have a key and use the wrong model."""
    names = {
        server.key_variable: name
        for name, server in reversed(ENDPOINT_BY_PROVIDER.items())
        if server.key_variable
    }
    return "".join(
        f"; {variable} is set, so you can use a model of {name}"
        for variable, name in names.items()
        if environ.get(variable)
    )


def _resolve_url_and_key(
    endpoint: ProviderEndpoint,
    model: str,
    provider: str | None,
    *,
    url: str | None,
    key: str | None,
    others: str,
) -> tuple[str | None, str]:
    """Return the address and the key; raise if one is missing."""
    if url:
        return url, key or _PLACEHOLDER_KEY
    if endpoint.example_url:
        raise MissingBaseUrlError(
            f"{provider} has no default address: give base_url, such as {endpoint.example_url}"
        )
    if endpoint.key_variable is None:
        return endpoint.base_url, key or _PLACEHOLDER_KEY
    if not key:
        raise MissingApiKeyError(
            f"no key for {model!r}: set {endpoint.key_variable}, or give api_key{others}"
        )
    return endpoint.base_url, key
