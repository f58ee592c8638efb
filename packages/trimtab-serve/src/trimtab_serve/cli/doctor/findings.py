"""The findings of `trimtab doctor`.

No finding contains a secret, even if it repeats an error of another program.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from trimtab.engine.log.redaction import REDACTION_PATTERNS

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


_SECRET_NAMES = re.compile(
    r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|DATABASE_URL", re.IGNORECASE
)
_SECRET = re.compile(REDACTION_PATTERNS["secret"])
MIN_SECRET_CHARS = 6
"""Shorter values are not treated as secrets: they could be common words."""


def find_secret_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose names say that they are secret."""
    return {
        name: value
        for name, value in environ.items()
        if _SECRET_NAMES.search(name) and len(value) >= MIN_SECRET_CHARS
    }


def redact_finding(finding: Finding, environ: Mapping[str, str]) -> Finding:
    """Return the finding without secret values of the environment and without texts that look like
    keys."""
    text, to_do = finding.text, finding.next
    for value in sorted(find_secret_variables(environ).values(), key=len, reverse=True):
        text, to_do = text.replace(value, "…"), to_do.replace(value, "…")
    return replace(finding, text=_SECRET.sub("…", text), next=_SECRET.sub("…", to_do))
