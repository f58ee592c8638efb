"""When the calls of a recorded conversation were made, by its log or by its usage."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from trimtab.replay.billing import CacheRules
from trimtab.replay.cache_breaks import find_cache_breaks
from trimtab.replay.selection import RecordedConversation


def estimate_message_times(conversation: RecordedConversation) -> list[float]:
    """Return recorded times, or modelled ones: most pauses are short, some outlive a cache.

    After a user message 23 % of the calls found a cold cache, after a tool result 0.6 %.
    """
    if conversation.times is not None:
        return list(conversation.times)
    now, times = 0.0, [0.0]
    for index, message in enumerate(conversation.messages[1:], 1):
        roll = hashlib.sha256(f"{conversation.id}/{index}".encode()).digest()[0] / 256
        if message.role == "assistant":
            now += 5.0
        elif message.role == "user" and not message.results:
            now += 600.0 if roll < 0.23 else 60.0
        else:
            now += 600.0 if roll < 0.006 else 5.0
        times.append(now)
    return times


def estimate_believed_times(conversation: RecordedConversation, lifetime: float) -> list[float]:
    """Return times at which a cache of this lifetime does what the recorded usage shows.

    If usage shows that the prompt was still cached, the pause was short enough for it, whatever the
    log says; if it shows that the cache was lost, the pause outlived it. Without usage, the times
    are those of `estimate_message_times`.
    """
    usage = conversation.usage
    if not usage or not lifetime:
        return estimate_message_times(conversation)
    breaks = find_cache_breaks(conversation)
    recorded = conversation.times
    now = recorded[0] if recorded else 0.0
    times = [now] * len(conversation.messages)
    last: int | None = None
    for index, message in enumerate(conversation.messages):
        times[index] = now
        if message.role != "assistant":
            continue
        pause = 5.0
        if last is not None and recorded is not None:
            pause = recorded[index] - recorded[last]
        if last in usage and index in usage:
            lost = breaks.get(index)
            is_lost = lost is not None and lost.is_outside
            pause = max(pause, lifetime + 1.0) if is_lost else min(pause, lifetime - 1.0)
        now += pause
        times[index], last = now, index
    return times


def with_believed_times(
    conversation: RecordedConversation, rules_by_provider: Mapping[str, CacheRules]
) -> RecordedConversation:
    """Return the conversation at the times that its usage shows for the first provider's cache."""
    first = next(iter(rules_by_provider.values()))
    return replace(conversation, times=tuple(estimate_believed_times(conversation, first.ttl)))
