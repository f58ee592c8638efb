"""A request taken apart into what a provider counts and caches: blocks in their order, with tokens.

A request's size is the sum of the counts of every text that is sent (content, tool names, call
ids, arguments, system prompt, tool definitions as compact JSON) and of frames: 3 tokens that prime
the reply; 4 for a message, a system block or a Responses item; 1 more for a name; 8 for a tool call
and 6 for a result; once a request has tools, 346 in Anthropic's format and 12 in OpenAI's.

Messages, names and OpenAI's tools are as OpenAI's cookbook counts them, calls and results what the
published harmony format puts around them, and 346 is the most that Anthropic lists for a current
model. Nothing is larger than what `trimtab.core.tokens` assumes for the same: what is over
its window is so because of its texts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

Wire = Mapping[str, Any]
Count = Callable[[str], int]

PRIMING = 3
MESSAGE = 4
NAME = 1
CALL = 8
RESULT = 6
TOOLS = {"anthropic": 346, "openai_chat": 12, "openai_responses": 12}
IMAGE = 1_500
DOCUMENT = 3_000
_KEPT = 32_000_000
_MARKS = ("cache_control", "prompt_cache_breakpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A block of a request."""

    part: str
    """`tools`, `system` or `messages`: what a change of parameters invalidates."""
    text: str
    """All that tells it from another one, marks and ways to write the same left out."""
    tokens: int
    """Its size, with the frame around it."""
    mark: str | None = None
    """How long the prefix up to its end is to be kept: `5m`, `1h`, `30m`; None for unmarked."""


class RequestCounter:
    """Counts requests by a tokenizer; a text that is sent again is counted once."""

    def __init__(self, count: Count, *, heavier: float = 1.0) -> None:
        self._count = count
        self._heavier = heavier
        self._known: dict[str, int] = {}
        self._held = 0

    def text(self, text: str) -> int:
        """Tokens of a text by the tokenizer alone."""
        known = self._known.get(text)
        if known is None:
            if self._held > _KEPT:
                self._known.clear()
                self._held = 0
            known = self._known[text] = self._count(text)
            self._held += len(text)
        return known

    def scaled(self, tokens: int) -> int:
        """A sum of tokens, heavier by the factor and rounded up."""
        return tokens if self._heavier == 1.0 else math.ceil(tokens * self._heavier - 1e-9)

    def total(self, pieces: Sequence[Piece]) -> int:
        """What the provider reports as the request's input."""
        return self.scaled(PRIMING + sum(piece.tokens for piece in pieces))

    def pieces(self, request: Wire, dialect: str) -> list[Piece]:
        """The request's blocks in the order in which a cache sees them."""
        found = self._tools(request, dialect)
        match dialect:
            case "anthropic":
                found += self._system(request.get("system"))
                for message in listed(request.get("messages")):
                    found += self._anthropic_message(message)
                return _marked_at_end(found, request.get("cache_control"))
            case "openai_chat":
                return found + [self._chat(m) for m in listed(request.get("messages"))]
            case _:
                if instructions := request.get("instructions"):
                    found += self._system(instructions)
                given = request.get("input")
                items = [{"role": "user", "content": given}] if isinstance(given, str) else given
                return found + [self._item(item) for item in listed(items)]

    def _tools(self, request: Wire, dialect: str) -> list[Piece]:
        found: list[Piece] = []
        for index, tool in enumerate(listed(request.get("tools"))):
            text = compact({key: value for key, value in tool.items() if key not in _MARKS})
            frame = TOOLS[dialect] if index == 0 else 0
            tokens = frame + self.text(text)
            found.append(Piece(part="tools", text=text, tokens=tokens, mark=mark_of(tool)))
        return found

    def _system(self, system: Any) -> list[Piece]:
        blocks = [{"text": system}] if isinstance(system, str) and system else listed(system)
        return [
            Piece(
                part="system",
                text=str(block.get("text")),
                tokens=MESSAGE + self.text(str(block.get("text"))),
                mark=mark_of(block),
            )
            for block in blocks
        ]

    def _anthropic_message(self, message: Wire) -> Iterator[Piece]:
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for index, block in enumerate(listed(blocks)):
            text, tokens = self._block(block)
            inner = (mark_of(each) for each in listed(block.get("content")))
            yield Piece(
                part="messages",
                text=f"{message.get('role')}\0{text}",
                tokens=tokens + (MESSAGE if index == 0 else 0),
                mark=mark_of(block) or next((mark for mark in inner if mark), None),
            )

    def _block(self, block: Wire) -> tuple[str, int]:
        match block.get("type"):
            case "tool_use":
                made = compact(block.get("input"))
                said = (str(block.get("name")), str(block.get("id")), made)
                return "\0".join(("call", *said)), CALL + sum(map(self.text, said))
            case "tool_result":
                call_id = str(block.get("tool_use_id"))
                text, tokens = self._content(block.get("content"))
                failed = "failed" if block.get("is_error") else ""
                told = f"result\0{call_id}\0{failed}\0{text}"
                return told, RESULT + self.text(call_id) + tokens
            case _:
                return self._part(block)

    def _chat(self, message: Wire) -> Piece:
        text, tokens = self._content(message.get("content"))
        tokens += MESSAGE
        told = [str(message.get("role")), text]
        if "name" in message:
            told.append(str(message["name"]))
            tokens += NAME + self.text(told[-1])
        if message.get("role") == "tool":
            told.append(str(message.get("tool_call_id")))
            tokens += RESULT + self.text(told[-1])
        if reasoning := message.get("reasoning_content"):
            told.append(str(reasoning))
            tokens += self.text(told[-1])
        for call in listed(message.get("tool_calls")):
            body: Wire = call.get("function") or call.get("custom") or {}
            made = str(body.get("arguments", body.get("input", "")))
            said = (str(call.get("id")), str(body.get("name")), made)
            told += said
            tokens += CALL + sum(map(self.text, said))
        parts = listed(message.get("content"))
        mark = next((mark for part in parts if (mark := mark_of(part))), None)
        return Piece(part="messages", text="\0".join(told), tokens=tokens, mark=mark)

    def _item(self, item: Wire) -> Piece:
        kind = str(item.get("type", "message"))
        told, tokens = [kind, str(item.get("role"))], MESSAGE
        mark = None
        if kind in ("function_call", "custom_tool_call"):
            made = item.get("arguments", item.get("input"))
            said = (str(item.get("call_id")), str(item.get("name")), str(made))
            told += said
            tokens += CALL + sum(map(self.text, said))
        elif kind == "message" or kind.endswith("_output"):
            key = "content" if kind == "message" else "output"
            text, size = self._content(item.get(key))
            told.append(text)
            tokens += size
            if kind != "message":
                told.append(str(item.get("call_id")))
                tokens += RESULT + self.text(told[-1])
            mark = next((m for part in listed(item.get(key)) if (m := mark_of(part))), None)
        elif kind == "reasoning":
            # What was thought is not here: its encrypted form is longer than it is in tokens.
            told.append(compact(item))
            tokens += len(str(item.get("encrypted_content") or "")) // 8
        else:
            told.append(compact(item))
            tokens += self.text(told[-1])
        return Piece(part="messages", text="\0".join(told), tokens=tokens, mark=mark)

    def _content(self, content: Any) -> tuple[str, int]:
        if content is None or isinstance(content, str):
            return content or "", self.text(content or "")
        parts = [self._part(part) for part in listed(content)]
        return "\0".join(text for text, _ in parts), sum(tokens for _, tokens in parts)

    def _part(self, part: Wire) -> tuple[str, int]:
        kind = str(part.get("type"))
        text = part.get("text", part.get("thinking", part.get("refusal")))
        if isinstance(text, str):
            return text if kind.endswith("text") else f"{kind}\0{text}", self.text(text)
        told = compact({key: value for key, value in part.items() if key not in _MARKS})
        if "image" in kind:
            return told, IMAGE
        if kind in ("document", "file", "input_file", "input_audio"):
            return told, DOCUMENT
        return told, self.text(told)


def mark_of(block: Wire) -> str | None:
    """How long a block's mark asks to keep the prefix; None where it has none."""
    for key, usual in (("cache_control", "5m"), ("prompt_cache_breakpoint", "30m")):
        if isinstance(block.get(key), dict):
            return str(block[key].get("ttl") or usual)
    return None


def _marked_at_end(pieces: list[Piece], control: Any) -> list[Piece]:
    """A mark of the whole request stands on its last block."""
    if control and pieces:
        last = pieces[-1]
        mark = mark_of({"cache_control": control})
        end = Piece(part=last.part, text=last.text, tokens=last.tokens, mark=last.mark or mark)
        return [*pieces[:-1], end]
    return pieces


def listed(value: Any) -> list[dict[str, Any]]:
    """The objects of a JSON array; empty for anything else."""
    if not isinstance(value, list):
        return []
    return [cast("dict[str, Any]", each) for each in cast("list[Any]", value) if _is_object(each)]


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def compact(value: Any) -> str:
    """JSON without spaces, keys in the order given."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
