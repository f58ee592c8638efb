"""Which provider answers: by its name, else by the model's, and the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from trimtab.catalog import resolve
from trimtab.dialects import DIALECTS
from trimtab.providers.provider import Provider


class MissingKey(LookupError):
    """No key is known for the server that a model would be asked from."""


class MissingAddress(MissingKey):
    """It is not known where the server is."""


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
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One who serves models."""

    dialect: str = "openai_chat"
    """What it speaks."""
    key: str | None = None
    """The environment variable that holds its key; None where it asks for none."""
    url: str | None = None
    """Where it is; None for what the SDK takes by itself."""
    address: str | None = None
    """The environment variable that may name another place."""
    example: str | None = None
    """A usual address, for servers that everybody runs at a place of their own."""
    makes: tuple[str, ...] = ()
    """How the names of its own models begin."""
    called: tuple[str, ...] = ()
    """What else people call it."""


_OPENAI = ("OPENAI_API_KEY", "OPENAI_BASE_URL")
PROVIDERS: dict[ProviderName, Server] = {
    "anthropic": Server(
        dialect="anthropic",
        key="ANTHROPIC_API_KEY",
        address="ANTHROPIC_BASE_URL",
        makes=("claude",),
    ),
    "openai": Server(key=_OPENAI[0], address=_OPENAI[1], makes=("gpt",), called=("chatgpt",)),
    "openai_responses": Server(
        dialect="openai_responses", key=_OPENAI[0], address=_OPENAI[1], called=("responses",)
    ),
    "ollama": Server(url="http://localhost:11434/v1"),
    "openrouter": Server(key="OPENROUTER_API_KEY", url="https://openrouter.ai/api/v1"),
    "deepseek": Server(key="DEEPSEEK_API_KEY", url="https://api.deepseek.com", makes=("deepseek",)),
    "gemini": Server(
        key="GEMINI_API_KEY",
        url="https://generativelanguage.googleapis.com/v1beta/openai/",
        makes=("gemini",),
        called=("google", "vertex"),
    ),
    "groq": Server(key="GROQ_API_KEY", url="https://api.groq.com/openai/v1"),
    "mistral": Server(key="MISTRAL_API_KEY", url="https://api.mistral.ai/v1", makes=("mistral",)),
    "xai": Server(key="XAI_API_KEY", url="https://api.x.ai/v1", makes=("grok",), called=("x.ai",)),
    "vllm": Server(key=_OPENAI[0], address=_OPENAI[1], example="http://localhost:8000/v1"),
    "llama.cpp": Server(
        key=_OPENAI[0],
        address=_OPENAI[1],
        example="http://localhost:8080/v1",
        called=("llamacpp", "llama_cpp", "llama"),
    ),
}
"""By name. A key goes to nobody but whom it belongs to."""

_HEADERS = {"anthropic": "ANTHROPIC_CUSTOM_HEADERS", "openai": "OPENAI_CUSTOM_HEADERS"}
"""By SDK, the variable with headers for all requests. The SDKs know `os.environ` alone."""
_NO_KEY = "unused"
"""The SDKs want some key; servers on one's own machine ask for none."""


def provider_for(
    model: str,
    *,
    provider: str | None = None,
    dialect: str | None = None,
    api_key: str | None = None,
    base_url: str | None = None,
    timeout: float = 600.0,
    environ: Mapping[str, str] = os.environ,
) -> Provider:
    """The provider that serves the model.

    Without a `provider` it is the maker of the model, or who is at `base_url`. Without a `base_url`
    it is `ANTHROPIC_BASE_URL` or `OPENAI_BASE_URL` where set and theirs, else the provider's own
    address; without an `api_key` the variable that its documents name. The dialect is the
    provider's, else the catalog's; a model of unknown dialect at a server of one's own is asked in
    Chat Completions.
    """
    server = None if provider is None else server_of(provider)
    known = dialect or _spoken(model, server)
    if known not in (None, *DIALECTS):
        raise ValueError(f"no dialect is called {known!r}; choose one of {', '.join(DIALECTS)}")
    server = server or _unnamed(model, known, base_url, environ)
    key = api_key or (environ.get(server.key) if server.key else None)
    elsewhere = environ.get(server.address) if server.address else None
    others = _others(environ)
    url, key = _line(server, model, provider, url=base_url or elsewhere, key=key, others=others)
    if known == "anthropic":
        from trimtab.providers.anthropic import Anthropic

        headers = _headers(environ, "anthropic")
        return Anthropic(api_key=key, base_url=url, timeout=timeout, headers=headers)
    from trimtab.providers.openai import OpenAIChat, OpenAIResponses

    make = OpenAIResponses if known == "openai_responses" else OpenAIChat
    return make(api_key=key, base_url=url, timeout=timeout, headers=_headers(environ, "openai"))


def _headers(environ: Mapping[str, str], sdk: str) -> dict[str, str]:
    """Headers from the environment, one in a line, as the SDKs read them."""
    lines = environ.get(_HEADERS[sdk], "").splitlines()
    pairs = (line.partition(":") for line in lines if ":" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _spoken(model: str, server: Server | None) -> str | None:
    known = resolve(model).dialect
    # Some models of OpenAI's are served by its newer API only.
    newer = server is PROVIDERS["openai"] and known == "openai_responses"
    return known if server is None or newer else server.dialect


def server_of(provider: str) -> Server:
    """The provider of that name."""
    if provider in PROVIDERS:
        return PROVIDERS[provider]
    meant = likely(provider)
    guess = f"did you mean {meant}? Choose" if meant else "choose"
    raise ValueError(f"no provider is called {provider!r}; {guess} one of {', '.join(PROVIDERS)}")


def likely(provider: str) -> ProviderName | None:
    """The provider that somebody who wrote this most likely meant."""
    told: dict[str, ProviderName] = {}
    for name, server in PROVIDERS.items():
        told |= dict.fromkeys((name, *server.called, *server.makes), name)
    close = get_close_matches(provider.lower(), told, n=1)
    return told[close[0]] if close else None


def _unnamed(
    model: str, dialect: str | None, base_url: str | None, environ: Mapping[str, str]
) -> Server:
    if dialect == "anthropic":
        return PROVIDERS["anthropic"]
    if base_url or environ.get(_OPENAI[1]):
        return PROVIDERS["openai"]
    name = model.lower()
    for server in PROVIDERS.values():
        # A maker who speaks another dialect cannot be asked in this one.
        if server.dialect != "anthropic" and name.startswith(server.makes):
            return server
    # `o3`, `chatgpt-…`, `ft:gpt-…`; a path (`vendor/model`) is a name at somebody else's server.
    if "/" not in name and resolve(model).output_param == "max_completion_tokens":
        return PROVIDERS["openai"]
    raise MissingAddress(
        f"it is not known who serves {model!r}; name the provider ({', '.join(PROVIDERS)}), or set "
        "OPENAI_BASE_URL or give base_url, such as http://localhost:11434/v1 for Ollama or "
        "https://openrouter.ai/api/v1"
    )


def _others(environ: Mapping[str, str]) -> str:
    """Which keys there are, for those who have one and ask the wrong model."""
    found = {server.key: name for name, server in reversed(PROVIDERS.items()) if server.key}
    return "".join(
        f"; {variable} is set, with which you can use a model of {name}"
        for variable, name in found.items()
        if environ.get(variable)
    )


def _line(
    server: Server,
    model: str,
    provider: str | None,
    *,
    url: str | None,
    key: str | None,
    others: str,
) -> tuple[str | None, str]:
    """Address and key, where neither is missing."""
    if url:
        return url, key or _NO_KEY
    if server.example:
        raise MissingAddress(
            f"{provider} runs at an address of your own: give base_url, such as {server.example}"
        )
    if server.key is None:
        return server.url, key or _NO_KEY
    if not key:
        raise MissingKey(f"no key for {model!r}: set {server.key}, or give api_key{others}")
    return server.url, key
