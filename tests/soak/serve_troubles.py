"""A simulated model that fails and hangs now and then, and remembers what each request was for."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Literal

from trimtab.testing.replies import ScriptedCall
from trimtab.testing.server import RecordedRequest, ServedSimulator
from trimtab.testing.server.script import ScriptStep, SimulatorScript

FAILING, HANGING = 0.05, 0.01
"""Shares of the calls."""
HANG = 120.0
"""Seconds that a call hangs: longer than anybody waits."""
WAY = (0.02, 0.12)
"""Seconds before a reply, from and to."""
FAILURES = (
    ScriptStep(fault="overloaded"),
    ScriptStep(fault="server_error"),
    ScriptStep(fault="bad_gateway"),
    ScriptStep(fault="rate_limit", retry_after=0.5),
    ScriptStep(fault="overloaded", in_stream=2),
    ScriptStep(cut=3),
)

Fate = Literal["answered", "failed", "hung"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that came."""

    session: str
    """Whose."""
    before: int
    """Replies that stand in it: it asks for the one behind them."""
    fate: Fate
    """What was done about it."""
    record: RecordedRequest
    """As the simulator has it, without its body."""

    @property
    def reply(self) -> str | None:
        """The id of what was said; None where nothing was, or not to its end."""
        return None if self.fate != "answered" else str((self.record.reply or {}).get("id"))


class Troubled(SimulatorScript):
    """In place of the simulator's script."""

    def __init__(self, served: ServedSimulator, pick: random.Random) -> None:
        super().__init__()
        self.asked: list[Asked] = []
        """All requests, in the order in which they came."""
        self._records = served.simulator.records
        self._pick = pick

    def take_step(self, key: str, header: str | None, user_text: str) -> ScriptStep:
        """What happens to the request that has just come."""
        del key, header, user_text
        record = self._records.requests.pop()
        body, record.raw = record.body, b""
        step, fate = self._fated(_step(body["messages"]))
        before = sum(message["role"] == "assistant" for message in body["messages"])
        session = _texts(body["messages"][0])[0].split(" ", 1)[0]
        self.asked.append(Asked(session=session, before=before, fate=fate, record=record))
        return step

    def _fated(self, step: ScriptStep) -> tuple[ScriptStep, Fate]:
        step = replace(step, delay=self._pick.uniform(*WAY))
        chance = self._pick.random()
        if chance < FAILING:
            return self._pick.choice(FAILURES), "failed"
        if chance < FAILING + HANGING:
            return replace(step, delay=HANG), "hung"
        return step, "answered"


def repeated(asked: list[Asked], replies: dict[str, list[str]]) -> int:
    """Requests for a reply that was in the log when they were sent.

    A reply is asked for again only by somebody who has claimed the turn, and from then on nobody
    else's reply gets into the log. So one that did was there before any request behind its own.
    """
    known: set[tuple[str, int]] = set()
    found = 0
    for one in asked:
        place = (one.session, one.before)
        found += place in known
        logged = replies[one.session]
        if one.before < len(logged) and one.reply == logged[one.before]:
            known.add(place)
    return found


def unrecorded(asked: list[Asked], replies: dict[str, list[str]]) -> int:
    """Replies that were sent whole and are in no log: whoever had asked was killed in between."""
    logged = {reply for each in replies.values() for reply in each}
    return sum(one.reply is not None and one.reply not in logged for one in asked)


def fates(asked: list[Asked]) -> Counter[str]:
    return Counter(one.fate for one in asked)


def _step(messages: list[dict[str, Any]]) -> ScriptStep:
    """Tools are called twice in three turns; what has their results is answered."""
    parts = messages[-1]["content"]
    if not isinstance(parts, str) and any(part["type"] == "tool_result" for part in parts):
        return ScriptStep(text="It is done.")
    number = int(_texts(messages[-1])[-1].split(" ", 2)[1])
    if number % 3 == 0:
        return ScriptStep(text="Nothing is to be done.")
    return ScriptStep(calls=(ScriptedCall(name="once"), ScriptedCall(name="again")))


def _texts(message: dict[str, Any]) -> list[str]:
    parts = message["content"]
    return [parts] if isinstance(parts, str) else [part["text"] for part in parts if "text" in part]
