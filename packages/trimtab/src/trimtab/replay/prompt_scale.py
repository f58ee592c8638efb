"""Learn from recorded usage what the log does not show: the head, and the size of a token.

System prompt and tool definitions are not in most logs, and an estimate is not the provider's
count. Both follow from the usage of a few calls: a prompt has `ratio * (head + messages)` tokens.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise

from trimtab.engine.log.event import Usage
from trimtab.engine.log.message import Message, make_text_message
from trimtab.engine.tokens.counter import (
    TokenCounter,
    make_piecewise_counter,
    measure_message_parts,
    measure_request_head,
)
from trimtab.models.catalog import resolve_model_info
from trimtab.replay.billing import CacheRules
from trimtab.replay.cache_breaks import LONG_CACHE_SECONDS, MIN_READ_SHARE, is_long_lived
from trimtab.replay.payments import with_believed_output
from trimtab.replay.selection import RecordedConversation

PRIOR_TOKENS = 2_000
"""Estimated tokens for which the provider is assumed to agree, until usage shows otherwise."""
RATIO_LIMITS = (0.5, 3.0)
"""Ratios beyond these are errors of a log, not of an estimate."""
_SENTENCE = "This tool reads a file and returns its lines. Name the whole path. "
"""The text of a head that is not in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptScale:
    """How estimated tokens become the provider's. Without usage they stay as they are."""

    ratio: float = 1.0
    """The provider's tokens for each estimated token."""
    head: int = 0
    """Estimated tokens of system prompt and tools, whether the log shows them or not."""
    shared: int = 0
    """The part of the head, in estimated tokens, that is cached even after a pause: other sessions
    of the client use it as well."""
    long_lived: bool = False
    """Whether the client asks for the longer lifetime of its cache."""


def measure_messages(messages: Sequence[Message], counter: TokenCounter) -> list[int]:
    """Return the estimated tokens of each message."""
    return [
        sum(size.tokens for size in measure_message_parts(message, counter)) for message in messages
    ]


def learn_prompt_scale(usage: Mapping[int, Usage], sizes: Sequence[int]) -> PromptScale:
    """Learn the scale of a conversation.

    Args:
        usage: Usage by the index of the message that the call produced: all calls, or the first.
        sizes: Estimated tokens of each message.
    """
    indexes = sorted(usage)
    if not indexes:
        return PromptScale()
    before = [0, *accumulate(sizes)]
    pairs = list(pairwise(indexes))
    growing_pairs = [(a, b) for a, b in pairs if usage[b].input > usage[a].input]
    reported_tokens = sum(usage[b].input - usage[a].input for a, b in growing_pairs)
    estimate = sum(before[b] - before[a] for a, b in growing_pairs)
    ratio = (reported_tokens + PRIOR_TOKENS) / (estimate + PRIOR_TOKENS)
    ratio = min(max(ratio, RATIO_LIMITS[0]), RATIO_LIMITS[1])
    head = statistics.median(usage[index].input / ratio - before[index] for index in indexes)
    cold = [usage[b].cache_read for a, b in pairs if _is_cold(usage[a], usage[b])]
    shared_tokens = statistics.median(cold) if cold else usage[indexes[0]].cache_read
    writes = [usage[index] for index in indexes if usage[index].cache_write]
    return PromptScale(
        ratio=ratio,
        head=max(0, round(head)),
        shared=round(min(shared_tokens / ratio, max(0, head))),
        long_lived=sum(map(is_long_lived, writes)) * 2 > len(writes),
    )


def add_head_stand_in(
    conversation: RecordedConversation, scale: PromptScale, counter: TokenCounter
) -> RecordedConversation:
    """Add to the system prompt a text as long as what the log does not show.

    A policy then decides with the room that is really left.
    """
    head_tokens = measure_request_head(conversation.system, conversation.tools, counter).tokens
    missing = scale.head - head_tokens
    if missing <= 0:
        return conversation
    text = _make_text(missing, counter)
    return replace(conversation, system=(*conversation.system, make_text_message("system", text)))


@lru_cache(maxsize=4)
def _make_text(tokens: int, counter: TokenCounter) -> str:
    """Return a text of about so many estimated tokens."""
    chars, text = 4 * tokens, ""
    for _ in range(3):
        # The weights of a family decide how many tokens a sentence has: measured, not assumed.
        text = (_SENTENCE * (chars // len(_SENTENCE) + 1))[:chars]
        chars = max(1, round(chars * tokens / max(1, counter.count(text))))
    return text


def _is_cold(before: Usage, usage: Usage) -> bool:
    return usage.cache_read < MIN_READ_SHARE * before.input


@lru_cache(maxsize=16)
def make_counter(model: str) -> TokenCounter:
    """Return the counter with which a context of this model estimates."""
    entry = resolve_model_info(model)
    return make_piecewise_counter(entry.tokenizer, entry.picture_rule)


def choose_output_tokens(
    reported: Usage | None, reply: Message, estimated: int, scale: PromptScale
) -> int:
    """Return the tokens of a reply: as reported, if the report can be believed."""
    if reported is None:
        return round(estimated * scale.ratio)
    return with_believed_output(reported, reply).output


def with_learned_lifetime(
    rules_by_provider: Mapping[str, CacheRules], scale: PromptScale
) -> dict[str, CacheRules]:
    """Return the rules with the longer lifetime, if the client asked for it."""
    if not scale.long_lived:
        return dict(rules_by_provider)
    return {
        name: replace(rules, ttl=float(LONG_CACHE_SECONDS)) if rules.style == "marks" else rules
        for name, rules in rules_by_provider.items()
    }
