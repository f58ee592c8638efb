"""What is given is taken as a copy, and refused where JSON cannot say it."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any
from uuid import UUID

import pytest

from tests.context.contexts import READ
from tests.conversations import calls, chat, claude, contents, said, user
from tests.lazy import openai
from trimtab import Context, fit
from trimtab.dialects.reading import copy_message, to_plain_dict
from trimtab.engine.log.message import Message, OpaqueBlock, Text

pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")
JSON = "it must be JSON: a text, a number, True, False, None, a list or a mapping"


class Answer(pydantic.BaseModel):
    price: int = 0


class Plain(Enum):
    LOW = "low"


class Effort(StrEnum):
    LOW = "low"


@dataclass
class Point:
    x: int
    when: date


UNSAYABLE = [
    (b"raw", f"b'raw'; {JSON}"),
    (Decimal("1.5"), f"Decimal('1.5'); {JSON}"),
    (UUID(int=1), "UUID("),
    ({1}, f"{{1}}; {JSON}"),
    (Plain.LOW, f"<Plain.LOW: 'low'>; {JSON}"),
    (Answer, "it must be JSON, not a class: pass the schema of the class"),
    (print, f"<built-in function print>; {JSON}"),
    (float("nan"), "nan; it must be a finite number"),
    (float("-inf"), "-inf; it must be a finite number"),
]


def refused(call, *args, **options) -> str:
    with pytest.raises((TypeError, ValueError)) as raised:
        call(*args, **options)
    return str(raised.value)


def told_by(value):
    return {"role": "user", "content": [{"type": "text", "text": "x", "meta": [0, value]}]}


@pytest.mark.parametrize(("value", "told"), UNSAYABLE)
def test_what_json_cannot_say_is_refused_where_it_is_added(value, told):
    context = chat()
    words = refused(context.add, told_by(value))
    assert words.startswith("content[0].meta[1] is ")
    assert told in words
    words = refused(context.sync, [user("hi"), told_by(value)])
    assert words.startswith("messages[1]: content[0].meta[1] is ")
    assert len(context.events) == 1
    context.add(user("hi"))
    assert contents(context.request()) == ["hi"]
    assert refused(fit, [told_by(value)], model="gpt-4o").startswith("messages[0]: content[0]")


@pytest.mark.parametrize(("value", "told"), UNSAYABLE)
@pytest.mark.parametrize(
    ("options", "place"),
    [
        (lambda value: {"params": {"x": {"y": value}}}, "params: x.y is "),
        (lambda value: {"tools": [READ, {**READ, "x": value}]}, "tools[1]: x is "),
        (lambda value: {"turn_tools": [{**READ, "x": value}]}, "turn_tools[0]: x is "),
        (
            lambda value: {"system": [{"role": "system", "content": "x", "name": value}]},
            "system[0]: name is ",
        ),
        (lambda value: {"model_info": {"x": value}}, "model_info: x is "),
    ],
)
def test_what_json_cannot_say_is_refused_where_it_is_set(value, told, options, place):
    context = chat()
    words = refused(context.configure, **options(value))
    assert words.startswith(place)
    assert told in words
    assert len(context.events) == 1
    if "turn_tools" not in options(value):
        assert refused(Context, "gpt-4o", **options(value)) == words


def test_a_key_that_is_no_text_is_refused_but_for_numbers():
    context = chat()
    told = "params: x has the key (1, 2); it must be a text"
    assert refused(context.configure, params={"x": {(1, 2): 3}}) == told
    context.configure(params={"logit_bias": {50256: -100, 9: 1}})
    context.add(user("hi"))
    request = context.request()
    assert request["logit_bias"] == {"50256": -100, "9": 1}
    assert Context.load(context.dump()).rebuild_request(context.window.seq) == request


def test_what_json_can_say_in_other_words_is_taken():
    params = {
        "effort": Effort.LOW,
        "stop": ("a", "b"),
        "since": date(2026, 1, 2),
        "at": Point(x=1, when=date(2026, 1, 2)),
        "answer": Answer(price=3),
    }
    context = chat(params=params)
    context.add(user("hi"))
    assert (
        context.request().items()
        >= {
            "effort": "low",
            "stop": ["a", "b"],
            "since": "2026-01-02",
            "at": {"x": 1, "when": "2026-01-02"},
            "answer": {"price": 3},
        }.items()
    )
    assert Context.load(context.dump()).rebuild_request(context.window.seq) == context.request()


def test_what_an_sdk_parsed_into_anything_does_not_break_its_stream():
    class Bill(pydantic.BaseModel):
        total: Decimal

    wire = {"type": "response.output_text.done", "text": "{}", "logprobs": []}
    wire |= {"content_index": 0, "item_id": "i", "output_index": 0, "sequence_number": 1}
    event = openai.lib.streaming.responses.ResponseTextDoneEvent[Bill].model_validate(
        {**wire, "parsed": {"total": "1.5"}}
    )
    assert event.parsed is not None
    assert to_plain_dict(event) == wire


def test_a_system_prompt_that_the_caller_goes_on_to_change_is_as_it_was_set():
    blocks: Any = [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}]
    context = claude(system=blocks)
    context.add(user("hi"))
    request = deepcopy(context.request())
    blocks[0]["cache_control"]["ttl"] = "1h"
    blocks.append({"type": "text", "text": "T"})
    assert context.rebuild_request(context.window.seq) == request
    context.configure(max_output_tokens=500)
    assert context.request()["system"] == request["system"]


def test_what_the_caller_changes_meanwhile_does_not_enter_with_another_option():
    tools: Any = [deepcopy(READ)]
    params: Any = {"metadata": {"user_id": "ada"}}
    knobs: Any = {"tools": {"read": {"exempt": True}}}
    context = claude(tools=tools, params=params, limits=knobs)
    before = context.window.settings
    tools.append({**READ, "name": "write"})
    tools[0]["description"] = "Changed."
    params["metadata"]["user_id"] = "eve"
    knobs["tools"]["read"]["exempt"] = False
    context.configure(max_output_tokens=500)
    after = context.window.settings
    assert (after.tools, after.params) == (before.tools, before.params)
    assert after.policy_params == before.policy_params


def test_a_message_made_by_hand_is_taken_as_a_copy():
    data = {"type": "document", "tags": ["a"]}
    mine = Message(
        role="user",
        parts=(OpaqueBlock(data=data), Text(text="x", extra={"marks": [1]})),
        origin="anthropic",
        plain=False,
    )
    taken = copy_message(mine)
    assert taken == mine
    data["tags"].append("b")  # pyright: ignore[reportAttributeAccessIssue] - a list
    assert taken != mine
    wrong = Message(role="user", parts=(OpaqueBlock(data={"type": "x", "y": b"raw"}),))
    assert refused(copy_message, wrong) == f"parts[0].opaque.y is b'raw'; {JSON}"


def test_a_message_that_cannot_be_redacted_leaves_no_trace():
    def redact(text: str) -> str:
        if "secret" in text:
            raise RuntimeError("no key for the vault")
        return text

    context = chat(redact=redact)
    context.add(user("Read it."))
    context.add(calls("c"))
    before = context.dump()
    with pytest.raises(RuntimeError, match="no key"):
        context.add(said("a secret"))
    assert context.dump() == before
    assert [call.id for call in context.window.conversation.open_calls()] == ["c"]
