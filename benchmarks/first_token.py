"""What comes on top of the SDK until the first token is seen, and how long `--help` takes.

    python -m benchmarks.first_token [--quick] [--json]

One streamed request, sent by the bare SDK and by an agent with a shell tool and a session in files,
to the same simulator on a local port; the bare SDK sends, byte for byte, what the agent has sent.
Each is measured in fresh processes, one after the other in turns, and medians are shown.

imports   CPU of importing what is used: the SDK alone, or the SDK and the agent
start     CPU until the first request can be made: the SDK's client; or reading agent.yaml, opening
          the store, making the tools and beginning a session
turn      CPU from the user's message to the first piece of the reply, in the first turn, with all
          that an SDK does once: the connection, the types it makes on first use
again     the same in the second turn
added     `start` and `turn` of the agent minus those of the SDK; it must be 50 ms at most

`trimtab --help` and `python -c "import typer"` are run in turns as well; the CPU of the first must
be at most 3 times that of the second.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Report, progress, run
from trimtab.testing.server import ServedSimulator, serve_simulated_provider

RUNS = {"full": 15, "quick": 5}
MOST_ADDED = 50.0
"""Milliseconds of CPU that may be taken beyond the SDK until the first token."""
MOST_TIMES = 3.0
"""How much more CPU than `import typer` the help may take."""
SAYS = "What is in this folder, and what should be done about it?"
AGENT = """\
model:
  name: claude-sonnet-4-5
  base_url: {url}
  api_key: benchmark
system: |
  You look after a code base.
  Read before you change, and say what you have found.
tools:
  shell:
    kind: shell
"""


def main(quick: bool) -> Report:
    runs = RUNS["quick" if quick else "full"]
    with serve_simulated_provider() as served, tempfile.TemporaryDirectory() as folder:
        rows = first_tokens(served, Path(folder), runs)
    until = [row["start"] + row["turn"] for row in rows]
    added = round(until[1] - until[0], 1)
    start = help_times(runs)
    broken: list[str] = []
    if added > MOST_ADDED:
        broken.append(f"until the first token {added} ms of CPU are added; at most {MOST_ADDED:g}")
    if start["cpu_ratio"] > MOST_TIMES:
        broken.append(f"--help takes {start['cpu_ratio']} times the CPU of `import typer`")
    return {
        "sample": f"medians of {runs} processes each, milliseconds of CPU",
        "rows": rows,
        "added": added,
        "help": start,
        "broken": broken,
    }


def first_tokens(served: ServedSimulator, folder: Path, runs: int) -> list[Report]:
    """A row for the SDK and one for the agent."""
    (folder / "agent.yaml").write_text(AGENT.format(url=served.url), encoding="utf-8")
    measured("agent", served, folder)
    sent = folder / "request.json"
    sent.write_text(served.simulator.records.requests[0].raw.decode(), encoding="utf-8")
    taken: dict[str, list[Report]] = {"sdk": [], "agent": []}
    for number in range(runs):
        progress(f"first token: {number + 1} of {runs}")
        for role, found in taken.items():
            found.append(measured(role, served, folder))
    return [
        {"who": role, **{key: _median([one[key] for one in found]) for key in found[0]}}
        for role, found in taken.items()
    ]


def measured(role: str, served: ServedSimulator, folder: Path) -> Report:
    """What one process of that role says of itself."""
    command = [sys.executable, "-m", "benchmarks.first_token", "--role", role, served.url]
    done = subprocess.run([*command, str(folder)], capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    if done.returncode:
        raise RuntimeError(f"{role}: {done.stderr}")
    return json.loads(done.stdout)


def help_times(runs: int) -> Report:
    """CPU and wall time of the help against an import, in turns."""
    commands = {
        "help": [sys.executable, "-m", "trimtab.cli", "--help"],
        "typer": [sys.executable, "-c", "import typer"],
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for number in range(runs + 1):
        progress(f"--help: {number} of {runs}")
        for name, command in commands.items():
            took = _process(command)
            # The first of each reads files from the disk.
            taken[name] += [took] if number else []
    cpu, wall = (
        {name: _median([one[index] for one in found]) for name, found in taken.items()}
        for index in (0, 1)
    )
    return {
        "help_cpu": cpu["help"],
        "typer_cpu": cpu["typer"],
        "cpu_ratio": round(cpu["help"] / cpu["typer"], 2),
        "help_wall": wall["help"],
        "typer_wall": wall["typer"],
        "wall_ratio": round(wall["help"] / wall["typer"], 2),
    }


def _process(command: Sequence[str]) -> tuple[float, float]:
    """CPU and wall time of a process, in milliseconds."""
    begun = time.perf_counter()
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603 - our own
    _, status, used = os.wait4(started.pid, 0)
    wall = time.perf_counter() - begun
    started.returncode = os.waitstatus_to_exitcode(status)
    assert started.returncode == 0, command
    return (used.ru_utime + used.ru_stime) * 1_000, wall * 1_000


def sdk(url: str, folder: Path) -> Report:
    """The SDK alone: what the agent has sent, sent again."""
    request: dict[str, Any] = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    cpu = _Stopwatch()
    import anthropic

    cpu.lap("imports")

    async def ask() -> None:
        client = anthropic.AsyncAnthropic(base_url=url, api_key="benchmark")
        cpu.lap("start")
        for name in ("turn", "again"):
            async with await client.messages.create(**request) as stream:
                async for event in stream:
                    if event.type == "content_block_delta" and name not in cpu.laps:
                        cpu.lap(name)
            cpu.reset()
        await client.close()

    asyncio.run(ask())
    return cpu.laps


def agent(url: str, folder: Path) -> Report:
    """The agent: its file, a session, and turns until the first piece."""
    del url
    cpu = _Stopwatch()
    # With what they would import on first use.
    for name in ("anthropic", "yaml", "trimtab.providers.anthropic"):
        importlib.import_module(name)
    from trimtab.session.events import TextDelta
    from trimtab_serve.agent.agent import open_agent
    from trimtab_serve.agent.config.loader import load_agent_spec

    cpu.lap("imports")

    async def ask() -> None:
        spec = load_agent_spec(folder / "agent.yaml", os.environ)
        async with open_agent(spec, folder) as made:
            session = await made.open_session(f"s{os.getpid()}")
            cpu.lap("start")
            for name in ("turn", "again"):
                said = {"role": "user", "content": SAYS}
                await made.run_turn(session, said, on_event=_first(name, cpu, TextDelta))
                cpu.reset()

    asyncio.run(ask())
    return cpu.laps


def _first(name: str, cpu: _Stopwatch, piece: type) -> Callable[[Any], None]:
    def tell(happening: Any) -> None:
        if isinstance(happening, piece) and name not in cpu.laps:
            cpu.lap(name)

    return tell


class _Stopwatch:
    def __init__(self) -> None:
        self.laps: Report = {}
        self.reset()

    def reset(self) -> None:
        self._since = time.process_time()

    def lap(self, name: str) -> None:
        self.laps[name] = (time.process_time() - self._since) * 1_000
        self.reset()


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--role"]:
        role, url, folder = sys.argv[2:]
        print(json.dumps({"sdk": sdk, "agent": agent}[role](url, Path(folder))))
        sys.exit(0)
    sys.exit(run(__doc__, main, ("anthropic", "typer")))
