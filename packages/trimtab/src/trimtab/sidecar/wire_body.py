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
from trimtab.dialects.json_values import dict_or_none, dicts_in_list
from trimtab.dialects.provider_safe_values import digest_call_id
from trimtab.dialects.reading import guess_dialects
from trimtab.engine.log.message import ToolCall, ToolResult
from trimtab.engine.policy.budget import read_thinking_budget
from trimtab.engine.prompt.shown_messages import ShownMessage, View
from trimtab.models.families import detect_model_family
from trimtab.options import find_forbidden_params
from trimtab.sidecar.json_text import JsonItem, JsonText, Levels, dump_json, patch_items
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
        named: DialectName | None = next((n for n in DIALECT_NAMES if n == dialect), None)
        if dialect is not None and named is None:
            known = ", ".join(DIALECT_NAMES)
            raise ValueError(f"dialect must be one of {known}, not {dialect[:40]!r}")
        self._source, self._body = source, body
        self.fields = fields
        """Its fields."""
        self.dialect: DialectName = detect_body_dialect(fields) if named is None else named
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
            asked = self.fields.get(key)
            if isinstance(asked, int) and not isinstance(asked, bool) and asked > 0:
                return asked
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
        own: list[tuple[float, Piece]] = [
            (at, Piece(positions=[at])) for at in range(self._count_leading_system())
        ]
        written: list[Piece] = []
        for shown in view:
            if not shown.positions:
                written.append(Piece(positions=(), items=_with_own_call_ids(shown)))
                continue
            place = shown.positions[0]
            own += [(place - 0.5, piece) for piece in written]
            written = []
            if _is_own(shown) and not (check and check.fails(self._list_texts(shown), shown.wire)):
                own += [(at, Piece(positions=[at])) for at in shown.positions]
            else:
                items = _with_own_call_ids(shown)
                own.append((place, Piece(positions=shown.positions, items=items)))
        own += [(len(self.messages), piece) for piece in written]
        pieces = [piece for _, piece in sorted(own, key=lambda pair: pair[0])]
        return self._mark_frontier(pieces, view.frontier)

    def _mark_frontier(self, pieces: list[Piece], frontier: int | None) -> list[Piece]:
        """Put a free cache mark on the last text of Trimtab's before the frontier.

        The client marks the end of its list. After the next hiding that mark is too far from the
        frontier for the provider to find the stored prefix.
        """
        if frontier is None or self.dialect != "anthropic":
            return pieces
        following = (mark for message in self.messages[frontier:] for mark in _list_marks(message))
        mark = next(following, None)  # with the same lifetime: a longer one must not come after it
        count = self._source.text.count(f'"{_MARK}"', self._body.start, self._body.end)
        if mark is None or count >= MAX_CACHE_MARKS:
            return pieces
        for index, piece in reversed([*enumerate(pieces)]):
            if piece.items is not None and max(piece.positions, default=-1) < frontier:
                *items, item = piece.items
                own = [self.messages[at].get("content") for at in piece.positions]
                *blocks, block = item["content"]
                is_own = any(block in dicts_in_list(content) for content in own)
                if not is_own and block["type"] in ("text", "tool_result") and _MARK not in block:
                    item = {**item, "content": [*blocks, {**block, _MARK: mark}]}
                    pieces[index] = replace(piece, items=[*items, item])
                    return pieces
        return pieces

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
            keys = _OUTPUT_KEYS[self.dialect]
            edits += [
                (item, str(max_output_tokens))
                for item in self._body.items or ()
                if item.key in keys and item.value == self.max_output_tokens
            ]
        text, at = "", self._body.start
        for item, changed in sorted(edits, key=lambda edit: edit[0].start):
            text += self._source.text[at : item.start] + changed
            at = item.end
        return text + self._source.text[at : self._body.end]

    def _write_list(
        self,
        listed: JsonItem,
        pieces: Sequence[Piece],
        patches: Patches,
        check: RedactionCheck | None,
    ) -> str:
        items, text = [*(listed.items or ())], self._source.text
        between = text[items[0].end : items[1].first] if len(items) > 1 else ","
        texts: list[str] = []
        used: Patches = {}
        for piece in pieces:
            known = [items[at] for at in piece.positions]
            own = [text[item.start : item.end] for item in known]
            if piece.items is None:
                texts += own
                continue
            key = hashlib.sha256("\n".join(own).encode("utf-8", "surrogatepass")).digest()
            patch = patches.get(key)
            if patch is None or patch[0] != piece.items:
                patch = piece.items, self._write_items(known, piece.items)
            used[key] = patch
            is_kept = check is None or not check.fails(patch[1], piece.items)
            texts += patch[1] if is_kept else map(dump_json, piece.items)
        patches.clear()
        patches.update(used)
        opening = text[listed.start : items[0].start]
        closing = text[items[-1].end : listed.end]
        return opening + between.join(texts) + closing

    def _write_items(self, known: Sequence[JsonItem], changed: Sequence[WireObject]) -> list[str]:
        own = [(item.value, self._source.text[item.start : item.end]) for item in known]
        if len(known) > 1 and len(changed) == 1 and "content" in changed[0]:
            blocks = [block for item in known for block in _list_blocks(item, self._source)]
            return [_write_joined(changed[0], blocks)]
        return patch_items(own, changed)

    def _list_texts(self, shown: ShownMessage) -> list[str]:
        """Return the client's texts of a message."""
        items = (self._list.items if self._list is not None else None) or ()
        return [self._source.text[items[at].start : items[at].end] for at in shown.positions]

    def _count_leading_system(self) -> int:
        messages = self.messages
        return next(
            (
                at
                for at, item in enumerate(messages)
                if (dict_or_none(item) or {}).get("role") not in _LEADING_ROLES
            ),
            len(messages),
        )


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
        if fitting := guess_dialects(message):
            return "anthropic" if "anthropic" in fitting else "openai_chat"
    is_claude = detect_model_family(str(body.get("model"))) == "claude"
    return "anthropic" if is_claude and "max_tokens" in body else "openai_chat"


def describe_pieces(pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    """Return pieces as a reply of the sidecar lists them, with neighbours as one range."""
    listed: list[dict[str, Any]] = []
    for piece in pieces:
        if piece.items is not None:
            listed.append({"at": [*piece.positions], "items": [*piece.items]})
            continue
        first, end = piece.positions[0], piece.positions[-1] + 1
        if listed and listed[-1].get("to") == first:
            listed[-1]["to"] = end
        else:
            listed.append({"from": first, "to": end})
    return listed


def _is_own(shown: ShownMessage) -> bool:
    """Whether nothing in it was edited. Trimtab may only have ordered it as providers prefer."""
    return shown.is_callers_own or not shown.edited_parts


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
        return {
            key: own_ids.get(each, each)
            if key in _CALL_ID_KEYS and isinstance(each, str)
            else [*map(restore, cast("list[Any]", each))]
            if key in ("content", "tool_calls") and isinstance(each, list)
            else each
            for key, each in fields.items()
        }

    return [restore(item) for item in shown.wire] if ids else shown.wire


def _list_marks(item: Any) -> Iterator[Any]:
    """Yield the cache marks on the blocks of a message, and in those of a tool result."""
    for block in dicts_in_list((dict_or_none(item) or {}).get("content")):
        if mark := block.get(_MARK):
            yield mark
        yield from _list_marks(block)


def _list_blocks(item: JsonItem, source: JsonText) -> list[tuple[Any, str]]:
    """Return the blocks of a message with their texts."""
    message = source.read_item(item.start, {"content": {}})
    content = message.find("content")
    blocks = (content.items or ()) if content is not None else ()
    return [(block.value, source.text[block.start : block.end]) for block in blocks]


def _write_joined(item: WireObject, blocks: Sequence[tuple[Any, str]]) -> str:
    """Write a message that was joined of several, with the texts of their blocks."""
    content = item.get("content")
    if not isinstance(content, list):
        return dump_json(item)
    joined = "[" + ",".join(patch_items(blocks, cast("list[Any]", content))) + "]"
    members = [
        f"{dump_json(key)}:{joined if key == 'content' else dump_json(value)}"
        for key, value in item.items()
    ]
    return "{" + ",".join(members) + "}"
