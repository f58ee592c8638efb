"""Which results the agent comes back to."""

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agents import Agent
from tests.conversations import calls, chat, result, said, user
from trimtab import Context
from trimtab.engine.log.event import Edit
from trimtab.engine.policy.planning.relevance import (
    ReferenceIndex,
    ResultStats,
    classify_tool,
    get_reference_index,
)

WORDS = ("parse_header", "ErrShort", "src/wire.py", "read_u8", "plain")
PATHS = ("src/wire.py", "src/frame.py", "notes.txt")
TOOLS = ("read", "edit_file", "grep", "bash", "plan")

texts = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
rounds = st.lists(st.tuples(st.sampled_from(TOOLS), st.sampled_from(PATHS), texts), min_size=1)
steps = st.one_of(
    st.tuples(st.just("round"), rounds.map(lambda made: made[:3])),
    st.tuples(st.just("said"), texts),
    st.tuples(st.just("user"), texts),
    st.tuples(st.just("ask"), st.none()),
    st.tuples(st.just("mask"), st.integers(0, 5)),
    st.tuples(st.just("drop"), st.integers(0, 5)),
    st.tuples(st.just("rewind"), st.integers(0, 12)),
    st.tuples(st.just("erase"), st.integers(0, 5)),
)


def play(context: Context, step: str, told: Any, number: int) -> None:
    results = list(context.window.results.values())
    match step:
        case "round":
            ids = [f"c{number}_{index}" for index in range(len(told))]
            asked = [
                calls(each, tool=tool, arguments=json.dumps({"path": path}))["tool_calls"][0]
                for each, (tool, path, _) in zip(ids, told, strict=True)
            ]
            context.add({"role": "assistant", "content": None, "tool_calls": asked})
            for each, (_, _, text) in zip(ids, told, strict=True):
                context.add(result(each, text))
        case "said":
            context.add(said(told))
        case "user":
            context.add(user(told))
        case "ask":
            get_reference_index(context.window)
        case "rewind":
            context.rewind(max(1, context.window.seq - told))
        case _ if told >= len(results):
            pass
        case "erase":
            context.erase(results[told].handle)
        case "mask":
            seq, part = results[told].key
            edit = Edit(op="mask", first=seq, last=seq, part=part, text="[gone]", why="test")
            context._apply([context._build_event(edit)])
        case _:
            group = results[told].entry.round.group
            edit = Edit(op="drop", first=group.first, last=group.last, why="test")
            context._apply([context._build_event(edit)])


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.lists(steps, max_size=25))
def test_an_index_kept_call_by_call_equals_one_made_at_the_end(story):
    context = chat("full")
    for number, (step, told) in enumerate(story):
        play(context, step, told, number)
    afresh = ReferenceIndex()
    afresh.catch_up(context.window)
    kept = get_reference_index(context.window)
    assert plain(kept) == plain(afresh)
    assert (kept.assistant_messages, kept.last_named_at, kept.last_edited_at) == (
        afresh.assistant_messages,
        afresh.last_named_at,
        afresh.last_edited_at,
    )
    assert set(context.window.results) <= set(kept.stats_by_result)


def plain(index: ReferenceIndex) -> dict[tuple[int, int], dict[str, object]]:
    return {
        key: {**asdict(stats), "identifiers": stats.identifiers.counts}
        for key, stats in index.stats_by_result.items()
    }


def fact(agent: Agent, handle: str) -> ResultStats:
    seq, _, part = handle.removeprefix("m").partition(".")
    return get_reference_index(agent.window).stats_by_result[int(seq), int(part)]


def agent() -> Agent:
    return Agent(policy="full")


def test_a_result_is_known_by_its_words_and_the_paths_of_its_call():
    made = agent()
    handle = made.use("def parse_header(): read_u8() + read_u8()", path="src/wire.py", limit=3)
    stats = fact(made, handle)
    assert stats.identifiers.counts == {"parse_header": 1, "read_u8": 2}
    assert stats == ResultStats(
        kind="read",
        arrived_at=1,
        identifiers=stats.identifiers,
        paths=("src/wire.py",),
        last_used_at=1,
    )


def test_a_word_of_a_result_that_is_named_again_is_a_use():
    made = agent()
    first = made.use("parse_header read_u8")
    other = made.use("unrelated_thing")
    made.use("ok", tool="grep", pattern="parse_header")
    made.context.add(said("Both parse_header and read_u8 fail."))
    assert (fact(made, first).use_count, fact(made, first).last_used_at) == (3, 4)
    assert (fact(made, other).use_count, fact(made, other).last_used_at) == (0, 2)


def test_a_users_words_are_uses_and_a_results_own_words_are_not():
    made = agent()
    first = made.use("parse_header")
    made.use("parse_header again")
    assert fact(made, first).use_count == 0
    made.context.add(user("what of parse_header?"))
    assert fact(made, first).use_count == 1


def test_the_same_tool_asked_for_the_same_thing_again_supersedes_its_result():
    made = agent()
    first = made.use("one", path="src/wire.py")
    other = made.use("two", path="src/frame.py")
    searched = made.use("three", tool="grep", path="src/wire.py")
    assert not fact(made, first).superseded
    last = made.use("four", path="src/wire.py")
    assert fact(made, first).superseded
    assert not any(fact(made, each).superseded for each in (other, searched, last))


def test_calls_without_a_path_supersede_by_what_they_ask_for():
    made = agent()
    first = made.use("one", tool="bash", command="make")
    other = made.use("two", tool="bash", command="make check")
    made.use("three", tool="bash", command="make")
    assert fact(made, first).superseded
    assert not fact(made, other).superseded


def test_an_edit_is_remembered_by_the_path_it_changed():
    made = agent()
    made.use("text", path="src/wire.py")
    made.use("done", tool="edit", path="src/frame.py", new="x = 1")
    uses = get_reference_index(made.window)
    assert uses.last_named_at == {"src/wire.py": 1, "src/frame.py": 2}
    assert uses.last_edited_at == {"src/frame.py": 2}


def test_what_is_no_longer_visible_is_forgotten_once_it_is_most_of_the_index():
    made = agent()
    for number in range(110):
        made.use(f"word_{number}", path=f"src/f{number}.py")
    uses = get_reference_index(made.window)
    assert len(uses.stats_by_result) == 110
    keys = list(made.window.results)
    for seq, part in keys[:108]:
        edit = Edit(op="mask", first=seq, last=seq, part=part, text="[gone]", why="test")
        made.context._apply([made.context._build_event(edit)])
    assert get_reference_index(made.window) is uses
    assert list(uses.stats_by_result) == keys[108:]
    made.context.add(said("word_0 and word_109"))
    assert get_reference_index(made.window).stats_by_result[keys[109]].use_count == 1
    assert "word_0" not in uses._holders


def test_the_index_hears_each_message_once():
    made = agent()
    handle = made.use("parse_header")
    made.context.add(said("parse_header"))
    assert fact(made, handle).use_count == 1
    assert fact(made, handle).use_count == 1
    assert get_reference_index(made.window).assistant_messages == 2


@pytest.mark.parametrize(
    ("tool", "asked", "kind"),
    [
        ("Edit", "", "edit"),
        ("str_replace_based_tool", "", "edit"),
        ("Read", "", "read"),
        ("WebFetch", "", "read"),
        ("Grep", "", "search"),
        ("list_files", "", "search"),
        ("plan", "", "other"),
        ("Bash", "make check", "run"),
        ("Bash", "", "run"),
        ("Bash", "cat src/wire.py", "read"),
        ("Bash", "cd /repo && cd src && /usr/bin/head -5 a.py", "read"),
        ("shell", "bash\n-lc\nrg parse_header", "search"),
        ("exec_command", "find . -name x", "search"),
        ("run_command", "catalog build", "run"),
    ],
)
def test_the_kind_of_a_tool_is_told_by_its_name_or_its_command(tool, asked, kind):
    assert classify_tool(tool, asked) == kind
