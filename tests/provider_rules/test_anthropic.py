"""The check of Anthropic's requests takes good ones and names what is wrong with others."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.dialects.sdk_types import messages_of
from tests.pictures import PNG_TEXT
from tests.provider_rules import anthropic
from tests.provider_rules.anthropic import check
from tests.provider_rules.rules import rules_of

Wire = dict[str, Any]

MARK = {"type": "ephemeral"}
PICTURE: Wire = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": PNG_TEXT},
}
THOUGHT: Wire = {"type": "thinking", "thinking": "Look first.", "signature": "abc="}
CALLS: list[Wire] = [
    {"type": "tool_use", "id": "a", "name": "read_file", "input": {"path": "x"}},
    {"type": "tool_use", "id": "b", "name": "read_file", "input": {"path": "y"}},
]
RESULTS: list[Wire] = [
    {"type": "tool_result", "tool_use_id": "a", "content": "one"},
    {
        "type": "tool_result",
        "tool_use_id": "b",
        "content": [{"type": "text", "text": "two"}, PICTURE],
    },
]


def good() -> Wire:
    """Thinking, parallel calls, pictures, cache marks, and a user who speaks beside results."""
    request: Wire = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 4_000,
        "thinking": {"type": "enabled", "budget_tokens": 1_024},
        "system": [{"type": "text", "text": "Be brief.", "cache_control": MARK}],
        "tools": [{"name": "read_file", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look."}, PICTURE]},
            {"role": "assistant", "content": [THOUGHT, *CALLS]},
            {"role": "user", "content": [*RESULTS, {"type": "text", "text": "Hurry."}]},
            {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "Done."}]},
            {"role": "user", "content": "And now?"},
            {"role": "assistant", "content": [THOUGHT, CALLS[0] | {"id": "c"}]},
            {"role": "user", "content": [RESULTS[0] | {"tool_use_id": "c"}]},
        ],
    }
    return copy.deepcopy(request)


def blocks(request: Wire, message: int) -> list[Wire]:
    return request["messages"][message]["content"]


def _swap_results(r: Wire) -> None:
    found = blocks(r, 2)
    found[0], found[1] = found[1], found[0]


BREAKS: dict[str, Callable[[Wire], object]] = {
    "max_tokens is there, and at least 1": lambda r: r.pop("max_tokens"),
    "the thinking budget is below max_tokens": lambda r: r.update(max_tokens=1_024),
    "tool names are unique": lambda r: r["tools"].append(r["tools"][0]),
    "there is at least one message": lambda r: r.update(messages=[]),
    "a message is the user's or the assistant's": lambda r: r["messages"][0].update(role="tool"),
    "this model takes no system message among the others": lambda r: r["messages"].insert(
        1, {"role": "system", "content": "Be careful."}
    ),
    "a system message stands between the user's and the assistant's": lambda r: r[
        "messages"
    ].insert(2, {"role": "system", "content": "Be careful."}),
    "thinking is of a kind that the model knows": lambda r: r.update(model="claude-opus-4-8"),
    "with a budget for thinking, no tool is forced": lambda r: r.update(
        tool_choice={"type": "any"}
    ),
    "thinking is cleared only if it is on": lambda r: r.update(
        thinking={"type": "disabled"},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    ),
    "every parameter is known": lambda r: r.update(reasoning_effort="high"),
    "no message is empty": lambda r: r["messages"][4].update(content=[]),
    "the first message is the user's": lambda r: r["messages"].pop(0),
    "a request has at most 4 cache marks": lambda r: [
        block.update(cache_control=MARK) for block in (*blocks(r, 0), *blocks(r, 2))
    ],
    "no cache mark stands on thinking": lambda r: blocks(r, 1)[0].update(cache_control=MARK),
    "no cache mark stands on an empty text": lambda r: blocks(r, 0)[0].update(
        text="", cache_control=MARK
    ),
    "every block is of a known type": lambda r: blocks(r, 0)[0].update(type="input_text"),
    "no text block is blank": lambda r: blocks(r, 0)[0].update(text=" \n"),
    "calls and thinking are the assistant's": lambda r: blocks(r, 0).append(THOUGHT),
    "results stand before all else in their message": lambda r: blocks(r, 2).reverse(),
    "results are the user's": lambda r: blocks(r, 3).append(RESULTS[0]),
    "thinking is signed": lambda r: blocks(r, 1)[0].pop("signature"),
    "a picture has data of a known type": lambda r: blocks(r, 0)[1]["source"].update(data=""),
    "a request holds at most 600 pictures": lambda r: blocks(r, 0).extend([PICTURE] * 600),
    "a result holds a text or a list": lambda r: blocks(r, 2)[0].update(content=None),
    "a result holds nothing but texts, pictures and documents": lambda r: blocks(r, 2)[1][
        "content"
    ].append(THOUGHT),
    "no text in a result's list is blank": lambda r: blocks(r, 2)[1]["content"][0].update(text=""),
    "a result that is an error holds text alone": lambda r: blocks(r, 2)[1].update(is_error=True),
    "ids of calls are unique in a request": lambda r: blocks(r, 5)[1].update(id="a"),
    "an id of a call is of letters, digits, _ and -": lambda r: blocks(r, 5)[1].update(id="c.1"),
    "a tool's name is of letters, digits, _ and -": lambda r: blocks(r, 5)[1].update(name="a b"),
    "the input of a call is an object": lambda r: blocks(r, 5)[1].update(input="x"),
    "every call has its result in the next message": lambda r: blocks(r, 2).pop(0),
    "every result has its call in the message before": lambda r: blocks(r, 1).pop(),
    "no call is answered twice": lambda r: blocks(r, 2).insert(0, RESULTS[0]),
    "results are in the order of their calls": _swap_results,
    "with thinking, the last message is not the assistant's": lambda r: r["messages"].pop(),
    "this model goes on with no reply that has begun": lambda r: (
        r.update(model="claude-opus-4-8"),
        r["messages"].append({"role": "assistant", "content": "Well,"}),
    ),
    "a reply to be continued does not end in white space": lambda r: r["messages"].append(
        {"role": "assistant", "content": "Well, "}
    ),
    "the last block of a reply is not thinking": lambda r: r["messages"].append(
        {"role": "assistant", "content": [THOUGHT]}
    ),
    "with thinking, an open loop begins with thinking": lambda r: blocks(r, 5).pop(0),
}


def test_a_good_request_breaks_no_rule():
    assert list(check(good())) == []


def test_a_request_without_thinking_may_end_with_a_reply_to_be_continued():
    request = good()
    del request["thinking"]
    request["messages"].append({"role": "assistant", "content": "Well,"})
    assert list(check(request)) == []


def test_a_user_who_speaks_within_a_loop_leaves_open_where_it_begins():
    request = good()
    request["messages"] = request["messages"][:3]
    blocks(request, 1).pop(0)
    assert list(check(request)) == []


def test_later_models_take_a_system_message_among_the_others():
    request = good()
    request["model"], request["thinking"] = "claude-opus-4-8", {"type": "adaptive"}
    request["messages"].insert(1, {"role": "system", "content": "Be careful."})
    assert list(check(request)) == []


@pytest.mark.parametrize("rule", BREAKS)
def test_what_breaks_a_rule_is_named(rule):
    request = good()
    BREAKS[rule](request)
    assert rule in {broken.rule for broken in check(request)}


def test_every_rule_has_an_example():
    assert set(rules_of(anthropic)) == set(BREAKS)


@pytest.mark.slow
def test_the_good_request_is_one_by_the_types_of_the_sdk():
    messages_of("anthropic").validate_python(good()["messages"])
