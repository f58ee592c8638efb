"""What the doctor found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "bad", "skip"]
SIGNS: dict[State, str] = {"ok": "✓", "warn": "!", "bad": "✗", "skip": "-"}
"""What stands before a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    about: str
    """What was looked at."""
    state: State
    """`warn` works, but not as it should; `bad` does not."""
    text: str
    """What was found, with the numbers."""
    next: str = ""
    """What to do about it; empty where there is nothing to do."""


def ok(about: str, text: str) -> Finding:
    """All is well."""
    return Finding(about=about, state="ok", text=text)


def warn(about: str, text: str, to_do: str) -> Finding:
    """It works; but."""
    return Finding(about=about, state="warn", text=text, next=to_do)


def bad(about: str, text: str, to_do: str = "") -> Finding:
    """It does not work."""
    return Finding(about=about, state="bad", text=text, next=to_do)


def skip(about: str, text: str) -> Finding:
    """Nobody has looked."""
    return Finding(about=about, state="skip", text=text)
