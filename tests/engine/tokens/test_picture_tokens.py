"""The examples that the providers' documents work out, and what holds for every rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.engine.tokens.pictures import FALLBACK_PICTURE_RULES, estimate_picture_tokens
from trimtab.models.catalog import find_model_info, resolve_model_info

STANDARD, HIGH = "squares:1568:1568", "squares:2576:4784"
RULES = (
    "",
    STANDARD,
    HIGH,
    "tiles:85:170",
    "tiles:2833:5667",
    "patches:1.62:1536",
    "patches:1.2:2500:10000:high",
    "patches:1.2:2500:10000:original",
    "flat:1120",
)
DETAILS = ("low", "high", "auto", "original")


@pytest.mark.parametrize(
    ("rule", "width", "height", "tokens"),
    [
        (STANDARD, 200, 200, 64),
        (STANDARD, 1000, 1000, 1_296),
        (STANDARD, 1092, 1092, 1_521),
        (STANDARD, 3840, 2160, 1_560),
        (STANDARD, 1075, 1520, 33 * 47),
        (HIGH, 1920, 1080, 2_691),
        (HIGH, 3840, 2160, 4_784),
    ],
)
def test_anthropic_counts_squares_of_28_pixels(rule: str, width: int, height: int, tokens: int):
    assert estimate_picture_tokens(rule, (width, height)) == tokens


@pytest.mark.parametrize(
    ("model", "width", "height", "detail", "tokens"),
    [
        ("gpt-4o", 1024, 1024, "high", 765),
        ("gpt-4o", 2048, 4096, "high", 1_105),
        ("gpt-4o", 4096, 8192, "low", 85),
        ("gpt-4o", 512, 512, "low", 85),
        ("gpt-4o-mini", 1024, 1024, "high", 2_833 + 4 * 5_667),
        ("gpt-5", 1024, 1024, "high", 70 + 4 * 140),
        ("o3", 1024, 1024, "auto", 75 + 4 * 150),
        ("gpt-4.1-mini", 1024, 1024, "auto", 1_659),
        ("gpt-4.1-mini", 1800, 2400, "auto", 2_353),
        ("gpt-5-nano", 1800, 2400, "auto", 3_572),
        ("o4-mini", 1024, 1024, "auto", 1_762),
    ],
)
def test_openai_counts_tiles_or_patches_by_the_model(
    model: str, width: int, height: int, detail: str, tokens: int
):
    assert (
        estimate_picture_tokens(resolve_model_info(model).picture_rule, (width, height), detail)
        == tokens
    )


@pytest.mark.parametrize(
    ("model", "high", "original", "auto"),
    [("gpt-5.4", 3_000, 12_000, 3_000), ("gpt-5.5", 3_000, 12_000, 12_000)],
)
def test_a_model_that_knows_original_keeps_more_of_a_large_picture(
    model: str, high: int, original: int, auto: int
):
    rule, large = resolve_model_info(model).picture_rule, (3_200, 3_200)
    found = [
        estimate_picture_tokens(rule, large, detail) for detail in ("high", "original", "auto")
    ]
    assert found == [high, original, auto]


@pytest.mark.parametrize(
    ("model", "width", "height", "tokens"),
    [
        ("gemini-2.5-pro", 384, 384, 258),
        ("gemini-2.5-pro", 960, 540, 6 * 258),
        ("gemini-3-pro", 960, 540, 1_120),
        ("gemini-3-pro", 9600, 5400, 1_120),
    ],
)
def test_gemini_counts_tiles_or_a_flat_figure(model: str, width: int, height: int, tokens: int):
    assert (
        estimate_picture_tokens(resolve_model_info(model).picture_rule, (width, height)) == tokens
    )


@pytest.mark.parametrize(
    ("model", "rule"),
    [
        ("claude-sonnet-4-6", STANDARD),
        ("claude-opus-4-7", HIGH),
        ("claude-sonnet-5-5", HIGH),
        ("claude-opus-9", HIGH),
        ("somebody/new-model", ""),
    ],
)
def test_newer_claude_models_see_more_and_an_unknown_one_has_the_largest(model: str, rule: str):
    assert resolve_model_info(model).picture_rule == rule
    assert (find_model_info(model) is None) == (model in ("claude-opus-9", "somebody/new-model"))


@given(
    rule=st.sampled_from(RULES),
    sides=st.tuples(st.integers(1, 20_000), st.integers(1, 20_000)),
    detail=st.sampled_from(DETAILS),
)
def test_a_picture_of_unknown_size_takes_the_most_that_its_rule_gives(
    rule: str, sides: tuple[int, int], detail: str
):
    if rule == "":
        sides = min(sides[0], 3_072), min(sides[1], 3_072)
    assert (
        0
        < estimate_picture_tokens(rule, sides, detail)
        <= estimate_picture_tokens(rule, None, detail)
    )


@given(sides=st.tuples(st.integers(1, 20_000), st.integers(1, 20_000)))
def test_an_unknown_rule_is_never_below_a_usual_one(sides: tuple[int, int]):
    assert estimate_picture_tokens("", sides) == max(
        estimate_picture_tokens(each, sides, "high") for each in FALLBACK_PICTURE_RULES
    )


@pytest.mark.parametrize("rule", ["tiles", "tiles:a:b", "patches:1:2:3:low", "flat:", "cubes:1"])
def test_a_rule_that_there_is_not_is_refused_in_words(rule: str):
    with pytest.raises(ValueError, match=r"picture_rule is .* it must be like"):
        estimate_picture_tokens(rule, None)
    with pytest.raises(ValueError, match="picture_rule is"):
        resolve_model_info("gpt-4o", {"picture_rule": rule})
