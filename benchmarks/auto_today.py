"""What an earlier revision of `auto` saves and hides, on the conversations of auto_evidence.

    python -m benchmarks.auto_today --revision c2144b03 --populations

The engine is that of the revision, from a work tree outside of this one. What measures it is the
code of this checkout: its `trimtab.replay` is copied over the revision's. The sums of each
conversation are stored in `results/auto_today.json`, so that auto_evidence compares conversation by
conversation. What is stored of the same revision is not measured again: delete the file after a
change of what is measured. Another revision takes its place.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import trimtab
from benchmarks.harness import no_corpus, parser, skip
from benchmarks.recorded import Sums, make_baseline, make_setup, replay_sample, sum_runs
from benchmarks.samples import Sample, add_sample_arguments, choose_samples, shorten_id

ROOT = Path(__file__).parents[1]
STORED = Path(__file__).parent / "results" / "auto_today.json"
REVISION = "c2144b03"
LIBRARY = Path("packages", "trimtab", "src")
REPLAY_NEEDS = Path("engine", "log", "field_types.py")
"""A module that `trimtab.replay` imports and the revision does not have."""
GOALS = ("quality", "balanced", "cost")
StoredSums = dict[str, dict[str, dict[str, Sums]]]
"""By sample, setup and a hash of the conversation."""


def load_today(revision: str) -> StoredSums:
    """Return what is stored of a revision; nothing if another one is stored."""
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    if stored.get("revision") != revision:
        return {}
    assert stored["columns"] == list(Sums._fields), "stored by another auto_today: measure again"
    return {
        sample: {
            setup: {one: Sums(*row) for one, row in rows.items()} for setup, rows in setups.items()
        }
        for sample, setups in stored["sums"].items()
    }


def measure_revision(asked: argparse.Namespace) -> None:
    """Measure a revision in a work tree of its own, and store the sums."""
    flags = [f"--{name}" for name in ("quick", "populations") if getattr(asked, name)]
    values = {name: getattr(asked, name) for name in ("revision", "sample", "jobs")}
    flags += [f"--{name}={value}" for name, value in values.items() if value is not None]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "revision")
        _git("worktree", "add", "--detach", str(tree), asked.revision)
        try:
            package = LIBRARY / "trimtab"
            shutil.rmtree(tree / package / "replay")
            shutil.copytree(ROOT / package / "replay", tree / package / "replay")
            shutil.copy(ROOT / package / REPLAY_NEEDS, tree / package / REPLAY_NEEDS)
            paths = os.pathsep.join([str(tree / LIBRARY), str(ROOT)])
            subprocess.run(  # noqa: S603 - this module, with another library
                [sys.executable, "-m", "benchmarks.auto_today", *flags, "--inside", folder],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": paths},
                check=True,
            )
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True)  # noqa: S603, S607


def measure_here(asked: argparse.Namespace) -> None:
    """Measure the library on the path, sample by sample."""
    assert Path(trimtab.__file__).is_relative_to(asked.inside), trimtab.__file__
    with ProcessPoolExecutor(asked.jobs) as pool:
        for chosen in choose_samples(asked):
            stored = load_today(asked.revision).get(chosen.name, {})
            sample = _leave_out_stored(chosen, stored)
            if not sample.conversations:
                continue
            setups = [make_setup(goal, sample, policy="auto", goal=goal) for goal in GOALS]
            runs = replay_sample(pool, sample, (make_baseline(sample), *setups))
            sums = sum_runs(runs, sample.provider)
            store(asked.revision, sample.name, {goal: sums[goal] for goal in GOALS})


def _leave_out_stored(sample: Sample, stored: Mapping[str, Mapping[str, Sums]]) -> Sample:
    known = stored.get(GOALS[0], {})
    left = [one for one in sample.conversations if shorten_id(one.id) not in known]
    return replace(sample, conversations=tuple(left))


def store(revision: str, sample: str, sums: dict[str, dict[str, Sums]]) -> None:
    """Add the sums of a sample to those that are stored of the revision."""
    stored = load_today(revision)
    for setup, rows in sums.items():
        stored.setdefault(sample, {}).setdefault(setup, {}).update(rows)
    # One conversation a line, so that a change can be read.
    blocks = (
        f'"{name}": {{\n'
        + ",\n".join(
            f' "{setup}": {{\n'
            + ",\n".join(f'  "{one}": {json.dumps(rows[one])}' for one in sorted(rows))
            + "}"
            for setup, rows in setups.items()
        )
        + "}"
        for name, setups in stored.items()
    )
    text = f'{{"revision": "{revision}",\n"columns": {json.dumps(Sums._fields)},\n"sums": {{\n'
    STORED.write_text(text + ",\n".join(blocks) + "}}\n", encoding="utf-8")


def main() -> int:
    arguments = parser(__doc__)
    add_sample_arguments(arguments)
    arguments.add_argument("--revision", default=REVISION, help="the commit; default %(default)s")
    arguments.add_argument("--inside", help=argparse.SUPPRESS)
    asked = arguments.parse_args()
    missing = no_corpus()
    if missing is not None:
        return skip(missing, as_json=asked.json)
    if asked.inside:
        measure_here(asked)
        return 0
    measure_revision(asked)
    counts: dict[str, Any] = {
        sample: len(next(iter(setups.values())))
        for sample, setups in load_today(asked.revision).items()
    }
    print(json.dumps({"revision": asked.revision, "conversations": counts}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
