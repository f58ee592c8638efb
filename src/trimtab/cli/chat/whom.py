"""Whom a model is asked from, in the words of agent.yaml and the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from trimtab.agent.secrets import ENVIRON
from trimtab.agent.spec import Model
from trimtab.providers.choose import PROVIDERS, Server, server_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Whom:
    model: str
    """The model's name."""
    where: str
    """The address, without what may be secret in it; else the provider's name."""
    own: bool
    """Whether the user named the address."""
    key: str
    """Where the key is looked for."""
    check: str
    """What to look at where nobody answers."""


def whom(model: Model, environ: Mapping[str, str] = ENVIRON) -> Whom:
    """What is known of the one who is asked."""
    # Only where something went wrong is it needed.
    from trimtab.cli.init.choice import maker

    named = model.provider or maker(model.name)
    server = server_of(named) if named else PROVIDERS["openai"]
    elsewhere = environ.get(server.address) if server.address else None
    own = model.base_url or elsewhere
    url = own or server.url
    return Whom(
        model=model.name,
        where=_shown(url) if url else f"the provider ({named or 'openai'})",
        own=own is not None,
        key=_key(model, server),
        check=_check(model, server, named, elsewhere),
    )


def _key(model: Model, server: Server) -> str:
    if model.api_key is not None:
        return "the variable of `api_key`"
    return server.key or "`api_key` under `model`"


def _check(model: Model, server: Server, named: str | None, elsewhere: str | None) -> str:
    if named == "ollama":
        return "Start Ollama with `ollama serve`, or correct `base_url` in agent.yaml"
    if model.base_url:
        return "See that it runs there, or correct `base_url` in agent.yaml"
    if elsewhere:
        return f"See that it runs there, or correct {server.address}"
    return "Check the connection, and whether a proxy is needed"


def _shown(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" if host else url
