"""Explicit cache breakpoints, which OpenAI accepts on content parts from GPT-5.6 on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trimtab.dialects.json_values import dict_or_none, list_or_none
from trimtab.engine.prompt.render import Prompt, PromptBlock, SentBlocks

_GPT_VERSION = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?![\d.])")
_BREAKPOINT_KEY = "prompt_cache_breakpoint"
_BREAKPOINT: Mapping[str, Any] = {"mode": "explicit"}
_CHAT_PARTS = ("text", "image_url", "input_audio", "file")
_ITEM_PARTS = ("input_text", "input_image", "input_file")
_Bodies = list[Mapping[str, Any]]
_AddToBodies = Callable[[Sequence[Mapping[str, Any]], int, Sequence[int]], _Bodies]
_AddBreakpoint = Callable[[Mapping[str, Any]], dict[str, Any] | None]


def accepts_cache_breakpoints(model: str) -> bool:
    """Whether a model is known to accept them. Others cache by themselves, or reject the field."""
    match = _GPT_VERSION.match(model)
    return match is not None and (int(match[1]), int(match[2] or 0)) >= (5, 6)


def add_cache_breakpoints_to_messages(
    messages: Sequence[Mapping[str, Any]], system_count: int, block_indexes: Sequence[int]
) -> _Bodies:
    """Add breakpoints to copies of Chat messages.

    The first `system_count` are the system prompt.
    """
    return _add_breakpoints(messages, system_count, block_indexes, _message_with_breakpoint)


def add_cache_breakpoints_to_items(
    items: Sequence[Mapping[str, Any]], system_count: int, block_indexes: Sequence[int]
) -> _Bodies:
    """Add breakpoints to copies of Responses items.

    The first `system_count` are the system prompt.
    """
    return _add_breakpoints(items, system_count, block_indexes, _item_with_breakpoint)


def render_blocks_with_breakpoints(
    prompt: Prompt, add_breakpoints: _AddToBodies, volatile: PromptBlock | None
) -> SentBlocks:
    """Return how the blocks of a prompt are sent, if the model accepts breakpoints with them."""
    new_blocks: dict[int, PromptBlock] = {}
    if accepts_cache_breakpoints(prompt.rules_model):
        bodies = add_breakpoints([block.body for block in prompt.blocks], 0, prompt.marks)
        new_blocks = {
            index: replace(block, body=body)
            for index, (block, body) in enumerate(zip(prompt.blocks, bodies, strict=True))
            if body is not block.body
        }
    return SentBlocks(
        changed=new_blocks, marked={index: index for index in new_blocks}, volatile=volatile
    )


def _add_breakpoints(
    bodies: Sequence[Mapping[str, Any]], head: int, marks: Sequence[int], marked: _AddBreakpoint
) -> _Bodies:
    out = list(bodies)
    for mark in marks:
        if not -1 <= mark < len(out) - head:
            continue
        for index in range(head + mark, -1, -1):
            # A mark on what cannot carry one moves to the nearest part before it that can.
            if (copy := marked(bodies[index])) is not None:
                out[index] = copy
                break
    return out


def _message_with_breakpoint(message: Mapping[str, Any]) -> dict[str, Any] | None:
    return _with_breakpoint(message, "content", "text", _CHAT_PARTS)


def _item_with_breakpoint(item: Mapping[str, Any]) -> dict[str, Any] | None:
    if item.get("type") == "function_call_output":
        return _with_breakpoint(item, "output", "input_text", _ITEM_PARTS)
    if item.get("role") in ("user", "system", "developer"):
        return _with_breakpoint(item, "content", "input_text", _ITEM_PARTS)
    return None


def _with_breakpoint(
    body: Mapping[str, Any], key: str, text: str, parts: tuple[str, ...]
) -> dict[str, Any] | None:
    content = body.get(key)
    if isinstance(content, str) and content:
        return {**body, key: [{"type": text, "text": content, _BREAKPOINT_KEY: _BREAKPOINT}]}
    content_parts = list_or_none(content)
    last = dict_or_none(content_parts[-1]) if content_parts else None
    if content_parts is None or last is None or last.get("type") not in parts:
        return None
    return {**body, key: [*content_parts[:-1], {_BREAKPOINT_KEY: _BREAKPOINT, **last}]}
