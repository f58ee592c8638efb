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


def hushed(finding: Finding, environ: Mapping[str, str]) -> Finding:
    """The finding without values of the environment that are secret by their names, and without
    what looks like a key."""
    values = {value for name, value in environ.items() if _NAMES.search(name)}
    text, to_do = finding.text, finding.next
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= SHORTEST:
            text, to_do = text.replace(value, "…"), to_do.replace(value, "…")
    return replace(finding, text=_SECRET.sub("…", text), next=_SECRET.sub("…", to_do))
