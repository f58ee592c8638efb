"""One mistake: what is there, what is typed, and what is shown."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import warm

AGENT = """\
name: helper
model:
  name: gpt-5
  base_url: SIMULATOR/v1
system: You are a helper.
"""
"""An agent that works against the simulator."""
CLAUDE = AGENT.replace("gpt-5", "claude-sonnet-4-6").replace("SIMULATOR/v1", "SIMULATOR")
"""The same with a model of Anthropic, whose SDK takes a second longer to load."""
PROGRAMS = {"trimtab": (sys.executable, "-m", "trimtab.cli"), "python": (sys.executable,)}
SIMULATOR = "http://127.0.0.1:8000"
NOBODY = "http://127.0.0.1:9"
CHANGING = (
    (re.compile(r"\d{4}-\d\d-\d\d-\d{4}-[a-z2-9]{4}\b"), "2026-11-15-0900-abcd"),
    (re.compile(r"\b\d+ ms · |\b\d+\.\d s · "), "N ms · "),
    (re.compile(r"\bRequested \d+"), "Requested 8000"),
    (re.compile(r"\bprocess \d+"), "process 4242"),
    (re.compile(r"\btrimtab_test_\w+ at \S+"), "agents at 127.0.0.1:5432"),
    # Every libpq has words of its own.
    (re.compile(r"\(connection \w+ ?\w*: .*?\)(?=;)"), "(the driver's words)"),
    # What the doctor found to be well differs from machine to machine.
    (re.compile(r"^stdout \| ✓ .*\n", re.MULTILINE), ""),
)
"""What differs from run to run, and what is shown instead."""
PATIENCE = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """What somebody does who sees the product for the first time."""

    name: str
    """Of its snapshot."""
    what: str
    """The mistake, in a sentence."""
    types: str
    """The command as it is typed."""
    status: int
    """The exit status."""
    names: Sequence[str]
    """What must be said: the name or the number that leads to the cause."""
    files: Mapping[str, str] = field(default_factory=lambda: {"agent.yaml": AGENT})
    """What is in the folder. SIMULATOR stands for the simulator's address, NOBODY for one at which
    nobody listens."""
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of the command, besides a key that the simulator takes."""
    key: str | None = "OPENAI_API_KEY"
    """The variable that holds this key; None for none."""
    says: Sequence[Any] = ()
    """What the simulated model says, or how it fails."""
    before: Sequence[str] = ()
    """Commands that have been run before."""
    beside: str | None = None
    """A command that still runs, waiting for input."""
    without: Sequence[str] = ()
    """Packages that are not installed."""
    makes: Callable[[Path], None] | None = None
    """Puts more into the folder once `before` has been run."""
    database: bool = False
    """Whether it needs a database, which is then DATABASE_URL, without our tables."""

    @property
    def secret(self) -> str:
        """The key that the simulator takes, and by which it knows what to say."""
        return f"sk-proj-{self.name}-0123456789abcdef"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Where a mistake is made."""

    folder: Path
    """The folder that the command is typed in."""
    url: str
    """The simulator."""
    dead: str
    """An address at which nobody listens."""
    database: str | None = None
    """A database without our tables."""
    cold: bool = False
    """Whether every command is started from nothing, as a shell does. Where packages are not
    installed it always is: they are missing from the start."""

    def written(self, text: str) -> str:
        return text.replace("SIMULATOR", self.url).replace("NOBODY", self.dead)

    def environ(self, mistake: Mistake) -> dict[str, str]:
        inherited_variables = warm.pass_environment()
        variables = {"HOME": str(self.folder), "LANG": "C.UTF-8", "TERM": "xterm-256color"}
        if mistake.key is not None:
            variables[mistake.key] = mistake.secret
        if self.database is not None:
            variables["DATABASE_URL"] = self.database
        if mistake.without:
            paths = (
                str(Path(__file__).parent / "without"),
                inherited_variables.get("PYTHONPATH", ""),
            )
            variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
            variables["WITHOUT"] = ",".join(mistake.without)
        more = {name: self.written(value) for name, value in mistake.environ.items()}
        return {**inherited_variables, **variables, **more}

    def plain(self, text: str) -> str:
        """The text as it is in every run: no paths, ports, ids or times of this one."""
        text = text.replace(f"{self.folder}/", "").replace(str(self.folder), "my-agent")
        text = text.replace(self.url, SIMULATOR).replace(self.dead, NOBODY)
        for pattern, replacement in CHANGING:
            text = pattern.sub(replacement, text)
        return text


def run(mistake: Mistake, world: World) -> str:
    """Make the mistake; returns its snapshot."""
    for name, text in mistake.files.items():
        path = world.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(world.written(text), encoding="utf-8")
    for command in mistake.before:
        _ran(command, mistake, world).check_returncode()
    if mistake.makes is not None:
        mistake.makes(world.folder)
    with _beside(mistake, world):
        process = _ran(mistake.types, mistake, world)
    return world.plain("".join(_told(mistake, world, process)))


def shown(snapshot: str) -> str:
    """What the person sees: all that stands behind the command, without what was well."""
    lines = snapshot.partition("\n$ ")[2].splitlines()[1:]
    return "\n".join(line.removeprefix("stdout | ").removeprefix("stderr | ") for line in lines)


def _told(mistake: Mistake, world: World, done: subprocess.CompletedProcess[str]) -> Iterator[str]:
    yield f"# {mistake.what}\n"
    if mistake.files.get("agent.yaml", AGENT) not in (AGENT, CLAUDE):
        file_text = world.written(mistake.files["agent.yaml"])
        yield from (f"agent.yaml | {line}\n" for line in file_text.splitlines())
    yield f"\n$ {mistake.types}\n"
    for stream, text in (("stdout", done.stdout), ("stderr", done.stderr)):
        yield from (f"{stream} | {line}".rstrip() + "\n" for line in text.splitlines())
    yield f"exit status {done.returncode}\n"


def _ran(command: str, mistake: Mistake, world: World) -> subprocess.CompletedProcess[str]:
    command_line, _, input_file = command.partition(" < ")
    env = world.environ(mistake)
    text = (world.folder / input_file).read_text(encoding="utf-8") if input_file else ""
    program, *arguments = shlex.split(command_line)
    if program == "trimtab" and not (world.cold or mistake.without):
        return warm.trimtab(arguments, cwd=world.folder, env=env, input=text)
    return subprocess.run(
        [*PROGRAMS[program], *arguments],
        cwd=world.folder,
        env=env,
        input=text,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=PATIENCE,
    )


def _argv(command: str) -> list[str]:
    program, *rest = shlex.split(command)
    return [*PROGRAMS[program], *rest]


@contextmanager
def _beside(mistake: Mistake, world: World) -> Generator[None]:
    if mistake.beside is None:
        yield
        return
    with warm.Popen(
        _argv(mistake.beside),
        cwd=world.folder,
        env=world.environ(mistake),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), "it did not start"
        yield
        process.kill()
