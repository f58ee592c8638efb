"""The draft of a policy's decision: edits that are not made yet, and what they would leave.

A policy reads the window, asks the plan for edits and reads the totals. The plan refuses an edit
that would not make the window smaller. So no policy can mask a placeholder again or make a text
longer.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, cast

from trimtab.engine.log.deferred_tools import loads_tools
from trimtab.engine.log.edits import (
    TruncateStrategy,
    add_quoted_identifiers,
    add_recall_handle,
    apply_edit_to_part,
    count_chars_within_bytes,
    count_tail_chars_within_bytes,
    extract_editable_text,
    format_dropped_messages_notice,
    format_hidden_argument_placeholder,
    format_mask_placeholder,
    format_result_summary_header,
    format_shortened_header,
    format_truncation_indicator,
)
from trimtab.engine.log.event import Edit, Size
from trimtab.engine.log.excerpts import KeptPieces, render_kept_pieces, select_kept_pieces
from trimtab.engine.log.message import OpaqueBlock, Text, ToolCall
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.planning.kept_files import find_results_of_kept_files
from trimtab.engine.policy.planning.relevance import get_result_identifiers
from trimtab.engine.policy.planning.user_words import UserWordsPlan
from trimtab.engine.policy.view import WindowView
from trimtab.engine.tokens.counter import (
    MediaSize,
    compute_input_upper_bound,
    count_tokens_inserted_by_edit,
    estimate_request_bytes,
    get_text_tokens,
    measure_media,
    measure_part,
    measure_text_message,
)
from trimtab.engine.window.structure import Entry, Group, ToolResultView
from trimtab.engine.window.window import Window

PLACEHOLDER_TOKENS = 60
"""Maximum tokens of a result that is about as small as the placeholder that would replace it."""

MAX_REMEMBERED = 2_048
"""Maximum number of cuts, and of sizes of edited parts, to remember between plans."""

MIN_CUT_FILL = 0.9
"""Share of its room that both ends of a cut text take together, if possible."""

_LONGEST_LINES_NOTE = (
    "1,000,000 of 1,000,000 lines, 1,000 of them in between look like errors, 1,000,000 repeated"
)
"""About the longest description of what is shown of a long text."""

CapUnit = Literal["tokens", "bytes/4", "bytes", "chars"]
"""What the size of a text is measured in."""
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCap:
    """The maximum size of one text, and how the text says that it was cut."""

    amount: int
    """The maximum, in `unit`. It includes the indicator unless `indicator_is_extra` is set."""
    unit: CapUnit = "tokens"
    """The unit of `amount`. `tokens` uses the window's own counter."""
    strategy: TruncateStrategy | Literal["lines"] = "head"
    """Which end is kept. `lines` keeps both ends and the lines between them that look like
    errors."""
    format_indicator: Callable[[TruncateStrategy, int, int], str] = format_truncation_indicator
    """Returns the indicator for the strategy, the kept amount and the total amount. `lines` has its
    own indicator."""
    max_names: int = 0
    """Maximum number of words from the cut text in the indicator. 5 tokens are reserved for
    each."""
    indicator_is_extra: bool = False
    """True if `amount` does not include the indicator. The indicator then names the exact kept
    amount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSpan:
    """A range of messages, by position in the log."""

    first: int
    """Position of the first message."""
    last: int
    """Position of the last message."""
    log_position: int | None = None
    """The length of the log when the range was chosen. It is used to detect later changes."""
    prior_summary_span: tuple[int, int] | None = None
    """The first and the last message that the previous summary covers; None without a previous
    summary."""
    spares: tuple[int, ...] = ()
    """Positions of the first messages of groups within the range that stay unchanged."""

    def replaces(self, group: Group) -> bool:
        """Whether a group of the range is visible and will be replaced."""
        return group.hidden is None and group.first not in self.spares


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a policy wants done before the next call."""

    edits: tuple[Edit, ...] = ()
    """The edits, in the order in which to append them."""
    note: Mapping[str, Any] | None = None
    """The policy's own small record. It is stored with the call."""
    span_to_summarise: MessageSpan | None = None
    """Messages that a model should summarise."""
    summary_tokens: int | None = None
    """Maximum tokens of a summary; None if it only has to be smaller than what it replaces."""
    list_tokens: int | None = None
    """Maximum tokens of the summary's list, in addition to `summary_tokens`; None for the
    default."""
    frontier: int | None = None
    """Position of the first message that the next compaction could touch."""


Policy = Callable[[Window, Budget], Decision]
"""A function of a window and a budget that returns a `Decision`. It runs before every call. It may
also be written for a `WindowView`."""


class Plan:
    """A draft of edits, and the size of what they would leave.

    A policy creates a plan, calls methods such as `mask`, `truncate` and `drop`, reads `tokens`,
    `bytes` or `bound()`, and returns `to_decision()`. Methods that hide something return True if
    the plan now contains the edit, and False if the edit would not help or is not allowed.

    Args:
        window: The window that the policy got as its argument.
        budget: The budget that the policy got as its argument.

    Raises:
        TypeError: `window` is not the window that the policy got.
    """

    def __init__(self, window: WindowView, budget: Budget) -> None:
        if not isinstance(window, Window):
            raise TypeError(
                f"Plan() needs the window that the policy got as its argument, not {window!r}"
            )
        self.window: Window = window
        self.budget = budget
        self.bytes: int = window.bytes
        self.tokens: int = window.tokens
        self.media_bytes: int = window.conversation.media_bytes
        self.visible_messages: int = window.visible_messages
        self.turn_bytes: int = window.conversation.turn_bytes
        self.breaks_prefix = False
        self.only_reaches_target = False
        """Whether content is hidden to reach a target, and not because the limit is exceeded."""
        self._parts: dict[tuple[int, int], Edit] = {}
        self._groups: dict[int, tuple[int, int]] = {}
        self._dropped: dict[int, tuple[Group, str]] = {}
        self._summary: Edit | None = None
        self._summarised: dict[int, Group] = {}
        self._told: Size = window.conversation.summary_and_notice_size
        self._came = 0
        self._words = UserWordsPlan(window, budget)
        self._listed: Size = self._words.size
        self._kept: frozenset[tuple[int, int]] | None = None

    def adopt_edits(self, edits: Iterable[Edit]) -> None:
        """Add edits that a policy has decided, by the same rules as the methods of the plan."""
        drops: dict[int, tuple[Group, str]] = {}
        summaries: list[Edit] = []
        conversation = self.window.conversation
        for edit in edits:
            match edit.op:
                case "mask" | "truncate" if edit.part is not None:
                    entry = self.window.entries.get(edit.first)
                    if entry is not None and 0 <= edit.part < len(entry.message.parts):
                        self._put_part_edit(entry, edit.part, edit)
                case "summarise":
                    summaries.append(edit)
                case "drop":
                    groups = conversation.visible_groups_between(edit.first, edit.last)
                    # Instructions go only if they alone are named.
                    groups_to_drop = [g for g in groups if not g.has_instructions] or groups
                    drops |= {group.index: (group, edit.why) for group in groups_to_drop}
                case _:
                    pass
        for edit in summaries:
            groups = conversation.visible_groups_between(edit.first, edit.last)
            groups_to_summarise = [group for group in groups if group.first not in edit.spares]
            self.summarise(groups_to_summarise, edit.text, edit.why, also_hidden=drops)
        # A summary, whichever was named first, has taken some of them.
        may_go = [
            group for group, _ in drops.values() if self.may_hide(group, include_instructions=True)
        ]
        may_go = self.order_for_hiding(may_go)
        if not may_go:
            return
        # Whether a notice stands already makes no difference: asked again, the answer is the same.
        notice = self.window.conversation.measure_summary_and_notice(
            "", self._longest_notice()
        ).tokens
        if sum(self._group_size(group)[1] for group in may_go) > notice:
            for group in may_go:
                self.drop(group, drops[group.index][1], include_instructions=True)

    @property
    def summary(self) -> Edit | None:
        """The summary in force after the plan."""
        return self._summary or self.window.summary

    def bound(self) -> int:
        """Return the upper bound of the input tokens after the plan."""
        window = self.window
        anchor = self.window.accounting.usage_anchor
        ratio = self.budget.ratio
        whole = self.budget.head.tokens + self.tokens + self.budget.volatile
        estimated_bound = compute_input_upper_bound(
            counter=window.counter, new_tokens=whole, learned_ratio=ratio
        )
        if self.breaks_prefix or anchor is None:
            return min(estimated_bound, self._carried_bound(estimated_bound))
        new = max(0, self.tokens - anchor.message_tokens) + self.budget.volatile
        usage = anchor.reported_tokens
        bound_from_usage = compute_input_upper_bound(
            counter=window.counter, reported_tokens=usage, new_tokens=new, learned_ratio=ratio
        )
        # A tail is in the usage, too, and is not sent again.
        return min(bound_from_usage, estimated_bound) if anchor.had_volatile else bound_from_usage

    def _carried_bound(self, estimated_bound: int) -> int:
        """Return the bound based on the last request, minus what was removed, plus what was added.

        An edit that makes the context smaller must not make its bound larger.
        """
        usage = self.window.accounting.compute_carried_usage(self.window.conversation)
        if usage is None:
            return estimated_bound
        window = self.window
        counter = self.window.counter
        front = window.conversation.new_front_tokens(usage.front)
        if self._summary is not None:
            front = front._replace(summary=self._summary.size.tokens)
        if self._dropped:
            front = front._replace(
                notice=measure_text_message(self._longest_notice(), counter).tokens
            )
        if self._words.will_change:
            words = self._words.size.tokens
            if not self._words.will_be_rebuilt:
                list_tokens = window.conversation.user_words.measure_all_blocks(
                    counter, recall_hint=window.settings.recall_hint
                ).tokens
                words += front.words - list_tokens
            front = front._replace(words=words)
        usage = usage._replace(replacement_tokens=usage.replacement_tokens + self._came)
        return usage.bound_tokens(
            counter,
            self.budget.ratio,
            message_tokens=self.tokens,
            front_tokens=sum(front),
            volatile_tokens=self.budget.volatile,
        )

    def request_bytes(self) -> int:
        """Return the bytes of the request after the plan."""
        texts = self.budget.head.bytes + self.bytes + 4 * self.budget.volatile
        return estimate_request_bytes(texts, self.visible_messages, self.media_bytes)

    def fits_request_bytes(self) -> bool:
        """Whether the provider accepts a request of that many bytes."""
        most = self.budget.request_limits.max_bytes
        return not most or self.request_bytes() <= most

    @property
    def lists_user_words(self) -> bool:
        """Whether user messages from hidden groups go into the list of the user's words."""
        return self._words.allowance is not None

    def find_user_messages_leaving(self, groups: Iterable[Group]) -> set[int]:
        """Return the positions of the user messages that leave the list if these groups are also
        hidden, or may leave it soon."""
        return self._words.find_leaving(groups)

    @property
    def user_words_tokens(self) -> int:
        """Tokens of the list of the user's words after the plan."""
        return self._words.size.tokens

    @property
    def message_tokens(self) -> int:
        """Tokens of the shown messages, without summary, notice and list before them."""
        return self.tokens - self._told.tokens - self._listed.tokens

    def halve_user_words(self) -> bool:
        """Halve the list of the user's words. Return False if the list is already empty."""
        is_shorter = self._words.halve_allowance()
        self._recount_user_words()
        return is_shorter

    def settle_user_words(self) -> None:
        """Build the list of the user's words and count it exactly. Before this, its size is an
        estimate."""
        self._words.build_update()
        self._recount_user_words()

    def _recount_user_words(self) -> None:
        before = self._listed
        self._listed = self._words.size
        self.bytes += self._listed.bytes - before.bytes
        self.tokens += self._listed.tokens - before.tokens
        self.breaks_prefix = self.breaks_prefix or self._words.will_change

    def visible_groups(self) -> list[Group]:
        """Return the visible groups that the plan has not hidden, oldest first."""
        groups = self.window.visible_groups.values()
        if not (self._dropped or self._summarised):
            return list(groups)
        return [group for group in groups if not self.hides(group)]

    def hides(self, group: Group) -> bool:
        return group.index in self._dropped or group.index in self._summarised

    @property
    def keep_last_results(self) -> frozenset[tuple[int, int]]:
        """Keys of the results that the user wants hidden last."""
        if self._kept is None:
            self._kept = find_results_of_kept_files(self.window)
        return self._kept

    def holds_keep_last_result(self, group: Group) -> bool:
        """Whether a group holds a visible result that the user wants hidden last."""
        return bool(self.keep_last_results) and any(
            r.key in self.keep_last_results and self.shows(r) for r in group.results()
        )

    def order_for_hiding(self, groups: Iterable[Group]) -> list[Group]:
        """Return groups in the order in which to hide them.

        Groups that hold a result to be hidden last come after all groups that hold other results. A
        group that loaded a tool comes after the last group that calls it. It is left out if such a
        group would stay.
        """
        candidates = self._without_needed(self._order_keep_last_groups(groups))
        if not any(group.calling_groups for group in candidates):
            return candidates
        place = {group.index: number for number, group in enumerate(candidates)}
        for group in sorted(candidates, key=lambda group: -group.index):
            after = (place.get(index, 0) for index in group.calling_groups)
            place[group.index] = max(place[group.index], *after, 0)
        return sorted(candidates, key=lambda group: (place[group.index], -group.index))

    def is_needed(self, group: Group, also_hidden: Container[int] = ()) -> bool:
        """Whether a group loaded a tool that a shown call uses. The model must see both or none."""
        groups = self.window.conversation.groups
        return any(
            groups[index].hidden is None
            and not self.hides(groups[index])
            and index not in also_hidden
            for index in reversed(group.calling_groups)
        )

    def _without_needed(self, groups: list[Group], also_hidden: Iterable[int] = ()) -> list[Group]:
        """Leave out groups that loaded tools for calls that would stay."""
        hidden_indexes = {*also_hidden, *(group.index for group in groups)}
        loading = [group for group in groups if group.calling_groups]
        for group in sorted(loading, key=lambda group: -group.index):
            if self.is_needed(group, hidden_indexes):
                hidden_indexes.discard(group.index)
        return [group for group in groups if group.index in hidden_indexes]

    def _order_keep_last_groups(self, groups: Iterable[Group]) -> list[Group]:
        sequence = list(groups)
        if not self.keep_last_results:
            return sequence
        keep_last = {group.index for group in sequence if self.holds_keep_last_result(group)}
        others = (
            at for at, g in enumerate(sequence) if g.index not in keep_last and any(g.results())
        )
        end = max(others, default=-1) + 1
        first = [group for group in sequence[:end] if group.index not in keep_last]
        return [*first, *(g for g in sequence[:end] if g.index in keep_last), *sequence[end:]]

    def _current_edit(self, entry: Entry, part: int) -> Edit | None:
        """Return the edit of a part after the plan."""
        return self._parts.get((entry.seq, part)) or entry.edits.get(part)

    def part_size(self, entry: Entry, part: int) -> Size:
        """Return the size of a part after the plan."""
        edit = self._parts.get((entry.seq, part))
        return entry.shown_size(part) if edit is None else edit.size

    def oldest_maskable_seq(self) -> int | None:
        """Return the position of the oldest result that a mask could still make smaller after the
        plan."""
        for result in self.window.results.values():
            if self.part_size(result.entry, result.part).tokens > PLACEHOLDER_TOKENS and self.shows(
                result
            ):
                return result.seq
        return None

    def shows(self, result: ToolResultView) -> bool:
        """Whether a visible result stays visible after the plan, whole or truncated."""
        edit = self._parts.get(result.key)
        is_unmasked = edit is None or edit.op != "mask"
        return is_unmasked and not self.hides(result.entry.round.group)

    def group_tokens(self, group: Group) -> int:
        """Return the tokens of a group after the plan."""
        return self._group_size(group)[1]

    def tokens_freed_by(self, group: Group) -> int:
        """Return the tokens that hiding a group would free. Its user messages may stay in the
        list."""
        return self.group_tokens(group) - self._words.estimate_listed_tokens(group)

    def group_bytes(self, group: Group) -> int:
        """Return the bytes of a group after the plan."""
        return self._group_size(group)[0]

    def shown_media(self) -> list[tuple[Entry, int, MediaSize]]:
        """Return the pictures and files that are still visible after the plan, oldest first."""
        conversation = self.window.conversation
        media = list[tuple[Entry, int, MediaSize]]()
        for (seq, part), size in sorted(conversation.visible_media.items(), key=lambda it: it[0]):
            entry = conversation.entries[seq]
            edit = self._parts.get((seq, part))
            if self.hides(entry.round.group):
                continue
            if edit is None:
                media.append((entry, part, size))
            elif (rest := self._measure_media(entry, part, edit)) is not None:
                media.append((entry, part, rest))
        return media

    def hide_media(self, entry: Entry, part: int, reason: str, placeholder: str) -> bool:
        """Replace the pictures and files of a part by a placeholder.

        This is done even if it saves no tokens, because the provider would refuse the request
        otherwise.
        """
        seq = entry.seq
        edit = Edit(op="mask", first=seq, last=seq, part=part, text=placeholder, why=reason)
        return self._put_part_edit(entry, part, edit, even_if_larger=True)

    def mask(self, entry: Entry, part: int, reason: str, placeholder: str | None = None) -> bool:
        """Replace a part by a placeholder.

        Args:
            entry: The message.
            part: The index of the part in the message.
            reason: Why the part is hidden, for the log.
            placeholder: The text that replaces the part; None for the usual placeholder.

        Returns:
            False if the placeholder would not be smaller than the part.
        """
        words = (
            format_mask_placeholder(self.part_size(entry, part).tokens)
            if placeholder is None
            else placeholder
        )
        words = self._with_handle(words, f"m{entry.seq}.{part}")
        edit = Edit(op="mask", first=entry.seq, last=entry.seq, part=part, text=words, why=reason)
        return self._put_part_edit(entry, part, edit)

    def truncate(self, entry: Entry, part: int, cap: TextCap, reason: str) -> bool:
        """Cut a text to a cap.

        Args:
            entry: The message.
            part: The index of the part in the message.
            cap: The maximum size, and which end to keep.
            reason: Why the text is cut, for the log.

        Returns:
            False if the text fits, or if cutting would not make it smaller.
        """
        # A text that cannot become shorter is asked for at every call, so the answer is kept.
        key = (self.window.counter.name, self.window.settings.recall_hint, entry.seq, part, cap)
        cut = self._remembered("cuts", key, lambda: self._build_cut(entry, part, cap))
        if cut is None or _shows_the_same(cut, self._current_edit(entry, part)):
            return False
        return self._put_part_edit(entry, part, replace(cut, why=reason))

    def _build_cut(self, entry: Entry, part: int, cap: TextCap) -> Edit | None:
        """Return the edit that cuts a text to a cap, without a reason; None if the text fits."""
        text = extract_editable_text(entry.message.parts[part])
        edit = Edit(op="truncate", first=entry.seq, last=entry.seq, part=part)
        total = self._measure_text_of(entry, part, text, cap)
        if total <= cap.amount:
            return None
        if cap.strategy == "lines":
            return self._cut_in_lines(entry, edit, text, total, cap)
        unit = 4 if cap.unit == "chars" else 1
        words = cap.format_indicator(cap.strategy, -(-cap.amount // unit), -(-total // unit))
        sign = self._with_handle(words, edit.handle)
        aside = (
            0 if cap.indicator_is_extra else self._measure(sign, cap.unit) + 5 * cap.max_names + 2
        )
        head, tail = self._split_for_cap(text, max(0, cap.amount - aside), cap, f"\n{sign}\n")
        excerpt = text[:head] + text[len(text) - tail :]
        if cap.indicator_is_extra:
            words = cap.format_indicator(cap.strategy, self._measure(excerpt, cap.unit), total)
        elif aside > cap.amount // 2:
            # So little is kept that a round figure would be far off.
            amount = -(-self._measure(excerpt, cap.unit) // unit)
            words = cap.format_indicator(cap.strategy, amount, -(-total // unit))
        if cap.max_names:
            words = add_quoted_identifiers(
                words,
                self._names_of_cut_text(entry, part, text, excerpt, cap),
            )
        words = self._with_handle(words, edit.handle)
        if not words.startswith("..."):
            words = ("\n" if head else "") + words + ("\n" if tail else "")
        return replace(edit, text=words, head=head, tail=tail)

    def _measure_text_of(self, entry: Entry, part: int, text: str, cap: TextCap) -> int:
        """Return the size of a part's text, in the unit of a cap. A known size is not measured
        again."""
        content = entry.message.parts[part]
        is_measured = isinstance(content, Text) or cap.strategy == "lines"
        if cap.unit == "tokens" and is_measured and entry.message.extra is None:
            return get_text_tokens(content, entry.sizes[part], self.window.counter)
        return self._measure(text, cap.unit)

    def _cut_in_lines(self, entry: Entry, edit: Edit, text: str, total: int, cap: TextCap) -> Edit:
        """Return the edit that keeps both ends of a text and the lines between them that look like
        errors."""
        part = edit.part or 0
        header_size = self._measure(
            self._with_handle(
                format_shortened_header(total, total, _LONGEST_LINES_NOTE), edit.handle
            ),
            cap.unit,
        )
        room = max(0, cap.amount - header_size - 5 * cap.max_names - 2)
        selection = select_kept_pieces(
            text, room, lambda piece: self._measure(piece, cap.unit), total_tokens=total
        )
        per_token = 4 if cap.unit == "chars" else 1
        words = format_shortened_header(
            -(-selection.tokens // per_token), -(-total // per_token), _describe_cut(selection)
        )
        if cap.max_names:
            shown_text = render_kept_pieces(text, selection.pieces)
            words = add_quoted_identifiers(
                words, self._names_of_cut_text(entry, part, text, shown_text, cap)
            )
        return replace(edit, text=self._with_handle(words, edit.handle), pieces=selection.pieces)

    def cut_arguments(self, entry: Entry, part: int, max_argument_chars: int, reason: str) -> bool:
        """Remove long strings from a call's arguments. Return False if that saves nothing."""
        words = self._with_handle(
            format_hidden_argument_placeholder(self.part_size(entry, part).tokens),
            f"m{entry.seq}.{part}",
        )
        edit = Edit(
            op="truncate",
            first=entry.seq,
            last=entry.seq,
            part=part,
            text=words,
            head=max_argument_chars,
            why=reason,
        )
        return self._put_part_edit(entry, part, edit)

    def summarise_part(self, entry: Entry, part: int, text: str, reason: str) -> bool:
        """Replace one result by a summary. Return False if that would not make it smaller."""
        seq = entry.seq
        whole = self.part_size(entry, part).tokens
        frame = self._with_handle(format_result_summary_header(whole), f"m{seq}.{part}")
        words = f"{frame}\n{text}"
        edit = Edit(op="truncate", first=seq, last=seq, part=part, text=words, why=reason)
        return self._put_part_edit(entry, part, edit)

    def drop(self, group: Group, reason: str, *, include_instructions: bool = False) -> bool:
        """Hide a whole group.

        Args:
            group: The group to hide.
            reason: Why it is hidden, for the log.
            include_instructions: Whether a group with system or developer messages may also be
                hidden.

        Returns:
            False if the group must stay or is already hidden.
        """
        if not self.may_hide(group, include_instructions=include_instructions) or self.is_needed(
            group
        ):
            return False
        if not self._dropped:
            self._set_front(self._summary_text(), notice=True)
        self._dropped[group.index] = (group, reason)
        self._count_hidden_group(group)
        self._recount_user_words()
        return True

    def drop_oldest(
        self,
        is_enough: Callable[[], bool],
        reason: str,
        *,
        before_group: int | None = None,
        after_group: int | None = None,
        include_unread: bool = False,
    ) -> None:
        """Drop oldest groups until it is enough, or until no group is left that may be hidden.

        Args:
            is_enough: True ends the loop.
            reason: The reason for the log.
            before_group: Only groups before this index.
            after_group: Only groups after this index.
            include_unread: Also revealed groups that the model has not read.
        """
        if is_enough():
            return
        among = (
            group
            for group in self.window.visible_groups.values()
            if (before_group is None or group.index < before_group)
            and (after_group is None or group.index > after_group)
            and (include_unread or not self.is_unread(group))
        )
        # Without a special order, only as many groups are looked at as are dropped.
        is_ordered = not self.keep_last_results and not self.window.conversation.loading_groups
        for group in among if is_ordered else self.order_for_hiding(among):
            if self.drop(group, reason) and is_enough():
                return

    @contextmanager
    def undo_unless(self, is_reached: Callable[[], bool]) -> Generator[None, None, None]:
        """Undo the edits made in this block, unless `is_reached()` is true at its end."""
        before = self._saved_state()
        yield
        if not is_reached():
            vars(self).update(before)

    def _saved_state(self) -> dict[str, Any]:
        names = ("_parts", "_groups", "_dropped", "_summarised", "_words")
        return {**vars(self), **{name: vars(self)[name].copy() for name in names}}

    def summarise(
        self, groups: list[Group], text: str, reason: str, *, also_hidden: Iterable[int] = ()
    ) -> bool:
        """Replace groups and the previous summary by a new summary. Return False if that saves
        nothing. `also_hidden` are the indexes of groups that will be dropped."""
        groups = [group for group in groups if self.may_hide(group) and not self.is_unread(group)]
        groups = self._without_needed(groups, also_hidden)
        if not groups or not text.strip():
            return False
        tokens = self.tokens
        with self.undo_unless(lambda: self.tokens < tokens):
            self._summary = self._build_summary_edit(groups, text, reason)
            for group in groups:
                self._summarised[group.index] = group
                self._count_hidden_group(group)
            self._recount_user_words()
            self._set_front(
                self._summary_text(),
                notice=bool(self._dropped or self.window.conversation.dropped_groups),
            )
        return self.tokens < tokens

    def count_summary_tokens(self, groups: list[Group], text: str) -> int:
        """Return the tokens that a summary of groups takes as it is sent."""
        return self._build_summary_edit(groups, text, "").size.tokens

    def _build_summary_edit(self, groups: list[Group], text: str, reason: str) -> Edit:
        prior = self.summary
        # It may repeat words that leave the list, so an erasure of these must find it.
        starts = [*self.window.conversation.user_words.messages, *(g.first for g in groups)]
        first = min(starts + ([prior.first] if prior else []))
        last = max([group.last for group in groups] + ([prior.last] if prior else []))
        return self._with_summary_size(
            Edit(op="summarise", first=first, last=last, text=text, why=reason)
        )

    def shorten_summary(self, is_enough: Callable[[], bool], reason: str) -> None:
        """Cut the summary from its start, half at a time, until it is enough or hardly any text is
        left."""
        current = self.summary
        while current is not None and len(current.text) > 1 and not is_enough():
            text = "…" + current.text[1 + len(current.text) // 2 :]
            # The list of the user's words that came with it stands as it is.
            current = replace(current, listed=(), relists=False, left_out=None)
            current = self._summary = self._with_summary_size(
                replace(current, text=text, why=reason)
            )
            self._set_front(
                self._summary_text(),
                notice=bool(self._dropped or self.window.conversation.dropped_groups),
            )
            self.breaks_prefix = True

    def to_decision(
        self,
        *,
        note: Mapping[str, Any] | None = None,
        span_to_summarise: MessageSpan | None = None,
        summary_tokens: int | None = None,
        list_tokens: int | None = None,
        frontier: int | None = None,
    ) -> Decision:
        """Return the decision with the edits in order. Edits inside a group that is hidden whole
        are left out."""
        self.settle_user_words()
        edits = [
            edit
            for (seq, _), edit in self._parts.items()
            if not self.hides(self.window.entries[seq].round.group)
        ]
        # A summary hides what lies between its ends: what it does not tell of is dropped before.
        edits.extend(self._build_drop_edits())
        if (summary := self._summary) is not None:
            groups = self.window.conversation.visible_groups_between(summary.first, summary.last)
            # It names all that stays, so that an erasure that makes another message the newest
            # hides nothing.
            spares = tuple(group.first for group in groups if not self.hides(group))
            edits.append(replace(summary, spares=spares))
        edits = self._words.attach_to_edits(edits)
        return Decision(
            edits=tuple(edits),
            note=note,
            span_to_summarise=span_to_summarise,
            summary_tokens=summary_tokens,
            list_tokens=list_tokens,
            frontier=frontier,
        )

    def _build_drop_edits(self) -> list[Edit]:
        """Return one edit for each run of dropped groups without a visible group in between."""
        runs: list[tuple[Group, Group, str]] = []
        for index, (group, why) in sorted(self._dropped.items()):
            if runs and runs[-1][2] == why:
                first, last, _ = runs[-1]
                between = self.window.conversation.groups[last.index + 1 : index]
                if all(other.hidden or other.pinned for other in between):  # they stay as they are
                    runs[-1] = (first, group, why)
                    continue
            runs.append((group, group, why))
        return [
            Edit(op="drop", first=first.first, last=last.last, why=why) for first, last, why in runs
        ]

    def _put_part_edit(
        self, entry: Entry, part: int, edit: Edit, *, even_if_larger: bool = False
    ) -> bool:
        content = entry.message.parts[part]
        if isinstance(content, OpaqueBlock) or (
            isinstance(content, ToolCall) and not self._may_cut_calls(entry)
        ):
            return False  # a provider's own block belongs to its whole
        if loads_tools(content):
            return False
        if entry.pinned:
            return False
        if (
            edit.op == "mask"
            and entry is self.window.newest_user_entry
            and isinstance(content, Text)
        ):
            return False  # something of what was asked stays
        if entry.round.group.hidden is not None or self.hides(entry.round.group):
            return False
        current = self._current_edit(entry, part)
        if current is not None and current.op == "mask":
            return False  # a placeholder stays as it is
        before = self.part_size(entry, part)
        size = self._measure_edited_part(entry, part, edit)
        larger = size.tokens >= before.tokens or size.bytes > before.bytes
        if larger and not even_if_larger:
            return False
        self.media_bytes -= self._media_bytes_of(entry, part)
        self._parts[entry.seq, part] = replace(edit, size=size)
        self.media_bytes += self._media_bytes_of(entry, part)
        group = entry.round.group
        self._add_to_totals(group, size.bytes - before.bytes, size.tokens - before.tokens)
        delta = self._groups.get(group.index, (0, 0))
        self._groups[group.index] = (
            delta[0] + size.bytes - before.bytes,
            delta[1] + size.tokens - before.tokens,
        )
        self.breaks_prefix = (
            self.breaks_prefix or entry.seq <= self.window.accounting.sent_through_seq
        )
        self._came += count_tokens_inserted_by_edit(
            self._parts[entry.seq, part], content, self.window.counter
        )
        return True

    def _measure_edited_part(self, entry: Entry, part: int, edit: Edit) -> Size:
        """Return the size of a part after an edit. It is remembered, because plans of one decision
        share it."""
        counter = self.window.counter
        key = (counter.name, entry.seq, part, edit.op, edit.text, edit.head, edit.tail, edit.pieces)
        return self._remembered(
            "edited_sizes",
            key,
            lambda: measure_part(apply_edit_to_part(entry.message.parts[part], edit), counter),
        )

    def _remembered(self, kind: str, key: tuple[Any, ...], make: Callable[[], ValueT]) -> ValueT:
        """Return what `make` returns. It is called once for a key, whichever plan asks."""
        cache = self.window.conversation.derived_cache
        memory = cast("dict[Any, ValueT]", cache.setdefault(kind, {}))
        if key not in memory:
            if len(memory) >= MAX_REMEMBERED:
                memory.clear()
            memory[key] = make()
        return memory[key]

    def _may_cut_calls(self, entry: Entry) -> bool:
        """Whether the calls of a message may be shortened. Not if the model made them last, or if
        the provider has not finished the message."""
        return entry.seq != self.window.conversation.last_assistant_seq and not entry.paused

    def is_unread(self, group: Group) -> bool:
        """Whether a group was revealed and the model has not replied to a call since then."""
        return group.revealed > 0 and group.revealed > self.window.read_through_seq

    def may_hide(self, group: Group, *, include_instructions: bool = False) -> bool:
        """Whether a group is neither hidden nor one that must stay."""
        stays = group.pinned or (group.has_instructions and not include_instructions)
        return not (stays or self.window.is_protected(group) or self.hides(group))

    def _media_bytes_of(self, entry: Entry, part: int) -> int:
        """Return the bytes of a part's pictures and files that are shown after the plan."""
        size = self.window.conversation.visible_media.get((entry.seq, part))
        if size is not None and (edit := self._parts.get((entry.seq, part))) is not None:
            size = self._measure_media(entry, part, edit)
        return 0 if size is None else size.bytes

    def _measure_media(self, entry: Entry, part: int, edit: Edit) -> MediaSize | None:
        return measure_media(
            apply_edit_to_part(entry.message.parts[part], edit), self.window.counter
        )

    def _count_hidden_group(self, group: Group) -> None:
        size = self._group_size(group)
        if self.window.conversation.visible_media:
            for entry in group.entries():
                self.media_bytes -= sum(
                    self._media_bytes_of(entry, part) for part in range(len(entry.message.parts))
                )
        self._add_to_totals(group, -size[0], -size[1])
        self.visible_messages -= group.message_count
        self._words.add_hidden_group(group)
        self.breaks_prefix = True

    def _group_size(self, group: Group) -> tuple[int, int]:
        delta = self._groups.get(group.index, (0, 0))
        return group.bytes + delta[0], group.tokens + delta[1]

    def _add_to_totals(self, group: Group, size: int, tokens: int) -> None:
        self.bytes += size
        self.tokens += tokens
        if group.index >= self.window.turn_start_group:
            self.turn_bytes += size

    def _set_front(self, summary: str, *, notice: bool) -> None:
        """Count the text before the first kept message, with the notice at its maximum length."""
        words = self._longest_notice() if notice else ""
        before, self._told = (
            self._told,
            self.window.conversation.measure_summary_and_notice(summary, words),
        )
        self.bytes += self._told.bytes - before.bytes
        self.tokens += self._told.tokens - before.tokens

    def notice_growth_bytes(self) -> int:
        """Return the bytes that the notice adds when the first group is dropped."""
        front = self.window.conversation.measure_summary_and_notice(
            self._summary_text(), self._longest_notice()
        )
        return max(0, front.bytes - self._told.bytes)

    def _longest_notice(self) -> str:
        last = self.window.seq
        return self._with_handle(format_dropped_messages_notice(last), f"m{last}-m{last}")

    def _summary_text(self) -> str:
        return self.window.conversation.framed_summary(self.summary)

    def _with_summary_size(self, summary: Edit) -> Edit:
        """Return the edit with its size and with the position of the summary that it continues."""
        conversation = self.window.conversation
        size = conversation.measure_summary_and_notice(conversation.framed_summary(summary), "")
        prior = self.window.conversation.summary_seq if self.window.summary is not None else 0
        return replace(summary, size=size, prior=prior)

    def _with_handle(self, words: str, handle: str) -> str:
        return add_recall_handle(words, handle, self.window.settings.recall_hint)

    def _names_of_cut_text(
        self, entry: Entry, part: int, text: str, excerpt: str, cap: TextCap
    ) -> str:
        """Return identifiers that occur only in the cut text, as many as fit into the reserved
        room."""
        identifiers = get_result_identifiers(self.window, entry, part, text)
        names = identifiers.list_top(cap.max_names, excerpt)
        while names and self._measure(add_quoted_identifiers("]", ", ".join(names)), cap.unit) > (
            5 * cap.max_names
        ):
            names = names[: len(names) * 3 // 4]
        return ", ".join(names)

    def _measure(self, text: str, unit: CapUnit) -> int:
        match unit:
            case "tokens":
                return self.window.counter.count(text)
            case "bytes/4":
                return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4
            case "bytes":
                return len(text.encode("utf-8", "surrogatepass"))
            case "chars":
                return len(text)

    def _split_for_cap(self, text: str, room: int, cap: TextCap, indicator: str) -> tuple[int, int]:
        """Return the characters to keep from the start and from the end."""
        match cap.strategy:
            case "head":
                return self._chars_within(text, room, cap.unit), 0
            case "tail":
                return 0, self._chars_within(text, room, cap.unit, end=True)
            case _:
                return self._split_for_both_ends(text, room, cap.unit, indicator)

    def _split_for_both_ends(
        self, text: str, room: int, unit: CapUnit, indicator: str
    ) -> tuple[int, int]:
        """Return the characters to keep from the start and from the end, half of the room each.

        Odd texts may be estimated at more or at less beside each other. If both ends together with
        the indicator take much less than the room, or more, the same number of characters is kept
        from each end, and then more from the start if there is room.
        """

        def measure(head: int, tail: int) -> int:
            return self._measure(text[:head] + indicator + text[len(text) - tail :], unit)

        most = room + self._measure(indicator, unit)
        head = self._chars_within(text, room // 2, unit)
        tail = min(self._chars_within(text, room // 2, unit, end=True), len(text) - head)
        size = measure(head, tail)
        if MIN_CUT_FILL * most <= size <= most:
            return head, tail

        def widest(limit: int, tokens_at: Callable[[int], int]) -> int:
            low = 0
            high = limit
            while high - low > max(1, low // 20):
                middle = (low + high) // 2
                low, high = (middle, high) if tokens_at(middle) <= most else (low, middle)
            return low

        both = widest(len(text) // 2, lambda chars: measure(chars, chars))
        more = widest(len(text) - 2 * both, lambda chars: measure(both + chars, both))
        wider = (both + more, both)
        return wider if size > most or measure(*wider) > size else (head, tail)

    def _chars_within(self, text: str, room: int, unit: CapUnit, *, end: bool = False) -> int:
        if unit == "chars":
            return min(room, len(text))
        if unit != "tokens":
            limit = room * 4 if unit == "bytes/4" else room
            return (
                count_tail_chars_within_bytes(text, limit)
                if end
                else count_chars_within_bytes(text, limit)
            )
        count = self.window.counter.count
        whole = len(text)

        def take(chars: int) -> str:
            return text[whole - chars :] if end else text[:chars]

        # A twentieth of the room is precise enough.
        step = max(1, room // 20)
        # Guesses by the tokens a character: the search below then counts only what lies between.
        fitting = 0
        too_long = whole + 1
        guess = max(1, room)
        for _ in range(4):
            if not fitting < guess < too_long:
                break
            tokens = count(take(guess))
            fits = tokens <= room
            fitting, too_long = (guess, too_long) if fits else (fitting, guess)
            guess = guess * room // max(1, tokens) + (step if fits else -step)
            guess = min(guess, whole)
        low = 0
        high = whole
        while high - low > max(1, min(room, high) // 20):
            middle = (low + high + 1) // 2
            fits = middle <= fitting or (middle < too_long and count(take(middle)) <= room)
            low, high = (middle, high) if fits else (low, middle - 1)
        return low


def _shows_the_same(cut: Edit, current: Edit | None) -> bool:
    """Whether a text is already shown as a cut would show it."""
    return current is not None and (cut.text, cut.head, cut.tail, cut.pieces) == (
        current.text,
        current.head,
        current.tail,
        current.pieces,
    )


def _describe_cut(lines_cut: KeptPieces) -> str:
    """Return the words that describe what a cut in lines still shows."""
    parts = [f"{lines_cut.shown_lines:,} of {lines_cut.total_lines:,} lines"]
    if lines_cut.error_lines:
        parts.append(f"{lines_cut.error_lines:,} of them in between look like errors")
    if lines_cut.repeated_lines:
        parts.append(f"{lines_cut.repeated_lines:,} repeated lines left out")
    if lines_cut.shown_lines == lines_cut.total_lines:
        parts.append("long ones only in part")
    return ", ".join(parts)
