from __future__ import annotations

import base64
import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.text_writers import writers
from trimtab.engine.log.event import Size
from trimtab.engine.log.message import Media, Message, OpaqueBlock, Part, Text, ToolCall, ToolResult
from trimtab.engine.tokens.counter import (
    BYTES_4_COUNTER,
    CALL_OVERHEAD_TOKENS,
    EMPTY_MESSAGE_SIZE,
    MAX_LEARNED_RATIO,
    MESSAGE_OVERHEAD_TOKENS,
    RESULT_OVERHEAD_TOKENS,
    TOOLS_OVERHEAD_TOKENS,
    TokenCounter,
    compute_input_upper_bound,
    estimate_tokens_by_bytes,
    make_counter_from_name,
    make_exact_counter,
    make_piecewise_counter,
    measure_json,
    measure_message_parts,
    measure_part,
    measure_request_head,
)
from trimtab.engine.tokens.media import MIN_DOCUMENT_TOKENS, read_base64_image_dimensions
from trimtab.engine.tokens.odd_text import sum_bytes
from trimtab.engine.tokens.pictures import estimate_picture_tokens
from trimtab.engine.tokens.piecewise import encode_byte_class_pairs, encode_utf8_as_sent
from trimtab.engine.tokens.weights import WEIGHTS_BY_FAMILY

# Surrogates included: models and tools do send halves of a character.
any_text = st.text(alphabet=st.characters(exclude_categories=()), max_size=200)
families = st.sampled_from([*WEIGHTS_BY_FAMILY, None])
CHARACTERS = make_exact_counter("characters", len)


def utf8(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("ä" * 4, 2), ("漢字", 2), ("x" * 8000, 2000)],
)
def test_bytes4_is_a_quarter_of_the_utf8_bytes_rounded_up(text: str, tokens: int):
    assert estimate_tokens_by_bytes(text) == tokens


@given(text=any_text, family=families)
def test_an_estimate_is_between_zero_and_the_bytes_of_the_text(text: str, family: str | None):
    assert 0 <= make_piecewise_counter(family).count(text) <= utf8(text)
    assert 0 <= estimate_tokens_by_bytes(text) <= utf8(text)


@given(family=families)
def test_the_empty_text_has_no_tokens(family: str | None):
    assert make_piecewise_counter(family).count("") == 0


def test_a_lone_surrogate_is_counted_and_not_refused():
    assert estimate_tokens_by_bytes("\ud800") == 1
    assert (
        0
        < make_piecewise_counter("o200k_base").count("broken \udc00 text")
        <= utf8("broken \udc00 text")
    )
    assert measure_part(Text(text="\ud800"), BYTES_4_COUNTER).bytes == 3


@pytest.mark.parametrize("family", WEIGHTS_BY_FAMILY)
def test_no_pattern_of_ascii_text_counts_as_nearly_nothing(family: str):
    count = make_piecewise_counter(family).count
    members = "aAzk0.,-_\n\t ("
    poorest = min(count((one + two) * 200) for one in members for two in members if one != two)
    assert poorest > 400 * 0.02


WORDS = ("the", "cache", "of", "a", "request", "is", "read", "from", "its", "start", "each", "call")
words = st.permutations(WORDS * 4).map(" ".join)


@given(first=words, second=words, family=families)
def test_joining_two_texts_changes_the_estimate_by_the_seam_alone(
    first: str, second: str, family: str | None
):
    count = make_piecewise_counter(family).count
    # One pair weighs at most 2.55.
    assert abs(count(first + second) - count(first) - count(second)) <= 6


@given(text=any_text)
def test_pairs_name_each_byte_with_its_predecessor(text: str):
    codes = encode_byte_class_pairs(encode_utf8_as_sent(text))
    assert len(codes) == len(encode_utf8_as_sent(text))
    assert [code >> 4 for code in codes] == [0, *(code & 15 for code in codes)][: len(codes)]


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 512, 1_000])
def test_the_total_is_the_sum_of_all_bytes_up_to_the_largest(size: int):
    for numbers in (b"\xff" * size, bytes(number % 251 for number in range(size))):
        assert sum_bytes(numbers) == sum(numbers)


@pytest.mark.parametrize("family", WEIGHTS_BY_FAMILY)
def test_english_prose_is_estimated_near_a_token_for_every_three_to_five_bytes(family: str):
    prose = "The cache stays warm as long as nothing in front of it changes between two calls. " * 9
    tokens = make_piecewise_counter(family).count(prose)
    assert len(prose) / 6 < tokens < len(prose) / 2.5


@pytest.mark.parametrize("text", ["A B C D E F " * 20, "1\n2\n3\n4\n" * 20, "a,b,c,d," * 20])
def test_rows_of_single_letters_are_not_taken_for_words(text: str):
    assert make_piecewise_counter("o200k_base").count(text) > 0.3 * len(text)


def test_an_unknown_family_is_named_as_such():
    unknown, none = make_piecewise_counter("no such tokenizer"), make_piecewise_counter(None)
    assert unknown.name == none.name == "piecewise/max/2"
    text = "for index in range(100): print(index)\n" * 20
    assert unknown.count(text) == none.count(text)


UNKNOWN = make_piecewise_counter(None)


def bound_of(counter: TokenCounter, text: str, reported: int | None = None) -> int:
    return compute_input_upper_bound(
        counter=counter, new_tokens=counter.count(text), reported_tokens=reported
    )


@given(text=any_text, times=st.integers(1, 30), family=st.sampled_from(sorted(WEIGHTS_BY_FAMILY)))
def test_no_bound_of_a_known_family_is_above_that_of_an_unknown_one(
    text: str, times: int, family: str
):
    counter = make_piecewise_counter(family)
    for reported in (None, 1_000):
        assert bound_of(UNKNOWN, text * times, reported) >= bound_of(
            counter, text * times, reported
        )


@pytest.mark.parametrize("kind", sorted(writers()))
def test_no_kind_of_text_has_a_higher_bound_for_a_known_family(kind: str):
    text = writers()[kind](random.Random(kind), 5_000)  # noqa: S311 - the same text on every run
    most = bound_of(UNKNOWN, text)
    for family in WEIGHTS_BY_FAMILY:
        assert most >= bound_of(make_piecewise_counter(family), text)


def test_counters_are_named_for_the_record():
    assert make_piecewise_counter("o200k_base").name == "piecewise/o200k_base/2"
    assert BYTES_4_COUNTER.name == "bytes/4"
    assert CHARACTERS.name == "exact/characters"


@pytest.mark.parametrize(
    ("part", "size"),
    [
        (Text(text="hello"), Size(bytes=5, tokens=5 + MESSAGE_OVERHEAD_TOKENS)),
        (
            ToolCall(id="c1", name="read", arguments='{"a":1}'),
            Size(bytes=13, tokens=13 + 2 + CALL_OVERHEAD_TOKENS),
        ),
        (
            ToolResult(call_id="c1", content=(Text(text="fine"),)),
            Size(bytes=6, tokens=6 + 1 + RESULT_OVERHEAD_TOKENS),
        ),
        (
            OpaqueBlock(data={"type": "thinking"}),
            Size(bytes=19, tokens=19 + MESSAGE_OVERHEAD_TOKENS),
        ),
    ],
)
def test_every_text_of_a_part_is_counted_with_its_overhead(part: Part, size: Size):
    assert measure_part(part, CHARACTERS) == size


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
        (OpaqueBlock(data={}), OpaqueBlock(data={"signature": "s" * 40})),
        (Text(text="t"), Text(text="t", extra={"reasoning_content": "r" * 40})),
    ],
)
def test_a_longer_field_makes_a_larger_part(small: Part, large: Part):
    before, after = measure_part(small, BYTES_4_COUNTER), measure_part(large, BYTES_4_COUNTER)
    assert after.bytes > before.bytes
    assert after.tokens > before.tokens


def test_a_result_of_several_blocks_counts_each_of_them():
    picture = Media(kind="image", url="https://example.org/a.png")
    result = ToolResult(call_id="c1", content=(Text(text="see"), picture), plain=False)
    size = measure_part(result, CHARACTERS)
    unknown = estimate_picture_tokens("", None)
    assert size.tokens == 2 + RESULT_OVERHEAD_TOKENS + 3 + unknown + 2 * MESSAGE_OVERHEAD_TOKENS


def test_empty_extra_keys_and_cache_marks_cost_nothing():
    bare = measure_part(Text(text="t"), BYTES_4_COUNTER)
    marked = Text(text="t", extra={"cache_control": {"type": "ephemeral"}, "annotations": []})
    assert measure_part(marked, BYTES_4_COUNTER) == bare


def test_a_message_has_one_size_for_each_part_and_its_extra_in_the_first():
    parts = (Text(text="a"), Text(text="b"))
    plain = measure_message_parts(Message(role="user", parts=parts), CHARACTERS)
    named = measure_message_parts(
        Message(role="user", parts=parts, extra={"name": "ada"}), CHARACTERS
    )
    assert [size.tokens for size in plain] == [1 + MESSAGE_OVERHEAD_TOKENS] * 2
    assert named[0].tokens == plain[0].tokens + len('{"name":"ada"}') + MESSAGE_OVERHEAD_TOKENS
    assert named[1] == plain[1]
    assert measure_message_parts(Message(role="assistant", parts=()), CHARACTERS) == (
        EMPTY_MESSAGE_SIZE,
    )


def test_the_head_counts_system_prompt_and_tools():
    system = (Message(role="system", parts=(Text(text="Be brief."),)),)
    tools: list[dict[str, Any]] = [{"name": "read", "description": "Reads a file."}]
    empty = measure_request_head((), (), CHARACTERS)
    with_system = measure_request_head(system, (), CHARACTERS)
    both = measure_request_head(system, tools, CHARACTERS)
    assert empty == Size(bytes=0, tokens=3)
    assert with_system.tokens == empty.tokens + 9 + MESSAGE_OVERHEAD_TOKENS
    definition = measure_json(tools[0], CHARACTERS)
    assert both.tokens == with_system.tokens + definition.tokens + TOOLS_OVERHEAD_TOKENS
    assert both.bytes == with_system.bytes + definition.bytes


def test_the_head_counts_a_schema_for_the_reply_and_no_plain_numbers():
    schema = {"type": "json_schema", "schema": {"properties": {"a": {"type": "string"}}}}
    empty = measure_request_head((), (), CHARACTERS)
    assert measure_request_head((), (), CHARACTERS, {"temperature": 0.5, "user": "ada"}) == empty
    with_schema = measure_request_head((), (), CHARACTERS, {"response_format": schema})
    assert with_schema.tokens == empty.tokens + measure_json(schema, CHARACTERS).tokens


@pytest.mark.parametrize("family", WEIGHTS_BY_FAMILY)
def test_half_of_a_surrogate_pair_counts_as_what_is_sent_for_it(family):
    count = make_piecewise_counter(family).count
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
    assert read_base64_image_dimensions(data) == dimensions


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        (Media(kind="audio", data="A" * 160_000), 2000),
        (Media(kind="video", data="A" * 4_000_000), 30_000),
        (Media(kind="document", data="A" * 64), MIN_DOCUMENT_TOKENS),
        (Media(kind="document", data="A" * 64_000), 6000),
        (Media(kind="document", mime="text/plain", data="plain words"), 11),
    ],
)
def test_media_cost_a_flat_figure_or_one_by_their_payload(part: Media, tokens: int):
    assert measure_part(part, CHARACTERS).tokens == tokens + MESSAGE_OVERHEAD_TOKENS


LOW: dict[str, Any] = {"detail": "low"}


@pytest.mark.parametrize("extra", [LOW, {"image_url": LOW}], ids=["responses", "chat"])
def test_a_picture_of_low_detail_costs_what_the_rule_of_its_model_says(extra: dict[str, Any]):
    picture = Media(kind="image", data=png(512, 512), extra=extra)
    small = make_piecewise_counter("o200k_base", "tiles:85:170")
    assert measure_part(picture, small).tokens == 85 + MESSAGE_OVERHEAD_TOKENS
    assert (
        measure_part(replace(picture, extra=None), small).tokens
        == 85 + 170 + MESSAGE_OVERHEAD_TOKENS
    )


def test_counters_that_price_pictures_by_other_rules_have_other_names():
    names = {
        make_piecewise_counter("o200k_base", rule).name
        for rule in ("", "tiles:85:170", "flat:1120")
    }
    assert len(names) == 3
    assert {make_counter_from_name(name).name for name in names} == names


def test_a_name_of_an_earlier_version_stands_for_the_estimator_of_today():
    assert (
        make_counter_from_name("piecewise/o200k_base/1").name
        == make_piecewise_counter("o200k_base").name
    )
    assert make_counter_from_name("somebody's own").name == make_piecewise_counter(None).name


HALF = TokenCounter(
    name="test", count=len, anchored_margin=0.1, unanchored_margin=0.2, single_message_margin=0.5
)


def test_without_an_anchor_the_whole_estimate_carries_the_unanchored_margin():
    assert compute_input_upper_bound(counter=HALF, new_tokens=1000) == 1200


def test_with_an_anchor_only_what_is_new_is_uncertain():
    assert compute_input_upper_bound(counter=HALF, new_tokens=0, reported_tokens=5000) == 5000
    assert compute_input_upper_bound(counter=HALF, new_tokens=100, reported_tokens=5000) == 5150


def test_much_new_text_is_bounded_by_the_margin_of_the_whole():
    assert compute_input_upper_bound(counter=HALF, new_tokens=5000, reported_tokens=5000) == 11_000


def test_new_text_larger_than_all_before_it_has_the_margin_of_a_first_request():
    assert (
        compute_input_upper_bound(counter=HALF, new_tokens=10_000, reported_tokens=1000) == 13_000
    )


def test_a_learned_ratio_scales_what_is_estimated_and_nothing_that_is_known():
    assert compute_input_upper_bound(counter=HALF, new_tokens=1000, learned_ratio=1.5) == 1800
    assert (
        compute_input_upper_bound(
            counter=HALF, new_tokens=100, reported_tokens=5000, learned_ratio=2.0
        )
        == 5300
    )


def test_a_learned_ratio_is_believed_within_limits_only():
    assert compute_input_upper_bound(
        counter=HALF, new_tokens=1000, learned_ratio=0.5
    ) == compute_input_upper_bound(counter=HALF, new_tokens=1000)
    most = compute_input_upper_bound(counter=HALF, new_tokens=1000, learned_ratio=MAX_LEARNED_RATIO)
    assert compute_input_upper_bound(counter=HALF, new_tokens=1000, learned_ratio=math.inf) == most


@given(
    new=st.integers(0, 10**6),
    more=st.integers(0, 10**4),
    usage=st.none() | st.integers(0, 10**6),
    ratio=st.floats(0, 10),
)
def test_the_bound_never_falls_when_something_is_added_nor_below_the_estimate(
    new: int, more: int, usage: int | None, ratio: float
):
    bound = compute_input_upper_bound(
        counter=HALF, new_tokens=new, reported_tokens=usage, learned_ratio=ratio
    )
    assert bound >= new + (usage or 0)
    assert (
        compute_input_upper_bound(
            counter=HALF, new_tokens=new + more, reported_tokens=usage, learned_ratio=ratio
        )
        >= bound
    )
