"""One conversation, run again under one policy, through the code that production uses."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from trimtab.context import Context
from trimtab.core.edits import shown
from trimtab.core.event import Call, Edit, Outcome, Usage
from trimtab.core.guard import CannotFit
from trimtab.core.message import Message
from trimtab.core.prompt import head_digest
from trimtab.core.recall import part_text
from trimtab.core.rounds import Entry
from trimtab.core.tokens import sizes_of
from trimtab.core.window import Window
from trimtab.replay.cache import Bill, Cache, Piece, Rules
from trimtab.replay.conversation import Conversation
from trimtab.replay.references import Need
from trimtab.replay.sections import sections_of
from trimtab.replay.writing import write_summary

MAX_FETCH = 8_000
"""Tokens of one result that is fetched again; every policy would cap it on the way in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a conversation is run under."""

    name: str
    """As tables show it."""
    options: Mapping[str, Any]
    """Of `Context`: policy, goal, context knobs, limits."""
    model: str = "claude-sonnet-4-5"
    """Whose tokenizer, window and dialect hold."""
    naive_marks: bool = False
    """True marks only the head and the last block, as a loop without thought for caches would."""

    @property
    def writes(self) -> bool:
        """Whether a model writes the summaries: after a turn, or before a call that needs one."""
        return self.options.get("summaries") == "manual"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    index: int
    """Of the assistant message that the call produced."""
    at: float
    """Seconds since the conversation's start."""
    tokens: int
    """Estimated input."""
    bill: Mapping[str, Bill]
    """By provider: what the input was billed as."""
    output: int
    """Estimated tokens of the reply."""
    edits: int
    """Made before the call."""
    broke: bool
    """Whether the prompt no longer extended the last one."""
    summarised: int
    """Tokens that a summariser read before the call; 0 for none."""
    written: int | None = None
    """Tokens that it wrote; None where no model was asked and the usual is assumed."""
    needs: int
    """References of the reply's tool calls."""
    seen: int
    """Of these, visible."""
    far: int
    """Of these, last mentioned more than ten messages before."""
    far_seen: int
    """Of the far ones, visible."""
    tool: int
    """References that only tool results ever held."""
    tool_seen: int
    """Of these, visible."""
    missing: int
    """Tokens of the results that would have to be fetched again, each once."""
    sections: Mapping[str, int] | None = None
    """Tokens by section, where it was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    conversation: str
    """Its id."""
    setup: str
    """Its name."""
    calls: tuple[CallRecord, ...]
    """In order."""
    cannot_fit: int
    """Calls that no edit could make fit; they are left out of `calls`."""


def replay(
    conversation: Conversation,
    setup: Setup,
    providers: Mapping[str, Rules],
    needs: Mapping[int, list[Need]],
    *,
    sections: bool = False,
) -> Run:
    """Run a conversation call by call: before each assistant message, one request."""
    times = times_of(conversation)
    clock = [times[0] if times else 0.0]
    context = Context(setup.model, clock=lambda: clock[0], **setup.options)
    if conversation.system or conversation.tools:
        context.configure(system=conversation.system, tools=conversation.tools)
    caches = {name: Cache(rules) for name, rules in providers.items()}
    walk = _Walk(context, setup, caches, sections)
    refused = 0
    for index, message in enumerate(conversation.messages):
        if message.role == "user" and not message.results:
            walk.end_turn()
        clock[0] = times[index]
        if message.role == "assistant":
            try:
                walk.call(index, message, needs.get(index, []))
            except CannotFit:
                refused += 1
        walk.add(message)
    return Run(
        conversation=conversation.id,
        setup=setup.name,
        calls=tuple(walk.records),
        cannot_fit=refused,
    )


class _Walk:
    """A replay under way."""

    def __init__(
        self, context: Context, setup: Setup, caches: dict[str, Cache], sections: bool
    ) -> None:
        self._context = context
        self._setup = setup
        self._caches = caches
        self._sections = sections
        self._positions: list[int] = []
        self._pieces: list[Piece] = []
        self._version = -1
        self._paid = (0, 0)
        self.records: list[CallRecord] = []

    def add(self, message: Message) -> None:
        self._context.add(message)
        self._positions.append(self._context.window.seq)

    def end_turn(self) -> None:
        """After a turn a summary may be made in the background."""
        self._write(forced=False)

    def _write(self, *, forced: bool) -> None:
        if self._setup.writes and self._context.window.visible:
            read, written = write_summary(self._context, forced=forced)
            self._paid = (self._paid[0] + read, self._paid[1] + written)

    def call(self, index: int, reply: Message, needs: list[Need]) -> None:
        context = self._context
        before, version = len(context.events), context.window.version
        self._write(forced=True)
        context.apply(context.repairs())
        context.apply(context.decide())
        made = [e.body for e in context.events[before:] if isinstance(e.body, Edit)]
        event = context.call()
        context.apply([event])
        body = cast("Call", event.body)
        pieces, marks = self._prompt(body)
        bills = {n: cache.call(pieces, marks, event.at) for n, cache in self._caches.items()}
        first = next(iter(bills.values()))
        usage = Usage(input=body.tokens, cache_read=first.read, cache_write=first.write)
        context.apply([context.event(Outcome(call=event.seq, usage=usage))])
        self.records.append(
            CallRecord(
                index=index,
                at=event.at,
                tokens=body.tokens,
                bill=bills,
                output=sum(s.tokens for s in sizes_of(reply, context.window.counter)),
                edits=len(made),
                broke=context.window.version != version and bool(self.records),
                **self._summarised(made),
                sections=sections_of(context.window) if self._sections else None,
                **self._recall(needs),
            )
        )

    def _summarised(self, made: list[Edit]) -> dict[str, int]:
        """What summaries have cost since the last call."""
        if not self._setup.writes:
            return {"summarised": sum(_summary_input(e, self._context.window) for e in made)}
        (read, written), self._paid = self._paid, (0, 0)
        return {"summarised": read, "written": written}

    def _prompt(self, call: Call) -> tuple[list[Piece], list[int]]:
        """The prompt as pieces, and the pieces after which it is marked."""
        window, rendering = self._context.window, self._context.rendering
        is_new = window.version != self._version
        if is_new:
            head = Piece(digest=head_digest(window), tokens=window.settings.head.tokens, blocks=1)
            self._pieces, self._version = [head], window.version
        for part, blocks, digest in rendering.pieces[len(self._pieces) - 1 :]:
            tokens = sum(entry.tokens for entry in part.entries) if part else 0
            self._pieces.append(Piece(digest=digest, tokens=tokens, blocks=blocks))
        if is_new and len(self._pieces) > 1:
            # Summary and notice are the first piece, or stand at the beginning of it.
            first = self._pieces[1]
            self._pieces[1] = replace(first, tokens=first.tokens + window.front.tokens)
        ends: dict[int, int] = {-1: 0}
        total = 0
        for index, piece in enumerate(self._pieces[1:], 1):
            total += piece.blocks
            ends[total - 1] = index
        wanted = (-1, call.blocks - 1) if self._setup.naive_marks else call.marks
        return self._pieces, [ends[mark] for mark in wanted if mark in ends]

    def _recall(self, needs: list[Need]) -> dict[str, int]:
        """How many of the references the request still shows, and what is lost with the rest."""
        window = self._context.window
        front = window.summary.text if window.summary else ""
        names = ("needs", "seen", "far", "far_seen", "tool", "tool_seen")
        out: dict[str, int] = dict.fromkeys(names, 0)
        lost: dict[int, int] = {}
        for need in needs:
            entries = [window.entries[self._positions[source]] for source in need.sources]
            holders = [entry for entry in entries if _shows(entry, need.text)]
            seen = bool(holders) or need.text in front
            if not seen:
                entry = entries[-1]
                lost[entry.seq] = sum(size.tokens for size in entry.sizes)
            for counted, name in ((True, "needs"), (need.far, "far"), (need.tool_only, "tool")):
                out[name] += counted
                out["seen" if name == "needs" else f"{name}_seen"] += counted and seen
        return {**out, "missing": sum(min(size, MAX_FETCH) for size in lost.values())}


def _shows(entry: Entry, text: str) -> bool:
    """Whether a message as it is sent still holds a text."""
    if entry.round.group.hidden is not None:
        return False
    if not entry.edits:
        return True
    for index, part in enumerate(entry.message.parts):
        edit = entry.edits.get(index)
        seen = part if edit is None else shown(part, edit)
        if text in part_text(seen):
            return True
    return False


def _summary_input(edit: Edit, window: Window) -> int:
    """Tokens that a summariser would have read, at 1,000 characters a message."""
    if edit.op != "summarise":
        return 0
    spans = (e for seq, e in window.entries.items() if edit.first <= seq <= edit.last)
    return sum(min(sum(size.tokens for size in entry.sizes), 250) for entry in spans) + 500


def times_of(conversation: Conversation) -> list[float]:
    """Recorded times, else the calibrated model: most pauses are short, some outlive a cache.

    Of the calls after a user message 23 % found a cold cache, of those after a tool result 0.6 %.
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
