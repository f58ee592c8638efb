"""A timeline from a log of ours: folded once, with each call rendered at its own position.

Nothing is decided again. The rendering is the one that made the requests, so each call is checked
against the hash that it recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from trimtab.dialects.json_values import dicts_in_list
from trimtab.dialects.outgoing import create_rendering
from trimtab.engine.log.event import (
    CallOutcome,
    Edit,
    Event,
    MessageAdded,
    ModelCall,
    PayloadErasure,
    RetentionErasure,
    Rewind,
    Settings,
    ToolResultRepair,
    Usage,
    dump_canonical_json,
    event_to_json,
)
from trimtab.engine.log.message import Message, Part, Text, ToolCall, ToolResult
from trimtab.engine.policy.auto import compute_target_tokens, is_small_room
from trimtab.engine.policy.budget import compute_budget
from trimtab.engine.prompt.render import (
    IncrementalRenderer,
    PromptBlock,
    build_call_fields_to_hash,
    order_round_entries,
)
from trimtab.engine.tokens.cost import compute_cost_parts
from trimtab.engine.tokens.counter import (
    list_media,
    measure_tool_definition,
)
from trimtab.engine.window.structure import Entry, Round
from trimtab.engine.window.window import Window
from trimtab.inspect.block_body import TextRange
from trimtab.inspect.hidden_names import NameIndex, find_recalled_handles, shows_name
from trimtab.inspect.parts import describe_part
from trimtab.inspect.payment import make_price, with_loss, with_usage
from trimtab.inspect.timeline import (
    SECTION_KINDS,
    HiddenName,
    RequestHead,
    SectionKind,
    SentBlock,
    SentCall,
    Timeline,
    TimelineEdit,
    TimelineMessage,
    TimelinePart,
    find_splices,
)

SETTINGS_CHANGED = "the system prompt, the tools or another setting changed"
ERASED = "its text was erased"
NO_REASON = "the provider gave no reason, and nothing that was sent before had changed"


def read_session_timeline(
    title: str, events: Iterable[Event], *, redacted: bool = False
) -> Timeline:
    """Return the timeline of a session.

    Args:
        title: The session's name.
        events: All events of its log, in order.
        redacted: Whether to leave out every text, so that the page can be sent to others.
    """
    reader = _SessionReader(Timeline(title=title, source="Trimtab", is_redacted=redacted))
    reader.read(list(events))
    return reader.timeline


class _RoundSource(NamedTuple):
    """The message and the parts that one block shows."""

    entry: Entry
    parts: tuple[int, ...]
    """Indexes of the parts that it shows."""
    tokens: int


class _SessionReader:
    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self._window = Window()
        self._rendering: IncrementalRenderer
        self._rendering_rules = ("", "")
        """The dialect and the model that the rendering was created for."""
        self._appended: tuple[int, ...] = ()
        """The splices of a call that only adds blocks."""
        self._encoder = timeline.make_encoder()
        self._names = NameIndex()
        self._ranges: dict[tuple[int, int], list[TextRange]] = {}
        """By message and part: what of the pool's texts the part in full consists of."""
        self._block_by_key: dict[Any, int] = {}
        self._blocks_by_round: dict[int, tuple[bytes, list[int]]] = {}
        """By id of a round: the digests of its blocks, and their numbers."""
        self._sent: list[int] = []
        """The blocks of the call before."""
        self._rendered = self._start_count = 0
        self._tokens_by_kind: Counter[SectionKind] = Counter()
        self._call_index_by_seq: dict[int, int] = {}
        self._call_reasons: dict[int, str] = {}
        self._break_reason = ""
        """Why the cache cannot hold what the last call with usage had sent; empty if it can."""
        self._head_by_json: dict[str, int] = {}
        self._head = -1
        self._head_text = ""
        self._last_usage: Usage | None = None
        self._reports_cache = False

    def read(self, events: Sequence[Event]) -> None:
        calls: dict[int, list[Event]] = {}
        for event in events:
            if isinstance(event.body, ModelCall) and not event.body.imported:
                calls.setdefault(event.body.position, []).append(event)
        for event in events:
            self._fold(event)
            for call in calls.get(event.seq, ()):
                self._add_call(call)
        settings = self._window.settings
        goal = str(settings.policy_params.get("goal") or "")
        self.timeline.policy = f"{settings.policy}, goal {goal}" if goal else settings.policy

    # Folding

    def _fold(self, event: Event) -> None:
        before = self._window.tokens
        self._window.apply(event)
        reduction = before - self._window.tokens
        match event.body:
            case MessageAdded() | ToolResultRepair() as body:
                self._add_message(event, body)
            case ModelCall(imported=False):
                # A call without usage may have been the one that broke the cache.
                reason = self._window.accounting.cache_misses.own_reason
                self._break_reason = reason or self._break_reason
                self._call_reasons[event.seq] = self._break_reason
            case CallOutcome() as body:
                self._add_outcome(body)
            case Edit() as body:
                self._add_edit(event, body, reduction)
            case Settings():
                if self.timeline.calls:
                    self._add_change(event, "settings", SETTINGS_CHANGED, reduction)
            case Rewind(to=to):
                self.timeline.rewinds.append((event.seq, to))
                self._add_change(event, "rewind", f"back to event {to}", reduction, first=to + 1)
            case PayloadErasure() as body:
                why = "" if self.timeline.is_redacted else body.why
                self._add_change(
                    event, "erase", why or ERASED, reduction, first=body.message, part=body.part
                )
            case RetentionErasure() as body:
                self._add_change(event, "erase", body.why or ERASED, reduction, first=1)
            case _:
                pass

    def _add_edit(self, event: Event, edit: Edit, saved: int) -> None:
        self.timeline.edits.append(
            TimelineEdit(
                seq=event.seq,
                op=edit.op,
                first=edit.first,
                last=edit.last,
                part=edit.part,
                why=edit.why,
                saved=saved,
                spares=edit.spares,
                listed=tuple(dict.fromkeys(place.seq for place in edit.listed)),
                relists=edit.relists,
            )
        )

    def _add_change(
        self,
        event: Event,
        op: str,
        why: str,
        saved: int,
        *,
        first: int = 0,
        part: int | None = None,
    ) -> None:
        body = event.body
        last = first
        if isinstance(body, Rewind):
            last = event.seq
        elif isinstance(body, RetentionErasure):
            last = body.before - 1
        self.timeline.edits.append(
            TimelineEdit(
                seq=event.seq, op=op, first=first, last=last, part=part, why=why, saved=saved
            )
        )

    def _add_message(self, event: Event, body: MessageAdded | ToolResultRepair) -> None:
        message = body.message
        parts: list[TimelinePart] = []
        for index, part in enumerate(message.parts):
            size = body.sizes[index] if index < len(body.sizes) else None
            description, ranges = self._add_part(part)
            parts.append(replace(description, tokens=size.tokens if size else 0))
            self._ranges[event.seq, index] = ranges
        self.timeline.messages.append(
            TimelineMessage(seq=event.seq, role=message.role, at=event.at, parts=tuple(parts))
        )
        if message.role == "assistant" and self.timeline.calls:
            self._add_names(message)
        self._names.add_message(event.seq, message)

    def _add_part(self, part: Part) -> tuple[TimelinePart, list[TextRange]]:
        """Add a part's texts to the pool. Return the part, and the ranges that it consists of."""
        kind, name, text = describe_part(part)
        number = self.timeline.add_text(text)
        ranges = [TextRange(number, 0, len(text))]
        if isinstance(part, ToolResult) and len(part.content) > 1:
            start = 0
            ranges = list[TextRange]()
            for one in part.content:
                if isinstance(one, Text):
                    ranges.append(TextRange(number, start, start + len(one.text)))
                    start += len(one.text) + 1
        if isinstance(part, ToolResult) and not self.timeline.is_redacted:
            for media in list_media(part):
                payload = media.data or media.url or ""
                ranges.append(TextRange(self.timeline.add_text(payload), 0, len(payload)))
        return TimelinePart(kind=kind, name=name, text=number, tokens=0), ranges

    def _add_names(self, reply: Message) -> None:
        call = len(self.timeline.calls) - 1
        blocks = (dump_canonical_json(block.body) for block in self._rendering.blocks)
        texts = chain((self._head_text,), blocks)
        shows = partial(shows_name, self._window)
        names = [(*name, False) for name in self._names.find_hidden(reply, shows, texts)]
        names += [(*handle, True) for handle in find_recalled_handles(reply)]
        for name, source, is_recall in names:
            text = name if is_recall or not self.timeline.is_redacted else "a name"
            self.timeline.names.append(
                HiddenName(call=call, name=text, source=source, is_recall=is_recall)
            )

    # Calls

    def _add_call(self, event: Event) -> None:
        call, window = event.body, self._window
        assert isinstance(call, ModelCall)  # noqa: S101 - only calls are collected
        settings = window.settings
        if self._rendering_rules != (settings.dialect, settings.rules_model):
            self._rendering = create_rendering(settings)
            self._rendering_rules = (settings.dialect, settings.rules_model)
            self._start_count = 0
        self._rendering.update(window)
        blocks = self._list_blocks()
        budget = compute_budget(window, volatile_text=call.volatile, now=event.at)
        words = window.conversation.user_words.measure_all_blocks(
            window.counter, recall_hint=settings.recall_hint
        ).tokens
        self._tokens_by_kind["system"] = budget.head.tokens
        self._tokens_by_kind["words"] = words
        self._tokens_by_kind["summary"] = window.conversation.summary_and_notice_size.tokens
        sections = [self._tokens_by_kind[kind] for kind in SECTION_KINDS]
        sections[-1] += budget.volatile
        low = None
        if settings.policy == "auto":
            goal: Any = settings.policy_params.get("goal") or "balanced"
            if is_small_room(budget):
                low = budget.head.tokens + words + compute_target_tokens(budget, goal, words)
        digest = self._rendering.hash_request(build_call_fields_to_hash(settings.params, call))
        marks = call.marks or tuple(sorted({mark.block for mark in call.caller_marks}))
        self._call_index_by_seq[event.seq] = len(self.timeline.calls)
        self.timeline.calls.append(
            SentCall(
                seq=event.seq,
                position=call.position,
                at=event.at,
                head=self._find_head(settings),
                splices=find_splices(self._sent, blocks)
                if blocks is not self._sent
                else self._appended,
                sections=tuple(sections),
                limit=budget.limit,
                low=low,
                marks=marks,
                volatile=None if call.volatile is None else self.timeline.add_text(call.volatile),
                is_verified=digest == call.hash if call.hash else None,
            )
        )
        self._sent = blocks

    def _list_blocks(self) -> list[int]:
        """Return the numbers of the rendered blocks.

        If blocks were only added, it is the list of the call before, extended.
        """
        rendering = self._rendering
        is_extended = self._start_count == rendering.start_count and bool(self._start_count)
        first = self._rendered if is_extended else 0
        fresh: list[int] = []
        place = len(self._sent) if is_extended else 0
        for source_round, count, digests in rendering.rendered_rounds[first:]:
            blocks = rendering.blocks[place : place + count]
            fresh += self._number_blocks(source_round, blocks, digests)
            place += count
        self._rendered = len(rendering.rendered_rounds)
        self._start_count = rendering.start_count
        if not is_extended:
            self._count_tokens(self._sent, -1)
            self._count_tokens(fresh, 1)
            return fresh
        self._count_tokens(fresh, 1)
        self._appended = tuple(
            number + len(self._sent) if index % 4 == 0 else number
            for index, number in enumerate(find_splices((), fresh))
        )
        self._sent.extend(fresh)
        return self._sent

    def _count_tokens(self, blocks: Iterable[int], sign: int) -> None:
        for number in blocks:
            block = self.timeline.blocks[number]
            if block.seq:
                self._tokens_by_kind[block.kind] += sign * block.tokens

    def _number_blocks(
        self, source_round: Round | None, blocks: Sequence[PromptBlock], digests: bytes
    ) -> list[int]:
        key = id(source_round)
        if source_round is not None and (entry := self._blocks_by_round.get(key)) is not None:
            mark, numbers = entry
            if mark == digests + str(source_round.entries[0].seq).encode():
                return numbers
        numbers = list(self._make_blocks(source_round, blocks, digests))
        if source_round is not None:
            mark = digests + str(source_round.entries[0].seq).encode()
            self._blocks_by_round[key] = (mark, numbers)
        return numbers

    def _make_blocks(
        self, source_round: Round | None, blocks: Sequence[PromptBlock], digests: bytes
    ) -> Iterator[int]:
        sources = [] if source_round is None else list(_find_sources(source_round, blocks))
        for index, block in enumerate(blocks):
            digest = digests[32 * index : 32 * index + 32]
            source = sources[index] if sources else None
            place = source and (source.entry.seq, source.parts, index)
            edits = source and tuple(source.entry.edited_by.get(part, 0) for part in source.parts)
            key = (place, edits, digest)
            if key not in self._block_by_key:
                self._block_by_key[key] = len(self.timeline.blocks)
                self.timeline.blocks.append(self._make_block(block, source))
            yield self._block_by_key[key]

    def _make_block(self, block: PromptBlock, source: _RoundSource | None) -> SentBlock:
        ranges = self._list_front_ranges()
        if source is None:
            kind: SectionKind = "words"
            if self._window.summary is not None or self._window.conversation.dropped_notice():
                kind = self._find_front_kind(block)
            tokens = self._window.counter.count(_find_text(block.body))
            body = self._encoder.encode(block.body, ranges)
            return SentBlock(
                kind=kind, role=block.role, seq=0, part=None, tokens=tokens, edit=0, body=body
            )
        entry = source.entry
        part_ranges: list[TextRange] = []
        for part in source.parts:
            part_ranges += self._list_part_ranges(entry, part)
        before = self._rendering.text_before_first_round
        is_joined = bool(before) and before[:100] in _find_text(block.body)
        part_kind, label = describe_section(entry, source.parts)
        edit = max((entry.edited_by.get(part, 0) for part in source.parts), default=0)
        return SentBlock(
            kind=part_kind,
            role=block.role,
            seq=entry.seq,
            part=source.parts[0] if len(source.parts) == 1 else None,
            tokens=source.tokens,
            edit=edit,
            body=self._encoder.encode(
                block.body, [*ranges, *part_ranges] if is_joined else part_ranges
            ),
            label=label,
            has_front=is_joined,
        )

    def _find_front_kind(self, block: PromptBlock) -> SectionKind:
        words = self._window.conversation.user_words.render_blocks(
            recall_hint=self._window.settings.recall_hint
        )
        text = _find_text(block.body)
        return "words" if any(text == one for one in words) else "summary"

    def _list_part_ranges(self, entry: Entry, part: int) -> list[TextRange]:
        whole = self._ranges.get((entry.seq, part), [])
        edit = entry.edits.get(part)
        if edit is None or not whole:
            return whole
        content = entry.message.parts[part]
        if isinstance(content, ToolCall):
            return whole
        text = describe_part(content).text
        number, length = whole[0].number, len(text)
        pieces = [TextRange(number, start, end) for start, end in edit.pieces]
        if not pieces:
            pieces = [
                TextRange(number, 0, min(edit.head, length)),
                TextRange(number, max(0, length - edit.tail), length),
            ]
        return [one for one in pieces if one.end > one.start]

    def _list_front_ranges(self) -> list[TextRange]:
        """Return what the texts before the first message may repeat."""
        if self.timeline.is_redacted:
            return []
        ranges: list[TextRange] = []
        for place in [
            place
            for block in self._window.conversation.user_words.blocks
            for place in block.listed_parts
        ]:
            for whole in self._ranges.get((place.seq, place.part), []):
                if place.head < 0:
                    ranges.append(whole)
                else:
                    length = whole.end
                    ranges.append(TextRange(whole.number, 0, min(place.head, length)))
                    ranges.append(TextRange(whole.number, max(0, length - place.tail), length))
        if self._window.summary is not None:
            text = self._window.summary.text
            ranges.append(TextRange(self.timeline.add_text(text), 0, len(text)))
        return ranges

    def _find_head(self, settings: Settings) -> int:
        head = event_to_json(Event(seq=0, at=0.0, body=settings))
        names = ("model", "system", "tools", "params")
        text = dump_canonical_json([head.get(name) for name in names])
        if text == self._head_text:
            return self._head
        self._head_text = text
        if text not in self._head_by_json:
            self._head_by_json[text] = len(self.timeline.heads)
            self.timeline.heads.append(self._make_head(settings))
        self._head = self._head_by_json[text]
        return self._head

    def _make_head(self, settings: Settings) -> RequestHead:
        add_text = self.timeline.add_text
        return RequestHead(
            model=settings.model,
            tokens=settings.head.tokens,
            system=tuple(add_text(message.text) for message in settings.system),
            tools=tuple(
                (
                    str((tool.get("function") or tool).get("name") or tool.get("type") or ""),
                    measure_tool_definition(tool, self._window.counter).tokens,
                    add_text(dump_canonical_json(tool)),
                )
                for tool in settings.tools
            ),
            params=add_text(dump_canonical_json(dict(settings.params)))
            if settings.params
            else None,
        )

    def _add_outcome(self, outcome: CallOutcome) -> None:
        index = self._call_index_by_seq.get(outcome.call)
        if index is None:
            return
        call = self.timeline.calls[index]
        error = outcome.error or {}
        note = str(error.get("kind", "")) if outcome.status == "error" else outcome.stop or ""
        call = replace(call, status=outcome.status, note=note)
        usage = outcome.usage
        if usage is not None:
            entry = self._window.settings.entry
            price = make_price(lambda part: compute_cost_parts(part, entry, at=call.at or 0.0))
            call = with_usage(call, usage, price)
            self._reports_cache = self._reports_cache or usage.cache_read + usage.cache_write > 0
            if self._last_usage is not None and self._reports_cache:
                reason = self._call_reasons.get(call.seq, "")
                call = with_loss(call, self._last_usage, usage, price, reason or NO_REASON)
            self._last_usage = usage
            self._break_reason = ""
        self.timeline.calls[index] = call


def describe_section(entry: Entry, parts: Sequence[int]) -> tuple[SectionKind, str]:
    """Return the section that counts some parts of a message, and the tool's name."""
    contents = [entry.message.parts[part] for part in parts]
    for part in contents:
        if isinstance(part, ToolResult):
            pairs = entry.round.calls
            names = (pair.name for pair in pairs if pair.result and pair.result.entry is entry)
            return "result", next(names, "")
    for part in contents:
        if isinstance(part, ToolCall):
            return "call", part.name
    role = entry.message.role
    return (role if role in ("user", "assistant") else "other"), ""


def _find_sources(source_round: Round, blocks: Sequence[PromptBlock]) -> Iterator[_RoundSource]:
    """Yield for each block the message and the parts that it shows."""
    items = order_round_entries(source_round)
    by_item: dict[int, list[PromptBlock]] = {}
    for block in blocks:
        by_item.setdefault(block.message_index, []).append(block)
    for index, group in by_item.items():
        entry, message = items[min(index, len(items) - 1)]
        parts = _find_parts(entry, message, source_round)
        if len(group) == len(parts):
            for part in parts:
                yield _RoundSource(entry, (part,), entry.shown_size(part).tokens)
            continue
        tokens = sum(entry.shown_size(part).tokens for part in parts if part < len(entry.sizes))
        for place in range(len(group)):
            share = tokens // len(group) + (tokens % len(group) if not place else 0)
            yield _RoundSource(entry, parts, share)


def _find_parts(entry: Entry, message: Message, source_round: Round) -> tuple[int, ...]:
    """Return the indexes of the parts of a message as it is sent, in the whole message."""
    whole = entry.message.parts
    if len(message.parts) == len(whole):
        return tuple(range(len(whole)))
    if len(message.parts) == 1 and isinstance(message.parts[0], ToolResult):
        for pair in source_round.calls:
            result = pair.result
            if result and result.entry is entry and pair.wire_id == message.parts[0].call_id:
                return (result.part,)
    return tuple(index for index, part in enumerate(whole) if not isinstance(part, ToolResult))


def _find_text(body: Any) -> str:
    """Return the text of a block that Trimtab wrote, in any dialect."""
    content = body.get("text", body.get("content", ""))
    if isinstance(content, str):
        return content
    return "\n".join(str(one.get("text", "")) for one in dicts_in_list(content))
