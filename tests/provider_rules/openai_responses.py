"""What OpenAI's Responses API refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.provider_rules.rules import Broken

Item = Mapping[str, Any]

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
LONGEST_CALL_ID = 64
ROLES = ("user", "assistant", "system", "developer")
SAID = ("output_text", "refusal")
GIVEN = ("input_text", "input_image", "input_file", "input_audio")
OUTPUTS = ("input_text", "input_image", "input_file")


def check(
    request: Mapping[str, Any], *, reasons: bool, belongs: Mapping[str, str] | None = None
) -> Iterator[Broken]:
    """All rules that a request breaks.

    `reasons` is whether the model does; `belongs` names, by the id of an item that a model has
    made, the reasoning item that it was made with.
    """
    for name in ("thinking", "reasoning_effort", "output_config", "response_format", "n"):
        if name in request:
            yield Broken("every parameter is known", name)
    items = request.get("input")
    if isinstance(items, str) and items:
        return
    if not items:
        yield Broken("there is at least one item")
        return
    ids = [item["id"] for item in items if item.get("id")]
    for again in sorted({each for each in ids if ids.count(each) > 1}):
        yield Broken("ids of items are unique", again)
    for item in items:
        if _kind(item) == "message":
            yield from _message(item)
        if _kind(item) == "function_call":
            yield from _call(item)
        if _kind(item) == "function_call_output":
            yield from _output(item)
    yield from _pairs(items)
    yield from _reasoning(request, items, reasons=reasons)
    for item in items:
        reasoning_id = (belongs or {}).get(item.get("id") or "")
        if reasoning_id and reasoning_id not in ids:
            yield Broken("an item stands with the reasoning it was made with", str(item["id"]))


def _kind(item: Item) -> str:
    return item.get("type") or ("message" if "role" in item else "")


def _message(item: Item) -> Iterator[Broken]:
    role, content = item.get("role"), item.get("content")
    if role not in ROLES:
        yield Broken("every role is known", str(role))
    if not isinstance(content, str | list):
        yield Broken("content is a text or a list of parts", f"{role}: {content!r}")
    for part in content if isinstance(content, list) else ():
        if part.get("type") not in (SAID if role == "assistant" else GIVEN):
            yield Broken("parts are such as the role may have", f"{role}: {part.get('type')}")


def _call(item: Item) -> Iterator[Broken]:
    if not TOOL_NAME.fullmatch(str(item.get("name"))):
        yield Broken("a tool's name is of letters, digits, _ and -", str(item.get("name")))
    if not isinstance(item.get("arguments"), str):
        yield Broken("the arguments of a call are a text")
    if len(str(item.get("call_id"))) > LONGEST_CALL_ID:
        yield Broken("a call_id has at most 64 characters", str(item.get("call_id")))
    if item.get("id") and not str(item["id"]).startswith("fc"):
        yield Broken("the id of a call begins with fc", str(item["id"]))


def _output(item: Item) -> Iterator[Broken]:
    output = item.get("output")
    if not isinstance(output, str | list):
        yield Broken("an output is a text or a list of parts", repr(output)[:60])
    for part in output if isinstance(output, list) else ():
        if part.get("type") not in OUTPUTS:
            yield Broken("parts are such as an output may have", str(part.get("type")))


def _pairs(items: Sequence[Item]) -> Iterator[Broken]:
    waiting: list[str] = []
    call_ids: set[str] = set()
    for item in items:
        name = str(item.get("call_id"))
        if _kind(item) == "function_call":
            if name in call_ids:
                yield Broken("every call_id is of one call", name)
            call_ids.add(name)
            waiting.append(name)
        elif _kind(item) == "function_call_output":
            if name in waiting:
                waiting.remove(name)
            elif name in call_ids:
                yield Broken("no call is answered twice", name)
            else:
                yield Broken("every output has its call before it", name)
    if waiting:
        yield Broken("every call has its output", str(waiting))


def _reasoning(
    request: Mapping[str, Any], items: Sequence[Item], *, reasons: bool
) -> Iterator[Broken]:
    for item, following in zip(items, [*items[1:], {}], strict=True):
        if _kind(item) != "reasoning":
            continue
        if not reasons:
            yield Broken("reasoning goes to models that reason", str(item.get("id")))
        # A search or another tool that the provider runs itself is a call as well.
        is_led_to = _kind(following) == "reasoning" or _kind(following).endswith("_call")
        if not is_led_to and not (
            _kind(following) == "message" and following["role"] == "assistant"
        ):
            yield Broken("reasoning is followed by what it led to", str(item.get("id")))
        if request.get("store") is False and not item.get("encrypted_content"):
            yield Broken("reasoning that is not stored is sent encrypted", str(item.get("id")))
