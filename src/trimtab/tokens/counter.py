"""Sizes: how many tokens a text, a part or a request takes, and what can be promised about it.

Nobody outside a provider knows the exact figure before a call, so there are two numbers. A counter
gives the estimate; `compute_input_upper_bound` adds what was measured to be missing in one case of
a thousand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trimtab.log.edits import apply_edit_to_part, extract_editable_text
from trimtab.log.event import Edit, Size
from trimtab.log.message import (
    UNSENT_EXTRA_KEYS,
    Media,
    Message,
    OpaqueBlock,
    Part,
    Text,
    ToolCall,
    ToolResult,
    make_text_message,
)
from trimtab.text.utf8 import replace_lone_surrogates
from trimtab.tokens.byte_class_weights import WEIGHT_UNITS_PER_TOKEN, WEIGHTS_BY_FAMILY
from trimtab.tokens.media import estimate_media_tokens, read_base64_image_dimensions
from trimtab.tokens.odd_text import (
    SLICE_BYTES,
    build_tokenizer_profile,
    raise_estimate_for_odd_text,
    sum_bytes,
)
from trimtab.tokens.pictures import remove_picture_detail

CHARS_OF_OTHER_PARTS = 4_000
"""Characters that a picture, a file or an opaque block counts for where only a guess is needed."""
MESSAGE_OVERHEAD_TOKENS = 4
"""Tokens around one message: OpenAI documents 3 and 1 for a name; ChatML templates take 4 to 5."""

CALL_OVERHEAD_TOKENS = 12
"""Tokens around one tool call, its message's included, beside its name, id and arguments."""

RESULT_OVERHEAD_TOKENS = 10
"""Tokens around one tool result, its message's included, beside its id and content."""

TOOLS_OVERHEAD_TOKENS = 500
"""Tokens a provider adds once a request has tools: Anthropic documents 313 to 346 for Claude 4, and
templates of open models have instructions of their own."""
OPENAI_TOOLS_OVERHEAD_TOKENS = 24
"""The same at OpenAI, whose cookbook counts 12."""
_OPENAI_COUNTERS = ("piecewise/o200k_base", "piecewise/cl100k_base")

EMPTY_MESSAGE_SIZE = Size(bytes=12, tokens=12)
"""Of a message that says nothing: a few words stand for it on the wire."""

MAX_LEARNED_RATIO = 4.0
"""A learned ratio beyond this is taken for a fault in the report, not for a fact about the text."""


TEXT_WIRE_FACTOR = 2
"""Bytes that a byte of text may take in a request: quotes and line ends are escaped, and some
clients escape all that is not ASCII."""
MESSAGE_WIRE_BYTES = 200
"""Bytes of the keys and brackets around a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounter:
    """A way to count tokens, and how far it may be trusted."""

    name: str
    """Recorded with every size it takes: sizes of different counters are never added."""
    count: Callable[[str], int]
    """Tokens of a text, without any overhead; pure, never negative, 0 for the empty text."""
    anchored_margin: float
    """Share of the whole request to add where the last call's usage is known."""
    unanchored_margin: float
    """Share of the whole request to add where no usage is known."""
    single_message_margin: float
    """Share to add to the estimate of one message taken alone."""
    tokenizer: Callable[[str], int] | None = None
    """The caller's own function that it counts by; None for an estimate."""
    picture_rule: str = ""
    """The rule by which pictures are priced, see `estimate_picture_tokens`; empty where it is not
    known."""


def estimate_tokens_by_bytes(text: str) -> int:
    """A quarter of the UTF-8 bytes, rounded up: the plain heuristic of the `layered` preset."""
    return (_count_utf8_bytes(text) + 3) // 4


BYTES_4_COUNTER = TokenCounter(
    name="bytes/4",
    count=estimate_tokens_by_bytes,
    anchored_margin=0.65,
    unanchored_margin=3.0,
    single_message_margin=3.25,
)
"""Simple and the same for every model, and blind to what it counts: without usage its bound is a
token for each byte. With usage its margin is that of recorded coding conversations."""


PIECEWISE_NAME_PREFIX = "piecewise"
"""What the names of estimators begin with; the family, a version and the rule follow."""

EXACT_NAME_PREFIX = "exact/"
"""What the names of exact counters begin with."""


def make_exact_counter(
    name: str, tokenizer: Callable[[str], int], picture_rule: str = ""
) -> TokenCounter:
    """A tokenizer of the user's own, such as `lambda text: len(encoding.encode(text))`.

    The hundredth that is left covers what a provider puts around the texts. It is given only texts
    that UTF-8 can say, for that is how they are sent.
    """

    def count(text: str) -> int:
        return tokenizer(text if text.isascii() else replace_lone_surrogates(text))

    return TokenCounter(
        name=f"{EXACT_NAME_PREFIX}{name}",
        count=count,
        anchored_margin=0.01,
        unanchored_margin=0.01,
        single_message_margin=0.01,
        tokenizer=tokenizer,
        picture_rule=picture_rule,
    )


def make_piecewise_counter(tokenizer_family: str | None, picture_rule: str = "") -> TokenCounter:
    """The estimator fitted to a tokenizer family, see `WEIGHTS_BY_FAMILY` for those there are.

    For None and for a family it does not know it takes the maximum over all families. `pictures`
    is the rule by which pictures are priced.
    """
    known = tokenizer_family in WEIGHTS_BY_FAMILY and tokenizer_family != "max"
    name = tokenizer_family if known and tokenizer_family else "max"
    weights = WEIGHTS_BY_FAMILY[name]
    kind = build_tokenizer_profile(name)

    def count(text: str) -> int:
        raw = encode_utf8_as_sent(text)
        codes = encode_byte_class_pairs(raw)
        if len(raw) <= SLICE_BYTES:
            tokens = raise_estimate_for_odd_text(
                raw, codes, sum_bytes(codes.translate(weights)) / WEIGHT_UNITS_PER_TOKEN, kind
            )
        else:
            tokens = 0.0
            # What is left at the end is too short to be judged alone.
            starts = range(0, len(raw) - SLICE_BYTES // 4, SLICE_BYTES)
            for at, end in zip(starts, (*starts[1:], len(raw)), strict=True):
                some = codes[at:end]
                estimate = sum_bytes(some.translate(weights)) / WEIGHT_UNITS_PER_TOKEN
                tokens += raise_estimate_for_odd_text(raw[at:end], some, estimate, kind)
        # Tokens are bytes or longer, but for a few per cent in Claude's on odd text.
        return min(math.ceil(tokens), len(raw))

    return TokenCounter(
        name="/".join(filter(None, (PIECEWISE_NAME_PREFIX, name, "2", picture_rule))),
        count=count,
        anchored_margin=0.08,
        unanchored_margin=0.17 if known else 0.12,
        single_message_margin=1.15 if known else 0.8,
        picture_rule=picture_rule,
    )


def make_counter_from_name(counter_name: str) -> TokenCounter:
    """The estimator that a name in a log stands for, as it is today."""
    kind, family, _, pictures = (*counter_name.split("/", 3), "", "", "")[:4]
    return (
        make_piecewise_counter(family, pictures)
        if kind == PIECEWISE_NAME_PREFIX
        else make_piecewise_counter(None)
    )


def _make_byte_classes() -> bytes:
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


BYTE_CLASSES = _make_byte_classes()
"""Every byte's class: 1 common lower-case letter, 2 upper case, 3 digit, 4 other ASCII, 5 line end,
6 tab, 7 space, 8 continuation, then by first byte 9 two-byte Latin, Greek, Hebrew and Arabic,
10 Cyrillic, 11 other three-byte, 12 kana and Han, 13 Hangul, 14 four-byte; 15 rare lower-case
letter, of which random strings have more than words do. 0 is the start of the text."""


def encode_utf8_as_sent(text: str) -> bytes:
    """A text in UTF-8, as it is sent: half of a surrogate pair is replaced."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return replace_lone_surrogates(text).encode()


def encode_byte_class_pairs(utf8_bytes: bytes) -> bytes:
    """For each byte, the class of the byte before it times 16 plus its own.

    A token rarely ends within a run of one class and often between two, so neighbours say most of
    what can be known without a vocabulary. The shift pairs all of them in one step.
    """
    classes = int.from_bytes(utf8_bytes.translate(BYTE_CLASSES), "big")
    return (classes | classes >> 4).to_bytes(len(utf8_bytes), "big")


def measure_part(part: Part, counter: TokenCounter) -> Size:
    """Bytes and tokens of one part, with the overhead of the block and the message around it.

    Every part pays for a message of its own: a message of many parts is a few tokens too large,
    and a part that is masked, truncated or moved keeps its overhead without anyone's help.
    """
    match part:
        case Text():
            text, overhead = part.text, MESSAGE_OVERHEAD_TOKENS
            size = Size(bytes=_count_utf8_bytes(text), tokens=counter.count(text) + overhead)
        case ToolCall():
            # Counted in one go: three short texts cost three times the fixed price of a count.
            text = f"{part.name}\n{part.id}\n{part.arguments}"
            size = Size(
                bytes=_count_utf8_bytes(text) - 2, tokens=counter.count(text) + CALL_OVERHEAD_TOKENS
            )
        case ToolResult():
            return _measure_result(part, counter)
        case Media():
            tokens = estimate_media_tokens(part, counter.count, counter.picture_rule)
            # A quarter of base64 says nothing about a picture: its bytes follow from its tokens.
            size = Size(bytes=tokens * 4, tokens=tokens + MESSAGE_OVERHEAD_TOKENS)
            return add_sizes(size, _measure_extra(remove_picture_detail(part.extra), counter))
        case OpaqueBlock():
            return measure_json(part.data, counter)
    return size if part.extra is None else add_sizes(size, _measure_extra(part.extra, counter))


def get_text_tokens(part: Part, size: Size, counter: TokenCounter) -> int:
    """Tokens of what a part says, from its size where that tells: a result of one text is not
    counted again."""
    if isinstance(part, ToolResult) and part.extra is None and len(part.content) == 1:
        (said,) = part.content
        if isinstance(said, Text) and said.extra is None:
            own = counter.count(part.call_id) + RESULT_OVERHEAD_TOKENS
            return max(0, size.tokens - own)
    return counter.count(extract_editable_text(part))


def estimate_message_tokens(message: Message) -> int:
    """About how many tokens a message takes, by its characters alone."""
    chars = 0
    for part in message.parts:
        match part:
            case Text() | ToolResult():
                chars += len(part.text)
            case ToolCall():
                chars += len(part.arguments)
            case _:
                chars += CHARS_OF_OTHER_PARTS
    return chars // 4


def measure_message_parts(message: Message, counter: TokenCounter) -> tuple[Size, ...]:
    """One size for each part, or one for none; the message's own extra keys are in the first."""
    sizes = tuple(measure_part(part, counter) for part in message.parts) or (EMPTY_MESSAGE_SIZE,)
    if message.extra is None:
        return sizes
    return (add_sizes(sizes[0], _measure_extra(message.extra, counter)), *sizes[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaSize:
    """The pictures and files that one part holds."""

    tokens: int
    """Estimated, with the blocks around them."""
    bytes: int
    """Bytes of all of them as they are sent, which is base64; 0 for what the provider fetches."""
    pictures: int
    """How many of them are pictures."""
    largest_picture_bytes: int
    """Bytes of the largest picture as it is sent."""
    longest_side_px: int
    """Pixels of the longest side of any picture; 0 where none can be read."""


def list_media(part: Part) -> list[Media]:
    """The pictures and files that a part is or holds."""
    held = part.content if isinstance(part, ToolResult) else (part,)
    return [inner for inner in held if isinstance(inner, Media)]


def measure_media(part: Part, counter: TokenCounter) -> MediaSize | None:
    """The size of the pictures and files in a part; None where it holds none."""
    held = list_media(part)
    if not held:
        return None
    pictures = [media.data or "" for media in held if media.kind == "image"]
    sides = [read_base64_image_dimensions(data) or (0, 0) for data in pictures]
    return MediaSize(
        tokens=sum(measure_part(media, counter).tokens for media in held),
        bytes=sum(len(media.data or "") for media in held),
        pictures=len(pictures),
        largest_picture_bytes=max(map(len, pictures), default=0),
        longest_side_px=max(map(max, sides), default=0),
    )


def estimate_request_bytes(text_bytes: int, messages: int, media_bytes: int) -> int:
    """Bytes of a request, seldom fewer than are sent: texts may have to be escaped."""
    return TEXT_WIRE_FACTOR * text_bytes + MESSAGE_WIRE_BYTES * messages + media_bytes


def with_recomputed_size(edit: Edit, part: Part, counter: TokenCounter) -> Edit:
    """The edit of a part with the size that a counter gives to what stands in."""
    return replace(edit, size=measure_part(apply_edit_to_part(part, edit), counter))


def count_tokens_inserted_by_edit(edit: Edit, part: Part, counter: TokenCounter) -> int:
    """Tokens of the words that an edit puts into a part: all that is seen of it, or the sign of
    what was cut."""
    if edit.op == "truncate" and not edit.pieces and isinstance(part, Text | ToolResult):
        return counter.count(edit.text) + 2
    return edit.size.tokens


def measure_json(value: Any, counter: TokenCounter) -> Size:
    """Size of a JSON value as it is written on the wire: an opaque block, a tool definition."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return Size(bytes=_count_utf8_bytes(text), tokens=counter.count(text) + MESSAGE_OVERHEAD_TOKENS)


def measure_schema_params(extra_request_params: Mapping[str, Any], counter: TokenCounter) -> Size:
    """Size of the parameters that a provider reads: a schema that the reply must have."""
    size = Size(bytes=0, tokens=0)
    for value in extra_request_params.values():
        if isinstance(value, Mapping | list | tuple):
            size = add_sizes(size, measure_json(value, counter))
    return size


def tools_overhead_tokens(counter: TokenCounter) -> int:
    """Tokens that the provider adds once a request has tools."""
    is_openai = counter.name.startswith(_OPENAI_COUNTERS)
    return OPENAI_TOOLS_OVERHEAD_TOKENS if is_openai else TOOLS_OVERHEAD_TOKENS


def measure_request_head(
    system: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    counter: TokenCounter,
    params: Mapping[str, Any] | None = None,
) -> Size:
    """Size of all that stands before the messages, with what a provider adds for having tools."""
    # The 3 tokens that prime the reply belong to every request, so they are in its head.
    size = Size(bytes=0, tokens=3 + (tools_overhead_tokens(counter) if tools else 0))
    for message in system:
        for each in measure_message_parts(message, counter):
            size = add_sizes(size, each)
    for tool in tools:
        size = add_sizes(size, measure_json(tool, counter))
    return add_sizes(size, measure_schema_params(params or {}, counter))


def compute_input_upper_bound(
    *,
    counter: TokenCounter,
    new_tokens: int,
    reported_tokens: int | None = None,
    learned_ratio: float = 1.0,
) -> int:
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
    scaled = new_tokens * min(max(learned_ratio, 1.0), MAX_LEARNED_RATIO)
    if reported_tokens is None:
        return math.ceil(scaled * (1 + counter.unanchored_margin))
    # What is new and as large as all before it is no average of many: it has its own margin.
    margin = max(
        counter.anchored_margin * (reported_tokens + scaled), counter.unanchored_margin * scaled
    )
    return math.ceil(reported_tokens + scaled + min(margin, counter.single_message_margin * scaled))


def _measure_result(part: ToolResult, counter: TokenCounter) -> Size:
    content = part.content
    if len(content) == 1 and isinstance(content[0], Text) and content[0].extra is None:
        text = f"{part.call_id}\n{content[0].text}"
        size = Size(
            bytes=_count_utf8_bytes(text) - 1, tokens=counter.count(text) + RESULT_OVERHEAD_TOKENS
        )
    else:
        own = counter.count(part.call_id) + RESULT_OVERHEAD_TOKENS
        size = Size(bytes=_count_utf8_bytes(part.call_id), tokens=own)
        for inner in content:
            size = add_sizes(size, measure_part(inner, counter))
    return size if part.extra is None else add_sizes(size, _measure_extra(part.extra, counter))


_UNSENT_EXTRA_KEYS = UNSENT_EXTRA_KEYS | {"cache_control"}
"""Extra keys that are no text for a model."""


def _measure_extra(extra: Mapping[str, Any], counter: TokenCounter) -> Size:
    """Keys that only the origin dialect knows: some hold text (reasoning), most are empty."""
    told = {key: value for key, value in extra.items() if value and key not in _UNSENT_EXTRA_KEYS}
    if not told:
        return Size(bytes=0, tokens=0)
    return measure_json(told, counter)


def add_sizes(first: Size, second: Size) -> Size:
    """Two sizes together."""
    return Size(bytes=first.bytes + second.bytes, tokens=first.tokens + second.tokens)


def _count_utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def measure_text_message(text: str, counter: TokenCounter) -> Size:
    """Of a text that is a message of its own; nothing for an empty one."""
    if not text:
        return Size(bytes=0, tokens=0)
    return measure_message_parts(make_text_message("user", text), counter)[0]
