"""How many facts of a conversation are gone once it is summarised, and how many a search finds.

Probes are built from recorded conversations without a model: facts that one message states and
that the assistant needs much later; `probes.py` says how. The half that had no part in ranking the
list is measured, each conversation summarised once, in its middle. A probe is missed where its text
does not stand, to the letter, in

summary   the extractive summary, which stands in where no model is asked, 500 tokens
list      the same with its verbatim list, as it ships; and with lists of fixed sizes
search    the same, and not in what `search_history` answers to the words around the later use
          either: five passages, 2,000 tokens at most; `stated`: asked with the words around the
          place where the fact was stated
newest    the newest text of what is summarised, at as many tokens as summary and list take

Shares are of probes, with a 95 % bootstrap interval over conversations; `argument`, `text` and
`body` are the shares by how the fact was needed. Two things must hold: a list misses less than
newest text does, and a search asked with the words of the statement misses at most 0.05.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks import corpus
from benchmarks.halves import CorpusHalf, take_half
from benchmarks.harness import Report, finish, head, no_corpus, parser, progress, skip, table
from benchmarks.probes import Case, Probe, cases, told
from trimtab.engine.recall.search import (
    Query,
    get_message_search_text,
    rank_scored_positions,
    score_text,
)
from trimtab.engine.recall.snippets import MAX_SEARCHED_MESSAGES, format_best_snippets
from trimtab.engine.summaries.extract import extract_summary
from trimtab.engine.summaries.facts import add_verbatim_list
from trimtab.engine.summaries.format import (
    DEFAULT_LIST_TOKENS,
    LIST_SHARE_OF_REPLACED,
    MAX_LIST_TOKENS,
    MAX_SECTIONS_TOKENS,
    compute_list_cap,
)
from trimtab.engine.tokens.counter import TokenCounter, make_piecewise_counter
from trimtab.models.catalog import resolve_model_info
from trimtab.replay.selection import RecordedConversation

MODEL = "claude-sonnet-4-5"
"""Whose tokens are counted, as estimated."""
LISTS = (500, 1_000, 2_000, 4_000)
"""Tokens of other lists."""
USES = ("argument", "text", "body")
DRAWS = 1_000
QUICK = 6
"""One conversation in so many."""


@dataclass(slots=True)
class Row:
    """One way to answer probes."""

    name: str
    tokens: list[int] = field(default_factory=list[int])
    """Of the text, by conversation."""
    missed: list[list[Probe]] = field(default_factory=list[list[Probe]])
    """By conversation."""

    def add(self, text: str, case: Case, counter: TokenCounter, also: Sequence[bool] = ()) -> None:
        """`also` says of each probe whether something beside the text answers it."""
        self.tokens.append(counter.count(text))
        known = also or [False] * len(case.probes)
        self.missed.append(
            [
                p
                for p, given in zip(case.probes, known, strict=True)
                if not given and p.fact not in text
            ]
        )


class Search:
    """What `search_history` answers while a conversation's covered messages are hidden."""

    def __init__(self, case: Case, counter: TokenCounter) -> None:
        self._messages = dict(enumerate(case.covered))
        self._texts = [get_message_search_text(message) for message in case.covered]
        self._counter = counter

    def answers(self, question: str, fact: str) -> bool:
        query = Query.parse(question)
        hits = ((score_text(query, text), index) for index, text in enumerate(self._texts))
        chosen = {
            index: self._messages[index]
            for index in rank_scored_positions(hits, MAX_SEARCHED_MESSAGES)
        }
        return fact in format_best_snippets(chosen, query, self._counter)


def measure(every: Sequence[Case], counter: TokenCounter, lists: Sequence[int]) -> dict[str, Row]:
    rows: dict[str, Row] = {}

    def row(name: str) -> Row:
        return rows.setdefault(name, Row(name))

    for number, case in enumerate(every, 1):
        progress(f"{number} of {len(every)} conversations")
        plain = extract_summary("", case.covered, counter)
        seen = told(case.kept)
        whole = told(case.covered)
        cap = compute_list_cap(counter.count(whole))
        listed = add_verbatim_list(
            "", case.covered, plain, counter, list_tokens=cap, visible_text=seen
        )
        search = Search(case, counter)
        later = [search.answers(probe.question, probe.fact) for probe in case.probes]
        stated = [search.answers(probe.stated, probe.fact) for probe in case.probes]
        row("summary").add(plain, case, counter)
        row("list").add(listed, case, counter)
        row("search").add(listed, case, counter, later)
        row("search, stated").add(listed, case, counter, stated)
        row("search alone").add("", case, counter, later)
        row("newest").add(newest(whole, counter.count(listed), counter), case, counter)
        for size in lists:
            longer = add_verbatim_list(
                "", case.covered, plain, counter, list_tokens=size, visible_text=seen
            )
            row(f"list of {size:,}").add(longer, case, counter)
            same = newest(whole, counter.count(longer), counter)
            row(f"newest, as {size:,}").add(same, case, counter)
    return rows


def newest(text: str, tokens: int, counter: TokenCounter) -> str:
    """The end of a text that takes so many tokens."""
    low, high = 0, min(len(text), 20 * tokens)
    while low < high:
        middle = (low + high + 1) // 2
        fits = counter.count(text[len(text) - middle :]) <= tokens
        low, high = (middle, high) if fits else (low, middle - 1)
    return text[len(text) - low :]


def share(row: Row, every: Sequence[Case], use: str | None = None) -> float:
    def of(probes: Iterable[Probe]) -> int:
        return sum(use is None or probe.use == use for probe in probes)

    whole = sum(of(case.probes) for case in every)
    return round(sum(map(of, row.missed)) / whole, 3) if whole else 0.0


def interval(pairs: Sequence[tuple[int, int]], of: Callable[[int, int], float]) -> list[float]:
    pick = random.Random(7)  # noqa: S311 - not for secrets
    drawn: list[float] = []
    for _ in range(DRAWS):
        sample = pick.choices(pairs, k=len(pairs))
        drawn.append(of(sum(a for a, _ in sample), sum(b for _, b in sample)))
    drawn.sort()
    return [round(drawn[int(DRAWS * 0.025)], 3), round(drawn[int(DRAWS * 0.975) - 1], 3)]


def shown(row: Row, every: Sequence[Case]) -> dict[str, Any]:
    pairs = [(len(m), len(c.probes)) for m, c in zip(row.missed, every, strict=True)]
    low, high = interval(pairs, lambda missed, whole: missed / whole)
    return {
        "setup": row.name,
        "tokens": round(sum(row.tokens) / len(row.tokens)),
        "missed": share(row, every),
        "from": low,
        "to": high,
        **{use: share(row, every, use) for use in USES},
    }


def figures(rows: dict[str, Row], every: Sequence[Case]) -> Report:
    ratio = [
        (len(a), len(b)) for a, b in zip(rows["list"].missed, rows["newest"].missed, strict=True)
    ]
    own, peer = share(rows["list"], every), share(rows["newest"], every)
    stated = share(rows["search, stated"], every)
    return {
        "missed": share(rows["summary"], every),
        "missed_with_list": own,
        "missed_with_search": share(rows["search"], every),
        "missed_with_search_stated": stated,
        "missed_newest": peer,
        "list_over_newest": {
            "ratio": round(own / peer, 3) if peer else None,
            "interval": interval(ratio, lambda a, b: a / max(1, b)),
            "target": 0.5,
        },
        "broken": [
            *(["a list misses no less than newest text"] if own >= peer else []),
            *(["a search misses what it is asked for in its own words"] if stated > 0.05 else []),
        ],
    }


def recorded(half: CorpusHalf, one_in: int) -> list[RecordedConversation]:
    """The conversations of one half, each up to where its agent itself compacted."""
    every = (one for one in corpus.read_recorded("*.jsonl.gz") if one.part == 1)
    return take_half(every, half)[::one_in]


def main(given: argparse.Namespace) -> int:
    if why := no_corpus():
        return skip(why, as_json=given.json)
    counter = make_piecewise_counter(resolve_model_info(MODEL).tokenizer)
    every = cases(recorded(given.half, QUICK if given.quick else 1))
    rows = measure(every, counter, () if given.quick else LISTS)
    report: Report = {
        **head(),
        "sample": f"half {given.half}: {len(every)} conversations with "
        f"{sum(len(case.probes) for case in every)} probes; sections {MAX_SECTIONS_TOKENS} tokens, "
        f"list {LIST_SHARE_OF_REPLACED:.0%} of what is replaced, "
        f"{DEFAULT_LIST_TOKENS} to {MAX_LIST_TOKENS}",
        "rows": [shown(row, every) for row in rows.values()],
        **figures(rows, every),
    }
    return finish(report, show, as_json=given.json)


def show(report: Report) -> None:
    rows = report["rows"]
    print(f"\n{table(list(rows[0]), [list(row.values()) for row in rows])}\n")
    for name, value in report.items():
        if name not in ("command", "versions", "sample", "rows", "broken"):
            print(f"{name}: {value}")


def start() -> int:
    options = parser(__doc__)
    options.add_argument("--half", choices=("odd", "even", "all"), default="odd")
    return main(options.parse_args())


if __name__ == "__main__":
    sys.exit(start())
