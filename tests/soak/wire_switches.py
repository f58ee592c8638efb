"""Conversations that change models in the middle of things: is every request accepted?

Models of three dialects take turns, also while a tool loop is open. Thinking is switched on and
off, messages are erased and undone, system messages come in the middle, tools return objects,
replies have nulls and empty lists, and callers leave the parameters of another provider set. Each
request is put before three judges: `check`, the simulator, and rules written from the providers'
documents.

requests       that were judged
refused        requests that at least one judge refuses
disagreements  requests on which they do not agree, those spoiled on purpose included
spoiled        copies that were spoiled on purpose; all judges must refuse each

`--seed N --conversations 1` has conversation N once more.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

from benchmarks.harness import Report, finish, head, parser, progress
from tests.soak.switches import saying
from tests.soak.switches.judging import PARAMS, TARGETS, Court, Target
from tests.soak.switches.spoiling import SPOILS, spoiled
from trimtab import Context
from trimtab.errors import CannotFit
from trimtab.types import DialectName

Wire = dict[str, Any]
REQUESTS, QUICK = 40_000, 2_000
STEPS = 60
KEPT = 12
"""Examples that are told."""
TOOLS = [{"name": "read", "description": "Read.", "input_schema": {"type": "object"}}]
WINDOWS = (None, None, 6_000, 12_000)
POLICIES = ("auto", "auto", "layered", "compact", "rolling", "full")


@dataclass(slots=True)
class Findings:
    requests: int = 0
    refused: int = 0
    disagreements: int = 0
    spoiled: int = 0
    conversations: int = 0
    figures: Counter[str] = field(default_factory=Counter[str])
    told: list[str] = field(default_factory=list[str])

    def tell(self, what: str) -> None:
        if len(self.told) < KEPT:
            self.told.append(what)


@dataclass(slots=True)
class Life:
    """One conversation."""

    seed: int
    findings: Findings
    dice: Random = field(init=False)
    to: Target = field(init=False)
    court: Court = field(default_factory=Court)
    context: Context = field(init=False)
    open_calls: list[str] = field(default_factory=list[str])
    did: list[str] = field(default_factory=list[str])
    handles: list[str] = field(default_factory=list[str])
    replies: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.dice = Random(self.seed)  # noqa: S311 - a draw, no secret
        self.to = self.dice.choice(TARGETS)
        self.context = Context(
            self.to.model,
            dialect=cast("DialectName", self.to.dialect),
            tools=TOOLS,
            policy=self.dice.choice(POLICIES),
            context_window=self.dice.choice(WINDOWS),
            recall=self.dice.random() < 0.3,
            system="Be careful." if self.dice.random() < 0.7 else "",
            params=self.dice.choice(PARAMS),
        )

    def run(self) -> None:
        self._add(saying.user(self.dice, self.to.dialect), "user")
        try:
            for _ in range(STEPS):
                self._step()
        except CannotFit:
            self.findings.figures["cannot_fit"] += 1
        self.findings.conversations += 1

    def _step(self) -> None:
        draw = self.dice.random()
        if draw < 0.60:
            self._reply()
            if self.open_calls and self.dice.random() < 0.2:
                self._switch()
        elif draw < 0.70:
            self._add(saying.user(self.dice, self.to.dialect), "user")
        elif draw < 0.82:
            self._switch()
        elif draw < 0.87:
            self.context.configure(params=self.dice.choice(PARAMS))
            self.did.append("params")
        elif draw < 0.91:
            self._add(saying.system(self.dice, self.to.dialect), "system")
            self.court.strict = False
        elif draw < 0.95 and self.replies:
            self.context.erase(self.dice.choice(self.replies[-2:]))
            self.did.append("erase")
        elif draw < 0.97 and len(self.handles) > 3:
            self._rewind()
        elif draw < 0.98:
            self._sync()
        self._ask()

    def _add(self, wire: Wire, did: str) -> None:
        self.court.strict = self.court.strict and "name" not in wire
        self.handles.append(self.context.add(wire))
        self.did.append(did)

    def _reply(self) -> None:
        count = self.dice.choice((0, 1, 1, 1, 2))
        calls = [f"call_{self.dice.randrange(10**9)}" for _ in range(count)]
        thinks = self.to.thinks and self.dice.random() < 0.7
        wire = saying.reply(self.dice, self.to, calls, thinks=thinks)
        self.court.hear(wire, self.to)
        self._add(wire, f"reply of {self.to.model}")
        self.replies.append(self.handles[-1])
        self.open_calls = calls

    def _result(self) -> None:
        call = self.open_calls.pop(self.dice.randrange(len(self.open_calls)))
        self._add(saying.result(self.dice, self.to.dialect, call), "result")

    def _switch(self) -> None:
        self.to = self.dice.choice(TARGETS)
        changes: Wire = {"model": self.to.model, "dialect": self.to.dialect}
        if self.dice.random() < 0.6:
            changes["params"] = self.dice.choice(PARAMS)
        self.context.configure(**changes)
        self.did.append(f"switch to {self.to.model}")

    def _rewind(self) -> None:
        keep = self.dice.randrange(1, len(self.handles))
        self.context.rewind(self.handles[keep - 1])
        self.handles = self.handles[:keep]
        self.replies = [each for each in self.replies if each in self.handles]
        self.open_calls = []
        self.did.append("rewind")

    def _sync(self) -> None:
        """Another history, in which a system message stands in the middle."""
        call = f"call_{self.dice.randrange(10**9)}"
        dialect = self.to.dialect
        asked = saying.reply(self.dice, self.to, [call], thinks=False)
        items = {"anthropic": [asked], "openai_chat": [asked]}.get(dialect, asked.get("output"))
        if "choices" in asked:
            items = [asked["choices"][0]["message"]]
        elif asked.get("type") == "message":
            items = [{"role": "assistant", "content": asked["content"]}]
        history = [
            saying.user(self.dice, dialect),
            *(items or ()),
            saying.result(self.dice, dialect, call),
            saying.system(self.dice, dialect),
            saying.user(self.dice, dialect),
        ]
        self.context.sync(history)
        self.court.strict = False
        self.handles, self.replies, self.open_calls = [], [], []
        self._add(saying.user(self.dice, dialect), "sync")

    def _ask(self) -> None:
        volatile = "It is noon." if self.dice.random() < 0.15 else None
        while self.open_calls and self.dice.random() < 0.9:
            self._result()
        self.open_calls = []  # what is missing is made good by the request
        last = self.context.window.conversation.rounds[-1].entries[-1].message
        if last.role == "assistant" and not last.calls:
            # Nobody has said anything to which a model could reply.
            self._add(saying.user(self.dice, self.to.dialect), "user")
        request = json.loads(json.dumps(self.context.request(volatile=volatile)))
        self.findings.requests += 1
        self._count(request)
        verdicts = self.court.verdicts(request, self.to)
        against = [name for name, found in verdicts.items() if found]
        if against:
            self.findings.refused += 1
            self.findings.disagreements += len(against) < len(verdicts)
            self.findings.tell(f"{self._where} {verdicts} {json.dumps(request)[-400:]}")
        elif self.dice.random() < 0.2:
            self._spoil(request)

    def _count(self, request: Wire) -> None:
        """What the requests were like, so that nobody takes few for many."""
        figures = self.findings.figures
        figures[f"requests of {self.to.dialect}"] += 1
        last = self.context.window.conversation.rounds[-1]
        figures["in an open loop"] += bool(last.calls)
        asked = (self.context.window.settings.params.get("thinking") or {}).get("type")
        if self.to.dialect == "anthropic" and asked is not None:
            sent = (request.get("thinking") or {}).get("type", "off")
            figures[f"thinking {asked}, sent as {sent}"] += 1

    def _spoil(self, request: Wire) -> None:
        spoil = self.dice.choice(SPOILS[self.to.dialect])
        copied = spoiled(request, self.to, spoil)
        if copied is None:
            return
        self.findings.spoiled += 1
        self.findings.figures[f"spoiled: {spoil.__name__.strip('_').replace('_', ' ')}"] += 1
        verdicts = self.court.verdicts(copied, self.to)
        silent = [name for name, found in verdicts.items() if not found]
        if silent:
            self.findings.disagreements += 1
            self.findings.tell(f"{self._where} {spoil.__name__}: {verdicts}")

    @property
    def _where(self) -> str:
        return f"conversation {self.seed}, step {len(self.did)} ({' → '.join(self.did[-6:])}):"


def main(seed: int, requests: int, conversations: int | None) -> Report:
    findings = Findings()
    while findings.conversations != conversations:
        if conversations is None and findings.requests >= requests:
            break
        Life(seed + findings.conversations, findings).run()
        if findings.conversations % 100 == 0:
            progress(f"{findings.requests:,} requests")
    broken = [each for each in ("refused", "disagreements") if getattr(findings, each)]
    return {
        "sample": f"{findings.conversations:,} conversations from seed {seed}",
        "seed": seed,
        "conversations": findings.conversations,
        "requests": findings.requests,
        "refused": findings.refused,
        "disagreements": findings.disagreements,
        "spoiled": findings.spoiled,
        "figures": dict(sorted(findings.figures.items())),
        "told": findings.told,
        "broken": [f"{name}: {getattr(findings, name)}" for name in broken],
    }


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--seed", type=int, help="of the first conversation; else a random one")
    arguments.add_argument("--conversations", type=int, help="so many instead of enough requests")
    asked = arguments.parse_args()
    seed = secrets.randbelow(10**9) if asked.seed is None else asked.seed
    made = main(seed, QUICK if asked.quick else REQUESTS, asked.conversations)
    sys.exit(finish({**head(), **made}, as_json=asked.json))
