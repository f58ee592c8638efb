"""Which provider answers for a model, by its name and the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from trimtab.catalog import resolve
from trimtab.dialects import DIALECTS
from trimtab.providers.provider import Provider


class MissingKey(LookupError):
    """No key is known for the server that a model would be asked from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    key: str
    """The environment variable that holds its key."""
    url: str | None
    """Where it is; None for what the SDK takes by itself."""


_OWN = "OPENAI_API_KEY"
_SERVERS = {
    "claude": _Server(key="ANTHROPIC_API_KEY", url=None),
    "gpt": _Server(key=_OWN, url=None),
    "deepseek": _Server(key="DEEPSEEK_API_KEY", url="https://api.deepseek.com"),
    "gemini": _Server(
        key="GEMINI_API_KEY", url="https://generativelanguage.googleapis.com/v1beta/openai/"
    ),
    "grok": _Server(key="XAI_API_KEY", url="https://api.x.ai/v1"),
    "mistral": _Server(key="MISTRAL_API_KEY", url="https://api.mistral.ai/v1"),
}
"""Who makes a model, by the start of its name: a key goes to nobody but whom it belongs to."""

_NO_KEY = "unused"
"""The SDKs want some key; servers on one's own machine ask for none."""


def provider_for(
    model: str,
    *,
    dialect: str | None = None,
    api_key: str | None = None,
    base_url: str | None = None,
    timeout: float = 600.0,
    environ: Mapping[str, str] = os.environ,
) -> Provider:
    """The provider that speaks the model's dialect.

    Without a `base_url` it is `ANTHROPIC_BASE_URL` or `OPENAI_BASE_URL` where set, else the maker
    of the model; without an `api_key` the variable that the maker's documents name. The dialect is
    the catalog's; `openai_responses` has to be asked for, and a model of unknown dialect at a
    server of one's own is asked in Chat Completions.
    """
    known = dialect or resolve(model).dialect
    if known == "anthropic":
        url = base_url or environ.get("ANTHROPIC_BASE_URL")
        key = api_key or environ.get("ANTHROPIC_API_KEY") or (_NO_KEY if url else None)
        if key is None:
            raise _missing(model, "ANTHROPIC_API_KEY")
        from trimtab.providers.anthropic import Anthropic

        return Anthropic(api_key=key, base_url=url, timeout=timeout)
    url, key = _openai_line(model, api_key, base_url, environ)
    from trimtab.providers.openai import OpenAIChat, OpenAIResponses

    if known == "openai_responses":
        return OpenAIResponses(api_key=key, base_url=url, timeout=timeout)
    if known in ("openai_chat", None):
        return OpenAIChat(api_key=key, base_url=url, timeout=timeout)
    raise ValueError(f"no dialect is called {known!r}; choose one of {', '.join(DIALECTS)}")


def _openai_line(
    model: str, api_key: str | None, base_url: str | None, environ: Mapping[str, str]
) -> tuple[str | None, str]:
    """Address and key of a server that speaks one of OpenAI's dialects."""
    if url := base_url or environ.get("OPENAI_BASE_URL"):
        return url, api_key or environ.get(_OWN) or _NO_KEY
    server = _server_of(model)
    if server is None:
        raise MissingKey(
            f"it is not known who serves {model!r}; set OPENAI_BASE_URL or give base_url, such as "
            "http://localhost:11434/v1 for Ollama or https://openrouter.ai/api/v1"
        )
    key = api_key or environ.get(server.key)
    if not key:
        raise _missing(model, server.key)
    return server.url, key


def _server_of(model: str) -> _Server | None:
    name = model.lower()
    for start, server in _SERVERS.items():
        if name.startswith(start):
            return server
    # `o3`, `chatgpt-…`, `ft:gpt-…`; a path (`vendor/model`) is a name at somebody else's server.
    if "/" not in name and resolve(model).output_param == "max_completion_tokens":
        return _SERVERS["gpt"]
    return None


def _missing(model: str, variable: str) -> MissingKey:
    return MissingKey(f"no key for {model!r}: set {variable}, or give api_key")
