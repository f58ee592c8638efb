"""What runs in a sandbox writes to its folder alone, and ends as any other program does."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests.serve.agent.tools.toolboxes import block, call, failure
from tests.serve.service.served_agents import until
from trimtab_serve.agent.config.spec import AgentSpec
from trimtab_serve.agent.tools import process
from trimtab_serve.agent.tools import sandbox as module
from trimtab_serve.agent.tools.permissions.rules import decline_unattended
from trimtab_serve.agent.tools.sandbox import (
    Bubblewrap,
    Sandbox,
    build_tool_setting,
    find_bubblewrap,
    list_agent_files,
    list_private_paths,
)
from trimtab_serve.agent.tools.tool_setting import UnusableToolError
from trimtab_serve.agent.tools.tools_from_config import open_tools

pytestmark = pytest.mark.anyio

BUBBLEWRAP = Bubblewrap(
    program="/usr/bin/bwrap", version="0.8.0", user_namespace=("--unshare-user",)
)


@pytest.fixture(scope="module")
def bubblewrap():
    found = find_bubblewrap(os.environ["PATH"])
    if isinstance(found, str):
        pytest.skip(f"no sandbox here: {found}")


def agent(folder: Path, **tools: Any) -> AgentSpec:
    """An agent with files that a sandbox must not show or let be changed."""
    (folder / "sessions" / "one").mkdir(parents=True)
    (folder / "sessions" / "one" / "events.jsonl").write_text("what was said")
    (folder / "sessions" / ".server").mkdir()
    (folder / "sessions" / ".server" / "server.db").write_text("the keys of all tenants")
    (folder / "agent.yaml").write_text("model: {name: claude-sonnet-4-5}")
    (folder / "system.md").write_text("Be careful.")
    (folder / "notes.txt").write_text("notes")
    return AgentSpec.model_validate(
        {
            "model": {"name": "claude-sonnet-4-5"},
            "system": "system.md",
            "serve": {"keys": True},
            "tools": tools,
        }
    )


def box(spec: AgentSpec, folder: Path, **environ: str):
    given = {"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(folder / "state"), **environ}
    setting = build_tool_setting(spec, folder, approve=decline_unattended, environ=given)
    return open_tools(spec.tools, setting)


def shell(**own: Any) -> dict[str, Any]:
    return {"kind": "shell", "sandbox": "required", **own}


def test_the_command_line_says_what_is_allowed(tmp_path):
    (tmp_path / "sessions").mkdir()
    (tmp_path / "private.json").touch()
    made = Sandbox(
        bubblewrap=BUBBLEWRAP,
        network=False,
        hidden_paths=(tmp_path / "sessions", tmp_path / "private.json", tmp_path / "missing"),
        read_only_paths=(tmp_path / "agent.yaml",),
    )
    here = str(tmp_path)
    argv = " ".join(made.wrap(("bash", "-c", "--", "ls"), tmp_path))
    assert argv.startswith(
        "/usr/bin/bwrap --ro-bind / / --dev /dev --proc /proc --remount-ro /proc "
    )
    assert "--unshare-net --cap-drop ALL --die-with-parent --unshare-user" in argv
    assert f"--bind {here} {here} " in argv
    assert argv.endswith(
        f"--ro-bind {here}/agent.yaml {here}/agent.yaml --tmpfs {here}/sessions "
        f"--ro-bind /dev/null {here}/private.json --chdir {here} -- bash -c -- ls"
    )
    assert "missing" not in argv


def test_the_network_is_there_if_it_is_allowed(tmp_path):
    argv = Sandbox(bubblewrap=BUBBLEWRAP, network=True).wrap(("ls",), tmp_path)
    assert "--unshare-net" not in argv
    assert "/run/systemd/resolve" in argv


def test_sessions_keys_and_history_are_private_and_the_agents_own_files_fixed(tmp_path):
    folder = tmp_path.resolve()
    spec = agent(folder, f={"kind": "python", "function": "tools.py:f"})
    (folder / "tools.py").write_text("def f(): ...")
    hidden = list_private_paths(spec, folder, {"XDG_STATE_HOME": str(folder / "state")})
    assert hidden == (folder / "state" / "trimtab", folder / "sessions")
    fixed = ("agent.yaml", "tools.py", "system.md")
    assert list_agent_files(spec, folder) == tuple(folder / name for name in fixed)
    database = {"session": {"store": "postgresql://x/y"}, "serve": {}}
    spec = AgentSpec.model_validate({**spec.model_dump(exclude={"session", "serve"}), **database})
    assert folder / "sessions" not in list_private_paths(spec, folder, {})


@pytest.fixture
def without_bubblewrap(monkeypatch):
    monkeypatch.setattr(module, "BUBBLEWRAP_PROGRAM", "no-such-program")
    find_bubblewrap.cache_clear()
    yield
    find_bubblewrap.cache_clear()


async def test_a_required_sandbox_that_cannot_be_had_is_refused(tmp_path, without_bubblewrap):
    spec = agent(tmp_path, shell=shell())
    with pytest.raises(UnusableToolError, match=r"must run in a sandbox.*not installed"):
        async with box(spec, tmp_path):
            pass


@pytest.mark.process
async def test_auto_runs_without_one_and_says_so(tmp_path, without_bubblewrap, caplog):
    spec = agent(tmp_path, shell=shell(sandbox="auto"))
    async with box(spec, tmp_path) as (tool,):
        assert await call(tool, command="cat notes.txt") == "notes"
        assert "sandbox" not in tool.definition["description"]
    assert "tools.shell runs without a sandbox: bubblewrap is not installed" in caplog.text


@pytest.mark.process
async def test_a_machine_that_forbids_namespaces_is_noticed(tmp_path):
    program = tmp_path / "bwrap"
    program.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    assert "No permissions to create new namespace; the machine may" in str(
        find_bubblewrap(str(tmp_path))
    )


@pytest.mark.process
@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("mode", ["auto", "required"])
async def test_only_the_folder_and_a_tmp_of_its_own_can_be_written_to(tmp_path, mode):
    outside = tmp_path / "outside"
    folder = tmp_path / "work"
    outside.mkdir()
    folder.mkdir()
    spec = agent(folder, shell=shell(sandbox=mode))
    async with box(spec, folder) as (tool,):
        assert "sandbox" in tool.definition["description"]
        assert await call(tool, command="echo hi > new.txt && cat new.txt") == "hi"
        seen = (await call(tool, command="touch $TMPDIR/x; ls -A $TMPDIR")).split()
        # The way to the folder itself may lead through it.
        assert {"x"} <= {*seen} <= {"x", *folder.parts}
        for place in ("/etc/x", f"{outside}/x", "/var/x", "/usr/x"):
            told = await call(tool, command=f"touch {place}")
            assert "exit status 1" in told, told
    assert (folder / "new.txt").read_text() == "hi\n"
    assert list(outside.iterdir()) == []


@pytest.mark.process
@pytest.mark.usefixtures("bubblewrap")
async def test_sessions_keys_and_other_processes_cannot_be_seen(tmp_path):
    spec = agent(tmp_path, shell=shell())
    async with box(spec, tmp_path, ANTHROPIC_API_KEY="sk-ant-secret") as (tool,):
        told = await call(tool, command="ls -A sessions; ls -A /run")
        assert told == "[no output]"
        told = await call(tool, command="cat /proc/*/environ | tr '\\0' '\\n'")
        assert "PATH=" in told
        assert "secret" not in told
        pids = (await call(tool, command="ls /proc | grep -c '^[0-9]*$'")).split()[0]
        assert int(pids) < 8
        assert f"/proc/{os.getpid()}" not in await call(tool, command="ls -d /proc/[0-9]*")
    assert (tmp_path / "sessions/.server/server.db").read_text() == "the keys of all tenants"
    assert (tmp_path / "sessions" / "one" / "events.jsonl").read_text() == "what was said"


@pytest.mark.process
@pytest.mark.usefixtures("bubblewrap")
async def test_the_agents_own_files_cannot_be_changed(tmp_path):
    spec = agent(tmp_path, shell=shell())
    async with box(spec, tmp_path) as (tool,):
        for command in (
            "echo > agent.yaml",
            "rm -f agent.yaml",
            "mv system.md x",
            "echo > system.md",
        ):
            assert "exit status 1" in await call(tool, command=command)
        assert await call(tool, command="cat system.md") == "Be careful."
    assert (tmp_path / "agent.yaml").read_text().startswith("model:")


@pytest.mark.process
@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("allowed", [False, True])
async def test_the_network_is_off_unless_it_is_allowed(tmp_path, allowed):
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    spec = agent(tmp_path, shell=shell(sandbox_network=allowed))
    with listener:
        async with box(spec, tmp_path) as (tool,):
            told = await call(tool, command=f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached")
    assert ("reached" in told) is allowed


@pytest.mark.process
@pytest.mark.usefixtures("bubblewrap")
async def test_it_cannot_give_itself_more_rights(tmp_path):
    spec = agent(tmp_path, shell=shell())
    async with box(spec, tmp_path) as (tool,):
        told = await call(tool, command="grep CapEff /proc/self/status; mount -o remount,rw / 2>&1")
    assert "CapEff:\t0000000000000000" in told
    assert "exit status" in told


@pytest.mark.process
@pytest.mark.usefixtures("bubblewrap")
async def test_a_stop_ends_all_of_it_within_a_second(tmp_path, monkeypatch):
    # The time that a program usually has; a stop gives it less.
    monkeypatch.setattr(process.terminate_process_group, "__defaults__", (60.0,))
    assert process.STOP_GRACE_S < 1
    spec = agent(tmp_path, shell=shell())
    async with box(spec, tmp_path) as (tool,):
        script = "trap '' TERM; (setsid sleep 4711.5 &) ; echo on > began; sleep 4712.5"
        running = asyncio.ensure_future(call(tool, command=script))
        await until((tmp_path / "began").exists)
        since = time.monotonic()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert time.monotonic() - since < 20  # less than a second, if nothing else runs
        await until(lambda: not _find_processes("4711.5", "4712.5"), seconds=20)


def _find_processes(*words: str) -> list[str]:
    found: list[str] = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            told = each.read_bytes().split(b"\0")
        except OSError:
            continue
        found += [word for word in words if word.encode() in told]
    return found


@pytest.mark.process
@pytest.mark.usefixtures("bubblewrap")
async def test_time_and_output_are_limited_as_without(tmp_path):
    slow = shell(timeout=0.5)
    loud = shell(max_output_bytes=1_000)
    spec = agent(tmp_path, slow=slow, loud=loud)
    async with box(spec, tmp_path) as (first, second):
        since = time.monotonic()
        assert "not ended after 0.5 seconds" in await failure(first, command="sleep 60")
        assert time.monotonic() - since < 30
        told = await call(second, command="seq 1 100000")
        assert len(told) < 2_000
        assert told.startswith("1\n2\n")


@pytest.mark.process
@pytest.mark.usefixtures("bubblewrap")
async def test_a_command_runs_in_it_as_well(tmp_path):
    command = {
        "kind": "command",
        "description": "Writes.",
        "command": ["tee", "{path}"],
        "parameters": {"path": {"type": "string"}},
        "sandbox": "required",
    }
    spec = agent(tmp_path, write=command)
    async with box(spec, tmp_path) as (tool,):
        assert await call(tool, path="new.txt") == "[no output]"
        assert "exit status 1" in await call(tool, path="/etc/x")
    assert (tmp_path / "new.txt").exists()
    assert block("command", **{k: v for k, v in command.items() if k != "kind"})
