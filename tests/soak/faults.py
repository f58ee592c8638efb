"""What a conversation has lost after its provider failed, in every known way and at any moment.

A session is led through turns with tools over the official SDK and a socket, and the simulated
provider fails at random points: with each wording of an overflow that it knows, with each error
that is none, and with histories it calls malformed; as the body of a response, in the middle of a
stream, as a stop reason, by a connection that breaks, and by cutting a request in silence. An
overflow that names a limit keeps to it: what is larger is refused again, until the end. A turn that
ends in an error is made again with the same message and key, every second time by a session that
was opened anew.

lost               user messages, replies that came whole and results of tools that are not in the
                   log at their place
sent_twice         user messages that are twice in the log or in a request, replies or results that
                   are twice in the log, tools that ran twice for one call
wrongly_compacted  requests after an error that is no overflow that are not, byte for byte, the
                   request before; where the provider rejected content, that do not begin with what
                   that request shares with the last that it accepted
unanswered         turns that had no reply although the provider had stopped failing
impatient          waits that were shorter than the provider had asked for

All must be 0. Nothing is slept: how long it would have been is told.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile
from typing import Any, cast

from benchmarks import simulated
from benchmarks.harness import Report, finish, head, parser, progress
from benchmarks.simulated import DIALECTS, WINDOW
from benchmarks.store_places import Place, Postgres, no_server, place
from tests.soak.troubles import Deck, Planned, Trouble, troubles
from trimtab.engine.log.event import MessageAdded
from trimtab.engine.policy.presets import POLICY_NAMES
from trimtab.errors import CannotFit, ProviderError
from trimtab.providers.base import Provider
from trimtab.providers.retries import with_retries
from trimtab.session import Session
from trimtab.session.events import AssistantReplied, ToolFinished, TurnEvent, UserNotice
from trimtab.session.tools import ToolInvocation
from trimtab.session.turn import run_turn
from trimtab.stores.postgres.migrations import migrate
from trimtab.testing.server import (
    PROVIDER_FAULTS,
    RecordedRequest,
    ServedSimulator,
    serve_simulated_provider,
)
from trimtab.testing.server.script import parse_script_steps

SEEDS = (1, 2, 3)
TURNS = 5
ZERO = ("lost", "sent_twice", "wrongly_compacted", "unanswered", "impatient")
QUICK = 30
"""Conversations of a quick run."""
TRIES = 60
"""Times that a turn is begun at most: more than all of its troubles together can spoil."""
PACKAGES = ("anthropic", "openai", "httpx2", "psycopg")


Item = tuple[str, str]
"""What is in the log: of whom, and what tells it from all others."""


@dataclass(slots=True)
class Conversation:
    """One session, its provider and the troubles it has."""

    name: str
    dialect: str
    policy: str
    stream: bool
    served: ServedSimulator
    where: Place
    planned: list[Planned]
    pick: random.Random
    found: Counter[str] = field(default_factory=Counter[str])
    journal: list[Item] = field(default_factory=list[Item])
    """What is known to have happened, in order."""
    runs: Counter[str] = field(default_factory=Counter[str])
    """How often a tool ran for each call."""
    deck: Deck = field(init=False)

    def __post_init__(self) -> None:
        self.deck = self.served.simulator.script = Deck(self.served, self.planned, self.pick)

    async def lead(self) -> None:
        self.served.simulator.records.clear()
        session = await simulated.create(
            await self.where.open(hasty=True),
            self.name,
            self.dialect,
            policy=self.policy,
            special=self.stream,
            recall=False,
        )
        bare = simulated.provider_of(self.dialect, self.served)
        provider = with_retries(bare, sleep=self._sleep, random_fraction=self.pick.random)
        try:
            for number in range(TURNS):
                session = await self._turn(session, provider, number)
            session = await self._restarted(session)
            await self._look_back(session)
        finally:
            await provider.close()
            await session.close()
            await session.store.close()

    async def _turn(self, session: Session, provider: Provider, number: int) -> Session:
        text = simulated.user_text(number)
        self.deck.replies = parse_script_steps(simulated.steps_of(number))
        self.journal.append(("user", simulated.ticket(number)))
        tools = [replace(tool, run=self._run) for tool in simulated.TOOLS]
        for _ in range(TRIES):
            try:
                await run_turn(
                    session,
                    provider,
                    tools,
                    message={"role": "user", "content": text},
                    key=f"in-{number}",
                    on_event=self._hear,
                    stream=self.stream,
                )
            except ProviderError:
                self.found["errors"] += 1
                if self.pick.random() < 0.5:
                    session = await self._restarted(session)
            except CannotFit as error:
                self._say(f"turn {number}: {error}")
                break
            else:
                return session
        self.found["unanswered"] += 1
        return session

    async def _restarted(self, session: Session) -> Session:
        await session.close()
        await session.store.close()
        return await Session.open(await self.where.open(hasty=True), self.name)

    async def _run(self, asked: ToolInvocation) -> str:
        self.runs[asked.key.rsplit("/", 1)[-1]] += 1
        return simulated.result_text(str(asked.arguments["path"]))

    async def _sleep(self, seconds: float) -> None:
        self.found["waits"] += 1
        self.found["waited_seconds"] += int(seconds)
        asked = self.deck.retry_after
        self.found["impatient"] += asked is not None and seconds < asked

    def _hear(self, happening: TurnEvent) -> None:
        match happening:
            case AssistantReplied():
                text = "".join(getattr(part, "text", "") for part in happening.message.parts)
                calls = ",".join(call.id for call in happening.message.calls)
                self.journal.append(("reply", f"{text}|{calls}"))
            case ToolFinished():
                self.journal.append(("result", happening.call.id))
            case UserNotice():
                self.found["notices"] += 1
            case _:
                pass

    async def _look_back(self, session: Session) -> None:
        """Compare the log, as a fresh process reads it, with what happened."""
        events = [event.body async for event in session.store.events(session.id)]
        said = [body for body in events if isinstance(body, MessageAdded)]
        logged = [item for body in said for item in _items(body)]
        replies = [body.reply_id for body in said if body.reply_id]
        self._compare(logged, replies)
        records = self.served.simulator.records.requests
        accepted: list[Any] = []
        for one, after in pairwise(records):
            trouble = self.deck.made.get(one.number)
            if trouble is None or trouble.overflow or _id_of(one) in replies:
                # A connection that breaks behind the last word has cost nothing.
                accepted = _messages(one) if trouble is None else []
                continue
            if trouble.rejects:
                # What is new may be what it rejected, and is masked.
                kept = _shared(accepted, _messages(one))
                changed = _unnamed(_messages(after)[: len(kept)], trouble) != _unnamed(
                    kept, trouble
                )
            else:
                changed = one.raw != after.raw
            if changed:
                self.found["wrongly_compacted"] += 1
                self._say(f"request {after.number} is another one after {trouble}")
        for record in records:
            self.found["sent_twice"] += sum(n > 1 for n in _tickets(record).values())
        self.found["requests"] += len(records)
        self.found["messages"] += len(logged)
        self.found["troubles"] += sum(self.deck.done.values())
        self.found["left_over"] += len(self.deck.left_over)

    def _compare(self, logged: list[Item], replies: list[str]) -> None:
        expected, there = Counter(self.journal), Counter(logged)
        lost = (expected - there).total()
        if not lost and _in_order(self.journal) != _in_order(logged):
            lost = 1
        # The provider's own word for it: what it has sent whole must have been kept.
        whole = [
            _id_of(record)
            for record in self.served.simulator.records.requests
            if record.fate == "answered" and record.number not in self.deck.made
        ]
        lost += len(set(whole) - set(replies))
        twice = sum(count - 1 for count in there.values())
        twice += len(replies) - len(set(replies)) + sum(n - 1 for n in self.runs.values())
        self.found["lost"] += lost
        self.found["sent_twice"] += twice
        if lost or twice:
            self._say(f"lost {lost}, twice {twice}: {expected - there} {there - expected}")

    def _say(self, what: str) -> None:
        print(f"{self.name} ({self.policy}): {what}", file=sys.stderr)


def _id_of(record: RecordedRequest) -> str:
    return str((record.reply or {}).get("id"))


def _items(body: MessageAdded) -> Iterator[Item]:
    message = body.message
    match message.role:
        case "user":
            text = "".join(getattr(part, "text", "") for part in message.parts)
            yield "user", text.split(" ", 1)[0]
        case "assistant":
            text = "".join(getattr(part, "text", "") for part in message.parts)
            yield "reply", f"{text}|{','.join(call.id for call in message.calls)}"
        case _:
            for result in message.results:
                yield "result", result.call_id


def _in_order(items: Iterable[Item]) -> list[Item]:
    """The same with the results of one reply sorted: tools that run side by side end as they do."""
    out: list[Item] = []
    results: list[Item] = []
    for item in items:
        if item[0] == "result":
            results.append(item)
            continue
        out += sorted(results)
        results = []
        out.append(item)
    return out + sorted(results)


def _shared(before: list[Any], after: list[Any]) -> list[Any]:
    """The messages with which both begin."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))
    return [message for message, _ in pairs]


def _unnamed(messages: list[Any], trouble: Trouble) -> list[Any]:
    """The messages without the one that the provider's error names."""
    named = re.search(r"messages[.\[](\d+)", PROVIDER_FAULTS[trouble.name].message)
    return [
        message for index, message in enumerate(messages) if named is None or index != int(named[1])
    ]


def _messages(record: RecordedRequest) -> list[Any]:
    """The messages of a request without cache marks, which move."""

    def bare(value: Any) -> Any:
        if isinstance(value, list):
            return [bare(each) for each in cast("list[Any]", value)]
        if isinstance(value, dict):
            pairs = cast("dict[str, Any]", value).items()
            return {key: bare(each) for key, each in pairs if key != "cache_control"}
        return value

    return bare(record.body.get("messages") or record.body.get("input") or [])


def _tickets(record: RecordedRequest) -> Counter[str]:
    """How often each user message stands in a request, as a message."""
    found = Counter[str]()
    for message in _messages(record):
        if message.get("role") == "user":
            content = message.get("content")
            parts = [{"text": content}] if isinstance(content, str) else content
            texts = [str(part.get("text", "")) for part in parts or ()]
            found.update(text.split(" ", 1)[0] for text in texts if text.startswith("Ticket-"))
    return found


def plans(seed: int) -> Iterator[tuple[str, bool, list[Planned]]]:
    """Conversations in which every trouble comes at least once, one overflow at most in each."""
    pick = random.Random(seed)  # noqa: S311 - not for secrets
    for dialect in DIALECTS:
        for stream in (True, False):
            every = troubles(dialect, stream=stream)
            others = [trouble for trouble in every if not trouble.overflow]
            pick.shuffle(others)
            waiting = iter(others)
            for overflow in (trouble for trouble in every if trouble.overflow):
                more = [next(waiting, None) or pick.choice(others) for _ in range(3)]
                yield dialect, stream, [_planned(each, pick) for each in (overflow, *more)]


def _planned(trouble: Trouble, pick: random.Random) -> Planned:
    # 16 times in a row outlasts all that is tried in one turn.
    times = pick.choice((1, 2, 4, 16)) if trouble.lasts else 1
    return Planned(trouble, pick.randrange(4 * (TURNS - 2)), times, pick.random() < 0.5)


Plan = tuple[int, str, bool, list[Planned]]


def _sampled(every: list[Plan]) -> list[Plan]:
    """Some of them, with each way to fail among them."""
    pick = random.Random(SEEDS[0])  # noqa: S311 - not for secrets
    pick.shuffle(every)
    found: dict[int, Plan] = {}
    for form in ("stop", "truncated"):
        having = [i for i, plan in enumerate(every) if plan[3][0].trouble.form == form]
        found |= {index: every[index] for index in having[:3]}
    for index, plan in enumerate(every):
        if len(found) < QUICK:
            found[index] = plan
    return [found[index] for index in sorted(found)]


async def lead_all(asked: argparse.Namespace, places: dict[str, Place]) -> list[Conversation]:
    done: list[Conversation] = []
    chosen: list[Plan] = [(seed, *plan) for seed in asked.seed or SEEDS for plan in plans(seed)]
    if asked.quick:
        chosen = _sampled(chosen)
    policies = sorted(POLICY_NAMES)
    with serve_simulated_provider(window=WINDOW, seed="s") as served:
        for number, (seed, dialect, stream, planned) in enumerate(chosen):
            store = list(places)[number // len(policies) % len(places)]
            conversation = Conversation(
                f"{dialect}-{'stream' if stream else 'whole'}-{store}-{seed}-{number}",
                dialect,
                policies[number % len(policies)],
                stream,
                served,
                places[store],
                planned,
                random.Random(f"{seed} {number}"),  # noqa: S311 - not for secrets
            )
            progress(f"{number + 1} of {len(chosen)}: {conversation.name}")
            await conversation.lead()
            done.append(conversation)
    return done


def main(asked: argparse.Namespace) -> Report:
    missing = no_server()
    with place("files") as files:
        if missing is not None:
            done = asyncio.run(lead_all(asked, {"files": files}))
        else:
            with place("postgres") as server:
                assert isinstance(server, Postgres)
                asyncio.run(migrate(server.conninfo))
                both: dict[str, Place] = {"files": files, "postgres": server}
                done = asyncio.run(lead_all(asked, both))
    return report_of(done, asked, missing)


def report_of(done: list[Conversation], asked: argparse.Namespace, missing: str | None) -> Report:
    total, kinds = Counter[str](), Counter[str]()
    for conversation in done:
        total.update(conversation.found)
        kinds.update(conversation.deck.done)
    forms = Counter[str]()
    for kind, times in kinds.items():
        forms[kind.partition(":")[0]] += times
    figures = {name: total[name] for name in ZERO}
    names = ("troubles", "errors", "notices", "waits", "waited_seconds", "left_over")
    seeds = ", ".join(map(str, asked.seed or SEEDS))
    without = f"; without PostgreSQL: {missing}" if missing else ""
    return {
        "sample": f"{len(done)} conversations, {total['requests']:,} requests, "
        f"{total['messages']:,} messages; seeds {seeds}{without}",
        **figures,
        "kinds": len(kinds),
        **{name: total[name] for name in names},
        "forms": dict(sorted(forms.items())),
        "broken": [f"{name} is {value}" for name, value in figures.items() if value],
    }


def start() -> int:
    options = parser(__doc__)
    options.add_argument("--seed", type=int, action="append", help="in place of the usual ones")
    asked = options.parse_args()
    return finish({**head(PACKAGES), **main(asked)}, as_json=asked.json)


if __name__ == "__main__":
    sys.exit(start())
