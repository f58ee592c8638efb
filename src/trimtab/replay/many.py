"""All conversations under all setups, over all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from trimtab.replay.cache import Rules
from trimtab.replay.conversation import Conversation
from trimtab.replay.references import needs
from trimtab.replay.run import Run, Setup, replay

Progress = Callable[[int, int], None]
"""Told after each conversation: calls done, calls in all, over all setups."""


def run_all(
    conversations: Sequence[Conversation],
    setups: Sequence[Setup],
    providers: Mapping[str, Rules],
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> list[Run]:
    """Every conversation under every setup, in the order they were given."""
    total = sum(conversation.calls for conversation in conversations) * len(setups)
    done = 0
    found: dict[int, list[Run]] = {}
    for index, runs in _each(conversations, setups, dict(providers), jobs or os.cpu_count() or 1):
        found[index] = runs
        done += conversations[index].calls * len(setups)
        if progress is not None:
            progress(done, total)
    return [run for index in range(len(conversations)) for run in found[index]]


def _each(
    conversations: Sequence[Conversation],
    setups: Sequence[Setup],
    providers: dict[str, Rules],
    jobs: int,
) -> Iterator[tuple[int, list[Run]]]:
    # The longest first: none of them is left to run alone at the end.
    order = sorted(range(len(conversations)), key=lambda i: -conversations[i].calls)
    if jobs == 1 or len(order) < 2:
        for index in order:
            yield index, run_one(conversations[index], setups, providers)
        return
    with ProcessPoolExecutor(max_workers=min(jobs, len(order))) as pool:
        futures = {
            pool.submit(run_one, conversations[index], setups, providers): index for index in order
        }
        for future in as_completed(futures):
            yield futures[future], future.result()


def run_one(
    conversation: Conversation, setups: Sequence[Setup], providers: Mapping[str, Rules]
) -> list[Run]:
    """One conversation under every setup; what it refers to is found once."""
    wanted = needs(conversation.messages)
    runs: list[Run] = []
    for setup in setups:
        try:
            runs.append(replay(conversation, setup, providers, wanted))
        except Exception as error:
            error.add_note(f"in conversation {conversation.id} under {setup.name}")
            raise
    return runs
