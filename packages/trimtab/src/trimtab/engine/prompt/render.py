"""From a window to the provider-neutral request: blocks in order, cache marks, hash.

Nothing here decides what is shown. A round is rendered once and kept until an event changes it, so
between two calls only new content is rendered and hashed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from typing import Any

from trimtab.engine.log.edits import apply_edit_to_part
from trimtab.engine.log.event import ModelCall, dump_canonical_json
from trimtab.engine.log.message import (
    Message,
    Part,
    Role,
    Text,
    ToolCall,
    ToolResult,
    make_text_message,
    message_to_json,
)
from trimtab.engine.text.quoting import collapse_whitespace, indent_lines
from trimtab.engine.text.utf8 import replace_lone_surrogates_in_json
from trimtab.engine.window.structure import Entry, Round
from trimtab.engine.window.window import Window

_SURROGATE = re.compile(r"\\ud[89a-f]")
"""How JSON writes a pair of surrogates, or half of one."""

CACHE_LOOKBACK_BLOCKS = 18
"""Blocks after which the end of the last call needs its own mark. Providers look back 20."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptBlock:
    """The smallest piece of a request that a provider's cache can match."""

    role: str
    """The wire role of the message that contains it; empty if the body is a whole item."""
    body: Mapping[str, Any]
    """A content block, a whole message or an item, in its wire form. Never changed."""
    message_index: int = field(default=0, compare=False)
    """Which message of its round it comes from. It is never sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    model: str
    """The model's name as the provider knows it."""
    rules_model: str
    """The name that decides what the model accepts; for a deployment, the model that it runs."""
    system: tuple[Message, ...]
    """The system prompt."""
    tools: Sequence[Mapping[str, Any]]
    """Tool definitions in the dialect's own form, those selected for one turn last."""
    blocks: Sequence[PromptBlock]
    """The messages, rendered."""
    marks: tuple[int, ...]
    """Block indexes after which the prefix is worth caching; -1 is the end of tools and system."""
    max_output: int
    """Tokens of output to request."""
    output_param: str
    """The request parameter that carries `max_output`."""
    params: Mapping[str, Any]
    """Further request parameters, passed on unchanged."""
    stream: bool = False
    """Whether the reply is streamed."""
    volatile: str | None = None
    """A text for this call only, after the last cache mark."""
    selected_tools: int = 0
    """How many of the tools are selected for one turn. The tools before them are worth caching."""
    hour_cache: bool = False
    """Whether cache marks ask for an hour instead of five minutes, if the dialect supports both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentBlocks:
    """How a request sends the blocks of its prompt, if it does not send them as they are."""

    changed: Mapping[int, PromptBlock] = field(default_factory=dict[int, PromptBlock])
    """By index: the blocks that are sent in another form, such as those with a cache mark."""
    marked: Mapping[int, int] = field(default_factory=dict[int, int])
    """By index of a block with a cache mark: the last block that the mark stands for, because none
    of those between can carry one."""
    opening: PromptBlock | None = None
    """A block that the provider needs before the first one."""
    volatile: PromptBlock | None = None
    """The text for this call only, at the end."""


RenderRound = Callable[[Sequence[Message]], list[PromptBlock]]
"""A function of a dialect that turns one round into blocks."""

JoinText = Callable[[str, PromptBlock], PromptBlock]
"""A function of a dialect that puts a text at the start of a user's message."""


class IncrementalRenderer:
    """The blocks of a window, kept from call to call and extended by new content."""

    def __init__(
        self, render_round: RenderRound, *, system_notices: bool, join_text: JoinText | None
    ) -> None:
        self._render = render_round
        self._join = join_text
        self._notice_role: Role = "system" if system_notices else "user"
        self.start_count = 0
        """How often all blocks were put together again. In between, blocks are only added."""
        self._start((-1, -1))

    def _start(self, made_of: tuple[int, int]) -> None:
        self._made_of = made_of
        self.start_count += 1
        self.written_messages: list[Message] = []
        """What Trimtab wrote before the first round, one for each None in `rendered_rounds`."""
        self.text_before_first_round = ""
        """What Trimtab wrote and joined to the first round."""
        self._rounds = self._sent = 0
        self.blocks: list[PromptBlock] = []
        self.last_user_words_block = -1
        """The index of the last block that contains the user's words; -1 if there is none."""
        self.block_index_by_seq: dict[int, int] = {}
        """By position of a round's first message: the index of its first block."""
        self.rendered_rounds: list[tuple[Round | None, int, bytes]] = []
        """In order: each round, or None for content before the first round; its blocks; their
        digests. If the user's words, the summary and the notice are joined to a round, it is the
        first."""
        self._hash = hashlib.sha256()

    def update(self, window: Window) -> None:
        """Bring the blocks up to date with the window."""
        made_of = (window.accounting.prefix_version, window.base.refold_count)
        if self._made_of != made_of or self._is_stale():
            self._start(made_of)
            self._hash.update(hash_request_head(window))
            rounds = [part for group in window.visible_groups.values() for part in group.rounds]
            rounds = self._render_front(window, rounds)
        else:
            rounds = [
                p for p in window.conversation.rounds[self._rounds :] if p.group.hidden is None
            ]
        self._extend(rounds, [part.rendered or self._rendered_round(part) for part in rounds])
        self._rounds = len(window.conversation.rounds)
        self._sent = window.accounting.sent_through_seq

    def _render_front(self, window: Window, rounds: list[Round]) -> list[Round]:
        """Render the user's words, the summary and the notice, and return the rounds that
        follow."""
        join = self._join
        word_blocks = window.conversation.user_words.render_blocks(
            recall_hint=window.settings.recall_hint
        )
        front = build_summary_and_notice_messages(window, "user" if join else self._notice_role)
        if join is not None and (word_blocks or front):
            text = "\n\n".join([*word_blocks, *(message.text for message in front)])
            blocks = self._rendered_round(rounds[0])[0] if rounds else []
            if blocks and blocks[0].role == "user":
                self.text_before_first_round = text
                self._extend([rounds[0]], [_with_digests([join(text, blocks[0]), *blocks[1:]])])
                return rounds[1:]
            word_blocks = []
            front = [make_text_message("user", text)]
        self._extend_written([make_text_message("user", text) for text in word_blocks])
        self.last_user_words_block = len(self.blocks) - 1 if word_blocks else -1
        self._extend_written(front)
        return rounds

    def _extend_written(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.written_messages.append(message)
            self._extend([None], [_with_digests(self._render([message]))])

    def _rendered_round(self, part: Round) -> tuple[list[PromptBlock], bytes]:
        """Return a round's blocks with their digests, and render them if needed."""
        if part.rendered is None:
            part.rendered = _with_digests(self._render(order_round_messages(part)))
        return part.rendered

    def render_round_again(
        self, source_round: Round, render_entry: Callable[[Entry], Message]
    ) -> tuple[int, list[PromptBlock]]:
        """Return the index of a round's first block, and its blocks rendered with other messages;
        none if the round is hidden. The kept blocks stay as they are."""
        start = self.block_index_by_seq.get(source_round.entries[0].seq)
        if start is None:
            return 0, []
        return start, self._render(order_round_messages(source_round, render_entry))

    def _is_stale(self) -> bool:
        """Whether a round was rendered before it was sent and has changed since."""
        for part, _, _ in reversed(self.rendered_rounds):
            if part is None or part.rendered is None:
                return part is not None
            if part.entries[-1].seq <= self._sent:
                return False
        return False

    def _extend(
        self, rounds: Sequence[Round | None], rendered: Sequence[tuple[list[PromptBlock], bytes]]
    ) -> None:
        """Add blocks. They belong to rounds, or come before the first round."""
        starts = accumulate((len(blocks) for blocks, _ in rendered), initial=len(self.blocks))
        for part, (blocks, digests), start in zip(rounds, rendered, starts, strict=False):
            if part is not None:
                self.block_index_by_seq[part.entries[0].seq] = start
            self.rendered_rounds.append((part, len(blocks), digests))
        self.blocks.extend(chain.from_iterable([blocks for blocks, _ in rendered]))
        self._hash.update(b"".join([digests for _, digests in rendered]))

    def hash_request(self, hashed_record: Mapping[str, Any]) -> str:
        """Hash the request: the rendered blocks, then the fields of this call."""
        whole = self._hash.copy()
        whole.update(dump_canonical_json(hashed_record).encode())
        return whole.hexdigest()


def _with_digests(blocks: list[PromptBlock]) -> tuple[list[PromptBlock], bytes]:
    sendable = list(blocks)
    digests = b""
    for index, block in enumerate(blocks):
        text = dump_canonical_json([block.role, block.body])
        if _SURROGATE.search(text):
            sendable[index] = replace(block, body=replace_lone_surrogates_in_json(block.body))
            text = dump_canonical_json([block.role, sendable[index].body])
        digests += hashlib.sha256(text.encode()).digest()
    return sendable, digests


def hash_request_head(window: Window) -> bytes:
    settings = window.settings
    system = [message_to_json(message) for message in settings.system]
    tools = list(settings.tools)
    head: dict[str, Any] = {"model": settings.model, "system": system, "tools": tools}
    if settings.selected:
        head["selected"] = settings.selected
    return hashlib.sha256(dump_canonical_json(head).encode()).digest()


def build_call_fields_to_hash(params: Mapping[str, Any], call: ModelCall) -> dict[str, Any]:
    """Return the fields that the hash covers after the blocks: parameters, marks and volatile
    text."""
    return {
        "params": params,
        "marks": list(call.marks),
        "max_output": call.max_output,
        "stream": call.stream,
        "volatile": call.volatile,
        **({"caller_marks": call.caller_marks} if call.caller_marks else {}),
    }


def build_summary_and_notice_messages(window: Window, notice_role: Role) -> list[Message]:
    """Build the messages before the first visible one: the summary, then the notice in its role.

    A summary repeats what users and tools have written, so it must not have the system's role.
    """
    texts: tuple[tuple[Role, str], ...] = (
        ("user", window.conversation.framed_summary(window.summary)),
        (notice_role, window.conversation.dropped_notice()),
    )
    return [make_text_message(whose, text) for whose, text in texts if text]


def choose_cache_marks(
    renderer: IncrementalRenderer, window: Window, frontier_seq: int | None
) -> tuple[int, ...]:
    """Choose the prefixes that are worth caching.

    The marks are the end of the head, the user's words, the frontier, the end of the last call and
    the end. The frontier is the first round that the next compaction would change, so the prefix
    before it survives that compaction. The user's words survive the summary that follows them.
    """
    end = len(renderer.blocks) - 1
    marks = {-1, renderer.last_user_words_block, end}
    entry = window.entries.get(frontier_seq) if frontier_seq is not None else None
    if entry is not None:
        start = renderer.block_index_by_seq.get(entry.round.entries[0].seq, 0)
        marks.add(start - 1)
    last = window.last_call
    unbroken = window.accounting.version_at_last_call == window.accounting.prefix_version
    if last is not None and unbroken and 0 < last.body.blocks < end + 1 - CACHE_LOOKBACK_BLOCKS:
        marks.add(last.body.blocks - 1)
    return tuple(sorted(marks))


def order_round_messages(
    source_round: Round, render_entry: Callable[[Entry], Message] | None = None
) -> list[Message]:
    """Return a round in send order: calls, their results in call order, then the other messages."""
    return [message for _, message in order_round_entries(source_round, render_entry)]


def order_round_entries(
    source_round: Round, render_entry: Callable[[Entry], Message] | None = None
) -> list[tuple[Entry, Message]]:
    """Return the same order, each message with its entry."""
    render_entry = render_entry or render_entry_message
    pairs = [(entry, render_entry(entry)) for entry in source_round.entries]
    if len(pairs) == 1 or not source_round.calls or _is_in_send_order(source_round):
        return pairs
    message_by_seq = {entry.seq: message for entry, message in pairs}
    in_send_order = [(entry, whole) for entry, whole in pairs if whole.role == "assistant"]
    for pairing in source_round.calls:
        if pairing.result is not None:
            entry = pairing.result.entry
            index = pairing.result.part
            whole = message_by_seq[entry.seq]
            answer = replace(whole, role="tool", parts=(whole.parts[index],), extra=None)
            in_send_order.append((entry, answer))
    for entry, whole in pairs:
        if whole.role != "assistant":
            others = tuple(p for p in whole.parts if not isinstance(p, ToolResult))
            if others or not whole.parts:
                in_send_order.append((entry, replace(whole, parts=others)))
    return in_send_order


def _is_in_send_order(source_round: Round) -> bool:
    """Whether calls, results and other messages are already in send order."""
    stage = 0
    pairings = iter(source_round.calls)
    for entry in source_round.entries:
        if entry.message.role == "assistant":
            if stage > 0:
                return False
            continue
        for index, content in enumerate(entry.message.parts):
            if isinstance(content, ToolResult) and index not in entry.unpaired_results:
                pairing = next(pairings, None)
                result = pairing.result if pairing is not None else None
                if stage > 1 or result is None or result.entry is not entry:
                    return False
                if result.part != index:
                    return False
                stage = 1
            else:
                stage = 2
        if not entry.message.parts:
            stage = 2
    return True


def render_entry_message(entry: Entry) -> Message:
    """Return a message as the model sees it: with its edits, unique ids, and late results as
    text."""
    message = entry.message
    calls = entry.round.calls
    plain_ids = all(pairing.wire_id == pairing.id for pairing in calls)
    if not entry.edits and not entry.unpaired_results and plain_ids:
        return message
    wire_ids = iter(_call_wire_ids(entry))
    parts: list[Part] = []
    for index, part in enumerate(message.parts):
        edit = entry.edits.get(index)
        wire_part = part if edit is None else apply_edit_to_part(part, edit)
        if index in entry.unpaired_results and isinstance(wire_part, ToolResult):
            label = f"[late result of call {collapse_whitespace(wire_part.call_id)}]"
            # It has the user's role, so no line of it may look like the user's.
            wire_part = Text(text=f"{label}\n{indent_lines(wire_part.text)}")
        elif isinstance(wire_part, ToolCall):
            wire_part = replace(wire_part, id=next(wire_ids, wire_part.id))
        elif isinstance(wire_part, ToolResult):
            wire_part = replace(wire_part, call_id=_wire_id(entry, index, wire_part.call_id))
        parts.append(wire_part)
    if message.role == "tool" and entry.unpaired_results:
        return replace(message, parts=tuple(parts), role="user", plain=False, extra=None)
    return replace(message, parts=tuple(parts))


def _call_wire_ids(entry: Entry) -> list[str]:
    """Return the wire ids of the calls in this message, in order."""
    before = 0
    for other in entry.round.entries:
        if other is entry:
            break
        before += len(other.message.calls) if other.message.role == "assistant" else 0
    count = len(entry.message.calls)
    return [pairing.wire_id for pairing in entry.round.calls[before : before + count]]


def _wire_id(entry: Entry, part: int, call_id: str) -> str:
    for pairing in entry.round.calls:
        result = pairing.result
        if result is not None and result.entry is entry and result.part == part:
            return pairing.wire_id
    return call_id
