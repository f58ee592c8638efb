"""How long a single request takes in a long conversation: the CPU time of each `Context.request()`.

A request is made in the thread that asks for it, often an event loop. So its longest time matters,
and not only its mean. Each conversation has 2,500 turns under `auto`, for each goal and a window of
200,000 and of 1,000,000 tokens:

plain          a user message of 135 tokens and a reply of 70 tokens in each turn
results_40kb   a call and a result of 40 kB as well, so two requests in each turn

max_ms         milliseconds of CPU of the longest request, by the clock of its thread
p999_ms        of one request in a thousand, those that take longest
over_50ms      requests that took more than 50 ms
collector_ms   of the longest request, the part that Python's garbage collector took

Each conversation is held twice, and the better run counts, because other programs on the machine
also make a request slower. `plain` and `results_40kb` are the worst of their rows. What must hold:
no request of `plain` takes more than 50 ms. `--quick` has fewer turns.
"""

from __future__ import annotations

import gc
import logging
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.harness import Report, progress, run
from trimtab import Context
from trimtab.engine.policy.config import Goal

MODEL = "claude-sonnet-4-5"
GOALS: tuple[Goal, ...] = ("cost", "balanced", "quality")
WINDOWS = (200_000, 1_000_000)
RUNS = 2
"""Of each conversation. The better one counts."""
LONG_MS = 50.0
"""Milliseconds after which an event loop is late for others."""
RESULT_BYTES = 40_000
TOOLS = [
    {
        "name": "read",
        "description": "Read a file.",
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    }
]
TURNS = {"plain": 2_500, "results_40kb": 2_500}
QUICK_TURNS = {"plain": 500, "results_40kb": 50}

Kind = Literal["plain", "results_40kb"]
KINDS: tuple[Kind, ...] = ("plain", "results_40kb")


@dataclass(slots=True)
class Clock:
    """The times of requests, and of the garbage collector during each of them."""

    times_ms: list[float] = field(default_factory=list[float])
    """Of each request."""
    collector_ms: list[float] = field(default_factory=list[float])
    """Of the garbage collector in the same request."""
    _begun: float = 0.0
    _collected: float = 0.0

    def request(self, context: Context) -> None:
        self._collected = 0.0
        begun = time.thread_time()
        context.request()
        self.times_ms.append((time.thread_time() - begun) * 1_000)
        self.collector_ms.append(self._collected * 1_000)

    def hear_collector(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._begun = time.thread_time()
        else:
            self._collected += time.thread_time() - self._begun


def user_text(turn: int) -> str:
    return f"Question {turn} " + "lorem ipsum dolor " * 30


def result_text(turn: int) -> str:
    """Lines of code, 40 kB together."""
    pick = random.Random(turn)  # noqa: S311 - not for secrets
    lines: list[str] = []
    size = 0
    while size < RESULT_BYTES:
        line = f"def part_{pick.randrange(10**6)}(value): return other_{pick.randrange(10**4)}"
        lines.append(line)
        size += len(line) + 1
    return "\n".join(lines)


def replies(kind: Kind, turn: int) -> Iterator[list[dict[str, Any]]]:
    """What follows each request of a turn."""
    if kind == "results_40kb":
        call = {"type": "tool_use", "id": f"toolu_{turn}", "name": "read", "input": {"path": "a"}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{turn}", "content": ""}
        result["content"] = result_text(turn)
        yield [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
    yield [{"role": "assistant", "content": f"Answer {turn} " + "sit amet " * 30}]


def lead(kind: Kind, goal: Goal, window: int, turns: int) -> Clock:
    """A whole conversation."""
    context = Context(MODEL, goal=goal, context_window=window, tools=TOOLS)
    clock = Clock()
    gc.collect()
    gc.callbacks.append(clock.hear_collector)
    try:
        for turn in range(turns):
            context.add({"role": "user", "content": user_text(turn)})
            for messages in replies(kind, turn):
                clock.request(context)
                for message in messages:
                    context.add(message)
    finally:
        gc.callbacks.remove(clock.hear_collector)
    return clock


def measure(kind: Kind, goal: Goal, window: int, turns: int) -> Report:
    """The better of two runs of one conversation."""
    rows = [make_row(lead(kind, goal, window, turns)) for _ in range(RUNS)]
    better = min(rows, key=lambda row: (row["over_50ms"], row["max_ms"]))
    return {"kind": kind, "goal": goal, "window": window, "turns": turns, **better}


def make_row(clock: Clock) -> Report:
    times = sorted(clock.times_ms)
    longest = clock.times_ms.index(times[-1])
    return {
        "requests": len(times),
        "median_ms": round(times[len(times) // 2], 2),
        "p999_ms": round(times[int(0.999 * len(times))], 1),
        "max_ms": round(times[-1], 1),
        "collector_ms": round(clock.collector_ms[longest], 1),
        "over_50ms": sum(each > LONG_MS for each in times),
    }


def worst(rows: list[Report], kind: Kind) -> Report:
    """The worst of each figure over goals and windows."""
    names = ("max_ms", "p999_ms", "over_50ms")
    return {name: max(row[name] for row in rows if row["kind"] == kind) for name in names}


def main(quick: bool) -> Report:
    logging.getLogger("trimtab").setLevel(logging.ERROR)  # a window that fills up is the point
    rows: list[Report] = []
    for kind in KINDS:
        for window in WINDOWS:
            for goal in GOALS:
                turns = (QUICK_TURNS if quick else TURNS)[kind]
                rows.append(measure(kind, goal, window, turns))
                progress(f"{len(rows)} conversations")
    figures = {kind: worst(rows, kind) for kind in KINDS}
    late = figures["plain"]["over_50ms"]
    requests = sum(row["requests"] for row in rows)
    return {
        "sample": f"{len(rows)} conversations, {requests:,} requests in the better of {RUNS} runs",
        **figures,
        "rows": rows,
        "broken": [f"{late} requests of `plain` take more than {LONG_MS:.0f} ms"] if late else [],
    }


if __name__ == "__main__":
    sys.exit(run(__doc__, main))
