"""Find the calls whose cache was lost, by the usage that the provider reported, and why.

A call should read from the cache what the call before had sent. If it reads much less, the rest was
written again. The log says why: a pause that outlived the cache, text that the client or the
provider removed, another model, or a changed system prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from trimtab.engine.log.event import Usage
from trimtab.models.catalog import resolve_model_info
from trimtab.replay.selection import RecordedConversation

BreakCause = Literal["pause", "compaction", "edit", "head", "model", "unknown"]
MIN_READ_SHARE = 0.9
"""Share of the prompt before that a call reads from an intact cache. Caches grow in steps,
and some are late: 90 % of the recorded calls of Codex read more than this."""
MIN_LOST_TOKENS = 1_024
"""A smaller loss does not count. No provider caches fewer tokens."""
LONG_CACHE_SECONDS = 3_600
"""Seconds that a prefix lives if its client asked for the longer lifetime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheBreak:
    index: int
    """Index of the message that the call produced."""
    cause: BreakCause
    """`pause`: the cache had expired. `compaction`: the client replaced the history by a summary.
    `edit`: earlier text was removed or changed. `head`: system prompt or tools changed. `model`:
    another model. `unknown`: the log shows no reason."""
    tokens: int
    """Tokens that had been sent before and were not read from the cache."""

    @property
    def is_outside(self) -> bool:
        """Whether the cache would have been lost under any policy."""
        return self.cause not in ("compaction", "edit")


def find_cache_breaks(conversation: RecordedConversation) -> dict[int, CacheBreak]:
    """Return the breaks of a conversation by message index."""
    breaks: dict[int, CacheBreak] = {}
    usage = conversation.usage
    indexes = sorted(usage)
    if conversation.part > 1 and indexes:
        first = usage[indexes[0]]
        lost_tokens = first.input - first.cache_read
        if lost_tokens >= MIN_LOST_TOKENS:
            breaks[indexes[0]] = CacheBreak(
                index=indexes[0], cause="compaction", tokens=lost_tokens
            )
    lives_long = False
    for before, index in pairwise(indexes):
        if usage[before].cache_write:
            lives_long = is_long_lived(usage[before])
        lost_tokens = min(usage[before].input, usage[index].input) - usage[index].cache_read
        if (
            usage[index].cache_read < MIN_READ_SHARE * usage[before].input
            and lost_tokens >= MIN_LOST_TOKENS
        ):
            cause = _find_cause(conversation, before, index, lives_long=lives_long)
            breaks[index] = CacheBreak(index=index, cause=cause, tokens=lost_tokens)
    return breaks


def is_long_lived(usage: Usage) -> bool:
    """Return whether most of what was written lives for the longer time."""
    return usage.cache_write_long * 2 > usage.cache_write


def find_pause(conversation: RecordedConversation, before: int, index: int) -> float | None:
    """Return the seconds between two calls. None if the log has no times."""
    times = conversation.times
    return None if times is None else times[index] - times[before]


def _find_cause(
    conversation: RecordedConversation, before: int, index: int, *, lives_long: bool
) -> BreakCause:
    call, last = conversation.recorded[index], conversation.recorded[before]
    usage = conversation.usage
    pause = find_pause(conversation, before, index)
    lifetime = resolve_model_info(last.model or conversation.model or "").cache_ttl
    is_in_head = usage[index].cache_read < MIN_READ_SHARE * usage[min(usage)].input
    if call.model and last.model and call.model != last.model:
        return "model"
    if pause is not None and lifetime and pause > (LONG_CACHE_SECONDS if lives_long else lifetime):
        return "pause"
    if call.edited or usage[index].input < MIN_READ_SHARE * usage[before].input:
        return "edit"
    if pause is None or usage[index].cache_write == 0:
        # Without times a pause cannot be excluded; a cache without marks may lose a prefix early.
        return "unknown"
    return "head" if is_in_head else "edit"
