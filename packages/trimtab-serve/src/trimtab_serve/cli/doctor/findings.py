"""The findings of `trimtab doctor`.

No finding contains a secret, even if it repeats an error of another program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from trimtab_serve.agent.secret_values import build_secret_mask

FindingState = Literal["ok", "warn", "bad", "skip"]
STATE_SIGNS: dict[FindingState, str] = {"ok": "✓", "warn": "!", "bad": "✗", "skip": "-"}
"""The sign before a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    about: str
    """What was checked."""
    state: FindingState
    """`warn` works, but not as it should. `bad` does not work."""
    text: str
    """What was found, with the numbers."""
    next: str = ""
    """What to do about it. Empty if there is nothing to do."""


def make_ok_finding(about: str, text: str) -> Finding:
    """Make a finding: it works."""
    return Finding(about=about, state="ok", text=text)


def make_warning_finding(about: str, text: str, next_step: str) -> Finding:
    """Make a finding: it works, but something should be changed."""
    return Finding(about=about, state="warn", text=text, next=next_step)


def make_failure_finding(about: str, text: str, next_step: str = "") -> Finding:
    """Make a finding: it does not work."""
    return Finding(about=about, state="bad", text=text, next=next_step)


def make_skipped_finding(about: str, text: str) -> Finding:
    """Make a finding: it was not checked."""
    return Finding(about=about, state="skip", text=text)


def redact_finding(finding: Finding, environ: Mapping[str, str]) -> Finding:
    """Return the finding without secret values of the environment and without texts that look like
    keys."""
    mask = build_secret_mask(environ)
    return replace(finding, text=mask(finding.text), next=mask(finding.next))
