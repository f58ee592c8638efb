"""What `auto` saved and hid at an earlier revision, on the conversations of auto_evidence.

The sums of each conversation are stored in `results/auto_today.json`, so that auto_evidence
compares conversation by conversation. They were measured with the engine of that revision under
this replay. The replay now runs on `trimtab.verbs`, which the revision does not have: to compare
with another revision, store the sums that its own checkout measures.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.recorded import Sums

STORED = Path(__file__).parent / "results" / "auto_today.json"
REVISION = "c2144b03"
StoredSums = dict[str, dict[str, dict[str, Sums]]]
"""By sample, setup and a hash of the conversation."""


def load_today() -> StoredSums:
    """Return what is stored of the revision."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    assert stored["revision"] == REVISION
    assert stored["columns"] == list(Sums._fields), "other sums were stored"
    return {
        sample: {
            setup: {one: Sums(*row) for one, row in rows.items()} for setup, rows in setups.items()
        }
        for sample, setups in stored["sums"].items()
    }
