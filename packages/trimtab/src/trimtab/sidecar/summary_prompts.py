"""Requests in which a client asks the model to summarise the conversation for itself.

Such a request needs everything that the client lists, and what it answers is the client's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimtab.dialects.json_values import dict_or_none, dicts_in_list

SUMMARY_PROMPTS = (
    "your task is to create a detailed summary of",
    "you are performing a context checkpoint compaction",
    "provide a detailed prompt for continuing our conversation",
    "provide a detailed summary for continuing our conversation",
)
"""The beginnings, in small letters, of texts with which clients ask for a summary."""
MAX_PROMPT_CHARS = max(map(len, SUMMARY_PROMPTS))
TRIGGER_ITEM = "compaction_trigger"
"""The item of Responses that asks the provider for a compaction."""


def asks_for_summary(messages: Sequence[Any]) -> bool:
    """Whether the newest message asks for a summary of the conversation, as a client does."""
    newest = (dict_or_none(messages[-1]) or {}) if messages else {}
    if newest.get("type") == TRIGGER_ITEM:
        return True
    if newest.get("role") != "user":
        return False
    content = newest.get("content")
    texts = [content] if isinstance(content, str) else []
    texts += [part.get("text") for part in dicts_in_list(content)]
    return any(
        text.lstrip()[:MAX_PROMPT_CHARS].lower().startswith(SUMMARY_PROMPTS)
        for text in texts
        if isinstance(text, str)
    )
