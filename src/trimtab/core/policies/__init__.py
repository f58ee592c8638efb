"""Policies: when to hide, down to where, and what in which order.

A policy is a function from a window and a budget to a decision; to change one, write one.
"""

from __future__ import annotations

from typing import Literal

from trimtab.core.plan import Policy
from trimtab.core.policies.auto import auto
from trimtab.core.policies.compact import compact
from trimtab.core.policies.full import full
from trimtab.core.policies.knobs import Goal, Knobs, Summaries
from trimtab.core.policies.layered import layered
from trimtab.core.policies.rolling import rolling
from trimtab.core.policies.thresholds import thresholds

PolicyName = Literal["full", "layered", "compact", "rolling", "thresholds", "auto"]
POLICIES: tuple[PolicyName, ...] = ("full", "layered", "compact", "rolling", "thresholds", "auto")
DEFAULT: PolicyName = "auto"


def preset(name: str, knobs: Knobs, *, goal: Goal, summaries: Summaries) -> Policy:
    """The preset of that name with what the user set."""
    match name:
        case "full":
            return full(knobs)
        case "layered":
            return layered(knobs)
        case "compact":
            return compact(knobs, goal)
        case "rolling":
            return rolling(knobs, summaries)
        case "thresholds":
            return thresholds(knobs, summaries)
        case "auto":
            return auto(knobs, goal, summaries)
        case _:
            raise ValueError(f"unknown policy {name!r}; choose one of {', '.join(POLICIES)}")
