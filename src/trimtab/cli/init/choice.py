"""Which model a new agent begins with: by what is at hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.request import urlopen

from trimtab.catalog import resolve
from trimtab.providers.choose import PROVIDERS, server_of

OLLAMA = "http://localhost:11434/api/tags"
PATIENCE = 0.5
"""Seconds that a server on this machine has to answer."""
MODELS = {
    "anthropic": "claude-sonnet-5-5",
    "openai": "gpt-5.6",
    "openai_responses": "gpt-5.6",
    "gemini": "gemini-3.8-flash",
    "deepseek": "deepseek-chat",
    "mistral": "mistral-large-latest",
    "xai": "grok-4",
}
"""By provider, in the order in which keys are looked for."""


class NoModel(ValueError):
    """It is not known which model is meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    model: str
    """Its name."""
    provider: str | None
    """What has to stand in the file; None where the model's name says it."""
    key: str | None
    """The environment variable that must hold the key; None where none is asked for."""
    sdk: str
    """The package that speaks to its provider, and the extra that brings it."""
    why: str
    """What decided, in a few words; empty for the user's own."""


def chosen(
    environ: Mapping[str, str],
    *,
    model: str | None = None,
    provider: str | None = None,
    local: Callable[[], str | None] | None = None,
) -> Choice:
    """What the user named, else what there is a key for, else a model on this machine."""
    if provider is not None:
        server_of(provider)  # raises where there is none of that name
        found = model or MODELS.get(provider) or (_of(local) if provider == "ollama" else None)
        if found is None:
            raise NoModel(f"name a model of {provider} as well: --model NAME")
        return _choice(found, provider, "")
    if model is not None:
        return _choice(model, None, "")
    for name, best in MODELS.items():
        key = server_of(name).key
        if key is not None and environ.get(key):
            return _choice(best, name, f"{key} is set")
    if (found := _of(local)) is not None:
        return _choice(found, "ollama", "Ollama runs on this machine")
    return _choice(MODELS["anthropic"], "anthropic", "no key is set yet")


def first_of_ollama() -> str | None:
    """The first model of an Ollama on this machine; None where none answers."""
    try:
        with urlopen(OLLAMA, timeout=PATIENCE) as answer:
            models = json.loads(answer.read(1_000_000))["models"]
            return str(models[0]["name"]) if models else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _of(local: Callable[[], str | None] | None) -> str | None:
    return (local or first_of_ollama)()


def _choice(model: str, provider: str | None, why: str) -> Choice:
    made_by = maker(model)
    named = provider if provider is not None and provider != made_by else None
    serves = provider or made_by
    server = server_of(serves) if serves else None
    return Choice(
        model=model,
        provider=named,
        key=server.key if server else None,
        sdk="anthropic" if server and server.dialect == "anthropic" else "openai",
        why=why,
    )


def maker(model: str) -> str | None:
    """Who is asked where the file names nobody."""
    for name, server in PROVIDERS.items():
        if server.makes and model.lower().startswith(server.makes):
            return name
    if "/" not in model and resolve(model).output_param == "max_completion_tokens":
        return "openai"
    return None
