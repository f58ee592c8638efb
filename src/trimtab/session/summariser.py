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

from trimtab.catalog import resolve
from trimtab.context import Context
from trimtab.core.event import Attempt, Usage, added
from trimtab.core.message import Message, text_message
from trimtab.core.prices import PRICES
from trimtab.core.serial import chunked, serialised
from trimtab.core.summary_text import ASKED_TOKENS, LIST_TOKENS, MAX_TOKENS, cut, split
from trimtab.core.tokens import Counter, piecewise
from trimtab.core.verdict import Rejected, Verdict, judged
from trimtab.dialects import dialect
from trimtab.providers.provider import Provider, ProviderError

TIMEOUT = 60.0
"""Seconds that one summary may take, however many calls it needs."""
MAX_OUTPUT = 2_048
"""Tokens of output that a call asks for: more than the summary, for models that think first."""
MAX_CALLS = 24
"""Calls for one summary."""
LEAST_PIECE = 256
"""Tokens of history that a call must have room for."""
OVERFLOWS = 2
"""How often a summary is begun again in smaller pieces because a request was refused."""

_TAGS = re.compile(r"<(/?)(prior|history)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summariser:
    """A model that writes summaries."""

    provider: Provider
    """Who is asked, with its retries."""
    model: str
    """The model's name as the provider knows it."""
    window: int | None = None
    """Tokens of input and output together; None is the catalog's."""
    timeout: float = TIMEOUT
    """Seconds that one summary may take, however many calls it needs."""
    max_output: int = MAX_OUTPUT
    """Tokens of output that each call asks for."""
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further request parameters, passed on as they are."""
    entry: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values of one's own for the model's catalog entry."""
    only_results: bool = False
    """True where it is asked about single tool results alone, and never about the history."""
    prompt: str | None = None
    """What to write, in your own words; None is ours. That the history is data, the headings and
    the 300 tokens are said beside it."""

    def __post_init__(self) -> None:
        if self.prompt is not None and not self.prompt.strip():
            raise ValueError("the summariser's prompt is empty; say what to write, or leave it out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What became of one summary."""

    outcome: Literal["made", "patched", "rejected", "failed"]
    """`patched` where something was put right; `rejected` by a check; `failed` without a text."""
    text: str = ""
    """The summary as it may stand; empty where none may."""
    why: str = ""
    """What was wrong, with the numbers."""
    calls: int = 0
    """Requests that were made."""
    usage: Usage | None = None
    """What they used, as reported."""
    patched: int = 0
    """Items that the model's text did not say and the list carries."""
    raw: str = ""
    """The model's own text, before any check."""


Judge = Callable[[str], Verdict]
"""What becomes of a model's text; raises `Rejected`."""


@dataclass(slots=True, kw_only=True)
class _Asking:
    """One summary that is asked for."""

    summariser: Summariser
    system: str
    """What the model is told."""
    max_tokens: int
    """Tokens that the summary of one piece may take."""
    calls: int = 0
    usage: Usage | None = None


def prompt(words: str | None = None) -> str:
    """What the model is told about a history; `words` say what to write of it instead of ours."""
    told = text_of("summary_words.txt") if words is None else words.strip()
    return text_of("summary.txt").replace("WORDS", told, 1)


@cache
def text_of(name: str) -> str:
    """A prompt that stands beside this file."""
    return files("trimtab.session").joinpath(name).read_text(encoding="utf-8").strip()


async def make_summary(
    summariser: Summariser,
    messages: Sequence[Message],
    prior: str = "",
    *,
    counter: Counter | None = None,
    max_tokens: int = MAX_TOKENS,
    list_tokens: int = LIST_TOKENS,
    replaced: int | None = None,
    seen: str = "",
) -> Made:
    """A summary of messages and of the summary before them, checked; never raises for a reply.

    `counter` counts the summary, by default as its model does. `replaced` is what the messages and
    the prior take now, in tokens, where the summary has to be smaller. `seen` is what stands behind
    the messages and stays: the list need not repeat it.
    """
    own = counter or counter_of(summariser)

    def judge(raw: str) -> Verdict:
        return judged(
            raw,
            prior,
            messages,
            own,
            max_tokens=max_tokens,
            list_tokens=list_tokens,
            replaced=replaced,
            seen=seen,
        )

    return await made_of(
        summariser,
        serialised(messages),
        judge,
        prior=prior,
        max_tokens=max_tokens,
        system=prompt(summariser.prompt),
    )


async def made_of(
    summariser: Summariser,
    texts: list[str],
    judge: Judge,
    *,
    prior: str = "",
    max_tokens: int = MAX_TOKENS,
    system: str,
) -> Made:
    """What a model makes of texts, and what is made of that; never raises for a reply."""
    asking, raw = _Asking(summariser=summariser, system=system, max_tokens=max_tokens), ""
    try:
        async with asyncio.timeout(summariser.timeout):
            raw = await _text(asking, texts, prior)
        verdict = judge(raw)
    except TimeoutError:
        return _failed(asking, f"no reply within {summariser.timeout:g} seconds")
    except Rejected as error:
        made = Made(outcome="rejected", why=str(error), raw=raw)
        return replace(made, calls=asking.calls, usage=asking.usage)
    except ProviderError as error:
        return _failed(asking, f"{error.failure.kind}: {error.failure.message}"[:200])
    except Exception as error:  # noqa: BLE001 - no summary is worth the turn that it is made for
        return _failed(asking, f"{type(error).__name__}: {error}"[:200])
    return Made(
        outcome="patched" if verdict.changed else "made",
        text=verdict.text,
        why=_put_right(verdict),
        calls=asking.calls,
        usage=asking.usage,
        patched=verdict.patched,
        raw=raw,
    )


def attempt_of(summariser: Summariser, made: Made, counter: Counter) -> Attempt:
    """The record of a summary that was asked for; what it was to stand for is put in later."""
    entry = resolve(summariser.model, summariser.entry).to_json()
    return Attempt(
        first=0,
        last=0,
        outcome=made.outcome,
        model=summariser.model,
        why=made.why,
        calls=made.calls,
        usage=made.usage,
        prices={name: entry[name] for name in PRICES if entry[name] is not None},
        tokens=counter.count(made.text),
        patched=made.patched,
    )


def counter_of(summariser: Summariser) -> Counter:
    """How the model's own tokens are counted."""
    return piecewise(resolve(summariser.model, summariser.entry).tokenizer)


def _failed(asking: _Asking, why: str) -> Made:
    return Made(outcome="failed", why=why, calls=asking.calls, usage=asking.usage)


def _put_right(verdict: Verdict) -> str:
    told = [
        f"{verdict.patched} items carried in the list" if verdict.patched else "",
        f"{verdict.lost} more only recallable" if verdict.lost else "",
        f"{verdict.removed} lines taken out" if verdict.removed else "",
        "cut to its cap" if verdict.cut else "",
    ]
    return ", ".join(each for each in told if each)


async def _text(asking: _Asking, texts: list[str], prior: str) -> str:
    """The model's own text; begun again in smaller pieces where a request was too long."""
    summariser = asking.summariser
    window = summariser.window
    for attempt in range(OVERFLOWS + 1):
        asking.summariser = replace(summariser, window=window)
        try:
            return await _merged(asking, texts, prior)
        except ProviderError as error:
            if error.failure.kind != "overflow" or attempt == OVERFLOWS:
                raise
            believed = window or resolve(summariser.model, summariser.entry).context_window
            window = min(error.failure.limit or believed, believed * 2 // 3)
    raise AssertionError("the last attempt returns or raises")


async def _merged(asking: _Asking, texts: list[str], prior: str) -> str:
    """One summary of all texts: each piece for itself, then those together, and with the prior."""
    while True:
        context = _context(asking)
        count = context.window.counter
        room = context.budget().room - count.count(_framed("", "")) - LEAST_PIECE // 4
        known = _within(prior, count, room)
        each = room - count.count(known)
        if each < LEAST_PIECE:
            limit = context.budget().limit
            raise ValueError(
                f"a window of {limit} tokens leaves no room for a history to summarise"
            )
        pieces = chunked(texts, count, each)
        if len(pieces) <= 1:
            return await _ask(asking, _framed(known, "".join(pieces)))
        # Half a piece at most, so that two become one and this comes to an end.
        most = min(asking.max_tokens, each // 2 - 16)
        parts: list[str] = []
        for number, piece in enumerate(pieces, 1):
            told = await _ask(asking, _framed("", piece))
            if not told.strip():
                raise Rejected(f"part {number} of {len(pieces)} is empty")
            parts.append(f"summary of part {number} of {len(pieces)}:\n{cut(told, count, most)}")
        texts = parts


def _within(prior: str, counter: Counter, room: int) -> str:
    """The prior summary, without its list or its oldest lines where the window is very small."""
    if counter.count(prior) <= room // 2:
        return prior
    return cut(split(prior)[0], counter, max(0, room // 2))


def _framed(prior: str, history: str) -> str:
    said, since = (_TAGS.sub(r"‹\1\2", text) for text in (prior, history))
    return (
        f"<prior>\n{said or '(none)'}\n</prior>\n\n<history>\n{since}\n</history>\n\n"
        f"Write the summary now, in at most {ASKED_TOKENS} tokens."
    )


def _context(asking: _Asking) -> Context:
    """A context of its own: limits, margins and the wire's form are the product's."""
    summariser = asking.summariser
    window = summariser.window or resolve(summariser.model, summariser.entry).context_window
    return Context(
        summariser.model,
        dialect=summariser.provider.dialect,
        system=asking.system,
        policy="full",
        context_window=summariser.window,
        max_output_tokens=min(summariser.max_output, max(1, window // 4)),
        params=summariser.params,
        entry=summariser.entry,
    )


async def _ask(asking: _Asking, text: str) -> str:
    if asking.calls >= MAX_CALLS:
        raise ValueError(f"it would take more than {MAX_CALLS} calls")
    context, provider = _context(asking), asking.summariser.provider
    context.add(text_message("user", text))
    request = _unmarked(context.request())
    asking.calls += 1
    async with aclosing(cast("Any", provider.send(request))) as events:
        async for body in events:
            reply = dialect(provider.dialect).read_reply(body)
            if reply.usage is not None:
                known = asking.usage
                asking.usage = reply.usage if known is None else added(known, reply.usage)
            return reply.message.text
    return ""


def _unmarked(value: Any) -> Any:
    """A request without cache marks: nobody sends it again, and writing to a cache costs more."""
    match value:
        case dict():
            given = cast("dict[str, Any]", value)
            return {key: _unmarked(each) for key, each in given.items() if key != "cache_control"}
        case list():
            return [_unmarked(each) for each in cast("list[Any]", value)]
        case _:
            return value
