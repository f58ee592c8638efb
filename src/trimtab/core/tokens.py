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
from zlib import adler32

from trimtab.core.edits import shown
from trimtab.core.event import Edit, Size
from trimtab.core.media_tokens import media_tokens
from trimtab.core.message import (
    Media,
    Message,
    Opaque,
    Part,
    Text,
    ToolCall,
    ToolResult,
    text_message,
)
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


def bytes4(text: str) -> int:
    """A quarter of the UTF-8 bytes, rounded up: the plain heuristic of the `layered` preset."""
    return (_bytes(text) + 3) // 4


BYTES4 = Counter(name="bytes/4", count=bytes4, anchored=0.65, unanchored=1.0, single=3.25)
"""Simple and the same for every model. Its margins are those of recorded coding conversations; in
mixtures with dense text (digits, identifiers, other scripts) it missed up to 2.6 times its own."""


EXACT = "exact/"
"""What the names of exact counters begin with."""


def exact(name: str, function: Callable[[str], int]) -> Counter:
    """A tokenizer of the user's own, such as `lambda text: len(encoding.encode(text))`.

    The hundredth that is left covers what a provider puts around the texts.
    """
    return Counter(
        name=f"{EXACT}{name}", count=function, anchored=0.01, unanchored=0.01, single=0.01
    )


def piecewise(family: str | None) -> Counter:
    """The estimator fitted to a tokenizer family, see `WEIGHTS` for those there are.

    For None and for a family it does not know it takes the maximum over all families.
    """
    known = family in WEIGHTS and family != "max"
    name = family if known and family else "max"
    weights = WEIGHTS[name]

    def count(text: str) -> int:
        codes = pairs(text)
        # Rounded up. Tokens are bytes or longer, but for a few per cent in Claude's on odd text.
        return min(-(-total(codes.translate(weights)) // UNITS), len(codes))

    return Counter(
        name=f"piecewise/{name}/1",
        count=count,
        anchored=0.08,
        unanchored=0.17 if known else 0.12,
        single=1.15 if known else 0.8,
    )


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


def pairs(text: str) -> bytes:
    """For each byte, the class of the byte before it times 16 plus its own.

    A token rarely ends within a run of one class and often between two, so neighbours say most of
    what can be known without a vocabulary. The shift pairs all of them in one step.
    """
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raw = whole_pairs(text).encode()
    classes = int.from_bytes(raw.translate(CLASSES), "big")
    return (classes | classes >> 4).to_bytes(len(raw), "big")


def total(numbers: bytes) -> int:
    """The sum of all bytes: the lower half of Adler-32 is one more than it, modulo 65,521, which
    256 bytes cannot reach, and takes a tenth of the time of `sum`."""
    size = len(numbers)
    if size <= 256:
        return (adler32(numbers) & 0xFFFF) - 1
    return sum((adler32(numbers[at : at + 256]) & 0xFFFF) - 1 for at in range(0, size, 256))


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
            tokens = media_tokens(part, counter.count)
            # A quarter of base64 says nothing about a picture: its bytes follow from its tokens.
            size = Size(bytes=tokens * 4, tokens=tokens + MESSAGE_OVERHEAD)
        case Opaque():
            return size_of_json(part.data, counter)
    return size if part.extra is None else plus(size, _size_of_extra(part.extra, counter))


def sizes_of(message: Message, counter: Counter) -> tuple[Size, ...]:
    """One size for each part, or one for none; the message's own extra keys are in the first."""
    sizes = tuple(size_of(part, counter) for part in message.parts) or (NO_PARTS,)
    if message.extra is None:
        return sizes
    return (plus(sizes[0], _size_of_extra(message.extra, counter)), *sizes[1:])


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
    nine families: 99.9 % of 3,722 requests replayed from recorded conversations, with usage as an
    exact tokenizer counts it, were missed by at most 3.1 % when anchored, 6.2 % when not; contexts
    mixed from 32 kinds of text by 16.2 %; single texts by 115 %, for there are rows of letters and
    signs that no estimate sees through. The overheads around the texts were taken as known. What is
    new counts by whichever margin is smaller, so a short message behind a long history costs
    little. One message that fills a fifth of the window is an average of nothing: count it exactly,
    or take its bytes.
    """
    scaled = new * min(max(ratio, 1.0), MAXIMUM_RATIO)
    if usage is None:
        return math.ceil(scaled * (1 + counter.unanchored))
    margin = min(counter.anchored * (usage + scaled), counter.single * scaled)
    return math.ceil(usage + scaled + margin)


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


def _size_of_extra(extra: Mapping[str, Any], counter: Counter) -> Size:
    """Keys that only the origin dialect knows: some hold text (reasoning), most are empty."""
    told = {key: value for key, value in extra.items() if value and key != "cache_control"}
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
