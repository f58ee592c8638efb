"""A shell that the model writes commands for."""

import os

import pytest

from tests.serve.agent.tools.toolboxes import Person, block, box, call, failure, invocation
from trimtab_serve.agent.environment import FIXED_TOOL_VARIABLES, INHERITED_VARIABLES
from trimtab_serve.agent.tools.permissions.rules import USER_REFUSED_TEXT
from trimtab_serve.agent.tools.tool_setting import UnusableToolError

pytestmark = pytest.mark.anyio
SECRETS = {
    **os.environ,
    "ANTHROPIC_API_KEY": "sk-secret",
    "DATABASE_URL": "postgres://secret",
    "GITHUB_TOKEN": "ghp-secret",
    "LC_ALL": "C.UTF-8",
    "LD_PRELOAD": "",
    "BASH_ENV": "/nowhere",
}


async def seen(tmp_path, **own):
    async with box(tmp_path, environ=SECRETS, shell=block("shell", **own)) as (shell,):
        lines = (await call(shell, command="env")).splitlines()
    return dict(line.partition("=")[::2] for line in lines)


@pytest.mark.process
async def test_no_secret_is_inherited(tmp_path):
    names = set(await seen(tmp_path))
    assert names <= {
        *INHERITED_VARIABLES,
        *FIXED_TOOL_VARIABLES,
        "LC_ALL",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
    }
    assert not names & {
        "ANTHROPIC_API_KEY",
        "DATABASE_URL",
        "GITHUB_TOKEN",
        "LD_PRELOAD",
        "BASH_ENV",
    }
    assert {"PATH", "TERM", "LC_ALL"} <= names


@pytest.mark.process
async def test_what_is_named_is_passed_on(tmp_path):
    env = await seen(tmp_path, env=["GITHUB_TOKEN", "NOT_SET"])
    assert env["GITHUB_TOKEN"] == SECRETS["GITHUB_TOKEN"]
    assert "NOT_SET" not in env
    assert "ANTHROPIC_API_KEY" not in env
    env = await seen(tmp_path, env={"MODE": "test", "PATH": os.environ["PATH"] + ":/extra"})
    assert env["MODE"] == "test"
    assert env["PATH"].endswith(":/extra")


@pytest.mark.process
async def test_it_runs_in_its_folder_beside_the_file(tmp_path):
    (tmp_path / "work").mkdir()
    async with box(tmp_path, shell=block("shell", cwd="work")) as (shell,):
        assert await call(shell, command="pwd") == str(tmp_path / "work")
        assert await call(shell, command="cd /; X=1") == "[no output]"
        assert await call(shell, command="pwd; echo $X") == str(tmp_path / "work")


async def test_a_folder_that_is_not_there_is_said_at_once(tmp_path):
    with pytest.raises(
        UnusableToolError, match=r"tools\.shell: cwd 'work' is not a folder .* create it"
    ):
        async with box(tmp_path, shell=block("shell", cwd="work")):
            pass


@pytest.mark.process
async def test_a_command_that_begins_with_a_dash_is_no_option(tmp_path):
    async with box(tmp_path, shell=block("shell")) as (shell,):
        assert "not found" in await call(shell, command="-x")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "the argument `command` is missing: a text with the command to run"),
        ({"command": 3}, "the argument `command` is missing: a text with the command to run"),
        ({"command": " \n"}, "the argument `command` is missing: a text with the command to run"),
        ({"command": "a\0b"}, "the command contains a NUL character, which is not allowed"),
    ],
)
async def test_what_is_no_command_is_answered_without_asking_anybody(tmp_path, arguments, said):
    person = Person()
    async with box(tmp_path, person, shell=block("shell")) as (shell,):
        assert shell.check_permission is not None
        assert await shell.check_permission(invocation(shell, arguments)) == said
        assert await failure(shell, **arguments) == said
    assert person.asked == []


async def test_a_shell_asks_where_its_block_says_nothing(tmp_path):
    person = Person("no")
    async with box(tmp_path, person, shell=block("shell", allow=["git status*"])) as (shell,):
        assert shell.check_permission is not None
        for command, answer in {"git status -s": None, "git push": USER_REFUSED_TEXT}.items():
            assert await shell.check_permission(invocation(shell, {"command": command})) == answer
    assert [each.text for each in person.asked] == ["git push"]


@pytest.mark.process
async def test_one_that_is_stopped_has_failed_and_says_what_it_printed(tmp_path):
    async with box(tmp_path, shell=block("shell", timeout=1)) as (shell,):
        said = await failure(shell, command="echo begun; sleep 100")
    assert said == "begun\n[stopped: it had not ended after 1 seconds (`timeout` in agent.yaml)]"


async def test_the_model_is_told_what_the_shell_is_like(tmp_path):
    async with box(tmp_path, shell=block("shell"), own=block("shell", description="Mine.")) as made:
        shell, own = (dict(tool.definition) for tool in made)
    assert "stopped after 120 seconds" in shell["description"]
    assert own["description"] == "Mine."
    assert shell["input_schema"]["required"] == ["command"]
