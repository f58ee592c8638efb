"""The list of the user's words after a plan.

Its size is an estimate while groups are hidden one by one. It is built and counted exactly when it
is settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from trimtab.engine.log.event import Edit, Settings, Size
from trimtab.engine.policy.budget import Budget
from trimtab.engine.tokens.counter import measure_text_message
from trimtab.engine.window.structure import Group
from trimtab.engine.window.user_words import (
    USER_WORDS_HEADER,
    USER_WORDS_ROOM_DIVISOR,
    UserAndClientAllowance,
    UserWordsItem,
    UserWordsUpdate,
    WordTotals,
    compute_item_totals,
    compute_user_words_update,
    has_user_words,
    iter_user_words_of_entry,
    replace_repeated_client_text,
)
from trimtab.engine.window.window import Window

USER_WORDS_TOKENS_BY_GOAL = {"cost": 20_000}
"""By goal: tokens of user words that are kept whole. Other goals use `MAX_USER_WORDS_TOKENS`."""

MAX_USER_WORDS_TOKENS = 40_000


def compute_user_words_allowance(
    settings: Settings, budget: Budget
) -> UserAndClientAllowance | None:
    """Return the tokens that the list of the user's words may take; None if the policy keeps no
    list."""
    if settings.policy != "auto":
        return None
    params = settings.policy_params
    quarter = budget.room // USER_WORDS_ROOM_DIVISOR
    words, by = (
        min(USER_WORDS_TOKENS_BY_GOAL.get(str(params.get("goal")), MAX_USER_WORDS_TOKENS), quarter),
        "",
    )
    context = cast("Mapping[str, Any]", params.get("context") or {})
    summary = cast("Mapping[str, Any]", context.get("summary") or {})
    history = context.get("max_history_tokens")
    for name, most in (
        ("max_history_tokens", history // 2 if history else None),
        ("summary.max_tokens", summary.get("max_tokens")),
    ):
        if most is not None and most < words:
            words, by = most, name
    return UserAndClientAllowance(words, min(quarter, words) if by else quarter, by)


MAX_OMITTED_LINE_SIZE = Size(bytes=120, tokens=60)
"""Maximum size of the line that stands for messages left out of the list."""


class UserWordsPlan:
    """The current list of the user's words, and what a plan adds to it."""

    def __init__(self, window: Window, budget: Budget) -> None:
        self._window = window
        self._show_handles = window.settings.recall
        self.allowance = compute_user_words_allowance(window.settings, budget)
        self.size: Size = window.conversation.user_words.measure_all_blocks(
            window.counter, show_handles=self._show_handles
        )
        """Size of the whole list."""
        self._new_items: list[UserWordsItem] = []
        self._totals: WordTotals | None = None
        self._first_seen: dict[str, tuple[int, int]] = {}
        self._update: UserWordsUpdate | None = None
        self._is_limited = False

    def copy(self) -> UserWordsPlan:
        """Return a copy, so that changes can be undone."""
        made = object.__new__(UserWordsPlan)
        vars(made).update(vars(self))
        made._new_items, made._first_seen = [*self._new_items], dict(self._first_seen)
        return made

    @property
    def will_change(self) -> bool:
        """Whether the plan changes the list."""
        return self._is_limited or bool(self._new_items)

    @property
    def will_be_rebuilt(self) -> bool:
        """Whether the whole list will be built again."""
        return (
            self.will_change
            and self.allowance is not None
            and not self._current_totals().fits(self.allowance)
        )

    def add_hidden_group(self, group: Group) -> None:
        """Add the user messages of a hidden group to the list."""
        if self.allowance is None:
            return
        counter = self._window.counter
        found = [
            saying
            for entry in group.entries()
            for saying in iter_user_words_of_entry(entry, counter, show_handles=self._show_handles)
        ]
        total = self._current_totals()
        for saying in found:
            total += compute_item_totals(
                replace_repeated_client_text(saying, self._first_seen, counter)
            )
        if found:
            self._new_items += found
            self._totals = total
            self._estimate_size()

    def estimate_listed_tokens(self, group: Group) -> int:
        """Estimate the tokens of a group that would stay in the list."""
        said = 0
        for round in group.rounds:
            for entry in round.entries:
                if entry.message.role == "user" and has_user_words(entry):
                    said += entry.tokens
        if not said or self.allowance is None or not self._current_totals().fits(self.allowance):
            return 0
        return min(said, group.tokens)

    def would_list_all_whole(self, groups: Iterable[Group]) -> bool:
        """Whether every user message stays word for word if these groups are also hidden."""
        if self.allowance is None:
            return False
        total, first, counter = self._current_totals(), dict(self._first_seen), self._window.counter
        for entry in (entry for group in groups for entry in group.entries()):
            for saying in iter_user_words_of_entry(entry, counter, show_handles=self._show_handles):
                total += compute_item_totals(replace_repeated_client_text(saying, first, counter))
        return total.fits(self.allowance)

    def halve_allowance(self) -> bool:
        """Halve the list. Return False if nothing is left to halve."""
        if self.allowance is None:
            return False
        total = self._current_totals()
        words = min(self.allowance.user_tokens, total.user_tokens)
        instructions = min(self.allowance.client_tokens, total.client_tokens)
        if not (words or instructions):
            return False
        self.allowance = self.allowance._replace(
            user_tokens=words // 2, client_tokens=instructions // 2
        )
        self._is_limited = True
        self._estimate_size()
        return True

    def _current_totals(self) -> WordTotals:
        if self._totals is None:
            words, counter = self._window.conversation.user_words, self._window.counter
            self._totals, first = words.compute_totals(counter, show_handles=self._show_handles)
            self._first_seen = dict(first)
        return self._totals

    def _estimate_size(self) -> None:
        """Estimate the largest size of the list."""
        window, total, allowance = self._window, self._current_totals(), self.allowance
        if allowance is None:
            return
        self._update = None
        frame = measure_text_message(USER_WORDS_HEADER, window.counter)
        made = total.estimate_capped_size(allowance)
        around = [frame, MAX_OMITTED_LINE_SIZE]
        if total.fits(allowance):
            # The blocks so far stay as they are.
            before = window.conversation.user_words.measure_all_blocks(
                window.counter, show_handles=self._show_handles
            )
            known = window.conversation.user_words.compute_totals(
                window.counter, show_handles=self._show_handles
            )[0].estimate_capped_size(allowance)
            around = [frame, before, Size(bytes=-known.bytes, tokens=-known.tokens)]
        self.size = Size(
            bytes=made.bytes + sum(size.bytes for size in around),
            tokens=made.tokens + sum(size.tokens for size in around),
        )

    def build_update(self) -> None:
        """Build the list and count it."""
        if self.allowance is None or self._update is not None or not self.will_change:
            return
        window = self._window
        said = dict(window.conversation.user_words.messages)
        for saying in self._new_items:
            entry = window.entries[saying.listed_part.seq]
            said[entry.seq] = (entry.message, entry.at)
        self._update = compute_user_words_update(
            window.conversation.user_words,
            self._new_items,
            said,
            self.allowance,
            window.counter,
            show_handles=self._show_handles,
        )
        self.size = self._update.size

    def attach_to_edits(self, edits: Sequence[Edit]) -> list[Edit]:
        """Return the edits. The last edit that hides whole groups carries the new part of the
        list."""
        made, new = list(edits), self._update
        if new is None or not (new.listed_parts or new.relists):
            return made
        hides = [index for index, edit in enumerate(made) if edit.part is None]
        if not hides:
            # Nothing more is hidden: the list alone becomes shorter.
            hides = [len(made)]
            made.append(Edit(op="drop", first=0, last=0, why="the user's words: no room"))
        last = hides[-1]
        made[last] = replace(
            made[last], listed=new.listed_parts, relists=new.relists, left_out=new.left_out
        )
        return made
