"""What was found: which promise was broken, in which conversation, by which request."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

KINDS = {
    "v1": "the newest user message is in the request",
    "v2": "what hides makes the request smaller",
    "v3": "the provider takes the request",
    "v4": "the declared bound is not below the real size",
    "v5": "work grows with what is asked for",
    "v6": "a hostile text breaks nothing and does not become ours",
    "v7": "the request fits by the declared bound, or an error says why not",
    "v8": "the prompt grows at its end alone",
    "v9": "asking changes nothing",
    "v10": "nothing is lost, and what was erased is gone",
    "v11": "the log makes the same request again",
    "v12": "a history that is sent again is known again",
    "v13": "only documented errors are raised",
}
"""By name: the promise that a violation of this kind breaks."""
KEPT = 3
"""Violations of one rule that are kept with all that a person needs to see them, each of another
conversation."""


class Broken(NamedTuple):
    """What a check says about one request."""

    rule: str
    """A sentence that is the same each time this rule is broken."""
    detail: str = ""
    """What was found in its place, with numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    kind: str
    """A key of `KINDS`."""
    rule: str
    """Which rule was broken."""
    detail: str
    """What was found in its place."""
    where: str
    """The conversation: its seed, or the name of a fixed case."""
    step: int = 0
    """Steps of the conversation until then."""
    did: Sequence[str] = ()
    """The last steps, the newest at the end."""
    settings: str = ""
    """How the context was made."""
    request: str = ""
    """The request, shortened; empty if none was made."""

    def __str__(self) -> str:
        lines = [
            f"{self.kind} ({KINDS[self.kind]}): {self.rule}",
            f"  found: {self.detail}" if self.detail else "",
            f"  conversation {self.where}" + self._told_steps(),
            f"  settings: {self.settings}" if self.settings else "",
            f"  request: {self.request}" if self.request else "",
        ]
        return "\n".join(line for line in lines if line)

    def _told_steps(self) -> str:
        return f", step {self.step}: {' → '.join(self.did)}" if self.did else ""


Counts = dict[str, dict[str, int]]
"""By kind and rule: how often it was broken."""


@dataclass(slots=True)
class Findings:
    """All that some conversations have shown."""

    conversations: int = 0
    """Conversations that were had, fixed cases not included."""
    requests: int = 0
    """Requests that were checked."""
    figures: Counter[str] = field(default_factory=Counter[str])
    """By name: what was counted beside violations."""
    counted: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """By kind and rule."""
    told: list[Violation] = field(default_factory=list[Violation])
    """The first few of each rule."""

    def add(self, violation: Violation) -> None:
        self.counted[violation.kind, violation.rule] += 1
        self._keep(violation)

    def note(
        self,
        kind: str,
        broken: Iterable[Broken],
        *,
        where: str,
        request: Mapping[str, Any],
        **told: Any,
    ) -> None:
        """Add what a check has said; one rule counts once for one request."""
        for rule, detail in dict(broken).items():
            text = shortened(request) if request else ""
            violation = Violation(
                kind=kind, rule=rule, detail=detail, where=where, request=text, **told
            )
            self.add(violation)

    def _keep(self, violation: Violation) -> None:
        key = (violation.kind, violation.rule)
        alike = [each for each in self.told if (each.kind, each.rule) == key]
        if len(alike) < KEPT and violation.where not in {each.where for each in alike}:
            self.told.append(violation)

    def include(self, other: Findings) -> None:
        """Add what was found elsewhere."""
        self.conversations += other.conversations
        self.requests += other.requests
        self.figures += other.figures
        self.counted += other.counted
        for violation in other.told:
            self._keep(violation)

    @property
    def violations(self) -> int:
        return self.counted.total()

    def counts(self) -> Counts:
        found: Counts = {}
        for kind, rule in sorted(self.counted, key=lambda key: (list(KINDS).index(key[0]), key)):
            found.setdefault(kind, {})[rule] = self.counted[kind, rule]
        return found

    def of_kind(self, kind: str) -> int:
        return sum(count for (each, _), count in self.counted.items() if each == kind)

    def of_rules(self, rules: Iterable[tuple[str, str]]) -> str:
        """What a person needs to see the violations of some rules."""
        rule_set = set(rules)
        return "\n".join(str(each) for each in self.told if (each.kind, each.rule) in rule_set)


def shortened(request: Mapping[str, Any], most: int = 1_500) -> str:
    """A request as a person reads it: long texts cut, its last messages rather than its first."""
    name = "messages" if "messages" in request else "input"
    head = {key: value for key, value in request.items() if key not in (name, "tools", "system")}
    items = request.get(name)
    texts = [json.dumps(_cut(item), ensure_ascii=False) for item in items or ()]
    newest_texts: list[str] = []
    while texts and sum(map(len, newest_texts)) < most:
        newest_texts.insert(0, texts.pop())
    left_out = f"… {len(texts)} before … " if texts else ""
    return (
        f"{json.dumps(_cut(head), ensure_ascii=False)} {name}: {left_out}{' '.join(newest_texts)}"
    )


def _cut(value: Any) -> Any:
    match value:
        case str() if len(value) > 120:
            return f"{value[:60]}… {len(value):,} characters …{value[-30:]}"
        case dict():
            return {key: _cut(each) for key, each in value.items()}
        case list():
            return [_cut(each) for each in value]
        case _:
            return value
