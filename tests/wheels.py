"""What a release publishes, built from the commit, and each extra in an environment of its own.

    python -m tests.wheels    # with each Python that is supported

dist/ gets the files. With DATABASE_URL, an empty PostgreSQL database, the store is tried there as
well. If something broke, the exit status is 1.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.frameworks import environments
from benchmarks.frameworks.environments import ROOT

DIST = ROOT / "dist"
EXAMPLES = (*ROOT.glob("examples/*.py"), ROOT / "examples/frameworks/langgraph_thresholds.py")
"""Programs that say what they need. An extra that none of them needs is in `USES`."""
USES = {
    "cli": "trimtab demo",
    "vertex": """
from trimtab.providers import VertexClaudeProvider
VertexClaudeProvider(region="europe-west1", project="boats")
""",
    "otel": """
from opentelemetry import metrics, trace
from trimtab.observe.otel import create_instruments
create_instruments(trace.get_tracer_provider(), metrics.get_meter_provider())
""",
    "report": """
from matplotlib.figure import Figure
from trimtab.replay.plots import render_svg
assert "<svg" in render_svg("empty", Figure)
""",
    "postgres": """
import asyncio, os
from trimtab.stores import migrate, open_store

async def open_database(database):
    await migrate(database)
    await (await open_store(database)).close()

if database := os.environ.get("DATABASE_URL"):
    asyncio.run(open_database(database))
""",
    "pydantic-ai": """
from trimtab.integrations.pydantic_ai import TrimtabCapability
TrimtabCapability()
""",
    "openai-agents": """
from trimtab.integrations.openai_agents import TrimtabModel
TrimtabModel("gpt-5.4")
""",
    "hermes": """
from importlib.metadata import entry_points
plugin = entry_points(group="hermes_agent.plugins")["trimtab"].load()
plugin.TrimtabEngine(plugin.HermesSessions({}))
""",
    "mcp": """
import asyncio, os, pathlib
from trimtab_serve.agent.config.spec import McpToolSpec
from trimtab_serve.agent.tools.mcp import McpServer

async def list_tools():
    program = "from mcp.server.mcpserver import MCPServer; MCPServer('knots').run()"
    spec = McpToolSpec(kind="mcp", command=("python", "-c", program))
    server = McpServer("knots", spec, pathlib.Path(), os.environ)
    assert await server.list_tools() == []
    await server.close()

asyncio.run(list_tools())
""",
    "discord": """
from trimtab_serve.agent.config.spec import DiscordSpec
from trimtab_serve.channels.discord import create_discord_channel
create_discord_channel(None, "helper", DiscordSpec(token="a"))
""",
}
"""By extra: a command of ours, or a program, that needs what it installs."""
IMPORT_ALL = """
import importlib, sys
from importlib.metadata import distributions

ours = [one for one in distributions() if one.name.startswith("trimtab")]
for path in [path for one in ours for path in one.files or ()]:
    if path.suffix == ".py" and path.stem != "__main__":
        try:
            importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
        except ImportError as error:
            if (error.name or "").startswith("trimtab") or f"[{sys.argv[1]}]" in str(error):
                raise
        else:
            print("imported", path)
"""
"""Prints what can be imported. Only packages that the extra does not promise may be missing."""


class Broken(Exception):
    """A command that failed, and the end of its output."""


def run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> str:
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise Broken(f"{shlex.join(map(str, command))[:200]}\n{done.stdout.strip()[-2_000:]}")
    return done.stdout


def build(tools: Path, folder: Path) -> None:
    """Build dist/ from the commit, and check what is in it."""
    run("git", "archive", "-o", folder / "commit.tar", "HEAD", "packages")
    with tarfile.open(folder / "commit.tar") as commit:
        commit.extractall(folder, filter="data")
        names = {name.partition("/src/")[2] for name in commit.getnames() if "." in name}
    # With the time of the commit, whoever builds it gets the same wheels.
    os.environ["SOURCE_DATE_EPOCH"] = run("git", "log", "-1", "--format=%ct").strip()
    shutil.rmtree(DIST, ignore_errors=True)
    command = (tools / "python", "-m", "build", "--installer", "uv")
    for package in (folder / "packages").iterdir():
        run(*command, "-o", DIST, package)
        run(*command, "-o", folder, "--wheel", package)
    run(tools / "twine", "check", "--strict", *DIST.iterdir())
    for wheel in DIST.glob("*.whl"):
        if wheel.read_bytes() != (folder / wheel.name).read_bytes():
            raise Broken(f"{wheel.name} is another wheel if it is not built from the sdist")
        names.difference_update(zipfile.ZipFile(wheel).namelist())
    # An editable install has every file, a wheel those that `package-data` names.
    if lost := [name for name in names if name and not name.endswith("README.md")]:
        raise Broken(f"files that are in no wheel: {', '.join(sorted(lost))}")
    for path in sorted(DIST.iterdir()):
        print(hashlib.sha256(path.read_bytes()).hexdigest(), path.name, flush=True)


def list_extras(package: str) -> list[str]:
    (wheel,) = DIST.glob(f"{package}-*.whl")
    with zipfile.ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith("/METADATA"))
        return re.findall(r"^Provides-Extra: (\S+)", files.read(name).decode(), re.MULTILINE)


def list_needs() -> dict[str, list[Path]]:
    """The examples, by the arguments of `pip install` in their first lines."""
    programs: defaultdict[str, list[Path]] = defaultdict(list)
    for program in sorted(EXAMPLES):
        need = re.search(r"^Needs: pip install (.+)", program.read_text("utf-8"), re.MULTILINE)
        assert need, program
        programs[need[1]].append(program)
    return programs


def use(tools: Path, folder: Path, requirements: str, *commands: Sequence[str | Path]) -> str:
    """Run commands in an empty environment with these requirements, and return what they print."""
    environment, home = folder / "environment", folder / "home"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    run(tools / "uv", "venv", "--clear", "--python", sys.executable, environment)
    install = (tools / "uv", "pip", "install", "--python", environment, "-c", folder / "wheels.txt")
    run(*install, *shlex.split(requirements))
    path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    output = [run(*command, cwd=home, PATH=path, PYTHONPATH="") for command in commands]
    return "".join(output)


def try_extra(tools: Path, folder: Path, extra: str) -> set[str]:
    """Use an extra, and return the modules that can be imported with it."""
    commands: list[Sequence[str]] = [("python", "-c", IMPORT_ALL, extra)]
    if text := USES.get(extra):
        commands.append(text.split() if text.startswith("trimtab") else ("python", "-c", text))
    output = use(tools, folder, f"trimtab[{extra}]", *commands)
    if extra in list_extras("trimtab_serve"):
        install = (tools / "uv", "pip", "install", "--dry-run", "-c", folder / "wheels.txt")
        python = folder / "environment"
        plan = run(*install, "--python", python, f"trimtab-serve[{extra}]")
        if "Would make no changes" not in plan:
            raise Broken(f"trimtab-serve[{extra}] installs something else:\n{plan}")
    return set(re.findall(r"^imported (\S+)$", output, re.MULTILINE))


def find_faults(tools: Path, folder: Path) -> Iterator[str]:
    """Try every extra, and every example in an environment with what it needs."""
    missing = {
        name
        for wheel in DIST.glob("*.whl")
        for name in zipfile.ZipFile(wheel).namelist()
        if name.endswith(".py") and not name.endswith("__main__.py")
    }
    needs = list_needs()
    for extra in list_extras("trimtab"):
        if extra not in USES and not re.search(rf"trimtab\[[^]]*\b{extra}\b", " ".join(needs)):
            yield f"trimtab[{extra}]: no example needs it, and it is not in USES"
        try:
            missing -= try_extra(tools, folder, extra)
        except Broken as broken:
            yield f"trimtab[{extra}]: {broken}"
        else:
            print(f"ok trimtab[{extra}]", flush=True)
    yield from (f"no extra installs what {name} imports" for name in sorted(missing))
    for need, programs in needs.items():
        try:
            use(tools, folder, need, *(("python", program) for program in programs))
        except Broken as broken:
            yield f"pip install {need}: {broken}"
        else:
            print(f"ok {', '.join(program.name for program in programs)}", flush=True)


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tools = Path(environments.make(folder / "tools", ["build[uv]", "twine"])).parent
        build(tools, folder)
        wheels = [f"{path.name.partition('-')[0]} @ {path.as_uri()}" for path in DIST.glob("*.whl")]
        (folder / "wheels.txt").write_text("\n".join(wheels))
        if "DATABASE_URL" not in os.environ:
            print("without DATABASE_URL nothing is tried on PostgreSQL", flush=True)
        status = 0
        for fault in find_faults(tools, folder):
            print(f"BROKEN: {fault}", flush=True)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
