"""The draft of a policy's decision: edits that are not made yet, and what they would leave.

A policy reads the window, asks the plan for edits and reads the totals. The plan refuses an edit
that would not make the window smaller. So no policy can mask a placeholder again or make a text
longer.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from trimtab.engine.log.deferred_tools import loads_tools
from trimtab.engine.log.edits import (
    apply_edit_to_part,
    extract_editable_text,
    format_dropped_messages_notice,
    format_hidden_argument_placeholder,
    format_mask_placeholder,
    format_result_summary_header,
)
from trimtab.engine.log.event import Edit, Size
from trimtab.engine.log.message import OpaqueBlock, Text, ToolCall
from trimtab.engine.log.text_cuts import (
    TextCap,
    TextCutter,
    add_recall_handle,
    format_excerpt_header,
)
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.planning.kept_calls import (
    NO_KEPT_CALLS,
    KeptCalls,
    find_kept_calls,
    holds_only_earlier_todo_lists,
)
from trimtab.engine.policy.planning.kept_files import find_results_of_kept_files
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
"""Up to this size a result is about as small as the placeholder that would replace it."""

MAX_REMEMBERED = 2_048
"""Maximum number of cuts, and of sizes of edited parts, to remember between plans."""


ValueT = TypeVar("ValueT")


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
        self._part_edits: dict[tuple[int, int], Edit] = {}
        """By the position of the message and the index of the part."""
        self._size_deltas: dict[int, tuple[int, int]] = {}
        """By the index of the group: the bytes and tokens that edits of its parts add, or save if
        negative."""
        self._dropped: dict[int, tuple[Group, str]] = {}
        """By the index of the group: the group and the reason."""
        self._summary: Edit | None = None
        self._summarised: dict[int, Group] = {}
        self._front_size: Size = window.conversation.summary_and_notice_size
        """Size of the summary and the notice, which come before the first kept message."""
        self._inserted_tokens = 0
        """Tokens of placeholders and other texts that the edits of parts insert."""
        self._user_words_plan = UserWordsPlan(window, budget)
        self._user_words_size: Size = self._user_words_plan.size
        """The size of the list of the user's words that is contained in `tokens` and `bytes`."""
        self._keep_last_results: frozenset[tuple[int, int]] | None = None
        self._kept_calls: KeptCalls | None = None

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
                    # Instructions are dropped only if the range contains nothing else.
                    groups_to_drop = [g for g in groups if not g.has_instructions] or groups
                    drops |= {group.index: (group, edit.why) for group in groups_to_drop}
                case _:
                    pass
        for edit in summaries:
            groups = conversation.visible_groups_between(edit.first, edit.last)
            groups_to_summarise = [group for group in groups if group.first not in edit.spares]
            self.summarise(groups_to_summarise, edit.text, edit.why, also_hidden=drops)
        # A group that a summary covers is hidden already, and is not dropped as well.
        groups_to_drop = self.order_for_hiding(
            group for group, _ in drops.values() if self.may_hide(group, include_instructions=True)
        )
        if not groups_to_drop:
            return
        # The notice counts even if the window has one already. So the same edits get the same
        # answer at every call.
        notice = conversation.measure_summary_and_notice("", self._longest_notice())
        if sum(self.group_tokens(group) for group in groups_to_drop) > notice.tokens:
            for group in groups_to_drop:
                self.drop(group, drops[group.index][1], include_instructions=True)

    @property
    def summary(self) -> Edit | None:
        """The summary in force after the plan."""
        return self._summary or self.window.summary

    def bound(self) -> int:
        """Return the upper bound of the input tokens after the plan."""
        counter = self.window.counter
        anchor = self.window.accounting.usage_anchor
        ratio = self.budget.ratio
        whole = self.budget.head.tokens + self.tokens + self.budget.volatile
        estimated_bound = compute_input_upper_bound(
            counter=counter, new_tokens=whole, learned_ratio=ratio
        )
        if self.breaks_prefix or anchor is None:
            return min(estimated_bound, self._bound_from_last_request(estimated_bound))
        new_tokens = max(0, self.tokens - anchor.message_tokens) + self.budget.volatile
        bound_from_usage = compute_input_upper_bound(
            counter=counter,
            reported_tokens=anchor.reported_tokens,
            new_tokens=new_tokens,
            learned_ratio=ratio,
        )
        # The reported usage includes the volatile text of that call, which is not sent again. So
        # the estimate may be the smaller one.
        return min(bound_from_usage, estimated_bound) if anchor.had_volatile else bound_from_usage

    def _bound_from_last_request(self, estimated_bound: int) -> int:
        """Return the bound based on the last request, minus what was removed, plus what was added.

        The estimate alone could raise the bound after an edit that makes the context smaller.
        """
        usage = self.window.accounting.compute_carried_usage(self.window.conversation)
        if usage is None:
            return estimated_bound
        conversation, counter = self.window.conversation, self.window.counter
        front = conversation.new_front_tokens(usage.front)
        if self._summary is not None:
            front = front._replace(summary=self._summary.size.tokens)
        if self._dropped:
            front = front._replace(
                notice=measure_text_message(self._longest_notice(), counter).tokens
            )
        if self._user_words_plan.will_change:
            words_tokens = self._user_words_plan.size.tokens
            if not self._user_words_plan.will_be_rebuilt:
                current_size = conversation.user_words.measure_all_blocks(
                    counter, recall_hint=self.window.settings.recall_hint
                )
                words_tokens += front.words - current_size.tokens
            front = front._replace(words=words_tokens)
        usage = usage._replace(replacement_tokens=usage.replacement_tokens + self._inserted_tokens)
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
        max_bytes = self.budget.request_limits.max_bytes
        return not max_bytes or self.request_bytes() <= max_bytes

    @property
    def lists_user_words(self) -> bool:
        """Whether user messages from hidden groups go into the list of the user's words."""
        return self._user_words_plan.allowance is not None

    def find_user_messages_leaving(self, groups: Iterable[Group]) -> set[int]:
        """Return the positions of the user messages that leave the list if these groups are also
        hidden, or may leave it soon."""
        return self._user_words_plan.find_leaving(groups)

    @property
    def user_words_tokens(self) -> int:
        """Tokens of the list of the user's words after the plan."""
        return self._user_words_plan.size.tokens

    @property
    def message_tokens(self) -> int:
        """Tokens of the shown messages, without summary, notice and list before them."""
        return self.tokens - self._front_size.tokens - self._user_words_size.tokens

    def halve_user_words(self) -> bool:
        """Halve the list of the user's words. Return False if the list is already empty."""
        is_shorter = self._user_words_plan.halve_allowance()
        self._recount_user_words()
        return is_shorter

    def settle_user_words(self) -> None:
        """Build the list of the user's words and count it exactly. Before this, its size is an
        estimate."""
        self._user_words_plan.build_update()
        self._recount_user_words()

    def _recount_user_words(self) -> None:
        before = self._user_words_size
        self._user_words_size = self._user_words_plan.size
        self.bytes += self._user_words_size.bytes - before.bytes
        self.tokens += self._user_words_size.tokens - before.tokens
        self.breaks_prefix = self.breaks_prefix or self._user_words_plan.will_change

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
        if self._keep_last_results is None:
            self._keep_last_results = find_results_of_kept_files(self.window)
        return self._keep_last_results

    def keeps_part(self, entry: Entry, part: int) -> bool:
        """Whether a part is of the newest todo list, or of the newest call of an exempt tool."""
        return (entry.seq, part) in self._find_kept_calls().parts

    def keeps_group(self, group: Group) -> bool:
        """Whether a group holds such a part, and stays visible for it."""
        return group.index in self._find_kept_calls().groups

    def give_up_kept_calls(self) -> bool:
        """Let the todo list and the newest calls of exempt tools be hidden, because nothing else is
        left. Return False if there are none."""
        had_kept_calls = bool(self._find_kept_calls().groups)
        self._kept_calls = NO_KEPT_CALLS
        return had_kept_calls

    def _find_kept_calls(self) -> KeptCalls:
        if self._kept_calls is None:
            self._kept_calls = find_kept_calls(self.window, self.budget.room)
        return self._kept_calls

    def holds_keep_last_result(self, group: Group) -> bool:
        """Whether a group holds a visible result that the user wants hidden last."""
        return bool(self.keep_last_results) and any(
            r.key in self.keep_last_results and self.shows(r) for r in group.results()
        )

    def order_for_hiding(self, groups: Iterable[Group]) -> list[Group]:
        """Return groups in the order in which to hide them.

        Groups that only hold an earlier todo list come first. Groups that hold a result to be
        hidden last come after all groups that hold other results. A group that loaded a tool comes
        after the last group that calls it. It is left out if such a group would stay.
        """
        candidates = self._leave_out_needed_groups(self._order_keep_last_groups(groups))
        if self.window.conversation.todo_calls:
            candidates.sort(key=lambda group: not holds_only_earlier_todo_lists(self.window, group))
        if not any(group.calling_groups for group in candidates):
            return candidates
        places = {group.index: place for place, group in enumerate(candidates)}
        for group in sorted(candidates, key=lambda group: -group.index):
            places_of_calls = (places.get(index, 0) for index in group.calling_groups)
            places[group.index] = max(places[group.index], *places_of_calls, 0)
        return sorted(candidates, key=lambda group: (places[group.index], -group.index))

    def is_needed(self, group: Group, also_hidden: Container[int] = ()) -> bool:
        """Whether a group loaded a tool that a shown call uses. The model must see both or none."""
        groups = self.window.conversation.groups
        return any(
            groups[index].hidden is None
            and not self.hides(groups[index])
            and index not in also_hidden
            for index in reversed(group.calling_groups)
        )

    def _leave_out_needed_groups(
        self, groups: list[Group], also_hidden: Iterable[int] = ()
    ) -> list[Group]:
        """Leave out groups that loaded tools for calls that would stay."""
        hidden_indexes = {*also_hidden, *(group.index for group in groups)}
        loading = [group for group in groups if group.calling_groups]
        for group in sorted(loading, key=lambda group: -group.index):
            if self.is_needed(group, hidden_indexes):
                hidden_indexes.discard(group.index)
        return [group for group in groups if group.index in hidden_indexes]

    def _order_keep_last_groups(self, groups: Iterable[Group]) -> list[Group]:
        """Move groups with a result to be hidden last after the last group with other results."""
        sequence = list(groups)
        if not self.keep_last_results:
            return sequence
        keep_last = {group.index for group in sequence if self.holds_keep_last_result(group)}
        places_of_others = (
            place
            for place, group in enumerate(sequence)
            if group.index not in keep_last and any(group.results())
        )
        end = max(places_of_others, default=-1) + 1
        # A sort by a Boolean keeps the order among equals: False comes first.
        return [
            *sorted(sequence[:end], key=lambda group: group.index in keep_last),
            *sequence[end:],
        ]

    def _current_edit(self, entry: Entry, part: int) -> Edit | None:
        """Return the edit of a part after the plan."""
        return self._part_edits.get((entry.seq, part)) or entry.edits.get(part)

    def part_size(self, entry: Entry, part: int) -> Size:
        """Return the size of a part after the plan."""
        edit = self._part_edits.get((entry.seq, part))
        return entry.shown_size(part) if edit is None else edit.size

    def oldest_maskable_seq(self) -> int | None:
        """Return the position of the oldest result that a mask could still make smaller after the
        plan."""
        for result in self.window.results.values():
            entry, part = result.entry, result.part
            is_large = self.part_size(entry, part).tokens > PLACEHOLDER_TOKENS
            if is_large and self.shows(result) and not self.keeps_part(entry, part):
                return result.seq
        return None

    def shows(self, result: ToolResultView) -> bool:
        """Whether a visible result stays visible after the plan, whole or truncated."""
        edit = self._part_edits.get(result.key)
        is_unmasked = edit is None or edit.op != "mask"
        return is_unmasked and not self.hides(result.entry.round.group)

    def group_tokens(self, group: Group) -> int:
        """Return the tokens of a group after the plan."""
        return self._group_size(group)[1]

    def tokens_freed_by(self, group: Group) -> int:
        """Return the tokens that hiding a group would free. Its user messages may stay in the
        list."""
        return self.group_tokens(group) - self._user_words_plan.estimate_listed_tokens(group)

    def group_bytes(self, group: Group) -> int:
        """Return the bytes of a group after the plan."""
        return self._group_size(group)[0]

    def shown_media(self) -> list[tuple[Entry, int, MediaSize]]:
        """Return the pictures and files that are still visible after the plan, oldest first."""
        conversation = self.window.conversation
        media = list[tuple[Entry, int, MediaSize]]()
        for (seq, part), size in sorted(conversation.visible_media.items(), key=lambda it: it[0]):
            entry = conversation.entries[seq]
            edit = self._part_edits.get((seq, part))
            if self.hides(entry.round.group):
                continue
            if edit is None:
                media.append((entry, part, size))
            elif (size_after := self._measure_media(entry, part, edit)) is not None:
                media.append((entry, part, size_after))
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
        if placeholder is None:
            placeholder = format_mask_placeholder(self.part_size(entry, part).tokens)
        text = self._with_handle(placeholder, f"m{entry.seq}.{part}")
        edit = Edit(op="mask", first=entry.seq, last=entry.seq, part=part, text=text, why=reason)
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
        # Policies try to cut the same texts at every call, so each cut is made once and kept.
        key = (self.window.counter.name, self.window.settings.recall_hint, entry.seq, part, cap)
        cut = self._get_or_make("cuts", key, lambda: self._build_cut(entry, part, cap))
        if cut is None or _shows_the_same(cut, self._current_edit(entry, part)):
            return False
        return self._put_part_edit(entry, part, replace(cut, why=reason))

    def cut_lines(
        self, entry: Entry, part: int, pieces: tuple[tuple[int, int], ...], reason: str
    ) -> bool:
        """Show only some ranges of a result's text.

        Args:
            entry: The message.
            part: The index of the part in the message.
            pieces: The ranges of characters that stay, in order.
            reason: Why the rest is hidden, for the log.

        Returns:
            False if that would not make it smaller.
        """
        edit = Edit(op="truncate", first=entry.seq, last=entry.seq, part=part)
        total = entry.sizes[part].tokens
        length = max(1, len(extract_editable_text(entry.message.parts[part])))
        kept = sum(end - begin for begin, end in pieces) * total // length
        header = self._with_handle(format_excerpt_header(kept, total), edit.handle)
        return self._put_part_edit(
            entry, part, replace(edit, text=header, pieces=pieces, why=reason)
        )

    def _build_cut(self, entry: Entry, part: int, cap: TextCap) -> Edit | None:
        """Return the edit that cuts a text to a cap, without a reason; None if the text fits."""
        text = extract_editable_text(entry.message.parts[part])
        edit = Edit(op="truncate", first=entry.seq, last=entry.seq, part=part)
        cutter = TextCutter(
            cap=cap,
            count_tokens=self.window.counter.count,
            add_handle=lambda text: self._with_handle(text, edit.handle),
        )
        total = self._measure_text_of(entry, part, cutter)
        if total <= cap.amount:
            return None
        cut = cutter.cut(text, total)
        return replace(edit, text=cut.words, head=cut.head, tail=cut.tail, pieces=cut.pieces)

    def _measure_text_of(self, entry: Entry, part: int, cutter: TextCutter) -> int:
        """Return the size of a part's text, in the unit of a cap. A known size is not measured
        again."""
        content, cap = entry.message.parts[part], cutter.cap
        is_measured = isinstance(content, Text) or cap.strategy == "lines"
        if cap.unit == "tokens" and is_measured and entry.message.extra is None:
            return get_text_tokens(content, entry.sizes[part], self.window.counter)
        return cutter.measure(extract_editable_text(content))

    def cut_arguments(self, entry: Entry, part: int, max_argument_chars: int, reason: str) -> bool:
        """Remove long strings from a call's arguments. Return False if that saves nothing."""
        text = self._with_handle(
            format_hidden_argument_placeholder(self.part_size(entry, part).tokens),
            f"m{entry.seq}.{part}",
        )
        edit = Edit(
            op="truncate",
            first=entry.seq,
            last=entry.seq,
            part=part,
            text=text,
            head=max_argument_chars,
            why=reason,
        )
        return self._put_part_edit(entry, part, edit)

    def summarise_part(self, entry: Entry, part: int, text: str, reason: str) -> bool:
        """Replace one result by a summary. Return False if that would not make it smaller."""
        seq = entry.seq
        header = format_result_summary_header(self.part_size(entry, part).tokens)
        text = f"{self._with_handle(header, f'm{seq}.{part}')}\n{text}"
        edit = Edit(op="truncate", first=seq, last=seq, part=part, text=text, why=reason)
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
        may_hide = self.may_hide(group, include_instructions=include_instructions)
        if not may_hide or self.is_needed(group):
            return False
        self._dropped[group.index] = (group, reason)
        if len(self._dropped) == 1:
            self._recount_front()  # with the notice
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
        candidates = (
            group
            for group in self.window.visible_groups.values()
            if (before_group is None or group.index < before_group)
            and (after_group is None or group.index > after_group)
            and (include_unread or not self.is_unread(group))
        )
        # If oldest first is the order, no more groups are looked at than are dropped.
        conversation = self.window.conversation
        has_own_order = (
            self.keep_last_results or conversation.loading_groups or conversation.todo_calls
        )
        for group in self.order_for_hiding(candidates) if has_own_order else candidates:
            if self.drop(group, reason) and is_enough():
                return

    @contextmanager
    def undo_unless(self, is_reached: Callable[[], bool]) -> Generator[None, None, None]:
        """Undo the edits made in this block, unless `is_reached()` is true at its end."""
        names = ("_part_edits", "_size_deltas", "_dropped", "_summarised", "_user_words_plan")
        state_before = {**vars(self), **{name: vars(self)[name].copy() for name in names}}
        yield
        if not is_reached():
            vars(self).update(state_before)

    def summarise(
        self, groups: list[Group], text: str, reason: str, *, also_hidden: Iterable[int] = ()
    ) -> bool:
        """Replace groups and the previous summary by a new summary. Return False if that saves
        nothing. `also_hidden` are the indexes of groups that will be dropped."""
        groups = [group for group in groups if self.may_hide(group) and not self.is_unread(group)]
        groups = self._leave_out_needed_groups(groups, also_hidden)
        if not groups or not text.strip():
            return False
        tokens_before = self.tokens
        with self.undo_unless(lambda: self.tokens < tokens_before):
            self._summary = self._build_summary_edit(groups, text, reason)
            for group in groups:
                self._summarised[group.index] = group
                self._count_hidden_group(group)
            self._recount_user_words()
            self._recount_front()
        return self.tokens < tokens_before

    def count_summary_tokens(self, groups: list[Group], text: str) -> int:
        """Return the tokens that a summary of groups takes as it is sent."""
        return self._build_summary_edit(groups, text, "").size.tokens

    def _build_summary_edit(self, groups: list[Group], text: str, reason: str) -> Edit:
        prior = self.summary
        # The summary may repeat words of the user that leave the list. Its range includes these
        # messages, so that an erasure of one of them also finds the summary.
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
            # The earlier edit has already updated the list of the user's words: not again.
            current = replace(current, listed=(), relists=False, left_out=None)
            current = self._summary = self._with_summary_size(
                replace(current, text=text, why=reason)
            )
            self._recount_front()
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
            for (seq, _), edit in self._part_edits.items()
            if not self.hides(self.window.entries[seq].round.group)
        ]
        # Drops come first: a summary hides every group in its range, also those it does not cover.
        edits.extend(self._build_drop_edits())
        if (summary := self._summary) is not None:
            groups = self.window.conversation.visible_groups_between(summary.first, summary.last)
            # The summary names the groups that stay, also those that stay only as the newest ones.
            # After an erasure of other messages they may be the newest no longer.
            spares = tuple(group.first for group in groups if not self.hides(group))
            edits.append(replace(summary, spares=spares))
        edits = self._user_words_plan.attach_to_edits(edits)
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
        """Add an edit of a part to the plan. Return False if the part must stay as it is, or if the
        edit would not make it smaller."""
        if not self._may_edit_part(entry, part, edit):
            return False
        before = self.part_size(entry, part)
        size = self._measure_edited_part(entry, part, edit)
        larger = size.tokens >= before.tokens or size.bytes > before.bytes
        if larger and not even_if_larger:
            return False
        edit = replace(edit, size=size)
        self.media_bytes -= self._media_bytes_of(entry, part)
        self._part_edits[entry.seq, part] = edit
        self.media_bytes += self._media_bytes_of(entry, part)
        group = entry.round.group
        added_bytes, added_tokens = size.bytes - before.bytes, size.tokens - before.tokens
        self._add_to_totals(group, added_bytes, added_tokens)
        group_bytes, group_tokens = self._size_deltas.get(group.index, (0, 0))
        self._size_deltas[group.index] = (group_bytes + added_bytes, group_tokens + added_tokens)
        was_sent = entry.seq <= self.window.accounting.sent_through_seq
        self.breaks_prefix = self.breaks_prefix or was_sent
        self._inserted_tokens += count_tokens_inserted_by_edit(
            edit, entry.message.parts[part], self.window.counter
        )
        return True

    def _may_edit_part(self, entry: Entry, part: int, edit: Edit) -> bool:
        content = entry.message.parts[part]
        if entry.pinned or loads_tools(content) or self.keeps_part(entry, part):
            return False
        if isinstance(content, OpaqueBlock):
            return False  # only its provider can read it, and only whole
        if isinstance(content, ToolCall) and not self._may_cut_calls(entry):
            return False
        if (
            edit.op == "mask"
            and entry is self.window.newest_user_entry
            and isinstance(content, Text)
        ):
            return False  # the model must see at least a part of what the user asked last
        if entry.round.group.hidden is not None or self.hides(entry.round.group):
            return False
        current = self._current_edit(entry, part)
        return current is None or current.op != "mask"

    def _measure_edited_part(self, entry: Entry, part: int, edit: Edit) -> Size:
        """Return the size of a part after an edit. It is kept, because the plans of one decision
        make the same edits."""
        counter = self.window.counter
        key = (counter.name, entry.seq, part, edit.op, edit.text, edit.head, edit.tail, edit.pieces)
        return self._get_or_make(
            "edited_sizes",
            key,
            lambda: measure_part(apply_edit_to_part(entry.message.parts[part], edit), counter),
        )

    def _get_or_make(self, kind: str, key: tuple[Any, ...], make: Callable[[], ValueT]) -> ValueT:
        """Return the value of a key, which all plans of a window share. `make` makes it if no plan
        has asked for it before."""
        derived_cache = self.window.conversation.derived_cache
        values = cast("dict[Any, ValueT]", derived_cache.setdefault(kind, {}))
        if key not in values:
            if len(values) >= MAX_REMEMBERED:
                values.clear()
            values[key] = make()
        return values[key]

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
        stays = stays or self.window.is_protected(group) or self.hides(group)
        return not (stays or self.keeps_group(group))

    def _media_bytes_of(self, entry: Entry, part: int) -> int:
        """Return the bytes of a part's pictures and files that are shown after the plan."""
        size = self.window.conversation.visible_media.get((entry.seq, part))
        if size is not None and (edit := self._part_edits.get((entry.seq, part))) is not None:
            size = self._measure_media(entry, part, edit)
        return 0 if size is None else size.bytes

    def _measure_media(self, entry: Entry, part: int, edit: Edit) -> MediaSize | None:
        return measure_media(
            apply_edit_to_part(entry.message.parts[part], edit), self.window.counter
        )

    def _count_hidden_group(self, group: Group) -> None:
        """Take a group that the plan hides out of the totals."""
        group_bytes, group_tokens = self._group_size(group)
        if self.window.conversation.visible_media:
            for entry in group.entries():
                self.media_bytes -= sum(
                    self._media_bytes_of(entry, part) for part in range(len(entry.message.parts))
                )
        self._add_to_totals(group, -group_bytes, -group_tokens)
        self.visible_messages -= group.message_count
        self._user_words_plan.add_hidden_group(group)
        self.breaks_prefix = True

    def _group_size(self, group: Group) -> tuple[int, int]:
        """Return the bytes and the tokens of a group after the plan."""
        added_bytes, added_tokens = self._size_deltas.get(group.index, (0, 0))
        return group.bytes + added_bytes, group.tokens + added_tokens

    def _add_to_totals(self, group: Group, added_bytes: int, added_tokens: int) -> None:
        self.bytes += added_bytes
        self.tokens += added_tokens
        if group.index >= self.window.turn_start_group:
            self.turn_bytes += added_bytes

    def _recount_front(self) -> None:
        """Count the summary and the notice again, with the notice at its maximum length."""
        before = self._front_size
        has_notice = self._dropped or self.window.conversation.dropped_groups
        notice = self._longest_notice() if has_notice else ""
        self._front_size = self.window.conversation.measure_summary_and_notice(
            self._summary_text(), notice
        )
        self.bytes += self._front_size.bytes - before.bytes
        self.tokens += self._front_size.tokens - before.tokens

    def notice_growth_bytes(self) -> int:
        """Return the bytes that the notice adds when the first group is dropped."""
        front = self.window.conversation.measure_summary_and_notice(
            self._summary_text(), self._longest_notice()
        )
        return max(0, front.bytes - self._front_size.bytes)

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

    def _with_handle(self, text: str, handle: str) -> str:
        return add_recall_handle(text, handle, self.window.settings.recall_hint)


def _shows_the_same(cut: Edit, current: Edit | None) -> bool:
    """Whether a text is already shown as a cut would show it."""
    return current is not None and (cut.text, cut.head, cut.tail, cut.pieces) == (
        current.text,
        current.head,
        current.tail,
        current.pieces,
    )
