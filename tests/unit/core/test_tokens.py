from __future__ import annotations

import base64
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.core.event import Size
from trimtab.core.media_tokens import (
    DOCUMENT_TOKENS,
    image_dimensions,
)
from trimtab.core.message import Media, Message, Opaque, Part, Text, ToolCall, ToolResult
from trimtab.core.odd_text import total
from trimtab.core.picture_tokens import picture_tokens
from trimtab.core.token_weights import WEIGHTS
from trimtab.core.tokens import (
    BYTES4,
    CALL_OVERHEAD,
    MAXIMUM_RATIO,
    MESSAGE_OVERHEAD,
    NO_PARTS,
    RESULT_OVERHEAD,
    TOOLS_OVERHEAD,
    Counter,
    bytes4,
    encoded,
    estimator,
    exact,
    pairs,
    piecewise,
    size_of,
    size_of_head,
    size_of_json,
    sizes_of,
    upper_bound,
)

# Surrogates included: models and tools do send halves of a character.
any_text = st.text(alphabet=st.characters(exclude_categories=()), max_size=200)
families = st.sampled_from([*WEIGHTS, None])
CHARACTERS = exact("characters", len)


def utf8(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("ä" * 4, 2), ("漢字", 2), ("x" * 8000, 2000)],
)
def test_bytes4_is_a_quarter_of_the_utf8_bytes_rounded_up(text: str, tokens: int):
    assert bytes4(text) == tokens


@given(text=any_text, family=families)
def test_an_estimate_is_between_zero_and_the_bytes_of_the_text(text: str, family: str | None):
    assert 0 <= piecewise(family).count(text) <= utf8(text)
    assert 0 <= bytes4(text) <= utf8(text)


@given(family=families)
def test_the_empty_text_has_no_tokens(family: str | None):
    assert piecewise(family).count("") == 0


def test_a_lone_surrogate_is_counted_and_not_refused():
    assert bytes4("\ud800") == 1
    assert 0 < piecewise("o200k_base").count("broken \udc00 text") <= utf8("broken \udc00 text")
    assert size_of(Text(text="\ud800"), BYTES4).bytes == 3


@pytest.mark.parametrize("family", WEIGHTS)
def test_no_pattern_of_ascii_text_counts_as_nearly_nothing(family: str):
    count = piecewise(family).count
    members = "aAzk0.,-_\n\t ("
    poorest = min(count((one + two) * 200) for one in members for two in members if one != two)
    assert poorest > 400 * 0.02


WORDS = ("the", "cache", "of", "a", "request", "is", "read", "from", "its", "start", "each", "call")
words = st.permutations(WORDS * 4).map(" ".join)


@given(first=words, second=words, family=families)
def test_joining_two_texts_changes_the_estimate_by_the_seam_alone(
    first: str, second: str, family: str | None
):
    count = piecewise(family).count
    # One pair weighs at most 2.55.
    assert abs(count(first + second) - count(first) - count(second)) <= 6


@given(text=any_text)
def test_pairs_name_each_byte_with_its_predecessor(text: str):
    codes = pairs(encoded(text))
    assert len(codes) == len(encoded(text))
    assert [code >> 4 for code in codes] == [0, *(code & 15 for code in codes)][: len(codes)]


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 512, 1_000])
def test_the_total_is_the_sum_of_all_bytes_up_to_the_largest(size: int):
    for numbers in (b"\xff" * size, bytes(number % 251 for number in range(size))):
        assert total(numbers) == sum(numbers)


@pytest.mark.parametrize("family", [name for name in WEIGHTS if name != "max"])
def test_english_prose_is_estimated_near_a_token_for_every_three_to_five_bytes(family: str):
    prose = "The cache stays warm as long as nothing in front of it changes between two calls. " * 9
    tokens = piecewise(family).count(prose)
    assert len(prose) / 6 < tokens < len(prose) / 2.5


@pytest.mark.parametrize("text", ["A B C D E F " * 20, "1\n2\n3\n4\n" * 20, "a,b,c,d," * 20])
def test_rows_of_single_letters_are_not_taken_for_words(text: str):
    assert piecewise("o200k_base").count(text) > 0.3 * len(text)


def test_an_unknown_family_takes_the_maximum_weights_and_says_so():
    unknown, none = piecewise("no such tokenizer"), piecewise(None)
    text = "for index in range(100): print(index)\n" * 20
    assert unknown.name == none.name == "piecewise/max/2"
    assert unknown.count(text) == none.count(text)
    assert all(none.count(text) > 0.9 * piecewise(name).count(text) for name in WEIGHTS)


def test_counters_are_named_for_the_record():
    assert piecewise("o200k_base").name == "piecewise/o200k_base/2"
    assert BYTES4.name == "bytes/4"
    assert CHARACTERS.name == "exact/characters"


@pytest.mark.parametrize(
    ("part", "size"),
    [
        (Text(text="hello"), Size(bytes=5, tokens=5 + MESSAGE_OVERHEAD)),
        (
            ToolCall(id="c1", name="read", arguments='{"a":1}'),
            Size(bytes=13, tokens=13 + 2 + CALL_OVERHEAD),
        ),
        (
            ToolResult(call_id="c1", content=(Text(text="fine"),)),
            Size(bytes=6, tokens=6 + 1 + RESULT_OVERHEAD),
        ),
        (Opaque(data={"type": "thinking"}), Size(bytes=19, tokens=19 + MESSAGE_OVERHEAD)),
    ],
)
def test_every_text_of_a_part_is_counted_with_its_overhead(part: Part, size: Size):
    assert size_of(part, CHARACTERS) == size


@pytest.mark.parametrize(
    ("small", "large"),
    [
        (
            ToolCall(id="i", name="n", arguments="{}"),
            ToolCall(id="i" * 40, name="n", arguments="{}"),
        ),
        (
            ToolCall(id="i", name="n", arguments="{}"),
            ToolCall(id="i", name="n" * 40, arguments="{}"),
        ),
        (
            ToolCall(id="i", name="n", arguments="{}"),
            ToolCall(id="i", name="n", arguments="x" * 40),
        ),
        (ToolResult(call_id="i", content=()), ToolResult(call_id="i" * 40, content=())),
        (Opaque(data={}), Opaque(data={"signature": "s" * 40})),
        (Text(text="t"), Text(text="t", extra={"reasoning_content": "r" * 40})),
    ],
)
def test_a_longer_field_makes_a_larger_part(small: Part, large: Part):
    before, after = size_of(small, BYTES4), size_of(large, BYTES4)
    assert after.bytes > before.bytes
    assert after.tokens > before.tokens


def test_a_result_of_several_blocks_counts_each_of_them():
    picture = Media(kind="image", url="https://example.org/a.png")
    result = ToolResult(call_id="c1", content=(Text(text="see"), picture), plain=False)
    size = size_of(result, CHARACTERS)
    unknown = picture_tokens("", None)
    assert size.tokens == 2 + RESULT_OVERHEAD + 3 + unknown + 2 * MESSAGE_OVERHEAD


def test_empty_extra_keys_and_cache_marks_cost_nothing():
    bare = size_of(Text(text="t"), BYTES4)
    marked = Text(text="t", extra={"cache_control": {"type": "ephemeral"}, "annotations": []})
    assert size_of(marked, BYTES4) == bare


def test_a_message_has_one_size_for_each_part_and_its_extra_in_the_first():
    parts = (Text(text="a"), Text(text="b"))
    plain = sizes_of(Message(role="user", parts=parts), CHARACTERS)
    named = sizes_of(Message(role="user", parts=parts, extra={"name": "ada"}), CHARACTERS)
    assert [size.tokens for size in plain] == [1 + MESSAGE_OVERHEAD] * 2
    assert named[0].tokens == plain[0].tokens + len('{"name":"ada"}') + MESSAGE_OVERHEAD
    assert named[1] == plain[1]
    assert sizes_of(Message(role="assistant", parts=()), CHARACTERS) == (NO_PARTS,)


def test_the_head_counts_system_prompt_and_tools():
    system = (Message(role="system", parts=(Text(text="Be brief."),)),)
    tools: list[dict[str, Any]] = [{"name": "read", "description": "Reads a file."}]
    empty = size_of_head((), (), CHARACTERS)
    with_system = size_of_head(system, (), CHARACTERS)
    both = size_of_head(system, tools, CHARACTERS)
    assert empty == Size(bytes=0, tokens=3)
    assert with_system.tokens == empty.tokens + 9 + MESSAGE_OVERHEAD
    definition = size_of_json(tools[0], CHARACTERS)
    assert both.tokens == with_system.tokens + definition.tokens + TOOLS_OVERHEAD
    assert both.bytes == with_system.bytes + definition.bytes


def test_the_head_counts_a_schema_for_the_reply_and_no_plain_numbers():
    schema = {"type": "json_schema", "schema": {"properties": {"a": {"type": "string"}}}}
    empty = size_of_head((), (), CHARACTERS)
    assert size_of_head((), (), CHARACTERS, {"temperature": 0.5, "user": "ada"}) == empty
    with_schema = size_of_head((), (), CHARACTERS, {"response_format": schema})
    assert with_schema.tokens == empty.tokens + size_of_json(schema, CHARACTERS).tokens


@pytest.mark.parametrize("family", WEIGHTS)
def test_half_of_a_surrogate_pair_counts_as_what_is_sent_for_it(family):
    count = piecewise(family).count
    assert count("\ud800x" * 99) == count("\ufffdx" * 99)


def png(width: int, height: int) -> str:
    header = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
    sides = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    return base64.b64encode(header + sides + b"\x08\x02\x00\x00\x00").decode()


def jpeg(width: int, height: int, preview: int) -> str:
    segment = b"\xff\xe1" + (preview + 2).to_bytes(2, "big") + b"\x00" * preview
    frame = b"\xff\xc0\x00\x11\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big")
    return base64.b64encode(b"\xff\xd8" + segment + frame + b"\x03" * 20).decode()


def webp(kind: bytes, body: bytes) -> str:
    return base64.b64encode(b"RIFF\x00\x00\x00\x00WEBP" + kind + body + b"\x00" * 16).decode()


@pytest.mark.parametrize(
    ("data", "dimensions"),
    [
        (png(1024, 768), (1024, 768)),
        (jpeg(640, 480, 16), (640, 480)),
        (jpeg(4000, 3000, 60_000), (4000, 3000)),
        (base64.b64encode(b"GIF89a\x10\x00\x20\x00\x00\x00").decode(), (16, 32)),
        (webp(b"VP8 ", b"\x00" * 10 + b"\x40\x01\xf0\x00"), (320, 240)),
        (
            webp(b"VP8L", b"\x00" * 4 + b"\x2f" + (319 | 239 << 14).to_bytes(4, "little")),
            (320, 240),
        ),
        (webp(b"VP8X", b"\x00" * 8 + b"\x3f\x01\x00\xef\x00\x00"), (320, 240)),
        (base64.b64encode(b"something else entirely").decode(), None),
        ("no base64 at all!", None),
        ("", None),
    ],
)
def test_an_images_dimensions_are_read_from_its_first_bytes(
    data: str, dimensions: tuple[int, int] | None
):
    assert image_dimensions(data) == dimensions


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        (Media(kind="audio", data="A" * 160_000), 2000),
        (Media(kind="video", data="A" * 4_000_000), 30_000),
        (Media(kind="document", data="A" * 64), DOCUMENT_TOKENS),
        (Media(kind="document", data="A" * 64_000), 6000),
        (Media(kind="document", mime="text/plain", data="plain words"), 11),
    ],
)
def test_media_cost_a_flat_figure_or_one_by_their_payload(part: Media, tokens: int):
    assert size_of(part, CHARACTERS).tokens == tokens + MESSAGE_OVERHEAD


LOW: dict[str, Any] = {"detail": "low"}


@pytest.mark.parametrize("extra", [LOW, {"image_url": LOW}], ids=["responses", "chat"])
def test_a_picture_of_low_detail_costs_what_the_rule_of_its_model_says(extra: dict[str, Any]):
    picture = Media(kind="image", data=png(512, 512), extra=extra)
    small = piecewise("o200k_base", "tiles:85:170")
    assert size_of(picture, small).tokens == 85 + MESSAGE_OVERHEAD
    assert size_of(replace(picture, extra=None), small).tokens == 85 + 170 + MESSAGE_OVERHEAD


def test_counters_that_price_pictures_by_other_rules_have_other_names():
    names = {piecewise("o200k_base", rule).name for rule in ("", "tiles:85:170", "flat:1120")}
    assert len(names) == 3
    assert {estimator(name).name for name in names} == names


def test_a_name_of_an_earlier_version_stands_for_the_estimator_of_today():
    assert estimator("piecewise/o200k_base/1").name == piecewise("o200k_base").name
    assert estimator("somebody's own").name == piecewise(None).name


HALF = Counter(name="test", count=len, anchored=0.1, unanchored=0.2, single=0.5)


def test_without_an_anchor_the_whole_estimate_carries_the_unanchored_margin():
    assert upper_bound(counter=HALF, new=1000) == 1200


def test_with_an_anchor_only_what_is_new_is_uncertain():
    assert upper_bound(counter=HALF, new=0, usage=5000) == 5000
    assert upper_bound(counter=HALF, new=100, usage=5000) == 5150


def test_much_new_text_is_bounded_by_the_margin_of_the_whole():
    assert upper_bound(counter=HALF, new=5000, usage=5000) == 11_000


def test_new_text_larger_than_all_before_it_has_the_margin_of_a_first_request():
    assert upper_bound(counter=HALF, new=10_000, usage=1000) == 13_000


def test_a_learned_ratio_scales_what_is_estimated_and_nothing_that_is_known():
    assert upper_bound(counter=HALF, new=1000, ratio=1.5) == 1800
    assert upper_bound(counter=HALF, new=100, usage=5000, ratio=2.0) == 5300


def test_a_learned_ratio_is_believed_within_limits_only():
    assert upper_bound(counter=HALF, new=1000, ratio=0.5) == upper_bound(counter=HALF, new=1000)
    most = upper_bound(counter=HALF, new=1000, ratio=MAXIMUM_RATIO)
    assert upper_bound(counter=HALF, new=1000, ratio=math.inf) == most


@given(
    new=st.integers(0, 10**6),
    more=st.integers(0, 10**4),
    usage=st.none() | st.integers(0, 10**6),
    ratio=st.floats(0, 10),
)
def test_the_bound_never_falls_when_something_is_added_nor_below_the_estimate(
    new: int, more: int, usage: int | None, ratio: float
):
    bound = upper_bound(counter=HALF, new=new, usage=usage, ratio=ratio)
    assert bound >= new + (usage or 0)
    assert upper_bound(counter=HALF, new=new + more, usage=usage, ratio=ratio) >= bound
