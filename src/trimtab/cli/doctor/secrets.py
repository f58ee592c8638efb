"""No line of the doctor's tells a secret, whoever's words it repeats."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from trimtab.cli.doctor.finding import Finding
from trimtab.redaction import PATTERNS

_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|DATABASE_URL", re.IGNORECASE)
_SECRET = re.compile(PATTERNS["secret"])
SHORTEST = 6
"""Characters of a value that can be told from a common word."""


def secrets_in(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables whose names say that they are secret."""
    return {
        name: value
        for name, value in environ.items()
        if _NAMES.search(name) and len(value) >= SHORTEST
    }


def hushed(finding: Finding, environ: Mapping[str, str]) -> Finding:
    """The finding without values of the environment that are secret by their names, and without
    what looks like a key."""
    text, to_do = finding.text, finding.next
    for value in sorted(secrets_in(environ).values(), key=len, reverse=True):
        text, to_do = text.replace(value, "…"), to_do.replace(value, "…")
    return replace(finding, text=_SECRET.sub("…", text), next=_SECRET.sub("…", to_do))
