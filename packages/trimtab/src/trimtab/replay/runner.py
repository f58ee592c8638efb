"""Count the tokens of a request by section.

Simulate a summary by a model: no model is called, but the sizes are those of a real summary.

Lines of the conversation replace the model's sections, with the number of tokens that a model would
be asked for. The verbatim list and the size checks are those of production. The input that the
model would read is counted.

Replay one conversation under one policy, through the code that production uses.

Replay all conversations under all setups, on all cores.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import Any, cast

from trimtab.context import Context
from trimtab.engine.log.edits import apply_edit_to_part
from trimtab.engine.log.event import CallOutcome, Edit, ModelCall, Usage
from trimtab.engine.log.message import Message, ToolResult
from trimtab.engine.policy.costs import SUMMARY_PROMPT_TOKENS
from trimtab.engine.prompt.render import hash_request_head
from trimtab.engine.recall.tools import part_to_text
from trimtab.engine.summaries.extract import extract_summary
from trimtab.engine.summaries.facts import add_verbatim_list, compute_list_room
from trimtab.engine.summaries.format import REQUESTED_SUMMARY_TOKENS, split_summary
from trimtab.engine.summaries.transcript import transcribe_messages
from trimtab.engine.tokens.counter import measure_message_parts
from trimtab.engine.window.structure import Entry
from trimtab.engine.window.window import Window
from trimtab.errors import CannotFit, UnusableSummary
from trimtab.replay.billing import CacheRules, InputBill, PromptCacheModel, PromptPiece
from trimtab.replay.references import EarlierReference, find_earlier_references
from trimtab.replay.selection import RecordedConversation
from trimtab.session.stepwise import StepwiseContext

PROMPT_SECTIONS = ("system", "user", "assistant", "tool results", "placeholders", "summary")
"""The sections of a request, from the bottom of a stacked figure to its top."""


def count_section_tokens(window: Window) -> dict[str, int]:
    """Count tokens by section. Tool calls belong to `assistant`, truncated results to results."""
    out: dict[str, int] = dict.fromkeys(PROMPT_SECTIONS, 0)
    out["system"] = window.settings.head.tokens
    out["summary"] = window.conversation.front_size.tokens
    for group in window.visible_groups.values():
        for entry in group.entries():
            role = entry.message.role
            for part in range(len(entry.sizes)):
                edit = entry.edits.get(part)
                content = entry.message.parts[part] if entry.message.parts else None
                if edit is not None and edit.op == "mask":
                    name = "placeholders"
                elif isinstance(content, ToolResult):
                    name = "tool results"
                else:
                    name = role if role in out else "user"
                out[name] += entry.shown_size(part).tokens
    return out


def add_simulated_summary(context: Context, *, forced: bool) -> tuple[int, int]:
    """Add the summary that the policy wants, and return the tokens read and written for it."""
    wanted = context.pending_summary(forced=forced)
    if wanted is None:
        return 0, 0
    counter = context.window.counter
    before, listed = split_summary(wanted.prior_summary)
    asked = min(REQUESTED_SUMMARY_TOKENS, wanted.max_tokens)
    body = extract_summary(before, wanted.messages, counter, max_tokens=asked)
    room = compute_list_room(body, listed, counter, wanted.replaced_tokens, wanted.list_tokens)
    text = add_verbatim_list(
        wanted.prior_summary,
        wanted.messages,
        body,
        counter,
        list_tokens=room,
        visible_text=wanted.visible_text,
    )
    shown = [wanted.prior_summary, *transcribe_messages(wanted.messages)]
    try:
        context.add_summary(text, span=wanted.span)
    except UnusableSummary:
        return 0, 0
    return SUMMARY_PROMPT_TOKENS + sum(map(counter.count, shown)), counter.count(body)


MAX_REFETCH_TOKENS = 8_000
"""Maximum tokens of a result that is fetched again. Every policy would cap it at that size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySetup:
    """The settings under which conversations are replayed."""

    name: str
    """The name in tables."""
    options: Mapping[str, Any]
    """Options of `Context`: policy, goal, context settings, limits."""
    model: str = "claude-sonnet-4-5"
    """The model whose tokenizer, window and dialect apply."""
    naive_marks: bool = False
    """Whether to mark only the head and the last block, as a loop that ignores caches would."""

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
    needs: int
    """Number of references of the reply's tool calls."""
    seen: int
    """Number of visible references."""
    far: int
    """Number of references last mentioned more than ten messages before."""
    far_seen: int
    """Number of visible far references."""
    tool: int
    """Number of references that only tool results ever contained."""
    tool_seen: int
    """Number of visible tool-only references."""
    missing: int
    """Tokens of the results that would have to be fetched again, each counted once."""
    sections: Mapping[str, int] | None = None
    """Tokens by section, if they were requested."""


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
    references: Mapping[int, list[EarlierReference]],
    *,
    with_sections: bool = False,
) -> ConversationRun:
    """Replay a conversation call by call, with one request before each assistant message."""
    times = estimate_message_times(conversation)
    clock = [times[0] if times else 0.0]
    context = StepwiseContext(setup.model, clock=lambda: clock[0], **setup.options)
    if conversation.system or conversation.tools:
        context.configure(system=conversation.system, tools=conversation.tools)
    caches = {name: PromptCacheModel(rules) for name, rules in rules_by_provider.items()}
    walk = _ReplayWalk(context, setup, caches, with_sections)
    refused = 0
    for index, message in enumerate(conversation.messages):
        if message.role == "user" and not message.results:
            walk.end_turn()
        clock[0] = times[index]
        if message.role == "assistant":
            try:
                walk.call(index, message, references.get(index, []))
            except CannotFit:
                refused += 1
        walk.add(message)
    return ConversationRun(
        conversation=conversation.id,
        setup=setup.name,
        calls=tuple(walk.records),
        cannot_fit=refused,
    )


class _ReplayWalk:
    """A running replay."""

    def __init__(
        self,
        context: StepwiseContext,
        setup: ReplaySetup,
        caches: dict[str, PromptCacheModel],
        sections: bool,
    ) -> None:
        self._context = context
        self._setup = setup
        self._caches = caches
        self._sections = sections
        self._positions: list[int] = []
        self._pieces: list[PromptPiece] = []
        self._version = -1
        self._paid = (0, 0)
        self.records: list[ReplayedCall] = []

    def add(self, message: Message) -> None:
        self._context.add(message)
        self._positions.append(self._context.window.seq)

    def end_turn(self) -> None:
        """Make a summary, as may happen in the background after a turn."""
        self._write(forced=False)

    def _write(self, *, forced: bool) -> None:
        if self._setup.model_writes_summaries and self._context.window.visible_groups:
            read, written = add_simulated_summary(self._context, forced=forced)
            self._paid = (self._paid[0] + read, self._paid[1] + written)

    def call(self, index: int, reply: Message, needs: list[EarlierReference]) -> None:
        context = self._context
        before, version = len(context.events), context.window.accounting.prefix_version
        self._write(forced=True)
        context.apply(context.build_repair_events())
        context.apply(context.decide_edits())
        made = [e.body for e in context.events[before:] if isinstance(e.body, Edit)]
        event = context.build_call_event()
        context.apply([event])
        body = cast("ModelCall", event.body)
        pieces, marks = self._prompt(body)
        bills = {n: cache.bill_call(pieces, marks, event.at) for n, cache in self._caches.items()}
        first = next(iter(bills.values()))
        usage = Usage(input=body.tokens, cache_read=first.read, cache_write=first.write)
        context.apply([context.build_event(CallOutcome(call=event.seq, usage=usage))])
        self.records.append(
            ReplayedCall(
                index=index,
                at=event.at,
                tokens=body.tokens,
                bill=bills,
                output=sum(s.tokens for s in measure_message_parts(reply, context.window.counter)),
                edits=len(made),
                broke=context.window.accounting.prefix_version != version and bool(self.records),
                **self._summarised(made),
                sections=count_section_tokens(context.window) if self._sections else None,
                **self._recall(needs),
            )
        )

    def _summarised(self, made: list[Edit]) -> dict[str, int]:
        """Return what summaries have cost since the last call."""
        if not self._setup.model_writes_summaries:
            return {
                "summarised": sum(_estimate_summary_input(e, self._context.window) for e in made)
            }
        (read, written), self._paid = self._paid, (0, 0)
        return {"summarised": read, "written": written}

    def _prompt(self, call: ModelCall) -> tuple[list[PromptPiece], list[int]]:
        """Return the prompt as pieces, and the indexes of the pieces after which it is marked."""
        window, rendering = self._context.window, self._context.rendering
        is_new = window.accounting.prefix_version != self._version
        if is_new:
            head = PromptPiece(
                digest=hash_request_head(window), tokens=window.settings.head.tokens, blocks=1
            )
            self._pieces, self._version = [head], window.accounting.prefix_version
        for part, blocks, digest in rendering.rendered_rounds[len(self._pieces) - 1 :]:
            tokens = sum(entry.tokens for entry in part.entries) if part else 0
            self._pieces.append(PromptPiece(digest=digest, tokens=tokens, blocks=blocks))
        if is_new and len(self._pieces) > 1:
            # Summary and notice are the first piece, or stand at the beginning of it.
            first = self._pieces[1]
            self._pieces[1] = replace(
                first, tokens=first.tokens + window.conversation.front_size.tokens
            )
        ends: dict[int, int] = {-1: 0}
        total = 0
        for index, piece in enumerate(self._pieces[1:], 1):
            total += piece.blocks
            ends[total - 1] = index
        wanted = (-1, call.blocks - 1) if self._setup.naive_marks else call.marks
        return self._pieces, [ends[mark] for mark in wanted if mark in ends]

    def _recall(self, needs: list[EarlierReference]) -> dict[str, int]:
        """Count the references that the request still shows, and the tokens lost with the rest."""
        window = self._context.window
        front = window.summary.text if window.summary else ""
        names = ("needs", "seen", "far", "far_seen", "tool", "tool_seen")
        out: dict[str, int] = dict.fromkeys(names, 0)
        lost: dict[int, int] = {}
        for need in needs:
            entries = [window.entries[self._positions[source]] for source in need.sources]
            holders = [entry for entry in entries if _is_text_visible(entry, need.text)]
            seen = bool(holders) or need.text in front
            if not seen:
                entry = entries[-1]
                lost[entry.seq] = sum(size.tokens for size in entry.sizes)
            for counted, name in ((True, "needs"), (need.far, "far"), (need.tool_only, "tool")):
                out[name] += counted
                out["seen" if name == "needs" else f"{name}_seen"] += counted and seen
        return {**out, "missing": sum(min(size, MAX_REFETCH_TOKENS) for size in lost.values())}


def _is_text_visible(entry: Entry, text: str) -> bool:
    """Return whether a message, as sent, still contains a text."""
    if entry.round.group.hidden is not None:
        return False
    if not entry.edits:
        return True
    for index, part in enumerate(entry.message.parts):
        edit = entry.edits.get(index)
        seen = part if edit is None else apply_edit_to_part(part, edit)
        if text in part_to_text(seen):
            return True
    return False


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
    """Replay one conversation under every setup. Its references are found only once."""
    wanted = find_earlier_references(conversation.messages)
    runs: list[ConversationRun] = []
    for setup in setups:
        try:
            runs.append(replay_conversation(conversation, setup, rules_by_provider, wanted))
        except Exception as error:
            error.add_note(f"in conversation {conversation.id} under {setup.name}")
            raise
    return runs
