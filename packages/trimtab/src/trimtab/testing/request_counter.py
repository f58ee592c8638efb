"""Split a request into the blocks that a provider counts and caches, in order, with tokens.

The size of a request is the sum of its texts and its framing. The texts are content, tool names,
call ids, arguments, the system prompt, and tool definitions as compact JSON. The framing is:

- 3 tokens to prime the reply
- 4 for a message, a system block or a Responses item, and 1 more for a name
- 8 for a tool call and 6 for a result
- once if the request has tools: 346 in Anthropic's format and 12 in OpenAI's

A deferred tool counts from the block on that loads it. Before that, Responses shows its name and
description, and the others show nothing.

Messages, names and OpenAI's tools are counted as in OpenAI's cookbook. Calls and results are
counted with the framing of the published harmony format. 346 is the largest number that Anthropic
lists for a current model. No number is larger than what `trimtab.engine.tokens.counter` assumes,
so a request exceeds its window only because of its texts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

JsonObject = Mapping[str, Any]
CountTokens = Callable[[str], int]

PRIMING_TOKENS = 3
MESSAGE_TOKENS = 4
NAME_TOKENS = 1
CALL_TOKENS = 8
RESULT_TOKENS = 6
TOOLS_TOKENS = {"anthropic": 346, "openai_chat": 12, "openai_responses": 12}
IMAGE_TOKENS = 1_500
DOCUMENT_TOKENS = 3_000
_MAX_CACHED_CHARS = 32_000_000
_CACHE_MARK_KEYS = ("cache_control", "prompt_cache_breakpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBlock:
    """A block of a request."""

    section: str
    """`tools`, `system` or `messages`. A change of parameters invalidates certain sections."""
    text: str
    """The text that identifies the block, without cache marks and in a normalised form."""
    tokens: int
    """The size in tokens, including framing."""
    cache_ttl: str | None = None
    """How long to keep the prefix up to its end: `5m`, `1h`, `30m`. None if it is unmarked."""


class RequestCounter:
    """Counts requests with a tokenizer. A text that is sent again is counted only once."""

    def __init__(self, count_tokens: CountTokens, *, scale: float = 1.0) -> None:
        self._count = count_tokens
        self._heavier = scale
        self._known: dict[str, int] = {}
        self._held = 0

    def count_text(self, text: str) -> int:
        """Return the tokens of a text by the tokenizer alone."""
        tokens = self._known.get(text)
        if tokens is None:
            if self._held > _MAX_CACHED_CHARS:
                self._known.clear()
                self._held = 0
            tokens = self._known[text] = self._count(text)
            self._held += len(text)
        return tokens

    def scale_tokens(self, tokens: int) -> int:
        """Multiply a sum of tokens by the factor and round it up."""
        return tokens if self._heavier == 1.0 else math.ceil(tokens * self._heavier - 1e-9)

    def total_tokens(self, blocks: Sequence[RequestBlock]) -> int:
        """Return the number that the provider reports as the request's input."""
        return self.scale_tokens(PRIMING_TOKENS + sum(piece.tokens for piece in blocks))

    def split_blocks(self, request: JsonObject, dialect: str) -> list[RequestBlock]:
        """Return the blocks of the request in the order in which a cache reads them."""
        blocks = self._tools(request, dialect)
        definitions = _deferred_definitions(request)
        messages = list_array_objects(request.get("messages"))
        match dialect:
            case "anthropic":
                blocks += self._system(request.get("system"))
                for message in messages:
                    message_blocks = [*self._anthropic_message(message)]
                    blocks += self._with_loaded_definitions(message_blocks, message, definitions)
                return _mark_last_block(blocks, request.get("cache_control"))
            case "openai_chat":
                for message in messages:
                    blocks += self._with_loaded_definitions(
                        [self._chat(message)], message, definitions
                    )
                return blocks
            case _:
                if instructions := request.get("instructions"):
                    blocks += self._system(instructions)
                input_items = request.get("input")
                items = (
                    [{"role": "user", "content": input_items}]
                    if isinstance(input_items, str)
                    else input_items
                )
                return blocks + [self._item(item) for item in list_array_objects(items)]

    def _tools(self, request: JsonObject, dialect: str) -> list[RequestBlock]:
        blocks: list[RequestBlock] = []
        for index, tool in enumerate(list_array_objects(request.get("tools"))):
            definition = _definition_in_prompt(tool, dialect)
            text = dump_compact_json(
                {key: value for key, value in definition.items() if key not in _CACHE_MARK_KEYS}
            )
            frame = TOOLS_TOKENS[dialect] if index == 0 else 0
            tokens = frame + (self.count_text(text) if definition else 0)
            blocks.append(
                RequestBlock(
                    section="tools", text=text, tokens=tokens, cache_ttl=read_cache_ttl(tool)
                )
            )
        return blocks

    def _with_loaded_definitions(
        self, blocks: list[RequestBlock], message: JsonObject, definitions: JsonObject
    ) -> list[RequestBlock]:
        """Add the definitions that the message loads by name to its last block."""
        loaded_tools = [
            definitions[name] for name in iterate_loaded_tool_names(message) if name in definitions
        ]
        if not loaded_tools or not blocks:
            return blocks
        tokens = sum(self.count_text(dump_compact_json(each)) for each in loaded_tools)
        return [*blocks[:-1], replace(blocks[-1], tokens=blocks[-1].tokens + tokens)]

    def _system(self, system: Any) -> list[RequestBlock]:
        blocks = (
            [{"text": system}] if isinstance(system, str) and system else list_array_objects(system)
        )
        return [
            RequestBlock(
                section="system",
                text=str(block.get("text")),
                tokens=MESSAGE_TOKENS + self.count_text(str(block.get("text"))),
                cache_ttl=read_cache_ttl(block),
            )
            for block in blocks
        ]

    def _anthropic_message(self, message: JsonObject) -> Iterator[RequestBlock]:
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for index, block in enumerate(list_array_objects(blocks)):
            text, tokens = self._block(block)
            inner = (read_cache_ttl(each) for each in list_array_objects(block.get("content")))
            yield RequestBlock(
                section="messages",
                text=f"{message.get('role')}\0{text}",
                tokens=tokens + (MESSAGE_TOKENS if index == 0 else 0),
                cache_ttl=read_cache_ttl(block) or next((mark for mark in inner if mark), None),
            )

    def _block(self, block: JsonObject) -> tuple[str, int]:
        match block.get("type"):
            case "tool_use":
                arguments = dump_compact_json(block.get("input"))
                texts = (str(block.get("name")), str(block.get("id")), arguments)
                return "\0".join(("call", *texts)), CALL_TOKENS + sum(map(self.count_text, texts))
            case "tool_result":
                call_id = str(block.get("tool_use_id"))
                text, tokens = self._content(block.get("content"))
                failure_mark = "failed" if block.get("is_error") else ""
                result_text = f"result\0{call_id}\0{failure_mark}\0{text}"
                return result_text, RESULT_TOKENS + self.count_text(call_id) + tokens
            case _:
                return self._part(block)

    def _chat(self, message: JsonObject) -> RequestBlock:
        text, tokens = self._content(message.get("content"))
        tokens += MESSAGE_TOKENS
        texts = [str(message.get("role")), text]
        if "name" in message:
            texts.append(str(message["name"]))
            tokens += NAME_TOKENS + self.count_text(texts[-1])
        if message.get("role") == "tool":
            texts.append(str(message.get("tool_call_id")))
            tokens += RESULT_TOKENS + self.count_text(texts[-1])
        if reasoning := message.get("reasoning_content"):
            texts.append(str(reasoning))
            tokens += self.count_text(texts[-1])
        for call in list_array_objects(message.get("tool_calls")):
            body: JsonObject = call.get("function") or call.get("custom") or {}
            arguments = str(body.get("arguments", body.get("input", "")))
            call_texts = (str(call.get("id")), str(body.get("name")), arguments)
            texts += call_texts
            tokens += CALL_TOKENS + sum(map(self.count_text, call_texts))
        parts = list_array_objects(message.get("content"))
        mark = next((mark for part in parts if (mark := read_cache_ttl(part))), None)
        return RequestBlock(
            section="messages", text="\0".join(texts), tokens=tokens, cache_ttl=mark
        )

    def _item(self, item: JsonObject) -> RequestBlock:
        kind = str(item.get("type", "message"))
        texts = [kind, str(item.get("role"))]
        tokens = MESSAGE_TOKENS
        mark = None
        if kind in ("function_call", "custom_tool_call"):
            arguments = item.get("arguments", item.get("input"))
            call_texts = (str(item.get("call_id")), str(item.get("name")), str(arguments))
            texts += call_texts
            tokens += CALL_TOKENS + sum(map(self.count_text, call_texts))
        elif kind == "message" or (kind.endswith("_output") and "tools" not in item):
            key = "content" if kind == "message" else "output"
            text, size = self._content(item.get(key))
            texts.append(text)
            tokens += size
            if kind != "message":
                texts.append(str(item.get("call_id")))
                tokens += RESULT_TOKENS + self.count_text(texts[-1])
            mark = next(
                (m for part in list_array_objects(item.get(key)) if (m := read_cache_ttl(part))),
                None,
            )
        elif kind == "reasoning":
            # What was thought is not here: its encrypted form is longer than it is in tokens.
            texts.append(dump_compact_json(item))
            tokens += len(str(item.get("encrypted_content") or "")) // 8
        else:
            texts.append(dump_compact_json(item))
            tokens += self.count_text(texts[-1])
        return RequestBlock(
            section="messages", text="\0".join(texts), tokens=tokens, cache_ttl=mark
        )

    def _content(self, content: Any) -> tuple[str, int]:
        if content is None or isinstance(content, str):
            return content or "", self.count_text(content or "")
        parts = [self._part(part) for part in list_array_objects(content)]
        return "\0".join(text for text, _ in parts), sum(tokens for _, tokens in parts)

    def _part(self, part: JsonObject) -> tuple[str, int]:
        kind = str(part.get("type"))
        text = part.get("text", part.get("thinking", part.get("refusal")))
        if isinstance(text, str):
            return text if kind.endswith("text") else f"{kind}\0{text}", self.count_text(text)
        part_json = dump_compact_json(
            {key: value for key, value in part.items() if key not in _CACHE_MARK_KEYS}
        )
        if "image" in kind:
            return part_json, IMAGE_TOKENS
        if kind in ("document", "file", "input_file", "input_audio"):
            return part_json, DOCUMENT_TOKENS
        return part_json, self.count_text(part_json)


def _definition_in_prompt(tool: JsonObject, dialect: str) -> JsonObject:
    """Return what the model sees of a tool before it is loaded; empty if that is nothing."""
    inner = list_array_objects(tool.get("tools"))
    if inner:
        usual: JsonObject = tool.get("default_config") or {}
        own_configs: JsonObject = tool.get("configs") or {}
        configs: list[JsonObject] = [
            {**usual, **(own_configs.get(str(each.get("name"))) or {}), **each} for each in inner
        ]
        pairs = zip(inner, configs, strict=True)
        return {
            **tool,
            "tools": [each for each, config in pairs if not config.get("defer_loading")],
        }
    body: JsonObject = tool.get("function") or tool
    if not tool.get("defer_loading") and not body.get("defer_loading"):
        return tool
    if dialect != "openai_responses":
        return {}
    header_keys = ("type", "name", "description", "server_label", "server_description")
    return {key: tool[key] for key in header_keys if key in tool}


def _deferred_definitions(request: JsonObject) -> dict[str, JsonObject]:
    """Return all definitions by name that are not shown as they are."""
    definitions: dict[str, JsonObject] = {}
    for tool in list_array_objects(request.get("tools")):
        for each in (tool, *list_array_objects(tool.get("tools"))):
            body: JsonObject = each.get("function") or each
            if each is not tool or each.get("defer_loading") or body.get("defer_loading"):
                definitions[str(body.get("name"))] = each
    return definitions


def iterate_loaded_tool_names(value: Any) -> Iterator[str]:
    """Yield the names of deferred tools that a message, or a list of messages, loads."""
    if isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        if mapping.get("type") == "tool_reference":
            yield str(mapping.get("tool_name") or mapping.get("name"))
        if mapping.get("type") == "tool_search_output":
            for tool in list_array_objects(mapping.get("tools")):
                for each in (tool, *list_array_objects(tool.get("tools"))):
                    yield str(each.get("name"))
        for each in mapping.values():
            yield from iterate_loaded_tool_names(each)
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from iterate_loaded_tool_names(each)


def read_cache_ttl(block: JsonObject) -> str | None:
    """Return how long a block's mark asks to keep the prefix. None if it has no mark."""
    for key, usual in (("cache_control", "5m"), ("prompt_cache_breakpoint", "30m")):
        if isinstance(block.get(key), dict):
            return str(block[key].get("ttl") or usual)
    return None


def _mark_last_block(blocks: list[RequestBlock], control: Any) -> list[RequestBlock]:
    """Put a mark of the whole request on its last block."""
    if control and blocks:
        last = blocks[-1]
        mark = read_cache_ttl({"cache_control": control})
        end = RequestBlock(
            section=last.section,
            text=last.text,
            tokens=last.tokens,
            cache_ttl=last.cache_ttl or mark,
        )
        return [*blocks[:-1], end]
    return blocks


def list_array_objects(json_array: Any) -> list[dict[str, Any]]:
    """Return the objects of a JSON array. Anything else gives an empty list."""
    if not isinstance(json_array, list):
        return []
    return [
        cast("dict[str, Any]", each) for each in cast("list[Any]", json_array) if _is_object(each)
    ]


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def dump_compact_json(value: Any) -> str:
    """Return JSON without spaces, with the keys in the given order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
