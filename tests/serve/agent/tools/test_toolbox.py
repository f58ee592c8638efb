"""The tools of a file, in turns."""

import os
from typing import cast

import pytest

from tests.serve.agent.tools.toolboxes import Person, block, box
from trimtab.session import Session
from trimtab.session.events import ToolFinished, ToolStarted
from trimtab.session.turn import run_turn
from trimtab.testing import MemoryStore, ScriptedCall, ScriptedProvider
from trimtab.types import DialectName
from trimtab_serve.agent.tools.permissions.rules import USER_REFUSED_TEXT
from trimtab_serve.agent.tools.tool_setting import UnusableToolError

pytestmark = pytest.mark.anyio


async def acted(tools, *calls, dialect="anthropic", model="claude-sonnet-4-5"):
    """What a turn that makes these calls tells."""
    session = await Session.create(
        MemoryStore(), "s", model=model, dialect=cast("DialectName", dialect)
    )
    provider = ScriptedProvider(dialect, [list(calls), "Done."])
    told = []
    says = {"role": "user", "content": "Go."}
    await run_turn(session, provider, tools, message=says, on_event=told.append)
    return told


@pytest.mark.process
@pytest.mark.parametrize(
    ("dialect", "model"),
    [
        ("anthropic", "claude-sonnet-4-5"),
        ("openai_chat", "gpt-4o"),
        ("openai_responses", "gpt-5.1"),
    ],
)
async def test_every_kind_of_tool_works_in_a_turn_of_every_dialect(tmp_path, dialect, model):
    (tmp_path / "own.py").write_text("def double(n: int) -> int:\n    return 2 * n\n")
    tools = {
        "shell": block("shell", allow=["echo *"]),
        "greet": block(
            "command",
            description="Greets.",
            command=["printf", "hello %s", "{name}"],
            parameters={"name": {"type": "string"}},
        ),
        "double": block("python", function="own.py:double"),
    }
    async with box(tmp_path, **tools) as made:
        told = await acted(
            made,
            ScriptedCall(name="shell", arguments={"command": "echo hi"}),
            ScriptedCall(name="greet", arguments={"name": "Ada"}),
            ScriptedCall(name="double", arguments={"n": 21}),
            dialect=dialect,
            model=model,
        )
    ended = {
        each.call.name: (each.text, each.is_error)
        for each in told
        if isinstance(each, ToolFinished)
    }
    assert ended == {"shell": ("hi", False), "greet": ("hello Ada", False), "double": ("42", False)}


async def test_a_call_that_is_not_allowed_never_begins_and_its_result_says_why(tmp_path):
    async with box(tmp_path, Person("no"), shell=block("shell")) as made:
        told = await acted(made, ScriptedCall(name="shell", arguments={"command": "touch here"}))
    assert not [each for each in told if isinstance(each, ToolStarted)]
    (ended,) = [each for each in told if isinstance(each, ToolFinished)]
    assert (ended.text, ended.is_error) == (USER_REFUSED_TEXT, True)
    assert not os.listdir(tmp_path)  # noqa: PTH208 - as plain as it gets


@pytest.mark.process
async def test_a_failure_is_told_in_its_own_words_and_marked(tmp_path):
    async with box(tmp_path, shell=block("shell", permission="allow", timeout=0.2)) as made:
        told = await acted(made, ScriptedCall(name="shell", arguments={"command": "sleep 100"}))
    (ended,) = [each for each in told if isinstance(each, ToolFinished)]
    assert ended.is_error
    assert ended.text == "[stopped: it had not ended after 0.2 seconds (`timeout` in agent.yaml)]"


async def test_the_block_says_what_is_done_after_a_crash(tmp_path):
    tools = {name: block("shell", on_interrupt=name) for name in ("report", "rerun", "ask")}
    async with box(tmp_path, **tools) as made:
        assert [tool.on_interrupt for tool in made] == ["report", "rerun", "ask"]


async def test_the_time_limit_of_the_turn_leaves_room_for_the_tools_own(tmp_path):
    async with box(tmp_path, shell=block("shell", timeout=7)) as (shell,):
        assert shell.timeout is not None
        assert shell.timeout > 7


async def test_two_tools_of_one_name_are_refused(tmp_path):
    from trimtab_serve.agent.tools import tools_from_config

    async with box(tmp_path, shell=block("shell")) as (shell,):
        with pytest.raises(UnusableToolError, match=r"tools\.shell: two tools have this name"):
            tools_from_config._refuse_duplicate_names([shell, shell])


async def test_the_first_block_that_cannot_be_used_is_the_one_that_is_told(tmp_path):
    tools = {name: block("shell", cwd=f"no-{name}") for name in ("second", "first")}
    with pytest.raises(UnusableToolError, match=r"^tools\.second: cwd 'no-second' is not a folder"):
        async with box(tmp_path, **tools):
            pass
