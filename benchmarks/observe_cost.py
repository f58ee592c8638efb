"""What it costs a turn to be watched.

    python -m benchmarks.observe_cost [--quick] [--json]

Turns run with a scripted provider and a store in memory, so that nothing is waited for: each asks
the model twice, runs two tools side by side, and streams its reply. What such a turn has told
is kept and told again, many times, to those who watch: so their share is not lost in the noise of
the turn. The fastest of several rounds counts, in microseconds of CPU for one turn.

nobody        the turn itself, and nobody listens
unwatched     what `when_watched` takes to find that nobody watches, as in a terminal
metrics       Prometheus' metrics are kept
spans         OpenTelemetry's SDK makes the spans and drops them
lines         a log line for each call, tool and turn, formatted and thrown away
all           the three together

share         of what the turn takes by itself; a model takes seconds on top of both

`all` must be `MOST_SHARE` of the turn at most, and `unwatched` `MOST_UNWATCHED` of it.
"""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider

from benchmarks.harness import Report, progress, run
from trimtab.observe import instrument
from trimtab.observe.instrument import EventFanOut
from trimtab.observe.log_lines import TurnEventLogger
from trimtab.observe.otel import TurnSpans, create_instruments
from trimtab.session import Session
from trimtab.session.events import TurnEvent
from trimtab.session.tools import OnEvent, Tool, ToolInvocation
from trimtab.session.turn import run_turn
from trimtab.testing import MemoryStore, ScriptedCall, ScriptedProvider

TURNS = {"full": 100, "quick": 40}
"""Of one session, in one round."""
AGAIN = {"full": 1_000, "quick": 300}
"""Times that what a turn tells is told again, in one round."""
ROUNDS = {"full": 15, "quick": 5}
MOST_SHARE = 0.35
MOST_UNWATCHED = 0.01


def nobody(_: TurnEvent) -> None:
    pass


def watchers() -> dict[str, Callable[[], OnEvent]]:
    """By name, what hears one turn."""
    # Metrics are on from here: nothing may be unwatched behind it.
    from trimtab_serve.metrics.prometheus import TurnMetrics

    to = create_instruments(TracerProvider(), MeterProvider())
    return {
        "metrics": lambda: EventFanOut([TurnMetrics("helper")], nobody),
        "spans": lambda: EventFanOut([TurnSpans(to, "helper")], nobody),
        "lines": lambda: EventFanOut([TurnEventLogger("helper")], nobody),
        "all": lambda: EventFanOut(
            [TurnMetrics("helper"), TurnSpans(to, "helper"), TurnEventLogger("helper")], nobody
        ),
    }


async def gives(_: ToolInvocation) -> str:
    return "a result of a few words"


def tool(name: str) -> Tool:
    return Tool(definition={"name": name, "input_schema": {"type": "object"}}, run=gives)


async def turns(count: int) -> tuple[float, list[TurnEvent]]:
    """Microseconds of CPU for one turn, on average; and what the last of them has told."""
    session = await Session.create(MemoryStore(), "s", model="claude-sonnet-4-5", policy="rolling")
    tools = [tool("read"), tool("find")]
    calls = [ScriptedCall(name="read"), ScriptedCall(name="find")]
    provider = ScriptedProvider("anthropic", [calls, "word " * 60] * (count + 1))

    async def turn(number: int, tell: OnEvent) -> None:
        says = {"role": "user", "content": f"Question {number}, of which there are many."}
        await run_turn(session, provider, tools, message=says, on_event=tell)

    begun = time.process_time()
    for number in range(count):
        await turn(number, nobody)
    took = (time.process_time() - begun) / count * 1e6
    told: list[TurnEvent] = []
    await turn(count, told.append)
    return took, told


def hearing(told: Sequence[TurnEvent], listening: Callable[[], OnEvent], count: int) -> float:
    """Microseconds of CPU for hearing one turn, on average."""
    begun = time.process_time()
    for _ in range(count):
        tell = listening()
        for happening in told:
            tell(happening)
    return (time.process_time() - begun) / count * 1e6


def main(quick: bool) -> Report:
    size = "quick" if quick else "full"
    assert instrument(nobody) is nobody, "somebody watches already"
    rounds = range(ROUNDS[size])
    runs = [asyncio.run(turns(TURNS[size])) for _ in rounds]
    bare, told = min(took for took, _ in runs), runs[0][1]
    quiet = hearing(told, lambda: nobody, AGAIN[size])
    found = {"unwatched": min(unwatched(AGAIN[size]) for _ in rounds)}
    with logged():
        for name, listening in watchers().items():
            progress(name)
            heard = min(hearing(told, listening, AGAIN[size]) for _ in rounds)
            found[name] = heard - quiet
    rows: list[Report] = [{"watched by": "nobody", "cpu_us": round(bare), "share": 0.0}]
    for name, added in found.items():
        rows.append(
            {"watched by": name, "cpu_us": round(added, 1), "share": round(added / bare, 4)}
        )
    broken: list[str] = []
    if found["all"] > MOST_SHARE * bare:
        broken.append(f"to be watched takes {found['all'] / bare:.1%} of a turn; {MOST_SHARE:.0%}")
    if found["unwatched"] > MOST_UNWATCHED * bare:
        broken.append(f"a turn that nobody watches takes {found['unwatched']:.0f} µs more")
    return {
        "sample": f"{len(told)} happenings a turn, the fastest of {ROUNDS[size]} rounds",
        "rows": rows,
        "broken": broken,
    }


def unwatched(count: int) -> float:
    begun = time.process_time()
    for _ in range(count):
        instrument(nobody, agent="helper")
    return (time.process_time() - begun) / count * 1e6


@contextmanager
def logged() -> Generator[None]:
    """Log lines are formatted and go nowhere."""
    logger, handler = logging.getLogger("trimtab.calls"), logging.StreamHandler(io.StringIO())
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    logger.addHandler(handler)
    logger.propagate = False
    before = logger.level
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        logger.propagate = True


if __name__ == "__main__":
    sys.exit(run(__doc__, main, ("prometheus-client", "opentelemetry-sdk")))
