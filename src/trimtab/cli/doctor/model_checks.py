"""Whether the provider answers, takes the key, and has the model: one call that costs nothing, or
next to nothing.

Whether what is always sent leaves room for a conversation.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, cast

from trimtab.agent.config.spec import ModelSpec
from trimtab.catalog import (
    describe_retirement,
    find_model_info,
    resolve_model_info,
    suggest_model_name,
)
from trimtab.cli.doctor.findings import (
    Finding,
    make_failure_finding,
    make_ok_finding,
    make_warning_finding,
)
from trimtab.cli.terminal_text_format import join_names
from trimtab.context import Context
from trimtab.dialects import DialectName
from trimtab.prompt.context_report import ContextReport
from trimtab.providers.protocol_and_failures import Provider, ProviderError, ProviderFailureDetails
from trimtab.session.tools import Tool

PROVIDER_TIMEOUT_S = 15.0
"""Seconds that a call may take."""
PROBE_OUTPUT_TOKENS = 16
"""Tokens of output that all providers let one ask for."""
PROVIDERS_WITH_PUBLIC_MODEL_LIST = ("openrouter",)
"""Providers whose list of models anybody may read: it says nothing about a key."""


async def check_provider(
    provider: Provider, model: str, *, provider_name: str | None, key_variable: str | None
) -> AsyncIterator[Finding]:
    """What one call says: about the provider and its key, then about the model."""
    try:
        async with asyncio.timeout(PROVIDER_TIMEOUT_S):
            try:
                names = await _list_model_names(provider)
                if not names or provider_name in PROVIDERS_WITH_PUBLIC_MODEL_LIST:
                    await _send_probe(provider, model)
            except ProviderError as error:
                if error.failure.status not in (404, 405, 501):
                    raise
                # It has no list, or not this one.
                await _send_probe(provider, model)
                names = []
    except TimeoutError:
        yield _finding_for_failure(_timeout_failure(), model, key_variable)
        return
    except ProviderError as error:
        yield _finding_for_failure(error.failure, model, key_variable)
        return
    yield make_ok_finding("provider", "it answers" + (" and takes the key" if key_variable else ""))
    if names:
        yield _check_model_listed(model, names)


async def _list_model_names(provider: Provider) -> list[str]:
    listing: Any = getattr(provider, "list_models", None)
    return [] if listing is None else await listing()


async def _send_probe(provider: Provider, model: str) -> None:
    context = Context(
        model=model,
        dialect=cast("DialectName", provider.dialect),
        policy="full",
        max_output_tokens=PROBE_OUTPUT_TOKENS,
    )
    context.add({"role": "user", "content": "Say yes."})
    with warnings.catch_warnings():
        # That a model is old the catalog says.
        warnings.simplefilter("ignore", DeprecationWarning)
        async for _ in provider.send(context.request()):
            pass


def _check_model_listed(model: str, names: Sequence[str]) -> Finding:
    # Gemini lists `models/gemini-…`; Ollama has `qwen3:latest` for `qwen3`.
    known = {form: name for name in names for form in _model_name_forms(name)}
    if model in known:
        return make_ok_finding("model", f"{model} is there, among {len(names):,}")
    if any(name.startswith(f"{model}-") for name in known):
        return make_ok_finding(
            "model", f"{model} stands for one of the {len(names):,} models there"
        )
    close = get_close_matches(model, known, n=3, cutoff=0.5) or sorted(known)[:3]
    # A list need not hold every alias that is accepted.
    return make_warning_finding(
        "model",
        f"{model} is not among the {len(names):,} models there",
        f"if a call is refused, set model.name to one of them: {', '.join(close)}",
    )


def _model_name_forms(name: str) -> tuple[str, ...]:
    return (name, name.removeprefix("models/"), name.removesuffix(":latest"))


def _finding_for_failure(
    failure: ProviderFailureDetails, model: str, variable: str | None
) -> Finding:
    told = f"{failure.message} (HTTP {failure.status})" if failure.status else failure.message
    key = f"set {variable} to a key that is valid" if variable else "set model.api_key"
    match failure.kind:
        case "auth":
            return make_failure_finding("provider", f"the key was refused: {told}", key)
        case "network" | "timeout":
            return make_failure_finding(
                "provider",
                f"it cannot be reached: {told}",
                "check the connection, a proxy, and model.base_url",
            )
        case "rate_limit" | "overloaded" | "server":
            return make_warning_finding(
                "provider", f"it answers, but not now: {told}", "try again in a while"
            )
        case _ if failure.status == 404:
            meant = suggest_model_name(model) or "a model of this provider"
            return make_failure_finding(
                "model",
                f"{model} is not there: {told}",
                f"set model.name to {meant}, and see that model.base_url is right",
            )
        case _:
            return make_failure_finding(
                "provider", f"it refused a call of one word: {told}", "see model.params"
            )


def _timeout_failure() -> ProviderFailureDetails:
    return ProviderFailureDetails(
        kind="timeout", message=f"no answer within {PROVIDER_TIMEOUT_S:g} seconds"
    )


def check_model_in_catalog(configured: ModelSpec) -> Iterator[Finding]:
    """What is known of the model, and until when its maker serves it."""
    yield _describe_catalog_entry(configured)
    served_by_others = bool(configured.provider or configured.base_url)
    retirement = None if served_by_others else describe_retirement(configured.name)
    if retirement:
        yield make_warning_finding(
            "model", f"{configured.name}: {retirement}", "set model.name to a newer model"
        )


def _describe_catalog_entry(configured: ModelSpec) -> Finding:
    model, context_window = configured.name, configured.context_window
    entry = resolve_model_info(model, configured.model_info)
    size = context_window or entry.context_window
    told = f"window {size:,} tokens, output up to {min(entry.max_output, size):,}"
    if find_model_info(configured.base_model or model) is None:
        unknown = f"{model} is not in the catalog"
        # One that somebody else serves has names of its own there.
        other_provider = bool(configured.provider or configured.base_url)
        if not other_provider and (meant := suggest_model_name(model)):
            to_do = f"did you mean {meant}? Set model.name"
            return make_warning_finding(
                "catalog", f"{unknown}; assumed: {told}; price unknown", to_do
            )
        if context_window:
            return make_ok_finding("catalog", f"{unknown}; by the file: {told}; price unknown")
        to_do = (
            "set model.context_window to what its provider states, or model.model_info to the "
            "model that it is"
        )
        return make_warning_finding("catalog", f"{unknown}; assumed: {told}; price unknown", to_do)
    price = ""
    if entry.input_price is not None and entry.output_price is not None:
        price = f", ${entry.input_price:g} and ${entry.output_price:g} per million"
    named = f"{model} is {entry.name}" if configured.base_model else entry.name
    return make_ok_finding("catalog", f"{named}: {told}{price}")


MAX_FIXED_WINDOW_SHARE = 0.5
"""Share of the window that system prompt, tools and the reply may take before it is said."""


def check_window(context_options: dict[str, Any], tools: Sequence[Tool]) -> Finding:
    """System prompt, tool definitions and the reply against the window."""
    given: dict[str, Any] = {**context_options, "tools": [tool.definition for tool in tools]}
    report = Context(**given).report()
    taken, reply = report.bound, report.output_reserve
    told = (
        f"{report.limit:,} tokens: {taken:,} sent with every call "
        f"({_describe_fixed_tokens(report, tools)}), "
        f"{reply:,} for the reply, {max(0, report.free):,} for the conversation"
    )
    to_do = "shorten the system prompt, leave out tools, or set a larger model.context_window"
    if report.free <= 0:
        short = f"{taken + reply:,} tokens are needed before a word is said, and the window has "
        return make_failure_finding(
            "window", f"{short}{report.limit:,}", f"{to_do}; or a model with a larger one"
        )
    if (taken + reply) / report.limit > MAX_FIXED_WINDOW_SHARE:
        return make_warning_finding("window", told, f"{to_do}; or lower model.max_output_tokens")
    return make_ok_finding("window", told)


def _describe_fixed_tokens(report: ContextReport, tools: Sequence[Tool]) -> str:
    """What is sent with every call, term by term; the terms add up to its upper bound."""
    own = {f"tool definition: {tool.name}" for tool in tools}
    sizes = {"system prompt": 0, "tools": 0, "recall tools": 0, "the provider's for tools": 0}
    for section in report.sections:
        if section.name == "system prompt":
            sizes["system prompt"] += section.tokens
        elif section.name in own:
            sizes["tools"] += section.tokens
        elif section.name.startswith("tool definition: "):
            sizes["recall tools"] += section.tokens
        elif section.name == "tool use":
            sizes["the provider's for tools"] += section.tokens
    sizes["margin"] = report.bound - sum(sizes.values())
    return join_names([f"{size:,} {name}" for name, size in sizes.items() if size])
