"""The list of the user's words as a plan would leave it: estimated while groups are taken one by
one, made and counted exactly once it is settled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from trimtab.core.budget import Budget
from trimtab.core.event import Edit, Size
from trimtab.core.rounds import Group
from trimtab.core.tokens import size_of_text
from trimtab.core.user_words import (
    FRAME,
    Listing,
    Saying,
    Tally,
    allowance_of,
    has_words,
    listing,
    once,
    sayings_in,
    tallied,
)
from trimtab.core.window import Window

TOLD = Size(bytes=120, tokens=60)
"""Of the line that tells of messages which are left out, at most."""


class PlannedWords:
    """What is listed, and what is to be listed beside it."""

    def __init__(self, window: Window, budget: Budget) -> None:
        self._window = window
        self._recall = window.settings.recall
        self.allowance = allowance_of(window.settings, budget)
        self.size: Size = window.words.size(window.counter, recall=self._recall)
        """Of the whole list."""
        self._sayings: list[Saying] = []
        self._tally: Tally | None = None
        self._first: dict[str, tuple[int, int]] = {}
        self._listing: Listing | None = None
        self._limited = False

    def copy(self) -> PlannedWords:
        """The same, to come back to."""
        made = object.__new__(PlannedWords)
        vars(made).update(vars(self))
        made._sayings, made._first = [*self._sayings], dict(self._first)
        return made

    @property
    def changed(self) -> bool:
        """Whether the list will be another."""
        return self._limited or bool(self._sayings)

    @property
    def relists(self) -> bool:
        """Whether the list will be made anew."""
        return (
            self.changed and self.allowance is not None and not self._total().within(self.allowance)
        )

    def take(self, group: Group) -> None:
        """List what users said in a group that is hidden."""
        if self.allowance is None:
            return
        counter = self._window.counter
        found = [
            saying
            for entry in group.entries()
            for saying in sayings_in(entry, counter, recall=self._recall)
        ]
        total = self._total()
        for saying in found:
            total += tallied(once(saying, self._first, counter))
        if found:
            self._sayings += found
            self._tally = total
            self._estimate()

    def keeps(self, group: Group) -> int:
        """Tokens of a group that would go on standing in the list, about."""
        if self.allowance is None or not self._total().within(self.allowance):
            return 0
        said = (entry for entry in group.entries() if has_words(entry))
        return min(sum(entry.tokens for entry in said), group.tokens)

    def whole(self, groups: Iterable[Group]) -> bool:
        """Whether all that users said stays as it was said where groups are hidden, too."""
        if self.allowance is None:
            return False
        total, first, counter = self._total(), dict(self._first), self._window.counter
        for entry in (entry for group in groups for entry in group.entries()):
            for saying in sayings_in(entry, counter, recall=self._recall):
                total += tallied(once(saying, first, counter))
        return total.within(self.allowance)

    def halve(self) -> bool:
        """Let the list take half of what it may take or takes; False where that is nothing."""
        if self.allowance is None:
            return False
        total = self._total()
        words = min(self.allowance.words, total.words)
        instructions = min(self.allowance.instructions, total.instructions)
        if not (words or instructions):
            return False
        self.allowance = self.allowance._replace(words=words // 2, instructions=instructions // 2)
        self._limited = True
        self._estimate()
        return True

    def _total(self) -> Tally:
        if self._tally is None:
            words, counter = self._window.words, self._window.counter
            self._tally, first = words.tally(counter, recall=self._recall)
            self._first = dict(first)
        return self._tally

    def _estimate(self) -> None:
        """Count the list at its largest."""
        window, total, allowance = self._window, self._total(), self.allowance
        if allowance is None:
            return
        self._listing = None
        frame = size_of_text(FRAME, window.counter)
        made = total.capped(allowance)
        around = [frame, TOLD]
        if total.within(allowance):
            # The blocks so far stay as they are.
            before = window.words.size(window.counter, recall=self._recall)
            known = window.words.tally(window.counter, recall=self._recall)[0].capped(allowance)
            around = [frame, before, Size(bytes=-known.bytes, tokens=-known.tokens)]
        self.size = Size(
            bytes=made.bytes + sum(size.bytes for size in around),
            tokens=made.tokens + sum(size.tokens for size in around),
        )

    def settle(self) -> None:
        """Make the list and count it."""
        if self.allowance is None or self._listing is not None or not self.changed:
            return
        window = self._window
        said = dict(window.words.messages)
        for saying in self._sayings:
            entry = window.entries[saying.place.seq]
            said[entry.seq] = (entry.message, entry.at)
        self._listing = listing(
            window.words,
            self._sayings,
            said,
            self.allowance,
            window.counter,
            recall=self._recall,
        )
        self.size = self._listing.size

    def told_by(self, edits: Sequence[Edit]) -> list[Edit]:
        """The edits, the last of those that hide whole groups with what it lists."""
        made, new = list(edits), self._listing
        if new is None or not (new.places or new.relists):
            return made
        hides = [index for index, edit in enumerate(made) if edit.part is None]
        if not hides:
            # Nothing more is hidden: the list alone becomes shorter.
            hides = [len(made)]
            made.append(Edit(op="drop", first=0, last=0, why="the user's words: no room"))
        last = hides[-1]
        made[last] = replace(
            made[last], listed=new.places, relists=new.relists, left_out=new.left_out
        )
        return made
