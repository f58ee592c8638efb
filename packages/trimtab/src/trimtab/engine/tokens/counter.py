"""Estimate how many tokens a text, a part or a request takes, and an upper bound for it.

Only the provider knows the exact number before a call, so there are two numbers. A counter gives
the estimate. `compute_input_upper_bound` adds a margin that was too small in one measured case of a
thousand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trimtab.engine.log.deferred_tools import get_definition_in_prompt
from trimtab.engine.log.edits import apply_edit_to_part, extract_editable_text
from trimtab.engine.log.event import Edit, Size
from trimtab.engine.log.message import (
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
from trimtab.engine.text.utf8 import replace_lone_surrogates
from trimtab.engine.tokens.media import estimate_media_tokens, read_base64_image_dimensions
from trimtab.engine.tokens.odd_text import (
    SLICE_BYTES,
    UNKNOWN_FAMILY,
    build_tokenizer_profile,
    count_slice_tokens,
)
from trimtab.engine.tokens.pictures import remove_picture_detail
from trimtab.engine.tokens.weights import WEIGHTS_BY_FAMILY

CHARS_OF_OTHER_PARTS = 4_000
"""Characters to assume for a picture, a file or an opaque block if only a rough estimate is
needed."""
MESSAGE_OVERHEAD_TOKENS = 4
"""Tokens around one message. OpenAI documents 3, and 1 for a name; ChatML templates take 4 to 5."""

CALL_OVERHEAD_TOKENS = 12
"""Tokens around one tool call, including its message, in addition to name, id and arguments."""

RESULT_OVERHEAD_TOKENS = 10
"""Tokens around one tool result, including its message, in addition to id and content."""

TOOLS_OVERHEAD_TOKENS = 500
"""Tokens that a provider adds if a request has tools. Anthropic documents 313 to 346 for Claude 4,
and templates of open models contain their own instructions."""
OPENAI_TOOLS_OVERHEAD_TOKENS = 24
"""The same at OpenAI. Its cookbook counts 12."""
_OPENAI_COUNTERS = ("piecewise/o200k_base", "piecewise/cl100k_base")

EMPTY_MESSAGE_SIZE = Size(bytes=12, tokens=12)
"""Size of an empty message. On the wire a few words replace it."""

MAX_LEARNED_RATIO = 4.0
"""A learned ratio above this value is treated as an error in the report, not as a fact."""


TEXT_WIRE_FACTOR = 2
"""Bytes that one byte of text may take in a request. Quotes and line ends are escaped, and some
clients escape all non-ASCII characters."""
MESSAGE_WIRE_BYTES = 200
"""Bytes of the keys and brackets around a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounter:
    """A function that counts tokens, and the margins of its estimate."""

    name: str
    """Name that is recorded with every size. Sizes of different counters are never added."""
    count: Callable[[str], int]
    """Returns the tokens of a text without overhead: pure, never negative, 0 for the empty text."""
    anchored_margin: float
    """Share of the whole request to add if the usage of the last call is known."""
    unanchored_margin: float
    """Share of the whole request to add if no usage is known."""
    single_message_margin: float
    """Share to add to the estimate of a single message."""
    tokenizer: Callable[[str], int] | None = None
    """The caller's own tokenizer function; None for an estimate."""
    picture_rule: str = ""
    """The rule for the price of pictures, see `estimate_picture_tokens`; empty if it is unknown."""


def estimate_tokens_by_bytes(text: str) -> int:
    """Return a quarter of the UTF-8 bytes, rounded up: the simple heuristic of the `layered`
    preset."""
    return (_count_utf8_bytes(text) + 3) // 4


BYTES_4_COUNTER = TokenCounter(
    name="bytes/4",
    count=estimate_tokens_by_bytes,
    anchored_margin=0.65,
    unanchored_margin=3.0,
    single_message_margin=3.25,
)
"""A simple counter that is the same for every model and every kind of text. Without usage its upper
bound is one token a byte. With usage its margin is that of recorded coding conversations."""


PIECEWISE_NAME_PREFIX = "piecewise"
"""Prefix of the names of estimators. The family, a version and the rule follow."""

EXACT_NAME_PREFIX = "exact/"
"""Prefix of the names of exact counters."""


def make_exact_counter(
    name: str, tokenizer: Callable[[str], int], picture_rule: str = ""
) -> TokenCounter:
    """Return a counter for the user's own tokenizer, such as `lambda text:
    len(encoding.encode(text))`.

    A margin of one percent stays for what a provider puts around the texts. The tokenizer gets only
    texts that are valid in UTF-8, because that is how they are sent.
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
    """Return the estimator for a tokenizer family. `WEIGHTS_BY_FAMILY` lists the families.

    For None and for an unknown family it uses the maximum of all families: no estimate and no
    margin of a known family is larger. `picture_rule` is the rule for the price of pictures.
    """
    name = tokenizer_family if tokenizer_family in WEIGHTS_BY_FAMILY else UNKNOWN_FAMILY
    profile = build_tokenizer_profile(name or UNKNOWN_FAMILY)

    def count(text: str) -> int:
        raw = encode_utf8_as_sent(text)
        codes = encode_byte_class_pairs(raw)
        if len(raw) <= SLICE_BYTES:
            tokens = count_slice_tokens(raw, codes, profile)
        else:
            tokens = 0.0
            # What is left at the end is too short to be judged alone.
            starts = range(0, len(raw) - SLICE_BYTES // 4, SLICE_BYTES)
            for at, end in zip(starts, (*starts[1:], len(raw)), strict=True):
                tokens += count_slice_tokens(raw[at:end], codes[at:end], profile)
        # Tokens are bytes or longer, but for a few per cent in Claude's on odd text.
        return min(math.ceil(tokens), len(raw))

    return TokenCounter(
        name="/".join(filter(None, (PIECEWISE_NAME_PREFIX, name, "2", picture_rule))),
        count=count,
        anchored_margin=0.08,
        unanchored_margin=0.17,
        single_message_margin=1.15,
        picture_rule=picture_rule,
    )


def make_counter_from_name(counter_name: str) -> TokenCounter:
    """Return today's version of the estimator that a log names."""
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
"""The class of each byte: 1 common lower-case letter, 2 upper case, 3 digit, 4 other ASCII, 5 line
end, 6 tab, 7 space, 8 continuation. By first byte: 9 two-byte Latin, Greek, Hebrew and Arabic, 10
Cyrillic, 11 other three-byte, 12 kana and Han, 13 Hangul, 14 four-byte. Class 15 is a rare
lower-case letter, which is more common in random strings than in words. 0 is the start of the
text."""


def encode_utf8_as_sent(text: str) -> bytes:
    """Encode a text in UTF-8 as it is sent. Half of a surrogate pair is replaced."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return replace_lone_surrogates(text).encode()


def encode_byte_class_pairs(utf8_bytes: bytes) -> bytes:
    """Return, for each byte, the class of the byte before it times 16 plus its own class.

    A token rarely ends within a run of one class and often ends between two. So neighbours tell
    most of what can be known without a vocabulary. The shift computes all pairs in one step.
    """
    classes = int.from_bytes(utf8_bytes.translate(BYTE_CLASSES), "big")
    return (classes | classes >> 4).to_bytes(len(utf8_bytes), "big")


def measure_part(part: Part, counter: TokenCounter) -> Size:
    """Return bytes and tokens of one part, including the overhead of its block and message.

    Every part is counted as a message of its own, so a message of many parts is a few tokens too
    large. In return, a part that is masked, truncated or moved keeps its overhead.
    """
    match part:
        case Text():
            text = part.text
            overhead = MESSAGE_OVERHEAD_TOKENS
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
    """Return the tokens of a part's text. A text, and a result of one text, is not counted again.

    `size` is the size of the part without keys of its message.
    """
    if isinstance(part, Text) and part.extra is None:
        return size.tokens - MESSAGE_OVERHEAD_TOKENS
    if isinstance(part, ToolResult) and part.extra is None and len(part.content) == 1:
        (content,) = part.content
        if isinstance(content, Text) and content.extra is None:
            overhead = counter.count(part.call_id) + RESULT_OVERHEAD_TOKENS
            return max(0, size.tokens - overhead)
    return counter.count(extract_editable_text(part))


def estimate_message_tokens(message: Message) -> int:
    """Estimate the tokens of a message from its characters alone."""
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
    """Return one size for each part, or one for a message without parts. The first includes the
    message's own extra keys."""
    sizes = tuple(measure_part(part, counter) for part in message.parts) or (EMPTY_MESSAGE_SIZE,)
    if message.extra is None:
        return sizes
    return (add_sizes(sizes[0], _measure_extra(message.extra, counter)), *sizes[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaSize:
    """Size of the pictures and files in one part."""

    tokens: int
    """Estimated tokens, including the blocks around them."""
    bytes: int
    """Bytes of all of them as they are sent, in Base64; 0 for media that the provider fetches."""
    pictures: int
    """Number of pictures."""
    largest_picture_bytes: int
    """Bytes of the largest picture as it is sent."""
    longest_side_px: int
    """Pixels of the longest side of any picture; 0 if no size can be read."""


def list_media(part: Part) -> list[Media]:
    """Return the pictures and files that a part is or contains."""
    contents = part.content if isinstance(part, ToolResult) else (part,)
    return [inner for inner in contents if isinstance(inner, Media)]


def measure_media(part: Part, counter: TokenCounter) -> MediaSize | None:
    """Return the size of the pictures and files in a part; None if there are none."""
    media_parts = list_media(part)
    if not media_parts:
        return None
    pictures = [media.data or "" for media in media_parts if media.kind == "image"]
    sides = [read_base64_image_dimensions(data) or (0, 0) for data in pictures]
    return MediaSize(
        tokens=sum(measure_part(media, counter).tokens for media in media_parts),
        bytes=sum(len(media.data or "") for media in media_parts),
        pictures=len(pictures),
        largest_picture_bytes=max(map(len, pictures), default=0),
        longest_side_px=max(map(max, sides), default=0),
    )


def estimate_request_bytes(text_bytes: int, messages: int, media_bytes: int) -> int:
    """Estimate the bytes of a request. It is rarely too low, because it assumes that texts are
    escaped."""
    return TEXT_WIRE_FACTOR * text_bytes + MESSAGE_WIRE_BYTES * messages + media_bytes


def with_recomputed_size(edit: Edit, part: Part, counter: TokenCounter) -> Edit:
    """Return the edit with the size of its replacement, as a counter measures it."""
    return replace(edit, size=measure_part(apply_edit_to_part(part, edit), counter))


def count_tokens_inserted_by_edit(edit: Edit, part: Part, counter: TokenCounter) -> int:
    """Return the tokens that an edit adds to a part: the whole replacement, or the truncation
    indicator."""
    if edit.op == "truncate" and not edit.pieces and isinstance(part, Text | ToolResult):
        return counter.count(edit.text) + 2
    return edit.size.tokens


def measure_json(value: Any, counter: TokenCounter) -> Size:
    """Return the size of a JSON value as it is sent, such as an opaque block or a tool
    definition."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return Size(bytes=_count_utf8_bytes(text), tokens=counter.count(text) + MESSAGE_OVERHEAD_TOKENS)


def measure_schema_params(extra_request_params: Mapping[str, Any], counter: TokenCounter) -> Size:
    """Return the size of request parameters that a model reads, such as a schema for the reply."""
    size = Size(bytes=0, tokens=0)
    for value in extra_request_params.values():
        if isinstance(value, Mapping | list | tuple):
            size = add_sizes(size, measure_json(value, counter))
    return size


def measure_tool_definition(tool: Mapping[str, Any], counter: TokenCounter) -> Size:
    """Return the size of what the prompt shows of a tool; zero for a deferred tool of which it
    shows nothing."""
    definition = get_definition_in_prompt(tool)
    return Size(bytes=0, tokens=0) if definition is None else measure_json(definition, counter)


def tools_overhead_tokens(counter: TokenCounter) -> int:
    """Return the tokens that the provider adds if a request has tools."""
    is_openai = counter.name.startswith(_OPENAI_COUNTERS)
    return OPENAI_TOOLS_OVERHEAD_TOKENS if is_openai else TOOLS_OVERHEAD_TOKENS


def measure_request_head(
    system: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    counter: TokenCounter,
    params: Mapping[str, Any] | None = None,
) -> Size:
    """Return the size of everything before the messages, including what a provider adds for
    tools, without deferred tools."""
    # The 3 tokens that prime the reply belong to every request, so they are in its head.
    size = Size(bytes=0, tokens=3 + (tools_overhead_tokens(counter) if tools else 0))
    for message in system:
        for each in measure_message_parts(message, counter):
            size = add_sizes(size, each)
    for tool in tools:
        size = add_sizes(size, measure_tool_definition(tool, counter))
    return add_sizes(size, measure_schema_params(params or {}, counter))


def compute_input_upper_bound(
    *,
    counter: TokenCounter,
    new_tokens: int,
    reported_tokens: int | None = None,
    learned_ratio: float = 1.0,
) -> int:
    """Return an upper bound of a request's tokens. About one request in a thousand exceeds it.

    The anchor is the newest call whose request is a prefix of this one. New content counts by
    whichever margin is smaller, so a short message after a long history costs little.

    `new_tokens` is the estimate of what follows the anchor, or of the whole request without an
    anchor. `reported_tokens` is the input that the provider reported for the anchor; None without
    an anchor. `learned_ratio` is reported over estimated tokens in earlier calls. It counts as 1 if
    it is lower.

    benchmarks/token_estimates.py measured this on text to which the weights were not fitted. The
    figures are the worst of o200k, cl100k and tekken, with usage as an exact tokenizer counts it.
    3,722 requests were replayed from recorded conversations. For 99.9 % of them the estimate was
    too low by at most 3.1 % with an anchor and 5.3 % without one. Contexts mixed from 32 kinds of
    text were too low by 7.8 %, and single texts by 32 %. Six other families were measured before
    the search for odd text was added, which only raises an estimate. They were too low by at most
    16.2 % and 115 %, and the margins are theirs. The overheads around the texts were assumed to be
    known. Text of any kind that fills the window has the bound of `odd_text`, see
    benchmarks/text_kinds.py.
    """
    new_estimate = new_tokens * min(max(learned_ratio, 1.0), MAX_LEARNED_RATIO)
    if reported_tokens is None:
        return math.ceil(new_estimate * (1 + counter.unanchored_margin))
    # What is new and as large as all before it is no average of many: it has its own margin.
    margin = max(
        counter.anchored_margin * (reported_tokens + new_estimate),
        counter.unanchored_margin * new_estimate,
    )
    return math.ceil(
        reported_tokens + new_estimate + min(margin, counter.single_message_margin * new_estimate)
    )


def _measure_result(part: ToolResult, counter: TokenCounter) -> Size:
    content = part.content
    if len(content) == 1 and isinstance(content[0], Text) and content[0].extra is None:
        text = f"{part.call_id}\n{content[0].text}"
        size = Size(
            bytes=_count_utf8_bytes(text) - 1, tokens=counter.count(text) + RESULT_OVERHEAD_TOKENS
        )
    else:
        overhead = counter.count(part.call_id) + RESULT_OVERHEAD_TOKENS
        size = Size(bytes=_count_utf8_bytes(part.call_id), tokens=overhead)
        for inner in content:
            size = add_sizes(size, measure_part(inner, counter))
    return size if part.extra is None else add_sizes(size, _measure_extra(part.extra, counter))


_UNSENT_EXTRA_KEYS = UNSENT_EXTRA_KEYS | {"cache_control"}
"""Extra keys that contain no text for a model."""


def _measure_extra(extra: Mapping[str, Any], counter: TokenCounter) -> Size:
    """Measure keys that only the origin dialect knows. Some contain text (reasoning); most are
    empty."""
    sent_keys = {
        key: value for key, value in extra.items() if value and key not in _UNSENT_EXTRA_KEYS
    }
    if not sent_keys:
        return Size(bytes=0, tokens=0)
    return measure_json(sent_keys, counter)


def add_sizes(first: Size, second: Size) -> Size:
    """Return the sum of two sizes."""
    return Size(bytes=first.bytes + second.bytes, tokens=first.tokens + second.tokens)


def _count_utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def measure_text_message(text: str, counter: TokenCounter) -> Size:
    """Return the size of a text that is a message of its own; zero for an empty text."""
    if not text:
        return Size(bytes=0, tokens=0)
    return measure_message_parts(make_text_message("user", text), counter)[0]
