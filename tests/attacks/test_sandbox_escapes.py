"""What a hostile model may try from inside of a sandbox, and around it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.serve.agent.tools.toolboxes import call
from tests.serve.service.served_agents import until
from trimtab.session.tools import Tool
from trimtab_serve.agent.config.spec import AgentSpec
from trimtab_serve.agent.tools.permissions.rules import decline_unattended
from trimtab_serve.agent.tools.python_function import load_function
from trimtab_serve.agent.tools.sandbox import build_tool_setting, find_bubblewrap
from trimtab_serve.agent.tools.tools_from_config import open_tools
from trimtab_serve.agent.tools.unusable_tool_error import UnusableToolError

pytestmark = [pytest.mark.anyio, pytest.mark.process]

SECRET, KEYS = "ZEBRA", "sha256-of-all-tenants"
FUNCTION = 'def f(x: str) -> str:\n    """Says it."""\n    return "as written"\n'
PYTHON = Path(sys.executable).resolve()
"""Not that of a virtual environment, which may be in a folder that a sandbox does not show."""
AGENT_FILE = "model: {name: claude-sonnet-4-5}\n"


@pytest.fixture(autouse=True, scope="module")
def bubblewrap():
    found = find_bubblewrap(os.environ["PATH"])
    if isinstance(found, str):
        pytest.skip(f"no sandbox here: {found}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An agent whose files are in folders of their own, below the one of its shell."""
    made = tmp_path.resolve() / "agent"
    for name, text in {
        "agent.yaml": AGENT_FILE,
        "data/sessions/one/events.jsonl": SECRET,
        "private/keys.json": KEYS,
        "prompts/my prompt.md": "Be careful.",
        "lib/functions.py": FUNCTION,
        "bin/report.sh": "#!/bin/sh\necho as written\n",
        "notes/note.txt": "a note",
    }.items():
        file = made / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (made / "bin/report.sh").chmod(0o755)
    return made


@asynccontextmanager
async def shell_in(folder: Path, cwd: str = ".", **own: Any) -> AsyncGenerator[dict[str, Tool]]:
    """The tools of the agent in this folder; `shell` is in a sandbox."""
    report = {"kind": "command", "description": "Reports.", "command": ["bin/report.sh"]}
    spec = AgentSpec.model_validate(
        {
            "model": {"name": "claude-sonnet-4-5"},
            "system": "prompts/my prompt.md",
            "session": {"store": "data/sessions"},
            "serve": {"keys": "private/keys.json"},
            "tools": {
                "shell": {"kind": "shell", "sandbox": "required", "cwd": cwd, **own},
                "report": report,
                "say": {"kind": "python", "function": "lib/functions.py:f"},
            },
        }
    )
    environ = {"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(folder.parent / "state")}
    setting = build_tool_setting(spec, folder, approve=decline_unattended, environ=environ)
    async with open_tools(spec.tools, setting) as tools:
        yield {tool.definition["name"]: tool for tool in tools}


def read_all(folder: Path) -> dict[str, str]:
    """What each file holds, but for what Python keeps."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


async def test_nothing_is_put_in_the_place_of_a_folder_that_holds_what_is_protected(folder: Path):
    before = read_all(folder)
    async with shell_in(folder) as tools:
        for name in ("data", "private", "prompts", "lib", "bin"):
            line = f"mv {name} moved; mkdir -p {name} && echo planted > {name}/x; rm -f {name}/x"
            await call(tools["shell"], command=line)
        # In the next call nothing is where the sandbox looks for it, had the first succeeded.
        told = await call(tools["shell"], command="cat */sessions/*/* */keys.json; cat notes/*")
        assert "a note" in told
        assert SECRET not in told
        assert KEYS not in told
        assert await call(tools["shell"], command="mv notes n && cat n/*") == "a note"
    assert read_all(folder) == {name.replace("notes/", "n/"): text for name, text in before.items()}


@pytest.mark.parametrize("linked", ["agent.yaml", "private/keys.json", "private", "data/sessions"])
async def test_a_link_that_a_tool_could_replace_is_refused(folder: Path, linked: str):
    real = folder.parent / "elsewhere"
    (folder / linked).rename(real)
    (folder / linked).symlink_to(real)
    with pytest.raises(UnusableToolError, match="is a symbolic link in the folder"):
        async with shell_in(folder):
            pass
    # Not where the tool cannot write.
    async with shell_in(folder, cwd="notes") as tools:
        told = await call(tools["shell"], command=f"cat note.txt; rm -f ../{linked}; cat ../*/*")
    assert "a note" in told
    assert SECRET not in told
    assert KEYS not in told
    assert (folder / linked).is_symlink()


async def test_bytecode_beside_a_function_is_not_believed(folder: Path):
    source = folder / "lib/functions.py"
    cached = source.parent / "__pycache__" / f"functions.{sys.implementation.cache_tag}.pyc"
    # What Python compares before it runs the bytecode: the date and the size of the source.
    script = (
        "import marshal, os, sys, importlib.util as u\n"
        "s, c = sys.argv[1:]\n"
        "t = os.stat(s)\n"
        "code = compile(\"def f(x: str) -> str:\\n    'd'\\n    return 'planted'\\n\", s, 'exec')\n"
        "head = u.MAGIC_NUMBER + bytes(4)\n"
        "head += b''.join(int(n).to_bytes(4, 'little') for n in (t.st_mtime, t.st_size))\n"
        "os.makedirs(os.path.dirname(c), exist_ok=True)\n"
        "open(c, 'wb').write(head + marshal.dumps(code))\n"
    )
    (folder / "notes/forge.py").write_text(script)
    async with shell_in(folder) as tools:
        line = f"{PYTHON} notes/forge.py {source} {cached}"
        assert await call(tools["shell"], command=line) == "[no output]"
        assert b"planted" in cached.read_bytes()
    for name in [name for name in sys.modules if name.startswith("trimtab_tools_")]:
        del sys.modules[name]
    assert load_function("say", "lib/functions.py:f", folder)(x="") == "as written"


async def test_what_runs_outside_of_the_sandbox_cannot_be_rewritten_from_inside(folder: Path):
    async with shell_in(folder) as tools:
        for name in ("bin/report.sh", "lib/functions.py", "prompts/my prompt.md", "agent.yaml"):
            told = await call(tools["shell"], command=f"echo 'echo planted' > '{name}'")
            assert "Read-only file system" in told, name
        assert await call(tools["report"]) == "as written"


@pytest.mark.parametrize("cwd", ["/", "/run", "/proc", "/dev"])
async def test_no_sandbox_is_made_around_the_whole_machine(folder: Path, cwd: str):
    with pytest.raises(UnusableToolError, match="a sandbox is not possible with cwd"):
        async with shell_in(folder, cwd=cwd):
            pass


async def test_nothing_is_uncovered_from_within(folder: Path):
    lines = (
        "umount data/sessions private/keys.json",
        "unshare -Urm sh -c 'umount data/sessions; umount private/keys.json; cat data/*/*/* p*/*'",
        "cat /proc/1/root$PWD/data/sessions/one/events.jsonl /proc/self/root$PWD/private/keys.json",
        "ln private/keys.json k; ln agent.yaml a; ln -s agent.yaml s; echo planted | tee k a s",
        "mount --bind notes data; mount -o remount,rw,bind agent.yaml; echo planted > agent.yaml",
        "chmod 777 agent.yaml private/keys.json; cp --remove-destination notes/note.txt agent.yaml",
    )
    async with shell_in(folder) as tools:
        told = [await call(tools["shell"], command=f"({line}) 2>&1; true") for line in lines]
    assert all("a note" not in each and SECRET not in each and KEYS not in each for each in told)
    assert (folder / "agent.yaml").read_text() == AGENT_FILE
    assert (folder / "private/keys.json").read_text() == KEYS


async def test_sockets_of_run_and_abstract_ones_are_not_there(folder: Path):
    """A socket elsewhere can be reached where its file can be read; see the table."""
    name = f"trimtab-{os.getpid()}"
    places = {"abstract": f"\0{name}", "tmp": f"/tmp/{name}", "folder": str(folder / "s")}  # noqa: S108
    (folder / "notes/connect.py").write_text(
        f"import socket, sys\nplaces = {places!r}\n"
        "socket.socket(socket.AF_UNIX).connect(places[sys.argv[1]])\nprint('connected')\n"
    )
    told = dict[str, str]()
    with ExitStack() as held:
        for place in places.values():
            listener = held.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(place)
            listener.listen()
        held.callback(Path(places["tmp"]).unlink)
        async with shell_in(folder) as tools:
            for each in places:
                line = f"{PYTHON} notes/connect.py {each}"
                told[each] = await call(tools["shell"], command=line)
            assert await call(tools["shell"], command="ls -A /run") == "[no output]"
    assert "ConnectionRefusedError" in told["abstract"]
    assert "FileNotFoundError" in told["tmp"]
    assert told["folder"] == "connected"


async def test_keys_that_are_replaced_meanwhile_cannot_be_changed_from_another_folder(folder: Path):
    """A rename from outside takes a cover away. What is in `cwd` can then be changed by a command
    that runs at that moment; what is elsewhere cannot."""
    keys = folder / "private/keys.json"
    line = (
        "echo on > began; until [ -e go ]; do sleep 0.05; done; "
        "echo planted > ../private/keys.json; echo planted > ../agent.yaml"
    )
    async with shell_in(folder, cwd="notes") as tools:
        running = asyncio.ensure_future(call(tools["shell"], command=line))
        await until((folder / "notes/began").exists)
        for file in (keys, folder / "agent.yaml"):
            new = file.with_suffix(".new")
            new.write_text("new")
            new.replace(file)
        (folder / "notes/go").touch()
        assert "Read-only file system" in await running
    assert keys.read_text() == (folder / "agent.yaml").read_text() == "new"


async def test_no_process_outlives_its_call_however_many_there_are(folder: Path):
    mark = f"47{os.getpid()}.25"
    daemon = f"(setsid nohup sh -c 'trap \"\" TERM HUP; exec sleep {mark}' >/dev/null 2>&1 &)"
    line = f"for i in $(seq 60); do {daemon}; done; echo begun"
    async with shell_in(folder) as tools:
        assert await call(tools["shell"], command=line) == "begun"
        await until(lambda: count_processes(mark) == 0, seconds=2)
    async with shell_in(folder, timeout=1.0) as tools:
        # It starts more and more of itself until its time is over; not so fast as to hurt others.
        bomb = f"f() {{ sleep {mark} & sleep 0.01; f & f; }}; ulimit -u 400; f"
        with pytest.raises(Exception, match="not ended after 1 second"):
            await call(tools["shell"], command=bomb)
        await until(lambda: count_processes(mark) == 0, seconds=5)


def count_processes(mark: str) -> int:
    found = 0
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += mark.encode() in file.read_bytes().split(b"\0")
        except OSError:
            continue
    return found
