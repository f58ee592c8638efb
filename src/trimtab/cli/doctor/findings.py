"""What the doctor found.

No line of the doctor's tells a secret, whoever's words it repeats.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from trimtab.redaction import REDACTION_PATTERNS

FindingState = Literal["ok", "warn", "bad", "skip"]
STATE_SIGNS: dict[FindingState, str] = {"ok": "✓", "warn": "!", "bad": "✗", "skip": "-"}
"""What stands before a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    about: str
    """What was looked at."""
    state: FindingState
    """`warn` works, but not as it should; `bad` does not."""
    text: str
    """What was found, with the numbers."""
    next: str = ""
    """What to do about it; empty where there is nothing to do."""


def make_ok_finding(about: str, text: str) -> Finding:
    """All is well."""
    return Finding(about=about, state="ok", text=text)


def make_warning_finding(about: str, text: str, next_step: str) -> Finding:
    """It works; but."""
    return Finding(about=about, state="warn", text=text, next=next_step)


def make_failure_finding(about: str, text: str, next_step: str = "") -> Finding:
    """It does not work."""
    return Finding(about=about, state="bad", text=text, next=next_step)


def make_skipped_finding(about: str, text: str) -> Finding:
    """Nobody has looked."""
    return Finding(about=about, state="skip", text=text)


_SECRET_NAMES = re.compile(
    r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|DATABASE_URL", re.IGNORECASE
)
_SECRET = re.compile(REDACTION_PATTERNS["secret"])
MIN_SECRET_CHARS = 6
"""Characters of a value that can be told from a common word."""


def find_secret_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables whose names say that they are secret."""
    return {
        name: value
        for name, value in environ.items()
        if _SECRET_NAMES.search(name) and len(value) >= MIN_SECRET_CHARS
    }


def redact_finding(finding: Finding, environ: Mapping[str, str]) -> Finding:
    """The finding without values of the environment that are secret by their names, and without
    what looks like a key."""
    text, to_do = finding.text, finding.next
    for value in sorted(find_secret_variables(environ).values(), key=len, reverse=True):
        text, to_do = text.replace(value, "…"), to_do.replace(value, "…")
    return replace(finding, text=_SECRET.sub("…", text), next=_SECRET.sub("…", to_do))
