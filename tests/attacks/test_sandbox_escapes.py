"""What a hostile model may try from inside of a sandbox, and around it."""

from __future__ import annotations

import ast
import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.serve.agent.tools.mcp_servers import PROGRAM
from tests.serve.agent.tools.toolboxes import call, failure
from tests.serve.service.served_agents import until
from trimtab.session.tools import Tool
from trimtab.testing import MemoryStore
from trimtab_serve.agent.config.spec import AgentSpec
from trimtab_serve.agent.tools.permissions.rules import decline_unattended
from trimtab_serve.agent.tools.python_function import load_function
from trimtab_serve.agent.tools.sandbox import build_tool_setting, find_bubblewrap
from trimtab_serve.agent.tools.tool_setting import UnusableToolError
from trimtab_serve.agent.tools.tools_from_config import open_tools
from trimtab_serve.process.loading import load_agent_set
from trimtab_serve.process.reloading import ServedAgents

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
        "data/sessions/.server/server.db": KEYS,
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
async def shell_in(
    folder: Path, cwd: str = ".", others: dict[str, Any] | None = None, **own: Any
) -> AsyncGenerator[dict[str, Tool]]:
    """The tools of the agent in this folder; `shell` is in a sandbox."""
    report = {"kind": "command", "description": "Reports.", "command": ["bin/report.sh"]}
    spec = AgentSpec.model_validate(
        {
            "model": {"name": "claude-sonnet-4-5"},
            "system": "prompts/my prompt.md",
            "session": {"store": "data/sessions"},
            "serve": {"keys": True},
            "tools": {
                "shell": {"kind": "shell", "sandbox": "required", "cwd": cwd, **own},
                "report": report,
                "say": {"kind": "python", "function": "lib/functions.py:f"},
                **(others or {}),
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
        for name in ("data", "prompts", "lib", "bin"):
            line = f"mv {name} moved; mkdir -p {name} && echo planted > {name}/x; rm -f {name}/x"
            await call(tools["shell"], command=line)
        # In the next call nothing is where the sandbox looks for it, had the first succeeded.
        told = await call(tools["shell"], command="cat */sessions/*/* */sessions/.*/*; cat notes/*")
        assert "a note" in told
        assert SECRET not in told
        assert KEYS not in told
        assert await call(tools["shell"], command="mv notes n && cat n/*") == "a note"
    assert read_all(folder) == {name.replace("notes/", "n/"): text for name, text in before.items()}


@pytest.mark.parametrize("linked", ["agent.yaml", "data/sessions"])
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


BUILD = {"kind": "command", "description": "Builds.", "command": ["sh", "-c", "echo on > made"]}
REPLACE_BY_LINK = "mv work/build work/b2; rmdir work/build; ln -s ../../victim work/build; ls work"


@pytest.mark.parametrize("sandbox", ["required", "off"])
async def test_the_folder_of_another_tool_is_not_replaced_by_a_link(folder: Path, sandbox: str):
    (folder / "work/build").mkdir(parents=True)
    (folder.parent / "victim").mkdir()
    build = {**BUILD, "cwd": "work/build", "sandbox": sandbox}
    async with shell_in(folder, others={"build": build}) as tools:
        assert (await call(tools["shell"], command=REPLACE_BY_LINK)).splitlines()[-1] == "build"
        assert "Device or resource busy" in await call(tools["shell"], command="mv work w")
        await call(tools["build"])
        assert (folder / "work/build/made").read_text() == "on\n"
        # If somebody else replaces it, nothing runs there, and no other sandbox can write there.
        (folder / "work/build").rename(folder / "work/b2")
        (folder / "work/build").symlink_to(folder.parent / "victim")
        assert "was replaced by a symbolic link" in await failure(tools["build"])
        told = await call(tools["shell"], command="echo planted > work/build/planted")
        assert "[exit status 1]" in told
    assert list((folder.parent / "victim").iterdir()) == []


async def test_the_folder_of_an_mcp_server_is_not_replaced_by_a_link(folder: Path):
    (folder / "work/build").mkdir(parents=True)
    server = {"kind": "mcp", "command": [sys.executable, str(PROGRAM)], "cwd": "work/build"}
    async with shell_in(folder, others={"ws": server}) as tools:
        assert (await call(tools["shell"], command=REPLACE_BY_LINK)).splitlines()[-1] == "build"
        (folder / "work/build").rename(folder / "work/b2")
        (folder / "work/build").symlink_to(folder / "notes")
        await failure(tools["ws__die"])
        assert "was replaced by a symbolic link" in await failure(tools["ws__say"], text="x")


async def test_a_link_to_the_folder_of_another_tool_is_refused(folder: Path):
    (folder / "build").symlink_to(folder.parent)
    for cwd in ("build", "build/agent/notes", "build/../agent/notes"):
        with pytest.raises(UnusableToolError, match="is a symbolic link in the folder"):
            async with shell_in(folder, others={"build": {**BUILD, "cwd": cwd}}):
                pass


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


async def test_files_of_other_agents_of_the_server_cannot_be_changed(folder: Path):
    model = "model: {name: 'qwen3:8b', provider: ollama}\n"
    shell = "tools: {shell: {kind: shell, sandbox: required, allow: ['*']}}\n"
    functions = "tools: {say: {kind: python, function: 'tools.py:f'}}\n"
    make = "tools: {make: {kind: command, description: Makes., command: [ls], cwd: work}}\n"
    store = f"session: {{store: '{folder / 'data/sessions'}'}}\n"
    for name, text in {
        "agent.yaml": f"name: one\n{store}{model}{shell}",
        "two/agent.yaml": f"name: two\n{store}{model}{functions}system: system.md\n",
        "two/system.md": "Be careful.",
        "two/tools.py": FUNCTION,
        "three/other.yaml": f"name: three\n{store}{model}{make}",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "three/work").mkdir()
    agents = load_agent_set(
        [folder / name for name in ("agent.yaml", "two/agent.yaml", "three/other.yaml")]
    )
    before = read_all(folder)
    served = ServedAgents(MemoryStore())
    try:
        opened = await served.open(agents.members)
        (tool,) = opened["one"].tools
        files = ("two/agent.yaml", "two/system.md", "two/tools.py", "three/other.yaml")
        for name in files:
            told = await call(tool, command=f"echo planted > {name}")
            assert "Read-only file system" in told, name
        for name in ("two", "three", "three/work"):
            told = await call(tool, command=f"mv {name} moved")
            assert "Device or resource busy" in told, name
    finally:
        await served.close()
    assert read_all(folder) == before


@pytest.mark.parametrize("cwd", ["/", "/run", "/proc", "/dev"])
async def test_no_sandbox_is_made_around_the_whole_machine(folder: Path, cwd: str):
    with pytest.raises(UnusableToolError, match="a sandbox is not possible with cwd"):
        async with shell_in(folder, cwd=cwd):
            pass


async def test_nothing_is_uncovered_from_within(folder: Path):
    lines = (
        "umount data/sessions",
        "unshare -Urm sh -c 'umount data/sessions; cat data/*/*/* data/*/.*/*'",
        "cat /proc/1/root$PWD/data/sessions/one/* /proc/self/root$PWD/data/sessions/.server/*",
        "ln data/sessions/.server/server.db k; ln agent.yaml a; echo planted | tee k a",
        "ln -s agent.yaml s; echo planted | tee s",
        "mount --bind notes data; mount -o remount,rw,bind agent.yaml; echo planted > agent.yaml",
        "chmod 777 agent.yaml data/sessions; cp --remove-destination notes/note.txt agent.yaml",
    )
    async with shell_in(folder) as tools:
        told = [await call(tools["shell"], command=f"({line}) 2>&1; true") for line in lines]
    assert all("a note" not in each and SECRET not in each and KEYS not in each for each in told)
    assert (folder / "agent.yaml").read_text() == AGENT_FILE
    assert (folder / "data/sessions/.server/server.db").read_text() == KEYS


async def test_sockets_of_run_and_abstract_ones_are_not_there(folder: Path):
    name = f"trimtab-{os.getpid()}"
    places = {
        "abstract": f"\0{name}",
        "tmp": f"/tmp/{name}",  # noqa: S108
        "folder": str(folder / "a socket"),
        "notes": str(folder / "notes/s"),
        "var": f"/var/{name}" if os.access("/var", os.W_OK) else str(folder / "lib/s"),
    }
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
            if place[0] == "/":
                held.callback(Path(place).unlink)
        async with shell_in(folder) as tools:
            for each in places:
                line = f"{PYTHON} notes/connect.py {each}"
                told[each] = await call(tools["shell"], command=line)
            assert await call(tools["shell"], command="ls -A /run") == "[no output]"
    assert "FileNotFoundError" in told.pop("tmp")
    assert [each for each in told if "ConnectionRefusedError" not in told[each]] == []


async def test_sockets_in_the_folder_are_hidden_wherever_they_were_bound(folder: Path, monkeypatch):
    monkeypatch.chdir(folder / "notes")
    (folder / "a\nb").mkdir()
    (folder / "notes/connect.py").write_text(
        "import socket, sys\nsocket.socket(socket.AF_UNIX).connect(sys.argv[1])\n"
        "print('connected')\n"
    )
    places = {"relative": "notes/relative", "moved": "bin/moved", str(folder / "a\nb/s"): "a\nb/s"}
    with ExitStack() as held:
        for bound, place in places.items():
            listener = held.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(bound)
            listener.listen()
            if bound == "moved":
                (folder / "notes/moved").rename(folder / place)
        async with shell_in(folder) as tools:
            for place in places.values():
                told = await call(tools["shell"], command=f"{PYTHON} notes/connect.py '{place}'")
                assert "ConnectionRefusedError" in told, place
            monkeypatch.setattr("trimtab_serve.agent.tools.sandbox.MAX_HIDDEN_SOCKETS", 2)
            assert "contains more than 2 sockets" in await failure(tools["shell"], command="ls")


async def test_nothing_of_the_machine_can_be_written_even_as_root(folder: Path):
    """The program looks at each mount, and at each file of `/proc`, without writing to one."""
    (folder / "notes/look.py").write_text(
        "import os\n"
        "mounts = [line.split() for line in open('/proc/self/mountinfo')]\n"
        "print('mounts', sorted({m[4] for m in mounts if 'rw' in m[5].split(',')}))\n"
        "writable = [os.path.join(at, name) for at, _, names in os.walk('/proc')\n"
        "            for name in names if os.access(os.path.join(at, name), os.W_OK)\n"
        "            and not os.path.islink(os.path.join(at, name))]\n"
        "print('proc', writable[:5])\n"
        "print('sys', os.access('/proc/sys/kernel/core_pattern', os.W_OK))\n"
    )
    async with shell_in(folder, cwd="notes") as tools:
        told = await call(tools["shell"], command=f"{PYTHON} look.py")
        again = await call(
            tools["shell"], command="unshare -Urmpf --mount-proc true && echo mounted; echo $?"
        )
    mounts, proc, core_pattern = told.splitlines()
    ours = ("/dev", "/run", "/tmp", str(folder / "notes"))  # noqa: S108 - those of the sandbox
    writable = [place for place in ast.literal_eval(mounts[7:]) if not place.startswith(ours)]
    assert (writable, proc, core_pattern) == ([], "proc []", "sys False")
    assert "mounted" not in again


async def test_a_file_replaced_meanwhile_cannot_be_changed_from_another_folder(
    folder: Path,
):
    """A rename from outside takes a cover away. What is in `cwd` can then be changed by a command
    that runs at that moment; what is elsewhere cannot."""
    file = folder / "agent.yaml"
    line = "echo on > began; until [ -e go ]; do sleep 0.05; done; echo planted > ../agent.yaml"
    async with shell_in(folder, cwd="notes") as tools:
        running = asyncio.ensure_future(call(tools["shell"], command=line))
        await until((folder / "notes/began").exists)
        new = file.with_suffix(".new")
        new.write_text("new")
        new.replace(file)
        (folder / "notes/go").touch()
        assert "Read-only file system" in await running
    assert file.read_text() == "new"


async def test_no_process_outlives_its_call_however_many_there_are(folder: Path):
    mark = f"47{os.getpid()}.25"
    daemon = f"(setsid nohup sh -c 'trap \"\" TERM HUP; exec sleep {mark}' >/dev/null 2>&1 &)"
    line = f"for i in $(seq 60); do {daemon}; done; echo begun"
    async with shell_in(folder) as tools:
        assert await call(tools["shell"], command=line) == "begun"
        await until(lambda: count_processes(mark) == 0, seconds=20)
    async with shell_in(folder, timeout=1.0) as tools:
        # It starts more and more of itself until its time is over; not so fast as to hurt others.
        bomb = f"f() {{ sleep {mark} & sleep 0.01; f & f; }}; ulimit -u 400; f"
        with pytest.raises(Exception, match="not ended after 1 second"):
            await call(tools["shell"], command=bomb)
        await until(lambda: count_processes(mark) == 0, seconds=20)


def count_processes(mark: str) -> int:
    found = 0
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += mark.encode() in file.read_bytes().split(b"\0")
        except OSError:
            continue
    return found
