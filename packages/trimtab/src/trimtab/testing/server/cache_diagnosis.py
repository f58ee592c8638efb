"""Explain why a request was not read from the prompt cache, as a provider does.

The provider keeps the blocks of a request under the id of its reply. It compares them with a later
request that names that id. The first difference is the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.dialects.json_values import dict_or_none
from trimtab.testing.request_counter import RequestBlock
from trimtab.testing.server.openai_rules import supports_cache_breakpoints
from trimtab.testing.server.responses import make_anthropic_refusal

JsonObject = Mapping[str, Any]
_OPENAI_SETTINGS = (
    ("prompt_cache_key", "prompt_cache_key_changed"),
    ("text", "text_format_changed"),
    ("reasoning", "reasoning_effort_changed"),
    ("service_tier", "service_tier_changed"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fingerprint:
    request: JsonObject
    """The parameters of the request."""
    blocks: tuple[RequestBlock, ...]
    """The blocks as the cache reads them."""


class CacheDiagnoses:
    """The blocks of earlier requests, by the id of their reply."""

    def __init__(self) -> None:
        self._kept: dict[str, _Fingerprint] = {}

    def add_to_reply(
        self,
        dialect: str,
        reply: dict[str, Any],
        request: JsonObject,
        blocks: Sequence[RequestBlock],
    ) -> None:
        """Add the diagnosis to a reply if the request asks for one, and remember the request."""
        now = _Fingerprint(request=request, blocks=tuple(blocks))
        diagnostics = dict_or_none(request.get("diagnostics"))
        if dialect == "anthropic" and diagnostics is not None:
            before = diagnostics.get("previous_message_id")
            if before is not None and not str(before).startswith("msg_"):
                raise make_anthropic_refusal(
                    "diagnostics.previous_message_id: Input should be the id of a message"
                )
            if (
                before is not None
                and (miss_reason := self._explain_anthropic(before, now)) is not None
            ):
                reply["diagnostics"] = {"cache_miss_reason": miss_reason}
            else:
                reply["diagnostics"] = None
            self._kept[reply["id"]] = now
        elif dialect == "openai_responses" and supports_cache_breakpoints(request["model"]):
            options = dict_or_none(request.get("prompt_cache_options")) or {}
            if before := options.get("comparison_response_id"):
                reply["prompt_cache_diagnostics"] = self._explain_openai(before, now)
            self._kept[reply["id"]] = now

    def _explain_anthropic(self, before_id: str, now: _Fingerprint) -> dict[str, Any] | None:
        before = self._kept.get(before_id)
        if before is None:
            return {"type": "previous_message_not_found"}
        if before.request["model"] != now.request["model"]:
            return _miss_at("model_changed", before, 0)
        if (at := _find_divergence(before, now)) is not None:
            return _miss_at(f"{before.blocks[at].section}_changed", before, at)
        settings = ("thinking", "tool_choice")
        if any(before.request.get(name) != now.request.get(name) for name in settings):
            return {"type": "unavailable"}
        return None

    def _explain_openai(self, before_id: str, now: _Fingerprint) -> dict[str, Any]:
        before = self._kept.get(before_id)
        if before is None:
            return {"type": "comparison_response_not_found"}
        at = _find_divergence(before, now)
        reason = ""
        if before.request["model"] != now.request["model"]:
            at = 0
            reason = "model_changed"
        for name, miss_reason in _OPENAI_SETTINGS:
            if not reason and before.request.get(name) != now.request.get(name):
                at = 0
                reason = miss_reason
        if at is None:
            return {"type": "cache_hit"}
        section = before.blocks[at].section
        reason = reason or ("tools_changed" if section == "tools" else "input_changed")
        sizes = [block.tokens for block in before.blocks]
        return {
            "type": "cache_miss",
            "reason": reason,
            "cache_missed_tokens": sum(sizes[at:]),
            "comparison_reusable_tokens": sum(sizes[:at]),
        }


def _miss_at(reason: str, before: _Fingerprint, at: int) -> dict[str, Any]:
    tokens = sum(block.tokens for block in before.blocks[at:])
    return {"type": reason, "cache_missed_input_tokens": tokens}


def _find_divergence(before: _Fingerprint, now: _Fingerprint) -> int | None:
    """Return the index of the first block of the earlier request that differs in the later one."""
    for index, block in enumerate(before.blocks):
        other = now.blocks[index] if index < len(now.blocks) else None
        if other is None or (block.section, block.text) != (other.section, other.text):
            return index
    return None
