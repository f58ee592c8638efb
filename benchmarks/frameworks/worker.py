"""An agent of one framework, inside that framework's environment.

    python -m benchmarks.frameworks.worker ADAPTER

Lines of JSON on standard input, each answered by a line of JSON on standard output:

{"setup": {…}}               {}: makes the agent; the fields are those of `life.Setup`
{"turns": [first, last]}     {"cpu_ms", "all_cpu_ms"}: CPU of our module by model call, and of the
                             whole process a model call
{"preload": [said, …]}       {}: the history that the agent begins with
{"say": text}                {}: one more turn
{"history": true}            {"history": [said, …]}
{"usage": true}              {"usage": text}: the report's own drawing of the context

An error is answered by {"error": text}. An adapter is a module with a class `Agent`; see `Agent`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Generator, Sequence
from typing import Any, Protocol

from benchmarks.frameworks.life import CALLS_A_TURN, Said, Setup, user_text


class Meter:
    """CPU time of our module, model call by model call, in all threads of the process."""

    def __init__(self) -> None:
        self.ms: list[float] = []
        self._spent = 0.0

    @contextlib.contextmanager
    def part(self) -> Generator[None]:
        """Something that the module does for the next model call."""
        start = time.process_time()
        try:
            yield
        finally:
            self._spent += time.process_time() - start

    @contextlib.contextmanager
    def passed_on(self) -> Generator[None]:
        """Within a part: what the module passes on to, which is not the module's own."""
        start = time.process_time()
        try:
            yield
        finally:
            self._spent -= time.process_time() - start

    def finish(self) -> None:
        """The model call is over."""
        self.ms.append(1e3 * self._spent)
        self._spent = 0.0


class Agent(Protocol):
    """An agent with the tool `read_report`, as the framework's own tutorial builds it."""

    def __init__(self, setup: Setup, meter: Meter) -> None: ...

    def say(self, text: str) -> None:
        """One turn, from code without an event loop."""
        ...

    async def say_async(self, text: str) -> None:
        """One turn in an event loop."""
        ...

    async def preload(self, history: Sequence[Said]) -> None: ...

    async def history(self) -> list[Said]: ...

    async def usage(self) -> str: ...


class Numbers:
    """Numbers for call ids, in the order in which they are met."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __getitem__(self, call_id: str) -> int:
        return self._numbers.setdefault(call_id, len(self._numbers))


class Work:
    def __init__(self, adapter: str) -> None:
        self._make_agent = importlib.import_module(
            f"benchmarks.frameworks.adapters.{adapter}"
        ).Agent
        self._loop = asyncio.new_event_loop()
        self._meter = Meter()
        self._agent: Agent
        self._setup: Setup

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        run = self._loop.run_until_complete
        match command:
            case {"setup": values}:
                self._setup = Setup(**values)
                self._agent = self._make_agent(self._setup, self._meter)
            case {"turns": [first, last]}:
                return self._turns(first, last)
            case {"preload": history}:
                run(self._agent.preload(history))
            case {"say": text}:
                self._say(text)
            case {"history": _}:
                return {"history": run(self._agent.history())}
            case {"usage": _}:
                return {"usage": run(self._agent.usage())}
            case _:
                raise ValueError(f"unknown command: {command}")
        return {}

    def _turns(self, first: int, last: int) -> dict[str, Any]:
        self._meter.ms.clear()
        start = time.process_time()
        for turn in range(first, last):
            self._say(user_text(turn))
        calls = CALLS_A_TURN * (last - first)
        spent = 1e3 * (time.process_time() - start) / calls
        return {"cpu_ms": self._meter.ms, "all_cpu_ms": spent}

    def _say(self, text: str) -> None:
        if self._setup.is_async:
            self._loop.run_until_complete(self._agent.say_async(text))
        else:
            self._agent.say(text)


def main() -> None:
    # What libraries print would break the protocol; it goes to standard error.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    work: Work | None = None
    for line in sys.stdin:
        try:
            work = work or Work(sys.argv[1])
            answer = work.answer(json.loads(line))
        except Exception as error:  # noqa: BLE001 - told to the parent
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {str(error)[:400]}"}
        out.write(json.dumps(answer) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
