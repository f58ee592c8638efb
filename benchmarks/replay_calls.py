"""One recorded conversation, call by call through one `Context`, each request looked at.

The recorded reply is added with the usage that its provider would report, so that the estimates
of the next request rest on it as they would in use. What is said is fixed: the recorded model does
not react to what is hidden.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from benchmarks import pair_check, wire_forms
from benchmarks.corpus import Conversation
from trimtab import Context, check
from trimtab.engine.log.event import Edit
from trimtab.errors import CannotFit
from trimtab.models import ModelInfoValues
from trimtab.testing.request_counter import PRIMING_TOKENS, RequestCounter
from trimtab.types import DialectName, PolicyName

Wire = Mapping[str, Any]
SHOWN = 200
"""Characters of an error that a report keeps."""
PLACEHOLDER = "[result masked — ~1000 tokens removed]"
"""As short as a text that is hidden can get."""
FRONTS = (
    "[Summary of the earlier conversation",
    "[conversation truncated",
    "[The user's earlier messages",
)
"""What may stand before a user's message, in one with it."""
STAND_INS = ("[truncated: kept", "[result masked")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One way to send a conversation."""

    name: str
    """As the tables call it."""
    model: str
    """The model's name."""
    dialect: str
    """The wire format."""
    family: str
    """The tokenizer whose exact count stands for the provider's usage."""
    exact: bool = False
    """True where the context has the exact tokenizer itself, False where it estimates."""
    one_in: int = 1
    """The share of the conversations that take this lane."""
    entry: Wire = field(default_factory=dict[str, Any])
    """Values for the model's catalog entry."""


@dataclass(slots=True)
class Tally:
    counts: Counter[str] = field(default_factory=Counter[str])
    """Sums over calls, by name."""
    utilisation: float = 0.0
    """Sum over calls of the exact input's share of window less requested output."""
    smallest_refused: float = 1.0
    """The least share of that room which a refused call would really have needed."""
    failures: list[str] = field(default_factory=list[str])
    """Where a violation or an exception was, and which."""

    def add(self, other: Tally) -> None:
        self.counts.update(other.counts)
        self.utilisation += other.utilisation
        self.smallest_refused = min(self.smallest_refused, other.smallest_refused)
        self.failures += other.failures


class Replay:
    def __init__(
        self,
        conversation: Conversation,
        lane: Lane,
        preset: str,
        window: int,
        exact: RequestCounter,
    ) -> None:
        self.lane, self.window, self.exact = lane, window, exact
        self.messages = conversation.messages
        self.head, self.start = wire_forms.split_head(self.messages)
        self.tools = conversation.tools
        self.where = f"{conversation.id} {lane.name} {preset} {window}"
        self.tally = Tally(counts=Counter(conversations=1))
        self.context = Context(
            lane.model,
            dialect=cast("DialectName", lane.dialect),
            system=self.head,
            tools=self.tools,
            policy=cast("PolicyName", preset),
            context_window=window,
            model_info=cast("ModelInfoValues", lane.entry),
            tokenizer=exact.count_text if lane.exact else None,
            clock=lambda: 0.0,
        )
        self._sent: Sequence[Wire] = ()
        self._known = 0
        self._front: tuple[Wire, int] = {}, 0
        self._counted: dict[int, tuple[Wire, int]] = {}

    def run(self) -> Tally:
        for step in wire_forms.steps(self.messages, self.start, self.lane.dialect):
            try:
                self._take(step)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what we look for
                self.tally.counts["exceptions"] += 1
                self._fail(step.index, f"{type(error).__name__}: {error}")
                break
        return self.tally

    def _take(self, step: wire_forms.Step) -> None:
        # A record may begin with the model, or have two replies in a row: then there was nothing to
        # ask it with.
        if not step.reply or not self.context.window.is_reply_due:
            self.context.add(step.wire)
            return
        used = self._call(step.index)
        if used is None:
            self.context.add(step.wire)
            return
        said = self.exact.count_text(str(self.messages[step.index].get("content") or ""))
        self.context.add(wire_forms.with_usage(step.wire, self.lane.dialect, used, said))

    def _call(self, index: int) -> int | None:
        """Ask for the request and look at it; its exact count, None where it cannot fit."""
        counts = self.tally.counts
        counts["calls"] += 1
        try:
            request = self.context.request()
        except CannotFit:
            counts["cannot_fit"] += 1
            share = self._least(index) / (self.window - self.context.budget().max_output)
            counts["cannot_fit_unconfirmed"] += share <= 1
            self.tally.smallest_refused = min(self.tally.smallest_refused, share)
            return None
        for wrong in self._violations(request, index):
            counts["violations"] += 1
            self._fail(index, wrong)
        used = self._used(request)
        sent = self.context.window.last_call
        assert sent is not None
        room = self.window - sent.body.max_output
        counts["over_window"] += used > room
        counts["over_bound"] += used > sent.body.bound
        self.tally.utilisation += used / room
        return used

    def _used(self, request: Wire) -> int:
        """Its exact count; what the request before has as the same object is not counted again."""
        key = "input" if self.lane.dialect == "openai_responses" else "messages"
        front = {**request, key: []}
        if front != self._front[0]:
            self._front = front, self._tokens(front)
        before, self._counted = self._counted, {}
        for message in request[key]:
            known = before.get(id(message)) or (message, self._tokens({key: [message]}))
            self._counted[id(message)] = known
        return (
            PRIMING_TOKENS
            + self._front[1]
            + sum(self._counted[id(each)][1] for each in request[key])
        )

    def _tokens(self, request: Wire) -> int:
        return sum(piece.tokens for piece in self.exact.split_blocks(request, self.lane.dialect))

    def _violations(self, request: Wire, index: int) -> list[str]:
        """What a provider would refuse, and what our own laws forbid."""
        dialect = self.lane.dialect
        found = check(request, dialect_name=dialect)
        if wrong := pair_check.unpaired(request, dialect):
            found.append(wrong)
        blocks = _blocks(request, dialect)
        events = self.context.events
        edits = sum(isinstance(event.body, Edit) for event in events[self._known :])
        extends = _extends(blocks, self._sent)
        if not extends:
            self.tally.counts["breaks"] += 1
            if not edits:
                found.append("not an extension of the last request, though nothing was edited")
        self.tally.counts["edits"] += edits
        self._known, self._sent = len(events), blocks
        if wrong := _missing(blocks, self.messages[:index]):
            found.append(wrong)
        return found

    def _least(self, index: int) -> int:
        """The exact count of what no edit may hide: the head, the newest user message cut to a
        placeholder, and the active round, its results cut likewise."""
        kept = [self._cut(m) for m in active(self.messages[self.start : index])]
        least = {"messages": self.head + kept, "tools": self.tools}
        return self.exact.total_tokens(self.exact.split_blocks(least, "openai_chat"))

    def _cut(self, message: Wire) -> Wire:
        text = str(message.get("content") or "")
        if message["role"] == "assistant" or self.exact.count_text(text) <= self.exact.count_text(
            PLACEHOLDER
        ):
            return message
        return {**message, "content": PLACEHOLDER}

    def _fail(self, index: int, wrong: str) -> None:
        self.tally.failures.append(f"{self.where} message {index}: {wrong[:SHOWN]}")


def active(messages: Sequence[Wire]) -> list[Wire]:
    """The newest user message and the active round: the last message, with its calls if it is a
    result."""
    last = len(messages) - 1
    while last > 0 and messages[last]["role"] == "tool":
        last -= 1
    user = next((m for m in reversed(messages[:last]) if m["role"] == "user"), None)
    round_ = list(messages[last:])
    spoken = user is not None and messages[last]["role"] != "user"
    return [user, *round_] if spoken and user is not None else round_


def _blocks(request: Wire, dialect: str) -> Sequence[Wire]:
    if dialect == "anthropic":
        return [block for message in request["messages"] for block in message["content"]]
    return request["messages" if dialect == "openai_chat" else "input"]


def _extends(blocks: Sequence[Wire], before: Sequence[Wire]) -> bool:
    return len(blocks) >= len(before) and all(
        new is old or _unmarked(new) == _unmarked(old)
        for new, old in zip(blocks, before, strict=False)
    )


def _unmarked(block: Wire) -> Wire:
    return {key: value for key, value in block.items() if key != "cache_control"}


def _missing(blocks: Sequence[Wire], messages: Sequence[Wire]) -> str | None:
    """What is missing of the newest user message and the active round; None where all is there."""
    wanted = active(messages)
    ids = {m["tool_call_id"] for m in wanted if m["role"] == "tool"}
    there = {_answered(block) for block in blocks[-len(ids) - 40 :]} if ids else set()
    if not ids <= there:
        return f"results of the active round are missing: {sorted(ids - there)}"
    text = next((str(m["content"]) for m in wanted if m["role"] == "user"), "")
    if text.strip() and not any(_holds(block, text) for block in reversed(blocks)):
        return "the newest user message is missing"
    return None


def _answered(block: Wire) -> str | None:
    if block.get("type") == "tool_result":
        return block["tool_use_id"]
    return block.get("tool_call_id") or (block.get("call_id") if "output" in block else None)


def _holds(block: Wire, text: str) -> bool:
    """Whether a block is the text, whole or cut: what stands before the indicator is its start."""
    said = block.get("text") or block.get("content")
    if isinstance(said, list):
        said = said[0].get("text") if said else None
    if not isinstance(said, str):
        return False
    return any(_is(told, text) for told in _behind_front(said))


def _behind_front(said: str) -> Iterator[str]:
    """The text, and what may be the message behind a summary and a notice."""
    yield said
    at = said.find("\n\n") if said.startswith(FRONTS) else -1
    while at >= 0:
        yield said[at + 2 :]
        at = said.find("\n\n", at + 1)


def _is(said: str, text: str) -> bool:
    kept = min((at for mark in STAND_INS if (at := said.find(mark)) >= 0), default=-1)
    return said == text or (kept >= 0 and text.startswith(said[:kept].rstrip("\n")))
