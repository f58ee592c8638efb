"""A timeline from the log of another agent: what was sent, as far as the log says.

Such a log has messages and usage, and no requests. So a call has sent all messages before its
reply, back to the last compaction of the client.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain, islice

from trimtab.engine.log.event import dump_canonical_json
from trimtab.engine.log.message import Message, ToolResult, message_to_json
from trimtab.engine.tokens.counter import make_piecewise_counter, measure_message_parts
from trimtab.inspect.block_body import TextRange
from trimtab.inspect.hidden_names import NameIndex, join_message_texts
from trimtab.inspect.parts import describe_part
from trimtab.inspect.payment import make_price, with_lost_tokens, with_usage
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
from trimtab.models.catalog import find_model_info
from trimtab.replay.cache_breaks import find_cache_breaks
from trimtab.replay.payments import price_usage
from trimtab.replay.selection import RecordedConversation

UNRECORDED_NOTE = (
    "This log has no requests. Each call is shown with all messages before it, back to the last "
    "compaction. The system prompt, the tools and reminders of the client may be missing."
)
CAUSES = {
    "pause": "the pause before the call was longer than the cache lives",
    "compaction": "the client replaced the history by a summary",
    "edit": "the client or the provider removed or changed earlier text",
    "head": "the system prompt or the tools changed",
    "model": "another model was called",
    "unknown": "the log shows no reason",
}
"""By cause of a loss cache: what the page says."""


def read_recorded_timeline(
    parts: Sequence[RecordedConversation], *, redacted: bool = False
) -> Timeline:
    """Return the timeline of one session.

    Args:
        parts: The parts of the session in order; a compaction of the client begins the next one.
        redacted: Whether to leave out every text.
    """
    timeline = Timeline(
        title=parts[0].session,
        source=parts[0].kind,
        note=UNRECORDED_NOTE,
        is_redacted=redacted,
    )
    reader = _RecordReader(timeline)
    for part in parts:
        reader.add_part(part)
    return timeline


class _RecordReader:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._encoder = timeline.make_encoder()
        self._sent: list[int] = []
        self._blocks: list[int] = []
        self._seq = self._part_start = 0
        self._names = NameIndex()

    def add_part(self, conversation: RecordedConversation) -> None:
        """Add the messages and calls since a compaction."""
        timeline = self._timeline
        model = conversation.model or ""
        info = find_model_info(model, at=0.0) if model else None
        self._counter = make_piecewise_counter(info.tokenizer if info is not None else None)
        if conversation.part > 1 and self._seq:
            tokens = sum(timeline.blocks[number].tokens for number in self._blocks)
            timeline.edits.append(
                TimelineEdit(
                    seq=self._seq,
                    op="client",
                    first=1,
                    last=self._seq,
                    why=CAUSES["compaction"],
                    saved=tokens,
                )
            )
        self._part_start = self._seq + 1
        self._add_head(conversation)
        breaks = find_cache_breaks(conversation)
        self._blocks = blocks = list[int]()
        totals: Counter[SectionKind] = Counter({"system": timeline.heads[-1].tokens})
        tools: dict[str, str] = {}
        usages = conversation.usage
        limit = conversation.window or (info.context_window if info is not None else None)
        for index, message in enumerate(conversation.messages):
            at = conversation.times[index] if conversation.times else None
            if message.role == "assistant":
                call = self._make_call(blocks, totals, at, limit)
                usage = usages.get(index)
                if usage is not None:
                    price = make_price(lambda one, at=index: price_usage(one, conversation, at))
                    call = with_usage(call, usage, price)
                    loss = breaks.get(index)
                    if loss is not None:
                        reason = CAUSES[loss.cause]
                        call = with_lost_tokens(call, loss.tokens, usage, price, reason)
                timeline.calls.append(call)
                self._add_names(message, conversation, index)
            self._add_message(message, at, blocks, totals, tools)

    def _add_names(self, reply: Message, conversation: RecordedConversation, index: int) -> None:
        """Add what a reply names although a compaction of the client has removed it."""
        timeline = self._timeline
        messages = chain(conversation.system, islice(conversation.messages, index))
        texts = map(join_message_texts, messages)
        for name, source in self._names.find_hidden(reply, self._shows_name, texts):
            timeline.names.append(
                HiddenName(
                    call=len(timeline.calls) - 1,
                    name="a name" if timeline.is_redacted else name,
                    source=source,
                    is_recall=False,
                )
            )

    def _shows_name(self, seq: int, _name: str) -> bool:
        return seq >= self._part_start

    def _add_head(self, conversation: RecordedConversation) -> None:
        add_text, counter = self._timeline.add_text, self._counter
        texts = [message.text for message in conversation.system]
        definitions = [dump_canonical_json(dict(tool)) for tool in conversation.tools]
        tools = [
            (
                str((tool.get("function") or tool).get("name") or tool.get("type") or ""),
                counter.count(definition),
                add_text(definition),
            )
            for tool, definition in zip(conversation.tools, definitions, strict=True)
        ]
        self._timeline.heads.append(
            RequestHead(
                model=conversation.model or "",
                tokens=sum(counter.count(text) for text in (*texts, *definitions)),
                system=tuple(map(add_text, texts)),
                tools=tuple(tools),
                params=None,
            )
        )

    def _make_call(
        self, blocks: list[int], totals: Counter[SectionKind], at: float | None, limit: int | None
    ) -> SentCall:
        splices = find_splices(self._sent, blocks)
        self._sent = [*blocks]
        return SentCall(
            seq=self._seq + 1,
            position=self._seq,
            at=at,
            head=len(self._timeline.heads) - 1,
            splices=splices,
            sections=tuple(totals[kind] for kind in SECTION_KINDS),
            limit=limit,
            low=None,
            marks=(),
            volatile=None,
            is_verified=None,
        )

    def _add_message(
        self,
        message: Message,
        at: float | None,
        blocks: list[int],
        totals: Counter[SectionKind],
        tools: dict[str, str],
    ) -> None:
        timeline = self._timeline
        self._seq += 1
        self._names.add_message(self._seq, message)
        sizes = measure_message_parts(message, self._counter)
        parts: list[TimelinePart] = []
        bodies = message_to_json(message)["parts"]
        for index, part in enumerate(message.parts):
            description = describe_part(part)
            tokens = sizes[index].tokens
            number = timeline.add_text(description.text)
            ranges = [TextRange(number, 0, len(description.text))]
            kind: SectionKind = "other"
            label = ""
            if description.kind == "call":
                kind, label = "call", description.name
            elif description.kind == "result":
                kind = "result"
            elif message.role in ("user", "assistant"):
                kind = message.role
            for call in message.calls:
                tools[call.id] = call.name
            if isinstance(part, ToolResult):
                label = tools.get(part.call_id, "")
            parts.append(
                TimelinePart(
                    kind=description.kind, name=description.name, text=number, tokens=tokens
                )
            )
            blocks.append(len(timeline.blocks))
            totals[kind] += tokens
            timeline.blocks.append(
                SentBlock(
                    kind=kind,
                    role=message.role,
                    seq=self._seq,
                    part=index,
                    tokens=tokens,
                    edit=0,
                    body=self._encoder.encode(bodies[index], ranges),
                    label=label,
                )
            )
        timeline.messages.append(
            TimelineMessage(seq=self._seq, role=message.role, at=at, parts=tuple(parts))
        )
