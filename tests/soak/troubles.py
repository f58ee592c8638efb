"""Ways in which a simulated provider fails, and a script that has them happen at planned points."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trimtab.providers.base import TRANSIENT_KINDS
from trimtab.testing.server import (
    OVERFLOW_FAULTS,
    PROVIDER_FAULTS,
    RecordedRequest,
    ServedSimulator,
)
from trimtab.testing.server.script import ScriptStep, SimulatorScript

GROWN = 4_000
"""Tokens of a request from which on it may be too long: a small one, nobody would refuse."""
HALVED = 7_000
"""The same where half of what a server takes is what it will be sent from then on."""
STOPS = {
    "anthropic": ("model_context_window_exceeded",),
    "openai_chat": ("model_context_window_exceeded", "model_length"),
    "openai_responses": (),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One way to fail."""

    name: str
    """Of the fault, or of the stop reason."""
    form: str
    """`body`, `stream`, `stop`, `cut` or `truncated`."""

    @property
    def overflow(self) -> bool:
        return self.form in ("stop", "truncated") or self.name in OVERFLOW_FAULTS

    @property
    def rejects(self) -> bool:
        """Whether the provider does not take what is said."""
        return self.name in PROVIDER_FAULTS and PROVIDER_FAULTS[self.name].kind == "rejected"

    @property
    def least(self) -> int:
        """Tokens of the smallest request that it befalls."""
        if self.form == "truncated":
            return HALVED
        return GROWN if self.overflow else 0

    @property
    def lasts(self) -> bool:
        """Whether it may come several times in a row and pass then."""
        return self.form == "cut" or (
            self.name in PROVIDER_FAULTS and PROVIDER_FAULTS[self.name].kind in TRANSIENT_KINDS
        )

    @property
    def names_limit(self) -> bool:
        fault = PROVIDER_FAULTS.get(self.name)
        return fault is not None and "{limit}" in f"{fault.message}{json.dumps(fault.body)}"


def troubles(dialect: str, *, stream: bool) -> list[Trouble]:
    """All ways to fail that a dialect has."""
    found = [Trouble(name=name, form="body") for name in PROVIDER_FAULTS]
    found += [Trouble(name=stop, form="stop") for stop in STOPS[dialect]]
    found += [Trouble(name="connection", form="cut")] * 3
    if dialect == "openai_chat":
        found += [Trouble(name="in silence", form="truncated")] * 3
    if stream:
        # A body without words has no form in a stream, and that a model is not there is found
        # before it begins.
        worded = [
            name for name, fault in PROVIDER_FAULTS.items() if fault.message and fault.status != 404
        ]
        found += [Trouble(name=name, form="stream") for name in worded]
    return found


@dataclass(slots=True)
class Planned:
    """A trouble that is to come."""

    trouble: Trouble
    after: int
    """Replies before it."""
    times: int
    """How often in a row."""
    output: bool
    """Whether less output would be enough, where the provider names it."""


class Deck(SimulatorScript):
    """Replies as they are asked for, with troubles in between."""

    def __init__(
        self, served: ServedSimulator, planned: Sequence[Planned], pick: random.Random
    ) -> None:
        super().__init__()
        self.replies: list[ScriptStep] = []
        """What the model is to say in this turn."""
        self.made: dict[int, Trouble] = {}
        """The troubles that were made, by the number of the request."""
        self.retry_after: float | None = None
        """Seconds that the last response asked to wait."""
        self.done = Counter[str]()
        """Troubles by name and form."""
        self._served = served
        self._planned = list(planned)
        self._pick = pick
        self._replied = 0
        self._kept: tuple[Trouble, int] | None = None

    def take_step(self, key: str, header: str | None, user_text: str) -> ScriptStep:
        """What happens to the request that has just come."""
        del key, header, user_text  # one conversation at a time, and all of it is planned
        record = self._served.simulator.records.requests[-1]
        self.retry_after = None
        trouble = self._due(record)
        if trouble is None:
            self._replied += 1
            return self.replies.pop(0) if self.replies else ScriptStep()
        self.made[record.number] = trouble
        return self._step(trouble, record)

    @property
    def left_over(self) -> list[Planned]:
        """Troubles that never came."""
        return self._planned

    def _due(self, record: RecordedRequest) -> Trouble | None:
        if self._kept is not None and _size(record, self._kept[0]) > self._kept[1]:
            return self._kept[0]
        for planned in self._planned:
            if self._replied < planned.after or record.tokens < planned.trouble.least:
                continue
            planned.times -= 1
            if planned.times <= 0:
                self._planned.remove(planned)
            trouble = planned.trouble
            self.done[f"{trouble.form}: {trouble.name}"] += 1
            if trouble.overflow:
                limit = _limit(record, output=planned.output and _sums(trouble))
                if trouble.names_limit or trouble.form == "truncated":
                    self._kept = (trouble, limit)
            return trouble
        return None

    def _step(self, trouble: Trouble, record: RecordedRequest) -> ScriptStep:
        match trouble.form:
            case "cut":
                most = 8 if record.body.get("stream") else 60
                return replace(self._said(), cut=self._pick.randrange(most))
            case "stop":
                return replace(self._said(), calls=0, text=30, stop=trouble.name)
            case "truncated":
                assert self._kept is not None
                return replace(self._said(), truncate=self._kept[1] // 2)
            case form:
                fault = PROVIDER_FAULTS[trouble.name]
                limit = self._kept[1] if self._kept is not None else _limit(record, output=False)
                step = ScriptStep(fault=trouble.name, limit=limit)
                if fault.kind == "rate_limit" and self._pick.random() < 0.5:
                    step = replace(step, retry_after=float(self._pick.randrange(1, 40)))
                if form == "stream":
                    return replace(step, in_stream=self._pick.randrange(6))
                told = fault.headers.get("retry-after")
                asked = step.retry_after if step.retry_after is not None else told
                self.retry_after = None if asked is None else float(asked)
                return step

    def _said(self) -> ScriptStep:
        """What would have been said."""
        return self.replies[0] if self.replies else ScriptStep()


def _requested(record: RecordedRequest) -> int:
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    return next((record.body[name] for name in names if name in record.body), 0)


def _size(record: RecordedRequest, trouble: Trouble) -> int:
    """What is held against a limit; who cuts in silence does not ask for the output."""
    return record.tokens + (_requested(record) if trouble.form != "truncated" else 0)


def _limit(record: RecordedRequest, *, output: bool) -> int:
    """A limit that the request exceeds, by its output alone or already without it."""
    if output:
        return record.tokens + _requested(record) // 2
    return record.tokens * 9 // 10


def _sums(trouble: Trouble) -> bool:
    message = PROVIDER_FAULTS[trouble.name].message if trouble.name in PROVIDER_FAULTS else ""
    return "{requested}" in message
