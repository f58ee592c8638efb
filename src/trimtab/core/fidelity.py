"""What a summary must not lose, what it lost, and what it made up.

No model is asked: names, paths, figures, dates, addresses and open questions are found by their
form. Those that the summary does not say are carried on beside it, in a list of its own size.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trimtab.core.message import Message, Text, ToolCall, ToolResult
from trimtab.core.summary_text import (
    LIST_TOKENS,
    Listed,
    joined,
    listed_text,
    plain,
    split,
    within,
)
from trimtab.core.tokens import Counter
from trimtab.core.words import values

Kind = Literal["url", "date", "quantity", "word", "name", "number"]
"""What an item is by its form; a `word` is an identifier or a path."""

# Every repetition is bounded, or begins where nothing of its kind stands before it: a text of one
# letter, or of digits and spaces, must not take the square of its length.
_URL = re.compile(
    r"\bhttps?://[^\s<>\"'`)\]}]+|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{0,64}\w"
)
_MONTH = (
    r"(?:Jan(?:uary|uar)?|Feb(?:ruary|ruar)?|M(?:arch|är[zZ]?|ar)|Apr(?:il)?|Ma[yi]|June?|Juni?"
    r"|July?|Juli?|Aug(?:ust)?|Sep(?:t(?:ember)?)?|O[ck]t(?:ober)?|Nov(?:ember)?|De[cz](?:ember)?)"
)
_DATE = re.compile(
    r"\b(?:\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?)?|\d{1,2}[./]\d{1,2}[./]\d{2,4}"
    rf"|\d{{1,2}}\.?\s{_MONTH}\.?(?:\s\d{{4}})?|{_MONTH}\.?\s\d{{1,2}}(?:st|nd|rd|th)?(?:,?\s\d{{4}})?"
    r"|\d{1,2}:\d{2}(?::\d{2})?(?:\s?[ap]\.?m\b)?)(?!\w)"
)
_QUANTITY = re.compile(
    r"(?<![\w.,])(?:[$€£¥]\s?\d[\d,.]{0,24}\d|[$€£¥]\s?\d"
    r"|\d(?:[\d,. ]{0,24}\d)?\s?(?:%|°[CF]?|[$€£¥]"
    r"|(?:[kMGT]i?B|[kMG]?Hz|ms|[µn]s|kg|km|cm|mm|px|pt|kWh?|USD|EUR|GBP|CHF|bytes|tokens|seconds"
    r"|minutes|hours|days|weeks|months|years|Stunden|Tage|Wochen|Monate|Jahre|Euro)\b))"
)
_NUMBER = re.compile(
    r"(?<![\w.,/:-])\d[\d,.]{0,24}\d\d(?![\w/:-])|(?<![\w.,/:-])\d{1,24}\.\d{1,24}(?![\w/:.-])"
)
_WORD = re.compile(r"(?<![\w$])(?:[~.]{0,2}/)?[\w$]+(?:[./:\\@#-]+[\w$]+)*")
_NAME = re.compile(r"(?<=[^\W\d_,;:)\"'] )[^\W\d_a-zß-ÿ][\w'’-]+(?: [^\W\d_a-zß-ÿ][\w'’-]+){0,3}")
_SENTENCE = re.compile(r"(?<=[.!?？。！؟\n])")
ASKS = ("?", "？", "؟")
"""How a question ends."""
_TELLS = re.compile(r"[0-9_]|[a-z][A-Z]|[./\\:@#].*[./\\:@#]|^[~.]*/|\.\w{1,5}$")
_ORDERS = re.compile(
    r"(?:ignore|disregard|forget|override)\b.{0,40}\b(?:previous|prior|above|earlier|all|any|your)\b"
    r".{0,40}\b(?:instruction|prompt|rule|message)|<\|im_|</?(?:system|history|prior|summary|human|user|assistant)\b"
    r"|\bsystem\s*(?:prompt\s*)?:|^(?:human|user|assistant)\s*:",
    re.IGNORECASE,
)

_BY_PLACE: Mapping[str, float] = {
    "user": 1.5,
    "argument": 3.0,
    "body": 1.0,
    "assistant": 2.0,
    "result": 1.0,
}
"""How much likelier an item is needed again for having been named there; places multiply."""
_ONLY_RESULTS = 0.25
"""The same for what nobody but tools has named."""
_BY_KIND: Mapping[Kind, float] = {
    "url": 1.0,
    "date": 0.5,
    "quantity": 0.5,
    "word": 1.0,
    "name": 0.2,
    "number": 0.3,
}
_DIGEST = 0.5
"""The same for hashes, ids of 128 bits and moments: machines name them, and many."""
_IS_DIGEST = re.compile(
    r"(?i)(?=\D*\d)[0-9a-f]{7,}$|[0-9a-f]{8}-[0-9a-f]{4}-|\S*\d{4}-\d\d-\d\dT|\S*:\d+$"
)
ARGUMENT_CHARS = 200
"""Of an argument that names something; a longer one is a body, such as a file's new text."""
FRAME_TOKENS = 48
"""Of the line before a summary and of the message that it stands in, at most."""
OPEN_CHARS = 160
"""Of a question or request that are kept."""
MOST_OPEN = 4
"""Questions and requests that are kept."""
LOOKED_AT = 20_000
"""Characters of one text that are looked through, half at each end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What later turns are likely to ask for."""

    open: tuple[str, ...] = ()
    """The user's questions, and the latest request, that no text of the assistant follows."""
    items: tuple[str, ...] = ()
    """Names, paths, figures, dates and addresses, most likely needed first."""


def need_of(messages: Sequence[Message]) -> Need:
    """What messages name that later turns are likely to need.

    What tools were called with counts most, then what was said; what only results hold counts
    least. What was named late counts more. Of two that are as likely the shorter goes first, for
    more of its kind fit. docs/summaries.md has what this was measured on.
    """
    places: dict[str, set[str]] = {}
    kinds: dict[str, Kind] = {}
    last: dict[str, int] = {}
    for index, message in enumerate(messages):
        for place, text in _told(message):
            for item, kind in items_in(text).items():
                if kind == "name" and place == "result":
                    continue
                places.setdefault(item, set()).add(place)
                kinds.setdefault(item, kind)
                last[item] = index

    def weight(item: str) -> float:
        likely = _BY_KIND[kinds[item]] * math.prod(_BY_PLACE[place] for place in places[item])
        if places[item] == {"result"}:
            likely *= _ONLY_RESULTS
        if _IS_DIGEST.match(item):
            likely *= _DIGEST
        late = 1 + (last[item] + 1) / (2 * len(messages))
        return likely * late / math.sqrt(2 + len(item))

    ranked = sorted(places, key=lambda item: (-weight(item), item))
    return Need(open=_open(messages), items=tuple(ranked))


def items_in(text: str) -> dict[str, Kind]:
    """What a text names, each once, in order of kind; nothing is found twice."""
    if len(text) > LOOKED_AT:
        text = f"{text[: LOOKED_AT // 2]}\n{text[-LOOKED_AT // 2 :]}"
    found: dict[str, Kind] = {}
    patterns: tuple[tuple[Kind, re.Pattern[str]], ...] = (
        ("url", _URL),
        ("date", _DATE),
        ("quantity", _QUANTITY),
        ("word", _WORD),
        ("number", _NUMBER),
        ("name", _NAME),
    )
    for kind, pattern in patterns:

        def take(match: re.Match[str], kind: Kind = kind) -> str:
            item = match[0].rstrip(".,;:!?'\"")
            if kind == "word" and not _is_word(item):
                return match[0]
            if len(item) >= 2:
                found.setdefault(plain(item), kind)
            return "\0"

        text = pattern.sub(take, text)
    return found


def missing(items: Iterable[str], text: str) -> list[str]:
    """Those that a text does not say, whatever their case."""
    folded = text.casefold()
    return [item for item in items if not _says(folded, item.casefold())]


def carried(
    prior: Listed,
    messages: Sequence[Message],
    body: str,
    counter: Counter,
    *,
    max_tokens: int = LIST_TOKENS,
    seen: str = "",
) -> Listed:
    """The list that stands beside a summary: what its sections do not say of what is needed.

    What is still `seen` is not put on it: it comes when that, too, is summarised.

    What the prior list has goes on, as long as there is room. Where there is none, its first half
    stays as it is, or what is oldest would move back with every summary until it falls off; of the
    rest one item stays for each new one.
    """
    need = need_of(messages)
    known = set(prior.items)
    new = missing((item for item in need.items if item not in known), f"{body}\n{seen}")
    old = missing(prior.items, body)
    settled = within(Listed(items=tuple(old)), counter, max_tokens // 2).items
    # A question that somebody has replied to since is old news: it goes first.
    replied = any(message.role == "assistant" and message.text.strip() for message in messages)
    asked = [text for text in prior.open if text not in need.open]
    waiting = need.open if replied else (*need.open, *asked)
    listed = Listed(open=tuple(waiting), items=(*settled, *_in_turn(new, old[len(settled) :])))
    whole = Listed(open=(*need.open, *asked), items=listed.items)
    if within(whole, counter, max_tokens) == whole:
        return whole
    return within(listed, counter, max_tokens)


def list_room(body: str, prior: Listed, counter: Counter, replaced: int, list_tokens: int) -> int:
    """Tokens that a list may take, so that the summary stays smaller than what it replaces.

    Half of what the sections save, or as much as the list took before.
    """
    saved = replaced - counter.count(body) - FRAME_TOKENS
    before = counter.count(listed_text(prior))
    return max(0, min(list_tokens, saved, max(before, saved // 2)))


def with_list(
    prior: str,
    messages: Sequence[Message],
    text: str,
    counter: Counter,
    *,
    list_tokens: int = LIST_TOKENS,
    seen: str = "",
) -> str:
    """A summary's text with the list that belongs beside it, whoever made the text.

    `prior` is the whole summary before it: its list is carried on, and what its sections named. A
    list that the text brings along is not believed. `seen` is what stands behind the messages and
    stays.
    """
    body, _ = split(text)
    told, listed = split(prior)
    before = replace(listed, items=tuple(dict.fromkeys((*listed.items, *items_in(told)))))
    return joined(body, carried(before, messages, body, counter, max_tokens=list_tokens, seen=seen))


def invented(line: str, source: str) -> list[str]:
    """What a line names that its source, folded by `folded`, does not."""
    made_up: list[str] = []
    for item, kind in items_in(line).items():
        if kind == "name" or (kind == "word" and not _is_certain(item)):
            continue
        # A figure may be written otherwise, and a date put together from what was said apart.
        numbers = re.findall(r"\d+", item if kind == "date" else _bare(item))
        known = kind != "word" and all(number.lstrip("0") in source for number in numbers)
        if not known and _bare(item) not in source:
            made_up.append(item)
    return made_up


def folded(texts: Iterable[str]) -> str:
    """All that was said, in the form that `invented` looks things up in."""
    return _bare("\n".join(texts))


def is_order(line: str) -> bool:
    """Whether a line tells its reader what to do, or lets somebody speak, instead of telling what
    was said."""
    return _ORDERS.search(line) is not None


def told_by(messages: Iterable[Message]) -> list[str]:
    """All texts of messages, whole."""
    return [text for message in messages for _, text in _told(message)]


def _bare(text: str) -> str:
    """Without case, spaces and the signs by which figures are grouped."""
    return re.sub(r"[\s,'’_]", "", text.casefold())


def _told(message: Message) -> list[tuple[str, str]]:
    """Each text of a message, with the place it stands in."""
    told: list[tuple[str, str]] = []
    for part in message.parts:
        match part:
            case Text():
                told.append(("user" if message.role == "user" else "assistant", part.text))
            case ToolCall():
                told.append(("argument", part.name))
                for text in values(part.arguments):
                    short = len(text) <= ARGUMENT_CHARS
                    told.append(("argument" if short else "body", text))
            case ToolResult():
                told.append(("result", part.text))
            case _:
                pass
    return told


def _open(messages: Sequence[Message]) -> tuple[str, ...]:
    """What the user asked last, if no text of the assistant follows."""
    asked: list[str] = []
    for message in reversed(messages):
        if message.role == "assistant" and message.text.strip():
            break
        if message.role == "user" and (text := message.text.strip()):
            questions = [said.strip() for said in _SENTENCE.split(text) if said.endswith(ASKS)]
            asked = [*(questions or [text]), *asked]
    short = (plain(text[:OPEN_CHARS]) for text in asked if text)
    return tuple(dict.fromkeys(short))[-MOST_OPEN:]


def _in_turn(new: Sequence[str], old: Sequence[str]) -> tuple[str, ...]:
    both: list[str] = []
    for index in range(max(len(new), len(old))):
        both += [*old[index : index + 1], *new[index : index + 1]]
    return tuple(dict.fromkeys(both))


def _is_word(text: str) -> bool:
    """Whether it is an identifier or a path, by its form, and neither prose nor a plain number."""
    return (
        len(text) >= 4
        and _TELLS.search(text) is not None
        and re.search(r"[^\W\d_]", text) is not None
    )


def _is_certain(word: str) -> bool:
    """Whether nobody writes this in prose: `input/output` and `e.g` are."""
    return (
        len(word) >= 5 and re.search(r"[0-9_]|[a-z][A-Z]|^[~.]*/|\.[a-z]{2,5}$", word) is not None
    )


def _says(text: str, item: str) -> bool:
    start = text.find(item)
    while start >= 0:
        end = start + len(item)
        inside = (start > 0 and text[start - 1].isalnum() and item[0].isalnum()) or (
            end < len(text) and text[end].isalnum() and item[-1].isalnum()
        )
        if not inside:
            return True
        start = text.find(item, start + 1)
    return False
