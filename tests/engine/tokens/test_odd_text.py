"""Text whose tokens are known, of kinds that look alike to a count of neighbouring bytes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.exact_tokenizers import available
from benchmarks.text_writers import writers
from tests.engine.tokens.alphabets import ALPHABETS, BYTES, Alphabet
from trimtab.engine.tokens.counter import (
    compute_input_upper_bound,
    make_piecewise_counter,
)
from trimtab.engine.tokens.odd_text import (
    SLICE_BYTES,
    sum_bytes,
)
from trimtab.engine.tokens.piecewise import encode_byte_class_pairs, encode_utf8_as_sent
from trimtab.engine.tokens.weights import WEIGHT_UNITS_PER_TOKEN, WEIGHTS_BY_FAMILY

O200K = make_piecewise_counter("o200k_base")
ENGLISH = (
    "The request is read from its start, and whatever stands there unchanged is cheap. A change in "
    "the middle makes all that follows new to the provider, who has to read it once more.\n"
)
FOX = "The quick brown fox jumps over the lazy dog. "
CODE = (
    "def resized(edit: Edit, part: Part, counter: Counter) -> Edit:\n"
    '    """The edit of a part with the size that a counter gives to what stands in."""\n'
    "    return replace(edit, size=size_of(shown(part, edit), counter))\n\n"
)
LOG = '2026-11-03T10:42:17.113Z WARN [worker-7] session=18 status=503 took=12.5ms path="/v1/run"\n'
RUSSIAN = (
    "Запрос читается с начала, и всё, что стоит там без изменений, обходится дёшево. Перемена в "
    "середине делает новым для поставщика всё, что следует за ней, и он читает это ещё раз.\n"
)
CHINESE = (
    "请求从头读起，凡是没有改动的部分都很便宜。中间的改动会让后面的内容对服务商来说都是新的，服务商"
    "必须把后面的内容重新读一遍。因此没有改动的部分要放在请求的开头，有改动的内容要放在请求的末尾。\n"
)


def plain(text: str, family: str = "o200k_base") -> float:
    """The estimate by pairs of bytes alone."""
    return (
        sum_bytes(
            encode_byte_class_pairs(encode_utf8_as_sent(text)).translate(WEIGHTS_BY_FAMILY[family])
        )
        / WEIGHT_UNITS_PER_TOKEN
    )


@pytest.mark.parametrize("alphabet", ALPHABETS, ids=lambda each: each.name)
def test_the_bound_of_letters_in_no_order_holds(alphabet: Alphabet):
    text = alphabet.text(BYTES)
    assert compute_input_upper_bound(counter=O200K, new_tokens=O200K.count(text)) >= alphabet.tokens


@pytest.mark.parametrize("alphabet", ALPHABETS, ids=lambda each: each.name)
def test_odd_text_is_seen_among_usual_text(alphabet: Alphabet):
    odd = alphabet.text(BYTES)
    text = ENGLISH * 60 + odd + CODE * 60
    usual = plain(ENGLISH) * 60 + plain(CODE) * 60
    # A slice in which both stand is judged by both.
    assert O200K.count(text) * 1.17 >= 0.9 * usual + 0.75 * alphabet.tokens


@pytest.mark.parametrize("text", [ENGLISH, FOX, CODE, LOG, RUSSIAN, CHINESE], ids=lambda t: t[:12])
@pytest.mark.parametrize("times", [1, 7, 60])
def test_text_of_a_usual_kind_is_estimated_by_pairs_of_bytes(text: str, times: int):
    # Scripts share their bytes with others that cost more.
    most = 1.02 if text.isascii() else 1.07
    assert O200K.count(text * times) <= most * plain(text * times) + 1


@pytest.mark.parametrize("kind", sorted(writers()))
def test_the_bound_holds_for_words_of_any_language_and_for_misread_text(kind: str):
    text = writers()[kind](random.Random(kind), 5_000)  # noqa: S311 - the same text on every run
    unknown = make_piecewise_counter(None)
    most = compute_input_upper_bound(counter=unknown, new_tokens=unknown.count(text))
    for family, real in available().items():
        counter, tokens = make_piecewise_counter(family), real(text)
        assert tokens <= compute_input_upper_bound(counter=counter, new_tokens=counter.count(text))
        assert tokens <= most


@given(text=st.text(max_size=600), family=st.sampled_from(sorted(WEIGHTS_BY_FAMILY)))
def test_an_estimate_is_never_lowered(text: str, family: str):
    raw = encode_utf8_as_sent(text)
    assert make_piecewise_counter(family).count(text) >= min(int(plain(text, family)), len(raw))


@pytest.mark.parametrize(
    "size", [SLICE_BYTES - 1, SLICE_BYTES, SLICE_BYTES + 1, 3 * SLICE_BYTES + 17]
)
def test_a_text_is_judged_to_its_end_whatever_its_length(size: int):
    dice = random.Random(size)  # noqa: S311 - the same text on every run
    text = "".join(dice.choices("ACGT", k=size))
    assert O200K.count(text) > 0.5 * size


@pytest.mark.parametrize("unit", ["neiroetti", "UAGAGAG", "ciso4co", "ab", "\x00", "字", "\n, "])
def test_a_short_pattern_is_not_taken_for_words(unit: str):
    text = unit * (6_000 // len(unit.encode()))
    assert O200K.count(text) > 0.3 * len(text.encode())


def words(alphabet: str, longest: int, mark: str, seed: int) -> str:
    """6 kB of letters that were drawn, in words of up to so many."""
    dice, text = random.Random(seed), ""  # noqa: S311 - the same text on every run
    while len(text.encode()) < BYTES:
        text += "".join(dice.choices(alphabet, k=dice.randint(1, longest))) + mark
    return text


def pattern(first: int, last: int, size: int, seed: int) -> str:
    """6 kB of a few characters that were drawn once and are repeated."""
    dice = random.Random(seed)  # noqa: S311 - the same text on every run
    unit = "".join(dice.choices([chr(point) for point in range(first, last)], k=size))
    return unit * (BYTES // len(unit.encode()) + 1)


@pytest.mark.parametrize(
    ("text", "o200k", "cl100k", "tekken"),
    [
        pytest.param(words("etaoinsr", 3, " ", 1), 2257, 2409, 2448, id="short words"),
        pytest.param(words("etaoinsr", 5, ", ", 2), 3014, 3161, 3147, id="words and commas"),
        pytest.param(words("rf1", 1, " ", 3), 3988, 3988, 3988, id="single letters"),
        pytest.param(words("aeiou", 2, " ", 4), 2458, 2499, 2798, id="vowels"),
        pytest.param(pattern(0xB05, 0xB39, 38, 5), 3127, 5883, 6042, id="Oriya, repeated"),
        pytest.param(pattern(0x985, 0x9A8, 37, 6), 2695, 4070, 2805, id="Bengali, repeated"),
        pytest.param(pattern(0x1F700, 0x1F740, 38, 7), 4480, 4560, 6080, id="symbols, repeated"),
        pytest.param("\n, " * 2_000, 4001, 4001, 6000, id="line ends and commas"),
        pytest.param(words("\r", 2, ", ", 8), 5154, 6003, 6003, id="carriage returns"),
        pytest.param(words("￦＞（", 4, " ", 9), 2529, 2782, 3123, id="full-width signs"),
        pytest.param("#<|?" * 1_500, 4501, 6000, 6000, id="signs, repeated"),
        pytest.param("\0 " * 3_000, 6000, 6000, 6000, id="zeros"),
        pytest.param("zl" * 3_001, 3001, 3001, 6002, id="two letters, repeated"),
    ],
)
def test_the_bound_holds_for_text_without_words(text: str, o200k: int, cl100k: int, tekken: int):
    """The counts are those of the tokenizers themselves."""
    for family, real in (("o200k_base", o200k), ("cl100k_base", cl100k), ("tekken", tekken)):
        counter = make_piecewise_counter(family)
        assert compute_input_upper_bound(counter=counter, new_tokens=counter.count(text)) >= real, (
            family
        )


@pytest.mark.parametrize("ruler", ["-", "=", ".", "*", " ", "\t", "~"])
def test_a_row_of_one_sign_is_estimated_as_before(ruler: str):
    assert O200K.count(ruler * 2 * SLICE_BYTES) <= plain(ruler * 2 * SLICE_BYTES) + 1


def test_signs_that_every_tokenizer_knows_cost_no_more_than_before():
    text = "– the cache → “warm” for 5 minutes — or cold… • each costs 2 €, ‘more’ or less\n" * 40
    assert O200K.count(text) <= 1.02 * plain(text) + 1


def test_a_tree_of_files_costs_little_more_than_before():
    listing = "├── src\n│   ├── core\n│   └── dialects\n└── tests\n" * 40
    assert O200K.count(listing) <= 1.5 * plain(listing)


@pytest.mark.parametrize("character", [*"Aaz=-_ #0J", "ü", "é", "§", "ß"])
@pytest.mark.parametrize("family", ["o200k_base", "cl100k_base", "tekken"])
def test_a_row_of_one_character_is_counted_as_it_is(family, character):
    """Dividers, padding and test texts: neither a token a byte nor too few."""
    count = available().get(family)
    if count is None:
        pytest.skip(f"{family} is not installed")
    counter = make_piecewise_counter(family)
    for text in (character * 3_000, f"12: {character * 9_000} end."):
        assert count(text) <= counter.count(text) * (1 + counter.unanchored_margin)
        assert counter.count(text) <= max(1.15 * count(text), len(text) / 8) + 30
