"""A peer at work, inside its own environment; standard library and the peer alone.

    python worker.py ADAPTER

Lines of JSON on standard input, one conversation each: {"setup", "messages", "sizes",
"head"}: parameters for the adapter, Chat Completions dicts, their tokens, those of system prompt
and tools. For each a line of JSON on standard output:
{"calls": [[sent, summarised, seconds], …]}, one for every assistant message but a first one. `sent`
holds what the peer would send: [first, last] for recorded messages that go out as they are, a dict
for one that the peer made or changed. `summarised` is what a summariser read, in tokens; `seconds`
the processor time that the peer took to decide, conversions by the adapter not included.

An adapter is a module with `open_session(setup, stand_in)`; see `Session`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
import time
from pathlib import Path
from typing import Any, Protocol

Wire = dict[str, Any]
Sent = int | Wire
AROUND = 10
"""Tokens around a message that a peer made."""


class Session(Protocol):
    """One conversation at one peer."""

    def add(self, index: int, message: Wire, size: int, used: int | None) -> None:
        """What was said next, in tokens; for a reply also the input that its call reported."""
        ...

    def decide(self) -> None:
        """Let the peer do what it does before a call. This alone is timed."""
        ...

    def view(self) -> list[Sent]:
        """What it would send: indexes of recorded messages, dicts for others."""
        ...


def main() -> None:
    # Libraries that print would break the protocol: what they say goes nowhere.
    out, sys.stdout = sys.stdout, io.StringIO()
    sys.path.insert(0, str(Path(__file__).parent))
    from stand_in import StandIn

    adapter = importlib.import_module(f"adapters.{sys.argv[1]}")
    for line in sys.stdin:
        job = json.loads(line)
        stand_in = StandIn()
        try:
            session = adapter.open_session(job["setup"], stand_in)
            answer: Wire = {"calls": run(session, job, stand_in)}
        except Exception as error:  # noqa: BLE001 - told to the parent, which shows it in its table
            answer = {"error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(answer) + "\n")
        out.flush()


def run(session: Session, job: Wire, stand_in: Any) -> list[tuple[list[Any], int, float]]:
    messages, sizes = job["messages"], job["sizes"]
    calls: list[tuple[list[Any], int, float]] = []
    # Tokens a character has in this conversation, for texts that no one has counted.
    density = sum(sizes) / max(1, sum(len(_text(message)) for message in messages))
    for index, message in enumerate(messages):
        used = None
        if message["role"] == "assistant" and index:
            start = time.process_time()
            with contextlib.redirect_stdout(io.StringIO()):
                session.decide()
            spent = time.process_time() - start
            view = session.view()
            used = job["head"] + _tokens(view, sizes, density)
            calls.append((_ranges(view), int(stand_in.taken() * density), spent))
        session.add(index, message, sizes[index], used)
    return calls


def _tokens(view: list[Sent], sizes: list[int], density: float) -> int:
    """What the provider would report: told to the peers that learn from it."""
    return sum(
        sizes[one] if isinstance(one, int) else int(len(_text(one)) * density) + AROUND
        for one in view
    )


def _text(message: Wire) -> str:
    calls = message.get("tool_calls") or ()
    return (message.get("content") or "") + "".join(
        call["function"]["name"] + call["function"]["arguments"] for call in calls
    )


def _ranges(view: list[Sent]) -> list[Any]:
    out: list[Any] = []
    for one in view:
        if isinstance(one, int) and out and isinstance(out[-1], list) and out[-1][1] == one - 1:
            out[-1][1] = one
        else:
            out.append([one, one] if isinstance(one, int) else one)
    return out


if __name__ == "__main__":
    main()
