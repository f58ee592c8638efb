"""Simulate a summary by a model: no model is called, but the sizes are those of a real summary.

Lines of the conversation replace the model's sections, with the number of tokens that a model would
be asked for. The verbatim list and the size checks are those of production. The input that the
model would read is counted.

Replay one conversation under one policy, through the code that production uses.

Replay all conversations under all setups, on all cores.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

from trimtab.context import Context
from trimtab.engine.log.edits import apply_edit_to_part
from trimtab.engine.log.event import CallOutcome, Edit, ModelCall, Usage
from trimtab.engine.log.message import Message
from trimtab.engine.policy.costs import SUMMARY_PROMPT_TOKENS
from trimtab.engine.prompt.render import hash_request_head
from trimtab.engine.summaries.extract import extract_summary
from trimtab.engine.summaries.facts import add_verbatim_list, compute_list_room
from trimtab.engine.summaries.format import REQUESTED_SUMMARY_TOKENS, split_summary
from trimtab.engine.summaries.transcript import transcribe_messages
from trimtab.engine.tokens.counter import (
    TokenCounter,
    make_piecewise_counter,
    measure_message_parts,
    measure_request_head,
)
from trimtab.engine.window.structure import Entry
from trimtab.engine.window.window import Window
from trimtab.errors import CannotFit, UnusableSummary
from trimtab.models.catalog import resolve_model_info
from trimtab.replay.billing import CacheRules, InputBill, PromptCacheModel, PromptPiece
from trimtab.replay.cache_breaks import LONG_CACHE_SECONDS, find_cache_breaks
from trimtab.replay.needs import (
    NO_NEEDS,
    CallNeeds,
    NeedCounts,
    ShownText,
    count_needs,
    find_needs,
    join_message_text,
)
from trimtab.replay.payments import with_believed_output
from trimtab.replay.prompt_scale import (
    PromptScale,
    add_head_stand_in,
    learn_prompt_scale,
    measure_messages,
)
from trimtab.replay.selection import RecordedCall, RecordedConversation
from trimtab.session.stepwise import StepwiseContext


def add_simulated_summary(context: Context, *, forced: bool) -> tuple[int, int]:
    """Add the summary that the policy wants, and return the tokens read and written for it."""
    request = context.pending_summary(forced=forced)
    if request is None:
        return 0, 0
    counter = context.window.counter
    before, prior_list = split_summary(request.prior_summary)
    max_tokens = min(REQUESTED_SUMMARY_TOKENS, request.max_tokens)
    body = extract_summary(before, request.messages, counter, max_tokens=max_tokens)
    room = compute_list_room(
        body, prior_list, counter, request.replaced_tokens, request.list_tokens
    )
    text = add_verbatim_list(
        request.prior_summary,
        request.messages,
        body,
        counter,
        list_tokens=room,
        visible_text=request.visible_text,
    )
    source_texts = [request.prior_summary, *transcribe_messages(request.messages)]
    try:
        context.add_summary(text, span=request.span)
    except UnusableSummary:
        return 0, 0
    return SUMMARY_PROMPT_TOKENS + sum(map(counter.count, source_texts)), counter.count(body)


EVERYTHING = "everything"
"""The baseline: each call sends the whole conversation, as its client did."""
MAX_REFETCH_TOKENS = 8_000
"""Maximum tokens of a result that is fetched again. Every policy would cap it at that size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySetup:
    """The settings under which conversations are replayed."""

    name: str
    """The name of what it compares."""
    options: Mapping[str, Any]
    """Options of `Context`: policy, goal, context settings, limits."""
    model: str = "claude-sonnet-4-5"
    """The model whose tokenizer, window and dialect apply."""

    @property
    def sends_everything(self) -> bool:
        """Whether nothing is hidden, not even to fit: what a client without any policy sends."""
        return self.options.get("policy") == EVERYTHING

    @property
    def model_writes_summaries(self) -> bool:
        """Whether a model writes the summaries, after a turn or before a call that needs one."""
        return self.options.get("summaries") == "manual"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCall:
    """One model call of a replayed conversation."""

    index: int
    """Index of the assistant message that the call produced."""
    at: float
    """Seconds since the conversation's start."""
    tokens: int
    """Estimated input tokens."""
    head: int
    """The part of `tokens` that is system prompt and tools."""
    new: int
    """The part of `tokens` in messages that are newer than the call before."""
    is_cold: bool
    """Whether the pause before it outlived the cache of the first provider, or no call came
    before."""
    bill: Mapping[str, InputBill]
    """How the input was billed, by provider."""
    output: int
    """Estimated tokens of the reply."""
    edits: int
    """Edits made before the call."""
    broke: bool
    """Whether the prompt no longer extended the previous one."""
    summarised: int
    """Tokens that a summariser read before the call. 0 for none."""
    written: int | None = None
    """Tokens that it wrote. None if no model was called, so that the usual number is assumed."""
    needs: NeedCounts
    """The needs of the reply's tool calls, and how many of them the request shows."""
    missing: int
    """Tokens of the results that would have to be fetched again, each counted once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRun:
    """One conversation under one setup."""

    conversation: str
    """The conversation's id."""
    setup: str
    """The setup's name."""
    calls: tuple[ReplayedCall, ...]
    """The calls in order."""
    cannot_fit: int
    """Calls that no edit could make fit. They are left out of `calls`."""


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
    prompt_scale = scale or PromptScale()
    rules_by_provider = with_learned_lifetime(rules_by_provider, prompt_scale)
    if scale is not None:
        first = next(iter(rules_by_provider.values()))
        times = tuple(estimate_believed_times(conversation, first.ttl))
        conversation = replace(conversation, times=times)
    caches = {
        name: PromptCacheModel(rules, prompt_scale.shared)
        for name, rules in rules_by_provider.items()
    }
    if setup.sends_everything:
        return _replay_everything(conversation, setup, caches, needs, prompt_scale)
    conversation = add_head_stand_in(conversation, prompt_scale, make_counter(setup.model))
    times = estimate_message_times(conversation)
    clock = [times[0] if times else 0.0]
    options = _scale_options(setup, prompt_scale)
    context = StepwiseContext(setup.model, clock=lambda: clock[0], **options)
    if conversation.system or conversation.tools:
        context.configure(system=conversation.system, tools=conversation.tools)
    walk = _ReplayWalk(context, setup, caches, prompt_scale)
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


def with_learned_lifetime(
    rules_by_provider: Mapping[str, CacheRules], scale: PromptScale
) -> dict[str, CacheRules]:
    """Return the rules with the longer lifetime, if the client asked for it."""
    if not scale.long_lived:
        return dict(rules_by_provider)
    return {
        name: replace(rules, ttl=float(LONG_CACHE_SECONDS)) if rules.style == "marks" else rules
        for name, rules in rules_by_provider.items()
    }


@lru_cache(maxsize=16)
def make_counter(model: str) -> TokenCounter:
    """Return the counter with which a context of this model estimates."""
    entry = resolve_model_info(model)
    return make_piecewise_counter(entry.tokenizer, entry.picture_rule)


def _scale_options(setup: ReplaySetup, scale: PromptScale) -> dict[str, Any]:
    """Return the options of a context that counts estimated tokens: its window shrinks or grows."""
    options = dict(setup.options)
    if scale.ratio != 1.0:
        window = options.get("context_window") or resolve_model_info(setup.model).context_window
        options["context_window"] = max(1, int(window / scale.ratio))
    if scale.long_lived and resolve_model_info(setup.model).cache_style == "marks":
        options.setdefault("cache", "1h")
    return options


def _replay_everything(
    conversation: RecordedConversation,
    setup: ReplaySetup,
    caches: Mapping[str, PromptCacheModel],
    needs: Mapping[int, CallNeeds],
    scale: PromptScale,
) -> ConversationRun:
    """Bill the whole conversation in each call, marked at its end and where the call before ended,
    as coding agents do. A call that the provider answered was not refused."""
    counter = make_counter(setup.model)
    entry = resolve_model_info(setup.model)
    limit = int(setup.options.get("context_window") or entry.input_limit)
    times = estimate_message_times(conversation)
    sizes = measure_messages(conversation.messages, counter)
    head_tokens = measure_request_head(conversation.system, conversation.tools, counter).tokens
    head = max(head_tokens, scale.head)
    estimated_tokens = head
    pieces = [PromptPiece(digest=b"head", tokens=head, blocks=1)]
    calls: list[ReplayedCall] = []
    ttl = next(iter(caches.values())).rules.ttl
    last_mark, refusals = 0, 0
    for index, message in enumerate(conversation.messages):
        if message.role == "assistant":
            usage = conversation.recorded.get(index, RecordedCall()).usage
            tokens = round(scale.ratio * estimated_tokens)
            if tokens > limit and usage is None:
                refusals += 1
            else:
                marks = sorted({0, last_mark, len(pieces) - 1})
                bills = {
                    name: cache.bill_call(pieces, marks, times[index]).scaled(
                        scale.ratio, long_lived=scale.long_lived and cache.rules.style == "marks"
                    )
                    for name, cache in caches.items()
                }
                new_tokens = sum(piece.tokens for piece in pieces[last_mark + 1 :])
                last_mark = len(pieces) - 1
                counts, _ = count_needs(needs.get(index, NO_NEEDS), lambda _: True, lambda _: ())
                calls.append(
                    ReplayedCall(
                        index=index,
                        at=times[index],
                        tokens=tokens,
                        head=round(scale.ratio * head),
                        new=round(scale.ratio * new_tokens),
                        is_cold=not calls or times[index] - calls[-1].at > ttl,
                        bill=bills,
                        output=choose_output_tokens(usage, message, sizes[index], scale),
                        edits=0,
                        broke=False,
                        summarised=0,
                        needs=counts,
                        missing=0,
                    )
                )
        pieces.append(PromptPiece(digest=b"%d" % index, tokens=sizes[index], blocks=1))
        estimated_tokens += sizes[index]
    return ConversationRun(
        conversation=conversation.id, setup=setup.name, calls=tuple(calls), cannot_fit=refusals
    )


def choose_output_tokens(
    reported: Usage | None, reply: Message, estimated: int, scale: PromptScale
) -> int:
    """Return the tokens of a reply: as reported, if the report can be believed."""
    if reported is None:
        return round(estimated * scale.ratio)
    return with_believed_output(reported, reply).output


class _ReplayWalk:
    """A running replay."""

    def __init__(
        self,
        context: StepwiseContext,
        setup: ReplaySetup,
        caches: dict[str, PromptCacheModel],
        scale: PromptScale,
    ) -> None:
        self._context = context
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

    def add(self, message: Message) -> None:
        # A reply that is there twice is one message.
        handle = self._context.add(message)
        self._positions.append(int(handle.removeprefix("m")))

    def end_turn(self) -> None:
        """Make a summary, as may happen in the background after a turn."""
        self._write(forced=False)

    def _write(self, *, forced: bool) -> None:
        if self._setup.model_writes_summaries and self._context.window.visible_groups:
            read, written_tokens = add_simulated_summary(self._context, forced=forced)
            self._paid = (self._paid[0] + read, self._paid[1] + written_tokens)

    def call(
        self,
        index: int,
        reply: Message,
        needs: CallNeeds,
        reported: Usage | None,
    ) -> None:
        context, scale = self._context, self._scale
        before, version = len(context.events), context.window.accounting.prefix_version
        self._write(forced=True)
        context.apply(context.build_repair_events())
        context.apply(context.decide_edits())
        edits = [e.body for e in context.events[before:] if isinstance(e.body, Edit)]
        event = context.build_call_event()
        context.apply([event])
        body = cast("ModelCall", event.body)
        pieces, marks = self._prompt(body)
        bills = {n: cache.bill_call(pieces, marks, event.at) for n, cache in self._caches.items()}
        first_cache = next(iter(self._caches.values()))
        first = next(iter(bills.values()))
        usage = Usage(input=body.tokens, cache_read=first.read, cache_write=first.write)
        context.apply([context.build_event(CallOutcome(call=event.seq, usage=usage))])
        output = sum(s.tokens for s in measure_message_parts(reply, context.window.counter))
        new_entries = map(self._entry, range(self._sent_messages, len(self._positions)))
        new_tokens = sum(entry.tokens for entry in new_entries if not entry.round.group.hidden)
        self._sent_messages = len(self._positions)
        counts, lost = count_needs(needs, self._is_sent_whole, self._list_changed_texts)
        self.records.append(
            ReplayedCall(
                index=index,
                at=event.at,
                tokens=round(body.tokens * scale.ratio),
                head=round(context.window.settings.head.tokens * scale.ratio),
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
                broke=context.window.accounting.prefix_version != version and bool(self.records),
                **self._summarised(edits),
                needs=counts,
                missing=self._count_missing_tokens(lost),
            )
        )

    def _summarised(self, made: list[Edit]) -> dict[str, int]:
        """Return what summaries have cost since the last call."""
        if not self._setup.model_writes_summaries:
            return {
                "summarised": sum(_estimate_summary_input(e, self._context.window) for e in made)
            }
        (read, written_tokens), self._paid = self._paid, (0, 0)
        return {"summarised": read, "written": written_tokens}

    def _prompt(self, call: ModelCall) -> tuple[list[PromptPiece], list[int]]:
        """Return the prompt as pieces, and the indexes of the pieces after which it is marked."""
        window, rendering = self._context.window, self._context.rendering
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
        window = self._context.window
        if window.summary and window.summary.text != self._summary.text:
            self._summary = ShownText(window.summary.text)
        front = [self._summary] if window.summary else []
        return [*front, *(self._show(self._entry(index)) for index in indexes)]

    def _entry(self, index: int) -> Entry:
        return self._context.window.entries[self._positions[index]]

    def _show(self, entry: Entry) -> ShownText:
        """Return what is sent of a message that was edited, or that the list of the user's words
        shows. It is read once for each state of the message."""
        window = self._context.window
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


def estimate_message_times(conversation: RecordedConversation) -> list[float]:
    """Return recorded times, or modelled ones: most pauses are short, some outlive a cache.

    After a user message 23 % of the calls found a cold cache, after a tool result 0.6 %.
    """
    if conversation.times is not None:
        return list(conversation.times)
    now, times = 0.0, [0.0]
    for index, message in enumerate(conversation.messages[1:], 1):
        roll = hashlib.sha256(f"{conversation.id}/{index}".encode()).digest()[0] / 256
        if message.role == "assistant":
            now += 5.0
        elif message.role == "user" and not message.results:
            now += 600.0 if roll < 0.23 else 60.0
        else:
            now += 600.0 if roll < 0.006 else 5.0
        times.append(now)
    return times


def estimate_believed_times(conversation: RecordedConversation, lifetime: float) -> list[float]:
    """Return times at which a cache of this lifetime does what the recorded usage shows.

    If usage shows that the prompt was still cached, the pause was short enough for it, whatever the
    log says; if it shows that the cache was lost, the pause outlived it. Without usage, the times
    are those of `estimate_message_times`.
    """
    usage = conversation.usage
    if not usage or not lifetime:
        return estimate_message_times(conversation)
    breaks = find_cache_breaks(conversation)
    recorded = conversation.times
    now = recorded[0] if recorded else 0.0
    times = [now] * len(conversation.messages)
    last: int | None = None
    for index, message in enumerate(conversation.messages):
        times[index] = now
        if message.role != "assistant":
            continue
        pause = 5.0
        if last is not None and recorded is not None:
            pause = recorded[index] - recorded[last]
        if last in usage and index in usage:
            lost = breaks.get(index)
            is_lost = lost is not None and lost.is_outside
            pause = max(pause, lifetime + 1.0) if is_lost else min(pause, lifetime - 1.0)
        now += pause
        times[index], last = now, index
    return times


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
    """Replay one conversation under every setup. Its needs are found only once."""
    needs = find_needs(conversation.messages)
    runs: list[ConversationRun] = []
    scales: dict[str, PromptScale | None] = {}
    for setup in setups:
        try:
            if setup.model not in scales:
                scales[setup.model] = learn_recorded_scale(conversation, setup.model)
            scale = scales[setup.model]
            runs.append(
                replay_conversation(conversation, setup, rules_by_provider, needs, scale=scale)
            )
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
