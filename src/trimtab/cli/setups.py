"""`full,auto:cost,layered:naive` and `200k`, as people type them."""

from __future__ import annotations

from typing import Any

from trimtab.catalog import resolve
from trimtab.core.policies import POLICIES
from trimtab.core.policies.knobs import GOALS
from trimtab.replay.run import Setup

NAIVE = "naive"


def setups_of(policies: str, *, goal: str, window: int | None, model: str) -> list[Setup]:
    """One setup for each policy named; raises ValueError with what may be named."""
    if goal not in GOALS:
        raise ValueError(f"unknown goal {goal!r}; choose one of {', '.join(GOALS)}")
    names = list(dict.fromkeys(name.strip() for name in policies.split(",") if name.strip()))
    if not names:
        raise ValueError(f"no policy is named; choose from {', '.join(POLICIES)}")
    return [_setup(name, goal=goal, window=window, model=model) for name in names]


def tokens_of(text: str) -> int:
    """`200k`, `1m`, `200_000` or `200000` as a number."""
    lowered = text.strip().lower().replace(",", "").replace("_", "")
    factor = {"k": 1_000, "m": 1_000_000}.get(lowered[-1:], 1)
    digits = lowered.rstrip("km") if factor > 1 else lowered
    try:
        tokens = int(float(digits) * factor)
    except (OverflowError, ValueError) as error:
        raise ValueError(f"{text!r} is no number of tokens; write 200k or 200000") from error
    if tokens <= 0:
        raise ValueError(f"{text!r} is no number of tokens; it must be above 0")
    return tokens


def _setup(name: str, *, goal: str, window: int | None, model: str) -> Setup:
    policy, *extras = name.split(":")
    if policy not in POLICIES:
        raise ValueError(f"unknown policy {policy!r}; choose from {', '.join(POLICIES)}")
    unknown = [extra for extra in extras if extra not in (*GOALS, NAIVE)]
    if unknown:
        raise ValueError(
            f"unknown {unknown[0]!r} in {name!r}; a policy may carry a goal "
            f"({', '.join(GOALS)}) or {NAIVE}"
        )
    own = next((extra for extra in extras if extra in GOALS), goal)
    options: dict[str, Any] = {"policy": policy, "goal": own}
    if window is not None:
        options["context_window"] = window
    if resolve(model).dialect is None:
        options["dialect"] = "openai_chat"
    return Setup(name=name, options=options, model=model, naive_marks=NAIVE in extras)
