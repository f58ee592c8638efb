"""Whom a model is asked from, in the words of agent.yaml and the environment.

What went wrong in a turn, as a sentence, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from trimtab.agent.config.spec import ModelSpec
from trimtab.agent.environment import ENVIRON
from trimtab.catalog import suggest_model_name
from trimtab.cli.terminal_text_format import shorten_to_line
from trimtab.errors import SessionLockedByOtherProcess, StaleOwner, StoreError
from trimtab.policy.guard import CannotFit
from trimtab.providers.factory import ENDPOINT_BY_PROVIDER, ProviderEndpoint, find_provider_endpoint
from trimtab.providers.protocol_and_failures import ProviderError, ProviderFailureDetails


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEndpoint:
    model: str
    """The model's name."""
    address: str
    """The address, without what may be secret in it; else the provider's name."""
    is_user_address: bool
    """Whether the user named the address."""
    key_source: str
    """Where the key is looked for."""
    connection_hint: str
    """What to look at where nobody answers."""


_CEILING_SETTINGS: Mapping[str, tuple[str, str]] = {
    "session": ("max_per_session", "Raise it, or start another session."),
    "tenant_per_day": ("max_per_tenant_per_day", "Raise it, or go on after midnight UTC."),
    "day": ("max_per_day", "Raise it, or go on after midnight UTC."),
}


def describe_chat_cost_ceiling(ceiling: str) -> str:
    """What is said to somebody who has the file at hand."""
    setting, to_do = _CEILING_SETTINGS[ceiling]
    return f"Not sent: it might cost more than cost.{setting} in agent.yaml leaves. {to_do}"


def resolve_model_endpoint(model: ModelSpec, environ: Mapping[str, str] = ENVIRON) -> ModelEndpoint:
    """What is known of the one who is asked."""
    # Only where something went wrong is it needed.
    from trimtab.cli.init.default_model_choice import guess_provider

    named = model.provider or guess_provider(model.name)
    server = find_provider_endpoint(named) if named else ENDPOINT_BY_PROVIDER["openai"]
    elsewhere = environ.get(server.url_variable) if server.url_variable else None
    own = model.base_url or elsewhere
    url = own or server.base_url
    return ModelEndpoint(
        model=model.name,
        address=_without_credentials(url) if url else f"the provider ({named or 'openai'})",
        is_user_address=own is not None,
        key_source=_describe_key_source(model, server),
        connection_hint=_connection_hint(model, server, named, elsewhere),
    )


def _describe_key_source(model: ModelSpec, server: ProviderEndpoint) -> str:
    if model.api_key is not None:
        return "the variable of `api_key`"
    return server.key_source or "`api_key` under `model`"


def _connection_hint(
    model: ModelSpec, server: ProviderEndpoint, named: str | None, elsewhere: str | None
) -> str:
    if named == "ollama":
        return "Start Ollama with `ollama serve`, or correct `base_url` in agent.yaml"
    if model.base_url:
        return "See that it runs there, or correct `base_url` in agent.yaml"
    if elsewhere:
        return f"See that it runs there, or correct {server.url_variable}"
    return "Check the connection, and whether a proxy is needed"


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" if host else url


MAX_PROVIDER_MESSAGE_CHARS = 500
"""Characters of a provider's own words that are repeated."""


QUESTION_KEPT_NOTE = "The question is stored in the session, and answered when you continue it."


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnProblem:
    kind: str
    """What it is, in a word: a provider's failure by its kind, `too_large`, `store`."""
    text: str
    """What happened."""
    prompt_hint: str
    """What to do now, at the prompt."""
    unattended_hint: str = QUESTION_KEPT_NOTE
    """What to do where nobody sits at a prompt."""


def describe_turn_error(error: BaseException, model: ModelSpec | None = None) -> TurnProblem | None:
    """An error that has a cause outside of us; None for a mistake of ours.

    Whoever knows the model that was asked is told what to change.
    """
    match error:
        case ProviderError():
            return _describe_provider_failure(
                error.failure, None if model is None else resolve_model_endpoint(model)
            )
        case CannotFit():
            return TurnProblem(
                kind="too_large",
                text=f"The message cannot be sent: {error}.",
                prompt_hint="/undo takes it back; /model NAME goes on with a larger window.",
                unattended_hint=(
                    "All of it is set in agent.yaml; `trimtab doctor` shows what takes how much."
                ),
            )
        case SessionLockedByOtherProcess():
            return TurnProblem(
                kind="store",
                text=f"This session is open elsewhere: {error}.",
                prompt_hint="Or go on in a copy: /fork.",
                unattended_hint="Or go on in a copy: `trimtab session fork`.",
            )
        case StaleOwner():
            return TurnProblem(
                kind="store",
                text=f"Somebody else writes to this session: {error}.",
                prompt_hint="End the other one, or go on in a copy: /fork.",
                unattended_hint="End the other one, or go on in a copy: trimtab session fork.",
            )
        case StoreError():
            return TurnProblem(
                kind="store",
                text=f"The session cannot be written: {error}.",
                prompt_hint="When the store is back, Enter goes on; what was stored is safe.",
            )
        case _:
            return None


_FAILURE_TEXTS = {
    "overflow": "The request is larger than the model takes",
    "malformed": "The provider refuses the conversation as it stands",
    "rate_limit": "The provider wants fewer requests",
    "overloaded": "The provider is overloaded",
    "server": "The provider has an error of its own",
    "network": "The provider cannot be reached",
    "timeout": "The provider did not answer in time",
    "auth": "The provider does not accept the key",
    "rejected": "The provider does not take what was said",
    "refused": "The provider refuses the request",
}
_PROMPT_HINTS = {
    "overflow": "/compact makes the context smaller; then Enter tries again.",
    "malformed": "/undo removes the last message; `trimtab session show` shows what was sent.",
    "rate_limit": "Wait a moment; then Enter tries again.",
    "overloaded": "Enter tries again; /model NAME asks another model.",
    "server": "Enter tries again; /model NAME asks another model.",
    "network": "{check}; then Enter tries again.",
    "timeout": "Enter tries again; `timeout` under `model` in agent.yaml allows more time.",
    "auth": "Set {key} to a key that is valid, and start again; `trimtab doctor` checks it.",
    "rejected": "Your next message goes without it; /undo takes it back, Enter tries again.",
    "refused": "Check the model's name and `params` in agent.yaml; `trimtab doctor` checks both.",
}
_UNATTENDED_HINTS = {
    "rate_limit": "Wait a minute.",
    "overloaded": "Try again in a while, or choose another model in agent.yaml.",
    "server": "Try again in a while, or choose another model in agent.yaml.",
    "network": "{check}.",
    "timeout": "`timeout` under `model` in agent.yaml allows more time.",
}
"""What to do where nobody sits at a prompt, before it is taken up again."""
_REJECTED_HINT = "It stays in the session's log; the next message goes without it."
_PERMANENT_KINDS = ("auth", "refused")


def _describe_provider_failure(
    failure: ProviderFailureDetails, endpoint: ModelEndpoint | None
) -> TurnProblem:
    if endpoint is not None and (failure.kind, failure.status) == ("refused", 404):
        return _describe_not_found(failure, endpoint)
    status = f" (HTTP {failure.status})" if failure.status else ""
    at = f" at {endpoint.address}" if endpoint is not None and failure.kind == "network" else ""
    text = f"{_FAILURE_TEXTS[failure.kind]}{at}{status}: {_quote_provider_message(failure)}."
    put_in = {
        "key": endpoint.key_source if endpoint else "the provider's variable",
        "check": endpoint.connection_hint
        if endpoint
        else "Check the connection and `base_url` in agent.yaml",
    }
    what_next = _PROMPT_HINTS[failure.kind].format(**put_in)
    if failure.kind == "rate_limit" and failure.retry_after:
        what_next = f"It asks to wait {failure.retry_after:.0f} s; then Enter tries again."
    later = _REJECTED_HINT if failure.kind == "rejected" else what_next
    if failure.kind not in (*_PERMANENT_KINDS, "rejected"):
        later = " ".join(
            filter(
                None, (_UNATTENDED_HINTS.get(failure.kind, "").format(**put_in), QUESTION_KEPT_NOTE)
            )
        )
    return TurnProblem(kind=failure.kind, text=text, prompt_hint=what_next, unattended_hint=later)


def _describe_not_found(failure: ProviderFailureDetails, endpoint: ModelEndpoint) -> TurnProblem:
    """A model that is not served, or an address without an API: both are a 404."""
    if endpoint.is_user_address and "model" not in failure.message.lower():
        to_do = "Correct `base_url` under `model` in agent.yaml"
        text = (
            f"There is no such API at {endpoint.address} (HTTP 404): "
            f"{_quote_provider_message(failure)}."
        )
        later = f"{to_do}; `trimtab doctor` checks it."
        return TurnProblem(
            kind=failure.kind,
            text=text,
            prompt_hint=f"{to_do}, and start again.",
            unattended_hint=later,
        )
    meant = suggest_model_name(endpoint.model)
    guess = f"did you mean {meant}? Set" if meant else "set"
    to_do = f"{guess[:1].upper()}{guess[1:]} `name` under `model` in agent.yaml to one that it has"
    if endpoint.is_user_address:
        to_do += ", or correct `base_url`"
    return TurnProblem(
        kind=failure.kind,
        text=(
            f"{endpoint.address} has no model {endpoint.model!r} (HTTP 404): "
            f"{_quote_provider_message(failure)}."
        ),
        prompt_hint=f"{to_do}; /model NAME tries one.",
        unattended_hint=f"{to_do}; `trimtab doctor` checks both.",
    )


def _quote_provider_message(failure: ProviderFailureDetails) -> str:
    said = shorten_to_line(failure.message, MAX_PROVIDER_MESSAGE_CHARS).removeprefix(
        "Connection error. "
    )
    return said.rstrip(".")
