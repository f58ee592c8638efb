"""Whether the provider answers, takes the key, and has the model: one call that costs nothing, or
next to nothing."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from trimtab.catalog import like, lookup, resolve
from trimtab.cli.doctor.finding import Finding, bad, ok, warn
from trimtab.context import Context
from trimtab.providers.provider import Failure, Provider, ProviderError

PATIENCE = 15.0
"""Seconds that a call may take."""
LEAST = 16
"""Tokens of output that all providers let one ask for."""
OPEN = ("openrouter",)
"""Providers whose list of models anybody may read: it says nothing about a key."""


async def asked(
    provider: Provider, model: str, *, named: str | None, variable: str | None
) -> AsyncIterator[Finding]:
    """What one call says: about the provider and its key, then about the model."""
    try:
        async with asyncio.timeout(PATIENCE):
            try:
                names = await _names(provider)
                if not names or named in OPEN:
                    await _one_word(provider, model)
            except ProviderError as error:
                if error.failure.status not in (404, 405, 501):
                    raise
                # It has no list, or not this one.
                await _one_word(provider, model)
                names = []
    except TimeoutError:
        yield _failed(_silence(), model, variable)
        return
    except ProviderError as error:
        yield _failed(error.failure, model, variable)
        return
    yield ok("provider", "it answers" + (" and takes the key" if variable else ""))
    if names:
        yield _model(model, names)
    if (day := _last_day(provider, model)) is not None:
        yield warn("model", f"{model} ends on {day}", "set model.name to a newer model")


async def _names(provider: Provider) -> list[str]:
    listing: Any = getattr(provider, "models", None)
    return [] if listing is None else await listing()


async def _one_word(provider: Provider, model: str) -> None:
    context = Context(model=model, dialect=provider.dialect, policy="full", max_output_tokens=LEAST)
    context.add({"role": "user", "content": "Say yes."})
    with warnings.catch_warnings():
        # That a model is old is said in a line of its own.
        warnings.simplefilter("ignore", DeprecationWarning)
        async for _ in provider.send(context.request()):
            pass


def _last_day(provider: Provider, model: str) -> str | None:
    """When the model will be gone, as the SDK knows it; None where it does not say."""
    if provider.dialect != "anthropic":
        return None
    sdk = import_module("anthropic.resources.messages.messages")
    known: dict[str, str] = getattr(sdk, "DEPRECATED_MODELS", {})
    return known.get(model)


def _model(model: str, names: Sequence[str]) -> Finding:
    # Gemini lists `models/gemini-…`; Ollama has `qwen3:latest` for `qwen3`.
    known = {form: name for name in names for form in _forms(name)}
    if model in known:
        return ok("model", f"{model} is there, among {len(names):,}")
    if any(name.startswith(f"{model}-") for name in known):
        return ok("model", f"{model} stands for one of the {len(names):,} models there")
    close = get_close_matches(model, known, n=3, cutoff=0.5) or sorted(known)[:3]
    # A list need not hold every alias that is accepted.
    return warn(
        "model",
        f"{model} is not among the {len(names):,} models there",
        f"if a call is refused, set model.name to one of them: {', '.join(close)}",
    )


def _forms(name: str) -> tuple[str, ...]:
    return (name, name.removeprefix("models/"), name.removesuffix(":latest"))


def _failed(failure: Failure, model: str, variable: str | None) -> Finding:
    told = f"{failure.message} (HTTP {failure.status})" if failure.status else failure.message
    key = f"set {variable} to a key that is valid" if variable else "set model.api_key"
    match failure.kind:
        case "auth":
            return bad("provider", f"the key was refused: {told}", key)
        case "network" | "timeout":
            return bad(
                "provider",
                f"it cannot be reached: {told}",
                "check the connection, a proxy, and model.base_url",
            )
        case "rate_limit" | "overloaded" | "server":
            return warn("provider", f"it answers, but not now: {told}", "try again in a while")
        case _ if failure.status == 404:
            meant = like(model) or "a model of this provider"
            return bad(
                "model",
                f"{model} is not there: {told}",
                f"set model.name to {meant}, and see that model.base_url is right",
            )
        case _:
            return bad("provider", f"it refused a call of one word: {told}", "see model.params")


def _silence() -> Failure:
    return Failure(kind="timeout", message=f"no answer within {PATIENCE:g} seconds")


def catalog(model: str, window: int | None, *, elsewhere: bool = False) -> Finding:
    """What is known of the model; one that is asked for `elsewhere` has its own names."""
    entry = resolve(model)
    size = window or entry.context_window
    told = f"window {size:,} tokens, output up to {min(entry.max_output, size):,}"
    if lookup(model) is None:
        unknown = f"{model} is not in the catalog"
        if not elsewhere and (meant := like(model)):
            to_do = f"did you mean {meant}? Set model.name"
            return warn("catalog", f"{unknown}; assumed: {told}; price unknown", to_do)
        if window:
            return ok("catalog", f"{unknown}; by the file: {told}; price unknown")
        to_do = "set model.context_window to what its provider states"
        return warn("catalog", f"{unknown}; assumed: {told}; price unknown", to_do)
    price = ""
    if entry.input_price is not None and entry.output_price is not None:
        price = f", ${entry.input_price:g} and ${entry.output_price:g} per million"
    return ok("catalog", f"{entry.name}: {told}{price}")
