"""A conversation with a real model, served by a real inference server with a hard context limit.

SmolLM2-135M-Instruct by llama-cpp-python's server, 60 turns in a window of 2,048 tokens, through
`run_turn` and the provider that ships; `--quick` takes a model of random weights with the same
tokenizer and chat template, in larger windows. Where the server is not there it is built first,
once, see `llama_server.py`; `--if-built` skips instead. The full run takes a quarter of an hour.

A model of this size calls no tools, so the calls are scripted: a layer before the server answers
with the calls of a turn, `run_turn` runs them, and the server is asked with their results. The
model's own template decides what of it the model sees and the server counts. It shows results, and
of a reply its text alone; the definitions and the calls themselves it leaves out, and it fails
where a reply has no text. So each scripted reply says its call in words, too, and our bound counts
definitions and calls that this server does not.

Streamed, for the time to the first token, and whole, for this server reports no usage in a stream:
there the session never learns how far its estimate is off. What the server counted is in its log
either way; of whole replies it must be what was reported, too. Each policy has a server, and so a
prefix cache, of its own; they take turns turn by turn, the one that begins changes each time.

refused      requests that ended in an error, whatever its name
unanswered   turns without a reply
over_bound   requests of which the server counted more than the declared bound
over_window  requests of which the server counted more than the window leaves beside the output
miscounted   requests whose reported usage is not what the log says

All must be 0. `largest` is the longest prompt, as counted; `bound` the declared bound over the
count, least and median; `cached` the share of all prompts that the server read from its cache;
`evaluated` the tokens that it did not, over those under `layered`; `ttft` the time from sending to
the first piece of the reply, over that under `layered` in the same turn: quartiles and median.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import statistics
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, cast

from benchmarks import llama_server, simulated
from benchmarks.harness import Report, finish, head, parser, progress, skip, table
from benchmarks.llama_server import ModelName, Running
from benchmarks.peers.envs import Absent
from trimtab.dialects.reply_recording import read_text_or_thinking_delta
from trimtab.engine.log.event import ModelCall
from trimtab.errors import CannotFit, ProviderError
from trimtab.providers.base import Provider
from trimtab.providers.openai import OpenAIChatProvider
from trimtab.providers.retries import with_retries
from trimtab.session import Session
from trimtab.session.tools import Tool, ToolInvocation
from trimtab.session.turn import run_turn
from trimtab.testing import MemoryStore
from trimtab.types import DialectName, PolicyName

POLICIES = ("layered", "auto")
BASE = POLICIES[0]
ZERO = ("refused", "unanswered", "over_bound", "over_window", "miscounted")
SYSTEM = "You look after a code base. Say in one sentence what you have found."
OUTPUT = 16
"""Tokens of a reply."""
LONGEST_RESULT, LONGEST_QUESTION = 600, 150
"""Characters of what a tool gives and of what the user says; a tenth of it at least."""
PACKAGES = ("openai", "httpx2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """How long a conversation is, and with whom."""

    model: ModelName
    window: int
    """Tokens of input and output together, as the server enforces it and the session knows it."""
    turns: int
    stream: bool = True

    @property
    def name(self) -> str:
        return f"{self.model} {self.window} {'streamed' if self.stream else 'whole'}"


FULL = (
    Case(model="SmolLM2-135M-Instruct", window=2_048, turns=60),
    # Counts are the tokenizer's, whatever the weights.
    Case(model="random", window=2_048, turns=60, stream=False),
)
QUICK = (
    Case(model="random", window=4_096, turns=30),
    Case(model="random", window=4_096, turns=30, stream=False),
    Case(model="random", window=8_192, turns=40),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """One request that the server answered."""

    sent: ModelCall
    """What the session's log says of it."""
    counted: int
    """Tokens of the prompt, as the server's log has them."""
    cached: int
    """Of those, read from its cache."""
    reported: int | None
    """Tokens of the prompt by the usage that came with the reply; None where none came."""
    ttft: float
    """Seconds from sending to the first piece of the reply, or to all of it."""


class Line:
    """The server with the calls of a turn scripted, and every request that reaches it measured."""

    dialect = "openai_chat"

    def __init__(self, served: Running) -> None:
        self.served = served
        self.script: deque[dict[str, Any]] = deque()
        self.session: Session | None = None
        self.made: list[Made] = []
        self.errors: list[str] = []
        self._server = OpenAIChatProvider(api_key="none", base_url=served.url)

    async def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        if self.script:
            for event in scripted(self.script.popleft(), stream=bool(request.get("stream"))):
                yield event
            return
        begun, first, reported = time.perf_counter(), None, None
        try:
            async for event in self._server.send(request):
                if first is None and (
                    not request.get("stream") or read_text_or_thinking_delta(event) is not None
                ):
                    first = time.perf_counter() - begun
                reported = (event.get("usage") or {}).get("prompt_tokens", reported)
                yield event
        except ProviderError as error:
            self.errors.append(str(error))
            raise
        finally:
            self._measure(first or time.perf_counter() - begun, reported)

    def _measure(self, ttft: float, reported: int | None) -> None:
        assert self.session is not None
        last = self.session.window.last_call
        assert last is not None
        for seen in self.served.seen():
            own = Made(
                sent=last.body,
                counted=seen.tokens,
                cached=seen.cached,
                reported=reported,
                ttft=ttft,
            )
            self.made.append(own)

    async def close(self) -> None:
        await self._server.close()


def scripted(call: dict[str, Any], *, stream: bool) -> Iterator[dict[str, Any]]:
    """A reply that calls a tool, as this server would write it."""
    function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
    calls = [{"index": 0, "id": call["id"], "type": "function", "function": function}]
    words = f"I call {function['name']} with {function['arguments']}."
    said: dict[str, Any] = {"role": "assistant", "content": words, "tool_calls": calls}
    head = {"id": f"scripted-{call['id']}", "created": 0, "model": "script"}
    if not stream:
        choice = {"index": 0, "message": said, "finish_reason": "tool_calls"}
        yield {**head, "object": "chat.completion", "choices": [choice]}
        return
    for added, why in ((said, None), ({}, "tool_calls")):
        choice = {"index": 0, "delta": added, "finish_reason": why}
        yield {**head, "object": "chat.completion.chunk", "choices": [choice]}


def calls_of(number: int) -> list[dict[str, Any]]:
    """The calls of a turn, one reply each: none, one or two."""
    return [
        {"id": f"call_{number}_{n}", "name": "read_file", "arguments": {"path": f"{number}_{n}.py"}}
        for n in range(number % 3)
    ]


def text_of(name: str, longest: int) -> str:
    """Text of one kind, which and how long following from a name alone."""
    pick = random.Random(name)  # noqa: S311 - not for secrets
    text = simulated.texts()[pick.choice(sorted(simulated.texts()))]
    length = pick.randint(longest // 10, longest)
    start = pick.randrange(max(1, len(text) - length))
    return text[start : start + length]


async def read(asked: ToolInvocation) -> str:
    return text_of(asked.arguments["path"], LONGEST_RESULT)


SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = {"name": "read_file", "description": "Read a file.", "input_schema": SCHEMA}
TOOLS = (Tool(definition=READ, run=read),)


@dataclass(slots=True)
class Talk:
    """A conversation under one policy."""

    policy: str
    line: Line
    session: Session
    provider: Provider
    found: Counter[str] = field(default_factory=Counter[str])
    ttft: list[float] = field(default_factory=list[float])
    """Seconds, by turn."""

    async def turn(self, number: int, *, stream: bool) -> None:
        self.line.script.extend(calls_of(number))
        text = f"Turn {number}. {text_of(f'user {number}', LONGEST_QUESTION)}"
        says, before = {"role": "user", "content": text}, len(self.line.made)
        try:
            ended = await run_turn(self.session, self.provider, TOOLS, message=says, stream=stream)
            self.found["unanswered"] += ended.reason != "done"
        except (ProviderError, CannotFit) as error:
            self.found["unanswered"] += 1
            self.line.script.clear()
            print(f"{self.policy}, turn {number}: {error!r}", file=sys.stderr)
        self.found["turns"] += 1
        self.ttft.append(sum(made.ttft for made in self.line.made[before:]))

    def judge(self, window: int) -> None:
        self.found["refused"] = len(self.line.errors)
        for made in self.line.made:
            self.found["over_bound"] += made.counted > made.sent.bound
            self.found["over_window"] += made.counted + made.sent.max_output > window
            self.found["miscounted"] += made.reported not in (None, made.counted)

    @property
    def evaluated(self) -> int:
        return sum(made.counted - made.cached for made in self.line.made)

    def row(self, case: Case, base: Talk) -> Report:
        made = self.line.made
        slack = [each.sent.bound / each.counted for each in made]
        tokens = sum(each.counted for each in made)
        out: Report = {
            "model": case.model,
            "window": case.window,
            "stream": case.stream,
            "policy": self.policy,
            "turns": self.found["turns"],
            "calls": len(made),
            **{name: self.found[name] for name in ZERO},
            "prompt_tokens": tokens,
            "largest": max(each.counted for each in made),
            "bound": [round(each, 2) for each in (min(slack), statistics.median(slack))],
            "cached": round(1 - self.evaluated / tokens, 3),
            "evaluated": round(self.evaluated / base.evaluated, 3),
        }
        if case.stream:
            ratios = [a / b for a, b in zip(self.ttft, base.ttft, strict=True) if a and b]
            out["ttft"] = [round(each, 3) for each in statistics.quantiles(ratios, n=4)]
        return out


async def lead(case: Case) -> list[Report]:
    """One conversation under each policy, side by side."""
    async with AsyncExitStack() as stack:
        talks = [await begin(case, policy, stack) for policy in POLICIES]
        for number in range(case.turns):
            for talk in talks if number % 2 else reversed(talks):
                await talk.turn(number, stream=case.stream)
            progress(f"{case.name}: turn {number + 1} of {case.turns}")
        for talk in talks:
            talk.judge(case.window)
            for words in talk.line.errors:
                print(f"{case.name}, {talk.policy}: {words}", file=sys.stderr)
        return [talk.row(case, base=talks[0]) for talk in talks]


async def begin(case: Case, policy: str, stack: AsyncExitStack) -> Talk:
    served = stack.enter_context(llama_server.serve(case.model, window=case.window))
    line = Line(served)
    stack.push_async_callback(line.close)
    await warm_up(line)
    line.session = await Session.create(
        MemoryStore(),
        policy,
        model=case.model,
        dialect=cast("DialectName", line.dialect),
        params={"temperature": 0},
        recall=False,
        system=SYSTEM,
        policy=cast("PolicyName", policy),
        context_window=case.window,
        max_output_tokens=OUTPUT,
    )
    return Talk(policy=policy, line=line, session=line.session, provider=with_retries(line))


async def warm_up(line: Line) -> None:
    """A first call: of later ones the log then says what they share with the one before."""
    server = OpenAIChatProvider(api_key="none", base_url=line.served.url)
    request = {"model": "any", "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 1}
    async for _ in server.send(request):
        pass
    await server.close()
    line.served.seen()


def main(quick: bool) -> Report:
    rows: list[Report] = []
    begun = time.monotonic()
    for case in QUICK if quick else FULL:
        rows += asyncio.run(lead(case))
    turns, calls = (sum(row[name] for row in rows) for name in ("turns", "calls"))
    total = {name: sum(row[name] for row in rows) for name in ZERO}
    autos = [row for row in rows if row["policy"] == "auto" and row["stream"]]
    return {
        "sample": f"{len(rows)} conversations, {turns:,} turns, {calls:,} requests to the server",
        "rows": rows,
        **total,
        **{f"ttft_auto_{row['window']}": row["ttft"][1] for row in autos},
        "seconds": round(time.monotonic() - begun),
        "broken": [f"{name} is {value}" for name, value in total.items() if value],
    }


def show(report: Report) -> None:
    columns = ("model", "window", "stream", "policy", "calls", *ZERO)
    columns += ("prompt_tokens", "largest", "bound", "cached", "evaluated", "ttft")
    rows = [[_shown(row.get(name, "")) for name in columns] for row in report["rows"]]
    print(f"\n{table(columns, rows)}\n")
    for name, value in report.items():
        if name not in ("command", "versions", "sample", "rows", "broken"):
            print(f"{name}: {value}")


def _shown(value: Any) -> Any:
    if isinstance(value, bool):
        return "on" if value else "off"
    return " ".join(str(each) for each in value) if isinstance(value, list) else value


def start() -> int:
    options = parser(__doc__)
    options.add_argument(
        "--if-built", action="store_true", help="skip where the server is not built yet"
    )
    asked = options.parse_args()
    # Whoever ends this ends the servers, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if asked.if_built and not llama_server.there():
        why = "the inference server is not built; python -m benchmarks.real_model builds it"
        return skip(why, as_json=asked.json)
    try:
        llama_server.build()
        first = head(PACKAGES)
        first["versions"].update(llama_server.versions())
        return finish({**first, **main(asked.quick)}, show, as_json=asked.json)
    except Absent as absent:
        return skip(f"the inference server: {absent}", as_json=asked.json)


if __name__ == "__main__":
    sys.exit(start())
