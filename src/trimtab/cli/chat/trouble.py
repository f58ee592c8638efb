"""What went wrong in a turn, as a sentence, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.agent.spec import Model
from trimtab.catalog import like
from trimtab.cli.chat.whom import Whom, whom
from trimtab.cli.words import brief
from trimtab.core.guard import CannotFit
from trimtab.providers.provider import Failure, ProviderError
from trimtab.stores.errors import SessionBusy, StaleOwner, StoreError

WORDS = 500
"""Characters of a provider's own words that are repeated."""


KEPT = "What was asked is kept in the session, and answered when it is taken up again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    kind: str
    """What it is, in a word: a provider's failure by its kind, `too_large`, `store`."""
    text: str
    """What happened."""
    next: str
    """What to do now, at the prompt."""
    later: str = KEPT
    """What to do where nobody sits at a prompt."""


def trouble_of(error: BaseException, model: Model | None = None) -> Trouble | None:
    """An error that has a cause outside of us; None for a mistake of ours.

    Whoever knows the model that was asked is told what to change.
    """
    match error:
        case ProviderError():
            return _of_provider(error.failure, None if model is None else whom(model))
        case CannotFit():
            return Trouble(
                kind="too_large",
                text=f"The message cannot be sent: {error}.",
                next="/undo takes it back; /model NAME goes on with a larger window.",
                later="All of it is set in agent.yaml; `trimtab doctor` shows what takes how much.",
            )
        case SessionBusy():
            return Trouble(
                kind="store",
                text=f"This session is open elsewhere: {error}.",
                next="Or go on in a copy: /fork.",
                later="Or go on in a copy: `trimtab session fork`.",
            )
        case StaleOwner():
            return Trouble(
                kind="store",
                text=f"Somebody else writes to this session: {error}.",
                next="End the other one, or go on in a copy: /fork.",
                later="End the other one, or go on in a copy: trimtab session fork.",
            )
        case StoreError():
            return Trouble(
                kind="store",
                text=f"The session cannot be written: {error}.",
                next="When the store is back, Enter goes on; what was stored is safe.",
            )
        case _:
            return None


_SAID = {
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
_NEXT = {
    "overflow": "/compact makes the context smaller; then Enter tries again.",
    "malformed": "/undo takes the last message back; `trimtab session show` tells what was sent.",
    "rate_limit": "Wait a moment; then Enter tries again.",
    "overloaded": "Enter tries again; /model NAME asks another model.",
    "server": "Enter tries again; /model NAME asks another model.",
    "network": "{check}; then Enter tries again.",
    "timeout": "Enter tries again; `timeout` under `model` in agent.yaml allows more time.",
    "auth": "Set {key} to a key that is valid, and start again; `trimtab doctor` checks it.",
    "rejected": "Your next message goes without it; /undo takes it back, Enter tries again.",
    "refused": "Check the model's name and `params` in agent.yaml; `trimtab doctor` checks both.",
}
_LATER = {
    "rate_limit": "Wait a minute.",
    "overloaded": "Try again in a while, or choose another model in agent.yaml.",
    "server": "Try again in a while, or choose another model in agent.yaml.",
    "network": "{check}.",
    "timeout": "`timeout` under `model` in agent.yaml allows more time.",
}
"""What to do where nobody sits at a prompt, before it is taken up again."""
_REJECTED = "It stays in the session's log; the next message goes without it."
_NOT_BY_WAITING = ("auth", "refused")


def _of_provider(failure: Failure, asked: Whom | None) -> Trouble:
    if asked is not None and (failure.kind, failure.status) == ("refused", 404):
        return _not_there(failure, asked)
    status = f" (HTTP {failure.status})" if failure.status else ""
    at = f" at {asked.where}" if asked is not None and failure.kind == "network" else ""
    text = f"{_SAID[failure.kind]}{at}{status}: {_words(failure)}."
    put_in = {
        "key": asked.key if asked else "the provider's variable",
        "check": asked.check if asked else "Check the connection and `base_url` in agent.yaml",
    }
    what_next = _NEXT[failure.kind].format(**put_in)
    if failure.kind == "rate_limit" and failure.retry_after:
        what_next = f"It asks to wait {failure.retry_after:.0f} s; then Enter tries again."
    later = _REJECTED if failure.kind == "rejected" else what_next
    if failure.kind not in (*_NOT_BY_WAITING, "rejected"):
        later = " ".join(filter(None, (_LATER.get(failure.kind, "").format(**put_in), KEPT)))
    return Trouble(kind=failure.kind, text=text, next=what_next, later=later)


def _not_there(failure: Failure, asked: Whom) -> Trouble:
    """A model that is not served, or an address without an API: both are a 404."""
    if asked.own and "model" not in failure.message.lower():
        to_do = "Correct `base_url` under `model` in agent.yaml"
        text = f"There is no such API at {asked.where} (HTTP 404): {_words(failure)}."
        later = f"{to_do}; `trimtab doctor` checks it."
        return Trouble(kind=failure.kind, text=text, next=f"{to_do}, and start again.", later=later)
    meant = like(asked.model)
    guess = f"did you mean {meant}? Set" if meant else "set"
    to_do = f"{guess[:1].upper()}{guess[1:]} `name` under `model` in agent.yaml to one that it has"
    if asked.own:
        to_do += ", or correct `base_url`"
    return Trouble(
        kind=failure.kind,
        text=f"{asked.where} has no model {asked.model!r} (HTTP 404): {_words(failure)}.",
        next=f"{to_do}; /model NAME tries one.",
        later=f"{to_do}; `trimtab doctor` checks both.",
    )


def _words(failure: Failure) -> str:
    said = brief(failure.message, WORDS).removeprefix("Connection error. ")
    return said.rstrip(".")
