"""What Bedrock's Converse refuses, by its documentation and by the errors it answers with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tests.provider_rules.rules import Broken

Wire = Mapping[str, Any]

CALL_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
DOCUMENT_NAME = re.compile(r"(?!\s)(?:[a-zA-Z0-9()\[\]-]|\s(?!\s))+(?<!\s)")
MOST_POINTS, MOST_DOCUMENTS, LONGEST_NAME = 4, 5, 200
KINDS = ("text", "image", "document", "toolUse", "toolResult", "reasoningContent", "cachePoint")
OF_USERS = ("image", "document", "toolResult")
OF_ASSISTANTS = ("toolUse", "reasoningContent")
IN_RESULTS = ("text", "json", "image", "document")
CACHES = re.compile(r"(?:^|[./])(?:anthropic\.claude|amazon\.nova)")
"""Models that have a prompt cache."""
NOVA = re.compile(r"(?:^|[./])amazon\.nova")
ANSWERS_WITH_STATUS = re.compile(r"(?:^|[./])(?:anthropic\.claude|amazon\.nova)")


def check(request: Wire) -> Iterator[Broken]:
    """All rules that the arguments of one call break."""
    messages = request.get("messages") or ()
    model = str(request.get("modelId"))
    yield from _roles(messages)
    for message in messages:
        yield from _blocks(message, model)
    yield from _pairs(messages)
    yield from _documents(messages)
    yield from _cache_points(request, model)
    yield from _head(request)


def _blocks_of(message: Wire) -> Sequence[Wire]:
    return message.get("content") or ()


def _kind(block: Wire) -> str:
    return next(iter(block), "")


def _roles(messages: Sequence[Wire]) -> Iterator[Broken]:
    roles = [str(message.get("role")) for message in messages]
    if roles[:1] != ["user"]:
        yield Broken("the first message is the user's", str(roles[:1]))
    if other := set(roles) - {"user", "assistant"}:
        yield Broken("a message is the user's or the assistant's", str(other))
    if any(one == after for one, after in pairwise(roles)):
        yield Broken("user and assistant take turns", str(roles[-6:]))


def _blocks(message: Wire, model: str) -> Iterator[Broken]:
    role, blocks = message.get("role"), _blocks_of(message)
    if not blocks:
        yield Broken("no message is empty", str(role))
    spoken = False
    for block in blocks:
        kind = _kind(block)
        if len(block) != 1 or kind not in KINDS:
            yield Broken("a block is of one known kind", str(list(block)))
        if kind == "text" and not block["text"].strip():
            yield Broken("no text is blank", str(role))
        if (kind in OF_USERS and role != "user") or (kind in OF_ASSISTANTS and role == "user"):
            yield Broken("each says what is theirs to say", f"{kind} of {role}")
        if kind == "toolResult" and spoken:
            yield Broken("results stand before all else in their message")
        spoken = spoken or (role == "user" and kind not in ("toolResult", "cachePoint"))
        if kind == "toolUse":
            yield from _call(block["toolUse"])
        if kind == "toolResult":
            yield from _result(block["toolResult"], model)
        if kind == "reasoningContent":
            yield from _thought(block["reasoningContent"])
        yield from _media(block)


def _call(call: Wire) -> Iterator[Broken]:
    if not CALL_ID.fullmatch(str(call.get("toolUseId"))):
        yield Broken("an id of a call has at most 64 letters", str(call.get("toolUseId"))[:80])
    if not TOOL_NAME.fullmatch(str(call.get("name"))):
        yield Broken("a tool's name has at most 64 letters", str(call.get("name"))[:80])
    if not isinstance(call.get("input"), dict):
        yield Broken("the input of a call is an object", str(call.get("input"))[:60])


def _result(result: Wire, model: str) -> Iterator[Broken]:
    content = result.get("content") or ()
    if not content:
        yield Broken("no result is empty", str(result.get("toolUseId")))
    for part in content:
        if _kind(part) not in IN_RESULTS:
            yield Broken("a result holds texts, pictures and documents", _kind(part))
        if _kind(part) == "text" and not part["text"].strip():
            yield Broken("no text in a result is blank", str(result.get("toolUseId")))
        yield from _media(part)
    if "status" in result and not ANSWERS_WITH_STATUS.search(model):
        yield Broken("this model knows no status of a result", model)


def _thought(thought: Wire) -> Iterator[Broken]:
    reasoning = thought.get("reasoningText")
    if reasoning is not None and not reasoning.get("signature"):
        yield Broken("thinking is signed", str(reasoning)[:60])


def _media(block: Wire) -> Iterator[Broken]:
    for kind, formats in (("image", ("png", "jpeg", "gif", "webp")), ("document", ("pdf", "txt"))):
        media = block.get(kind)
        if media is None:
            continue
        data = (media.get("source") or {}).get("bytes")
        if media.get("format") not in formats or not isinstance(data, bytes) or not data:
            yield Broken("media are bytes of a known format", str(media.get("format")))


def _pairs(messages: Sequence[Wire]) -> Iterator[Broken]:
    """Every call is answered by the next message, in order, and nothing else is."""
    call_ids: list[str] = []
    all_ids: set[str] = set()
    for message in [*messages, {}]:
        blocks = _blocks_of(message)
        result_ids = [block["toolResult"]["toolUseId"] for block in blocks if "toolResult" in block]
        if result_ids != call_ids:
            yield Broken("the results of all calls come next, in order", f"{call_ids} {result_ids}")
        call_ids = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
        if again := [each for each in call_ids if each in all_ids or call_ids.count(each) > 1]:
            yield Broken("ids of calls are unique in a request", str(again))
        all_ids.update(call_ids)


def _documents(messages: Sequence[Wire]) -> Iterator[Broken]:
    names: list[str] = []
    for message in messages:
        blocks = _blocks_of(message)
        inner = [
            part for block in blocks for part in (block.get("toolResult") or {}).get("content", ())
        ]
        names += [block["document"]["name"] for block in (*blocks, *inner) if "document" in block]
        kinds = {_kind(block) for block in blocks}
        if "document" in kinds and "text" not in kinds:
            yield Broken("a text stands beside a document", str(kinds))
    for name in names:
        if not DOCUMENT_NAME.fullmatch(name) or len(name) > LONGEST_NAME:
            yield Broken("a document's name is of plain letters", name)
    if len(set(names)) < len(names):
        yield Broken("names of documents are unique in a request", str(names))
    if len(names) > MOST_DOCUMENTS:
        yield Broken("a request has at most 5 documents", str(len(names)))


def _cache_points(request: Wire, model: str) -> Iterator[Broken]:
    tools = (request.get("toolConfig") or {}).get("tools") or ()
    lists = [request.get("system") or (), tools, *map(_blocks_of, request.get("messages") or ())]
    points = 0
    for blocks in lists:
        for before, block in zip([{}, *blocks], blocks, strict=False):
            if "cachePoint" not in block:
                continue
            points += 1
            if not before or "cachePoint" in before or "reasoningContent" in before:
                yield Broken("a cache point follows what may be cached", str(list(before)))
            if not CACHES.search(model):
                yield Broken("this model has no cache", model)
            if NOVA.search(model) and (blocks is tools or "text" not in before):
                yield Broken("Nova takes cache points after texts alone", str(list(before)))
            if NOVA.search(model) and "ttl" in block["cachePoint"]:
                yield Broken("Nova takes no lifetime of a cache", str(block))
    if points > MOST_POINTS:
        yield Broken("a request has at most 4 cache points", str(points))


def _head(request: Wire) -> Iterator[Broken]:
    for block in request.get("system") or ():
        if "text" in block and not block["text"].strip():
            yield Broken("no system prompt is blank")
    most = (request.get("inferenceConfig") or {}).get("maxTokens")
    if not isinstance(most, int) or most < 1:
        yield Broken("maxTokens is there, and at least 1", str(most))
    calls = [b for message in request.get("messages") or () for b in _blocks_of(message)]
    tools = (request.get("toolConfig") or {}).get("tools")
    if any(_kind(block) in ("toolUse", "toolResult") for block in calls) and not tools:
        yield Broken("where calls are, tools are defined")
    if "toolConfig" in request and not tools:
        yield Broken("a list of tools is not empty")
    names = [tool["toolSpec"]["name"] for tool in tools or () if "toolSpec" in tool]
    if len(names) != len(set(names)):
        yield Broken("tool names are unique", str(names))
