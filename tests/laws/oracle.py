"""The fold, written once more in the plainest way: the whole log, each time, from the start.

It shares the values and the token counter with the library, and none of its bookkeeping. Where the
two disagree, one of them is wrong.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from tests.laws.wires import plain
from trimtab.engine.log.edits import ERASED_PLACEHOLDER
from trimtab.engine.log.erase import erase_event_payload
from trimtab.engine.log.event import (
    CallOutcome,
    Edit,
    Event,
    MessageAdded,
    ModelCall,
    OmittedUserMessages,
    PayloadErasure,
    Pin,
    RetentionErasure,
    Rewind,
    Settings,
    Size,
    ToolResultRepair,
    UserPartReference,
)
from trimtab.engine.log.excerpts import render_kept_pieces
from trimtab.engine.log.message import (
    MODEL_FAMILY_KEY,
    Media,
    Message,
    OpaqueBlock,
    Part,
    Text,
    ToolCall,
    ToolResult,
    make_text_message,
    message_from_json,
    message_to_json,
)
from trimtab.engine.tokens.counter import (
    TokenCounter,
    measure_message_parts,
    measure_part,
    measure_request_head,
)
from trimtab.engine.window.user_words import USER_WORDS_HEADER

_HALF = re.compile(r"\\ud800")
"""The half of a pair that the lives know."""


@dataclass
class Round:
    """Messages that belong together, and the results in it by the call they answer."""

    seqs: list[int] = field(default_factory=list[int])
    calls: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Position and part of each call."""
    answers: list[tuple[int, int] | None] = field(default_factory=list[tuple[int, int] | None])
    """Position and part of what answers the call of the same index."""
    group: int = 0


@dataclass
class Told:
    """What a log says."""

    messages: dict[int, Message] = field(default_factory=dict[int, Message])
    at: dict[int, float | None] = field(default_factory=dict[int, float | None])
    """By message: when it was said; None where nobody knows."""
    rounds: list[Round] = field(default_factory=list[Round])
    groups: list[list[int]] = field(default_factory=list[list[int]])
    thinking: list[bool] = field(default_factory=list[bool])
    edits: dict[tuple[int, int], Edit] = field(default_factory=dict[tuple[int, int], Edit])
    hidden: dict[int, Edit] = field(default_factory=dict[int, Edit])
    """By group: the drop or summary that hides it."""
    loading: list[tuple[int, set[str]]] = field(default_factory=list[tuple[int, set[str]]])
    """The groups that loaded tools, and which."""
    loaded: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    """A group that loaded a tool, and one that calls this tool."""
    pinned: set[int] = field(default_factory=set[int])
    revealed: dict[int, int] = field(default_factory=dict[int, int])
    """By message: the position at which it was last asked for."""
    replied: int = 0
    notes: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    """Results that answer nothing."""
    summary: Edit | None = None
    words: list[tuple[list[UserPartReference], OmittedUserMessages | None]] = field(
        default_factory=list[tuple[list[UserPartReference], OmittedUserMessages | None]]
    )
    """The blocks of the list of the user's words: what each holds, and what it leaves out."""
    newest_user: int | None = None
    paused: bool = False
    """Whether the last message is a reply that goes on in the next."""
    unfinished: set[int] = field(default_factory=set[int])
    """Replies that were paused."""

    @property
    def open(self) -> set[int]:
        """Replies of which no call may be changed: the newest, and what a provider goes on with."""
        return {self.replied, *self.unfinished}

    def group_of(self, seq: int) -> int:
        return next(i for i, seqs in enumerate(self.groups) if seq in seqs)

    def protected(self, group: int) -> bool:
        return group == len(self.groups) - 1 or self.newest_user in self.groups[group]

    def fixed(self, group: int) -> bool:
        """Whether nothing may hide the group."""
        return self.protected(group) or any(seq in self.pinned for seq in self.groups[group])

    def unread(self, group: int) -> bool:
        """Whether it was revealed and the model has not spoken since."""
        return any(self.revealed.get(seq, 0) > self.replied for seq in self.groups[group])

    def visible(self) -> list[Round]:
        return [round for round in self.rounds if round.group not in self.hidden]

    def shown(self, seq: int, part: int) -> Part:
        content = self.messages[seq].parts[part]
        edit = self.edits.get((seq, part))
        return content if edit is None else under(content, edit)

    def dropped(self) -> list[int]:
        groups = [g for g, edit in self.hidden.items() if edit.op == "drop"]
        return sorted(seq for group in groups for seq in self.groups[group])

    def blocks(self, recall: bool | str) -> list[str]:
        """The blocks of the list of the user's words, as they are read."""
        made = [[USER_WORDS_HEADER, *self._lines(*block, recall=recall)] for block in self.words]
        return ["\n".join(lines) for lines in made if len(lines) > 1]

    def _lines(
        self,
        places: list[UserPartReference],
        left: OmittedUserMessages | None,
        *,
        recall: bool | str,
    ) -> list[str]:
        lines: list[str] = []
        if left is not None:
            many = f"{left.messages:,} older user message" + ("s" if left.messages > 1 else "")
            verb = "are" if left.messages > 1 else "is"
            span = f"m{left.first}" + (f"-m{left.last}" if left.last > left.first else "")
            handle = f" · recall {span}" if recall else ""
            times = ""
            if left.since is not None and left.until is not None:
                times = f", from {_minute(left.since)} to {_minute(left.until)},"
            lines.append(f"[{many}{times} {verb} not shown{handle}]")
        last_seq = 0
        for place in places:
            entry = self.entry(place, recall=recall)
            if entry is not None:
                name = f"[m{place.seq}]" if recall else "[user]"
                label = "" if place.seq == last_seq else name
                lines.append(f"{label} {indented(entry)}")
                last_seq = place.seq
        return lines

    def entry(self, place: UserPartReference, *, recall: bool | str) -> str | None:
        """One part as it stands in the list; None for what was erased."""
        content = self.messages[place.seq].parts[place.part]
        handle = f" · recall m{place.seq}.{place.part}" if recall else ""
        if isinstance(content, Media):
            return f"[{content.kind}{handle}]"
        assert isinstance(content, Text), f"m{place.seq}.{place.part} is no word of a user's"
        if content.text == ERASED_PLACEHOLDER:
            return None
        places = [(other.seq, other.part) for block, _ in self.words for other in block]
        same = (place.same_seq, place.same_part)
        # Where the first that said it was erased, this one says it.
        is_erased = same in places and self.messages[same[0]].parts[same[1]] == Text(
            text=ERASED_PLACEHOLDER
        )
        if place.same_seq and is_erased:
            return content.text
        if place.same_seq:
            return f"[the same as in m{place.same_seq}]" if recall else "[the same as before]"
        kept_chars = place.head + place.tail
        if place.head < 0 or kept_chars >= len(content.text):
            return content.text
        sign = f"[… cut: {kept_chars:,} of {len(content.text):,} characters are kept …{handle}]"
        return content.text[: place.head] + sign + content.text[len(content.text) - place.tail :]

    def front(self, recall: bool | str) -> list[str]:
        """The user's words, summary and notice."""
        texts = self.blocks(recall)
        if self.summary is not None and self.summary.text:
            first, last = self.summary.first, self.summary.last
            span = f"m{first}" if first == last else f"m{first}-m{last}"
            handle = f" · recall {span}" if recall else ""
            texts.append(
                "[Summary of the earlier conversation, for reference: the newest user message wins"
                f"{handle}]\n{without_margin_brackets(self.summary.text)}"
            )
        if seqs := self.dropped():
            handle = f" · recall m{seqs[0]}-m{seqs[-1]}" if recall else ""
            texts.append(f"[conversation truncated — {len(seqs)} older messages omitted{handle}]")
        return [text.replace("\ud800", "\ufffd") for text in texts]


def indented(text: str) -> str:
    """A text whose further lines are not at the margin, where the list has its own."""
    return re.sub(r"(\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])(?!\Z)", r"\1 ", text)


def _minute(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def from_client(text: str) -> bool:
    """Whether a client program has put it there, of those that the lives know."""
    text = text.strip()
    is_reminder = text.startswith("<system-reminder>") and text.endswith("</system-reminder>")
    return is_reminder or text == "[Request interrupted by user]"


def speaks(message: Message) -> bool:
    """Whether more is in it than what a client program has put there."""
    return not message.parts or any(
        isinstance(part, Media) or (isinstance(part, Text) and not from_client(part.text))
        for part in message.parts
    )


def under(part: Part, edit: Edit) -> Part:
    """The part as the model is to see it."""
    if isinstance(part, ToolCall):
        return replace(part, arguments=_without_long(part.arguments, edit))
    if isinstance(part, ToolResult):
        rest = tuple(inner for inner in part.content if not isinstance(inner, Text))
        keeps_text = edit.head or edit.tail or edit.pieces
        rest = rest if edit.op == "truncate" and keeps_text else ()
        text = edit.text if edit.op == "mask" else _cut(part.text, edit)
        extra = part.extra if edit.op == "truncate" else None
        is_plain = (part.plain and not rest) or edit.op == "mask"
        return replace(part, content=(Text(text=text), *rest), plain=is_plain, extra=extra)
    if isinstance(part, Text):
        return replace(part, text=edit.text if edit.op == "mask" else _cut(part.text, edit))
    return Text(text=edit.text)


def _without_long(arguments: str, edit: Edit) -> str:
    """Arguments with the edit's words for each long text."""
    try:
        tool_arguments = json.loads(arguments)
    except ValueError:
        return arguments
    longest = max(edit.head, len(edit.text))

    def short(value: Any) -> Any:
        match value:
            case str():
                return edit.text if len(value) > longest else value
            case list():
                return [short(each) for each in value]
            case dict():
                return {key: short(each) for key, each in value.items()}
            case _:
                return value

    if not isinstance(tool_arguments, dict) or short(tool_arguments) == tool_arguments:
        return arguments
    return json.dumps(short(tool_arguments), ensure_ascii=False)


_whole: dict[int, tuple[Message, Message]] = {}


def sendable(message: Message) -> Message:
    """The message without halves of surrogate pairs, of which no wire carries any."""
    if id(message) not in _whole:
        if len(_whole) > 1_000:
            _whole.clear()
        text = json.dumps(message_to_json(message))
        clean = message_from_json(json.loads(_HALF.sub("\ufffd", text)))
        _whole[id(message)] = (message, clean if _HALF.search(text) else message)
    return _whole[id(message)][1]


def _cut(text: str, edit: Edit) -> str:
    if edit.text == ERASED_PLACEHOLDER:
        return ERASED_PLACEHOLDER
    if edit.pieces:
        return edit.text + "\n" + render_kept_pieces(text, edit.pieces)
    return text[: edit.head] + edit.text + (text[-edit.tail :] if edit.tail else "")


def effective(events: Sequence[Event]) -> list[Event]:
    """The events that count: payloads erased, rewinds carried out."""
    log: list[Event] = []
    for event in events:
        match event.body:
            case PayloadErasure() as body:
                log = [erase_event_payload(e, body.message, body.message, body.part) for e in log]
            case RetentionErasure() as body:
                log = [erase_event_payload(e, 1, body.before - 1) for e in log]
            case _:
                pass
        log.append(event)
    return list(_live(log, len(log)))


def _live(log: Sequence[Event], to: int) -> Iterator[Event]:
    last = next((e for e in reversed(log[:to]) if isinstance(e.body, Rewind)), None)
    if last is None or not isinstance(last.body, Rewind):
        yield from log[:to]
        return
    yield from _live(log, last.body.to)
    yield from log[last.seq : to]


def tell(events: Sequence[Event]) -> Told:
    """What the log says now."""
    state = Told()
    for event in effective(events):
        match event.body:
            case MessageAdded() | ToolResultRepair() as body:
                _say(state, event.seq, sendable(body.message))
                is_undated = isinstance(body, MessageAdded) and body.undated
                state.at[event.seq] = None if is_undated else event.at
                state.paused = isinstance(body, MessageAdded) and body.paused
                state.unfinished |= {event.seq} if state.paused else set()
            case Edit(part=int()) as named:
                body = replace(named, text=named.text.replace("\ud800", "\ufffd"))
                assert body.part is not None
                message = state.messages.get(body.first)
                if message is None or body.part >= len(message.parts):
                    continue
                state.edits.pop((body.first, body.part), None)
                if body.op != "reveal":
                    state.edits[body.first, body.part] = body
                else:
                    state.revealed[body.first] = event.seq
                    _unhide(state, body.first)
                    _without_summary(state, body)
            case Edit() as body:
                _edit_groups(state, event.seq, body)
            case Pin() as body:
                named = {s for s in state.messages if body.first <= s <= body.last}
                state.pinned = state.pinned | named if body.pinned else state.pinned - named
            case _:
                pass
    return state


def _say(told: Told, seq: int, message: Message) -> None:
    told.messages[seq] = message
    told.replied = seq if message.role == "assistant" else told.replied
    last = told.rounds[-1] if told.rounds else None
    if last is None or None not in last.answers:
        last = _new_round(told, message, last)
    last.seqs.append(seq)
    told.groups[last.group].append(seq)
    if tool_names := tools_loaded_by(message):
        told.loading.append((last.group, tool_names))
    for call in message.calls if message.role == "assistant" else ():
        loads = [g for g, names in told.loading if call.name in names and g not in told.hidden]
        if loads and loads[-1] != last.group:
            told.loaded.add((loads[-1], last.group))
    spoken = not message.parts
    for index, part in enumerate(message.parts):
        if isinstance(part, ToolResult):
            _answer(told, last, seq, index, part)
        elif message.role != "assistant" or part not in message.calls:
            spoken = True
        else:
            last.calls.append((seq, index))
            last.answers.append(None)
    if message.role == "user" and spoken and (told.newest_user is None or speaks(message)):
        told.newest_user = seq


def tools_loaded_by(message: Message) -> set[str]:
    """The names in what a tool search of the lives left in a reply."""
    text = json.dumps([part.data for part in message.parts if isinstance(part, OpaqueBlock)])
    if '"tool_search_output"' not in text and '"tool_search_tool_result"' not in text:
        return set()
    return {
        name for pair in re.findall(r'"tool_name": "(\w+)"|"name": "(\w+)"', text) for name in pair
    }


def _answer(told: Told, round: Round, seq: int, index: int, part: ToolResult) -> None:
    for number, (call_seq, place) in enumerate(round.calls):
        call = told.messages[call_seq].parts[place]
        if round.answers[number] is None and getattr(call, "id", None) == part.call_id:
            round.answers[number] = (seq, index)
            return
    told.notes.add((seq, index))


def _new_round(told: Told, message: Message, last: Round | None) -> Round:
    thinks = message.role == "assistant" and (
        any(isinstance(part, OpaqueBlock) and part.thinking for part in message.parts)
        or MODEL_FAMILY_KEY in (message.extra or {})  # it has thought, and that was erased
    )
    joins = (
        last is not None
        and message.role == "assistant"
        and (told.paused or (bool(last.calls) and told.thinking[-1] and not thinks))
        and len(told.groups) - 1 not in told.hidden
    )
    if not joins:
        told.groups.append([])
        told.thinking.append(False)
    told.thinking[-1] = told.thinking[-1] or thinks
    new_round = Round(group=len(told.groups) - 1)
    told.rounds.append(new_round)
    return new_round


def _edit_groups(told: Told, at: int, edit: Edit) -> None:
    if edit.op == "reveal":
        for seq in [seq for seq in told.messages if edit.first <= seq <= edit.last]:
            told.revealed[seq] = at
            _unhide(told, seq)
            told.edits = {place: each for place, each in told.edits.items() if place[0] != seq}
        _without_summary(told, edit)
        return
    for group, seqs in enumerate(told.groups):
        if not (edit.first <= seqs[0] and seqs[-1] <= edit.last):
            continue
        if told.fixed(group) or group in told.hidden:
            continue  # no later summary tells of what was dropped
        if any(seq in seqs for seq in edit.spares):
            continue
        told.hidden[group] = edit
    if edit.op == "summarise":
        told.summary = edit
    if edit.relists:
        told.words = []
    if edit.listed or edit.left_out:
        told.words.append(([*edit.listed], edit.left_out))


def _unhide(told: Told, seq: int) -> None:
    """The group is seen in its own place again, and no longer in the list; with it what loaded its
    tools."""
    group = told.group_of(seq)
    told.hidden.pop(group, None)
    for loads, calls in sorted(told.loaded):
        if calls == group and loads in told.hidden:
            _unhide(told, told.groups[loads][0])
    back = told.groups[group]
    blocks = [
        ([p for p in places if p.seq not in back], omission) for places, omission in told.words
    ]
    told.words = [(places, omission) for places, omission in blocks if places or omission]


def _without_summary(told: Told, reveal: Edit) -> None:
    """A summary goes where all of which it tells is shown again."""
    summary = told.summary
    if summary is not None and reveal.first <= summary.first and summary.last <= reveal.last:
        told.summary = None


def settings_at(events: Sequence[Event]) -> Settings:
    return next(e.body for e in reversed(events) if isinstance(e.body, Settings))


def tokens_of(told: Told, settings: Settings, counter: TokenCounter) -> int:
    """Of the messages that are seen, counted anew from their texts."""
    total = 0
    for text in told.front(settings.recall):
        total += measure_message_parts(make_text_message("user", text), counter)[0].tokens
    for round in told.visible():
        for seq in round.seqs:
            total += sum(tokens_of_parts(told, seq, counter))
    return total


def pictures_of(told: Told, counter: TokenCounter) -> int:
    """Tokens of the pictures and files that are seen, those in results included."""
    total = 0
    for seq in [seq for round in told.visible() for seq in round.seqs]:
        for index in range(len(told.messages[seq].parts)):
            part = told.shown(seq, index)
            contents = part.content if isinstance(part, ToolResult) else (part,)
            total += sum(
                measure_part(each, counter).tokens for each in contents if isinstance(each, Media)
            )
    return total


_taken: dict[tuple[int, str], tuple[Message, tuple[Size, ...]]] = {}


def _sizes(message: Message, counter: TokenCounter) -> tuple[Size, ...]:
    """Counting is most of the work, and messages do not change."""
    key = (id(message), counter.name)
    if key not in _taken:
        if len(_taken) > 1_000:
            _taken.clear()
        _taken[key] = (message, measure_message_parts(message, counter))
        assert all(size.tokens > 0 for size in _taken[key][1]), "something is sent for nothing"
    return _taken[key][1]


def tokens_of_parts(told: Told, seq: int, counter: TokenCounter) -> list[int]:
    message = told.messages[seq]
    whole = _sizes(message, counter)
    return [
        measure_part(told.shown(seq, part), counter).tokens
        if (seq, part) in told.edits
        else size.tokens
        for part, size in enumerate(whole)
    ]


def bound_of(events: Sequence[Event], call: ModelCall, counter: TokenCounter) -> int:
    """The declared upper bound of a call's input, from the log before it.

    The last usage that was reported for a request of which this one is a continuation, and what is
    new since, with the counter's margin; or all of it, with the larger margin, where there is none.
    """
    before = events[: call.position]
    settings = settings_at(before)
    state = tell(before)
    tail = counter.count(call.volatile) + 8 if call.volatile else 0
    messages = tokens_of(state, settings, counter)
    anchor, ratio = anchor_of(before)
    ratio = min(max(ratio, 1.0), 4.0)
    head = measure_request_head(settings.system, settings.tools, counter, settings.params).tokens
    whole = math.ceil((head + messages + tail) * ratio * (1 + counter.unanchored_margin))
    if anchor is None:
        return min(whole, carried_bound(before, state, messages, tail, counter) or whole)
    usage, position, rode = anchor
    tokens_at_anchor = tokens_of(tell(events[:position]), settings, counter)
    estimate = _above(usage, (max(0, messages - tokens_at_anchor) + tail) * ratio, counter)
    return min(estimate, whole) if rode else estimate


def carried_bound(
    events: Sequence[Event], told: Told, messages: int, tail: int, counter: TokenCounter
) -> int | None:
    """What a report tells of a request that was changed since: as many tokens as it had at most
    before the first change, less what has left, plus what has come. Of what left we believe 0.7 of
    our estimate, of our own words that came 1.3; what was said since has the usual margin."""
    first = _first_change(events)
    if first is None:
        return None
    settings, earlier = settings_at(events), tell(events[:first])
    anchor, learned_ratio = anchor_of(events[:first])
    assert anchor is not None
    then = tokens_of(earlier, settings, counter)
    tokens_at_anchor = tokens_of(tell(events[: anchor[1]]), settings, counter)
    earlier_bound = _above(
        anchor[0], max(0, then - tokens_at_anchor) * min(max(learned_ratio, 1.0), 4.0), counter
    )
    head = measure_request_head(settings.system, settings.tools, counter, settings.params).tokens
    weight = min(max(earlier_bound / max(1, head + then), 0.5), 4.0)
    came, new = _since(events[first:], told, counter)
    was_relisted = any(isinstance(e.body, Edit) and e.body.relists for e in events[first:])
    old_blocks = earlier.blocks(settings.recall) if was_relisted else []
    before = earlier.front(settings.recall)[len(old_blocks) :]
    # A summary that was made again is new, even if it happens to say the same.
    made_again = any(isinstance(e.body, Edit) and e.body.op == "summarise" for e in events[first:])
    for text in told.front(settings.recall):
        text_tokens = measure_message_parts(make_text_message("user", text), counter)[0].tokens
        is_new = text not in before or (made_again and text.startswith("[Summary of"))
        came += text_tokens if is_new else 0
    removed_tokens = max(0, then + new + came - messages)
    usage = max(0, math.ceil(earlier_bound + weight * (1.3 * came - 0.7 * removed_tokens)))
    ratio = min(max(anchor_of(events)[1], 1.0), 4.0)
    return _above(usage, (new + tail) * ratio, counter)


def _since(events: Sequence[Event], told: Told, counter: TokenCounter) -> tuple[int, int]:
    """Tokens of the words that stand in for others, and of what was said."""
    came = new = 0
    for event in events:
        match event.body:
            case MessageAdded() | ToolResultRepair() as body:
                new += sum(size.tokens for size in _sizes(sendable(body.message), counter))
            case Edit(part=int()) as edit if edit.part is not None:
                came += _brought(told.messages[edit.first].parts[edit.part], edit, counter)
            case _:
                pass
    return came, new


def _first_change(events: Sequence[Event]) -> int | None:
    """The index of the first edit of something that was sent and reported, if nothing else than
    edits has changed it since."""
    changes: list[int] = []
    for index, event in enumerate(events):
        sent_seq = max(
            (e.body.position for e in events[:index] if isinstance(e.body, ModelCall)), default=0
        )
        if isinstance(event.body, CallOutcome) and anchor_of(events[: index + 1])[0] is not None:
            changes = []
        elif breaks(event, sent_seq):
            edits = isinstance(event.body, Edit) and event.body.op != "reveal"
            has_anchor = bool(changes) or anchor_of(events[:index])[0] is not None
            changes = [*changes, index] if edits and has_anchor else []
    return changes[0] if changes else None


def _brought(said: Part, edit: Edit, counter: TokenCounter) -> int:
    """Tokens of the words that an edit puts into a part."""
    if edit.op == "truncate" and not edit.pieces and isinstance(said, Text | ToolResult):
        return counter.count(edit.text) + 2
    return measure_part(under(said, edit), counter).tokens


def _above(usage: int, new: float, counter: TokenCounter) -> int:
    """The margin is a share of the whole, at least the larger share of what is new, and never more
    than what is new may be off alone."""
    margin = max(counter.anchored_margin * (usage + new), counter.unanchored_margin * new)
    return math.ceil(usage + new + min(margin, counter.single_message_margin * new))


def anchor_of(events: Sequence[Event]) -> tuple[tuple[int, int, bool] | None, float]:
    """Reported input and position of the last call that is a prefix, whether it had a tail, and
    the learned ratio: that of the last call, or of all that came on top of another, older text
    counting for less. What came with a picture says nothing about text."""
    anchor: tuple[int, int, bool] | None = None
    last: tuple[int, ModelCall] | None = None
    whole = False
    ratio, counter = 1.0, ""
    fresh: list[tuple[float, float]] = []
    standing, pictures, model_and_dialect = 0, 0, ("", "")
    for event in events:
        match event.body:
            case ModelCall() as body:
                last, whole = (event.seq, body), True
            case CallOutcome() as body if last is not None and body.call == last[0]:
                if tokens := counted_by(body, last[1]):
                    call = last[1]
                    ratio = ratio if call.media else (tokens + 500) / (call.tokens + 500)
                    if anchor and call.media == pictures:
                        fresh.append((tokens - anchor[0], call.tokens - standing))
                    elif not anchor and not call.media and call.tokens > weights(fresh)[1]:
                        fresh.append((tokens, call.tokens))
                    if whole:
                        anchor = (tokens, call.position, bool(call.volatile))
                        standing, pictures = call.tokens, call.media
            case _:
                if breaks(event, last[1].position if last else 0):
                    anchor, whole = None, False
        if isinstance(event.body, Settings) and event.body.counter != counter:
            counter, ratio, fresh = event.body.counter, 1.0, []
        if isinstance(event.body, Settings):
            fresh = fresh if (event.body.model, event.body.dialect) == model_and_dialect else []
            model_and_dialect = event.body.model, event.body.dialect
        if isinstance(event.body, Rewind) and last is not None:
            last = (last[0], replace(last[1], position=min(last[1].position, event.body.to)))
    heavy, light = weights(fresh)
    return anchor, max(ratio, (heavy + 500) / (light + 500))


def weights(fresh: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Reported and estimated tokens of what was new: each counts for half of itself after 32,768
    tokens more, if they came at once."""
    pairs = [(min(max(0, tokens), 4 * new), new) for tokens, new in fresh if new > 0]
    share, heavy, light = 1.0, 0.0, 0.0
    for tokens, new in reversed(pairs):
        heavy, light = heavy + share * tokens, light + share * new
        share /= 1 + new / 32_768
    return heavy, light


def counted_by(outcome: CallOutcome, call: ModelCall) -> int:
    """The input as the provider counted it, in its usage or in its refusal; 0 where it did not."""
    if outcome.usage is not None:
        return outcome.usage.input
    error = outcome.error or {}
    tokens = error.get("input", 0) if error.get("kind") == "overflow" else 0
    return tokens if tokens <= 4 * call.tokens else 0


def was_refused(events: Sequence[Event]) -> str:
    """Whether the last outcome was a refusal for length that named a count (`counted`) or no figure
    at all (`unsaid`); other errors aside."""
    calls = {e.seq: e.body for e in events if isinstance(e.body, ModelCall)}
    ends = [
        e.body
        for e in events
        if isinstance(e.body, CallOutcome)
        and (e.body.error or {}).get("kind") in (None, "overflow")
    ]
    if not ends or ends[-1].error is None:
        return ""
    if counted_by(ends[-1], calls[ends[-1].call]) > 0:
        return "counted"
    return "" if "limit" in ends[-1].error else "unsaid"


def breaks(event: Event, sent: int) -> bool:
    """Whether the event changes something that was sent."""
    match event.body:
        case Settings() | Rewind() | PayloadErasure() | RetentionErasure():
            return True
        case Edit() as edit:
            return edit.part is None or edit.op == "reveal" or edit.first <= sent
        case _:
            return False


def had_recall(events: Sequence[Event], edit: Edit) -> bool:
    """Whether the recall tools were there when the edit was made."""
    place = next(i for i, e in enumerate(events) if _same_edit(e.body, edit))
    return bool(settings_at(events[:place]).recall)


def _same_edit(body: object, edit: Edit) -> bool:
    """An erase may have taken the words of one of them."""
    if not isinstance(body, Edit):
        return False
    return replace(body, text=edit.text, head=edit.head, tail=edit.tail) == edit


def without_margin_brackets(text: str) -> str:
    """A summary inside of a text of ours: no line of it begins with a bracket."""
    lines = text.splitlines(keepends=True)
    return "".join(f" {line}" if line[0] == "[" else line for line in lines)


def said_as(part: Part, *, note: bool) -> str | None:
    """The text of a part as a wire shows it; None for what is no text."""
    match part:
        case Text():
            return plain([part.text])
        case ToolResult():
            text = plain([inner.text for inner in part.content if isinstance(inner, Text)])
            if not note:
                return text
            return f"[late result of call {part.call_id}]\n {indented(part.text)}"
        case Media() | OpaqueBlock():
            return None
        case _:
            return part.arguments
