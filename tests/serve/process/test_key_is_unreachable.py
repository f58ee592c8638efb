"""No tool reads the provider's key: real processes, and real attempts to get at it."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.process.key_attacks import DEBUGGERS, FORM, IN_VAIN, WAYS, installed
from tests.serve.process.processes import serving, write_agent

pytestmark = [pytest.mark.anyio, pytest.mark.process]

linux = pytest.mark.skipif(sys.platform != "linux", reason="keys are out of reach on Linux alone")

FUNCTIONS = '''
import ctypes, os, posix, subprocess

def look() -> str:
    """What a function finds without looking into objects."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_char_p
    found = [dict(os.environ), dict(os.environb), posix.environ, libc.getenv(b"ANTHROPIC_API_KEY")]
    found.append(subprocess.run(["env"], capture_output=True).stdout)
    try:
        found.append(open("/proc/self/environ", "rb").read())
    except OSError as error:
        found.append(error)
    return repr(found)

def named() -> str:
    """What the file names."""
    return os.environ["OTHER_KEY"]
'''


def new_key() -> str:
    return f"sk-ant-{secrets.token_hex(16)}"


def environ(home: Path, key: str) -> dict[str, str]:
    """The key as the documents have it, and nothing of whoever runs the tests."""
    python = {n: v for n, v in os.environ.items() if n in ("PATH", "PYTHONPATH")}
    return {**python, "HOME": str(home), "LANG": "C.UTF-8", "ANTHROPIC_API_KEY": key}


def agent(folder: Path, url: str, python: str = sys.executable) -> None:
    (folder / "tools.py").write_text(FUNCTIONS, encoding="utf-8")
    shell = {"kind": "shell", "permission": "allow"}
    write_agent(
        folder,
        url,
        model={"name": "claude-sonnet-5-5", "base_url": url},
        tools={
            "shell": {**shell, "env": {"PYTHON": python}},
            "trusted": {**shell, "env": ["ANTHROPIC_API_KEY"]},
            "look": {"kind": "python", "function": "tools.py:look"},
            "named": {"kind": "python", "function": "tools.py:named", "env": ["OTHER_KEY"]},
        },
    )


def call(name: str, **arguments: str) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def shell(ways: dict[str, str]) -> list[dict[str, Any]]:
    return [call("shell", command=command) for command in ways.values()]


def results(simulator: Any) -> list[str]:
    """What the tools have said, in the order of their calls, as the model got it last."""
    return [
        json.dumps(part["content"])
        for message in simulator.list_requests()[-1]["body"]["messages"]
        for part in message["content"]
        if isinstance(part, dict) and part["type"] == "tool_result"
    ]


def leaks(texts: list[str], names: list[str], key: str) -> list[str]:
    """The ways that led to the key."""
    return [name for name, text in zip(names, texts, strict=True) if key in text]


async def served(folder: Path, simulator: Any, ways: dict[str, str], **how: Any) -> list[str]:
    """The ways by which tools of a server find its key."""
    key = new_key()
    simulator.call_control("POST", "options", {"api_keys": [key]})
    last = call("shell", command="cat trace")
    calls = [*shell(ways), call("look")]
    simulator.set_replies([{"calls": calls}, {"calls": [last]}, "I have tried everything."])
    told = {**environ(folder, key), **how.pop("environ", {})}
    with serving(folder, environ=told, inherit=False, cold=True, **how) as server:
        async with server.client() as client:
            session = await client.create_session("helper", "one")
            assert await session.ask("Find the key.") == "I have tried everything."
        assert server.end() == 0
        server.until("stopped")
        assert key not in json.dumps(server.heard)
    return leaks(results(simulator), [*ways, "a function", "what was sent later"], key)


@pytest.fixture
def strict(simulator):
    """A simulator that looks at keys, until the test is over."""
    yield simulator
    simulator.call_control("POST", "options", {"api_keys": []})


@linux
async def test_no_tool_of_a_server_reads_its_key(tmp_path, strict):
    agent(tmp_path, strict.url)
    assert await served(tmp_path, strict, {**WAYS, **IN_VAIN}) == []


@linux
def test_no_tool_of_a_chat_reads_its_key(tmp_path, strict):
    agent(tmp_path, strict.url)
    key, other, ways = new_key(), new_key(), {**WAYS, **IN_VAIN}
    given = [call("trusted", command='echo "$ANTHROPIC_API_KEY"'), call("named")]
    strict.call_control("POST", "options", {"api_keys": [key]})
    strict.set_replies([{"calls": [*shell(ways), call("look")]}, {"calls": given}, "Done."])
    done = subprocess.run(
        [sys.executable, "-m", "trimtab", "chat", "--json", "Find the key."],
        cwd=tmp_path,
        env={**environ(tmp_path, key), "OTHER_KEY": other},
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    told = results(strict)
    # What the file names is handed over, and shows that a key would have been seen.
    assert [re.findall(FORM, text) for text in told[-2:]] == [[key], [other]]
    assert leaks(told[:-2], [*ways, "a function"], key) == []
    assert key not in done.stderr


UNPROTECTED = """
import json, os, subprocess, sys
for command in json.load(sys.stdin):
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "PYTHON": sys.executable}
    ran = subprocess.run(["bash", "-c", "--", command], env=env, capture_output=True)
    print(json.dumps(ran.stdout.decode(errors="replace")))
"""


@linux
def test_each_way_leads_to_the_key_of_a_process_that_does_nothing_against_it(tmp_path):
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if scope.exists() and scope.read_text(encoding="ascii").strip() != "0":
        pytest.skip("this system keeps programs from the memory of others anyway")
    key = new_key()
    done = subprocess.run(
        [sys.executable, "-c", UNPROTECTED],
        input=json.dumps(list(WAYS.values())),
        cwd=tmp_path,
        env=environ(tmp_path, key),
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=120,
    )
    texts = [json.loads(line) for line in done.stdout.splitlines()]
    assert leaks(texts, list(WAYS), key) == list(WAYS)


NOBODY = 65_534
SOMEBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


def ordinary() -> tuple[tuple[str, ...], dict[str, str]]:
    """How an ordinary user runs this code, and the environment that needs."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become somebody else, with setpriv")
    path = os.pathsep.join(each for each in sys.path if each)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{version}"):
        command, env = (*SOMEBODY, python), {"PYTHONPATH": path}
        # Through a shell: what setpriv itself starts, it still starts with the rights of root.
        code = 'exec "$0" -c "import trimtab, pydantic_core, anthropic"'
        tried = [*SOMEBODY, "sh", "-c", code, python]
        try:
            subprocess.run(tried, env={**os.environ, **env}, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return command, env
    pytest.skip("an ordinary user cannot read the interpreter or the code here")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder of the ordinary user's."""
    with tempfile.TemporaryDirectory() as made:
        if os.geteuid() == 0:
            os.chown(made, NOBODY, NOBODY)
        yield Path(made)


@linux
@pytest.mark.soak
async def test_no_tool_of_an_ordinary_user_reads_the_key(open_folder, strict):
    python, env = ordinary()
    agent(open_folder, strict.url, python[-1])
    ways = {**WAYS, **IN_VAIN}
    assert await served(open_folder, strict, ways, python=python, environ=env) == []


@linux
@pytest.mark.soak
@pytest.mark.parametrize("program", DEBUGGERS)
@pytest.mark.parametrize("user", ["this", "ordinary"])
async def test_no_debugger_reads_the_key(open_folder, strict, program, user):
    if not installed(program):
        pytest.skip(f"{program} is not installed")
    python, env = ordinary() if user == "ordinary" else ((sys.executable,), {})
    agent(open_folder, strict.url, python[-1])
    ways = {program: DEBUGGERS[program]}
    assert await served(open_folder, strict, ways, python=python, environ=env) == []


@pytest.fixture
def core_pattern() -> str:
    return Path("/proc/sys/kernel/core_pattern").read_text(encoding="ascii").strip()


@linux
@pytest.mark.soak
async def test_a_server_that_is_made_to_crash_leaves_no_core(tmp_path, strict, core_pattern):
    if not core_pattern.startswith("core"):
        pytest.skip(f"cores go to {core_pattern} here, and not into the folder")
    agent(tmp_path, strict.url)
    crash = "prlimit --pid $PPID --core=unlimited:unlimited && kill -ABRT $PPID"
    strict.set_replies([{"calls": [call("shell", command=crash)]}])
    told = environ(tmp_path, new_key())
    with serving(tmp_path, environ=told, inherit=False, cold=True) as server:
        async with server.client() as client:
            await client.session("helper", "one").send("Crash.")
            assert server.process.wait(60) == -signal.SIGABRT
    assert sorted(tmp_path.glob("core*")) == []
