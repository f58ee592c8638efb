"""What becomes of a turn whose process is ended with SIGKILL, and of whoever takes it up again.

A process runs a turn with tools against the simulator, which is a process of its own, through the
official SDKs; its tools write their key to a file, as something that must not happen twice. At a
point it tells over a pipe that it is there, waits, and is killed. Then a fresh process opens the
session, runs the same turn to its end and one more behind it.

tool      in the middle of a tool call, others at its side: before its effect, or behind it
stream    in the middle of a stream, behind a random piece of it
reply     the reply is there: before it is put into the store, or behind that

invalid       requests that the simulator refused as no valid history, and sessions whose next
              request `trimtab.check` finds fault with
asked_again   requests for a reply that had been recorded
tools_twice   tools that do not say `rerun` and ran twice, and calls that were handed two keys
said_twice    what the user said, or the model, that is there twice or not at all
stuck         sessions that did not come to the end of their turn

All must be 0. One of the two tools says `rerun`, which may run again under the same key.
"""

from __future__ import annotations

import asyncio
import functools
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from benchmarks.harness import Report, progress, run
from benchmarks.store_places import STORES, Place, Postgres, no_server, place
from tests.soak.crash.writer import Process, Tell
from trimtab import check
from trimtab.engine.log.event import Event, MessageAdded
from trimtab.providers.anthropic import AnthropicProvider
from trimtab.providers.base import Provider
from trimtab.providers.openai import OpenAIChatProvider
from trimtab.session import Session
from trimtab.session.events import TextDelta, TurnEvent
from trimtab.session.tools import Tool, ToolInvocation
from trimtab.session.turn import run_turn
from trimtab.stores.base import Store
from trimtab.stores.postgres.migrations import migrate
from trimtab.testing import MemoryStore
from trimtab.testing.server import RemoteSimulator, spawn_simulated_provider
from trimtab.types import DialectName

SEED = 5
POINTS = ("tool", "stream", "reply")
FIGURES = ("invalid", "asked_again", "tools_twice", "said_twice", "stuck")
MODELS = {"anthropic": "claude-sonnet-4-6", "openai_chat": "gpt-4o"}
PATIENCE = 60.0
"""Seconds after which a process that should have told something is stuck."""
SCRIPT = [{"calls": 3, "text": 40}, {"calls": 2, "text": 40}, {"text": 60}]
REPLIES = len(SCRIPT)
SAYS = {"role": "user", "content": "Do what must be done once."}
THEN = {"role": "user", "content": "And now?"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One process to be killed."""

    name: str
    """The session's, and the API key, by which the simulator tells requests apart."""
    point: str
    """Where it is killed."""
    number: int
    """At the how manieth piece, tool or reply of the turn, from 1."""
    behind: bool
    """Whether behind the effect, or the append, and not before it."""
    dialect: DialectName
    where: Place
    effects: Path
    """What the tools have done: a line each."""
    url: str
    """Of the simulator."""

    def provider(self) -> Provider:
        if self.dialect == "anthropic":
            return AnthropicProvider(api_key=self.name, base_url=self.url)
        return OpenAIChatProvider(api_key=self.name, base_url=f"{self.url}/v1")


class Here:
    """Tells that the point is reached and waits for the end; nothing where there is none."""

    def __init__(self, case: Case | None, tell: Tell) -> None:
        self._case = case
        self._tell = tell
        self._left = case.number if case is not None else 0

    def reached(self, point: str, *, behind: bool) -> None:
        case = self._case
        if case is None or case.point != point or case.behind != behind:
            return
        self._left -= 1
        if self._left == 0:
            self._tell({"at": point})
            while True:
                signal.pause()

    def heard(self, happening: TurnEvent) -> None:
        if isinstance(happening, TextDelta):
            self.reached("stream", behind=False)


class Watched:
    """A store that says when a reply goes into it."""

    def __init__(self, store: Store, here: Here) -> None:
        self._store = store
        self._here = here

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(
        self, session: str, events: Sequence[Event], *, epoch: int | None = None
    ) -> None:
        reply = any(is_reply(event) for event in events)
        if reply:
            self._here.reached("reply", behind=False)
        await self._store.append(session, events, epoch=epoch)
        if reply:
            self._here.reached("reply", behind=True)


def is_reply(event: Event) -> bool:
    return isinstance(event.body, MessageAdded) and event.body.message.role == "assistant"


def tools_of(case: Case, here: Here) -> list[Tool]:
    async def act(asked: ToolInvocation) -> str:
        here.reached("tool", behind=False)
        with case.effects.open("a") as file:
            file.write(f"{asked.name} {asked.key}\n")
            file.flush()
            os.fsync(file.fileno())
        here.reached("tool", behind=True)
        await asyncio.sleep(0)  # the others of its round come first
        return f"done by {asked.key}"

    def definition(name: str) -> dict[str, Any]:
        return {"name": name, "description": "Acts.", "input_schema": {"type": "object"}}

    return [
        Tool(definition=definition("once"), run=act),
        Tool(definition=definition("again"), run=act, on_interrupt="rerun"),
    ]


async def create_session(store: Store, case: Case) -> Session:
    """Create a session whose model has the two tools alone, and calls each of them."""
    model = MODELS[case.dialect]
    return await Session.create(store, case.name, model=model, dialect=case.dialect, recall=False)


async def warm_up(case: Case) -> None:
    """What the SDKs import and build at their first call, done once for all forked processes."""
    provider = case.provider()
    session = await create_session(MemoryStore(), case)
    await run_turn(session, provider, tools_of(case, Here(None, print)), message=SAYS)
    await provider.close()


async def begin(case: Case, tell: Tell) -> None:
    """The turn that is killed."""
    here = Here(case, tell)
    store = cast("Store", Watched(await case.where.open(hasty=True), here))
    session = await create_session(store, case)
    tools = tools_of(case, here)
    await run_turn(session, case.provider(), tools, message=SAYS, key="u1", on_event=here.heard)


async def go_on(case: Case, tell: Tell) -> None:
    """The same turn in another process, and one more."""
    store = await case.where.open(hasty=True)
    session = await Session.open(store, case.name)
    tools, provider = tools_of(case, Here(None, tell)), case.provider()
    first = await run_turn(session, provider, tools, message=SAYS, key="u1")
    second = await run_turn(session, provider, tools, message=THEN, key="u2")
    await session.add({"role": "user", "content": "Well?"})
    found = check(await session.request(), dialect_name=case.dialect)
    said = [
        (body.message.role, body.reply_id, body.key)
        async for body in (event.body async for event in store.events(case.name))
        if isinstance(body, MessageAdded)
    ]
    tell({"ended": [first.reason, second.reason], "found": found, "said": said})
    await store.close()


def killed(case: Case, remote: RemoteSimulator) -> Counter[str]:
    """One process killed and its turn taken up again; what was found."""
    remote.set_replies(SCRIPT, key=case.name, otherwise="Done.")
    child = Process(functools.partial(begin, case))
    reached = next(child.hear(PATIENCE), None)
    child.kill()
    child.end()
    if reached is None:
        return Counter(missed=1)
    heir = Process(functools.partial(go_on, case))
    told = next(heir.hear(PATIENCE), None)
    heir.kill()
    with suppress(RuntimeError):  # it failed, and has said why
        heir.end()
    if told is None:
        return Counter(kills=1, stuck=1)
    return Counter(kills=1) + judged(case, remote, told)


def judged(case: Case, remote: RemoteSimulator, told: dict[str, Any]) -> Counter[str]:
    received = remote.call_control("GET", f"requests?key={case.name}")
    out = Counter[str]()
    out["invalid"] += sum(each["fate"] == "violation" for each in received) + bool(told["found"])
    out["stuck"] += told["ended"] != ["done", "done"]
    replies = [reply_id for role, reply_id, _ in told["said"] if role == "assistant"]
    keys = [key for _, _, key in told["said"] if key is not None]
    out["said_twice"] += keys != ["u1", "u2"] or len(set(replies)) != len(replies)
    out["asked_again"] += asked_again(received, replies)
    out["tools_twice"] += twice(case.effects.read_text() if case.effects.exists() else "")
    return out


def asked_again(received: Sequence[dict[str, Any]], replies: Sequence[str]) -> int:
    """Of the requests for one and the same reply, only the last can be the one it came from."""
    by_place: dict[int, list[str]] = {}
    for each in received:
        before = sum(message["role"] == "assistant" for message in each["body"]["messages"])
        by_place.setdefault(before, []).append((each["reply"] or {}).get("id", ""))
    wrong = 0
    for before, ids in by_place.items():
        recorded = replies[before] if before < len(replies) else None
        wrong += sum(reply == recorded for reply in ids[:-1])
    return wrong


def twice(effects: str) -> int:
    """Effects that are there twice, but for those that may be; and calls with more than one key."""
    lines = effects.splitlines()
    repeated = sum(n - 1 for line, n in Counter(lines).items() if line.startswith("once "))
    keys = {line.split(" ", 1)[1] for line in lines}
    calls = Counter(key.split("/", 2)[2] for key in keys)
    return repeated + sum(n - 1 for n in calls.values())


def cases(store: str, count: int, pick: random.Random, made: Callable[..., Case]) -> list[Case]:
    out: list[Case] = []
    for point in POINTS:
        for number in range(count):
            last = {"tool": 5, "stream": 20, "reply": REPLIES}[point]
            out.append(
                made(
                    name=f"{store}-{point}-{number}",
                    point=point,
                    number=pick.randint(1, last),
                    behind=point != "stream" and number % 2 == 1,
                    dialect=tuple(MODELS)[number // 2 % 2],
                )
            )
    return out


def main(quick: bool) -> Report:
    pick = random.Random(SEED)  # noqa: S311 - not for secrets
    rows: list[Report] = []
    total = Counter[str]()
    with spawn_simulated_provider() as remote:
        for store in STORES:
            if store == "postgres" and (missing := no_server()):
                rows.append({"store": store, "point": missing})
                continue
            for point, found in on_store(store, 5 if quick else 50, pick, remote).items():
                total.update(found)
                figures = {name: found[name] for name in FIGURES}
                rows.append({"store": store, "point": point, "kills": found["kills"], **figures})
    figures = {name: total[name] for name in (*FIGURES, "missed")}
    return {
        "sample": f"{total['kills']} kills, seed {SEED}",
        "rows": rows,
        **figures,
        "broken": [f"{name} is {value}" for name, value in figures.items() if value],
    }


def on_store(
    store: str, count: int, pick: random.Random, remote: RemoteSimulator
) -> dict[str, Counter[str]]:
    """So many kills at each point."""
    by_point = {point: Counter[str]() for point in POINTS}
    with place(store) as where, tempfile.TemporaryDirectory(prefix="trimtab-") as folder:
        if isinstance(where, Postgres):
            asyncio.run(migrate(where.conninfo))
        made = functools.partial(_case, where=where, folder=Path(folder), url=remote.url)
        for dialect in MODELS:
            name = f"{store}-{dialect}"
            idle = made(name=name, point="", number=0, behind=False, dialect=dialect)
            asyncio.run(warm_up(idle))
        for case in cases(store, count, pick, made):
            progress(f"{case.name} at {case.number}")
            found = killed(case, remote)
            if bad := {name: found[name] for name in (*FIGURES, "missed") if found[name]}:
                print(f"{case}: {bad}", file=sys.stderr)
            by_point[case.point].update(found)
    return by_point


def _case(*, folder: Path, **own: Any) -> Case:
    return Case(effects=folder / own["name"], **own)


if __name__ == "__main__":
    sys.exit(run(__doc__, main, ("anthropic", "openai", "psycopg")))
