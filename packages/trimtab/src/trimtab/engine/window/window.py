"""The window: the log folded into what the model sees now, with the size of each part and totals.

Only `apply(event)` changes a window. It never runs a policy: each edit is an event of the log. All
values that a policy reads at every call are kept up to date. So a call costs only what is new,
whatever the length of the log.

It has three parts: the *conversation* (messages, and what is visible of them), the *accounting*
(what calls taught) and the *base* (from which it can be folded again). This module passes each
event to them and keeps them consistent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy, deepcopy

from trimtab.engine.log.erase import (
    erase_event_payload,
    erase_provider_words,
    make_event_eraser,
)
from trimtab.engine.log.event import (
    RENDERER_VERSION,
    CallOutcome,
    Edit,
    Event,
    Fork,
    JsonMapping,
    LoggedModelCall,
    MessageAdded,
    ModelCall,
    PayloadErasure,
    Pin,
    RetentionErasure,
    Rewind,
    Settings,
    SummaryAttempt,
    ToolResultRepair,
    TurnProgressRecord,
)
from trimtab.engine.log.rewind import is_event_in_force
from trimtab.engine.tokens.counter import (
    TokenCounter,
    count_tokens_inserted_by_edit,
    make_counter_from_name,
)
from trimtab.engine.window.accounting import Accounting
from trimtab.engine.window.checkpoint import MAX_REMEMBERED_REWINDS, Base, Snapshot, build_snapshot
from trimtab.engine.window.conversation import Conversation
from trimtab.engine.window.structure import Entry, Group, ToolResultView, TurnResultKeys
from trimtab.errors import NewerLogError


class Window:
    """What the model sees now. Policies read it; only `apply` changes it.

    A custom policy may rely on the properties below (`WindowView`).
    """

    def __init__(
        self,
        counters: Mapping[str, TokenCounter] | None = None,
        snapshot: Snapshot | None = None,
        snapshot_events: Iterable[Event] = (),
    ) -> None:
        self.counters_by_name = dict(counters or {})
        """The caller's own counters."""
        self.settings = Settings(model="", dialect="", renderer=RENDERER_VERSION)
        """Everything that shapes a request except the messages."""
        self.settings_seq = 0
        """Position of the settings event."""
        self.counter: TokenCounter = self._counter_named("")
        """The token counter that the settings name."""
        self.seq = 0
        """The position of the last event."""
        self.accounting = Accounting()
        """What calls taught."""
        self.base = Base()
        """The start of the fold."""
        self.conversation = Conversation(self.settings, self.counter)
        """The messages, and what is visible of them."""
        self._shares_conversation = False
        if snapshot is not None:
            self._restore(snapshot, snapshot_events)

    @property
    def entries(self) -> dict[int, Entry]:
        """All messages in memory by position, oldest first, including hidden ones."""
        return self.conversation.entries

    @property
    def visible_groups(self) -> dict[int, Group]:
        """The groups that are not hidden, by index, oldest first."""
        return self.conversation.visible_groups

    @property
    def results(self) -> dict[tuple[int, int], ToolResultView]:
        """Tool results that are neither masked nor hidden, by message and part, oldest first."""
        return self.conversation.results

    @property
    def bytes(self) -> int:
        """Bytes of everything visible: messages, the list of the user's words, summary and
        notice."""
        return self.conversation.bytes

    @property
    def tokens(self) -> int:
        """Estimated tokens of everything visible: messages, the list of the user's words, summary
        and notice."""
        return self.conversation.tokens

    @property
    def visible_messages(self) -> int:
        """Number of visible messages, without summary and notice."""
        return self.conversation.visible_messages

    @property
    def newest_user_entry(self) -> Entry | None:
        """The newest user message, which began the turn; None before the first."""
        return self.conversation.newest_user_entry

    @property
    def turn_start_group(self) -> int:
        """Index of the group that holds the newest user message; -1 before the first."""
        return self.conversation.turn_start_group

    @property
    def turn_results(self) -> TurnResultKeys:
        """All tool results since the newest user message, including hidden ones."""
        return self.conversation.turn_results

    @property
    def summary(self) -> Edit | None:
        """The summary in force; None without one."""
        return self.conversation.summary

    @property
    def last_call(self) -> LoggedModelCall | None:
        """The newest model call; None before the first."""
        return self.accounting.last_call

    @property
    def policy_note(self) -> JsonMapping | None:
        """The policy's own record of the last call. A fork starts without one."""
        return self.accounting.policy_note

    @property
    def read_through_seq(self) -> int:
        """The last position to which the model has replied. A later call may have failed."""
        return min(self.accounting.sent_through_seq, self.conversation.last_assistant_seq)

    @property
    def is_reply_due(self) -> bool:
        """Whether a message, a tool result or a paused reply is waiting for the model."""
        if not self.conversation.rounds:
            return False
        last = self.conversation.rounds[-1]
        awaits_model = last.entries[-1].message.role != "assistant"
        return bool(last.calls) or awaits_model or last.paused or self.user_wrote_since_call

    @property
    def was_answered(self) -> bool:
        """Whether the newest message is a finished reply to the newest call.

        A reply that a caller began for the model is not one: no call was made before it.
        """
        call = self.last_call
        if call is None or self.is_reply_due or not self.conversation.rounds:
            return False
        newest = self.conversation.rounds[-1].entries[-1]
        others = (e for e in reversed(self.entries.values()) if e.message.role != "assistant")
        newest_question = next(others, None)
        question_seq = 0 if newest_question is None else newest_question.seq
        # After a rewind, what was sent is waiting for another reply.
        is_call_in_force = is_event_in_force(call.seq, self.base.rewinds)
        return is_call_in_force and question_seq <= self.accounting.sent_through_seq < newest.seq

    @property
    def user_wrote_since_call(self) -> bool:
        """Whether the newest user message was added after the newest call was made."""
        user = self.newest_user_entry
        call = self.last_call
        return user is not None and call is not None and user.seq > call.body.position

    def unsent_results(self) -> Iterator[ToolResultView]:
        """Yield visible results that were never sent, newest first."""
        for result in reversed(self.conversation.results.values()):
            if result.seq <= self.accounting.sent_through_seq:
                return
            yield result

    def is_protected(self, group: Group) -> bool:
        """Whether the group holds the newest user message or the active round."""
        return self.conversation.is_protected(group)

    def apply(self, *events: Event) -> None:
        """Fold further events.

        Raises:
            HistoryNotInMemory: An event needs history that is no longer in memory. Events before
                it are folded.
            NewerLogError: A newer version of trimtab rendered the requests of this log.
            ValueError: An event does not follow the last position.
        """
        erasing: list[Event] = []
        try:
            for event in events:
                if event.seq != self.seq + 1:
                    raise ValueError(f"event {event.seq} cannot follow position {self.seq}")
                if erasing and not isinstance(event.body, PayloadErasure):
                    self._fold_erases(erasing)
                    erasing = []
                self.base.require_targets_in_memory(
                    event.body, self.conversation.entries, self.conversation.groups
                )
                self.seq = event.seq
                if isinstance(event.body, PayloadErasure):
                    erasing.append(event)
                    continue
                if not isinstance(event.body, ModelCall):
                    self._stop_sharing()
                self._fold(event)
        finally:
            if erasing:
                self._fold_erases(erasing)

    def copy(self) -> Window:
        """Return a copy of the window that can change independently.

        Nothing is folded again. The conversation is shared until the first event that changes it. A
        model call does not change it.
        """
        twin = copy(self)
        twin.counters_by_name = dict(self.counters_by_name)
        twin.accounting = deepcopy(self.accounting)
        twin.base = self.base.copy()
        twin._shares_conversation = True  # noqa: SLF001 - its own class
        return twin

    def checkpoint(self) -> Snapshot:
        """Remove hidden content from memory, and continue the fold from here.

        Returns:
            The snapshot from which the same window can be restored.
        """
        base = self.base
        last = self.accounting.last_call
        base.rewinds = base.rewinds[-MAX_REMEMBERED_REWINDS:]
        state = {
            "settings": self.settings_seq,
            **self.accounting.to_state(),
            **self.conversation.to_state(),
            **base.to_state(self.conversation.groups_to_evict()),
        }
        events_by_seq = {**base.snapshot_events, **{e.seq: e for e in base.events_since_snapshot}}
        positions = self.conversation.positions_in_use()
        if self.settings_seq:
            events_by_seq[self.settings_seq] = Event(
                seq=self.settings_seq, at=0.0, body=self.settings
            )
            positions.add(self.settings_seq)
        if last is not None:
            events_by_seq[last.seq] = Event(seq=last.seq, at=last.at, body=last.body)
            positions.add(last.seq)
        snapshot = build_snapshot(self.seq, positions, state)
        base.start_from(snapshot, {seq: events_by_seq[seq] for seq in snapshot.named_positions()})
        self._refold()
        return snapshot

    def register_counter(self, counter: TokenCounter) -> None:
        """Register a counter by its name, for settings that will name it."""
        self.counters_by_name[counter.name] = counter

    def _restore(self, snapshot: Snapshot, events: Iterable[Event]) -> None:
        """Restore the state of a snapshot in a new window."""
        self.seq = snapshot.seq
        state = snapshot.state
        self.base = Base.from_snapshot(snapshot, events)
        events_by_seq = self.base.snapshot_events
        if state["settings"]:
            settings = events_by_seq[state["settings"]].body
            assert isinstance(settings, Settings)  # noqa: S101 - the snapshot names it so
            self._set_settings(settings, state["settings"])
        self.accounting = Accounting.from_state(state, events_by_seq)
        self.conversation = self._restored_conversation()

    def _restored_conversation(self) -> Conversation:
        """Return the conversation as it was at the base."""
        conversation = Conversation(
            self.settings, self.counter, sizes_are_recounted=self.base.sizes_are_recounted
        )
        conversation.restore(self.base.snapshot.state, self.base.snapshot_events)
        return conversation

    def _refold(self) -> None:
        """Fold messages, edits and pins again from the base on."""
        events = self.base.begin_refold(self.seq)
        self.conversation = self._restored_conversation()
        for event in events:
            self.conversation.fold(event)

    def _counter_named(self, name: str) -> TokenCounter:
        """Return the counter of that name: the caller's own, otherwise the estimator of that
        name."""
        return self.counters_by_name.get(name) or make_counter_from_name(name)

    def _set_settings(self, settings: Settings, seq: int) -> None:
        if settings.renderer > RENDERER_VERSION:
            raise NewerLogError(
                f"the settings at event {seq} have renderer version {settings.renderer}; this "
                f"release knows up to {RENDERER_VERSION}: upgrade trimtab to read this log"
            )
        self.settings = settings
        self.settings_seq = seq
        self.counter = self._counter_named(settings.counter)

    def _stop_sharing(self) -> None:
        """Give a copy its own conversation before it is changed."""
        if self._shares_conversation:
            self.conversation = self.conversation.copy()
            self._shares_conversation = False

    def _fold(self, event: Event) -> None:
        match event.body:
            case MessageAdded() | ToolResultRepair() as body:
                self._fold_message(event, body)
            case Edit() as body:
                self.base.record(event)
                self._fold_edit(event.seq, body)
            case Settings() as body:
                self._fold_settings(event.seq, body)
            case Pin() as body:
                self.base.record(event)
                self.conversation.pin(body)
            case Rewind() as body:
                self._fold_rewind(event, body)
            case RetentionErasure() as body:
                self._fold_retention(body.before - 1)
            case ModelCall() as body:
                self.accounting.record_call(event, body, self.settings, self.conversation.tokens)
            case CallOutcome() as body:
                self.accounting.record_outcome(body, self.conversation)
            case TurnProgressRecord() as body:
                self.accounting.record_turn_state(body)
            case Fork():
                self.accounting.policy_note = None
            case SummaryAttempt() as body:
                self.accounting.record_summary_attempt(body, self.conversation.total_messages)
            case _:
                pass

    def _fold_settings(self, seq: int, body: Settings) -> None:
        before = self.settings
        self._set_settings(body, seq)
        self.accounting.reset_learned_on_model_change(before, body)
        if body.counter != before.counter:
            base = self.base
            base.sizes_are_recounted = bool(base.events_since_snapshot or base.snapshot_events)
            self.accounting.reset_calibration()
            self._refold()
        else:
            self.conversation.use_settings(body, self.counter)
        self.conversation.clear_rendered()
        self.accounting.cache_is_cold = True
        self.accounting.break_prefix("settings were changed")

    def _fold_message(self, event: Event, body: MessageAdded | ToolResultRepair) -> None:
        self.base.record(event)
        if body.message.role == "assistant":
            self.accounting.record_reply()
        entry = self.conversation.add_message(event, body)
        self.accounting.record_added_tokens(entry.tokens)
        if self.conversation.newest_user_entry is entry:
            self.accounting.record_new_turn()

    def _fold_edit(self, seq: int, edit: Edit) -> None:
        if edit.op == "reveal":
            sent_seq = self.accounting.sent_through_seq
            revealed_seqs = self.conversation.reveal(seq, edit)
            times = 1 + sum(1 for place in revealed_seqs if place <= sent_seq)
            self.accounting.break_prefix("hidden messages were shown again", times)
        elif edit.part is not None:
            self._fold_part_edit(seq, edit, edit.part)
        else:
            usage = self.accounting.compute_carried_usage(self.conversation)
            self.conversation.hide(seq, edit)
            self.accounting.break_prefix(_describe_hiding(edit))
            if usage is not None and edit.relists:
                usage = usage._replace(user_word_blocks=0)
            self.accounting.carried_usage = usage

    def _fold_part_edit(self, seq: int, edit: Edit, part: int) -> None:
        accounting = self.accounting
        usage = accounting.compute_carried_usage(self.conversation)
        entry = self.conversation.edit_part(seq, edit, part)
        if entry is None:
            return
        if entry.seq <= accounting.sent_through_seq:
            accounting.break_prefix(_describe_hiding(edit))
        if usage is not None and accounting.usage_anchor is None:
            content = entry.message.parts[part]
            part_edit = entry.edits[part]
            came = count_tokens_inserted_by_edit(part_edit, content, self.counter)
            accounting.carried_usage = usage._replace(
                replacement_tokens=usage.replacement_tokens + came
            )

    def _fold_rewind(self, event: Event, body: Rewind) -> None:
        self.base.record(event)
        self._refold()
        self.base.rewinds.append((self.seq, body.to))
        self.accounting.sent_through_seq = min(self.accounting.sent_through_seq, body.to)
        self.accounting.cache_is_cold = True
        self.accounting.break_prefix("the conversation was rewound")

    def _fold_erases(self, events: list[Event]) -> None:
        """Erase what a run of erasures names, and fold once."""
        erases = [event.body for event in events if isinstance(event.body, PayloadErasure)]
        for event, body in zip(events, erases, strict=True):
            self.base.erased_ranges.append((body.message, body.message, body.part, event.seq))
        self._scrub(make_event_eraser(erases))
        self.accounting.break_prefix("something was erased", len(erases))

    def _fold_retention(self, last_seq: int) -> None:
        """Erase all messages up to a position."""
        self.base.erased_ranges.append((1, last_seq, None, self.seq))
        self._scrub(lambda event: erase_provider_words(erase_event_payload(event, 1, last_seq)))
        self.accounting.break_prefix("something was erased")

    def _scrub(self, change: Callable[[Event], Event]) -> None:
        self.base.change_events(change)
        self.accounting.change_last_call(change)
        self.accounting.erase_provider_message()
        self._refold()


def _describe_hiding(edit: Edit) -> str:
    """Describe what an edit did to the prompt. It does not quote the reason, because a snapshot
    keeps this text and must contain nothing of the conversation."""
    if not edit.first:
        return "the list of the user's words was written again"
    return f"messages were hidden ({edit.op})"
