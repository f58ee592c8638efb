"""Conversations that were made to trouble `Context`, and which promises their requests break.

Users, models and tools of three dialects say texts of many kinds, some of which imitate ours. Ids
are reused, results come late or never. People undo, erase and pin, and change the model, the window
and the policy. The provider refuses requests for their length. Each request is checked by rules
from the providers' documentation and from the laws. Some fixed cases come first.

requests       that were checked
violations     rules that were broken, each counted once for a request
v1 … v13       the same by the promise that was broken; the rows name the rules

What is known and not mended yet stands in `tests/adversary/expected.json`. Broken is whatever goes
beyond it: with `--quick`, which asks the same each time, by one violation; else by the rate.
`--seed N --conversations 1` has conversation N once more, `--small` as the quick form has it.
"""

from __future__ import annotations

import secrets
import sys
from typing import Any

from benchmarks.harness import Report, finish, head, parser, progress, table
from tests.adversary.expected import compare, expected_of, record, too_often
from tests.adversary.expected import table as table_of_expected
from tests.adversary.findings import KINDS, Findings
from tests.adversary.running import FIXED, QUICK, Batch, converse

SECONDS = 150
FIGURES = ("cannot_fit", "ended_early", "estimated", "estimated_over_limit")
"""Beside violations: requests that were refused by `CannotFit`, conversations that could not go on,
requests whose size was estimated, and those of them that are really over the limit."""


def main(asked: Any) -> tuple[Report, Findings]:
    alike = asked.quick and asked.seed is None
    by_batch = {batch.name: _found(batch) for batch in (QUICK if alike else FIXED)}
    broken = [
        told
        for name, found in by_batch.items()
        if (told := compare(name, found, expected_of(name)))
    ]
    seed, whole = asked.seed, Findings()
    if asked.record:
        broken = record(by_batch)
    if not alike:
        seed = secrets.randbelow(10**9) if asked.seed is None else asked.seed
        seconds = None if asked.conversations else asked.seconds
        small = asked.small or asked.quick
        whole = converse(seed, seconds=seconds, conversations=asked.conversations, small=small)
        broken += too_often(whole, table_of_expected()["rates"])
    for found in by_batch.values():
        whole.include(found)
    return _report(whole, seed, broken), whole


def _found(batch: Batch) -> Findings:
    progress(batch.name)
    return batch.found()


def _report(found: Findings, seed: int | None, broken: list[str]) -> Report:
    rows = [
        {"kind": kind, "times": n, "per 1,000": round(1_000 * n / found.requests, 2), "rule": rule}
        for kind, rules in found.counts().items()
        for rule, n in rules.items()
    ]
    return {
        "sample": f"{found.conversations:,} conversations"
        + (f" from seed {seed}" if seed is not None else " of the quick form"),
        "seed": seed,
        "conversations": found.conversations,
        "requests": found.requests,
        "violations": found.violations,
        **{kind: found.of_kind(kind) for kind in KINDS},
        **{name: found.figures[name] for name in FIGURES},
        "rows": rows,
        "broken": broken,
    }


def show(report: Report, found: Findings) -> None:
    for name in ("requests", "violations", *KINDS, *FIGURES):
        print(f"{name}: {report[name]:,}" + (f"  {KINDS[name]}" if name in KINDS else ""))
    rows = [list(row.values()) for row in report["rows"]]
    if rows:
        print(f"\n{table(list(report['rows'][0]), rows)}\n")
    for violation in found.told:
        print(f"{violation}\n")


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--seconds", type=float, default=SECONDS, help="of conversations")
    arguments.add_argument(
        "--conversations", type=int, help="so many instead, whatever time it takes"
    )
    arguments.add_argument("--seed", type=int, help="of the first conversation; else a random one")
    arguments.add_argument("--small", action="store_true", help="conversations of the quick form")
    arguments.add_argument(
        "--record", action="store_true", help="with --quick: write what is expected, if it fell"
    )
    asked = arguments.parse_args()
    if asked.record and (not asked.quick or asked.seed is not None):
        arguments.error("--record needs --quick, without --seed: only its numbers are exact")
    report, found = main(asked)
    whole = {**head(), **report}
    sys.exit(finish(whole, lambda told: show(told, found), as_json=asked.json))
