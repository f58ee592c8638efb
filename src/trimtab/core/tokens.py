"""Sizes: how many tokens a text, a part or a request takes, and what can be promised about it.

Nobody outside a provider knows the exact figure before a call, so there are two numbers. A counter
gives the estimate; `upper_bound` adds what was measured to be missing in one case of a thousand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trimtab.core.edits import shown
from trimtab.core.event import Edit, Size
from trimtab.core.media_tokens import media_tokens
from trimtab.core.message import (
    SAID_BY,
    Media,
    Message,
    Opaque,
    Part,
    Text,
    ToolCall,
    ToolResult,
    text_message,
)
from trimtab.core.odd_text import SLICE, kind_of, raised, total
from trimtab.core.picture_tokens import without_detail
from trimtab.core.token_weights import UNITS, WEIGHTS
from trimtab.core.utf8 import whole_pairs

MESSAGE_OVERHEAD = 4
"""Tokens around one message: OpenAI documents 3 and 1 for a name; ChatML templates take 4 to 5."""

CALL_OVERHEAD = 12
"""Tokens around one tool call, its message's included, beside its name, id and arguments."""

RESULT_OVERHEAD = 10
"""Tokens around one tool result, its message's included, beside its id and content."""

TOOLS_OVERHEAD = 500
"""Tokens a provider adds once a request has tools: Anthropic documents 313 to 346 for Claude 4."""

NO_PARTS = Size(bytes=12, tokens=12)
"""Of a message that says nothing: a few words stand for it on the wire."""

MAXIMUM_RATIO = 4.0
"""A learned ratio beyond this is taken for a fault in the report, not for a fact about the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """A way to count tokens, and how far it may be trusted."""

    name: str
    """Recorded with every size it takes: sizes of different counters are never added."""
    count: Callable[[str], int]
    """Tokens of a text, without any overhead; pure, never negative, 0 for the empty text."""
    anchored: float
    """Share of the whole request to add where the last call's usage is known."""
    unanchored: float
    """Share of the whole request to add where no usage is known."""
    single: float
    """Share to add to the estimate of one message taken alone."""
    tokenizer: Callable[[str], int] | None = None
    """The caller's own function that it counts by; None for an estimate."""
    pictures: str = ""
    """The rule by which pictures are priced, see `picture_tokens`; empty where it is not known."""


def bytes4(text: str) -> int:
    """A quarter of the UTF-8 bytes, rounded up: the plain heuristic of the `layered` preset."""
    return (_bytes(text) + 3) // 4


BYTES4 = Counter(name="bytes/4", count=bytes4, anchored=0.65, unanchored=3.0, single=3.25)
"""Simple and the same for every model, and blind to what it counts: without usage its bound is a
token for each byte. With usage its margin is that of recorded coding conversations."""


PIECEWISE = "piecewise"
"""What the names of estimators begin with; the family, a version and the rule follow."""

EXACT = "exact/"
"""What the names of exact counters begin with."""


def exact(name: str, function: Callable[[str], int], pictures: str = "") -> Counter:
    """A tokenizer of the user's own, such as `lambda text: len(encoding.encode(text))`.

    The hundredth that is left covers what a provider puts around the texts. It is given only texts
    that UTF-8 can say, for that is how they are sent.
    """

    def count(text: str) -> int:
        return function(text if text.isascii() else whole_pairs(text))

    return Counter(
        name=f"{EXACT}{name}",
        count=count,
        anchored=0.01,
        unanchored=0.01,
        single=0.01,
        tokenizer=function,
        pictures=pictures,
    )


def piecewise(family: str | None, pictures: str = "") -> Counter:
    """The estimator fitted to a tokenizer family, see `WEIGHTS` for those there are.

    For None and for a family it does not know it takes the maximum over all families. `pictures`
    is the rule by which pictures are priced.
    """
    known = family in WEIGHTS and family != "max"
    name = family if known and family else "max"
    weights = WEIGHTS[name]
    kind = kind_of(name)

    def count(text: str) -> int:
        raw = encoded(text)
        codes = pairs(raw)
        if len(raw) <= SLICE:
            tokens = raised(raw, codes, total(codes.translate(weights)) / UNITS, kind)
        else:
            tokens = 0.0
            # What is left at the end is too short to be judged alone.
            starts = range(0, len(raw) - SLICE // 4, SLICE)
            for at, end in zip(starts, (*starts[1:], len(raw)), strict=True):
                some = codes[at:end]
                estimate = total(some.translate(weights)) / UNITS
                tokens += raised(raw[at:end], some, estimate, kind)
        # Tokens are bytes or longer, but for a few per cent in Claude's on odd text.
        return min(math.ceil(tokens), len(raw))

    return Counter(
        name="/".join(filter(None, (PIECEWISE, name, "2", pictures))),
        count=count,
        anchored=0.08,
        unanchored=0.17 if known else 0.12,
        single=1.15 if known else 0.8,
        pictures=pictures,
    )


def estimator(name: str) -> Counter:
    """The estimator that a name in a log stands for, as it is today."""
    kind, family, _, pictures = (*name.split("/", 3), "", "", "")[:4]
    return piecewise(family, pictures) if kind == PIECEWISE else piecewise(None)


def _classes() -> bytes:
    table = bytearray(b"\x04" * 128 + b"\x08" * 64 + b"\x09" * 64)
    for number, members in (
        (1, b"acdefghilmnoprstu"),
        (2, bytes(range(0x41, 0x5B))),
        (3, b"0123456789"),
        (5, b"\n\r"),
        (6, b"\t"),
        (7, b" "),
        (10, bytes(range(0xD0, 0xD4))),
        (11, b"\xe0\xe1\xe2\xee\xef"),
        (12, bytes(range(0xE3, 0xEA))),
        (13, bytes(range(0xEA, 0xEE))),
        (14, bytes(range(0xF0, 0x100))),
        (15, b"bjkqvwxyz"),
    ):
        for member in members:
            table[member] = number
    return bytes(table)


CLASSES = _classes()
"""Every byte's class: 1 common lower-case letter, 2 upper case, 3 digit, 4 other ASCII, 5 line end,
6 tab, 7 space, 8 continuation, then by first byte 9 two-byte Latin, Greek, Hebrew and Arabic,
10 Cyrillic, 11 other three-byte, 12 kana and Han, 13 Hangul, 14 four-byte; 15 rare lower-case
letter, of which random strings have more than words do. 0 is the start of the text."""


def encoded(text: str) -> bytes:
    """A text in UTF-8, as it is sent: half of a surrogate pair is replaced."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return whole_pairs(text).encode()


def pairs(raw: bytes) -> bytes:
    """For each byte, the class of the byte before it times 16 plus its own.

    A token rarely ends within a run of one class and often between two, so neighbours say most of
    what can be known without a vocabulary. The shift pairs all of them in one step.
    """
    classes = int.from_bytes(raw.translate(CLASSES), "big")
    return (classes | classes >> 4).to_bytes(len(raw), "big")


def size_of(part: Part, counter: Counter) -> Size:
    """Bytes and tokens of one part, with the overhead of the block and the message around it.

    Every part pays for a message of its own: a message of many parts is a few tokens too large,
    and a part that is masked, truncated or moved keeps its overhead without anyone's help.
    """
    match part:
        case Text():
            text, overhead = part.text, MESSAGE_OVERHEAD
            size = Size(bytes=_bytes(text), tokens=counter.count(text) + overhead)
        case ToolCall():
            # Counted in one go: three short texts cost three times the fixed price of a count.
            text = f"{part.name}\n{part.id}\n{part.arguments}"
            size = Size(bytes=_bytes(text) - 2, tokens=counter.count(text) + CALL_OVERHEAD)
        case ToolResult():
            return _size_of_result(part, counter)
        case Media():
            tokens = media_tokens(part, counter.count, counter.pictures)
            # A quarter of base64 says nothing about a picture: its bytes follow from its tokens.
            size = Size(bytes=tokens * 4, tokens=tokens + MESSAGE_OVERHEAD)
            return plus(size, _size_of_extra(without_detail(part.extra), counter))
        case Opaque():
            return size_of_json(part.data, counter)
    return size if part.extra is None else plus(size, _size_of_extra(part.extra, counter))


def sizes_of(message: Message, counter: Counter) -> tuple[Size, ...]:
    """One size for each part, or one for none; the message's own extra keys are in the first."""
    sizes = tuple(size_of(part, counter) for part in message.parts) or (NO_PARTS,)
    if message.extra is None:
        return sizes
    return (plus(sizes[0], _size_of_extra(message.extra, counter)), *sizes[1:])


def media_in(part: Part, counter: Counter) -> int:
    """Tokens of the pictures and files in a part."""
    held = part.content if isinstance(part, ToolResult) else (part,)
    return sum(size_of(inner, counter).tokens for inner in held if isinstance(inner, Media))


def resized(edit: Edit, part: Part, counter: Counter) -> Edit:
    """The edit of a part with the size that a counter gives to what stands in."""
    return replace(edit, size=size_of(shown(part, edit), counter))


def came_with(edit: Edit, part: Part, counter: Counter) -> int:
    """Tokens of the words that an edit puts into a part: all that is seen of it, or the sign of
    what was cut."""
    if edit.op == "truncate" and not edit.pieces and isinstance(part, Text | ToolResult):
        return counter.count(edit.text) + 2
    return edit.size.tokens


def size_of_json(value: Any, counter: Counter) -> Size:
    """Size of a JSON value as it is written on the wire: an opaque block, a tool definition."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return Size(bytes=_bytes(text), tokens=counter.count(text) + MESSAGE_OVERHEAD)


def size_of_params(params: Mapping[str, Any], counter: Counter) -> Size:
    """Size of the parameters that a provider reads: a schema that the reply must have."""
    size = Size(bytes=0, tokens=0)
    for value in params.values():
        if isinstance(value, Mapping | list | tuple):
            size = plus(size, size_of_json(value, counter))
    return size


def size_of_head(
    system: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    counter: Counter,
    params: Mapping[str, Any] | None = None,
) -> Size:
    """Size of all that stands before the messages, with what a provider adds for having tools."""
    # The 3 tokens that prime the reply belong to every request, so they are in its head.
    size = Size(bytes=0, tokens=3 + (TOOLS_OVERHEAD if tools else 0))
    for message in system:
        for each in sizes_of(message, counter):
            size = plus(size, each)
    for tool in tools:
        size = plus(size, size_of_json(tool, counter))
    return plus(size, size_of_params(params or {}, counter))


def upper_bound(*, counter: Counter, new: int, usage: int | None = None, ratio: float = 1.0) -> int:
    """Tokens that a request will not exceed, but for about one in a thousand.

    `usage` is the input the provider reported for the anchor: the newest call whose request is a
    prefix of this one. `new` is the estimate of what came behind it, or of the whole request where
    there is no anchor (None: the first call, or the first after an edit). `ratio` is reported
    over estimated tokens as learned from earlier calls; below 1 it is not believed.

    Measured by benchmarks/token_estimates.py on text that the weights were not fitted to, worst of
    o200k, cl100k and tekken: 99.9 % of 3,722 requests replayed from recorded conversations, with
    usage as an exact tokenizer counts it, were missed by at most 3.1 % when anchored, 5.3 % when
    not; contexts mixed from 32 kinds of text by 7.8 %; single texts by 32 %. Six other families
    were measured before odd text was looked for, which only raises an estimate: 16.2 % and 115 % at
    most, and the margins are theirs. The overheads around the texts were taken as known. What is
    new counts by whichever margin is smaller, so a short message behind a long history costs
    little. Text of any kind that fills the window has the bound of `odd_text`, see
    benchmarks/text_kinds.py.
    """
    scaled = new * min(max(ratio, 1.0), MAXIMUM_RATIO)
    if usage is None:
        return math.ceil(scaled * (1 + counter.unanchored))
    # What is new and as large as all before it is no average of many: it has its own margin.
    margin = max(counter.anchored * (usage + scaled), counter.unanchored * scaled)
    return math.ceil(usage + scaled + min(margin, counter.single * scaled))


def _size_of_result(part: ToolResult, counter: Counter) -> Size:
    content = part.content
    if len(content) == 1 and isinstance(content[0], Text) and content[0].extra is None:
        text = f"{part.call_id}\n{content[0].text}"
        size = Size(bytes=_bytes(text) - 1, tokens=counter.count(text) + RESULT_OVERHEAD)
    else:
        own = counter.count(part.call_id) + RESULT_OVERHEAD
        size = Size(bytes=_bytes(part.call_id), tokens=own)
        for inner in content:
            size = plus(size, size_of(inner, counter))
    return size if part.extra is None else plus(size, _size_of_extra(part.extra, counter))


_UNSENT = frozenset({"cache_control", SAID_BY})
"""Extra keys that are no text for a model."""


def _size_of_extra(extra: Mapping[str, Any], counter: Counter) -> Size:
    """Keys that only the origin dialect knows: some hold text (reasoning), most are empty."""
    told = {key: value for key, value in extra.items() if value and key not in _UNSENT}
    if not told:
        return Size(bytes=0, tokens=0)
    return size_of_json(told, counter)


def plus(one: Size, other: Size) -> Size:
    """Two sizes together."""
    return Size(bytes=one.bytes + other.bytes, tokens=one.tokens + other.tokens)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def size_of_text(text: str, counter: Counter) -> Size:
    """Of a text that is a message of its own; nothing for an empty one."""
    if not text:
        return Size(bytes=0, tokens=0)
    return sizes_of(text_message("user", text), counter)[0]


def front_size(counter: Counter, summary: str, notice: str) -> Size:
    """Size of what stands before the first kept message, both as the model reads them."""
    return plus(size_of_text(summary, counter), size_of_text(notice, counter))
