"""The exact count of a request: what a provider would report as its input tokens.

It is the sum of the exact counts of every text that is sent (content, tool names, call ids,
arguments, system prompt, each tool definition as compact JSON) and of these frames:

- 3 tokens that prime the reply, once;
- 3 for a message and 1 for its role, as OpenAI's cookbook counts them; 1 more for a name. A system
  block and a Responses item count as a message; neighbouring blocks of one role do not;
- 8 for a tool call and 6 for a tool result beside their message, which is what the published
  harmony format puts around them (channel, recipient, constraint);
- once a request has tools, 12 in OpenAI's formats (the cookbook's figure for the end of the
  definitions) and 346 in Anthropic's (the most that its documentation lists for a current model).

Nothing here is larger than what `trimtab.core.tokens` assumes for the same thing, so a request
that is over its window is so because of its texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Wire = Mapping[str, Any]

PRIMING = 3
MESSAGE = 4
NAME = 1
CALL = 8
RESULT = 6
TOOLS = {"anthropic": 346, "openai_chat": 12, "openai_responses": 12}


class ExactCounter:
    """Counts texts and requests; a text, and a block that is sent again, is counted once."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._texts: dict[str, int] = {}
        self._blocks: dict[int, tuple[Wire, int]] = {}

    def text(self, text: str) -> int:
        known = self._texts.get(text)
        if known is None:
            known = self._texts[text] = self._count(text)
        return known

    def forget_blocks(self) -> None:
        """Before another context: its blocks are other objects."""
        self._blocks.clear()

    def request(self, request: Wire, dialect: str) -> int:
        tools: Sequence[Wire] = request.get("tools") or ()
        total = PRIMING + (TOOLS[dialect] if tools else 0)
        total += sum(self._once(tool, self._json) for tool in tools)
        match dialect:
            case "anthropic":
                return total + self._anthropic(request)
            case "openai_chat":
                return total + sum(self._once(m, self._chat_message) for m in request["messages"])
            case _:
                return total + self._responses(request)

    def _anthropic(self, request: Wire) -> int:
        system: str | Sequence[Wire] = request.get("system") or ()
        if isinstance(system, str):
            total = MESSAGE + self.text(system)
        else:
            total = sum(MESSAGE + self.text(block["text"]) for block in system)
        for message in request["messages"]:
            total += MESSAGE
            for block in message["content"]:
                total += self._once(block, self._anthropic_block)
        return total

    def _anthropic_block(self, block: Wire) -> int:
        match block["type"]:
            case "text":
                return self.text(block["text"])
            case "tool_use":
                texts = self.text(block["name"]) + self.text(block["id"])
                return CALL + texts + self._json(block["input"])
            case "tool_result":
                inner = self._content(block.get("content") or "")
                return RESULT + self.text(block["tool_use_id"]) + inner
            case kind:
                raise ValueError(f"no recorded conversation has a block of type {kind!r}")

    def _chat_message(self, message: Wire) -> int:
        total = MESSAGE + self._content(message.get("content") or "")
        if "name" in message:
            total += NAME + self.text(message["name"])
        if message["role"] == "tool":
            total += RESULT + self.text(message["tool_call_id"])
        for call in message.get("tool_calls") or ():
            function = call["function"]
            total += CALL + self.text(call["id"]) + self.text(function["name"])
            total += self.text(function["arguments"])
        return total

    def _responses(self, request: Wire) -> int:
        instructions = request.get("instructions")
        total = MESSAGE + self.text(instructions) if instructions else 0
        return total + sum(self._once(item, self._item) for item in request["input"])

    def _item(self, item: Wire) -> int:
        match item.get("type", "message"):
            case "message":
                return MESSAGE + self._content(item["content"])
            case "function_call":
                texts = (item["call_id"], item["name"], item["arguments"])
                return MESSAGE + CALL + sum(map(self.text, texts))
            case "function_call_output":
                inner = self._content(item["output"])
                return MESSAGE + RESULT + self.text(item["call_id"]) + inner
            case kind:
                raise ValueError(f"no recorded conversation has an item of type {kind!r}")

    def _content(self, content: str | Sequence[Wire]) -> int:
        if isinstance(content, str):
            return self.text(content)
        return sum(self.text(part["text"]) for part in content)

    def _json(self, value: Any) -> int:
        if isinstance(value, Mapping):
            value = {key: inner for key, inner in value.items() if key != "cache_control"}
        return self.text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))

    def _once(self, block: Wire, count: Callable[[Wire], int]) -> int:
        known = self._blocks.get(id(block))
        if known is None:
            # The block is kept, or another could get its id.
            known = self._blocks[id(block)] = (block, count(block))
        return known[1]
