"""Which recorded conversations are measured, and at which model and window.

Nothing is tuned on what is held out. The split is by repository, as far as that can be: all coding
sessions of the corpus come from one company's Go repositories, most of them from one, which is the
one to tune on. The others are held out as a whole.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from benchmarks import corpus
from benchmarks.halves import take_half
from trimtab.replay.billing import ProviderPricing, get_provider_pricing
from trimtab.replay.selection import RecordedConversation

CLAUDE_MODEL, OPENAI_MODEL = "claude-sonnet-4-5", "gpt-5"
WINDOW = 200_000
LONG_CALLS = 25
"""Calls from which on a conversation counts as long."""
SHORT_CALLS = 30
"""Calls below which a conversation is in the sample of short ones."""
POPULATION_CONVERSATIONS = 12
"""Conversations of each population: the first by a hash of the id."""
QUICK_CONVERSATIONS = 2
"""Conversations of each sample in a quick run."""
FIRST_SAMPLE = "window_200k"
TUNING_REPOSITORIES = frozenset({"entireio/cli"})
POPULATIONS = {
    "claude_code_typescript": CLAUDE_MODEL,
    "claude_code_various": CLAUDE_MODEL,
    "claude_code_go_other": CLAUDE_MODEL,
    "opencode_copilot_pi": CLAUDE_MODEL,
    "codex_rust": OPENAI_MODEL,
    "codex_typescript": OPENAI_MODEL,
    "mini_swe_agent_python": OPENAI_MODEL,
}
"""The files of other people's conversations, with the model whose prices and cache rules apply: by
the form of their usage. Nothing is tuned on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Conversations that are measured together."""

    name: str
    """The name in reports."""
    conversations: tuple[RecordedConversation, ...]
    """In the order of a hash, so that the first ones are a sample of all."""
    model: str = CLAUDE_MODEL
    """The model whose prices, cache rules and tokenizer apply."""
    window: int = WINDOW
    """The window in tokens."""

    @property
    def provider(self) -> ProviderPricing:
        return get_provider_pricing(self.model)

    @property
    def calls(self) -> int:
        return sum(one.calls for one in self.conversations)


def add_sample_arguments(arguments: argparse.ArgumentParser) -> None:
    """Add the arguments that choose samples."""
    arguments.add_argument("--jobs", type=int, default=None, help="processes; all cores by default")
    arguments.add_argument(
        "--populations", action="store_true", help="also other people's conversations"
    )
    arguments.add_argument(
        "--sample", type=int, default=None, help="conversations of each sample; default all"
    )


def count_conversations(asked: argparse.Namespace) -> int | None:
    """Return the number of conversations of each sample; None for all."""
    return QUICK_CONVERSATIONS if asked.quick else asked.sample


def choose_samples(asked: argparse.Namespace) -> Iterator[Sample]:
    """Yield the samples that the arguments ask for; the first is that of the held-out
    repositories and of the half that was held out before."""
    count = count_conversations(asked)
    yield _join_splits(count)
    yield from _list_samples(count)
    if asked.populations:
        yield from _list_populations(count)


def _join_splits(count: int | None) -> Sample:
    """Return what is held out by repository, and what was by the hash of the id."""
    by_id = {one.id: one for one in (*sample_long(count), *sample_half()[:count])}
    return Sample(name=FIRST_SAMPLE, conversations=tuple(sort_by_hash(by_id.values())))


def _list_samples(count: int | None = None) -> Iterator[Sample]:
    """Yield the samples beside the first: other windows, and another client at other prices.

    Args:
        count: The number of conversations of each; None for all.
    """
    held_out = tuple(sample_long(count))
    yield Sample(name="window_1m", conversations=held_out, window=1_000_000)
    yield Sample(name="window_64k", conversations=held_out, window=64_000)
    codex = sort_by_hash(_take_long(_read("entire_codex*.jsonl.gz")))
    yield Sample(name="codex", conversations=tuple(codex[:count]), model=OPENAI_MODEL)


def _list_populations(count: int | None = None) -> Iterator[Sample]:
    """Yield conversations of other people, one file at a time."""
    for name, model in POPULATIONS.items():
        long = sort_by_hash(_take_long(_read(f"populations/{name}.jsonl.gz")))
        yield Sample(
            name=name, conversations=tuple(long[: count or POPULATION_CONVERSATIONS]), model=model
        )


def sample_long(count: int | None = None) -> list[RecordedConversation]:
    """Return long conversations of the repositories that are held out: the first, or all."""
    long = _take_long(_read_claude_code())
    held_out = [one for one in long if get_repository(one) not in TUNING_REPOSITORIES]
    return sort_by_hash(held_out)[:count]


def sample_half(min_calls: int = LONG_CALLS) -> list[RecordedConversation]:
    """Return the half of all repositories that the hash of the id held out at first."""
    half = take_half(_read_claude_code(), "odd")
    return sort_by_hash(one for one in half if one.calls >= max(1, min_calls))


def sample_short(count: int | None) -> tuple[RecordedConversation, ...]:
    """Return the short conversations of that half: the first, or all."""
    short = [one for one in sample_half(min_calls=1) if one.calls < SHORT_CALLS]
    return tuple(short[:count])


def get_repository(conversation: RecordedConversation) -> str:
    return conversation.source.partition("@")[0]


def sort_by_hash(conversations: Iterable[RecordedConversation]) -> list[RecordedConversation]:
    return sorted(conversations, key=lambda one: hash_id(one.id))


def hash_id(conversation_id: str) -> str:
    return hashlib.sha256(conversation_id.encode()).hexdigest()


def shorten_id(conversation_id: str) -> str:
    """Return a hash that names a conversation in stored results."""
    return hash_id(conversation_id)[:12]


def _take_long(conversations: Iterable[RecordedConversation]) -> Sequence[RecordedConversation]:
    return [one for one in conversations if one.calls >= LONG_CALLS]


@cache
def _read_claude_code() -> tuple[RecordedConversation, ...]:
    return tuple(_read("entire_claude_code*.jsonl.gz"))


def _read(pattern: str) -> Iterator[RecordedConversation]:
    """Read conversations up to where their agents themselves compacted."""
    return (one for one in corpus.read_recorded(pattern) if one.part == 1)
