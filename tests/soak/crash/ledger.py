"""What a store has acknowledged, against what it holds after a crash."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

FIGURES = ("lost_acknowledged", "duplicated", "gaps", "torn_batches", "wrong_requests", "stuck")
"""What must be 0."""
ERASED = '"[erased]"'
"""What stands for any text that was destroyed."""


@dataclass(slots=True)
class Ledger:
    """One session, as its writer told of it."""

    acknowledged: list[str] = field(default_factory=list[str])
    """The log as lines of JSON, up to the last acknowledged event."""
    batch: list[str] = field(default_factory=list[str])
    """What was being appended when the writer was heard last; may be there, as a whole."""
    rewritten: list[str] | None = None
    """The whole log that was being put in the place of the old one; None for none."""

    def tried(self, told: dict[str, Any]) -> None:
        lines, log = told.get("lines"), told.get("log")
        if lines and self.batch and _seq(lines[0]) == len(self.acknowledged + self.batch) + 1:
            # Its answer never came, but whoever wrote on has read it.
            self.acknowledged += self.batch
        self.batch, self.rewritten = lines or [], log

    def answered(self) -> None:
        if self.rewritten is not None:
            self.acknowledged = self.rewritten
        self.acknowledged = [*self.acknowledged, *self.batch]
        self.batch, self.rewritten = [], None

    def outcomes(self) -> list[list[str]]:
        """The logs that a crash now may leave."""
        other = [self.rewritten] if self.rewritten is not None else []
        return [self.acknowledged, self.acknowledged + self.batch, *other]

    def judge(self, found: list[str]) -> Counter[str]:
        """How a log that was found differs from all that it may be; empty if it does not."""
        out = Counter[str]()
        seqs = [_seq(line) for line in found]
        said = Counter(_said(found))
        out["duplicated"] = len(seqs) - len(set(seqs)) + sum(n - 1 for n in said.values())
        out["gaps"] = sum(seq != place for place, seq in enumerate(seqs, 1))
        if found not in self.outcomes():
            out["lost_acknowledged"] = min(_missing(log, found) for log in self._kept())
            begun = found[: len(self.acknowledged)] == self.acknowledged
            out["torn_batches"] = int(begun and len(found) > len(self.acknowledged))
        return +out

    def settle(self, found: list[str]) -> None:
        """From here on, what was found is what there is."""
        self.acknowledged, self.batch, self.rewritten = found, [], None

    def _kept(self) -> list[list[str]]:
        return [self.acknowledged, *([self.rewritten] if self.rewritten is not None else [])]


@dataclass(slots=True)
class Ledgers:
    """All sessions of a store."""

    sessions: dict[str, Ledger] = field(default_factory=dict[str, Ledger])

    def hear(self, told: dict[str, Any]) -> None:
        if "try" in told:
            self.sessions.setdefault(told["try"], Ledger()).tried(told)
        elif "ack" in told:
            self.sessions[told["ack"]].answered()


def _seq(line: str) -> int:
    return json.loads(line)["seq"]


def _said(lines: Iterable[str]) -> Iterable[str]:
    """Messages without their positions: no two are the same in what is led here."""
    for line in lines:
        event = json.loads(line)
        if event["kind"] == "message" and ERASED not in line:
            yield json.dumps(event.get("message"))


def _missing(wanted: list[str], found: list[str]) -> int:
    return sum(place >= len(found) or found[place] != line for place, line in enumerate(wanted))
