"""The messages as the model sees them: entries in rounds, rounds in groups, and running totals.

`Conversation` is the part of the window that messages, edits and pins change. It is folded again
from the window's base whenever one of these is undone or erased.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple, cast

from trimtab.engine.log.deferred_tools import (
    find_deferred_definitions,
    list_loaded_tools,
    list_tools_in_prompt,
    list_tools_loaded_by_name,
)
from trimtab.engine.log.edits import (
    ERASED_PLACEHOLDER,
    apply_edit_to_part,
    format_dropped_messages_notice,
    frame_summary_for_model,
)
from trimtab.engine.log.event import (
    Edit,
    Event,
    MessageAdded,
    OmittedUserMessages,
    Pin,
    Settings,
    Size,
    ToolResultRepair,
    UserPartReference,
)
from trimtab.engine.log.message import Message
from trimtab.engine.log.text_cuts import add_recall_handle
from trimtab.engine.tokens.counter import (
    MediaSize,
    TokenCounter,
    add_sizes,
    estimate_request_bytes,
    list_media,
    measure_json,
    measure_media,
    measure_message_parts,
    measure_text_message,
    with_recomputed_size,
)
from trimtab.engine.window.structure import (
    CallResultPair,
    DroppedGroups,
    Entry,
    Group,
    Round,
    ToolResultView,
    TurnResultKeys,
    copy_group,
    find_groups_overlapping,
    find_groups_within,
    has_signed_thinking,
    pair_calls_with_results,
)
from trimtab.engine.window.todo_list import TodoCall, find_todo_calls
from trimtab.engine.window.user_words import (
    CompactionUserWords,
    SaidMessage,
    UserWordsList,
    has_user_words,
    may_be_written_by_person,
)

MAX_REMEMBERED_HIDINGS = 64
"""Number of newest edits for which the hidden groups are remembered."""
MAX_REMEMBERED_FRONT_SIZES = 16
"""Number of sizes of summaries and notices to remember."""


class FrontTokens(NamedTuple):
    """Tokens of the text before the messages."""

    summary: int
    """Tokens of the summary."""
    notice: int
    """Tokens of the notice that messages were dropped."""
    words: int
    """Tokens of the list of the user's words."""


class FrontState(NamedTuple):
    """The summary, the notice and the list of the user's words before the messages."""

    summary_seq: int
    """Position of the summary's event."""
    dropped_messages: int
    """Number of messages in the notice."""
    user_word_blocks: int
    """Number of blocks in the list of the user's words."""


class Conversation:
    """The messages in memory, which of them are visible, and their sizes."""

    def __init__(  # noqa: PLR0915 - one statement for each thing it knows
        self, settings: Settings, counter: TokenCounter, *, sizes_are_recounted: bool = False
    ) -> None:
        self.settings = settings
        """The settings that decide how messages are grouped and how the texts before them read."""
        self.counter = counter
        """The counter that measures them."""
        self._sizes_are_recounted = sizes_are_recounted
        self.derived_cache: dict[str, object] = {}
        """Values that other modules keep with the fold. All of them can be computed again."""
        self.groups_hidden_by: dict[int, list[Group]] = {}
        """By position of one of the newest edits: the groups that it hid."""
        self.summaries_replaced_by: dict[int, Edit] = {}
        """By position of one of the newest summaries: the summary that it continues."""
        self.entries: dict[int, Entry] = {}
        """All messages in memory, by position."""
        self.rounds: list[Round] = []
        self.groups: list[Group] = []
        self.visible_groups: dict[int, Group] = {}
        """The groups that are not hidden, by index, oldest first."""
        self.results: dict[tuple[int, int], ToolResultView] = {}
        """Results that are neither masked nor hidden, oldest first."""
        self.bytes = 0
        """Bytes of all visible messages, including notice and summary."""
        self.tokens = 0
        """Tokens of all visible messages, including notice and summary."""
        self.visible_messages = 0
        """Number of visible messages, without notice and summary."""
        self.newest_user_entry: Entry | None = None
        """The message that began the turn."""
        self.turn_start_group = -1
        """Index of the group that holds the newest user message; -1 before the first."""
        self.turn_bytes = 0
        self.turn_tokens = 0
        self.turn_results = TurnResultKeys([], [], 0)
        """All results since the newest user message, including hidden ones."""
        self.last_reply_id: str | None = None
        """The provider's id of the newest reply."""
        self.last_reply_seq = 0
        """Position of that reply."""
        self.last_assistant_seq = 0
        """Position of the newest message of the model."""
        self.last_reveal_seq = 0
        """Position of the newest reveal."""
        self.summary: Edit | None = None
        """The summary in force."""
        self.summary_seq = 0
        """Position of the summary's event."""
        self.user_words = UserWordsList()
        """The user's words in hidden messages, as the model still sees them."""
        self.dropped_groups = DroppedGroups()
        """The groups that drops have hidden."""
        self.evicted_message_count = 0
        """Number of hidden messages that left memory."""
        self.front_size = Size(bytes=0, tokens=0)
        """Size of the list of the user's words, summary and notice before the first kept
        message."""
        self.summary_and_notice_size = Size(bytes=0, tokens=0)
        """Size of summary and notice alone."""
        self.visible_media: dict[tuple[int, int], MediaSize] = {}
        """The visible pictures and files, by message and part."""
        self.media_bytes = 0
        """Bytes of all visible pictures and files as they are sent."""
        self.visible_wire_ids: set[str] = set()
        """Ids of the visible calls as they are sent."""
        self.called_tools: set[str] = set()
        """Names of the tools that were called, including calls that left memory."""
        self.loading_groups: dict[str, list[Group]] = {}
        """By the name of a tool: the groups that loaded it, oldest first."""
        self.todo_calls: tuple[TodoCall, ...] = ()
        """The calls that say what the agent's todo list is: the newest whole list, and the changes
        since then."""

    # Reading

    @property
    def total_messages(self) -> int:
        """Number of messages in force, including hidden ones."""
        return len(self.entries) + self.evicted_message_count

    def open_calls(self) -> list[CallResultPair]:
        """Return the calls of the last round that have no result yet."""
        if not self.rounds or not self.rounds[-1].unanswered_calls:
            return []
        return [pairing for pairing in self.rounds[-1].calls if pairing.result is None]

    def is_protected(self, group: Group) -> bool:
        """Whether the group holds the newest user message or the active round."""
        return group.index in (len(self.groups) - 1, self.turn_start_group)

    def groups_between(self, first_seq: int, last_seq: int) -> list[Group]:
        """Return the groups that lie completely between two positions."""
        return find_groups_within(self.groups, first_seq, last_seq)

    def visible_groups_between(self, first_seq: int, last_seq: int) -> list[Group]:
        """Return the visible groups between two positions, at a cost that depends only on visible
        groups."""
        return find_groups_within(list(self.visible_groups.values()), first_seq, last_seq)

    def dropped_notice(self) -> str:
        """Return the notice that messages were dropped; empty if none were."""
        text = (
            format_dropped_messages_notice(self.dropped_groups.message_count)
            if self.dropped_groups
            else ""
        )
        handle = f"m{self.dropped_groups.first}-m{self.dropped_groups.last}"
        return add_recall_handle(text, handle, self.settings.recall_hint)

    def framed_summary(self, summary: Edit | None) -> str:
        """Return a summary as the model reads it; empty if there is none."""
        if summary is None or not summary.text:
            return ""
        return frame_summary_for_model(summary.text, summary.handle, self.settings.recall_hint)

    def visible_media_tokens(self) -> int:
        """Return the estimated tokens of the visible pictures and files."""
        return sum(size.tokens for size in self.visible_media.values())

    def count_visible_pictures(self) -> int:
        """Return the number of visible pictures."""
        return sum(size.pictures for size in self.visible_media.values())

    def request_bytes(self) -> int:
        """Return the bytes of a request that would be sent now."""
        return estimate_request_bytes(
            self.settings.head.bytes + self.bytes, self.visible_messages, self.media_bytes
        )

    def front_state(self) -> FrontState:
        """Return the state of the texts before the messages, for a later comparison."""
        return FrontState(
            self.summary_seq, self.dropped_groups.message_count, len(self.user_words.blocks)
        )

    def new_front_tokens(self, before: FrontState) -> FrontTokens:
        """Return the tokens of the texts before the messages that are new since `before`."""
        sizes = self.user_words.measure_blocks(self.counter, recall_hint=self.settings.recall_hint)
        notice = measure_text_message(self.dropped_notice(), self.counter).tokens
        summary = self.summary_and_notice_size.tokens - notice
        return FrontTokens(
            summary if self.summary_seq != before.summary_seq else 0,
            notice if self.dropped_groups.message_count != before.dropped_messages else 0,
            sum(size.tokens for size in sizes[before.user_word_blocks :]),
        )

    # Changing

    def copy(self) -> Conversation:
        """Return a copy of the conversation that can change independently."""
        twin = copy(self)
        twin.derived_cache = {}
        twin.groups_hidden_by = {}
        twin.summaries_replaced_by = {}
        twin.groups = [copy_group(group) for group in self.groups]
        twin.rounds = [round for group in twin.groups for round in group.rounds]
        twin.entries = {entry.seq: entry for round in twin.rounds for entry in round.entries}
        twin.visible_groups = {index: twin.groups[index] for index in self.visible_groups}
        results = {result.key: result for group in twin.groups for result in group.results()}
        twin.results = {key: results[key] for key in self.results}
        if self.newest_user_entry is not None:
            twin.newest_user_entry = twin.entries[self.newest_user_entry.seq]
        twin.turn_results = self.turn_results.copy()
        twin.user_words = self.user_words.copy()
        twin.dropped_groups = self.dropped_groups.copy(twin.groups)
        twin.visible_media = dict(self.visible_media)
        twin.visible_wire_ids = set(self.visible_wire_ids)
        twin.called_tools = set(self.called_tools)
        twin.loading_groups = {
            tool: [twin.groups[group.index] for group in groups]
            for tool, groups in self.loading_groups.items()
        }
        return twin

    def fold(self, event: Event) -> None:
        """Fold a message, an edit or a pin again. Such a repeated fold learns nothing about
        calls."""
        match event.body:
            case MessageAdded() | ToolResultRepair() as body:
                self.add_message(event, body)
            case Edit() as body:
                if body.op == "reveal":
                    self.reveal(event.seq, body)
                elif body.part is not None:
                    self.edit_part(event.seq, body, body.part)
                else:
                    self.hide(event.seq, body)
            case Pin() as body:
                self.pin(body)
            case _:
                pass

    def add_message(self, event: Event, body: MessageAdded | ToolResultRepair) -> Entry:
        """Add a message at the end: to the open round, or to a new one."""
        if body.message.role == "assistant":
            self.last_assistant_seq = event.seq
        last = self.rounds[-1] if self.rounds else None
        open_ = last if last is not None and last.unanswered_calls else None
        round = open_ or self._round_for_message(body.message)
        entry = self._put_message(event.seq, body, round, _message_time(event))
        if isinstance(body, MessageAdded) and body.reply_id is not None:
            self.last_reply_id = body.reply_id
            self.last_reply_seq = event.seq
        return entry

    def edit_part(self, seq: int, edit: Edit, part: int) -> Entry | None:
        """Show a part with an edit, or in full. Return its message if it is in memory."""
        entry = self.entries.get(edit.first)
        if entry is None or part >= len(entry.message.parts):
            return None
        before = entry.shown_size(part)
        if edit.op == "reveal":
            entry.edits.pop(part, None)
            entry.edited_by.pop(part, None)
        else:
            if self._sizes_are_recounted or edit.text == ERASED_PLACEHOLDER:
                edit = with_recomputed_size(edit, entry.message.parts[part], self.counter)
            entry.edits[part] = edit
            entry.edited_by[part] = seq
        after = entry.shown_size(part)
        self._recount_media(entry, part)
        entry.round.rendered = None
        self._resize_group(
            entry.round.group, after.bytes - before.bytes, after.tokens - before.tokens
        )
        if edit.op == "mask":
            self.results.pop((entry.seq, part), None)
        return entry

    def hide(self, seq: int, edit: Edit) -> None:
        """Hide the groups that a drop or a summary covers, except those that must stay."""
        if len(self.groups_hidden_by) >= MAX_REMEMBERED_HIDINGS:
            self.groups_hidden_by.clear()
            self.summaries_replaced_by.clear()
        for group in self.visible_groups_between(edit.first, edit.last):
            # A span may reach over the newest user message: it names what lies around it.
            is_spared = any(group.first <= place <= group.last for place in edit.spares)
            if not (group.pinned or is_spared or self.is_protected(group)):
                self.hide_group(seq, edit, group)
                self.groups_hidden_by.setdefault(seq, []).append(group)
        if edit.op == "summarise":
            if self.summary is not None:
                self.summaries_replaced_by[seq] = self.summary
            self.summary = edit
            self.summary_seq = seq
        if edit.listed or edit.relists:
            self.user_words.add_block_of_edit(edit, self.entries)
        self.recount_front()

    def hide_group(self, seq: int, edit: Edit, group: Group) -> None:
        """Hide one group if it is not hidden."""
        if group.hidden is not None:
            return  # what was dropped is in no later summary: the notice goes on counting it
        self._add_to_totals(group, -group.bytes, -group.tokens)
        self.visible_messages -= group.message_count
        del self.visible_groups[group.index]
        for result in group.results():
            self.results.pop(result.key, None)
        self.visible_wire_ids.difference_update(call.wire_id for call in group.calls())
        group.hidden = edit
        group.hidden_by = seq
        for entry in group.entries():
            self._recount_media(entry)
        if edit.op == "drop":
            self.dropped_groups.add(group)

    def reveal(self, seq: int, edit: Edit) -> list[int]:
        """Show the named parts in full, and their whole group.

        Return the position of the message of each part that was requested in full.
        """
        full_seqs: list[int] = []
        groups = self._with_loading_groups(
            find_groups_overlapping(self.groups, edit.first, edit.last)
        )
        for entry in (entry for group in groups for entry in group.entries()):
            if not edit.first <= entry.seq <= edit.last:
                continue
            entry.revealed = entry.round.group.revealed = self.last_reveal_seq = seq
            parts = [*entry.edits] if edit.part is None else [edit.part]
            part_edits = [
                self.edit_part(seq, replace(edit, first=entry.seq, part=p), p) for p in parts
            ]
            full_seqs += [entry.seq for edit_of_part in part_edits if edit_of_part is not None]
        self.dropped_groups.discard(groups)
        self.user_words.discard_messages(entry.seq for group in groups for entry in group.entries())
        for group in [group for group in groups if group.hidden is not None]:
            group.hidden = None
            self.visible_groups[group.index] = group
            self._add_to_totals(group, group.bytes, group.tokens)
            self.visible_messages += group.message_count
            for entry in group.entries():
                self._recount_media(entry)
            self._reassign_wire_ids(group)
        visible = (result for group in self.visible_groups.values() for result in group.results())
        visible_results = {r.key: r for r in visible if r.edit is None or r.edit.op != "mask"}
        self.results = dict(sorted(visible_results.items()))
        summary = self.summary
        if summary is not None and edit.first <= summary.first and summary.last <= edit.last:
            self.summary = None
            self.summary_seq = 0
        self.visible_groups = dict(sorted(self.visible_groups.items()))
        self.recount_front()
        return full_seqs

    def pin(self, body: Pin) -> None:
        """Pin messages, so that no policy hides them, or unpin them."""
        newest = next(reversed(self.entries), 0)
        for seq in range(body.first, min(body.last, newest) + 1):
            entry = self.entries.get(seq)
            if entry is not None and entry.pinned != body.pinned:
                entry.pinned = body.pinned
                entry.round.group.pinned += 1 if body.pinned else -1

    def use_settings(self, settings: Settings, counter: TokenCounter) -> None:
        """Use settings that change neither grouping nor sizes, except those of loaded tools."""
        tools_changed = settings.tools != self.settings.tools
        self.settings = settings
        self.counter = counter
        if tools_changed:
            self._recount_loaded_tools()
        self.user_words.clear_rendered()
        self.recount_front()

    def clear_rendered(self) -> None:
        """Clear the cached renderings."""
        for round in self.rounds:
            round.rendered = None

    def recount_front(self) -> None:
        """Measure the texts before the messages, and add them to the totals."""
        before = self.front_size
        list_size = self.user_words.measure_all_blocks(
            self.counter, recall_hint=self.settings.recall_hint
        )
        frame_size = self.measure_summary_and_notice(
            self.framed_summary(self.summary), self.dropped_notice()
        )
        self.summary_and_notice_size, self.front_size = frame_size, add_sizes(frame_size, list_size)
        self.bytes += self.front_size.bytes - before.bytes
        self.tokens += self.front_size.tokens - before.tokens

    def measure_summary_and_notice(self, summary: str, notice: str) -> Size:
        """Return the size of summary and notice, both as the model reads them."""
        return add_sizes(self._measure_front_text(summary), self._measure_front_text(notice))

    def _measure_front_text(self, text: str) -> Size:
        """Measure a text once, however many plans of one decision ask for it."""
        sizes = cast("dict[str, Size]", self.derived_cache.setdefault("front_sizes", {}))
        if text not in sizes:
            if len(sizes) >= MAX_REMEMBERED_FRONT_SIZES:
                sizes.clear()
            sizes[text] = measure_text_message(text, self.counter)
        return sizes[text]

    # Letting go of what is hidden, and taking up what was kept

    def groups_to_evict(self) -> list[Group]:
        """Return the groups that leave memory at a checkpoint."""
        return [group for group in self.groups if not self._is_kept(group)]

    def positions_in_use(self) -> set[int]:
        """Return the positions of the events that are needed to build the conversation again."""
        groups = [group for group in self.groups if self._is_kept(group)]
        seqs = {entry.seq for group in groups for entry in group.entries()}
        seqs.update(by for group in groups for e in group.entries() for by in e.edited_by.values())
        seqs.update(group.hidden_by for group in groups if group.hidden is not None)
        seqs.update(self.user_words.messages)
        if self.summary is not None and self.summary_seq:
            seqs.add(self.summary_seq)
        return seqs

    def to_state(self) -> dict[str, Any]:
        """Return the state for a snapshot, under the stored keys."""
        groups = [group for group in self.groups if self._is_kept(group)]
        entries = [entry for group in groups for entry in group.entries()]
        drops = [
            g for g in self.groups_to_evict() if g.hidden is not None and g.hidden.op == "drop"
        ]
        return {
            "last_reply": [self.last_reply_id, self.last_reply_seq],
            "replied": self.last_assistant_seq,
            "groups": [[[e.seq for e in round.entries] for round in g.rounds] for g in groups],
            "wire": _changed_wire_ids(groups),
            "edits": sorted(by for entry in entries for by in entry.edited_by.values()),
            "hidden": [[g.first, g.hidden_by] for g in groups if g.hidden is not None],
            "pinned": [entry.seq for entry in entries if entry.pinned],
            "revealed": [[entry.seq, entry.revealed] for entry in entries if entry.revealed],
            "summary": self.summary_seq if self.summary is not None else None,
            "turn": [self.turn_results.first, [*self.turn_results.last], self.turn_results.count],
            "dropped": self.dropped_groups.totals_after_eviction(drops),
            "words": [[block.listed_parts, block.left_out] for block in self.user_words.blocks],
            "loads": [
                [g.first, self._first_seqs_of_callers(g)] for g in groups if g.calling_groups
            ],
            "called": self._called_tools_of_settings(),
        }

    def restore(self, state: Mapping[str, Any], events: Mapping[int, Event]) -> None:
        """Restore the state of a snapshot, with the events that it names, in an empty
        conversation."""
        if not state:
            return
        for shape in state["groups"]:
            self._restore_group(shape, events)
        for seq in state["edits"]:
            edit = _edit_body(events[seq])
            if edit.part is not None:
                self.edit_part(seq, edit, edit.part)
        first = {group.first: group for group in self.groups}
        callers = dict(state["loads"])
        loading = {group.index for groups in self.loading_groups.values() for group in groups}
        for group in self.groups:
            # A tool may have been loaded again since, by a group that was hidden at that time. What
            # loaded it may have been erased since.
            seqs = callers.get(group.first, ()) if group.index in loading else ()
            group.calling_groups = [first[seq].index for seq in seqs]
        self.called_tools.update(state["called"])
        messages, start, end = state["dropped"]
        self.dropped_groups = DroppedGroups(messages, start, end)
        for seq, by in state["hidden"]:
            self.hide_group(by, _edit_body(events[by]), first[seq])
        for seq in state["pinned"]:
            entry = self.entries[seq]
            entry.pinned = True
            entry.round.group.pinned += 1
        for seq, by in state["revealed"]:
            entry = self.entries[seq]
            entry.revealed = by
            entry.round.group.revealed = max(by, entry.round.group.revealed)
            self.last_reveal_seq = max(by, self.last_reveal_seq)
        if state["summary"] is not None:
            self.summary = _edit_body(events[state["summary"]])
            self.summary_seq = state["summary"]
        self._restore_wire_ids({(seq, index): wire for seq, index, wire in state["wire"]})
        firsts, lasts, count = state["turn"]
        self.turn_results = TurnResultKeys(_to_result_keys(firsts), _to_result_keys(lasts), count)
        self.last_reply_id, self.last_reply_seq = state["last_reply"]
        self.last_assistant_seq = state["replied"]
        self.evicted_message_count = sum(count for count, _ in state["gone"].values())
        self.user_words = _restore_user_words(state["words"], events, self.counter)
        self.recount_front()

    def _first_seqs_of_callers(self, group: Group) -> list[int]:
        """Return the positions of the groups in memory that call tools that a group loaded."""
        calling = (self.groups[index] for index in group.calling_groups)
        return [each.first for each in calling if self._is_kept(each)]

    def _called_tools_of_settings(self) -> list[str]:
        """Return the called tools that the settings define. A snapshot contains no other text."""
        names = {name for tool in self.settings.tools for name, _ in list_tools_in_prompt(tool)}
        return sorted(self.called_tools & names)

    def _restore_group(self, shape: list[list[int]], events: Mapping[int, Event]) -> None:
        group = self._new_group()
        for seqs in shape:
            thinks = any(_holds_thinking(events[seq]) for seq in seqs)
            round = self._new_round(group, thinking=thinks)
            for seq in seqs:
                body = _message_body(events[seq])
                self._put_message(seq, body, round, _message_time(events[seq]))

    def _restore_wire_ids(self, wire_ids: Mapping[tuple[int, int], str]) -> None:
        self.visible_wire_ids.clear()
        for round in self.rounds:
            for index, call in enumerate(round.calls):
                call.wire_id = wire_ids.get((round.entries[0].seq, index), call.id)
                if round.group.hidden is None:
                    self.visible_wire_ids.add(call.wire_id)

    def _is_kept(self, group: Group) -> bool:
        return group.hidden is None or self.is_protected(group)

    # How a message finds its place

    def _put_message(
        self, seq: int, body: MessageAdded | ToolResultRepair, round: Round, at: float | None
    ) -> Entry:
        """Add a message to a round, count it and pair its calls and results."""
        message = body.message
        sizes = _message_sizes(body, self.counter)
        tool_names = list_loaded_tools(message)
        if tool_names:
            sizes = self._with_loaded_definitions(message, sizes)
        entry = Entry(seq=seq, message=message, sizes=sizes, round=round, at=at)
        entry.is_repair = isinstance(body, ToolResultRepair)
        entry.paused = isinstance(body, MessageAdded) and body.paused
        self.entries[seq] = entry
        self._recount_media(entry)
        round.entries.append(entry)
        round.rendered = None
        group = round.group
        self._resize_group(group, sum(s.bytes for s in sizes), sum(s.tokens for s in sizes))
        group.message_count += 1
        group.has_instructions = group.has_instructions or message.role == "system"
        group.has_user_words = group.has_user_words or has_user_words(entry)
        if group.hidden is None:
            self.visible_messages += 1
        for name in tool_names:
            self.loading_groups.setdefault(name, []).append(group)
        if self.loading_groups and message.role == "assistant":
            self._record_loaded_calls(entry)
        spoken, answers = pair_calls_with_results(entry, self._unique_wire_id)
        self.called_tools.update(call.name for call in message.calls)
        for result in answers:
            self.turn_results.append(result.key)
            if group.hidden is None:
                self.results[result.key] = result
        if answers and not round.unanswered_calls:
            self.todo_calls = find_todo_calls(self.todo_calls, round)
        if message.role == "user" and spoken and self._begins_turn(message):
            self._begin_turn(entry)
        return entry

    def _record_loaded_calls(self, entry: Entry) -> None:
        """Record for each call which visible group loaded its tool last."""
        group = entry.round.group
        for call in entry.message.calls:
            loading = reversed(self.loading_groups.get(call.name, ()))
            loader = next((each for each in loading if each.hidden is None), group)
            if loader is not group and group.index not in loader.calling_groups[-1:]:
                loader.calling_groups.append(group.index)

    def _with_loading_groups(self, groups: Iterable[Group]) -> list[Group]:
        """Return the groups, and those that loaded the tools that they call."""
        groups_by_index = {group.index: group for group in groups}
        for group in reversed(self.groups) if self.loading_groups else ():
            if any(index in groups_by_index for index in group.calling_groups):
                groups_by_index[group.index] = group
        return [groups_by_index[index] for index in sorted(groups_by_index)]

    def _with_loaded_definitions(
        self, message: Message, sizes: tuple[Size, ...]
    ) -> tuple[Size, ...]:
        """Return the sizes of a message's parts with the definitions that they load by name."""
        definitions = find_deferred_definitions(self.settings.tools)
        out = list(sizes)
        for index, part in enumerate(message.parts):
            for name in list_tools_loaded_by_name(part):
                if name in definitions:
                    size = measure_json(definitions[name], self.counter)
                    out[index] = add_sizes(out[index], size)
        return tuple(out)

    def _recount_loaded_tools(self) -> None:
        """Measure the messages again that load tools, because the definitions have changed."""
        loading = {g.index: g for groups in self.loading_groups.values() for g in groups}
        for entry in (entry for group in loading.values() for entry in group.entries()):
            if list_loaded_tools(entry.message):
                before = entry.bytes, entry.tokens
                entry.sizes = self._with_loaded_definitions(
                    entry.message, measure_message_parts(entry.message, self.counter)
                )
                self._resize_group(
                    entry.round.group, entry.bytes - before[0], entry.tokens - before[1]
                )

    def _begins_turn(self, message: Message) -> bool:
        """Whether a message begins a turn. Messages that a client program adds by itself do not."""
        return self.newest_user_entry is None or may_be_written_by_person(message)

    def _begin_turn(self, entry: Entry) -> None:
        group = entry.round.group
        self.newest_user_entry = entry
        self.turn_start_group = group.index
        self.turn_results = self.turn_results.since(group.first)
        is_visible = group.hidden is None
        self.turn_bytes, self.turn_tokens = (group.bytes, group.tokens) if is_visible else (0, 0)

    def _round_for_message(self, message: Message) -> Round:
        group = self.groups[-1] if self.groups else None
        thinking = message.role == "assistant" and has_signed_thinking(message)
        continues = (
            group is not None
            and group.hidden is None
            and message.role == "assistant"
            and group.continues_with(next_has_thinking=thinking)
        )
        if group is None or not continues:
            group = self._new_group()
        return self._new_round(group, thinking=thinking)

    def _new_group(self) -> Group:
        group = Group(index=len(self.groups))
        self.groups.append(group)
        self.visible_groups[group.index] = group
        return group

    def _new_round(self, group: Group, *, thinking: bool) -> Round:
        group.has_thinking = group.has_thinking or thinking
        round = Round(group=group)
        group.rounds.append(round)
        self.rounds.append(round)
        return round

    def _unique_wire_id(self, call_id: str) -> str:
        """Return the id, or a new one made from it if a visible call already has it."""
        wire_id = call_id
        n = 1
        while wire_id in self.visible_wire_ids:
            n += 1
            wire_id = f"{call_id}_{n}"
        self.visible_wire_ids.add(wire_id)
        return wire_id

    def _reassign_wire_ids(self, group: Group) -> None:
        """Give revealed calls other ids if theirs were used in the meantime."""
        for round in group.rounds:
            round.rendered = None
            for call in round.calls:
                is_taken = call.wire_id in self.visible_wire_ids
                call.wire_id = self._unique_wire_id(call.id) if is_taken else call.wire_id
                self.visible_wire_ids.add(call.wire_id)

    def _recount_media(self, entry: Entry, part: int | None = None) -> None:
        """Count the visible pictures and files of a part, or of the whole message."""
        for index in range(len(entry.message.parts)) if part is None else (part,):
            logged_part = entry.message.parts[index]
            if not list_media(logged_part):
                continue
            before = self.visible_media.pop((entry.seq, index), None)
            self.media_bytes -= before.bytes if before is not None else 0
            if entry.round.group.hidden is not None:
                continue
            edit = entry.edits.get(index)
            wire_part = logged_part if edit is None else apply_edit_to_part(logged_part, edit)
            if (size := measure_media(wire_part, self.counter)) is not None:
                self.visible_media[entry.seq, index] = size
                self.media_bytes += size.bytes

    def _resize_group(self, group: Group, bytes: int, tokens: int) -> None:
        group.bytes += bytes
        group.tokens += tokens
        if group.hidden is None:
            self._add_to_totals(group, bytes, tokens)

    def _add_to_totals(self, group: Group, bytes: int, tokens: int) -> None:
        self.bytes += bytes
        self.tokens += tokens
        if group.index >= self.turn_start_group:
            self.turn_bytes += bytes
            self.turn_tokens += tokens


def _changed_wire_ids(groups: list[Group]) -> list[list[Any]]:
    """List the ids that are not sent as their providers gave them: round, index there, id."""
    return [
        [round.entries[0].seq, index, call.wire_id]
        for group in groups
        for round in group.rounds
        for index, call in enumerate(round.calls)
        if call.wire_id != call.id
    ]


def _message_sizes(
    body: MessageAdded | ToolResultRepair, counter: TokenCounter
) -> tuple[Size, ...]:
    """Return the recorded sizes of a message's parts, or measure them for another counter."""
    name = body.counter if isinstance(body, MessageAdded) else ""
    if name == counter.name and len(body.sizes) == max(1, len(body.message.parts)):
        return body.sizes
    return measure_message_parts(body.message, counter)


def _restore_user_words(
    blocks: list[Any], events: Mapping[int, Event], counter: TokenCounter
) -> UserWordsList:
    """Restore the list of the user's words from its blocks: references, and what is left out."""
    words = UserWordsList()
    for places, left_out in blocks:
        references = [UserPartReference(*place) for place in places]
        for place in references:
            body = _message_body(events[place.seq])
            sizes = _message_sizes(body, counter)
            at = _message_time(events[place.seq])
            words.messages[place.seq] = SaidMessage(body.message, sizes, at)
        words.blocks.append(
            CompactionUserWords(
                listed_parts=references,
                left_out=None if left_out is None else OmittedUserMessages(*left_out),
            )
        )
    return words


def _to_result_keys(pairs: list[list[int]]) -> list[tuple[int, int]]:
    return [(seq, part) for seq, part in pairs]


def _message_time(event: Event) -> float | None:
    """Return the time of a message; None if it is not known."""
    is_undated = isinstance(event.body, MessageAdded) and event.body.undated
    return None if is_undated else event.at


def _message_body(event: Event) -> MessageAdded | ToolResultRepair:
    assert isinstance(event.body, MessageAdded | ToolResultRepair)  # noqa: S101 - the snapshot names it so
    return event.body


def _edit_body(event: Event) -> Edit:
    assert isinstance(event.body, Edit)  # noqa: S101 - the snapshot names it so
    return event.body


def _holds_thinking(event: Event) -> bool:
    message: Message = _message_body(event).message
    return message.role == "assistant" and has_signed_thinking(message)
