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
from trimtab.engine.policy.config import name_of_goal
from trimtab.engine.window.structure import Group
from trimtab.engine.window.user_words import (
    USER_WORDS_ROOM_DIVISOR,
    UserAndClientAllowance,
    UserWordsItem,
    UserWordsUpdate,
    WordTotals,
    has_user_words,
    make_said_message,
    replace_repeated_client_text,
)
from trimtab.engine.window.window import Window

MAX_USER_WORDS_TOKENS = 40_000
"""Tokens of user words that are kept whole."""
COST_USER_WORDS_TOKENS = 20_000
"""The same for goal `cost`."""


def compute_user_words_allowance(
    settings: Settings, budget: Budget
) -> UserAndClientAllowance | None:
    """Return the tokens that the list of the user's words may take; None if the policy keeps no
    list."""
    if settings.policy != "auto":
        return None
    params = settings.policy_params
    quarter = budget.room // USER_WORDS_ROOM_DIVISOR
    is_cost = name_of_goal(params.get("goal") or "balanced") == "cost"
    words = min(COST_USER_WORDS_TOKENS if is_cost else MAX_USER_WORDS_TOKENS, quarter)
    by = ""
    context = cast("Mapping[str, Any]", params.get("context") or {})
    summary = cast("Mapping[str, Any]", context.get("summary") or {})
    history = context.get("max_history_tokens")
    for name, most in (
        ("max_history_tokens", history // 2 if history else None),
        ("summary.max_tokens", summary.get("max_tokens")),
    ):
        if most is not None and most < words:
            words = most
            by = name
    return UserAndClientAllowance(words, min(quarter, words) if by else quarter, by)


MAX_FRAME_SIZE = Size(bytes=170, tokens=80)
"""Maximum size of the header of a block, and of the line that stands for messages left out."""


class UserWordsPlan:
    """The current list of the user's words, and what a plan adds to it."""

    def __init__(self, window: Window, budget: Budget) -> None:
        self._window = window
        self._user_words = window.conversation.user_words
        self._recall_hint = window.settings.recall_hint
        self.allowance = compute_user_words_allowance(window.settings, budget)
        self._size_now: Size = self._user_words.measure_all_blocks(
            window.counter, recall_hint=self._recall_hint
        )
        self._size: Size | None = self._size_now
        """None if it must be estimated."""
        self._new_items: list[UserWordsItem] = []
        self._totals: WordTotals | None = None
        self._first_seen: dict[str, tuple[int, int]] = {}
        self._update: UserWordsUpdate | None = None
        self._is_limited = False

    def copy(self) -> UserWordsPlan:
        """Return a copy, so that changes can be undone."""
        twin = object.__new__(UserWordsPlan)
        vars(twin).update(vars(self))
        twin._new_items = [*self._new_items]
        twin._first_seen = dict(self._first_seen)
        return twin

    @property
    def size(self) -> Size:
        """Size of the whole list after the plan. It is an estimate until the list is built."""
        if self._size is None:
            self._size = self._estimate_size()
        return self._size

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
        items = self._items_of_groups([group])
        if items:
            totals = self._current_totals()
            for item in items:
                totals = totals.with_item(replace_repeated_client_text(item, self._first_seen))
            self._totals = totals
            self._new_items += items
            self._size = self._update = None

    def _items_of_groups(self, groups: Iterable[Group]) -> list[UserWordsItem]:
        return [
            item
            for group in groups
            for entry in group.entries()
            for item in self._user_words.items_of_entry(entry)
        ]

    def estimate_listed_tokens(self, group: Group) -> int:
        """Estimate the tokens of a group that would stay in the list."""
        words_tokens = 0
        for round in group.rounds:
            for entry in round.entries:
                if has_user_words(entry):
                    words_tokens += entry.tokens
        if (
            not words_tokens
            or self.allowance is None
            or not self._current_totals().fits(self.allowance)
        ):
            return 0
        return min(words_tokens, group.tokens)

    def find_leaving(self, groups: Iterable[Group]) -> set[int]:
        """Return the positions of the messages that leave the list if these groups are also hidden,
        or leave it next: all for which three quarters of the list have no room."""
        if self.allowance is None:
            return set()
        items = [*self._new_items, *self._items_of_groups(groups)]
        if not self._compute_update(items, self.allowance).relists:
            return set()
        less = self.allowance.scaled(3, 4)
        seqs = {item.listed_part.seq for item in items} | self._user_words.messages.keys()
        return seqs - self._user_words.find_staying(items, less, self._window.counter)

    def halve_allowance(self) -> bool:
        """Halve the list. Return False if nothing is left to halve."""
        if self.allowance is None:
            return False
        total = self._current_totals()
        allowance = self.allowance._replace(
            user_tokens=min(self.allowance.user_tokens, total.user_tokens),
            client_tokens=min(self.allowance.client_tokens, total.client_tokens),
        )
        if not (allowance.user_tokens or allowance.client_tokens):
            return False
        self.allowance = allowance.scaled(1, 2)
        self._is_limited = True
        self._size = self._update = None
        return True

    def _current_totals(self) -> WordTotals:
        if self._totals is None:
            self._totals, first = self._user_words.compute_totals()
            self._first_seen = dict(first)
        return self._totals

    def _estimate_size(self) -> Size:
        totals = self._current_totals()
        allowance = self.allowance
        if allowance is None:
            return self._size_now
        sizes = [totals.estimate_capped_size(allowance), MAX_FRAME_SIZE]
        if totals.fits(allowance):
            # The blocks so far stay as they are.
            size_of_blocks = self._user_words.compute_totals()[0].estimate_capped_size(allowance)
            sizes += [
                self._size_now,
                Size(bytes=-size_of_blocks.bytes, tokens=-size_of_blocks.tokens),
            ]
        return Size(
            bytes=sum(size.bytes for size in sizes), tokens=sum(size.tokens for size in sizes)
        )

    def build_update(self) -> None:
        """Build the list and count it."""
        if self.allowance is None or self._update is not None or not self.will_change:
            return
        self._update = self._compute_update(self._new_items, self.allowance)
        self._size = self._update.size

    def _compute_update(
        self, items: Sequence[UserWordsItem], allowance: UserAndClientAllowance
    ) -> UserWordsUpdate:
        entries = self._window.entries
        return self._user_words.compute_update(
            items,
            {seq: make_said_message(entries[seq]) for seq in {i.listed_part.seq for i in items}},
            allowance,
            self._window.counter,
            recall_hint=self._recall_hint,
        )

    def attach_to_edits(self, edits: Sequence[Edit]) -> list[Edit]:
        """Return the edits. The last edit that hides whole groups carries the new part of the
        list."""
        edits_with_list = list(edits)
        new = self._update
        if new is None or not (new.listed_parts or new.relists):
            return edits_with_list
        hides = [index for index, edit in enumerate(edits_with_list) if edit.part is None]
        if not hides:
            # Nothing more is hidden: the list alone becomes shorter.
            hides = [len(edits_with_list)]
            edits_with_list.append(
                Edit(op="drop", first=0, last=0, why="the user's words: no room")
            )
        last = hides[-1]
        edits_with_list[last] = replace(
            edits_with_list[last],
            listed=new.listed_parts,
            relists=new.relists,
            left_out=new.left_out,
        )
        return edits_with_list
