"""Policies of one's own, from wishes that users of agents have: each in a few lines, with public
names only."""

import json
from typing import Any

import pytest

from trimtab import Context
from trimtab.policies import Budget, Decision, Plan, Policy, ToolResultView, WindowView

HOUR_S = 3_600


def keep_the_newest_plan(window: WindowView, budget: Budget) -> Decision:
    plan = Plan(window, budget)
    plans = [result for result in window.results.values() if result.tool == "make_plan"]
    for result in plans[:-1]:
        plan.mask(result.entry, result.part, "a newer plan is there")
    return plan.to_decision()


def drop_superseded_reads(window: WindowView, budget: Budget) -> Decision:
    plan = Plan(window, budget)
    reads = [result for result in window.results.values() if result.tool == "read"]
    newest = {result.arguments: result for result in reads}
    for result in reads:
        if newest[result.arguments] is not result:
            plan.mask(result.entry, result.part, "the file was read again")
    return plan.to_decision()


def hide_web_pages_once_read(window: WindowView, budget: Budget) -> Decision:
    plan = Plan(window, budget)
    for result in list(window.results.values()):
        if result.tool == "fetch" and result.seq <= window.read_through_seq:
            plan.mask(result.entry, result.part, "the model has read this page")
    return plan.to_decision()


def hide_results_after_an_hour(window: WindowView, budget: Budget) -> Decision:
    plan = Plan(window, budget)
    newest = window.newest_user_entry
    now = newest.at if newest is not None else None
    for result in list(window.results.values()):
        if now is not None and result.entry.at is not None and now - result.entry.at > HOUR_S:
            plan.mask(result.entry, result.part, "older than an hour")
    return plan.to_decision()


def hide_generated_files(window: WindowView, budget: Budget) -> Decision:
    plan = Plan(window, budget)
    for result in list(window.results.values()):
        if json.loads(result.arguments).get("path", "").startswith("build/"):
            plan.mask(result.entry, result.part, "a generated file")
    return plan.to_decision()


class Chat:
    """An agent's work with tools, and the clock of its context."""

    def __init__(self, policy: Policy) -> None:
        self.now = 0.0
        self.context = Context("gpt-4o", policy=policy, clock=lambda: self.now)
        self.texts: dict[str, str] = {}
        self.context.add({"role": "user", "content": "Build it."})

    def use(self, tool: str, **arguments: Any) -> str:
        """Call a tool, and return the handle of its result."""
        self.context.request()
        call_id = f"c{len(self.texts)}"
        function = {"name": tool, "arguments": json.dumps(arguments)}
        call = {"id": call_id, "type": "function", "function": function}
        self.context.add({"role": "assistant", "content": None, "tool_calls": [call]})
        text = f"Result {len(self.texts)}: " + "many words of it. " * 40
        handle = self.context.add({"role": "tool", "tool_call_id": call_id, "content": text})
        self.texts[f"{handle}.0"] = text
        return f"{handle}.0"

    def list_masked(self) -> list[str]:
        """Ask again, and return the handles of the masked results. All are still recalled."""
        self.context.request()
        for handle, text in self.texts.items():
            assert self.context.recall(handle) == text
        return [handle for handle in self.texts if self.context.why(handle).state == "masked"]


def test_only_the_newest_plan_stays():
    chat = Chat(keep_the_newest_plan)
    first = chat.use("make_plan", steps=3)
    chat.use("read", path="a.py")
    second = chat.use("make_plan", steps=4)
    chat.use("make_plan", steps=5)
    assert chat.list_masked() == [first, second]


def test_a_file_that_was_read_again_is_shown_once():
    chat = Chat(drop_superseded_reads)
    first = chat.use("read", path="a.py")
    chat.use("read", path="b.py")
    chat.use("read", path="a.py")
    assert chat.list_masked() == [first]


def test_results_of_one_tool_are_hidden_after_the_model_has_read_them():
    chat = Chat(hide_web_pages_once_read)
    page = chat.use("fetch", url="https://example.com")
    assert chat.list_masked() == []
    chat.use("read", path="a.py")
    assert chat.list_masked() == [page]


def test_results_are_hidden_by_age():
    chat = Chat(hide_results_after_an_hour)
    old = chat.use("read", path="a.py")
    chat.context.add({"role": "assistant", "content": "It is built."})
    chat.now += 2 * HOUR_S
    chat.context.add({"role": "user", "content": "Again, please."})
    chat.use("read", path="b.py")
    assert chat.list_masked() == [old]


def test_results_are_hidden_by_path():
    chat = Chat(hide_generated_files)
    chat.use("read", path="src/a.py")
    generated = chat.use("read", path="build/a.py")
    chat.use("fetch", url="https://example.com")
    assert chat.list_masked() == [generated]


@pytest.mark.parametrize(
    "policy",
    [
        keep_the_newest_plan,
        drop_superseded_reads,
        hide_web_pages_once_read,
        hide_results_after_an_hour,
        hide_generated_files,
    ],
)
def test_each_policy_is_right_on_an_empty_log_and_asks_for_nothing_twice(policy: Policy):
    chat = Chat(policy)
    assert chat.list_masked() == []
    for number in range(4):
        chat.use(("read", "fetch", "make_plan")[number % 3], path="build/a.py")
    masked = chat.list_masked()
    position = chat.context.window.seq
    assert chat.list_masked() == masked
    assert chat.context.window.seq == position


def test_results_are_read_as_the_type_that_can_be_imported():
    chat = Chat(keep_the_newest_plan)
    chat.use("read", path="a.py")
    (result,) = chat.context.window.results.values()
    assert isinstance(result, ToolResultView)
