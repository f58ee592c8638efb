"""Programs in other languages with the sidecar, and what they do when it breaks.

    python -m benchmarks.doors.loops            # 32 turns a life
    python -m benchmarks.doors.loops --quick    # 12 turns, without the broken sidecars

An agent in Node and one in Go start a sidecar. A turn is two parallel calls, one more and an
answer; the strict simulator has a window of 16,000 tokens.

bare_calls        calls that the agent survives without the sidecar
calls, refused    calls that the provider answered and refused
unpaired          requests in which a call had no result, or a result no call
fell_open         calls for which the sidecar did not say what to send
cache_read_ratio  input from the cache, beside that of a plain `Context` in the same life
read_back         whether a hidden report came back byte for byte
gone              whether its handle is not here any more, because the log was lost
cpu_ms            CPU of the sidecar a call, in the median
killed, …         the life in Node whose sidecar is killed and started again with its store, without
                  one, on a full disk, or stands still; `more_writes` is how often more than in
                  the undisturbed lives a request began in another way than the one before
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.frameworks import life
from benchmarks.frameworks.__main__ import _cache_read, plain_cache_read
from benchmarks.pair_check import unpaired
from trimtab.testing.server import RemoteSimulator, spawn_simulated_provider

WINDOW = 16_000
TURNS, QUICK_TURNS = 32, 12
PAUSES = (61, 64)
"""After these calls a sidecar is broken, and repaired. They call tools, because the agent pauses
only there."""
TIMEOUT_MS, LATE_MS = 60_000, 2_000
"""How long the agent waits for an answer, and for one of a sidecar that will break."""
LEAST_CACHE_READ_RATIO = 0.95
TOO_LONG = 2_000_000
FOLDER = Path(__file__).parent
SIDECAR = [sys.executable, "-m", "trimtab.cli", "sidecar"]
LINES = life.REPORT_LINES
MESSAGE_KEYS = ("role", "content", "tool_calls", "tool_call_id")


def measure(*, quick: bool) -> harness.Report:
    """Run the loops, and return their figures."""
    turns = QUICK_TURNS if quick else TURNS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bare = run_bare(turns)
        plain = plain_cache_read("openai_chat", turns)
        report: dict[str, Any] = {
            "turns": turns,
            "plain_cache_read": round(plain, 3),
            "node": {"bare_calls": bare, **run_loop(NODE, turns, folder / "measured_node")},
        }
        if (agent := build_go_agent(folder)) is None:
            report["go"] = {"skipped": "there is no Go compiler here"}
        else:
            report["go"] = {"bare_calls": bare, **run_loop([agent], turns, folder / "measured_go")}
        if not quick:
            writes = max(
                each.get("writes", 0) for each in report.values() if isinstance(each, dict)
            )
            for fault in FAULTS:
                harness.progress(fault)
                report[fault] = run_broken(fault, turns, folder / fault, writes)
    for figures in (each for each in report.values() if isinstance(each, dict)):
        if "cache_read" in figures:
            figures["cache_read_ratio"] = round(figures["cache_read"] / plain, 3)
    return {**report, "broken": [*_find_faults(report, turns)]}


NODE = ["node", str(FOLDER / "agent.mjs")]
FAULTS = ("killed", "killed_without_store", "store_lost", "disk_full", "late")


def run_bare(turns: int) -> int:
    """Return the calls that the agent survives alone."""
    with _simulate(turns) as simulator:
        return _run(NODE, _set_up(simulator, turns))["calls"]


def run_loop(agent: Sequence[str], turns: int, measured: Path) -> dict[str, Any]:
    """Run an agent, and read the CPU of each fit from this file."""
    command = ["env", f"TRIMTAB_MEASURED={measured}", sys.executable]
    command += [str(FOLDER / "measured_sidecar.py"), "sidecar"]
    with _simulate(turns) as simulator:
        figures = _run(agent, _set_up(simulator, turns, command=command))
        spent = [json.loads(line)["cpu"] for line in measured.read_text().splitlines()]
        figures["cpu_ms"] = round(statistics.median(spent) * 1_000, 2)
        return _study(figures, simulator.list_requests())


def run_broken(fault: str, turns: int, folder: Path, undisturbed_writes: int) -> dict[str, Any]:
    """Run an agent whose sidecar breaks after some calls, and is repaired after some more."""
    store = [] if fault == "killed_without_store" else ["--store", str(folder / "store")]
    more = {"command": [*SIDECAR, *store], "timeout_ms": LATE_MS, "pauses": PAUSES}
    with _simulate(turns) as simulator:
        agent = _start(NODE, _set_up(simulator, turns, **more))
        assert agent.stdin is not None
        assert agent.stdout is not None
        process = int(agent.stdout.readline())
        _break(fault, process, folder)
        agent.stdin.write("go on\n")
        agent.stdin.flush()
        assert int(agent.stdout.readline())
        if fault == "late":
            os.kill(process, signal.SIGCONT)
        report = _study(_end(agent), simulator.list_requests())
    return {**report, "more_writes": report["writes"] - undisturbed_writes}


def build_go_agent(folder: Path) -> str | None:
    """Build the agent in Go. Return its path; None if there is no compiler."""
    if shutil.which("go") is None:
        return None
    target = folder / "agent"
    environ = {**os.environ, "GOCACHE": str(folder / "cache"), "GO111MODULE": "off"}
    command = ["go", "build", "-o", str(target), str(FOLDER / "agent.go")]
    subprocess.run(command, check=True, env=environ)  # noqa: S603 - our own
    return str(target)


@contextmanager
def _simulate(turns: int) -> Generator[RemoteSimulator]:
    with spawn_simulated_provider(window=WINDOW) as simulator:
        simulator.set_replies(life.script(0, turns))
        yield simulator


def _break(fault: str, process: int, folder: Path) -> None:
    if fault == "late":
        os.kill(process, signal.SIGSTOP)
        return
    if fault == "disk_full":
        resource.prlimit(process, resource.RLIMIT_FSIZE, (1, 1))
        return
    os.kill(process, signal.SIGKILL)
    if fault == "store_lost":
        shutil.rmtree(folder / "store")


def _set_up(simulator: RemoteSimulator, turns: int, **more: Any) -> dict[str, Any]:
    return {
        "url": simulator.url,
        "window": WINDOW,
        "turns": turns,
        "lines": LINES,
        "conversation": life.CONVERSATION,
        "system": life.SYSTEM,
        "texts": [life.user_text(turn) for turn in range(turns)],
        "timeout_ms": TIMEOUT_MS,
        **more,
    }


def _run(agent: Sequence[str], setup: Mapping[str, Any]) -> dict[str, Any]:
    return _end(_start(agent, setup))


def _start(agent: Sequence[str], setup: Mapping[str, Any]) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - our own
        [*agent, json.dumps(setup)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _end(agent: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = agent.communicate("go on\n")
    if agent.returncode:
        raise RuntimeError(f"the agent ended with {agent.returncode}: {output[-500:]}")
    return json.loads(output.splitlines()[-1])


def _study(figures: dict[str, Any], records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    answered = [record for record in records if record["fate"] == "answered"]
    bodies = [record["body"] for record in answered]
    recalled = figures.pop("recalled")
    hidden = figures.pop("hidden", recalled)
    number = int(recalled.split()[1].rstrip(":")) if recalled else 0
    return {
        **figures,
        "refused": len(records) - len(answered),
        "unpaired": sum(unpaired(body, "openai_chat") is not None for body in bodies),
        "cache_read": round(_cache_read(answered), 3),
        "writes": sum(not _extends(a, b) for a, b in pairwise(bodies)),
        "read_back": recalled == hidden == life.report(number, LINES),
    }


def _extends(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a request begins with the whole of the one before it."""
    first, second = before["messages"], after["messages"]
    return _plain(first) == _plain(second[: len(first)])


def _plain(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [[message.get(key) for key in MESSAGE_KEYS] for message in messages]


def _find_faults(report: Mapping[str, Any], turns: int) -> Iterator[str]:
    calls = life.CALLS_A_TURN * turns
    for name, figures in report.items():
        if not isinstance(figures, dict) or "skipped" in figures:
            continue
        expected = {"calls": calls, "refused": 0, "unpaired": 0}
        if name not in FAULTS:
            expected |= {"fell_open": 0, "read_back": True}
        elif not figures["gone"]:
            expected["read_back"] = True
        for key, right in expected.items():
            if figures[key] != right:
                yield f"{name}: {key} is {figures[key]}, not {right}"
        if figures.get("more_writes", 0) > 1:
            yield f"{name}: {figures['more_writes']} more writes of the cache"
        if name not in FAULTS and figures["cache_read_ratio"] < LEAST_CACHE_READ_RATIO:
            yield f"{name}: cache_read_ratio is {figures['cache_read_ratio']}"


if __name__ == "__main__":
    sys.exit(harness.run(__doc__, lambda quick: measure(quick=quick)))
