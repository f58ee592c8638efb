"""Edits that a provider makes in a request itself, if its parameters ask for them.

Anthropic clears old tool results (`clear_tool_uses_20250919`) and compacts (`compact_20260112`),
each under its beta. OpenAI compacts (`context_management`) and drops items from the start
(`truncation: "auto"`). Items before a compaction that the caller sends back are not read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab.dialects.json_values import dict_or_none
from trimtab.testing.request_counter import RequestCounter, list_array_objects
from trimtab.testing.server.responses import make_anthropic_refusal, make_openai_refusal

CLEAR_TOOL_USES = "clear_tool_uses_20250919"
CLEAR_THINKING = "clear_thinking_20251015"
COMPACT = "compact_20260112"
COMPACTION_SUMMARY = "A short summary of the conversation."
_BETA_BY_EDIT = {
    CLEAR_TOOL_USES: "context-management-2025-06-27",
    CLEAR_THINKING: "context-management-2025-06-27",
    COMPACT: "compact-2026-01-12",
}
_DEFAULT_CLEAR_TRIGGER_TOKENS = 100_000
_DEFAULT_COMPACT_TRIGGER_TOKENS = 150_000
_MIN_COMPACT_TRIGGER_TOKENS = 50_000
_DEFAULT_KEPT_TOOL_USES = 3
_CLEARED = "[cleared]"
JsonObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedRequest:
    """A request as the model reads it."""

    request: JsonObject
    """The request with the server's edits."""
    applied_edits: tuple[JsonObject, ...] | None = None
    """Anthropic's report of the edits. None if the request did not ask for edits."""
    compacted_tokens: int = 0
    """Tokens that were read for a compaction. 0 if there was none."""


@dataclass(slots=True)
class _AnthropicEditor:
    request: dict[str, Any]
    counter: RequestCounter
    applied: list[JsonObject] = field(default_factory=list[JsonObject])
    compacted_tokens: int = 0

    def tokens(self) -> int:
        return self.counter.total_tokens(self.counter.split_blocks(self.request, "anthropic"))

    def clear_tool_uses(self, edit: JsonObject) -> None:
        """Replace the oldest results by a placeholder, above the trigger."""
        before = self.tokens()
        trigger = _read_threshold(edit.get("trigger"), _DEFAULT_CLEAR_TRIGGER_TOKENS)
        if before <= trigger:
            return
        results = [
            (message, number)
            for message in self.request["messages"]
            for number, block in enumerate(list_array_objects(message.get("content")))
            if block.get("type") == "tool_result"
        ]
        keep = _read_threshold(edit.get("keep"), _DEFAULT_KEPT_TOOL_USES)
        old_results = results[: max(0, len(results) - keep)]
        for message, number in old_results:
            block = message["content"][number]
            message["content"][number] = {**block, "content": _CLEARED}
        if old_results:
            tokens = before - self.tokens()
            counts = {"cleared_tool_uses": len(old_results), "cleared_input_tokens": tokens}
            self.applied.append({"type": CLEAR_TOOL_USES, **counts})

    def compact(self, edit: JsonObject) -> None:
        """Replace everything except the newest message by a summary, above the trigger."""
        before = self.tokens()
        trigger = _read_threshold(edit.get("trigger"), _DEFAULT_COMPACT_TRIGGER_TOKENS)
        if trigger < _MIN_COMPACT_TRIGGER_TOKENS:
            raise make_anthropic_refusal(
                f"context_management.edits: trigger must be at least {_MIN_COMPACT_TRIGGER_TOKENS}"
            )
        if before > trigger:
            self.compacted_tokens = before
            self.request["messages"] = [{"role": "user", "content": COMPACTION_SUMMARY}]


def edit_anthropic_request(
    request: JsonObject, headers: Mapping[str, str], counter: RequestCounter
) -> EditedRequest:
    """Return the request as the model reads it. Refuse an edit whose beta is not requested."""
    management = dict_or_none(request.get("context_management"))
    request_copy = {**request, "messages": _copy_messages_from_compaction(request["messages"])}
    if request.get("context_management") is None:
        return EditedRequest(request=request_copy)
    if management is None:
        raise make_anthropic_refusal("context_management: Input should be an object")
    betas = {name.strip() for name in headers.get("anthropic-beta", "").split(",")}
    editor = _AnthropicEditor(request=request_copy, counter=counter)
    for edit in list_array_objects(management.get("edits")):
        kind = str(edit.get("type"))
        if kind not in _BETA_BY_EDIT:
            raise make_anthropic_refusal(
                f"context_management.edits: Input tag {kind!r} found using 'type' does not match "
                f"any of the expected tags: {', '.join(map(repr, _BETA_BY_EDIT))}"
            )
        if _BETA_BY_EDIT[kind] not in betas:
            raise make_anthropic_refusal("context_management: Extra inputs are not permitted")
        if kind == CLEAR_TOOL_USES:
            editor.clear_tool_uses(edit)
        elif kind == COMPACT:
            editor.compact(edit)
    return EditedRequest(
        request=editor.request,
        applied_edits=tuple(editor.applied),
        compacted_tokens=editor.compacted_tokens,
    )


def edit_responses_request(
    full_request: JsonObject, counter: RequestCounter, *, input_limit: int
) -> EditedRequest:
    """Return the request as the model reads it."""
    items = list_array_objects(full_request["input"])
    starts = [index for index, item in enumerate(items) if item.get("type") == "compaction"]
    request = {**full_request, "input": items[starts[-1] :] if starts else items}
    for edit in list_array_objects(full_request.get("context_management")):
        if edit.get("type") != "compaction":
            raise make_openai_refusal(
                f"Invalid value: {edit.get('type')!r}. Supported values are: 'compaction'.",
                param="context_management",
                code="invalid_value",
            )
        tokens = _count_responses(request, counter)
        threshold = edit.get("compact_threshold")
        if isinstance(threshold, int) and tokens > threshold:
            newest = [{"role": "user", "content": COMPACTION_SUMMARY}]
            return EditedRequest(request={**request, "input": newest}, compacted_tokens=tokens)
    if full_request.get("truncation") == "auto":
        items = list(request["input"])
        while len(items) > 1 and _count_responses({**request, "input": items}, counter) > (
            input_limit
        ):
            del items[0]
        request["input"] = items
    return EditedRequest(request=request)


def _count_responses(request: JsonObject, counter: RequestCounter) -> int:
    return counter.total_tokens(counter.split_blocks(request, "openai_responses"))


def _copy_messages_from_compaction(messages: Any) -> list[dict[str, Any]]:
    """Return copies of the messages from the last compaction on."""
    copies = [
        {**each, "content": list(each["content"])}
        if isinstance(each.get("content"), list)
        else dict(each)
        for each in list_array_objects(messages)
    ]
    for index in range(len(copies) - 1, -1, -1):
        blocks = list_array_objects(copies[index].get("content"))
        if any(block.get("type") == "compaction" for block in blocks):
            return copies[index:]
    return copies


def _read_threshold(given: Any, default: int) -> int:
    value = (dict_or_none(given) or {}).get("value")
    return value if isinstance(value, int) else default
