"""How much work an operation takes when there is twice as much to do.

Work is counted in calls of Python functions, which is the same on every machine and at every load.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from tests.adversary.findings import Broken, Findings
from tests.adversary.subject import Settings, Subject

SETTINGS = Settings(model="gpt-4o", dialect="openai_chat", tools=())
MESSAGES = 32
"""Of the smaller conversation; the larger one has twice as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    name: str
    """What is done."""
    run: Callable[[Subject, list[str]], object]
    """Does it, given the handles of all messages."""
    most: float
    """Times as much work as twice as many messages may take."""


def _add_one(subject: Subject, handles: list[str]) -> None:
    subject.add({"role": "user", "content": "One more."})
    subject.request()


OPERATIONS = (
    Operation(
        name="erase half of the messages",
        run=lambda subject, handles: subject.erase(
            f"{handles[0]}-{handles[len(handles) // 2 - 1]}"
        ),
        most=2.5,
    ),
    Operation(
        name="sync the whole history",
        run=lambda subject, handles: Subject(SETTINGS).sync(history(len(handles))),
        most=2.5,
    ),
    Operation(name="load the log", run=lambda subject, _: subject.loaded(), most=2.5),
    Operation(name="fork", run=lambda subject, _: subject.fork(), most=2.5),
    Operation(name="report", run=lambda subject, _: subject.report(), most=2.5),
    Operation(
        name="rewind to the middle",
        run=lambda subject, handles: subject.rewind(handles[len(handles) // 2]),
        most=2.5,
    ),
    Operation(name="say one more and ask", run=_add_one, most=1.5),
)
"""What is done to all of a conversation may take twice the work, what is done to its end not."""


def history(messages: int) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": f"Message {n}."} for n in range(messages)]


def work_of(act: Callable[[], object]) -> int:
    """Calls of Python functions while `act` runs."""
    calls = 0

    def see(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        act()
    finally:
        sys.setprofile(before)
    return calls


def grows(operation: Operation, small: int, large: int) -> Broken | None:
    """What is wrong with the work for so many messages and for twice as many."""
    if large <= operation.most * small:
        return None
    rule = f"work to {operation.name} grows no faster than the conversation"
    return Broken(rule, f"{large / small:.1f} times the work ({small:,} → {large:,} calls)")


def check_growth(findings: Findings) -> None:
    for operation in OPERATIONS:
        work: list[int] = []
        for messages in (MESSAGES, 2 * MESSAGES):
            subject = Subject(SETTINGS)
            handles = [subject.add(message) for message in history(messages)]
            subject.request()
            findings.requests += 1
            work.append(work_of(lambda s=subject, h=handles, o=operation: o.run(s, h)))
        if broken := grows(operation, *work):
            where = f"of {MESSAGES} and of {2 * MESSAGES} messages"
            findings.note("v5", [broken], where=where, request={})
