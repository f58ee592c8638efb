"""Who writes summaries, and how one is asked for: as data to be read, in pieces that fit."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal, cast

from trimtab.catalog import ModelInfoValues, resolve_model_info
from trimtab.context import Context
from trimtab.dialects import DialectName, get_dialect
from trimtab.log.event import SummaryAttempt, Usage, add_usage
from trimtab.log.message import Message, make_text_message
from trimtab.providers.protocol_and_failures import Provider, ProviderError
from trimtab.session.spending import CallCharge
from trimtab.summaries.format import (
    DEFAULT_LIST_TOKENS,
    MAX_SECTIONS_TOKENS,
    REQUESTED_SUMMARY_TOKENS,
    cut_sections,
    split_summary,
)
from trimtab.summaries.transcript import join_into_chunks, transcribe_messages
from trimtab.summaries.validate_and_repair import (
    InvalidSummaryError,
    ValidatedSummary,
    validate_summary,
)
from trimtab.tokens.counter import TokenCounter, make_piecewise_counter
from trimtab.tokens.usage_cost_usd import CATALOG_PRICE_KEYS

SUMMARY_TIMEOUT_S = 60.0
"""Seconds that one summary may take, however many calls it needs."""
MAX_SUMMARY_OUTPUT_TOKENS = 2_048
"""Tokens of output that a call asks for: more than the summary, for models that think first."""
MAX_CALLS_PER_SUMMARY = 24
"""Calls for one summary."""
MIN_PIECE_TOKENS = 256
"""Tokens of history that a call must have room for."""
MAX_OVERFLOW_RESTARTS = 2
"""How often a summary is begun again in smaller pieces because a request was refused."""

_TAGS = re.compile(r"<(/?)(prior|history)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summariser:
    """A model that writes summaries."""

    provider: Provider
    """Who is asked, with its retries."""
    model: str
    """The model's name as the provider knows it."""
    context_window: int | None = None
    """Tokens of input and output together; None is the catalog's."""
    timeout: float = SUMMARY_TIMEOUT_S
    """Seconds that one summary may take, however many calls it needs."""
    max_output: int = MAX_SUMMARY_OUTPUT_TOKENS
    """Tokens of output that each call asks for."""
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further request parameters, passed on as they are."""
    model_info: ModelInfoValues | str = field(default_factory=ModelInfoValues)
    """Values of one's own for the model's catalog entry, or the name of the catalog model that a
    deployment of another name is."""
    only_results: bool = False
    """True where it is asked about single tool results alone, and never about the history."""
    prompt: str | None = None
    """What to write, in your own words; None is ours. That the history is data, the headings and
    the 300 tokens are said beside it."""

    def __post_init__(self) -> None:
        if self.prompt is not None and not self.prompt.strip():
            raise ValueError("the summariser's prompt is empty; say what to write, or leave it out")


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryResult:
    """What became of one summary."""

    outcome: Literal["made", "patched", "rejected", "failed"]
    """`patched` where something was put right; `rejected` by a check; `failed` without a text."""
    text: str = ""
    """The summary as it may stand; empty where none may."""
    reason: str = ""
    """What was wrong, with the numbers."""
    calls: int = 0
    """Requests that were made."""
    usage: Usage | None = None
    """What they used, as reported."""
    patched: int = 0
    """Items that the model's text did not say and the list carries."""
    raw: str = ""
    """The model's own text, before any check."""


ValidateSummaryText = Callable[[str], ValidatedSummary]
"""What becomes of a model's text; raises `InvalidSummaryError`."""


@dataclass(slots=True, kw_only=True)
class _SummaryJob:
    """One summary that is asked for."""

    summariser: Summariser
    system: str
    """What the model is told."""
    max_tokens: int
    """Tokens that the summary of one piece may take."""
    calls: int = 0
    usage: Usage | None = None


def build_summary_prompt(replacement_instructions: str | None = None) -> str:
    """What the model is told about a history; `words` say what to write of it instead of ours."""
    told = (
        read_prompt_file("summary_words.txt")
        if replacement_instructions is None
        else replacement_instructions.strip()
    )
    return read_prompt_file("summary.txt").replace("WORDS", told, 1)


@cache
def read_prompt_file(name: str) -> str:
    """A prompt that stands beside this file."""
    return files("trimtab.session").joinpath(name).read_text(encoding="utf-8").strip()


async def make_summary(
    summariser: Summariser,
    messages: Sequence[Message],
    prior_summary: str = "",
    *,
    counter: TokenCounter | None = None,
    max_tokens: int = MAX_SECTIONS_TOKENS,
    list_tokens: int = DEFAULT_LIST_TOKENS,
    replaced_tokens: int | None = None,
    visible_text: str = "",
) -> SummaryResult:
    """A summary of messages and of the summary before them, checked; never raises for a reply.

    `counter` counts the summary, by default as its model does. `replaced` is what the messages and
    the prior take now, in tokens, where the summary has to be smaller. `seen` is what stands behind
    the messages and stays: the list need not repeat it.
    """
    own = counter or build_summariser_counter(summariser)

    def judge(raw: str) -> ValidatedSummary:
        return validate_summary(
            raw,
            prior_summary,
            messages,
            own,
            max_tokens=max_tokens,
            list_tokens=list_tokens,
            replaced_tokens=replaced_tokens,
            visible_text=visible_text,
        )

    return await summarise_texts(
        summariser,
        transcribe_messages(messages),
        judge,
        prior_summary=prior_summary,
        max_tokens=max_tokens,
        system=build_summary_prompt(summariser.prompt),
    )


async def summarise_texts(
    summariser: Summariser,
    texts: list[str],
    validate: ValidateSummaryText,
    *,
    prior_summary: str = "",
    max_tokens: int = MAX_SECTIONS_TOKENS,
    system: str,
) -> SummaryResult:
    """What a model makes of texts, and what is made of that; never raises for a reply."""
    asking, raw = _SummaryJob(summariser=summariser, system=system, max_tokens=max_tokens), ""
    try:
        async with asyncio.timeout(summariser.timeout):
            raw = await _write_summary_text(asking, texts, prior_summary)
        verdict = validate(raw)
    except TimeoutError:
        return _build_failed_result(asking, f"no reply within {summariser.timeout:g} seconds")
    except InvalidSummaryError as error:
        made = SummaryResult(outcome="rejected", reason=str(error), raw=raw)
        return replace(made, calls=asking.calls, usage=asking.usage)
    except ProviderError as error:
        return _build_failed_result(asking, f"{error.failure.kind}: {error.failure.message}"[:200])
    except Exception as error:  # noqa: BLE001 - no summary is worth the turn that it is made for
        return _build_failed_result(asking, f"{type(error).__name__}: {error}"[:200])
    return SummaryResult(
        outcome="patched" if verdict.changed else "made",
        text=verdict.text,
        reason=_describe_fixes(verdict),
        calls=asking.calls,
        usage=asking.usage,
        patched=verdict.patched,
        raw=raw,
    )


def build_summary_attempt(
    summariser: Summariser, result: SummaryResult, counter: TokenCounter, *, at: float | None = None
) -> SummaryAttempt:
    """The record of a summary that was asked for; what it was to stand for is put in later.

    It holds the prices of the day of `at`, in seconds since the epoch; None is now.
    """
    entry = resolve_model_info(summariser.model, summariser.model_info, at=at).to_json()
    return SummaryAttempt(
        first=0,
        last=0,
        outcome=result.outcome,
        model=summariser.model,
        why=result.reason,
        calls=result.calls,
        usage=result.usage,
        prices={name: entry[name] for name in CATALOG_PRICE_KEYS if entry[name] is not None},
        tokens=counter.count(result.text),
        patched=result.patched,
    )


def build_summariser_counter(summariser: Summariser) -> TokenCounter:
    """How the model's own tokens are counted."""
    return make_piecewise_counter(
        resolve_model_info(summariser.model, summariser.model_info).tokenizer
    )


def _build_failed_result(job: _SummaryJob, reason: str) -> SummaryResult:
    return SummaryResult(outcome="failed", reason=reason, calls=job.calls, usage=job.usage)


def _describe_fixes(verdict: ValidatedSummary) -> str:
    told = [
        f"{verdict.patched} items carried in the list" if verdict.patched else "",
        f"{verdict.lost} more only recallable" if verdict.lost else "",
        f"{verdict.removed} lines taken out" if verdict.removed else "",
        "cut to its cap" if verdict.cut else "",
    ]
    return ", ".join(each for each in told if each)


async def _write_summary_text(job: _SummaryJob, texts: list[str], prior: str) -> str:
    """The model's own text; begun again in smaller pieces where a request was too long."""
    summariser = job.summariser
    window = summariser.context_window
    for attempt in range(MAX_OVERFLOW_RESTARTS + 1):
        job.summariser = replace(summariser, context_window=window)
        try:
            return await _summarise_pieces(job, texts, prior)
        except ProviderError as error:
            if error.failure.kind != "overflow" or attempt == MAX_OVERFLOW_RESTARTS:
                raise
            believed = (
                window or resolve_model_info(summariser.model, summariser.model_info).context_window
            )
            window = min(error.failure.limit or believed, believed * 2 // 3)
    raise AssertionError("the last attempt returns or raises")


async def _summarise_pieces(job: _SummaryJob, texts: list[str], prior: str) -> str:
    """One summary of all texts: each piece for itself, then those together, and with the prior."""
    while True:
        context = _create_job_context(job)
        count = context.window.counter
        room = context.budget().room - count.count(_frame_history("", "")) - MIN_PIECE_TOKENS // 4
        known = _shorten_prior_summary(prior, count, room)
        each = room - count.count(known)
        if each < MIN_PIECE_TOKENS:
            limit = context.budget().limit
            raise ValueError(
                f"a window of {limit} tokens leaves no room for a history to summarise"
            )
        pieces = join_into_chunks(texts, count, each)
        if len(pieces) <= 1:
            return await _ask_model(job, _frame_history(known, "".join(pieces)))
        # Half a piece at most, so that two become one and this comes to an end.
        most = min(job.max_tokens, each // 2 - 16)
        parts: list[str] = []
        for number, piece in enumerate(pieces, 1):
            told = await _ask_model(job, _frame_history("", piece))
            if not told.strip():
                raise InvalidSummaryError(f"part {number} of {len(pieces)} is empty")
            parts.append(
                f"summary of part {number} of {len(pieces)}:\n{cut_sections(told, count, most)}"
            )
        texts = parts


def _shorten_prior_summary(prior: str, counter: TokenCounter, room: int) -> str:
    """The prior summary, without its list or its oldest lines where the window is very small."""
    if counter.count(prior) <= room // 2:
        return prior
    return cut_sections(split_summary(prior)[0], counter, max(0, room // 2))


def _frame_history(prior: str, history: str) -> str:
    said, since = (_TAGS.sub(r"‹\1\2", text) for text in (prior, history))
    return (
        f"<prior>\n{said or '(none)'}\n</prior>\n\n<history>\n{since}\n</history>\n\n"
        f"Write the summary now, in at most {REQUESTED_SUMMARY_TOKENS} tokens."
    )


def _create_job_context(job: _SummaryJob) -> Context:
    """A context of its own: limits, margins and the wire's form are the product's."""
    summariser = job.summariser
    window = (
        summariser.context_window
        or resolve_model_info(summariser.model, summariser.model_info).context_window
    )
    return Context(
        summariser.model,
        dialect=cast("DialectName", summariser.provider.dialect),
        system=job.system,
        policy="full",
        context_window=summariser.context_window,
        max_output_tokens=min(summariser.max_output, max(1, window // 4)),
        params=summariser.params,
        model_info=summariser.model_info,
    )


async def _ask_model(job: _SummaryJob, text: str) -> str:
    if job.calls >= MAX_CALLS_PER_SUMMARY:
        raise ValueError(f"it would take more than {MAX_CALLS_PER_SUMMARY} calls")
    context, provider = _create_job_context(job), job.summariser.provider
    context.add(make_text_message("user", text))
    request = _remove_cache_marks(context.request())
    async with (
        CallCharge(context.window) as charge,
        aclosing(cast("Any", provider.send(request))) as events,
    ):
        job.calls += 1
        async for body in events:
            reply = get_dialect(provider.dialect).parse_reply(body)
            charge.record_usage(reply.usage)
            if reply.usage is not None:
                known = job.usage
                job.usage = reply.usage if known is None else add_usage(known, reply.usage)
            return reply.message.text
    return ""


def _remove_cache_marks(value: Any) -> Any:
    """A request without cache marks: nobody sends it again, and writing to a cache costs more."""
    match value:
        case dict():
            given = cast("dict[str, Any]", value)
            return {
                key: _remove_cache_marks(each)
                for key, each in given.items()
                if key != "cache_control"
            }
        case list():
            return [_remove_cache_marks(each) for each in cast("list[Any]", value)]
        case _:
            return value
