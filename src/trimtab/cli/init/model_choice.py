"""Which model a new agent begins with: by what is at hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.request import urlopen

from trimtab.catalog import resolve_model_info
from trimtab.providers.factory import ENDPOINT_BY_PROVIDER, find_provider_endpoint

OLLAMA_TAGS_URL = "http://localhost:11434/api/tags"
OLLAMA_TIMEOUT_S = 0.5
"""Seconds that a server on this machine has to answer."""
DEFAULT_MODEL_BY_PROVIDER = {
    "anthropic": "claude-sonnet-5-5",
    "openai": "gpt-5.6",
    "openai_responses": "gpt-5.6",
    "gemini": "gemini-3.8-flash",
    "deepseek": "deepseek-chat",
    "mistral": "mistral-large-latest",
    "xai": "grok-4",
}
"""By provider, in the order in which keys are looked for."""


class ModelNotNamedError(ValueError):
    """It is not known which model is meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    model: str
    """Its name."""
    provider: str | None
    """What has to stand in the file; None where the model's name says it."""
    key_variable: str | None
    """The environment variable that must hold the key; None where none is asked for."""
    sdk: str
    """The package that speaks to its provider, and the extra that brings it."""
    reason: str
    """What decided, in a few words; empty for the user's own."""


def choose_model(
    environ: Mapping[str, str],
    *,
    model: str | None = None,
    provider: str | None = None,
    find_local_model: Callable[[], str | None] | None = None,
) -> ModelChoice:
    """What the user named, else what there is a key for, else a model on this machine."""
    if provider is not None:
        find_provider_endpoint(provider)  # raises where there is none of that name
        found = (
            model
            or DEFAULT_MODEL_BY_PROVIDER.get(provider)
            or (_find_local(find_local_model) if provider == "ollama" else None)
        )
        if found is None:
            raise ModelNotNamedError(f"name a model of {provider} as well: --model NAME")
        return _make_choice(found, provider, "")
    if model is not None:
        return _make_choice(model, None, "")
    for name, best in DEFAULT_MODEL_BY_PROVIDER.items():
        key = find_provider_endpoint(name).key_variable
        if key is not None and environ.get(key):
            return _make_choice(best, name, f"{key} is set")
    if (found := _find_local(find_local_model)) is not None:
        return _make_choice(found, "ollama", "Ollama runs on this machine")
    return _make_choice(DEFAULT_MODEL_BY_PROVIDER["anthropic"], "anthropic", "no key is set yet")


def find_first_ollama_model() -> str | None:
    """The first model of an Ollama on this machine; None where none answers."""
    try:
        with urlopen(OLLAMA_TAGS_URL, timeout=OLLAMA_TIMEOUT_S) as answer:
            models = json.loads(answer.read(1_000_000))["models"]
            return str(models[0]["name"]) if models else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _find_local(local: Callable[[], str | None] | None) -> str | None:
    return (local or find_first_ollama_model)()


def _make_choice(model: str, provider: str | None, why: str) -> ModelChoice:
    made_by = guess_provider(model)
    named = provider if provider is not None and provider != made_by else None
    serves = provider or made_by
    server = find_provider_endpoint(serves) if serves else None
    return ModelChoice(
        model=model,
        provider=named,
        key_variable=server.key_variable if server else None,
        sdk="anthropic" if server and server.dialect == "anthropic" else "openai",
        reason=why,
    )


def guess_provider(model: str) -> str | None:
    """Who is asked where the file names nobody."""
    for name, server in ENDPOINT_BY_PROVIDER.items():
        if server.model_prefixes and model.lower().startswith(server.model_prefixes):
            return name
    if "/" not in model and resolve_model_info(model).output_param == "max_completion_tokens":
        return "openai"
    return None
