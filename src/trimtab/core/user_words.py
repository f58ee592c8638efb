"""The user's words stay: what users said in messages that are hidden stands in a list.

The list comes before the summary. It is made of blocks, one for each compaction; a later block
leaves those before it as they are, so that a provider's cache still holds them. An entry names a
message and how much of it is kept. The text itself is never copied: an erase finds it in one place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

from trimtab.core.budget import Budget
from trimtab.core.client_text import made_by_client
from trimtab.core.edits import ERASED, with_recall
from trimtab.core.event import Edit, LeftOut, Listed, Settings, Size
from trimtab.core.message import Media, Message, Part, Text
from trimtab.core.rounds import Entry
from trimtab.core.tokens import MESSAGE_OVERHEAD, Counter, plus, size_of_text

WORDS = {"cost": 20_000}
"""By goal: tokens of user words that are kept whole; `MOST_WORDS` for the others."""
MOST_WORDS = 40_000
SHARE = 4
"""Of the room for messages one part in so many is for the user's words, and as much for
instructions, at most."""
LEVELS = (400, 40)
"""Tokens that the longest are cut down to; then the oldest, where that is not enough."""
WORTH = 2
"""How many times as long as that a message must be: of one that is hardly longer little but the
sign of the cut would be left, and all of them would be spoilt to save a few tokens."""
SLACK = 0.8
"""Share of the allowance that is filled when it is exceeded, so that the list can grow again."""
FRAME = "[The user's earlier messages, word for word]"
"""What stands before each block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What an edit does to the list."""

    places: tuple[Listed, ...]
    """What it adds; all that is listed, where it replaces the list."""
    relists: bool
    """Whether it replaces the list."""
    left_out: LeftOut | None
    """User messages that even the list does not show."""
    size: Size
    """Of the whole list after it."""


class Allowance(NamedTuple):
    """Tokens that the list may take."""

    words: int
    """For what users said."""
    instructions: int
    """For what client programs have put into user messages, such as reminders."""
    limited_by: str = ""
    """The setting that makes it smaller than it would be by itself."""


def allowance_of(settings: Settings, budget: Budget) -> Allowance | None:
    """What the user's words may take beside the rest; None under policies that keep no list."""
    if settings.policy != "auto":
        return None
    params = settings.policy_params
    quarter = budget.room // SHARE
    words, by = min(WORDS.get(str(params.get("goal")), MOST_WORDS), quarter), ""
    context = cast("Mapping[str, Any]", params.get("context") or {})
    summary = cast("Mapping[str, Any]", context.get("summary") or {})
    history = context.get("max_history_tokens")
    for name, most in (
        ("max_history_tokens", history // 2 if history else None),
        ("summary.max_tokens", summary.get("max_tokens")),
    ):
        if most is not None and most < words:
            words, by = most, name
    return Allowance(words, min(quarter, words) if by else quarter, by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saying:
    """One part of a user's message, as the list would hold it."""

    place: Listed
    """Where it stands in the log, and how much of it is kept."""
    text: str = ""
    """What was said, whole; empty for a picture and for what only refers to another."""
    media: str = ""
    """The kind of a picture or file."""
    client: bool = False
    """True for what a client program has put there."""
    said: int = 0
    """Tokens as it was said."""
    around: int = 0
    """Tokens of what stands before it in the list."""
    cost: int = 0
    """Tokens that it takes there with that, at most."""
    bytes: int = 0
    """Bytes that it takes there, at most."""
    at: float = 0.0
    """When it was said, in seconds since the epoch."""


class Tally(NamedTuple):
    """Sayings added up."""

    words: int = 0
    """Tokens of what users said."""
    instructions: int = 0
    """Tokens of what client programs have put there."""
    words_cost: int = 0
    """Tokens that the former take in the list, at most."""
    instructions_cost: int = 0
    """Tokens that the latter take there, at most."""
    bytes: int = 0
    """Bytes that all of them take there, at most."""

    def __add__(self, other: object) -> Tally:
        """Both together."""
        assert isinstance(other, Tally)  # noqa: S101 - nothing else is added to one
        return Tally(*(one + more for one, more in zip(self, other, strict=True)))

    def within(self, allowance: Allowance) -> bool:
        """Whether all of it may stay as it was said."""
        return self.words <= allowance.words and self.instructions <= allowance.instructions

    def capped(self, allowance: Allowance) -> Size:
        """The size of a list of them, at most, once it is cut down to the allowance."""
        most = 0
        for said, cost, limit in (
            (self.words, self.words_cost, allowance.words),
            (self.instructions, self.instructions_cost, allowance.instructions),
        ):
            most += cost if said <= limit else min(cost, int(SLACK * limit))
        whole = self.words_cost + self.instructions_cost
        return Size(bytes=self.bytes * most // max(1, whole), tokens=most)


@dataclass(slots=True)
class Block:
    """What one compaction has added to the list."""

    places: list[Listed]
    """In the order in which it was said."""
    left_out: LeftOut | None = None
    """User messages before these for which there was no room."""
    text: str | None = None
    """As the model reads it; None where that is to be made anew."""
    size: Size | None = None
    """Of that text, as a message."""


@dataclass(slots=True)
class UserWords:
    """The list as it is sent now."""

    blocks: list[Block] = field(default_factory=list[Block])
    """Oldest first."""
    messages: dict[int, tuple[Message, float]] = field(
        default_factory=dict[int, tuple[Message, float]]
    )
    """By position: each message that is listed, and when it was said."""
    _tally: tuple[Tally, dict[str, tuple[int, int]]] | None = None
    """The same added up, as long as it holds."""

    @property
    def left_out(self) -> LeftOut | None:
        """User messages that even the list does not show."""
        return self.blocks[0].left_out if self.blocks else None

    def add(self, edit: Edit, entries: Mapping[int, Entry]) -> None:
        """Take the block of an edit, which names messages of the window or of the list so far."""
        if edit.relists:
            self.blocks = []
        for seq in {place.seq for place in edit.listed} & entries.keys():
            self.messages[seq] = (entries[seq].message, entries[seq].at)
        places = [place for place in edit.listed if place.seq in self.messages]
        if places or edit.left_out is not None:
            self.blocks.append(Block(places=places, left_out=edit.left_out))
        self._forget()

    def partly(self) -> set[int]:
        """Messages of which one part is listed and another left out."""
        named = {place[:2] for block in self.blocks for place in block.places}
        left = self.left_out
        return {
            seq
            for seq, (message, _) in self.messages.items()
            if left is not None and left.first <= seq <= left.last
            for index, part in enumerate(message.parts)
            if (seq, index) not in named and says(part)
        }

    def discard(self, seqs: Iterable[int]) -> None:
        """Take messages out that are seen in their own place again."""
        gone = set(seqs)
        for block in self.blocks:
            kept = [place for place in block.places if place.seq not in gone]
            if len(kept) != len(block.places):
                block.places, block.text, block.size = kept, None, None
        self.blocks = [block for block in self.blocks if block.places or block.left_out]
        self._forget()

    def _forget(self) -> None:
        self._tally = None
        named = {place.seq for block in self.blocks for place in block.places}
        self.messages = {seq: said for seq, said in self.messages.items() if seq in named}

    def shown(self, seq: int, part: int | None) -> str:
        """A message, or one of its parts, as the list shows it; empty where it does not."""
        places = [place for block in self.blocks for place in block.places if place.seq == seq]
        found = [place for place in places if part is None or place.part == part]
        texts = [_shown(place, self.messages[seq][0], recall=False) for place in found]
        return "\n".join(text for text in texts if text)

    def stale(self) -> None:
        """Handles are shown or hidden from now on, or tokens are counted otherwise."""
        self._tally = None
        for block in self.blocks:
            block.text = block.size = None

    def texts(self, *, recall: bool) -> list[str]:
        """The blocks as the model reads them."""
        for block in self.blocks:
            if block.text is None:
                block.text = block_text(block, self.messages, recall=recall)
        return [block.text for block in self.blocks if block.text]

    def sizes(self, counter: Counter, *, recall: bool) -> list[Size]:
        """Of the blocks, each a message."""
        self.texts(recall=recall)
        for block in self.blocks:
            if block.size is None:
                block.size = size_of_text(block.text or "", counter)
        return [block.size for block in self.blocks if block.size is not None]

    def size(self, counter: Counter, *, recall: bool) -> Size:
        """Of all blocks together."""
        sizes = self.sizes(counter, recall=recall)
        return Size(bytes=sum(s.bytes for s in sizes), tokens=sum(s.tokens for s in sizes))

    def sayings(self, counter: Counter, *, recall: bool) -> Iterator[Saying]:
        """All that is listed, whole, in the order in which it was said."""
        for block in self.blocks:
            for seq, part, *_ in block.places:
                message, at = self.messages[seq]
                made = saying_of(message, seq, part, counter, recall=recall, at=at)
                if made is not None:
                    yield made

    def tally(self, counter: Counter, *, recall: bool) -> tuple[Tally, dict[str, tuple[int, int]]]:
        """What is listed, added up; and by text of a client program, where it is said first."""
        if self._tally is None:
            total, first = Tally(), dict[str, tuple[int, int]]()
            for place in [place for block in self.blocks for place in block.places]:
                message, at = self.messages[place.seq]
                saying = saying_of(message, *place[:2], counter, recall=recall, at=at)
                if saying is not None and place.same_seq:
                    # What it refers to may be gone: the next that says it must not refer to this.
                    total += tallied(referring(saying, place[4:], counter))
                elif saying is not None:
                    total += tallied(once(saying, first, counter))
            self._tally = total, first
        return self._tally


def sayings_in(entry: Entry, counter: Counter, *, recall: bool) -> Iterator[Saying]:
    """What a user says in a message, part by part. A text that a provider did not take, and so was
    masked, must not come back."""
    if entry.message.role != "user":
        return
    for part in range(len(entry.message.parts)):
        edit = entry.edits.get(part)
        masked = edit is not None and edit.op == "mask"
        if part in entry.notes or (masked and isinstance(entry.message.parts[part], Text)):
            continue
        made = saying_of(entry.message, entry.seq, part, counter, recall=recall, at=entry.at)
        if made is not None:
            yield made


def has_words(entry: Entry) -> bool:
    """Whether a user says something in a message."""
    return entry.message.role == "user" and any(map(says, entry.message.parts))


def says(part: Part) -> bool:
    """Whether something is said in a part of a user's message."""
    return isinstance(part, Media) or (isinstance(part, Text) and bool(part.text.strip()))


def speaks(message: Message) -> bool:
    """Whether a person may have said it: more than what a client program has put there."""
    return not message.parts or any(
        isinstance(part, Media) or (isinstance(part, Text) and not made_by_client(part.text))
        for part in message.parts
    )


def saying_of(
    message: Message, seq: int, part: int, counter: Counter, *, recall: bool, at: float
) -> Saying | None:
    """A part of a user's message for the list; None for what says nothing."""
    content = message.parts[part] if part < len(message.parts) else None
    place = Listed(seq, part)
    if isinstance(content, Media):
        shown = _picture(content.kind, place, recall=recall)
        text, media = "", content.kind
    elif isinstance(content, Text) and content.text.strip() and content.text != ERASED:
        shown = text = content.text
        media = ""
    else:
        return None
    own = f"{_name(seq, recall=recall)} \n"
    tokens, around = counter.count(shown), counter.count(own) + 1
    return Saying(
        place=place,
        text=text,
        media=media,
        client=bool(text) and made_by_client(text),
        said=tokens + MESSAGE_OVERHEAD,
        around=around,
        cost=tokens + around,
        bytes=len(f"{own}{shown}".encode("utf-8", "surrogatepass")),
        at=at,
    )


def referring(saying: Saying, same: tuple[int, int], counter: Counter) -> Saying:
    """The same as no more than a reference to an earlier one."""
    seq, part = same
    place = saying.place._replace(head=0, tail=0, same_seq=seq, same_part=part)
    refers = f"{_name(place.seq, recall=True)} {_reference(place, recall=True)}\n"
    tokens = counter.count(refers) + 1
    return replace(saying, place=place, text="", said=0, cost=tokens, bytes=len(refers.encode()))


def tallied(saying: Saying) -> Tally:
    """One saying, to be added to others."""
    if saying.client:
        return Tally(instructions=saying.said, instructions_cost=saying.cost, bytes=saying.bytes)
    return Tally(words=saying.said, words_cost=saying.cost, bytes=saying.bytes)


def once(saying: Saying, first: dict[str, tuple[int, int]], counter: Counter) -> Saying:
    """Of what client programs say again and again the first stays, and the others refer to it."""
    if not saying.client:
        return saying
    place = first.setdefault(saying.text, saying.place[:2])
    return saying if place == saying.place[:2] else referring(saying, place, counter)


def fitted(
    sayings: Sequence[Saying],
    allowance: Allowance,
    before: LeftOut | None,
    counter: Counter,
    told: Collection[int] = (),
) -> tuple[list[Saying], LeftOut | None]:
    """What is kept of all that is listed, where it is more than the allowance: the longest are cut
    to both ends, then the oldest are cut further, then the oldest become one line. Messages of
    which the line `told` before are not counted again."""
    kept: list[Saying] = []
    for client, most in ((False, allowance.words), (True, allowance.instructions)):
        own = [saying for saying in sayings if saying.client is client]
        over = sum(saying.said for saying in own) > most
        kept += _cut_down(own, int(SLACK * most), counter) if over else own
    kept.sort(key=lambda saying: saying.place[:2])
    return kept, _left_out(sayings, kept, before, told)


def listing(
    words: UserWords,
    new: Sequence[Saying],
    said: Mapping[int, tuple[Message, float]],
    allowance: Allowance,
    counter: Counter,
    *,
    recall: bool,
) -> Listing:
    """What becomes of the list when more is to be listed; `said` are the messages of it all."""
    total, first = words.tally(counter, recall=recall)
    known = dict(first)
    new = sorted(new, key=lambda saying: saying.place[:2])
    added = [once(saying, known, counter) for saying in new]
    for saying in added:
        total += tallied(saying)
    before, relists = words.left_out, not total.within(allowance)
    if relists:
        every = sorted(
            [*words.sayings(counter, recall=recall), *new], key=lambda saying: saying.place[:2]
        )
        known = dict[str, tuple[int, int]]()
        added, before = fitted(
            [once(saying, known, counter) for saying in every],
            allowance,
            before,
            counter,
            words.partly(),
        )
    places = tuple(saying.place for saying in added)
    block = Block(places=list(places), left_out=before if relists else None)
    size = size_of_text(block_text(block, said, recall=recall), counter)
    if not relists:
        size = plus(size, words.size(counter, recall=recall))
    return Listing(places=places, relists=relists, left_out=before if relists else None, size=size)


def _cut_down(sayings: Sequence[Saying], most: int, counter: Counter) -> list[Saying]:
    kept = list(sayings)
    long, short = LEVELS
    total = sum(saying.cost for saying in kept)
    if total > most:
        level = _level([saying.cost for saying in kept], most, long)
        kept = [_shortened(saying, level, counter) for saying in kept]
        total = sum(saying.cost for saying in kept)
    for index, saying in enumerate(kept):
        if total <= most:
            break
        if saying.cost <= WORTH * short:
            continue
        kept[index] = _shortened(saying, short, counter)
        total -= saying.cost - kept[index].cost
    gone = 0
    while gone < len(kept) and (
        total > most or (gone and kept[gone].place.seq == kept[gone - 1].place.seq)
    ):
        total -= kept[gone].cost
        gone += 1
    return kept[gone:]


def _level(sizes: Sequence[int], most: int, least: int) -> int:
    """The size to which the largest are cut so that all of them take no more than `most`."""
    left, tall = most, sorted(sizes)
    for index, size in enumerate(tall):
        share = left // (len(tall) - index)
        if size > share:
            return max(share, least)
        left -= size
    return max(least, tall[-1] if tall else 0)


def _shortened(saying: Saying, most: int, counter: Counter) -> Saying:
    """The saying cut to both its ends; as it is where that does not make it smaller."""
    if saying.cost <= most or not saying.text:
        return saying
    text = saying.text
    sign = counter.count(_gap(len(text), len(text), saying.place, recall=True)) + 2
    room = max(0, most - saying.around - sign)
    ends = len(text) * room // max(1, counter.count(text)) // 2
    while ends and counter.count(text[:ends]) + counter.count(text[-ends:]) > room:
        ends = ends * 9 // 10
    tokens = counter.count(text[:ends]) + counter.count(text[len(text) - ends :]) + sign
    tokens += saying.around
    if tokens >= saying.cost:
        return saying
    size = len(f"{text[:ends]}{text[len(text) - ends :]}".encode("utf-8", "surrogatepass"))
    place = saying.place._replace(head=ends, tail=ends)
    return replace(saying, place=place, cost=tokens, bytes=size + 100)


def _left_out(
    sayings: Sequence[Saying],
    kept: Sequence[Saying],
    before: LeftOut | None,
    told: Collection[int],
) -> LeftOut | None:
    """The line for messages of which something is left out, those of earlier times included."""
    shown = {saying.place[:2] for saying in kept}
    gone = {
        saying.place.seq: saying.at
        for saying in sayings
        if saying.place[:2] not in shown and saying.place.seq not in told
    }
    if not gone:
        return before
    first, last = min(gone), max(gone)
    made = LeftOut(len(gone), first, last, gone[first], gone[last])
    if before is None:
        return made
    return LeftOut(
        before.messages + made.messages,
        min(before.first, first),
        max(before.last, last),
        min(before.since, made.since),
        max(before.until, made.until),
    )


def block_text(block: Block, messages: Mapping[int, tuple[Message, float]], *, recall: bool) -> str:
    """A block as the model reads it; empty where all of it was erased."""
    lines: list[str] = []
    last = 0
    for place in block.places:
        same = messages.get(place.same_seq)
        # Where what it refers to was erased, it is the only one that says it.
        alone = same is not None and _is_erased(same[0], place.same_part)
        own = place._replace(head=-1, same_seq=0) if alone else place
        shown = _shown(own, messages[place.seq][0], recall=recall)
        if shown is not None:
            name = "" if place.seq == last else f"{_name(place.seq, recall=recall)} "
            lines.append(f"{name}{shown}")
            last = place.seq
    told = [_told(block.left_out, recall=recall)] if block.left_out is not None else []
    return "\n".join([FRAME, *told, *lines]) if told or lines else ""


def _is_erased(message: Message, part: int) -> bool:
    content = message.parts[part] if part < len(message.parts) else None
    return isinstance(content, Text) and content.text == ERASED


def _shown(place: Listed, message: Message, *, recall: bool) -> str | None:
    content = message.parts[place.part] if place.part < len(message.parts) else None
    if isinstance(content, Media):
        return _picture(content.kind, place, recall=recall)
    if not isinstance(content, Text) or content.text == ERASED:
        return None
    if place.same_seq:
        return _reference(place, recall=recall)
    text = content.text
    if place.head < 0 or place.head + place.tail >= len(text):
        return text
    gap = _gap(place.head + place.tail, len(text), place, recall=recall)
    return f"{text[: place.head]}{gap}{text[len(text) - place.tail :]}"


def _name(seq: int, *, recall: bool) -> str:
    return f"[m{seq}]" if recall else "[user]"


def _picture(kind: str, place: Listed, *, recall: bool) -> str:
    handle = f"m{place.seq}.{place.part}"
    return with_recall(f"[{kind}]", handle) if recall else f"[{kind}]"


def _reference(place: Listed, *, recall: bool) -> str:
    return f"[the same as in m{place.same_seq}]" if recall else "[the same as before]"


def _gap(kept: int, total: int, place: Listed, *, recall: bool) -> str:
    sign = f"[… cut: {kept:,} of {total:,} characters are kept …]"
    return with_recall(sign, f"m{place.seq}.{place.part}") if recall else sign


def _told(left_out: LeftOut, *, recall: bool) -> str:
    count, first, last, since, until = left_out
    many = "1 older user message" if count == 1 else f"{count:,} older user messages"
    verb = "is" if count == 1 else "are"
    line = f"[{many}, from {_time(since)} to {_time(until)}, {verb} not shown]"
    return (
        with_recall(line, f"m{first}" if first == last else f"m{first}-m{last}") if recall else line
    )


def _time(at: float) -> str:
    """Seconds since the epoch as a date and time. The core knows no clock, and needs none for it:
    years begin in March here, so that the day that may be missing is the last of one."""
    days, seconds = divmod(int(at), 86_400)
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    date = day - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year += 400 * era + (month <= 2)
    return f"{year:04}-{month:02}-{date:02} {seconds // 3_600:02}:{seconds % 3_600 // 60:02} UTC"
