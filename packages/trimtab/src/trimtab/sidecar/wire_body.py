"""`WireBody`: the body of a model call as a client would send it, and as it is sent with edits.

What no edit names keeps its text: spacing, unknown fields and the order of keys included.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from trimtab.dialects import DIALECT_NAMES, DialectName
from trimtab.dialects.anthropic.cache_marks import MAX_CACHE_MARKS
from trimtab.dialects.base import WireObject
from trimtab.dialects.json_values import dict_or_none, dicts_in_list, list_or_none
from trimtab.dialects.provider_safe_values import digest_call_id
from trimtab.dialects.reading import guess_dialects
from trimtab.engine.log.message import ToolCall, ToolResult
from trimtab.engine.policy.budget import read_thinking_budget
from trimtab.engine.prompt.shown_messages import ShownMessage, View
from trimtab.models.families import detect_model_family
from trimtab.options import find_forbidden_params
from trimtab.sidecar.json_text import (
    JsonItem,
    JsonText,
    Levels,
    dump_json,
    patch_items,
    sort_by_place,
)
from trimtab.sidecar.redaction_check import RedactionCheck
from trimtab.sidecar.summary_prompts import asks_for_summary

BODY_LEVELS: Levels = {"messages": {}, "input": {}}
"""What of a body is read with its places."""
_OUTPUT_KEYS: Mapping[str, Sequence[str]] = {
    "anthropic": ("max_tokens",),
    "openai_chat": ("max_completion_tokens", "max_tokens"),
    "openai_responses": ("max_output_tokens",),
}
_COUNTED_PARAMS = ("output_config", "output_format", "response_format", "text")
"""Parameters that a provider bills as input: schemas of the reply. No other one is stored."""
_LEADING_ROLES = ("system", "developer")
_CALL_ID_KEYS = ("id", "call_id", "tool_call_id", "tool_use_id")
_MARK = "cache_control"
"""The key of Anthropic's cache marks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of the list that is sent."""

    positions: Sequence[int]
    """Its places in the client's list; none for a text that Trimtab wrote."""
    items: Sequence[WireObject] | None = None
    """What to send instead; None for the client's own."""


Patches = dict[bytes, tuple[Sequence[WireObject], list[str]]]
"""The edited messages of the last body and their texts, by the digest of the client's own text."""


class WireBody:
    """The body of a model call, with the text that the client wrote.

    Args:
        source: The text that contains it.
        body: Its place in that text.
        dialect: Its format; None recognises it.

    Raises:
        TypeError: If it is not an object.
        ValueError: If the dialect is unknown.
    """

    def __init__(self, source: JsonText, body: JsonItem, *, dialect: str | None = None) -> None:
        fields = dict_or_none(body.value)
        if fields is None:
            raise TypeError("body must be an object: the body of a model call")
        if dialect is not None and dialect not in DIALECT_NAMES:
            names = ", ".join(DIALECT_NAMES)
            raise ValueError(f"dialect must be one of {names}, not {dialect[:40]!r}")
        self._source, self._body = source, body
        self.fields = fields
        """Its fields."""
        self.dialect: DialectName = dialect or detect_body_dialect(fields)
        """Its format."""
        key = "input" if self.dialect == "openai_responses" else "messages"
        self._list = body.find(key)
        lists = [item for item in body.items or () if item.key == key]
        self._has_one_list = len(lists) == 1 and isinstance(lists[0].value, list)

    @property
    def messages(self) -> list[Any]:
        """The client's list."""
        return cast("list[Any]", self._list.value) if self._list is not None else []

    @property
    def system(self) -> Any:
        """The system prompt outside the list."""
        key = "instructions" if self.dialect == "openai_responses" else "system"
        return self.fields.get(key) or ""

    @property
    def tools(self) -> Sequence[WireObject]:
        """The definitions of the tools."""
        return dicts_in_list(self.fields.get("tools"))

    @property
    def model(self) -> str:
        """The name of the model; empty if there is none."""
        name = self.fields.get("model")
        return name if isinstance(name, str) else ""

    @property
    def counted_params(self) -> dict[str, Any]:
        """Parameters that count as input."""
        return {key: self.fields[key] for key in _COUNTED_PARAMS if self.fields.get(key)}

    @property
    def max_output_tokens(self) -> int | None:
        """Tokens of output that the client asks for."""
        for key in _OUTPUT_KEYS[self.dialect]:
            tokens = self.fields.get(key)
            if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0:
                return tokens
        return None

    @property
    def may_lower_output(self) -> bool:
        """Whether fewer tokens of output can be asked for: not fewer than those of the thinking."""
        return read_thinking_budget(self.fields) == 0

    def find_reason_to_pass(self) -> str:
        """Return why the body is sent as it is and not remembered; empty if it is managed."""
        forbidden = find_forbidden_params(self.fields)
        if forbidden:
            return f"{next(iter(forbidden))}: the provider keeps or edits the history itself"
        if not self._has_one_list or not self.messages:
            return "not a conversation: it has no list of messages"
        if not self.model:
            return "not a conversation: it names no model"
        if asks_for_summary(self.messages):
            return "summary: the client asks for a summary of its own"
        return ""

    def plan(self, view: View, check: RedactionCheck | None = None) -> list[Piece]:
        """Return what to send of a view, in the order of the client's list.

        An order that only the client prefers stays: a provider has accepted it before. A message of
        the client's own stays unless the check of its redaction fails.
        """
        entries: list[tuple[int | None, Piece]] = []
        for position, message in enumerate(self.messages):
            if (dict_or_none(message) or {}).get("role") not in _LEADING_ROLES:
                break
            entries.append((position, Piece(positions=[position])))
        for shown in view:
            is_own = bool(shown.positions) and (shown.is_callers_own or not shown.edited_parts)
            if is_own and check is not None:
                is_own = not check.fails(self._list_texts(shown.positions), shown.wire)
            if is_own:
                entries += [(position, Piece(positions=[position])) for position in shown.positions]
            else:
                piece = Piece(positions=shown.positions, items=_with_own_call_ids(shown))
                entries.append((shown.positions[0] if shown.positions else None, piece))
        pieces = sort_by_place(entries)
        self._mark_frontier(pieces, view.frontier)
        return pieces

    def _mark_frontier(self, pieces: list[Piece], frontier: int | None) -> None:
        """Put a free cache mark on the last text of Trimtab's before the frontier.

        The client marks the end of its list. After the next hiding that mark is too far from the
        frontier for the provider to find the stored prefix.
        """
        if frontier is None or self.dialect != "anthropic":
            return
        marks = (mark for message in self.messages[frontier:] for mark in _list_marks(message))
        mark = next(marks, None)  # with the same lifetime: a longer one must not come after it
        mark_count = self._source.text.count(f'"{_MARK}"', self._body.start, self._body.end)
        if mark is None or mark_count >= MAX_CACHE_MARKS:
            return
        for index, piece in reversed([*enumerate(pieces)]):
            if piece.items is None or max(piece.positions, default=-1) >= frontier:
                continue
            message = piece.items[-1]
            block = message["content"][-1]
            contents = [self.messages[position].get("content") for position in piece.positions]
            is_own = any(block in dicts_in_list(content) for content in contents)
            if not is_own and block["type"] in ("text", "tool_result") and _MARK not in block:
                blocks = [*message["content"][:-1], {**block, _MARK: mark}]
                items = [*piece.items[:-1], {**message, "content": blocks}]
                pieces[index] = replace(piece, items=items)
                return

    def is_changed_by(self, pieces: Sequence[Piece]) -> bool:
        """Whether the pieces are another list than the client's."""
        if any(piece.items is not None for piece in pieces):
            return True
        return len(pieces) != len(self.messages)

    def write(
        self,
        pieces: Sequence[Piece],
        patches: Patches,
        *,
        max_output_tokens: int | None,
        check: RedactionCheck | None = None,
    ) -> str:
        """Return the body with these pieces, and with fewer tokens of output unless it is None.

        A message is written without the client's text if its patch fails the redaction's check.
        """
        edits: list[tuple[JsonItem, str]] = []
        if self._list is not None and self.is_changed_by(pieces):
            edits.append((self._list, self._write_list(self._list, pieces, patches, check)))
        if max_output_tokens is not None:
            for member in self._body.items or ():
                is_limit = member.key in _OUTPUT_KEYS[self.dialect]
                if is_limit and member.value == self.max_output_tokens:
                    edits.append((member, str(max_output_tokens)))
        text, end = "", self._body.start
        for item, new_text in sorted(edits, key=lambda edit: edit[0].start):
            text += self._source.text[end : item.start] + new_text
            end = item.end
        return text + self._source.text[end : self._body.end]

    def _write_list(
        self,
        own_list: JsonItem,
        pieces: Sequence[Piece],
        patches: Patches,
        check: RedactionCheck | None,
    ) -> str:
        """Return the list with these pieces, and leave only its own patches in `patches`."""
        items = [*(own_list.items or ())]
        texts: list[str] = []
        new_patches: Patches = {}
        for piece in pieces:
            own_texts = self._list_texts(piece.positions)
            if piece.items is None:
                texts += own_texts
                continue
            key = hashlib.sha256("\n".join(own_texts).encode("utf-8", "surrogatepass")).digest()
            patch = patches.get(key)
            if patch is None or patch[0] != piece.items:
                own_items = [items[position] for position in piece.positions]
                patch = piece.items, self._write_items(own_items, piece.items)
            new_patches[key] = patch
            is_clean = check is None or not check.fails(patch[1], piece.items)
            texts += patch[1] if is_clean else map(dump_json, piece.items)
        patches.clear()
        patches.update(new_patches)
        opening = self._source.text[own_list.start : items[0].start]
        closing = self._source.text[items[-1].end : own_list.end]
        return opening + self._source.find_separator(own_list).join(texts) + closing

    def _write_items(
        self, own_items: Sequence[JsonItem], new_items: Sequence[WireObject]
    ) -> list[str]:
        """Return the texts of items to send instead of the client's."""
        if len(own_items) > 1 and len(new_items) == 1 and "content" in new_items[0]:
            return [self._write_joined(own_items, new_items[0])]
        own = [(item.value, self._source.text_of(item)) for item in own_items]
        return patch_items(own, new_items)

    def _write_joined(self, own_items: Sequence[JsonItem], message: WireObject) -> str:
        """Return a message that was joined of several, with the texts of their blocks."""
        content = message["content"]
        if not isinstance(content, list):
            return dump_json(message)
        own_blocks: list[tuple[Any, str]] = []
        for item in own_items:
            own_content = self._source.read_item(item.start, {"content": {}}).find("content")
            if own_content is not None:
                blocks = own_content.items or ()
                own_blocks += [(block.value, self._source.text_of(block)) for block in blocks]
        joined = "[" + ",".join(patch_items(own_blocks, cast("list[Any]", content))) + "]"
        members = [
            f"{dump_json(key)}:{joined if key == 'content' else dump_json(value)}"
            for key, value in message.items()
        ]
        return "{" + ",".join(members) + "}"

    def _list_texts(self, positions: Sequence[int]) -> list[str]:
        """Return the client's texts of messages."""
        items = (self._list and self._list.items) or ()
        return [self._source.text_of(items[position]) for position in positions]


def detect_body_dialect(body: Mapping[str, Any]) -> DialectName:
    """Return the format of a body that does not name it."""
    if "input" in body and "messages" not in body:
        return "openai_responses"
    tools = dicts_in_list(body.get("tools"))
    if body.get("system") or any("input_schema" in tool for tool in tools):
        return "anthropic"
    if any(isinstance(tool.get("function"), dict) for tool in tools):
        return "openai_chat"
    for message in dicts_in_list(body.get("messages")):
        if message.get("role") in _LEADING_ROLES:
            return "openai_chat"
        if dialects := guess_dialects(message):
            return "anthropic" if "anthropic" in dialects else "openai_chat"
    is_claude = detect_model_family(str(body.get("model"))) == "claude"
    return "anthropic" if is_claude and "max_tokens" in body else "openai_chat"


def describe_pieces(pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    """Return pieces as a reply of the sidecar lists them, with neighbours as one range."""
    entries: list[dict[str, Any]] = []
    for piece in pieces:
        if piece.items is not None:
            entries.append({"at": [*piece.positions], "items": [*piece.items]})
            continue
        start, end = piece.positions[0], piece.positions[-1] + 1
        if entries and entries[-1].get("to") == start:
            entries[-1]["to"] = end
        else:
            entries.append({"from": start, "to": end})
    return entries


def _with_own_call_ids(shown: ShownMessage) -> Sequence[WireObject]:
    """Return what to send of a message, with the ids that the client's other messages have.

    A provider's own server may accept ids that Trimtab would replace, and has accepted them before.
    """
    parts = shown.message.parts
    ids = [part.id for part in parts if isinstance(part, ToolCall)]
    ids += [part.call_id for part in parts if isinstance(part, ToolResult)]
    own_ids = {digest_call_id(call_id): call_id for call_id in ids}

    def restore(value: Any) -> Any:
        fields = dict_or_none(value)
        if fields is None:
            return value
        restored = dict(fields)
        for key in _CALL_ID_KEYS:
            call_id = fields.get(key)
            if isinstance(call_id, str):
                restored[key] = own_ids.get(call_id, call_id)
        for key in ("content", "tool_calls"):
            blocks = list_or_none(fields.get(key))
            if blocks is not None:
                restored[key] = [restore(block) for block in blocks]
        return restored

    return [restore(item) for item in shown.wire] if ids else shown.wire


def _list_marks(item: Any) -> Iterator[Any]:
    """Yield the cache marks on the blocks of a message, and in those of a tool result."""
    for block in dicts_in_list((dict_or_none(item) or {}).get("content")):
        if mark := block.get(_MARK):
            yield mark
        yield from _list_marks(block)
