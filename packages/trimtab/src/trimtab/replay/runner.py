"""Replay one conversation under one policy, through the code that production uses.

Replay all conversations under all setups, on all cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from typing import Any, TypeVar

from trimtab.engine.log.edits import apply_edit_to_part
from trimtab.engine.log.event import CallOutcome, Edit, Event, ModelCall, Usage
from trimtab.engine.log.message import Message
from trimtab.engine.prompt.render import hash_request_head
from trimtab.engine.tokens.counter import (
    measure_message_parts,
)
from trimtab.engine.window.open_calls import build_repairs_for_open_calls
from trimtab.engine.window.structure import Entry
from trimtab.engine.window.window import Window
from trimtab.errors import CannotFit
from trimtab.models.catalog import resolve_model_info
from trimtab.options import build_options
from trimtab.replay.billing import CacheRules, PromptCacheModel, PromptPiece
from trimtab.replay.calls import (
    MAX_REFETCH_TOKENS,
    ConversationRun,
    ReplayedCall,
    ReplaySetup,
)
from trimtab.replay.client_replay import ClientReplay
from trimtab.replay.needs import (
    NO_NEEDS,
    CallNeeds,
    ShownText,
    count_needs,
    find_needs,
    join_message_text,
)
from trimtab.replay.prompt_scale import (
    PromptScale,
    add_head_stand_in,
    choose_output_tokens,
    learn_prompt_scale,
    make_counter,
    measure_messages,
    with_learned_lifetime,
)
from trimtab.replay.selection import RecordedCall, RecordedConversation
from trimtab.replay.times import estimate_message_times, with_believed_times
from trimtab.verbs import adding, configuring, requesting
from trimtab.verbs.state import State, Verb, apply_at_once, create_state, record

T = TypeVar("T")


def replay_conversation(
    conversation: RecordedConversation,
    setup: ReplaySetup,
    rules_by_provider: Mapping[str, CacheRules],
    needs: Mapping[int, CallNeeds],
    *,
    scale: PromptScale | None = None,
) -> ConversationRun:
    """Replay a conversation call by call, with one request before each assistant message.

    Args:
        conversation: The conversation.
        setup: The setup to replay it under.
        rules_by_provider: The cache rules that bill each call, by the name of the provider.
        needs: The needs of each reply, by message index: the result of `find_needs`.
        scale: What its usage says about the tokens of its prompts. None bills estimated tokens,
            and no head that the log does not show.
    """
    if setup.sends_everything:
        client = ClientReplay(conversation, setup.model, rules_by_provider, needs, scale)
        return client.run(setup)
    prompt_scale = scale or PromptScale()
    rules_by_provider = with_learned_lifetime(rules_by_provider, prompt_scale)
    if scale is not None:
        conversation = with_believed_times(conversation, rules_by_provider)
    conversation = add_head_stand_in(conversation, prompt_scale, make_counter(setup.model))
    times = estimate_message_times(conversation)
    clock = [times[0] if times else 0.0]
    options = _scale_options(setup, prompt_scale)
    state = create_state(build_options(model=setup.model, **options), lambda: clock[0])
    caches = {
        name: PromptCacheModel(rules, prompt_scale.shared)
        for name, rules in rules_by_provider.items()
    }
    walk = _ReplayWalk(state, setup, caches, prompt_scale)
    walk.run(configuring.record_options(state, state.options))
    if conversation.system or conversation.tools:
        head = {"system": conversation.system, "tools": conversation.tools}
        walk.run(configuring.configure(state, head))
    refusals = 0
    for index, message in enumerate(conversation.messages):
        if message.role == "user" and not message.results:
            walk.end_turn()
        clock[0] = times[index]
        if message.role == "assistant":
            try:
                usage = conversation.recorded.get(index, RecordedCall()).usage
                walk.call(index, message, needs.get(index, NO_NEEDS), usage)
            except CannotFit:
                refusals += 1
        walk.add(message)
    return ConversationRun(
        conversation=conversation.id,
        setup=setup.name,
        calls=tuple(walk.records),
        cannot_fit=refusals,
    )


def _scale_options(setup: ReplaySetup, scale: PromptScale) -> dict[str, Any]:
    """Return the options of a context that counts estimated tokens: its window shrinks or grows."""
    options = dict(setup.options)
    if scale.ratio != 1.0:
        window = options.get("context_window") or resolve_model_info(setup.model).context_window
        options["context_window"] = max(1, int(window / scale.ratio))
    if scale.long_lived and resolve_model_info(setup.model).cache_style == "marks":
        options.setdefault("cache", "1h")
    return options


class _ReplayWalk:
    """A running replay."""

    def __init__(
        self,
        state: State,
        setup: ReplaySetup,
        caches: dict[str, PromptCacheModel],
        scale: PromptScale,
    ) -> None:
        self._state = state
        self._log: list[Event] = []
        self._setup = setup
        self._caches = caches
        self._scale = scale
        self._positions: list[int] = []
        self._pieces: list[PromptPiece] = []
        self._end_by_block: dict[int, int] = {}
        self._blocks = 0
        self._version = -1
        self._paid = (0, 0)
        self._sent_messages = 0
        self._summary = ShownText("")
        self._shown: dict[int, tuple[int | tuple[Edit, ...], ShownText]] = {}
        self.records: list[ReplayedCall] = []

    def run(self, verb: Verb[T]) -> T:
        """Add to the log what a verb records."""
        return apply_at_once(self._state, verb, self._log)

    def add(self, message: Message) -> None:
        # A reply that is there twice is one message.
        handle = self.run(adding.add(self._state, message))
        self._positions.append(int(handle.removeprefix("m")))

    def end_turn(self) -> None:
        """Make a summary, as may happen in the background after a turn."""
        self._write(forced=False)

    def _write(self, *, forced: bool) -> None:
        if self._setup.summarise is not None and self._state.window.visible_groups:
            read, written_tokens = self.run(self._setup.summarise(self._state, forced))
            self._paid = (self._paid[0] + read, self._paid[1] + written_tokens)

    def call(
        self,
        index: int,
        reply: Message,
        needs: CallNeeds,
        reported: Usage | None,
    ) -> None:
        state = self._state
        window = state.window
        scale = self._scale
        before, version = len(self._log), window.accounting.prefix_version
        self._write(forced=True)
        self.run(record(build_repairs_for_open_calls(window)))
        self.run(requesting.decide(state))
        edits = [e.body for e in self._log[before:] if isinstance(e.body, Edit)]
        body = requesting.build_call(state)
        self.run(record([body]))
        event = self._log[-1]
        pieces, marks = self._prompt(body)
        bills = {n: cache.bill_call(pieces, marks, event.at) for n, cache in self._caches.items()}
        first_cache = next(iter(self._caches.values()))
        first = next(iter(bills.values()))
        usage = Usage(input=body.tokens, cache_read=first.read, cache_write=first.write)
        self.run(record([CallOutcome(call=event.seq, usage=usage)]))
        output = sum(s.tokens for s in measure_message_parts(reply, window.counter))
        new_entries = map(self._entry, range(self._sent_messages, len(self._positions)))
        new_tokens = sum(entry.tokens for entry in new_entries if not entry.round.group.hidden)
        self._sent_messages = len(self._positions)
        counts, lost = count_needs(needs, self._is_sent_whole, self._list_changed_texts)
        self.records.append(
            ReplayedCall(
                index=index,
                at=event.at,
                tokens=round(body.tokens * scale.ratio),
                head=round(window.settings.head.tokens * scale.ratio),
                new=round(new_tokens * scale.ratio),
                is_cold=not self.records or event.at - self.records[-1].at > first_cache.rules.ttl,
                bill={
                    name: bill.scaled(
                        scale.ratio,
                        long_lived=scale.long_lived and self._caches[name].rules.style == "marks",
                    )
                    for name, bill in bills.items()
                },
                output=choose_output_tokens(reported, reply, output, scale),
                edits=len(edits),
                broke=window.accounting.prefix_version != version and bool(self.records),
                **self._summarised(edits),
                needs=counts,
                missing=self._count_missing_tokens(lost),
            )
        )

    def _summarised(self, made: list[Edit]) -> dict[str, int]:
        """Return what summaries have cost since the last call."""
        if self._setup.summarise is None:
            return {"summarised": sum(_estimate_summary_input(e, self._state.window) for e in made)}
        (read, written_tokens), self._paid = self._paid, (0, 0)
        return {"summarised": read, "written": written_tokens}

    def _prompt(self, call: ModelCall) -> tuple[list[PromptPiece], list[int]]:
        """Return the prompt as pieces, and the indexes of the pieces after which it is marked."""
        window, rendering = self._state.window, self._state.rendering
        is_new = window.accounting.prefix_version != self._version
        if is_new:
            head = PromptPiece(
                digest=hash_request_head(window), tokens=window.settings.head.tokens, blocks=1
            )
            self._pieces, self._version = [head], window.accounting.prefix_version
            self._end_by_block, self._blocks = {-1: 0}, 0
        for part, blocks, digest in rendering.rendered_rounds[len(self._pieces) - 1 :]:
            tokens = sum(entry.tokens for entry in part.entries) if part else 0
            self._blocks += blocks
            self._end_by_block[self._blocks - 1] = len(self._pieces)
            self._pieces.append(PromptPiece(digest=digest, tokens=tokens, blocks=blocks))
        if is_new and len(self._pieces) > 1:
            # Summary and notice are the first piece, or stand at the beginning of it.
            first = self._pieces[1]
            self._pieces[1] = replace(
                first, tokens=first.tokens + window.conversation.front_size.tokens
            )
        ends = self._end_by_block
        return self._pieces, [ends[mark] for mark in call.marks if mark in ends]

    def _is_sent_whole(self, index: int) -> bool:
        """Return whether a message is sent as it was written."""
        entry = self._entry(index)
        return entry.round.group.hidden is None and not entry.edits

    def _list_changed_texts(self, indexes: Sequence[int]) -> list[ShownText]:
        """Return the summary, and what else is sent instead of these messages."""
        window = self._state.window
        if window.summary and window.summary.text != self._summary.text:
            self._summary = ShownText(window.summary.text)
        front = [self._summary] if window.summary else []
        return [*front, *(self._show(self._entry(index)) for index in indexes)]

    def _entry(self, index: int) -> Entry:
        return self._state.window.entries[self._positions[index]]

    def _show(self, entry: Entry) -> ShownText:
        """Return what is sent of a message that was edited, or that the list of the user's words
        shows. It is read once for each state of the message."""
        window = self._state.window
        is_hidden = entry.round.group.hidden is not None
        state = window.accounting.prefix_version if is_hidden else tuple(entry.edits.values())
        known_state, shown = self._shown.get(entry.seq, (None, None))
        if shown is None or known_state != state:
            if is_hidden:
                shown = ShownText(window.conversation.user_words.render_message(entry.seq, None))
            else:
                parts = tuple(
                    apply_edit_to_part(part, entry.edits[index]) if index in entry.edits else part
                    for index, part in enumerate(entry.message.parts)
                )
                shown = ShownText(join_message_text(replace(entry.message, parts=parts)))
            self._shown[entry.seq] = state, shown
        return shown

    def _count_missing_tokens(self, lost: Iterable[int]) -> int:
        """Return the tokens of messages that would be fetched again."""
        sizes = (sum(size.tokens for size in self._entry(index).sizes) for index in lost)
        return sum(min(size, MAX_REFETCH_TOKENS) for size in sizes)


def _estimate_summary_input(edit: Edit, window: Window) -> int:
    """Estimate the tokens that a summariser would have read, at 1,000 characters per message."""
    if edit.op != "summarise":
        return 0
    spans = (e for seq, e in window.entries.items() if edit.first <= seq <= edit.last)
    return sum(min(sum(size.tokens for size in entry.sizes), 250) for entry in spans) + 500


OnReplayProgress = Callable[[int, int], None]
"""Called after each conversation with the calls done and all calls, over all setups."""


def replay_all(
    conversations: Sequence[RecordedConversation],
    setups: Sequence[ReplaySetup],
    rules_by_provider: Mapping[str, CacheRules],
    *,
    jobs: int | None = None,
    on_progress: OnReplayProgress | None = None,
) -> list[ConversationRun]:
    """Replay every conversation under every setup.

    Args:
        conversations: The conversations to replay.
        setups: The setups to replay each of them under.
        rules_by_provider: The cache rules that bill each call, by the name of the provider.
        jobs: Number of processes. None for one per core.
        on_progress: Called after each conversation with the calls done and all calls.

    Returns:
        The runs, ordered by conversation and then by setup.
    """
    total = sum(conversation.calls for conversation in conversations) * len(setups)
    done = 0
    found: dict[int, list[ConversationRun]] = {}
    for index, runs in _iter_finished_runs(
        conversations, setups, dict(rules_by_provider), jobs or os.cpu_count() or 1
    ):
        found[index] = runs
        done += conversations[index].calls * len(setups)
        if on_progress is not None:
            on_progress(done, total)
    return [run for index in range(len(conversations)) for run in found[index]]


def _iter_finished_runs(
    conversations: Sequence[RecordedConversation],
    setups: Sequence[ReplaySetup],
    rules_by_provider: dict[str, CacheRules],
    jobs: int,
) -> Iterator[tuple[int, list[ConversationRun]]]:
    # The longest first: none of them is left to run alone at the end.
    order = sorted(range(len(conversations)), key=lambda i: -conversations[i].calls)
    if jobs == 1 or len(order) < 2:
        for index in order:
            yield index, replay_under_each_setup(conversations[index], setups, rules_by_provider)
        return
    with ProcessPoolExecutor(max_workers=min(jobs, len(order))) as pool:
        futures = {
            pool.submit(
                replay_under_each_setup, conversations[index], setups, rules_by_provider
            ): index
            for index in order
        }
        for future in as_completed(futures):
            yield futures[future], future.result()


def replay_under_each_setup(
    conversation: RecordedConversation,
    setups: Sequence[ReplaySetup],
    rules_by_provider: Mapping[str, CacheRules],
) -> list[ConversationRun]:
    """Replay one conversation under every setup. Its needs are found only once, and settings of a
    client that change nothing in it share one run."""
    needs = find_needs(conversation.messages)
    runs: list[ConversationRun] = []
    scales: dict[str, PromptScale | None] = {}
    clients: dict[str, ClientReplay] = {}
    for setup in setups:
        model = setup.model
        try:
            if model not in scales:
                scales[model] = learn_recorded_scale(conversation, model)
            scale = scales[model]
            if setup.sends_everything:
                if model not in clients:
                    clients[model] = ClientReplay(
                        conversation, model, rules_by_provider, needs, scale
                    )
                run = clients[model].run(setup)
            else:
                run = replay_conversation(
                    conversation, setup, rules_by_provider, needs, scale=scale
                )
            runs.append(run)
        except Exception as error:
            error.add_note(f"in conversation {conversation.id} under {setup.name}")
            raise
    return runs


def learn_recorded_scale(conversation: RecordedConversation, model: str) -> PromptScale | None:
    """Learn from all recorded usage of a conversation. None if it has none."""
    usage = conversation.usage
    if not usage:
        return None
    return learn_prompt_scale(usage, measure_messages(conversation.messages, make_counter(model)))
