"""Check that the provider answers, accepts the key and has the model. One call does it, and it
costs little or nothing.

Check that the fixed part of every request leaves room for a conversation.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, cast

from trimtab.cli.text_format import join_names
from trimtab.context import Context
from trimtab.dialects import DialectName
from trimtab.engine.prompt.report import ContextReport
from trimtab.errors import ProviderError, ProviderFailureDetails
from trimtab.models.catalog import (
    describe_retirement,
    find_model_info,
    resolve_model_info,
    suggest_model_name,
)
from trimtab.providers.base import Provider
from trimtab.session.tools import Tool
from trimtab_serve.agent.config.spec import ModelSpec
from trimtab_serve.cli.doctor.findings import (
    Finding,
    make_failure_finding,
    make_ok_finding,
    make_warning_finding,
)

PROVIDER_TIMEOUT_S = 15.0
"""Seconds that a call may take."""
PROBE_OUTPUT_TOKENS = 16
"""Output tokens of the test call. All providers accept this number."""
PROVIDERS_WITH_PUBLIC_MODEL_LIST = ("openrouter",)
"""Providers whose list of models is public, so that reading it does not test a key."""


async def check_provider(
    provider: Provider,
    model: str,
    *,
    provider_name: str | None,
    key_variable: str | None,
    has_key: bool,
) -> AsyncIterator[Finding]:
    """Check the provider, its key and the model with one call.

    `key_variable` names the place of the key. `has_key` says whether a key was found there.
    """
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
        yield _finding_for_failure(_timeout_failure(), model, key_variable, has_key=has_key)
        return
    except ProviderError as error:
        yield _finding_for_failure(error.failure, model, key_variable, has_key=has_key)
        return
    state = "it answers"
    if key_variable is not None:
        state += " and accepts the key" if has_key else " without a key"
    yield make_ok_finding("provider", state)
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
    names_by_form = {form: name for name in names for form in _model_name_forms(name)}
    if model in names_by_form:
        return make_ok_finding("model", f"the provider lists {model}, among {len(names):,} models")
    if any(name.startswith(f"{model}-") for name in names_by_form):
        return make_ok_finding(
            "model", f"{model} is a short name of one of the provider's {len(names):,} models"
        )
    close = get_close_matches(model, names_by_form, n=3, cutoff=0.5) or sorted(names_by_form)[:3]
    # A list need not hold every alias that is accepted.
    return make_warning_finding(
        "model",
        f"{model} is not among the provider's {len(names):,} models",
        f"if calls are refused, set model.name to one of these: {', '.join(close)}",
    )


def _model_name_forms(name: str) -> tuple[str, ...]:
    return (name, name.removeprefix("models/"), name.removesuffix(":latest"))


def _finding_for_failure(
    failure: ProviderFailureDetails, model: str, variable: str | None, *, has_key: bool
) -> Finding:
    cause = f"{failure.message} (HTTP {failure.status})" if failure.status else failure.message
    key = f"set {variable} to a valid key" if variable else "set model.api_key"
    match failure.kind:
        case "auth" if variable is not None and not has_key:
            return make_failure_finding(
                "provider", f"it does not answer without a key: {cause}", key
            )
        case "auth":
            return make_failure_finding("provider", f"the key was refused: {cause}", key)
        case "network" | "timeout":
            return make_failure_finding(
                "provider",
                f"it cannot be reached: {cause}",
                "check the connection, the proxy and model.base_url",
            )
        case "rate_limit" | "overloaded" | "server":
            return make_warning_finding(
                "provider", f"it cannot answer now: {cause}", "try again later"
            )
        case _ if failure.status == 404:
            likely_model = suggest_model_name(model) or "a model of this provider"
            return make_failure_finding(
                "model",
                f"the provider does not have {model}: {cause}",
                f"set model.name to {likely_model}, and check that model.base_url is right",
            )
        case _:
            return make_failure_finding(
                "provider", f"it refused a test call: {cause}", "check model.params"
            )


def _timeout_failure() -> ProviderFailureDetails:
    return ProviderFailureDetails(
        kind="timeout", message=f"no answer within {PROVIDER_TIMEOUT_S:g} seconds"
    )


def check_model_in_catalog(configured: ModelSpec) -> Iterator[Finding]:
    """Report what the catalog knows of the model, and when its maker retires it."""
    yield _describe_catalog_entry(configured)
    served_by_others = bool(configured.provider or configured.base_url)
    retirement = None if served_by_others else describe_retirement(configured.name)
    if retirement:
        yield make_warning_finding(
            "model", f"{configured.name}: {retirement}", "set model.name to a newer model"
        )


def _describe_catalog_entry(spec: ModelSpec) -> Finding:
    model = spec.name
    context_window = spec.context_window
    entry = resolve_model_info(model, spec.model_info)
    size = context_window or entry.context_window
    sizes = f"window {size:,} tokens, output up to {min(entry.max_output, size):,} tokens"
    if find_model_info(spec.base_model or model) is None:
        unknown = f"{model} is not in the catalog"
        # Another provider may have its own names for models.
        other_provider = bool(spec.provider or spec.base_url)
        if not other_provider and (likely_model := suggest_model_name(model)):
            to_do = f"did you mean {likely_model}? Set model.name"
            return make_warning_finding(
                "catalog", f"{unknown}; assumed: {sizes}; price unknown", to_do
            )
        if context_window:
            return make_ok_finding("catalog", f"{unknown}; set in the file: {sizes}; price unknown")
        to_do = (
            "set model.context_window to the size that the provider states, or set "
            "model.model_info to the known model that this model is based on"
        )
        return make_warning_finding("catalog", f"{unknown}; assumed: {sizes}; price unknown", to_do)
    price = ""
    if entry.input_price is not None and entry.output_price is not None:
        price = f", ${entry.input_price:g} in and ${entry.output_price:g} out per million tokens"
    model_text = f"{model} is {entry.name}" if spec.base_model else entry.name
    return make_ok_finding("catalog", f"{model_text}: {sizes}{price}")


MAX_FIXED_WINDOW_SHARE = 0.5
"""The check warns if system prompt, tools and reply take more than this share of the window."""


def check_window(context_options: dict[str, Any], tools: Sequence[Tool]) -> Finding:
    """Compare the system prompt, the tool definitions and the reply with the window."""
    options: dict[str, Any] = {**context_options, "tools": [tool.definition for tool in tools]}
    report = Context(**options).report()
    overhead = report.bound
    reply = report.output_reserve
    sizes_text = (
        f"{report.limit:,} tokens: {overhead:,} sent with every call "
        f"({_describe_fixed_tokens(report, tools)}), "
        f"{reply:,} for the reply, {max(0, report.free):,} for the conversation"
    )
    to_do = "shorten the system prompt, remove tools, or set a larger model.context_window"
    if report.free <= 0:
        short = f"every call needs {overhead + reply:,} tokens before the first message"
        return make_failure_finding(
            "window",
            f"{short}, but the window has {report.limit:,}",
            f"{to_do}; or choose a model with a larger window",
        )
    if (overhead + reply) / report.limit > MAX_FIXED_WINDOW_SHARE:
        return make_warning_finding(
            "window", sizes_text, f"{to_do}; or lower model.max_output_tokens"
        )
    return make_ok_finding("window", sizes_text)


def _describe_fixed_tokens(report: ContextReport, tools: Sequence[Tool]) -> str:
    """List what is sent with every call. The terms add up to its upper bound."""
    section_names = {f"tool definition: {tool.name}" for tool in tools}
    sizes = {"system prompt": 0, "tools": 0, "recall tools": 0, "provider overhead for tools": 0}
    for section in report.sections:
        if section.name == "system prompt":
            sizes["system prompt"] += section.tokens
        elif section.name in section_names:
            sizes["tools"] += section.tokens
        elif section.name.startswith("tool definition: "):
            sizes["recall tools"] += section.tokens
        elif section.name == "tool use":
            sizes["provider overhead for tools"] += section.tokens
    sizes["margin"] = report.bound - sum(sizes.values())
    return join_names([f"{size:,} {name}" for name, size in sizes.items() if size])
