"""Which calls write, change or read the agent's todo list (its plan)."""

import json
from typing import Any

import pytest

from tests.conversations import calls, chat, result, user

ITEMS = [{"content": "Read the docs", "status": "pending"}, {"content": "Test", "status": "done"}]
STEPS = [{"step": "Read the docs", "status": "in_progress"}, {"step": "Test", "status": "pending"}]
CHECKLIST = "# Migration\n- [ ] Read the docs\n- [x] Test\n"
TODO_WRITE = ("TodoWrite", {"todos": ITEMS}, "Todos have been modified successfully.")


def run(*rounds: tuple[str, Any, str]) -> list[tuple[str, bool]]:
    """Make calls; return the arguments of those that hold the list, and whether their results do
    too."""
    context = chat("full")
    context.add(user("go"))
    for number, (tool, arguments, text) in enumerate(rounds):
        context.add(calls(f"c{number}", tool=tool, arguments=json.dumps(arguments)))
        context.add(result(f"c{number}", text))
    entries = context.window.conversation.entries
    return [
        (entries[call.parts[0][0]].message.calls[0].arguments, len(call.parts) == 2)
        for call in context.window.conversation.todo_calls
    ]


def written(*rounds: tuple[str, Any]) -> list[tuple[str, bool]]:
    return [(json.dumps(arguments), False) for _, arguments in rounds]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("TodoWrite", {"todos": ITEMS}),
        ("update_plan", {"explanation": "First steps.", "plan": STEPS}),
        ("write_todos", {"todos": [{"description": "Read", "status": "pending"}]}),
        ("manage_list", {"operation": "write", "todoList": [{"title": "Read", "done": False}]}),
        ("TodoWrite", {"todos": json.dumps(ITEMS)}),
        ("update_todo_list", {"todos": "[ ] Read the docs\n[x] Test"}),
        ("Write", {"file_path": "/app/TODO.md", "content": CHECKLIST}),
        ("bash", {"command": f"cat > plan.md <<'EOF'\n{CHECKLIST}EOF", "note": "plan.md"}),
    ],
)
def test_a_call_that_writes_a_list_is_found_by_its_shape(tool, arguments):
    assert run((tool, arguments, "ok")) == written((tool, arguments))


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("todoread", {}, json.dumps(ITEMS)),
        ("todo", {"action": "toggle", "id": 2}, "Todos:\n1. [ ] Read the docs\n2. [x] Test"),
        ("read_file", {"path": "docs/todo.txt"}, CHECKLIST),
        ("todo", {"merge": True, "todos": ITEMS[:1]}, json.dumps({"todos": ITEMS})),
    ],
)
def test_a_result_that_shows_the_list_belongs_to_it(tool, arguments, text):
    assert run((tool, arguments, text)) == [(json.dumps(arguments), True)]


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("bash", {"command": f"gh pr create --body '{CHECKLIST}'"}, "ok"),
        ("list_issues", {"state": "open"}, json.dumps(ITEMS)),
        ("Task", {"prompt": "Review it"}, CHECKLIST),
        ("explain_plane", {"text": "x"}, CHECKLIST),
        ("grep", {"pattern": "TODO"}, "a.py:1: # TODO [ ] later"),
        ("search", {"query": "what is the plan."}, CHECKLIST),
        ("search", {"items": [{"content": "no status"}]}, "ok"),
        ("TodoWrite", {"todos": "not a list"}, "ok"),
        ("Write", {"path": "todo.py", "content": "rows = [[1], [2]]\n"}, "ok"),
    ],
)
def test_other_calls_are_not_taken_for_a_list(tool, arguments, text):
    assert run((tool, arguments, text)) == []


def test_a_newer_list_replaces_the_one_before():
    newer = ("update_plan", {"plan": STEPS}, "Plan updated")
    assert run(TODO_WRITE, newer) == written(newer[:2])
    assert run(newer, TODO_WRITE) == written(TODO_WRITE[:2])


def test_an_item_that_names_a_file_makes_no_file_of_the_list():
    arguments = {"todos": [{"content": "Plan it in PLAN.md", "status": "pending"}]}
    change = {"id": 1, "status": "done"}
    rounds = [("TodoWrite", arguments), ("TodoWrite", change)]
    assert run(*((*each, "ok") for each in rounds)) == written(*rounds)


def test_changes_stay_with_the_whole_list_that_they_change():
    merge = ("TodoWrite", {"merge": True, "todos": [ITEMS[1]]}, "ok")
    item = ("TodoWrite", {"id": 1, "status": "done"}, "ok")
    other = ("bash", {"command": "ls"}, "ok")
    assert run(TODO_WRITE, merge, other, item) == written(TODO_WRITE[:2], merge[:2], item[:2])
    assert run(TODO_WRITE, merge, TODO_WRITE) == written(TODO_WRITE[:2])
    assert run(merge) == []


def test_an_edit_of_a_todo_file_stays_with_the_file():
    write = ("Write", {"file_path": "TODO.md", "content": CHECKLIST}, "ok")
    tick = {"file_path": "TODO.md", "old_string": "- [ ] Read", "new_string": "- [x] Read"}
    commit = ("bash", {"command": "git add TODO.md"}, "ok")
    assert run(write, ("Edit", tick, "ok"), commit) == written(write[:2], ("Edit", tick))


def test_a_call_that_failed_or_was_not_answered_changes_no_list():
    context = chat("full", dialect="anthropic", model="claude-sonnet-4-5")
    context.add(user("go"))
    for number, is_error in enumerate([False, True]):
        use = {"type": "tool_use", "id": f"t{number}", "name": "TodoWrite"}
        context.add({"role": "assistant", "content": [{**use, "input": {"todos": ITEMS}}]})
        answer = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "said"}
        context.add({"role": "user", "content": [{**answer, "is_error": is_error}]})
    open_call = {"type": "tool_use", "id": "t2", "name": "TodoWrite", "input": {"todos": ITEMS}}
    context.add({"role": "assistant", "content": [open_call]})
    (todo_call,) = context.window.conversation.todo_calls
    assert context.window.entries[todo_call.parts[0][0]].message.calls[0].id == "t0"


def test_a_list_that_was_undone_or_erased_gives_way_to_the_one_before():
    context = chat("full")
    context.add(user("go"))
    lists: list[str] = []
    for number in range(3):
        lists.append(json.dumps({"todos": [{"content": f"step {number}", "status": "pending"}]}))
        context.add(calls(f"c{number}", tool="TodoWrite", arguments=lists[-1]))
        context.add(result(f"c{number}", "ok"))

    def newest() -> str:
        ((seq, _),) = context.window.conversation.todo_calls[0].parts
        return context.window.entries[seq].message.calls[0].arguments

    assert newest() == lists[2]
    newest_seq = context.window.conversation.todo_calls[0].parts[0][0]
    context.rewind(newest_seq - 1)
    assert newest() == lists[1]
    context.erase(f"m{context.window.conversation.todo_calls[0].parts[0][0]}", reason="asked")
    assert newest() == lists[0]
