"""Real agents with Trimtab: `python -m benchmarks.doors --json`.

Each agent reads files until its window is full and far beyond, against a strict simulated model.
`bare_calls` is how many calls it survives alone. With Trimtab: `calls`, `refused`, `unpaired`,
`fell_open` (requests that passed as they were), the share of input from the cache beside that of a
plain `Context` in the same life, and the CPU of a call beside `json.loads` of its body.

Install the agents first: `python -m benchmarks.doors.installed`. What is missing is named and left
out. `--quick` runs shorter lives, and none without Trimtab.
"""

from __future__ import annotations

import importlib
import importlib.util
import statistics
import sys
from typing import Any

from benchmarks import harness
from benchmarks.doors.agents import AGENTS, Agent, Run
from benchmarks.doors.installed import HERMES, NPM_PACKAGES
from benchmarks.doors.life import Life, is_read_back, study
from benchmarks.doors.plain_context import read_cache_share
from benchmarks.frameworks.environments import Absent

OTHERS = ("claude_hook", "loops", "fuzz")
"""Other modules of this folder, each with a function `measure`."""
FILES, QUICK_FILES = 40, 20
ENDLESS = 2_000_000
CACHE_SHARE_LOST = 0.05
"""How much less of the input than with a plain `Context` may come from the cache."""


def measure_agent(agent: Agent, *, quick: bool) -> dict[str, Any]:
    """The figures of one agent."""
    try:
        agent.find()
    except Absent as absent:
        return {"skipped": str(absent)}
    life = Life(files=QUICK_FILES if quick else FILES, window=agent.window, recalls=True)
    run = agent.run(life, with_trimtab=True)
    figures = {**study(run.recorded.requests), **_study_fits(run)}
    figures["read_back"] = bool(run.recorded.handle) and is_read_back(run.recorded.requests)
    figures["last_line"] = find_last_line(run.output)
    if not quick:
        bare = Life(files=life.files, window=agent.window)
        survived = study(agent.run(bare, with_trimtab=False).recorded.requests)
        figures["bare_calls"] = survived["calls"]
        whole = Life(files=life.files, window=ENDLESS)
        requests = agent.run(whole, with_trimtab=False).recorded.requests
        plain = read_cache_share(requests, dialect=agent.dialect, window=agent.window)
        figures["plain_cache_read"] = plain
    return {**figures, "broken": [*_find_faults(figures, life)]}


def find_last_line(output: str) -> str:
    """What the user reads at the end."""
    lines = [line.strip() for line in output.splitlines()]
    return next((line for line in reversed(lines) if line.startswith("trimtab: ")), "")


def _study_fits(run: Run) -> dict[str, Any]:
    managed = [each for each in run.measured if each["managed"] and not each.get("fault")]
    cpu = [each["cpu"] * 1_000 for each in managed]
    loads = [each["loads"] * 1_000 for each in managed]
    return {
        "fell_open": len(run.recorded.requests) - len(managed),
        "cpu_ms": round(statistics.median(cpu), 2) if cpu else None,
        "json_loads_ms": round(statistics.median(loads), 2) if loads else None,
    }


def _find_faults(figures: dict[str, Any], life: Life) -> list[str]:
    faults = [
        f"{name} is {figures[name]}, not 0"
        for name in ("refused", "unpaired", "fell_open")
        if figures[name]
    ]
    if figures["calls"] < life.files + 2:
        faults.append(f"the agent ended after {figures['calls']} calls")
    if not figures["read_back"]:
        faults.append("a hidden result was not read back byte for byte")
    if "all readable" not in figures["last_line"]:
        faults.append(f"the last line is {figures['last_line']!r}")
    plain = figures.get("plain_cache_read")
    if plain is not None and figures["cache_read"] < plain - CACHE_SHARE_LOST:
        faults.append(f"cache_read is {figures['cache_read']}, with a plain Context {plain}")
    return faults


def main() -> int:
    asked = harness.parser(__doc__).parse_args()
    report: dict[str, Any] = harness.head()
    report["versions"] |= {"hermes-agent": HERMES, **NPM_PACKAGES}
    for agent in AGENTS:
        report[agent.name] = measure_agent(agent, quick=asked.quick)
    for name in OTHERS:
        full_name = f"benchmarks.doors.{name}"
        if importlib.util.find_spec(full_name) is not None:
            module: Any = importlib.import_module(full_name)
            report[name] = module.measure(quick=asked.quick)
    report["broken"] = [
        f"{name}: {fault}"
        for name, figures in report.items()
        if isinstance(figures, dict)
        for fault in figures.get("broken", ())
    ]
    return harness.finish(report, as_json=asked.json)


if __name__ == "__main__":
    sys.exit(main())
