"""What a client can be told about its context: when it compacts, and what it keeps of a result.

A compaction replaces what was said by a summary that a model writes. Its text is not known, so all
that it replaces counts as hidden: nobody has measured how much of it a good summary would tell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trimtab.engine.log.message import Message
from trimtab.replay.needs import ShownText, join_message_text

COMPACTION_OUTPUT_TOKENS = 3_000
"""Tokens that the model writes for a compaction: 9,000 to 18,000 characters in recorded sessions of
Claude Code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The settings under which a client sends a conversation. By default as it was recorded."""

    compact_at: int | None = None
    """The client compacts before a call with a larger prompt, in the provider's tokens."""
    compacted_tokens: int = 15_000
    """Tokens after a compaction beside system prompt, tools and kept messages: the summary, and
    the files that Claude Code reads again. Recorded sessions have 11,000 to 19,000."""
    kept_user_tokens: int = 0
    """Tokens of the user's messages that a compaction keeps, the newest first."""
    max_result_tokens: int | None = None
    """A longer result of a tool is cut to its two ends."""
    cut_from: float = 1.0
    """Results above this many times `max_result_tokens` are cut."""
    capped_tools: str = ".*"
    """The names of the tools whose results are cut, as a pattern."""
    max_capped_chars: float = float("inf")
    """A longer result stays as it is, because the client has stored it elsewhere."""


AS_RECORDED = ClientSettings()


def cut_results(
    settings: ClientSettings, messages: Sequence[Message], sizes: Sequence[int]
) -> tuple[list[int], dict[int, ShownText]]:
    """Return the size of each message as sent, and the texts of those that are cut."""
    sent_sizes, cut = list(sizes), dict[int, ShownText]()
    limit = settings.max_result_tokens
    if limit is None:
        return sent_sizes, cut
    tools: dict[str, str] = {}
    for index, message in enumerate(messages):
        tools.update((call.id, call.name) for call in message.calls)
        chars = sum(len(result.text) for result in message.results)
        if sizes[index] <= limit * settings.cut_from or not _may_cut(
            settings, message, tools, chars
        ):
            continue
        # Results of one message share its size, so each keeps the same share of its text.
        text = join_message_text(message)
        end = max(1, len(text) * limit * len(message.results) // sizes[index] // 2)
        if 2 * end < len(text):
            cut[index] = ShownText(f"{text[:end]}\n…\n{text[-end:]}")
            sent_sizes[index] = limit * len(message.results)
    return sent_sizes, cut


def _may_cut(
    settings: ClientSettings, message: Message, tools: Mapping[str, str], chars: int
) -> bool:
    return 0 < chars <= settings.max_capped_chars and all(
        not result.is_error and re.fullmatch(settings.capped_tools, tools.get(result.call_id, ""))
        for result in message.results
    )


def list_kept_messages(
    settings: ClientSettings, messages: Sequence[Message], sizes: Sequence[int], end: int
) -> list[int]:
    """Return the user's messages before `end` that a compaction keeps."""
    kept: list[int] = []
    room = settings.kept_user_tokens
    for index in range(end - 1, -1, -1):
        message = messages[index]
        if message.role == "user" and not message.results:
            room -= sizes[index]
            if room < 0:
                break
            kept.insert(0, index)
    return kept
