"""Parse what a replay compares: `auto,auto:cost,layered:naive` and `200k`."""

from __future__ import annotations

from typing import Any

from trimtab.engine.policy.config import GOALS, Goal, parse_goal
from trimtab.engine.policy.presets import POLICY_NAMES
from trimtab.models.catalog import resolve_model_info
from trimtab.replay.runner import EVERYTHING, ReplaySetup

NAIVE_MARKS_SUFFIX = "naive"


def parse_setups(policies: str, *, window: int | None, model: str) -> list[ReplaySetup]:
    """Parse the policies into setups, with the baseline before them. Raise `ValueError` with the
    valid names."""
    names = list(dict.fromkeys(name.strip() for name in policies.split(",") if name.strip()))
    if not names:
        raise ValueError(f"no policy is named; choose from {', '.join(POLICY_NAMES)}")
    setups = [_parse_setup(name, window=window, model=model) for name in names]
    options: dict[str, Any] = {"policy": EVERYTHING}
    if window is not None:
        options["context_window"] = window
    return [ReplaySetup(name=EVERYTHING, options=options, model=model), *setups]


def parse_token_count(text: str) -> int:
    """Parse `200k`, `1m`, `200_000` or `200000` as a number."""
    lower_text = text.strip().lower().replace(",", "").replace("_", "")
    factor = {"k": 1_000, "m": 1_000_000}.get(lower_text[-1:], 1)
    digits = lower_text.rstrip("km") if factor > 1 else lower_text
    try:
        tokens = int(float(digits) * factor)
    except (OverflowError, ValueError) as error:
        raise ValueError(f"invalid number of tokens {text!r}: write 200k or 200000") from error
    if tokens <= 0:
        raise ValueError(f"invalid number of tokens {text!r}: it must be above 0")
    return tokens


def _parse_setup(name: str, *, window: int | None, model: str) -> ReplaySetup:
    policy, *extras = name.split(":")
    if policy not in POLICY_NAMES:
        raise ValueError(f"unknown policy {policy!r}; choose from {', '.join(POLICY_NAMES)}")
    goal: Goal = "balanced"
    extra = ""
    try:
        for extra in extras:
            if extra != NAIVE_MARKS_SUFFIX:
                goal = parse_goal(extra)
    except ValueError as error:
        raise ValueError(
            f"unknown {extra!r} in {name!r}; after a policy, write a goal "
            f"({', '.join(GOALS)}, or a price such as 1) or {NAIVE_MARKS_SUFFIX}"
        ) from error
    options: dict[str, Any] = {"policy": policy, "goal": goal}
    if window is not None:
        options["context_window"] = window
    if resolve_model_info(model).dialect is None:
        options["dialect"] = "openai_chat"
    return ReplaySetup(
        name=name, options=options, model=model, naive_marks=NAIVE_MARKS_SUFFIX in extras
    )
