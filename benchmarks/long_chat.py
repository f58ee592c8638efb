"""A long conversation with tools through `run_turn`, in a 16k window that a strict server enforces.

Each of the three dialects, six presets, with streaming and without: 300 turns and 1,500 tool calls
over the official SDK and a socket, the session in files or in PostgreSQL. Streamed conversations
are with models that have rules of their own: signed thinking, encrypted reasoning, breakpoints.
Every 25 turns the session is opened anew, as after a restart, and each request that the server
received is rebuilt from the store and compared with it.

Then the same again with a server that counts 30 % and 60 % more than our uncalibrated estimate;
there the first message fills what the uncalibrated bound leaves free, so that the first request is
as large as any that we would send.

refused              requests that the server refused
violations           of those, refused for anything else than length
replay_mismatches    requests whose rebuilt body is not, as canonical JSON, the body received
unanswered           turns that did not end with a reply
refused_after_first  refusals by the heavier server beyond the first one of a conversation

All must be 0, but for `refused` by the heavier server. `first_refused` is how many conversations
with it began with a refusal; `cached` the share of the input read from the server's cache.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import simulated
from benchmarks.harness import Report, finish, head, parser, progress, table
from benchmarks.simulated import DIALECTS, WINDOW
from benchmarks.store_places import STORES, Files, Place, Postgres, no_server, place
from trimtab.engine.log.event import Usage, dump_canonical_json
from trimtab.engine.policy.presets import POLICY_NAMES, PolicyName
from trimtab.engine.prompt.report import compute_cost_usd
from trimtab.errors import CannotFit, ProviderError
from trimtab.providers.base import Provider
from trimtab.session import Session
from trimtab.session.events import ModelCallRetried, ToolFinished, TurnEvent
from trimtab.session.turn import run_turn
from trimtab.stores.postgres.migrations import migrate
from trimtab.testing.server import ProviderSimulator, ServedSimulator, serve_simulated_provider

TURNS = {"full": 300, "quick": 12}
RESTART_EVERY = {"full": 25, "quick": 6}
HEAVIER = (1.0, 1.3, 1.6)
ZERO = ("violations", "replay_mismatches", "unanswered", "refused_after_first")
PACKAGES = ("anthropic", "openai", "httpx2", "psycopg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    dialect: str
    preset: PolicyName
    stream: bool
    store: str
    heavier: float
    """What the server counts, as a multiple of its usual count."""
    turns: int
    restart_every: int

    @property
    def name(self) -> str:
        stream = "stream" if self.stream else "whole"
        return f"{self.dialect}-{self.preset}-{stream}-{self.store}-{self.heavier:g}"

    @property
    def recall(self) -> bool:
        """Whether the model has the recall tools: in every second preset."""
        return sorted(POLICY_NAMES).index(self.preset) % 2 == 0


def cases(*, quick: bool) -> list[Case]:
    """All combinations; quick ones are chosen so that each value meets each dialect."""
    size = "quick" if quick else "full"
    sized = {"turns": TURNS[size], "restart_every": RESTART_EVERY[size]}
    found: list[Case] = []
    for number, (heavier, dialect, preset, stream) in enumerate(
        product(HEAVIER, DIALECTS, sorted(POLICY_NAMES), (True, False))
    ):
        # Six presets and two ways: shifted by one each, so that no value is always with one store.
        turn = number // 2 + number // 12 + stream
        case = Case(
            dialect=dialect,
            preset=preset,
            stream=stream,
            store=STORES[turn % 2],
            heavier=heavier,
            **sized,
        )
        if not quick or _sampled(case):
            found.append(case)
    return found


def _sampled(case: Case) -> bool:
    preset, dialect = sorted(POLICY_NAMES).index(case.preset), DIALECTS.index(case.dialect)
    if case.stream != (preset % 2 == 0):
        return False
    return preset % 3 == dialect if case.heavier == 1.0 else (preset + dialect) % 3 == 2


@dataclass(slots=True)
class Run:
    """One conversation, and what was found in it."""

    case: Case
    served: ServedSimulator
    where: Place
    provider: Provider
    found: Counter[str] = field(default_factory=Counter[str])
    used: Usage = field(default_factory=lambda: Usage(input=0))
    cost: float = 0.0
    checked: int = 0
    """The position up to which calls were compared."""
    seconds: float = 0.0
    """Of turns alone."""

    @property
    def simulator(self) -> ProviderSimulator:
        return self.served.simulator

    async def lead(self) -> None:
        case = self.case
        store = await self.where.open(hasty=True)
        session = await simulated.create(
            store,
            case.name,
            case.dialect,
            policy=case.preset,
            special=case.stream,
            recall=case.recall,
        )
        for number in range(case.turns):
            await self._turn(session, number)
            if (number + 1) % case.restart_every == 0 or number + 1 == case.turns:
                session = await self._restarted(session)
                await self._compare(session)
        self.used = session.window.accounting.total_usage
        self.cost = compute_cost_usd(self.used, session.window.settings.entry) or 0.0
        await session.close()
        await session.store.close()

    async def _turn(self, session: Session, number: int) -> None:
        text = simulated.user_text(number)
        if number == 0 and self.case.heavier > 1:
            text += await simulated.largest_text(session)
        self.simulator.script.set_replies(simulated.steps_of(number, recall=self.case.recall))
        before, begun = self.simulator.stats()["refused"], time.monotonic()
        says = {"role": "user", "content": text}
        try:
            ended = await run_turn(
                session,
                self.provider,
                simulated.TOOLS,
                message=says,
                key=f"in-{number}",
                on_event=self._hear,
                stream=self.case.stream,
            )
            self.found["unanswered"] += ended.reason != "done"
        except (ProviderError, CannotFit) as error:
            self.found["unanswered"] += 1
            print(f"{self.case.name}, turn {number}: {error!r}", file=sys.stderr)
        self.seconds += time.monotonic() - begun
        self.found["turns"] += 1
        self._tell_refusals(number, self.simulator.stats()["refused"] - before)

    def _hear(self, happening: TurnEvent) -> None:
        self.found["tool_calls"] += isinstance(happening, ToolFinished)
        self.found["recoveries"] += isinstance(happening, ModelCallRetried)

    def _tell_refusals(self, number: int, refused: int) -> None:
        first = self.case.heavier > 1 and not self.found["refused"] and refused > 0
        self.found["first_refused"] += first
        if self.case.heavier > 1:
            self.found["refused_after_first"] += refused - first
        self.found["refused"] += refused
        if refused > first:
            bad = [
                r for r in self.simulator.records.requests if r.fate in ("overflow", "violation")
            ]
            for record in bad[-refused:]:
                print(f"{self.case.name}, turn {number}: {record.message}", file=sys.stderr)

    async def _restarted(self, session: Session) -> Session:
        await session.close()
        await session.store.close()
        return await Session.open(await self.where.open(hasty=True), self.case.name)

    async def _compare(self, session: Session) -> None:
        """What was received since the last time, with what the store says was sent."""
        span = (self.checked + 1, None)
        events = [event async for event in session.store.events(session.id, [span])]
        positions = list(simulated.calls_in(events))
        records = self.simulator.records.requests
        wrong = abs(len(positions) - len(records))
        for position, record in zip(positions, records, strict=False):
            sent = await session.rebuild_request(position)
            wrong += dump_canonical_json(sent) != dump_canonical_json(record.body)
        self.found["replay_mismatches"] += wrong
        self.found["calls"] += len(records)
        stats = self.simulator.stats()
        self.found["violations"] += stats["violations"]
        self.simulator.records.clear()
        self.checked = events[-1].seq if events else self.checked

    def row(self) -> Report:
        case, found = self.case, self.found
        names = ("turns", "tool_calls", "calls", "refused", *ZERO, "first_refused", "recoveries")
        return {
            "dialect": case.dialect,
            "preset": case.preset,
            "stream": case.stream,
            "store": case.store,
            "heavier": case.heavier,
            **{name: found[name] for name in names},
            "input": self.used.input,
            "output": self.used.output,
            "cache_read": self.used.cache_read,
            "cache_write": self.used.cache_write,
            "cached": round(self.used.cache_read / max(1, self.used.input), 3),
            "dollars": round(self.cost, 4),
            "turn_ms": round(self.seconds / case.turns * 1_000, 1),
        }


def run_case(case: Case, conninfo: str | None) -> Report:
    """One conversation with a server of its own, in this process."""
    logging.getLogger("trimtab").setLevel(logging.ERROR)  # a window that fills up is the point
    options: dict[str, Any] = {"window": WINDOW, "seed": "s"}
    if case.heavier > 1:
        own = {"tokenizer": "estimate", "heavier": case.heavier, "stops_at_window": False}
        options.update(own)
    with (
        tempfile.TemporaryDirectory(prefix="trimtab-") as folder,
        serve_simulated_provider(**options) as served,
    ):
        where = Files(Path(folder)) if case.store == "files" else Postgres(str(conninfo))
        return asyncio.run(_led(case, served, where))


async def _led(case: Case, served: ServedSimulator, where: Place) -> Report:
    provider = simulated.provider_of(case.dialect, served)
    run = Run(case, served, where, provider)
    try:
        await run.lead()
    finally:
        await provider.close()
    return run.row()


def run_all(chosen: Iterable[Case], jobs: int, conninfo: str | None) -> list[Report]:
    rows: list[Report] = []
    # Spawned: a fork would take the threads' locks along.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        waiting = [pool.submit(run_case, case, conninfo) for case in chosen]
        for done in as_completed(waiting):
            rows.append(done.result())
            progress(f"{len(rows)} of {len(waiting)} conversations")
            if jobs and not sys.stderr.isatty():
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return sorted(rows, key=_order)


def _order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (row["heavier"], row["dialect"], row["preset"], not row["stream"])


def main(asked: argparse.Namespace) -> Report:
    missing = no_server()
    chosen = [
        case
        for case in cases(quick=asked.quick)
        if (missing is None or case.store == "files")
        and case.dialect in (asked.dialect or DIALECTS)
        and case.preset in (asked.preset or POLICY_NAMES)
        and case.heavier in (asked.heavier or HEAVIER)
    ]
    if missing is None:
        with place("postgres") as where:
            assert isinstance(where, Postgres)
            asyncio.run(migrate(where.conninfo))
            rows = run_all(chosen, asked.jobs, where.conninfo)
    else:
        rows = run_all(chosen, asked.jobs, None)
    return {"sample": _sample(rows, missing), "rows": rows, **figures(rows)}


def _sample(rows: list[Report], missing: str | None) -> str:
    turns, tools, calls = (sum(r[name] for r in rows) for name in ("turns", "tool_calls", "calls"))
    without = f"; without PostgreSQL: {missing}" if missing else ""
    return (
        f"{len(rows)} conversations, {turns:,} turns, {tools:,} tool calls, {calls:,} requests"
        + without
    )


def figures(rows: list[Report]) -> Report:
    usual = [row for row in rows if row["heavier"] == 1.0]
    total = {name: sum(row[name] for row in rows) for name in ZERO}
    total = {"refused": sum(row["refused"] for row in usual), **total}
    shares = {
        f"cached_{preset}": _cached([row for row in usual if row["preset"] == preset])
        for preset in sorted({row["preset"] for row in usual})
    }
    return {
        **total,
        "first_refused": sum(row["first_refused"] for row in rows),
        **shares,
        "broken": [f"{name} is {value}" for name, value in total.items() if value],
    }


def _cached(rows: list[Report]) -> float:
    return round(sum(r["cache_read"] for r in rows) / max(1, sum(r["input"] for r in rows)), 3)


def show(report: Report) -> None:
    columns = ("dialect", "preset", "stream", "store", "heavier", "calls", "refused")
    columns += (*ZERO, "first_refused", "input", "cached", "dollars", "turn_ms")
    rows = [[_shown(row[name]) for name in columns] for row in report["rows"]]
    print(f"\n{table(columns, rows)}\n")
    for name, value in report.items():
        if name not in ("command", "versions", "sample", "rows", "broken"):
            print(f"{name}: {value}")


def _shown(value: Any) -> Any:
    return ("on" if value else "off") if isinstance(value, bool) else value


def start() -> int:
    options = parser(__doc__)
    options.add_argument("--jobs", type=int, default=2, help="conversations at a time")
    options.add_argument("--dialect", choices=DIALECTS, action="append")
    options.add_argument("--preset", choices=sorted(POLICY_NAMES), action="append")
    options.add_argument("--heavier", type=float, choices=HEAVIER, action="append")
    asked = options.parse_args()
    return finish({**head(PACKAGES), **main(asked)}, show, as_json=asked.json)


if __name__ == "__main__":
    sys.exit(start())
