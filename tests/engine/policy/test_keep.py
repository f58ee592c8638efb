"""`keep`: results of calls that name certain files are hidden last, under every policy."""

import json
from typing import Any

import pytest

from tests.conversations import calls, chat, prose, result, results, said, texts, user
from tests.recording import append
from trimtab import Context
from trimtab.engine.log.event import Edit
from trimtab.engine.policy.config import parse_policy_config
from trimtab.engine.policy.on_demand import decide_on_demand_compaction
from trimtab.engine.policy.planning.kept_files import arguments_name_kept_file
from trimtab.engine.policy.presets import POLICY_NAMES

SMALL = {"context_window": 12_000, "max_output_tokens": 500}
README = prose(3_000, "README of the project")


def look(context: Context, number: int, path: str, text: str) -> dict[str, Any]:
    """A round in which a file is read."""
    context.add(calls(f"c{number}", arguments=json.dumps({"path": path, "lines": 40})))
    context.add(result(f"c{number}", text))
    return context.request()


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_a_file_that_is_kept_stays_whole_while_others_come_and_go(policy):
    context = chat(policy, limits={"keep": ["README*", "*.toml"]}, **SMALL)
    context.add(user("go"))
    look(context, 0, "docs/README.md", README)
    shown: list[Any] = []
    sources = [prose(3_000, f"source {number}") for number in range(1, 30)]
    for number, text in enumerate(sources, 1):
        shown = results(look(context, number, f"src/f{number}.py", text))
        assert README in shown
        assert text in shown
    assert len([text for text in sources if text in shown]) < 20


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_without_the_setting_the_same_file_is_hidden(policy):
    context = chat(policy, limits={"tool_result_keep_first": 0}, **SMALL)
    context.add(user("go"))
    request = look(context, 0, "docs/README.md", README)
    for number in range(1, 30):
        request = look(context, number, f"src/f{number}.py", prose(3_000, f"source {number}"))
    assert README not in results(request)


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_what_is_kept_gives_way_if_nothing_else_can_and_is_still_recalled(policy):
    context = chat(policy, limits={"keep": ["*.toml"]}, recall=True, **SMALL)
    context.add(user("go"))
    files = {f"p{number}.toml": prose(3_000, f"settings {number}") for number in range(30)}
    handles: dict[str, str] = {}
    shown: list[Any] = []
    for number, (path, text) in enumerate(files.items()):
        shown = results(look(context, number, path, text))
        handles[path] = f"m{max(context.window.entries)}.0"
        assert text in shown
    call = context.window.last_call
    assert call is not None
    assert call.body.bound + call.body.max_output <= 12_000
    assert files["p0.toml"] not in shown
    for path, text in files.items():
        assert context.recall(handles[path]) == text


def test_what_is_kept_is_not_hidden_to_make_room_in_advance():
    context = chat("full", limits={"keep": ["README*"]}, **SMALL)
    context.add(user("go"))
    look(context, 0, "README.md", README)
    for number in range(1, 60):
        context.add(said(prose(600, f"thought {number}")))
        request = look(context, number, f"src/f{number}.py", prose(300, f"s{number}"))
        assert README in results(request)
    assert any(isinstance(event.body, Edit) for event in context.events)


@pytest.mark.parametrize("policy", ["rolling", "thresholds", "auto"])
def test_a_conversation_of_many_turns_goes_into_the_summary_before_the_file_does(policy):
    context = chat(policy, limits={"keep": ["README*"]}, **SMALL)
    context.add(user("What is it?"))
    look(context, 0, "README.md", README)
    context.add(said("A project."))
    for number in range(1, 20):
        context.add(user(prose(600, f"question {number}")))
        shown = results(look(context, number, f"src/f{number}.py", prose(1_500, f"s{number}")))
        assert README in shown
        context.add(said(prose(600, f"answer {number}")))
    assert any(isinstance(e.body, Edit) and e.body.op == "summarise" for e in context.events)


def test_a_summary_that_someone_writes_leaves_the_file_where_it_is():
    context = chat("rolling", limits={"keep": ["README*"]}, summaries="manual")
    context.add(user("What is it?"))
    look(context, 0, "README.md", README)
    context.add(said("A project."))
    for number in range(1, 9):
        context.add(user(prose(300, f"question {number}")))
        context.add(said(prose(300, f"answer {number}")))
    context.request()
    wanted = context.pending_summary()
    assert wanted is not None
    told = "".join(message.text for message in wanted.messages)
    assert "What is it?" in told
    assert "question 1" in told
    assert "README of the project" not in str(wanted.messages)
    context.add_summary("Facts:\n- it is a project", span=wanted.span)
    request = context.request()
    assert README in results(request)
    assert "question 1 " not in texts(request)
    assert context.pending_summary() is None


def test_a_person_who_asks_for_less_keeps_the_file():
    context = chat("auto", limits={"keep": ["README*"]})
    context.add(user("go"))
    look(context, 0, "README.md", README)
    for number in range(1, 12):
        look(context, number, f"src/f{number}.py", prose(3_000, f"source {number}"))
    knobs = parse_policy_config(context.options.limits)
    for edit in decide_on_demand_compaction(context.window, context.budget(), config=knobs).edits:
        append(context, edit)
    shown = results(context.request())
    assert README in shown
    assert prose(3_000, "source 1") not in shown


@pytest.mark.parametrize(
    ("arguments", "pattern", "kept"),
    [
        ('{"path": "README.md"}', "README*", True),
        ('{"file_path": "/repo/docs/README.md"}', "README*", True),
        ('{"filename": "C:\\\\work\\\\setup.toml"}', "*.toml", True),
        ('{"files": ["a.py", "b/pyproject.toml"]}', "pyproject.toml", True),
        ('{"path": "/repo/docs/a.md"}', "docs/*.md", True),
        ('{"path": "docs/a.md"}', "docs/*.md", True),
        ('{"path": "src/a.md"}', "docs/*.md", False),
        ('{"path": "src/readme.md"}', "README*", False),
        ('{"path": "src/NOT-README.md"}', "README*", False),
        ('{"text": "line one\\nof README.toml"}', "*.toml", False),
        ('{"lines": 40}', "*", False),
        ("README.md", "README*", True),
        ("{}", "*", False),
    ],
)
def test_an_argument_matches_whole_or_by_its_last_part(arguments, pattern, kept):
    assert arguments_name_kept_file(arguments, (pattern,)) == kept


@pytest.mark.parametrize("given", ["README*", 3, [3], [""], {"README*": 1}])
def test_patterns_that_are_none_are_refused(given):
    with pytest.raises(ValueError, match=r"keep is .*it must be a list of file patterns"):
        parse_policy_config({"keep": given})


def test_patterns_are_a_list():
    assert parse_policy_config({"keep": ["README*", "*.toml"]}).keep == ("README*", "*.toml")
    assert parse_policy_config({"keep": None}).keep == ()
