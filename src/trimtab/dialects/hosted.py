"""Tools that a provider runs itself, and whose they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_ANTHROPIC = re.compile(r".+_\d{8}|mcp_toolset")
_RESPONSES = re.compile(
    r"web_search(_preview)?(_\d{4}_\d\d_\d\d)?|file_search|computer(_use_preview)?|mcp|"
    r"image_generation|(local_)?shell|apply_patch|tool_search|namespace|programmatic_tool_calling"
)
_BOTH_OF_OPENAI = "code_interpreter"
"""Servers that speak Chat Completions have one of that name, too."""


def owners(wire: Mapping[str, Any]) -> tuple[str, ...]:
    """The dialects that know a tool which its provider runs; empty where that is not known."""
    kind = str(wire.get("type"))
    if kind == _BOTH_OF_OPENAI:
        return ("openai_responses", "openai_chat")
    # A body under its own type is how some servers write theirs in Chat Completions.
    if _RESPONSES.fullmatch(kind) and kind not in wire:
        return ("openai_responses",)
    return ("anthropic",) if _ANTHROPIC.fullmatch(kind) else ()
