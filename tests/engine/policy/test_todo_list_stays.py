"""The newest todo list (plan) of the agent stays in the request, whole, under every policy."""

import json
from typing import Any

import pytest

from tests.conversations import calls, chat, claude, prose, result, said, user
from trimtab import Context
from trimtab.engine.log.event import Edit
from trimtab.engine.policy.config import GOALS
from trimtab.engine.policy.planning.kept_calls import KEPT_CALLS_ROOM_DIVISOR
from trimtab.engine.policy.presets import POLICY_NAMES
from trimtab.errors import CannotFit

SMALL: dict[str, Any] = {"context_window": 12_000, "max_output_tokens": 500}
VARIANTS = [
    *((name, "balanced") for name in POLICY_NAMES),
    *(("auto", goal) for goal in GOALS if goal != "balanced"),
]
OK = "Todos have been modified successfully."


def todos(count: int = 8, first: int = 0) -> list[dict[str, str]]:
    numbers = range(first, first + count)
    return [{"content": f"MARK-{n} migrate step {n}", "status": "pending"} for n in numbers]


def write(context: Context, call_id: str, items: list[dict[str, str]], text: str = OK) -> None:
    arguments = json.dumps({"todos": items})
    context.add(calls(call_id, tool="TodoWrite", arguments=arguments))
    context.add(result(call_id, text))


def read_files(context: Context, rounds: int, size: int = 3_000, start: int = 0) -> dict[str, Any]:
    request: dict[str, Any] = {}
    for number in range(start, start + rounds):
        context.add(calls(f"r{number}", arguments=json.dumps({"path": f"src/f{number}.py"})))
        context.add(result(f"r{number}", prose(size, f"source {number}")))
        request = context.request()
    return request


def marks(request: Any, count: int = 8, first: int = 0) -> int:
    text = json.dumps(request)
    return sum(f"MARK-{n} migrate" in text for n in range(first, first + count))


@pytest.mark.parametrize(("policy", "goal"), VARIANTS)
@pytest.mark.parametrize("in_one_turn", [True, False])
def test_the_newest_list_stays_whole_while_files_are_read(policy, goal, in_one_turn):
    context = chat(policy, goal=goal, **SMALL)
    context.add(user("Migrate the billing module."))
    write(context, "t0", todos())
    for number in range(4):
        assert marks(read_files(context, 4, size=6_000, start=4 * number)) == 8
        if not in_one_turn:
            context.add(said(prose(4_000)))
            context.add(user(f"Go on with part {number}."))
    assert any(isinstance(event.body, Edit) for event in context.events)


def test_a_list_beside_other_calls_stays_and_their_results_go():
    context = chat("auto", **SMALL)
    context.add(user("go"))
    round_of_calls = calls("a", "t", "b", arguments='{"path": "a.py"}')
    round_of_calls["tool_calls"][1]["function"] = {
        "name": "TodoWrite",
        "arguments": json.dumps({"todos": todos()}),
    }
    context.add(round_of_calls)
    for call_id in ("a", "t", "b"):
        context.add(result(call_id, OK if call_id == "t" else prose(5_000, f"beside {call_id}")))
    request = read_files(context, 40)
    assert marks(request) == 8
    assert "beside a" not in json.dumps(request)


def test_a_list_that_only_a_result_shows_stays():
    context = chat("compact", **SMALL)
    context.add(user("go"))
    write(context, "t0", todos())
    context.add(calls("t1", tool="todoread"))
    context.add(result("t1", json.dumps(todos(), indent=2)))
    newest = context.window.seq
    request = read_files(context, 40)
    assert marks(request) == 8
    assert context.window.entries[newest].round.group.hidden is None


def test_changes_of_a_list_stay_with_it():
    context = chat("layered", **SMALL)
    context.add(user("go"))
    write(context, "t0", todos())
    for number in range(3):
        arguments = json.dumps({"id": number, "status": f"done in round {number}"})
        context.add(calls(f"u{number}", tool="TodoWrite", arguments=arguments))
        context.add(result(f"u{number}", OK))
    request = read_files(context, 40)
    assert marks(request) == 8
    assert all(f"done in round {number}" in json.dumps(request) for number in range(3))


@pytest.mark.parametrize("policy", ["auto", "layered", "thresholds", "full"])
def test_an_earlier_list_goes_before_anything_newer_and_the_newest_stays(policy):
    context = chat(policy, **SMALL)
    context.add(user("go"))
    write(context, "t0", todos())
    read_files(context, 8, size=300)
    write(context, "t1", todos(first=100))
    while not any(isinstance(e.body, Edit) and e.body.part is None for e in context.events):
        context.add(said(prose(1_000)))
        request = read_files(context, 1, size=100, start=context.window.seq)
    assert (marks(request), marks(request, first=100)) == (0, 8)


def test_a_list_that_is_larger_than_its_share_of_the_room_is_hidden_like_anything_else():
    context = chat("auto", **SMALL)
    context.add(user("go"))
    count = context.budget().room // KEPT_CALLS_ROOM_DIVISOR // 10
    write(context, "t0", todos(count))
    read_files(context, 20, size=6_000)
    (todo_call,) = context.window.conversation.todo_calls
    assert context.window.entries[todo_call.parts[0][0]].round.group.hidden is not None


@pytest.mark.parametrize("policy", ["auto", "full", "rolling"])
def test_the_list_is_given_up_before_the_words_of_the_user(policy):
    context = chat(policy, **SMALL)
    context.add(user("The rule is: never touch the ledger."))
    write(context, "t0", todos())
    context.add(said("Shall I go on?"))
    context.add(user(prose(6_000, "Yes. Here is the log.")))
    request = context.request()
    assert marks(request) == 8
    for _ in range(30):
        limit = context.window.last_call.body.bound + 400
        try:
            context.fail("overflow", limit=limit, input=limit + 1)
            request = context.request()
        except CannotFit:
            break
        text = json.dumps(request)
        assert marks(request) == 0 or "never touch the ledger" in text
    assert marks(request) == 0


def test_after_a_refusal_without_numbers_the_list_stays():
    context = claude("auto", context_window=200_000)
    context.add(user("go"))
    write(context, "t0", todos())
    read_files(context, 10)
    for _ in range(3):
        context.fail("overflow")
        assert marks(context.request()) == 8
    assert any(isinstance(event.body, Edit) for event in context.events)


def test_no_model_is_asked_to_summarise_the_list_and_a_late_summary_leaves_it():
    context = chat("rolling", summaries="manual", **SMALL)
    context.add(user("go"))
    write(context, "t0", todos())
    read_files(context, 12, size=200)
    wanted = context.pending_summary()
    assert wanted is not None
    assert not any("MARK-" in call.arguments for m in wanted.messages for call in m.calls)
    context.add_summary("- files were read", span=wanted.span)
    assert marks(context.request()) == 8


def test_compact_on_demand_leaves_the_list():
    context = chat("full")
    context.add(user("go"))
    write(context, "t0", todos())
    read_files(context, 20)
    context.compact()
    assert marks(context.request()) == 8
    assert any(isinstance(event.body, Edit) for event in context.events)


@pytest.mark.parametrize("policy", ["auto", "layered"])
@pytest.mark.parametrize("is_exempt", [True, False])
def test_the_newest_call_of_an_exempt_tool_stays_with_its_arguments(policy, is_exempt):
    tools = {"notes": {"exempt": is_exempt}}
    context = chat(policy, limits={"tools": tools}, **SMALL)
    context.add(user("go"))
    for number in range(2):
        arguments = json.dumps({"text": f"The ledger is frozen, note {number}."})
        context.add(calls(f"n{number}", tool="notes", arguments=arguments))
        context.add(result(f"n{number}", f"saved as note {number}"))
    notes = [group for group in context.window.visible_groups.values() if any(group.calls())]
    for number in range(20):
        context.add(said(prose(3_000, f"thought {number}")))
        read_files(context, 1, start=number)
    assert [group.hidden is None for group in notes] == [False, is_exempt]


def test_the_list_survives_a_restart_from_the_log():
    context = chat("auto", **SMALL)
    context.add(user("go"))
    write(context, "t0", todos())
    read_files(context, 30)
    restarted = Context.load(context.dump())
    assert marks(read_files(restarted, 30, start=100)) == 8
