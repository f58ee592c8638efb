"""One comparison: which conversations, which setups, what came out, and how it was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trimtab.catalog import resolve
from trimtab.replay.conversation import Conversation
from trimtab.replay.costs import FETCH_OUTPUT, SUMMARY_OUTPUT
from trimtab.replay.providers import Provider
from trimtab.replay.references import FAR
from trimtab.replay.run import Run, Setup
from trimtab.replay.table import RESAMPLES, Row, table

ENOUGH = (3, 30)
"""Conversations, and calls of each on average, below which a comparison is an anecdote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    conversations: tuple[Conversation, ...]
    """Those that were replayed."""
    setups: tuple[Setup, ...]
    """What they were run under; the first is what the others are compared with."""
    runs: tuple[Run, ...]
    """Each conversation under each setup."""
    providers: tuple[Provider, ...]
    """Whose caches the runs were billed by; the first is the model's own."""
    rows: tuple[Row, ...]
    """The runs added up, one for each setup."""

    @property
    def model(self) -> str:
        return self.setups[0].model

    @property
    def window(self) -> int:
        """Tokens of input and output together."""
        entry = resolve(self.model)
        return int(self.setups[0].options.get("context_window", entry.context_window))

    @property
    def calls(self) -> int:
        """Model calls that were recorded."""
        return sum(conversation.calls for conversation in self.conversations)

    @property
    def recorded_times(self) -> int:
        """Conversations whose pauses were recorded."""
        return sum(conversation.times is not None for conversation in self.conversations)

    @property
    def title(self) -> str:
        """What was replayed, in one line."""
        many = counted(len(self.conversations), "conversation")
        return f"{many}, {counted(self.calls, 'call')}, {self.model}, window {self.window:,}"

    def sources(self) -> Counter[str]:
        """How many conversations come from where."""
        return Counter(_source(conversation.source) for conversation in self.conversations)

    def gaps(self) -> str:
        """Where the pauses between calls come from."""
        recorded, many = self.recorded_times, len(self.conversations)
        model = (
            "modelled (5 s after a tool result, 0.6 % of them 10 min; 60 s before a user's "
            "message, 23 % of them 10 min; by a hash, so they repeat)"
        )
        if recorded == many:
            return "pauses between calls: as recorded"
        if not recorded:
            return f"pauses between calls: {model}"
        return f"pauses between calls: recorded in {recorded} of {many}, else {model}"

    def without_system(self) -> str:
        """What is missing where recordings have no system prompt; empty where all have one."""
        bare = sum(not conversation.system for conversation in self.conversations)
        if not bare:
            return ""
        return (
            f"{bare} of {len(self.conversations)} recordings have no system prompt; what it and "
            "the tools weigh there is not counted"
        )

    def too_little(self) -> str:
        """Why nobody should judge by this; empty where there is enough of it."""
        many = len(self.conversations)
        if many >= ENOUGH[0] and self.calls >= many * ENOUGH[1]:
            return ""
        return (
            f"too little to judge by: {counted(many, 'conversation')} with "
            f"{counted(round(self.calls / many), 'call')} on average; take {ENOUGH[0]} or more "
            f"with {ENOUGH[1]} calls or more each"
        )

    def brief(self) -> list[str]:
        """What to know before reading a table, in a few lines."""
        return [
            *filter(None, [self.too_little(), self.without_system(), self.left_out()]),
            "cost: fresh input tokens per call, as the provider's cache bills them",
            f"× cheaper: than {self.setups[0].name}, with a 95 % interval",
            "recall: share of what the agent went back to that the request still shows",
        ]

    def left_out(self) -> str:
        """How many calls are not counted; empty where all are."""
        refused = sum(row.cannot_fit for row in self.rows)
        verb = "is" if refused == 1 else "are"
        told = f"{counted(refused, 'call')} could not be made to fit and {verb} left out"
        return told if refused else ""

    def notes(self) -> list[str]:
        """What the numbers mean, for the reader of a table."""
        first, own = self.setups[0].name, self.providers[0].name
        models = ", ".join(f"{p.name} = {p.model}" for p in self.providers if p.name != "no cache")
        notes = (
            "cost per call is in fresh input tokens: input as the cache bills it, output, and "
            "summary calls (the summariser reads what is summarised and writes "
            f"{SUMMARY_OUTPUT} tokens, at a third of the price); {models}\n"
            f"policies decide by {own}'s prices; the other columns bill the same prompts\n"
            f"× cheaper: {first}'s cost over the row's, with a 95 % interval over conversations "
            f"({RESAMPLES:,} resamples)\n"
            "re-fetch: each call that lost references pays the write of what held them and one "
            f"more call that reads the prompt and writes {FETCH_OUTPUT} tokens\n"
            "recall: share of identifiers, paths and quoted strings in tool-call arguments, said "
            "before, that the request still shows; far: last mentioned more than "
            f"{FAR} messages before; tool: only ever in tool results\n"
            "breaks: calls whose prompt does not extend the last one; uncached: input that was "
            "not read from the cache, what a first token waits for\n"
            f"{self.gaps()}\n"
            f"tokens are estimates of the {self.tokenizer} family; replies are as recorded, "
            "whatever a policy hides"
        ).split("\n")
        return [*notes, *filter(None, [self.without_system(), self.left_out(), self.too_little()])]

    @property
    def tokenizer(self) -> str:
        """The family whose weights estimate the tokens."""
        return resolve(self.model).tokenizer or "default"

    def to_json(self) -> dict[str, Any]:
        """Everything but the single calls, as plain JSON values."""
        many = len(self.conversations)
        return {
            "model": self.model,
            "window": self.window,
            "tokenizer": self.tokenizer,
            "conversations": many,
            "sources": dict(self.sources()),
            "calls": self.calls,
            "pauses": {"recorded": self.recorded_times, "modelled": many - self.recorded_times},
            "providers": [asdict(provider) for provider in self.providers],
            "setups": [row.to_json() for row in self.rows],
            "notes": self.notes(),
        }


def study_of(
    conversations: Sequence[Conversation],
    setups: Sequence[Setup],
    runs: Sequence[Run],
    providers: Sequence[Provider],
) -> Study:
    """Runs with what they came from, added up."""
    return Study(
        conversations=tuple(conversations),
        setups=tuple(setups),
        runs=tuple(runs),
        providers=tuple(providers),
        rows=tuple(table(runs, providers)),
    )


def counted(count: int, noun: str) -> str:
    """`1 call`, `1,200 calls`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _source(source: str) -> str:
    """Without what names a single file of it."""
    return source.partition("@")[0].partition(":")[0]
