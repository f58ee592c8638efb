"""What is known to be broken and not mended yet, and by how much: `expected.json`.

`quick` has, for each batch of the quick form, how often each rule is broken in it. These numbers
are exact, and their sums may only fall. `rates` has, for the whole form with its random seeds, how
often each rule may be broken in 1,000 requests: about twice what some 36,000 of them have shown. A
rule that is not in it must not be broken at all.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.adversary.findings import Counts, Findings

FILE = Path(__file__).with_name("expected.json")
AGAIN = "python -m tests.soak.adversary --quick --record"
MORE = (
    "A promise is broken more often than before. If the change only lets conversations go another "
    f"way, `{AGAIN}` writes the new numbers. It refuses if the sum of a rule over all batches has "
    "risen. In that case the change breaks something: mend it."
)
FEWER = (
    "A promise is broken less often than before. Write that down in the same change, so that the "
    f"number cannot rise again: `{AGAIN}`."
)
CLUSTER = 60
"""Violations that one conversation may add by chance: a text that was cut stays so in each request
after it."""

Key = tuple[str, str]
"""Kind and rule."""


def table() -> dict[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))


def expected_of(batch: str) -> Counts:
    return table()["quick"].get(batch, {})


def _flat(counts: Mapping[str, Mapping[str, float]]) -> dict[Key, float]:
    return {(kind, rule): n for kind, rules in counts.items() for rule, n in rules.items()}


def compare(batch: str, findings: Findings, expected: Counts) -> str:
    """What to tell somebody whose change makes a batch find more or less; empty if it does not."""
    expected_counts, counts = _flat(expected), findings.counted
    more = [key for key in counts if counts[key] > expected_counts.get(key, 0)]
    fewer = [key for key in expected_counts if counts[key] < expected_counts[key]]
    lines = [
        f"{batch}: {kind}, {rule}: {counts[kind, rule]}, "
        f"expected {expected_counts.get((kind, rule), 0)}"
        for kind, rule in (*more, *fewer)
    ]
    if more:
        lines += [MORE, findings.of_rules(more)]
    elif fewer:
        lines.append(FEWER)
    return "\n".join(lines)


def sums(batches: Iterable[Counts]) -> Counter[Key]:
    """How often each rule is broken in all batches together."""
    total = Counter[Key]()
    for counts in batches:
        total.update({key: int(n) for key, n in _flat(counts).items()})
    return total


def record(found: Mapping[str, Findings], file: Path = FILE) -> list[str]:
    """Write what all batches have found; returns why not, if a sum has risen.

    A rule that no batch breaks any more has no rate either: it must hold from now on.
    """
    old = json.loads(file.read_text(encoding="utf-8"))
    before = sums(old["quick"].values())
    now = sums(findings.counts() for findings in found.values())
    risen = [
        f"{kind}, {rule}: {now[kind, rule]} in all batches, expected {before[kind, rule]} at most"
        for kind, rule in now
        if now[kind, rule] > before[kind, rule]
    ]
    if not risen:
        old["quick"] = {name: findings.counts() for name, findings in found.items()}
        mended_keys = {key for key in before if not now[key]}
        old["rates"] = {
            kind: {rule: rate for rule, rate in rules.items() if (kind, rule) not in mended_keys}
            for kind, rules in old["rates"].items()
        }
        text = json.dumps(old, indent=2, ensure_ascii=False)
        file.write_text(f"{text}\n", encoding="utf-8")
    return risen


def too_often(findings: Findings, rates: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """What random conversations have broken more often than they may."""
    rates_by_rule = _flat(rates)
    for key, count in findings.counted.items():
        rate, kind_and_rule = rates_by_rule.get(key), ", ".join(key)
        if rate is None:
            yield f"{kind_and_rule}: broken {count} times, and it is not known to be\n" + (
                findings.of_rules([key])
            )
            continue
        most = rate * findings.requests / 1_000 + CLUSTER
        if count > most:
            yield (
                f"{kind_and_rule}: broken {count} times in {findings.requests:,} requests; at most "
                f"{rate:g} in 1,000 and {CLUSTER} more are expected\n{findings.of_rules([key])}"
            )
