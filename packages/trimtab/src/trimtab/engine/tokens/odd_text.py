"""Find text for which the token estimate is too low, and its maximum cost.

The estimate uses classes of neighbouring bytes and has no vocabulary. It is right for text that
consists of words: prose, code, logs, JSON. Random letters, scripts for which a tokenizer has no
words, and rows of signs cost up to one token a byte, but look similar to the estimate. So each
slice of a text is sampled for signs of such unusual text.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from operator import itemgetter, mul
from string import ascii_lowercase, ascii_uppercase
from typing import Any, NamedTuple
from zlib import adler32

from trimtab.engine.tokens.repeats import FIRST_RUN_CHARACTER, RUN_COSTS_BY_FAMILY
from trimtab.engine.tokens.tables import BLOCK_COSTS_BY_FAMILY, SINGLE_PIECE_SIGNS, USUAL_TRIGRAMS
from trimtab.engine.tokens.weights import WEIGHT_UNITS_PER_TOKEN, WEIGHTS_BY_FAMILY

UNKNOWN_FAMILY = "max"
"""The name that stands for all families if a model's own is not known."""

SLICE_BYTES = 4_096
"""Bytes that are judged together."""

CHARACTER_BLOCKS = (*range(2, 1024), *range(0x1F000 >> 6, 0x1FC00 >> 6))
"""Numbers of the blocks of 64 characters that `BLOCK_COSTS_BY_FAMILY` covers, in its order. All
other blocks cost one token a byte."""

_SPACE = b"_"
_LINE = b"\n"
_SIGN = b"."
_CONTROL = b"\x01"
_BEYOND = b"~"
"""The bytes to which `FOLD_TABLE` maps spaces and digits, line ends and tabs, signs, control
characters, and non-ASCII bytes."""


def _make_fold_table() -> bytes:
    table = bytearray(_SIGN * 128 + _BEYOND * 128)
    table[:32] = _CONTROL * 32
    table[127:128] = _CONTROL
    for members, symbol in ((b" 0123456789", _SPACE), (b"\n\r\t", _LINE)):
        for member in members:
            table[member : member + 1] = symbol
    for letter in ascii_lowercase.encode():
        table[letter] = table[letter - 32] = letter
    return bytes(table)


FOLD_TABLE = _make_fold_table()
"""Maps every byte to one of 31: `a` to `z` without case, or the kind of byte."""

_LETTERS = ascii_lowercase.encode()
_NON_LETTERS_BESIDE = tuple(each.decode() for each in (_SPACE, _LINE, _SIGN))
"""The bytes for which `_` stands in a trigram."""
_FIRST_SAMPLE_TRIGRAMS = 64
_CLOSE_SAMPLE_TRIGRAMS = 256
"""Number of trigrams to sample in each slice, and in a slice that may be odd."""
_MIN_ODD_TRIGRAMS = 5
"""Number of odd trigrams in the first sample that starts a closer look; fewer if few trigrams are
informative."""
_MIN_JUDGED_BYTES = 64
"""Texts with fewer bytes are too short to judge."""
_MAX_USUAL_LETTER_SHARE = 0.93
"""Normal text has a smaller share of alphabetic characters than this."""
_MIN_NUMBER_TABLE_SHARE = 0.97
_NUMBER_TABLE_FACTOR = 1.2
"""Minimum share of non-alphabetic characters in tables of numbers, and the factor by which such
tables cost more than estimated."""
_MIN_CLOSE_LOOK_BYTES = 256
_VOWELS = b"aeiouAEIOU"
_CAPITALS = ascii_uppercase.encode()
"""Text below this number of bytes that looks like words is not examined further."""
_MIN_RUN_SHARE = 0.97
_TOKENS_PER_CHARACTER_BESIDE_RUN = 3.0
"""Minimum share of one character in a run, and the tokens of each other character in it."""
_TAB_BYTE = 9
"""The byte of a tab."""
_UNMEASURED_RUN_FACTOR = 1.25
"""How much more a run may cost for a tokenizer that was not measured."""
_MAX_PATTERN_TRIGRAMS = 48
"""A slice with at most this number of different trigrams is a repeated pattern."""


_COMMANDS = re.compile(rb"\\[a-z]{3}")
_MIN_COMMAND_SHARE = 0.04
_COMMAND_TOKENS = 0.4
"""Commands as in LaTeX: the minimum share of backslashes, and the tokens that the estimate misses
in each."""
_FOREIGN_LETTERS = (b"k", b"j", b"z")
_USUAL_SHARE_OF_FOREIGN_LETTERS = 0.011
"""Characters that are rare in English, in Romance languages and in code, and their share there."""
_WORDS_OF_KNOWN_LANGUAGES = (b" the ", b" and ", b" und ", b" der ", b" och ", b" og ")
"""Words of languages that have some of these and that every tokenizer knows well."""
_MIN_ASCII_SHARE_OF_FOREIGN_WORDS = 0.9
_MIN_SPACE_SHARE_OF_PROSE = 0.06
_MAX_SIGN_SHARE_OF_PROSE = 0.1
"""Share of spaces in prose, and of signs. Code has more signs."""
_FOREIGN_RATES = {"o200k_base": 0.29, "tekken": 0.31}
_FOREIGN_RATE = 0.34
_FOREIGN_FACTOR = 1.22
"""Minimum tokens of a byte in words of such languages, by family: a token for three or four
characters. And
how much more than estimated they cost if they are short."""
_OTHER_SCRIPT_FACTORS = {"cl100k_base": 1.15, UNKNOWN_FAMILY: 1.15}
_OTHER_SCRIPT_FACTOR = 1.06
"""How much more scripts cost that are rare in a vocabulary, but share their classes of bytes with
common ones: traditional Chinese, Serbian, Greek."""


def trigram_has_adjacent_letters(folded_trigram: str) -> bool:
    """Whether a folded trigram is informative: two adjacent alphabetic ASCII characters."""
    one, two, three = (each in ascii_lowercase for each in folded_trigram)
    return two and (one or three) and "~" not in folded_trigram and "\x01" not in folded_trigram


@cache
def _load_word_trigrams() -> frozenset[bytes]:
    """Return the folded trigrams of usual text."""
    trigrams = {
        one + two + three
        for word in USUAL_TRIGRAMS.split()
        for one in (_NON_LETTERS_BESIDE if word[0] == "_" else word[0])
        for two in word[1]
        for last in word[2:]
        for three in (_NON_LETTERS_BESIDE if last == "_" else last)
    }
    return frozenset(each.encode() for each in trigrams)


@cache
def _load_usual_trigrams() -> frozenset[bytes]:
    """Return the folded trigrams of usual text, and all that are not informative."""
    others = (*_NON_LETTERS_BESIDE, "\x01", "~")
    every = (*ascii_lowercase, *others)
    trigrams = {one + two + three for one in every for two in others for three in every}
    for two in ascii_lowercase:
        trigrams |= {one + two + three for one in others for three in others}
        trigrams |= {one + two + three for one in every for three in others[-2:]}
        trigrams |= {one + two + three for one in others[-2:] for three in every}
    return _load_word_trigrams().union(each.encode() for each in trigrams)


_LOWER = 1
_UPPER = 2
_DIGIT = 3
_OTHER = 4
_END = 5
_TAB = 6
_BLANK = 7
_RARE = 15
_ANY_LETTER = (_LOWER, _UPPER, _RARE)
_NO_LETTER = (0, _DIGIT, _OTHER, _END, _TAB, _BLANK)
_WORD_START_PAIRS = bytes(
    pair >> 4 in _NO_LETTER and pair & 15 in _ANY_LETTER for pair in range(256)
)
"""1 for pairs of classes (see `counter.BYTE_CLASSES`) in which a word begins."""


def raise_weights_for_wordless_text(family_weights: bytes) -> bytes:
    """Return the maximum weight of each pair of classes in a text without words.

    It is the family's weight, raised to the value that was measured for random letters and signs.
    """
    table = bytearray(family_weights)

    def raise_to(most: int, befores: Iterable[int], afters: Iterable[int]) -> None:
        for before in befores:
            for after in afters:
                table[before << 4 | after] = min(100, max(table[before << 4 | after], most))

    every = range(16)
    raise_to(65, _ANY_LETTER, (_LOWER, _RARE))
    raise_to(75, _ANY_LETTER, (_UPPER,))
    raise_to(80, (_RARE,), (_RARE,))
    raise_to(80, (_UPPER,), (_UPPER,))
    raise_to(100, _NO_LETTER, _ANY_LETTER)
    raise_to(100, every, (_OTHER, _END, _TAB))
    # A space is part of the word or sign that follows, but of no number and no line end.
    raise_to(100, (_END, _TAB), (_BLANK,))
    for after in (_DIGIT, _END, _TAB):
        table[_BLANK << 4 | after] = 200
    return bytes(table)


def sum_bytes(byte_values: bytes) -> int:
    """Return the sum of all bytes, ten times as fast as `sum`.

    The lower half of Adler-32 is this sum plus one, modulo 65,521, which 256 bytes cannot reach.
    """
    size = len(byte_values)
    if size <= 256:
        return (adler32(byte_values) & 0xFFFF) - 1
    return sum((adler32(byte_values[at : at + 256]) & 0xFFFF) - 1 for at in range(0, size, 256))


class BlockCost(NamedTuple):
    """Cost of one character of a block of 64 characters."""

    tokens: int
    """Tokens of the character alone; 0 for ASCII."""
    has_words: bool
    """Whether the family has words with such characters."""
    bytes: int
    """Bytes of the character in UTF-8."""


_UNKNOWN_BLOCK_COST = BlockCost(4, False, 4)

_UNKNOWN_FAMILY_GROUPS = (
    ("claude_v3",),
    ("claude_v5",),
    ("gemma3", "qwen3", "tekken"),
    ("cl100k_base", "deepseek_v4", "llama3", "o200k_base"),
)
"""Families that are counted by one table if the family is not known: the largest weights of each
group. Usual text takes most tokens by Claude's tokenizers, and the first tables are theirs alone.
The third group has a token for each digit."""


class TokenizerProfile(NamedTuple):
    """Costs of a family of tokenizers."""

    weights: bytes
    """Weights of the pairs of classes."""
    more_weights: tuple[bytes, ...]
    """Further weights if the family is not known. The largest sum counts."""
    cost_by_block: dict[int, BlockCost]
    """Costs of single characters, by the number of their block."""
    known_blocks: frozenset[int]
    """Numbers of the character blocks for which the family has words."""
    wordless_weights: bytes
    """Weights of text without words."""
    run_costs: str
    """Costs of runs of one character, see `RUN_COSTS_BY_FAMILY`."""
    run_cost_factor: float
    """Factor for the costs of runs."""
    foreign_rate: float
    """Tokens of a byte in words of a language that is rare in the vocabulary."""
    other_script_factor: float
    """Factor for text that is mostly not ASCII."""
    ignored_share: float
    """Share of the estimate that may be missing: the margin of every bound covers a few per
    cent."""


@cache
def build_tokenizer_profile(tokenizer_family: str) -> TokenizerProfile:
    """Return the family's profile, or the most expensive of all families."""
    block_costs = BLOCK_COSTS_BY_FAMILY.get(tokenizer_family, BLOCK_COSTS_BY_FAMILY[UNKNOWN_FAMILY])
    costs = {block: BlockCost(0, True, 1) for block in (0, 1)}
    for block, each in zip(CHARACTER_BLOCKS, block_costs, strict=True):
        tokens = int(each) if each.isdigit() else "-abcd".index(each)
        size = 2 if block < 32 else 3 if block < 1024 else 4
        costs[block] = BlockCost(tokens, each.isalpha(), size)
    is_unknown = tokenizer_family == UNKNOWN_FAMILY
    is_measured = tokenizer_family in RUN_COSTS_BY_FAMILY and not is_unknown
    groups = _UNKNOWN_FAMILY_GROUPS if is_unknown else ((tokenizer_family,),)
    weights = tuple(_take_largest(WEIGHTS_BY_FAMILY[family] for family in each) for each in groups)
    return TokenizerProfile(
        weights=weights[0],
        more_weights=weights[1:],
        cost_by_block=costs,
        known_blocks=frozenset(block for block, cost in costs.items() if cost.has_words),
        wordless_weights=raise_weights_for_wordless_text(_take_largest(weights)),
        run_costs=RUN_COSTS_BY_FAMILY[tokenizer_family if is_measured else UNKNOWN_FAMILY],
        run_cost_factor=1.0 if is_measured else _UNMEASURED_RUN_FACTOR,
        foreign_rate=_FOREIGN_RATES.get(tokenizer_family, _FOREIGN_RATE),
        other_script_factor=_OTHER_SCRIPT_FACTORS.get(tokenizer_family, _OTHER_SCRIPT_FACTOR),
        ignored_share=0.0 if is_unknown else 0.08,
    )


def _take_largest(tables: Iterable[bytes]) -> bytes:
    """Return the largest weight of each pair of classes."""
    return bytes(max(pair) for pair in zip(*tables, strict=True))


@cache
def _spread_positions(size: int, number: int) -> list[int]:
    """Return positions of trigrams, spread evenly but not in step with a pattern in the text."""
    step = (size - 2) / number
    return [int(step * n + n * n * 0.618 % 1 * step) for n in range(number)]


@cache
def _make_spread_getter(size: int, number: int) -> Callable[[bytes], tuple[bytes, ...]]:
    """Return a function that samples trigrams."""
    return _make_trigram_getter(_spread_positions(size, number))


def _make_trigram_getter(places: Iterable[int]) -> Callable[[bytes], tuple[bytes, ...]]:
    """Return a function that reads the trigrams at these positions in one step."""
    getter: Any = itemgetter(*(slice(at, at + 3) for at in places))
    return getter


@cache
def _make_number_getter(size: int, number: int) -> Callable[[memoryview], tuple[int, ...]]:
    """Return a function that samples the numbers of trigrams, see `_number_trigrams`."""
    getter: Any = itemgetter(*_spread_positions(size, number))
    return getter


def _floor_to_common_size(size: int) -> int:
    """Return the length of a slice without the last eighth at most, so that positions are computed
    only for a few lengths."""
    unit = size.bit_length() - 4
    return size >> unit << unit


def _sample_trigrams(piece: bytes, number: int) -> bytes:
    """Return this number of trigrams of a slice, joined."""
    return b"".join(_make_spread_getter(_floor_to_common_size(len(piece)), number)(piece))


_FOLDED_BYTES = _LETTERS + _SPACE + _LINE + _SIGN + _CONTROL + _BEYOND
_FOLDED_TO_NUMBER = bytes(max(0, _FOLDED_BYTES.find(each)) for each in range(256))
"""Maps the 31 bytes of folded text to their numbers, which take five bits."""


def _number_trigrams(folded: bytes) -> memoryview:
    """Return a number for each trigram of a folded text. All are computed in one step."""
    numbers = folded.translate(_FOLDED_TO_NUMBER).decode("latin-1").encode("utf-16-le")
    lanes = int.from_bytes(numbers, "little")
    trigrams = lanes | lanes >> 11 | lanes >> 22
    return memoryview(trigrams.to_bytes(len(numbers), "little")).cast("H")


_USUAL = 0
_WORD = 1
_ODD = 2


@cache
def _load_trigram_kinds() -> bytes:
    """Return a table by a trigram's number: its kind."""
    kinds = bytearray([_ODD]) * (1 << 15)
    for kind, trigrams in (
        (_USUAL, _load_usual_trigrams()),
        (_WORD, _load_word_trigrams()),
    ):
        for number in _number_trigrams(b"".join(trigrams))[::3]:
            kinds[number] = kind
    return bytes(kinds)


def count_slice_tokens(text_slice: bytes, class_pairs: bytes, profile: TokenizerProfile) -> float:
    """Return the tokens of a slice: the estimate by its pairs of classes, raised as far as the
    slice is odd.

    `class_pairs` are the pairs of classes of the slice, see `counter.encode_byte_class_pairs`.
    """
    units = sum_bytes(class_pairs.translate(profile.weights))
    for each in profile.more_weights:
        units = max(units, sum_bytes(class_pairs.translate(each)))
    estimate = units / WEIGHT_UNITS_PER_TOKEN
    size = len(text_slice)
    if size < _MIN_JUDGED_BYTES:
        return estimate
    if size < _MIN_CLOSE_LOOK_BYTES and _looks_like_words(text_slice):
        return estimate
    if (row := _count_run_tokens(text_slice, estimate, profile)) is not None:
        return row
    is_ascii = text_slice.isascii()
    ascii_bytes = size
    if not is_ascii:
        ascii_bytes = len(text_slice.translate(None, _BEYOND_ASCII))
        if 2 * ascii_bytes < size:
            estimate *= profile.other_script_factor
    rate = estimate / size
    missing = 0.0
    if 2 * ascii_bytes >= size:
        if foreign := _rate_foreign_words(text_slice, ascii_bytes):
            most = max(profile.foreign_rate * size, _FOREIGN_FACTOR * estimate)
            missing = max(0.0, foreign * most - estimate)
        if not _looks_usual(text_slice, class_pairs):
            wordless = _count_missing_ascii_tokens(text_slice, class_pairs, rate, profile)
            missing = max(missing, wordless)
    if not is_ascii:
        if profile.more_weights:
            # Another family has a lower rate, so that more is missing. That must not make its sum
            # larger, also if the sample has more bytes than its share, or ASCII is odd as well.
            rate = 0.0 if missing else 0.9 * rate
        missing += _count_missing_non_ascii_tokens(text_slice, class_pairs, rate, profile)
    return estimate + missing if missing > profile.ignored_share * estimate else estimate


def _looks_like_words(piece: bytes) -> bool:
    """Whether a few bytes look like words at a glance: vowels, spaces and few capitals."""
    size = len(piece)
    letters = size - len(piece.lower().translate(None, _LETTERS))
    vowels = size - len(piece.translate(None, _VOWELS))
    capitals = size - len(piece.translate(None, _CAPITALS))
    return (
        piece.isascii()
        and letters > 0.6 * size
        and 0.28 * letters < vowels < 0.55 * letters
        and piece.count(b" ") > 0.08 * size
        and capitals < 0.2 * letters
    )


def _count_run_tokens(piece: bytes, estimate: float, kind: TokenizerProfile) -> float | None:
    """Return the tokens of a slice that is almost only one repeated character; None for other
    slices."""
    middle = piece[len(piece) // 2]
    if middle < 128:
        same = piece.count(middle)
        beside = len(piece)
    elif middle < 0xC4 and not piece.isascii():
        text = piece.decode("utf-8", "ignore")
        middle = ord(text[len(text) // 2])
        beside = len(text)
        same = text.count(chr(middle))
    else:
        return None
    if same < _MIN_RUN_SHARE * beside or not (
        middle == _TAB_BYTE
        or FIRST_RUN_CHARACTER <= middle < FIRST_RUN_CHARACTER + len(kind.run_costs)
    ):
        return None
    if middle == _TAB_BYTE:
        return estimate
    eighths = ord(kind.run_costs[middle - FIRST_RUN_CHARACTER]) - ord("a") + 1
    row = kind.run_cost_factor * same * eighths / 8 + _TOKENS_PER_CHARACTER_BESIDE_RUN * (
        beside - same
    )
    # Of rulers and blanks many are one token: an eighth is the least that is told apart.
    return min(row, estimate) if eighths == 1 and not chr(middle).isalnum() else row


_split_first_sample = _make_trigram_getter(range(0, 3 * _FIRST_SAMPLE_TRIGRAMS, 3))
"""Splits the first sample into its trigrams."""


def _rate_foreign_words(piece: bytes, ascii_bytes: int) -> float:
    """Rate how far a slice is in a language that is rare in a vocabulary, from 0 to 1.

    Such languages with the Latin alphabet have few accents and many of the characters `k`, `j` and
    `z`: Estonian, Basque, Indonesian, Dutch, Lithuanian, Slovenian. Accents cost enough.
    """
    size = len(piece)
    share = sum(map(piece.count, _FOREIGN_LETTERS)) / size - _USUAL_SHARE_OF_FOREIGN_LETTERS
    if (
        share <= 0
        or ascii_bytes < _MIN_ASCII_SHARE_OF_FOREIGN_WORDS * size
        or piece.count(b" ") < _MIN_SPACE_SHARE_OF_PROSE * size
        or any(map(piece.__contains__, _WORDS_OF_KNOWN_LANGUAGES))
    ):
        return 0.0
    signs = piece.translate(FOLD_TABLE).count(_SIGN)
    return min(1.0, 100 * share) if signs < _MAX_SIGN_SHARE_OF_PROSE * size else 0.0


def _looks_usual(piece: bytes, codes: bytes) -> bool:
    """Whether a sample consists only of words."""
    size = len(piece)
    if piece.count(b" ") > 0.2 * size and codes.translate(_WORD_START_PAIRS).count(1) > 0.2 * size:
        return False  # words of two or three letters are short for any usual text
    sample = _sample_trigrams(piece, _FIRST_SAMPLE_TRIGRAMS).translate(FOLD_TABLE)
    trigrams = set(_split_first_sample(sample))
    odd = len(trigrams - _load_usual_trigrams())
    if odd >= _MIN_ODD_TRIGRAMS or 10 * odd > len(trigrams & _load_word_trigrams()):
        return False
    if len(trigrams) < 20 or _CONTROL in sample or piece.count(b"\\") > _MIN_COMMAND_SHARE * size:
        return False
    others = len(sample.translate(None, _LETTERS))
    least = (1 - _MAX_USUAL_LETTER_SHARE) * len(sample)
    most = 0.75 * len(sample)
    signs = sample.count(_SIGN)
    lines = sample.count(_LINE)
    return least <= others <= most and signs + 2 * lines < 0.4 * len(sample)


def _count_missing_ascii_tokens(
    piece: bytes, codes: bytes, rate: float, kind: TokenizerProfile
) -> float:
    """Return the tokens of ASCII text that an estimate of `rate` tokens a byte misses."""
    symbols = piece.translate(FOLD_TABLE)
    size = len(piece) - symbols.count(_BEYOND)
    control = symbols.count(_CONTROL)
    missing = control * max(0.0, 1.1 - rate)
    signs = symbols.count(_SIGN)
    lines = symbols.count(_LINE)
    letters = len(symbols) - len(symbols.translate(None, _LETTERS))
    digits = len(piece) - len(piece.translate(None, b"0123456789"))
    starts = codes.translate(_WORD_START_PAIRS).count(1)
    # Short words, and letters that do not belong together: two weak signs are a strong one.
    short = max(12 * (starts / size - 0.22), 12 * (starts / max(letters, 0.4 * size) - 0.38))
    odd = max(0.0, short) + max(0.0, _rate_odd_letters(symbols, size))
    odd = max(
        odd,
        3 * signs / size - 1.2,
        4 * lines / size - 1,
        8 * control / size,
        1 - 10 * (letters + digits) / size,
        1.0 if letters > _MAX_USUAL_LETTER_SHARE * size else 0.0,
    )
    if piece.count(b"\\") > _MIN_COMMAND_SHARE * size:
        missing += _COMMAND_TOKENS * len(_COMMANDS.findall(piece))
    estimate = rate * len(piece)
    most = sum_bytes(codes.translate(kind.wordless_weights)) / WEIGHT_UNITS_PER_TOKEN
    if (
        letters > _MAX_USUAL_LETTER_SHARE * size
        and len(set(_split_first_sample(_sample_trigrams(symbols, _FIRST_SAMPLE_TRIGRAMS)))) <= 8
    ):
        most = size  # some patterns of two letters are a token for each
    least = estimate + min(1.0, odd) * max(0.0, most - estimate)
    if signs + lines + symbols.count(_SPACE) > _MIN_NUMBER_TABLE_SHARE * size:
        # A sign between two spaces is a token, and so are the spaces.
        least = max(_NUMBER_TABLE_FACTOR * estimate, least, min(0.75 * size, 2.0 * signs))
    return missing + least - estimate


def _rate_odd_letters(symbols: bytes, size: int) -> float:
    """Rate how far a folded text is from words: 0 for usual text, 1 or more for no words at
    all."""
    kinds = _load_trigram_kinds()
    sample = _make_number_getter(_floor_to_common_size(len(symbols)), _CLOSE_SAMPLE_TRIGRAMS)
    numbers = sample(_number_trigrams(symbols))
    few = set(numbers)
    if len(few) <= _MAX_PATTERN_TRIGRAMS:
        # A sentence that repeats may have odd words in it.
        return 16 * (sum(kinds[each] == _ODD for each in few) / len(few) - 0.004 * len(few))
    sample_kinds = bytes(map(kinds.__getitem__, numbers))
    odd = sample_kinds.count(_ODD)
    words = odd + sample_kinds.count(_WORD)
    most = 0.17
    if _BEYOND in symbols:
        # Accents are not looked at, and what is left of a word between two of them says less.
        close_sample = _sample_trigrams(symbols, _CLOSE_SAMPLE_TRIGRAMS)
        most += close_sample.count(_BEYOND) / len(close_sample)
    return 15 * max(odd / len(numbers) - 0.11, odd / max(40, words) - most) - 48 / size


_ONE_TOKEN_SIGN_SET = frozenset(SINGLE_PIECE_SIGNS)
_BEYOND_ASCII = bytes(range(128, 256))
_ASCII_NON_LETTERS = bytes(each for each in range(128) if not chr(each).isalpha())
"""ASCII characters that are not alphabetic. They do not end a run of other characters."""
_ASCII_TO_ZERO_TABLE = bytes(0 if each < 128 else each for each in range(256))
"""Maps ASCII to zeros. Alphabetic ASCII characters end a run."""
_NON_BREAKING_BYTES = bytes(each for each in range(256) if each > 127 or chr(each).isalnum())
"""All bytes except those that separate words in ASCII."""
_PART_CHARS = 50
_PARTS_PER_SLICE = 20
"""Number of adjacent characters to examine, and how often in a slice."""
_FIRST_PAIRS = 200
"""Number of pairs of neighbours to examine first."""
_MIN_WORD_SCRIPT_PAIRS = 20_000
"""Minimum number of possible pairs of a text's characters if each is a word, as in Chinese."""
_MIN_JUDGED_PAIRS = 64
"""Below this number of pairs the order of characters is not judged."""
_REPEAT_PROBE_CHARS = 40
"""Length of a probe that occurs often in a slice only if the slice repeats itself."""


_MISREAD_BYTES = re.compile(
    rb"[\xc2\xc3](?:(?<=\xc3)[\x82-\xb4]"
    rb"(?:\xc2[\x80-\xbf]|\xc5[\x92\x93\xa0\xa1\xb8\xbd\xbe]|\xc6\x92|\xcb[\x86\x9c]"
    rb"|\xe2(?:\x80[\x93-\xba]|\x82\xac|\x84\xa2)|\xef\xbf\xbd)+"
    rb"|[\x80-\xbf](?:[\xc2\xc3][\x80-\xbf]){2,}|(?<=\xc2)[\x80-\x9f])"
)
"""What is left of UTF-8 that was read as Latin-1 or as Windows-1252: a first byte of UTF-8 as a
character with an accent, and continuation bytes as signs after it. Also rows of such characters,
which are other encodings that were read as Latin-1, and control characters above ASCII."""
_SIGNS_THAT_SPLIT = (b"\xe2\x80\x8d", b"\xe3\x80")
"""Signs that are in no longer token: the joiner of emoji, and the punctuation of Chinese and
Japanese."""
_C1_CONTROLS = re.compile(rb"\xc2[\x80-\x9f]")
_ADJACENT_NON_ASCII_PAIRS = (8 << 4 | 9, 8 << 4 | 11)
_MIN_MISREAD_SHARE = 0.01
"""Pairs of classes in which a character of two or three bytes follows another one, and their
minimum share in such text."""
_MISREAD_CHARACTER_TOKENS = 1.5
_MISREAD_CONTROL_TOKENS = 0.5
"""Tokens of one such character, and what a control character takes in addition."""


def _may_be_misread(piece: bytes, codes: bytes) -> bool:
    """Whether many characters that follow another one that is not ASCII are of Latin-1."""
    least = _MIN_MISREAD_SHARE * len(piece)
    return (
        sum(map(codes.count, _ADJACENT_NON_ASCII_PAIRS)) > least
        and piece.count(b"\xc2") + piece.count(b"\xc3") > least
    )


def _count_missing_misread_tokens(piece: bytes, rate: float) -> float:
    """Return the tokens that an estimate misses in text that was read in a wrong encoding."""
    misread = b"".join(_MISREAD_BYTES.findall(piece))
    characters = len(misread.decode("utf-8", "ignore"))
    controls = len(_C1_CONTROLS.findall(misread))
    most = _MISREAD_CHARACTER_TOKENS * characters + _MISREAD_CONTROL_TOKENS * controls
    return max(0.0, most - rate * len(misread))


def _count_missing_non_ascii_tokens(
    piece: bytes, codes: bytes, rate: float, kind: TokenizerProfile
) -> float:
    """Return the tokens of non-ASCII text that an estimate of `rate` tokens a byte misses."""
    missing = sum(map(piece.count, _SIGNS_THAT_SPLIT))
    misread = 0.0
    if _may_be_misread(piece, codes):
        misread = _count_missing_misread_tokens(piece, rate)
        piece = _MISREAD_BYTES.sub(b"", piece)
        if piece.isascii():
            return missing + misread
    return missing + misread + _count_missing_script_tokens(piece, rate, kind)


def _count_missing_script_tokens(piece: bytes, rate: float, kind: TokenizerProfile) -> float:
    """Return the tokens that the estimate misses in scripts without words, or in no order."""
    runs = piece.translate(_ASCII_TO_ZERO_TABLE, _ASCII_NON_LETTERS)
    for zeros in (8, 4, 2, 2):
        runs = runs.replace(bytes(zeros), b"\0")
    beyond = runs.decode("utf-8", "ignore")
    is_known = kind.known_blocks.issuperset(
        [ord(each) >> 6 for each in {*_pick_spread_characters(beyond)} - _ONE_TOKEN_SIGN_SET]
    )
    if is_known and _looks_ordered(beyond):
        return 0.0
    parts = _join_spread_parts(beyond)
    single = Counter(parts)
    is_mixed = _is_shuffled(beyond, parts, single)
    if is_known and not is_mixed:
        return 0.0
    alone = 0.0
    odd = 0
    signs = single.keys() & _ONE_TOKEN_SIGN_SET
    if is_mixed:
        for sign in signs:
            alone += single[sign] * max(0.0, 1 - rate * len(sign.encode()))
    # Characters of a block cost the same, and a text has fewer blocks than characters.
    blocks: dict[int, int] = {}
    for character, times in single.items():
        if character not in signs:
            block = ord(character) >> 6
            blocks[block] = blocks.get(block, 0) + times
    for block, times in blocks.items():
        tokens, is_known, size = kind.cost_by_block.get(block, _UNKNOWN_BLOCK_COST)
        if tokens and (is_mixed or not is_known):
            odd += times
            alone += times * max(0.0, tokens - rate * size)
    scale = len(beyond) / len(parts)
    # A sign beside an odd character is a token of its own more often than not.
    breaks = len(piece.translate(None, _NON_BREAKING_BYTES))
    return alone * scale + (1 - rate) * min(breaks, 2 * odd * scale) * odd / len(parts)


def _pick_spread_characters(beyond: str) -> str:
    """Return characters from all parts of a text."""
    return beyond[:: len(beyond) // _FIRST_PAIRS + 1]


def _looks_ordered(beyond: str) -> bool:
    """Whether the first pairs look like words: few different pairs of many characters."""
    some = beyond[: 2 * _FIRST_PAIRS]
    if len(some) < 2 * _FIRST_PAIRS:
        return len(some) < _MIN_JUDGED_PAIRS
    size = len(set(some)) ** 2
    expected_pairs = size * (1 - math.exp(-_FIRST_PAIRS / size))
    most = (0.95 if size > _MIN_WORD_SCRIPT_PAIRS else 0.8) * expected_pairs
    return size >= 400 and 0.3 * _FIRST_PAIRS <= len(set(_view_character_pairs(some))) <= most


def _is_shuffled(beyond: str, looked: str, single: Counter[str]) -> bool:
    """Whether characters follow each other without order, or in a short pattern."""
    unit = _find_repeated_unit(beyond)
    if not unit:
        return not _pairs_show_order(looked, single)
    if "\0" in unit or len(unit) >= _MIN_JUDGED_PAIRS:
        return not _pairs_show_order(unit, Counter(unit))
    return True


def _find_repeated_unit(text: str) -> str:
    """Return the unit that a text repeats; empty if there is none."""
    start = len(text) // 4
    size = min(_REPEAT_PROBE_CHARS, len(text) // 6)
    unit = text[start : start + size]
    again = text.find(unit, start + 1)
    if again < 0 or 4 * text.count(unit) * max(again - start, size) < len(text):
        return ""
    return text[start:again]


def _join_spread_parts(text: str) -> str:
    """Return parts of a text, or the whole text if it is short."""
    if len(text) <= _PART_CHARS * _PARTS_PER_SLICE:
        return text
    step = (len(text) - _PART_CHARS) // (_PARTS_PER_SLICE - 1)
    return "".join([text[at : at + _PART_CHARS] for at in range(0, step * _PARTS_PER_SLICE, step)])


def _pairs_show_order(text: str, single: Counter[str]) -> bool:
    """Whether two pairs of neighbours are equal more often than by chance.

    In words some pairs are much more common than their characters would suggest. So two pairs are
    equal more often than two random pairs.
    """
    even = len(text) & ~1
    pairs = Counter(
        [*_view_character_pairs(text[:even]), *_view_character_pairs(text[1 : even - 1])]
    )
    apart = single["\0"]
    if apart:
        for pair in [pair for pair in pairs if not pair >> 32 or not pair & 0xFFFFFFFF]:
            del pairs[pair]
    number = sum(pairs.values())
    total = len(text) - apart
    if number < _MIN_JUDGED_PAIRS:
        return True
    same = sum(map(mul, pairs.values(), pairs.values())) - number
    alike = sum(map(mul, single.values(), single.values())) - apart * apart - total
    by_chance = (alike / (total * (total - 1))) ** 2
    return same > (1.3 * by_chance + 0.0003) * number * number + 4


def _view_character_pairs(text: str) -> memoryview[int]:
    """Return the characters two by two, as numbers."""
    return memoryview(text.encode("utf-32-le")).cast("B").cast("Q")
