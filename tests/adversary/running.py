"""The two forms: the quick one, the same each time, and the whole one, as long as one likes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.adversary.cases import run_cases
from tests.adversary.conversation import LARGE, SMALL, Scale
from tests.adversary.findings import Findings
from tests.adversary.growth import check_growth
from tests.adversary.sizes import check_sizes
from tests.adversary.steps import have


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A part of the quick form that is run, and judged, by itself."""

    name: str
    """By which the table of what is expected knows it."""
    run: Callable[[Findings], None]
    """Adds what it finds."""

    def found(self) -> Findings:
        findings = Findings()
        self.run(findings)
        return findings


def _conversations(*seeds: int) -> Batch:
    def run(findings: Findings) -> None:
        for seed in seeds:
            have(seed, SMALL, findings)

    return Batch(name=f"conversations {', '.join(map(str, seeds))}", run=run)


FIXED = (
    Batch(name="fixed cases", run=run_cases),
    Batch(name="sizes", run=check_sizes),
    Batch(name="growth", run=check_growth),
)
CONVERSATIONS = (
    _conversations(1, 2, 3, 4),
    _conversations(5, 6, 7, 8),
    _conversations(9, 10, 11, 12),
    # These meet what is rare: a model that is changed for one that does not reason, volatile text.
    _conversations(25, 61, 72, 86),
    # These are had with models at Bedrock.
    _conversations(14, 21),
)
QUICK = (*FIXED, *CONVERSATIONS)
"""A second or two each, so that they can run side by side."""


def converse(
    seed: int,
    *,
    seconds: float | None = None,
    conversations: int | None = None,
    small: bool = False,
) -> Findings:
    """Conversations of this seed and those after it, until there were enough or time is up.

    The same seed and number of conversations find the same, however long it takes.
    """
    findings, ends = Findings(), time.monotonic() + (seconds or 0)
    scale: Scale = SMALL if small else LARGE
    while findings.conversations != conversations:
        if seconds is not None and time.monotonic() > ends:
            break
        have(seed + findings.conversations, scale, findings)
    return findings
