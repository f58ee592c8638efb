"""Explain errors of a turn, and say what to do about them.

The explanations use the names in agent.yaml and in the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from trimtab.cli.text_format import shorten_to_line
from trimtab.errors import (
    CannotFit,
    ProviderError,
    ProviderFailureDetails,
    SessionLockedByOtherProcess,
    StaleOwner,
    StoreError,
)
from trimtab.models.catalog import suggest_model_name
from trimtab.providers.factory import ENDPOINT_BY_PROVIDER, ProviderEndpoint, find_provider_endpoint
from trimtab_serve.agent.config.spec import ModelSpec
from trimtab_serve.agent.environment import ENVIRON


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEndpoint:
    model: str
    """The model's name."""
    address: str
    """The address without its credentials, or the provider's name if there is no address."""
    is_user_address: bool
    """Whether the user set the address."""
    unreachable_text: str
    """What happened if the server does not answer, with its address or its name."""
    key_source: str
    """The place where the key is looked up."""
    connection_hint: str
    """What to check if the server does not answer."""


_CEILING_SETTINGS: Mapping[str, tuple[str, str]] = {
    "session": ("cost.max_per_session", "Raise it, or start another session."),
    "tenant_per_day": (
        "serve.tenant_limits.cost_per_day",
        "Raise it, or continue after midnight UTC.",
    ),
    "day": ("cost.max_per_day", "Raise it, or continue after midnight UTC."),
}


def describe_chat_cost_ceiling(ceiling: str) -> str:
    """Return the message for a user who can edit agent.yaml."""
    setting, to_do = _CEILING_SETTINGS[ceiling]
    return f"Not sent: the call could exceed {setting} in agent.yaml. {to_do}"


def resolve_model_endpoint(model: ModelSpec, environ: Mapping[str, str] = ENVIRON) -> ModelEndpoint:
    """Return the address, the source of the key and hints for a model."""
    # It is needed only after a failure.
    from trimtab_serve.cli.init.model_choice import guess_provider

    provider_name = model.provider or guess_provider(model.name)
    server = (
        find_provider_endpoint(provider_name) if provider_name else ENDPOINT_BY_PROVIDER["openai"]
    )
    elsewhere = environ.get(server.url_variable) if server.url_variable else None
    own_url = model.base_url or elsewhere
    url = own_url or server.base_url
    shown_url = _without_credentials(url) if url else None
    provider = f"provider ({provider_name or 'openai'})"
    return ModelEndpoint(
        model=model.name,
        address=shown_url or f"the {provider}",
        is_user_address=own_url is not None,
        unreachable_text=(
            f"The provider cannot be reached at {shown_url}"
            if shown_url
            else f"The {provider} cannot be reached"
        ),
        key_source=_describe_key_source(model, server),
        connection_hint=_connection_hint(model, server, provider_name, elsewhere),
    )


def _describe_key_source(model: ModelSpec, server: ProviderEndpoint) -> str:
    if model.api_key is not None:
        return "the variable that `api_key` names"
    return server.key_source or "`api_key` under `model`"


def _connection_hint(
    model: ModelSpec, server: ProviderEndpoint, named: str | None, elsewhere: str | None
) -> str:
    if named == "ollama":
        return "Start Ollama with `ollama serve`, or correct `base_url` in agent.yaml"
    if model.base_url:
        return "Check that the server runs there, or correct `base_url` in agent.yaml"
    if elsewhere:
        return f"Check that the server runs there, or correct {server.url_variable}"
    return "Check the connection, and whether you need a proxy"


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" if host else url


MAX_PROVIDER_MESSAGE_CHARS = 500
"""Characters of a provider's own message to repeat."""


QUESTION_KEPT_NOTE = (
    "The question is stored in the session and will be answered when you continue it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnProblem:
    kind: str
    """The kind of the problem in one word: a provider's failure kind, `too_large` or `store`."""
    text: str
    """What happened."""
    prompt_hint: str
    """What the user can do at the prompt."""
    unattended_hint: str = QUESTION_KEPT_NOTE
    """What to do if no user is at a prompt."""


def describe_turn_error(error: BaseException, model: ModelSpec | None = None) -> TurnProblem | None:
    """Explain an error with a cause outside our code. Return None for an error in our code.

    If the model is given, the text also says what to change.
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
                prompt_hint="/undo removes it; /model NAME continues with a larger window.",
                unattended_hint=(
                    "agent.yaml sets all parts of the request except the messages; `trimtab "
                    "doctor` shows their sizes."
                ),
            )
        case SessionLockedByOtherProcess():
            return TurnProblem(
                kind="store",
                text=f"This session is open elsewhere: {error}.",
                prompt_hint="Or continue in a copy: /fork.",
                unattended_hint="Or continue in a copy: `trimtab session fork`.",
            )
        case StaleOwner():
            return TurnProblem(
                kind="store",
                text=f"Another process writes to this session: {error}.",
                prompt_hint="End the other process, or continue in a copy: /fork.",
                unattended_hint=(
                    "End the other process, or continue in a copy: `trimtab session fork`."
                ),
            )
        case StoreError():
            return TurnProblem(
                kind="store",
                text=f"The session cannot be written: {error}.",
                prompt_hint=(
                    "When the store works again, press Enter to continue. Stored messages are safe."
                ),
            )
        case _:
            return None


_FAILURE_TEXTS = {
    "overflow": "The request is larger than the model accepts",
    "malformed": "The provider refuses the conversation in its present form",
    "rate_limit": "The provider's rate limit is reached",
    "overloaded": "The provider is overloaded",
    "server": "The provider had an internal error",
    "network": "The provider cannot be reached",
    "timeout": "The provider did not answer in time",
    "auth": "The provider does not accept the key",
    "rejected": "The provider does not accept the content of the message",
    "refused": "The provider refuses the request",
}
_PROMPT_HINTS = {
    "overflow": "/compact makes the context smaller; then press Enter to try again.",
    "malformed": "/undo removes the last message; `trimtab session show` shows what was sent.",
    "rate_limit": "Wait a moment, then press Enter to try again.",
    "overloaded": "Press Enter to try again; /model NAME switches to another model.",
    "server": "Press Enter to try again; /model NAME switches to another model.",
    "network": "{check}; then press Enter to try again.",
    "timeout": (
        "Press Enter to try again; a larger `timeout` under `model` in agent.yaml allows more time."
    ),
    "auth": "Set {key} to a valid key, and start again; `trimtab doctor` checks it.",
    "rejected": (
        "Your next message is sent without the rejected content. /undo removes your last message. "
        "Press Enter to try again."
    ),
    "refused": "Check the model's name and `params` in agent.yaml; `trimtab doctor` checks both.",
}
_UNATTENDED_HINTS = {
    "rate_limit": "Wait a minute.",
    "overloaded": "Try again later, or choose another model in agent.yaml.",
    "server": "Try again later, or choose another model in agent.yaml.",
    "network": "{check}.",
    "timeout": "A larger `timeout` under `model` in agent.yaml allows more time.",
}
"""What to do before the session is continued, if no user is at a prompt."""
_REJECTED_HINT = "It stays in the session's log; the next message is sent without it."
_PERMANENT_KINDS = ("auth", "refused")


def _describe_provider_failure(
    failure: ProviderFailureDetails, endpoint: ModelEndpoint | None
) -> TurnProblem:
    if endpoint is not None and (failure.kind, failure.status) == ("refused", 404):
        return _describe_not_found(failure, endpoint)
    status = f" (HTTP {failure.status})" if failure.status else ""
    cause = _FAILURE_TEXTS[failure.kind]
    if endpoint is not None and failure.kind == "network":
        cause = endpoint.unreachable_text
    text = f"{cause}{status}: {_quote_provider_message(failure)}."
    put_in = {
        "key": endpoint.key_source if endpoint else "the provider's variable",
        "check": endpoint.connection_hint
        if endpoint
        else "Check the connection and `base_url` in agent.yaml",
    }
    what_next = _PROMPT_HINTS[failure.kind].format(**put_in)
    if failure.kind == "rate_limit" and failure.retry_after:
        what_next = f"It asks to wait {failure.retry_after:.0f} s; then press Enter to try again."
    later = _REJECTED_HINT if failure.kind == "rejected" else what_next
    if failure.kind not in (*_PERMANENT_KINDS, "rejected"):
        later = " ".join(
            filter(
                None, (_UNATTENDED_HINTS.get(failure.kind, "").format(**put_in), QUESTION_KEPT_NOTE)
            )
        )
    return TurnProblem(kind=failure.kind, text=text, prompt_hint=what_next, unattended_hint=later)


def _describe_not_found(failure: ProviderFailureDetails, endpoint: ModelEndpoint) -> TurnProblem:
    """Explain a 404: the server does not have the model, or the address has no API."""
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
    likely_model = suggest_model_name(endpoint.model)
    guess = f"did you mean {likely_model}? Set" if likely_model else "set"
    to_do = (
        f"{guess[:1].upper()}{guess[1:]} `name` under `model` in agent.yaml to a model that the "
        "provider has"
    )
    if endpoint.is_user_address:
        to_do += ", or correct `base_url`"
    return TurnProblem(
        kind=failure.kind,
        text=(
            f"{endpoint.address} has no model {endpoint.model!r} (HTTP 404): "
            f"{_quote_provider_message(failure)}."
        ),
        prompt_hint=f"{to_do}; /model NAME tries another model.",
        unattended_hint=f"{to_do}; `trimtab doctor` checks both.",
    )


def _quote_provider_message(failure: ProviderFailureDetails) -> str:
    quote = shorten_to_line(failure.message, MAX_PROVIDER_MESSAGE_CHARS).removeprefix(
        "Connection error. "
    )
    return quote.rstrip(".")
