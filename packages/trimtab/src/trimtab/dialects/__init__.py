"""Wire formats: convert messages and prompts to and from the format of a provider's API."""

from __future__ import annotations

from typing import Literal

from trimtab.dialects.base import Dialect

DialectName = Literal["anthropic", "openai_chat", "openai_responses"]
"""The names of the wire formats, for annotations."""
DIALECT_NAMES: tuple[DialectName, ...] = ("anthropic", "openai_chat", "openai_responses")
"""The names of the dialects in settings and messages."""


def get_dialect(name: str) -> Dialect:
    """Return the dialect with this name. Only this one is imported."""
    if name == "anthropic":
        from trimtab.dialects.anthropic import codec as anthropic

        return anthropic
    if name == "openai_chat":
        from trimtab.dialects.openai_chat import codec as openai_chat

        return openai_chat
    if name == "openai_responses":
        from trimtab.dialects.openai_responses import codec as openai_responses

        return openai_responses
    raise ValueError(f"unknown dialect {name!r}; choose one of {', '.join(DIALECT_NAMES)}")
