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

from trimtab.log.message import Message, Text, ToolCall, ToolResult
from trimtab.summaries.format import (
    DEFAULT_LIST_TOKENS,
    VerbatimList,
    cut_verbatim_list,
    format_verbatim_list,
    join_summary,
    sanitise_verbatim_item,
    split_summary,
)
from trimtab.text.identifiers import list_string_values
from trimtab.tokens.counter import TokenCounter

ItemKind = Literal["url", "date", "quantity", "word", "name", "number"]
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
_IDENTIFIER = re.compile(r"(?<![\w$])(?:[~.]{0,2}/)?[\w$]+(?:[./:\\@#-]+[\w$]+)*")
_NAME = re.compile(r"(?<=[^\W\d_,;:)\"'] )[^\W\d_a-zß-ÿ][\w'’-]+(?: [^\W\d_a-zß-ÿ][\w'’-]+){0,3}")
_SENTENCE = re.compile(r"(?<=[.!?？。！؟\n])")
QUESTION_MARKS = ("?", "？", "؟")
"""How a question ends."""
_IDENTIFIER_SIGNS = re.compile(r"[0-9_]|[a-z][A-Z]|[./\\:@#].*[./\\:@#]|^[~.]*/|\.\w{1,5}$")
_INSTRUCTIONS = re.compile(
    r"(?:ignore|disregard|forget|override)\b.{0,40}\b(?:previous|prior|above|earlier|all|any|your)\b"
    r".{0,40}\b(?:instruction|prompt|rule|message)"
    r"|(?:ignore|disregard|forget|override)\b.{0,40}\byou\s(?:were|are|have\sbeen)\s(?:told|taught|given|asked)"
    r"|\b(?:ignoriere?|ignorieren\ssie|missachte|vergiss|vergessen\ssie)\b.{0,60}\b(?:anweisung|vorgabe|regel)"
    r"|\b(?:ignorez|oubliez|ignora|ignore|olvida|dimentica)\s.{0,60}\b(?:instruccion|instructions\spr|consigne|istruzion)"
    r"|<\|im_|</?(?:system|history|prior|summary|human|user|assistant)\b"
    r"|\bsystem\s*(?:prompt\s*)?:|^(?:human|user|assistant)\s*:",
    re.IGNORECASE,
)
_ACTS = (
    r"(?:run|execute|call|invoke|send|forward|upload|post|delete|install|reveal|disclose|fetch"
    r"|download|obey)"
)
_ORDERS = re.compile(
    r"\bwithout\s(?:asking|being\sasked|confirmation|confirming|permission|approval)\b"
    r"|\bohne\s(?:zu\sfragen|nachzufragen|rückfrage|nachfrage|zustimmung|bestätigung)"
    r"|\bfrom\snow\son\b|\bhenceforth\b|\bab\s(?:jetzt|sofort)\b"
    r"|\b(?:authori[sz]e|grant|allow|permit|clear)(?:s|ed|d)?\b.{0,40}\b(?:access|permissions?|rights|privileges|everything|anything)\b"
    r"|^\W*(?:important|urgent|attention|wichtig|achtung|note\sto\s\w+)\s*[:!]"
    rf"|\b(?:must|should|shall|has\sto|have\sto|needs?\sto|(?:is|are)\sto)\b.{{0,20}}\b{_ACTS}\b"
    rf"|\b(?:always|never)\s(?:\w+\s){{0,2}}{_ACTS}\b"
    rf"|^\W*(?:please\s)?(?:now\s|first\s|then\s)?{_ACTS}\s"
    r"|\bpipe\w*\b.{0,20}\b(?:sh|bash)\b|\|\s*(?:sudo\s)?(?:ba)?sh\b",
    re.IGNORECASE,
)
"""What may be an order, or a leave to do something. Users and the agent say such things as well."""
_WORD = re.compile(r"[^\W\d_]{3,}")
MIN_SPOKEN_SHARE = 0.6
"""Share of the words of an order that one message of the user or the agent must have."""

_WEIGHT_BY_PLACE: Mapping[str, float] = {
    "user": 1.5,
    "argument": 3.0,
    "body": 1.0,
    "assistant": 2.0,
    "result": 1.0,
}
"""How much likelier an item is needed again for having been named there; places multiply."""
_RESULT_ONLY_WEIGHT = 0.25
"""The same for what nobody but tools has named."""
_WEIGHT_BY_KIND: Mapping[ItemKind, float] = {
    "url": 1.0,
    "date": 0.5,
    "quantity": 0.5,
    "word": 1.0,
    "name": 0.2,
    "number": 0.3,
}
_DIGEST_WEIGHT = 0.5
"""The same for hashes, ids of 128 bits and moments: machines name them, and many."""
_IS_DIGEST = re.compile(
    r"(?i)(?=\D*\d)[0-9a-f]{7,}$|[0-9a-f]{8}-[0-9a-f]{4}-|\S*\d{4}-\d\d-\d\dT|\S*:\d+$"
)
MAX_NAMING_ARGUMENT_CHARS = 200
"""Of an argument that names something; a longer one is a body, such as a file's new text."""
SUMMARY_FRAME_TOKENS = 48
"""Of the line before a summary and of the message that it stands in, at most."""
MAX_OPEN_QUESTION_CHARS = 160
"""Of a question or request that are kept."""
MAX_OPEN_QUESTIONS = 4
"""Questions and requests that are kept."""
MAX_SCANNED_CHARS = 20_000
"""Characters of one text that are looked through, half at each end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededFacts:
    """What later turns are likely to ask for."""

    open_questions: tuple[str, ...] = ()
    """The user's questions, and the latest request, that no text of the assistant follows."""
    items: tuple[str, ...] = ()
    """Names, paths, figures, dates and addresses, most likely needed first."""


def find_needed_facts(messages: Sequence[Message]) -> NeededFacts:
    """What messages name that later turns are likely to need.

    What tools were called with counts most, then what was said; what only results hold counts
    least. What was named late counts more. Of two that are as likely the shorter goes first, for
    more of its kind fit. docs/summaries.md has what this was measured on.
    """
    places: dict[str, set[str]] = {}
    kinds: dict[str, ItemKind] = {}
    last: dict[str, int] = {}
    for index, message in enumerate(messages):
        for place, text in _texts_with_place(message):
            for item, kind in find_named_items(text).items():
                if kind == "name" and place == "result":
                    continue
                places.setdefault(item, set()).add(place)
                kinds.setdefault(item, kind)
                last[item] = index

    def weight(item: str) -> float:
        likely = _WEIGHT_BY_KIND[kinds[item]] * math.prod(
            _WEIGHT_BY_PLACE[place] for place in places[item]
        )
        if places[item] == {"result"}:
            likely *= _RESULT_ONLY_WEIGHT
        if _IS_DIGEST.match(item):
            likely *= _DIGEST_WEIGHT
        late = 1 + (last[item] + 1) / (2 * len(messages))
        return likely * late / math.sqrt(2 + len(item))

    ranked = sorted(places, key=lambda item: (-weight(item), item))
    return NeededFacts(open_questions=_open_questions(messages), items=tuple(ranked))


def find_named_items(text: str) -> dict[str, ItemKind]:
    """What a text names, each once, in order of kind; nothing is found twice."""
    if len(text) > MAX_SCANNED_CHARS:
        text = f"{text[: MAX_SCANNED_CHARS // 2]}\n{text[-MAX_SCANNED_CHARS // 2 :]}"
    found: dict[str, ItemKind] = {}
    patterns: tuple[tuple[ItemKind, re.Pattern[str]], ...] = (
        ("url", _URL),
        ("date", _DATE),
        ("quantity", _QUANTITY),
        ("word", _IDENTIFIER),
        ("number", _NUMBER),
        ("name", _NAME),
    )
    for kind, pattern in patterns:

        def take(match: re.Match[str], kind: ItemKind = kind) -> str:
            item = match[0].rstrip(".,;:!?'\"")
            if kind == "word" and not _is_identifier(item):
                return match[0]
            if len(item) >= 2:
                found.setdefault(sanitise_verbatim_item(item), kind)
            return "\0"

        text = pattern.sub(take, text)
    return found


def find_missing_items(items: Iterable[str], text: str) -> list[str]:
    """Those that a text does not say, whatever their case."""
    folded = text.casefold()
    return [item for item in items if not _contains_item(folded, item.casefold())]


def build_verbatim_list(
    prior_list: VerbatimList,
    messages: Sequence[Message],
    sections_text: str,
    counter: TokenCounter,
    *,
    max_tokens: int = DEFAULT_LIST_TOKENS,
    visible_text: str = "",
) -> VerbatimList:
    """The list that stands beside a summary: what its sections do not say of what is needed.

    What is still `seen` is not put on it: it comes when that, too, is summarised.

    What the prior list has goes on, as long as there is room. Where there is none, its first half
    stays as it is, or what is oldest would move back with every summary until it falls off; of the
    rest one item stays for each new one.
    """
    need = find_needed_facts(messages)
    known = set(prior_list.items)
    new = find_missing_items(
        (item for item in need.items if item not in known), f"{sections_text}\n{visible_text}"
    )
    old = find_missing_items(prior_list.items, sections_text)
    settled = cut_verbatim_list(VerbatimList(items=tuple(old)), counter, max_tokens // 2).items
    # A question that somebody has replied to since is old news: it goes first.
    replied = any(message.role == "assistant" and message.text.strip() for message in messages)
    asked = [text for text in prior_list.open_questions if text not in need.open_questions]
    waiting = need.open_questions if replied else (*need.open_questions, *asked)
    listed = VerbatimList(
        open_questions=tuple(waiting), items=(*settled, *_interleave(new, old[len(settled) :]))
    )
    whole = VerbatimList(open_questions=(*need.open_questions, *asked), items=listed.items)
    if cut_verbatim_list(whole, counter, max_tokens) == whole:
        return whole
    return cut_verbatim_list(listed, counter, max_tokens)


def compute_list_room(
    sections_text: str,
    prior_list: VerbatimList,
    counter: TokenCounter,
    replaced_tokens: int,
    max_list_tokens: int,
) -> int:
    """Tokens that a list may take, so that the summary stays smaller than what it replaces.

    Half of what the sections save, or as much as the list took before.
    """
    saved = replaced_tokens - counter.count(sections_text) - SUMMARY_FRAME_TOKENS
    before = counter.count(format_verbatim_list(prior_list))
    return max(0, min(max_list_tokens, saved, max(before, saved // 2)))


def add_verbatim_list(
    prior_summary: str,
    messages: Sequence[Message],
    summary_text: str,
    counter: TokenCounter,
    *,
    list_tokens: int = DEFAULT_LIST_TOKENS,
    visible_text: str = "",
) -> str:
    """A summary's text with the list that belongs beside it, whoever made the text.

    `prior` is the whole summary before it: its list is carried on, and what its sections named. A
    list that the text brings along is not believed. `seen` is what stands behind the messages and
    stays.
    """
    body, _ = split_summary(summary_text)
    told, listed = split_summary(prior_summary)
    before = replace(listed, items=tuple(dict.fromkeys((*listed.items, *find_named_items(told)))))
    return join_summary(
        body,
        build_verbatim_list(
            before, messages, body, counter, max_tokens=list_tokens, visible_text=visible_text
        ),
    )


def find_invented_items(line: str, normalised_source: str) -> list[str]:
    """What a line names that its source, folded by `folded`, does not."""
    made_up: list[str] = []
    for item, kind in find_named_items(line).items():
        if kind == "name" or (kind == "word" and not _is_unmistakable(item)):
            continue
        # A figure may be written otherwise, and a date put together from what was said apart.
        numbers = re.findall(r"\d+", item if kind == "date" else _normalise(item))
        known = kind != "word" and all(
            number.lstrip("0") in normalised_source for number in numbers
        )
        if not known and _normalise(item) not in normalised_source:
            made_up.append(item)
    return made_up


def normalise_source(texts: Iterable[str]) -> str:
    """All that was said, in the form that `find_invented_items` looks things up in."""
    return _normalise("\n".join(texts))


def is_instruction_line(line: str) -> bool:
    """Whether a line tells its reader what to do, or lets somebody speak, instead of telling what
    was said."""
    return _INSTRUCTIONS.search(line) is not None


def is_order_that_nobody_gave(line: str, spoken_texts: Sequence[str]) -> bool:
    """Whether a line orders or permits something that neither the user nor the agent spoke of.

    What only a tool's result says is data: it must not become a rule by being summarised.
    """
    if _ORDERS.search(line) is None:
        return False
    if find_invented_items(line, normalise_source(spoken_texts)):
        return True
    words = set(_WORD.findall(line.casefold()))
    least = MIN_SPOKEN_SHARE * len(words)
    return all(
        len(words.intersection(_WORD.findall(text.casefold()))) < least for text in spoken_texts
    )


def list_spoken_texts(messages: Iterable[Message]) -> list[str]:
    """What users and the agent have said, without what tools gave back."""
    return [
        text
        for message in messages
        for place, text in _texts_with_place(message)
        if place != "result"
    ]


def list_message_texts(messages: Iterable[Message]) -> list[str]:
    """All texts of messages, whole."""
    return [text for message in messages for _, text in _texts_with_place(message)]


def _normalise(text: str) -> str:
    """Without case, spaces and the signs by which figures are grouped."""
    return re.sub(r"[\s,'’_]", "", text.casefold())


def _texts_with_place(message: Message) -> list[tuple[str, str]]:
    """Each text of a message, with the place it stands in."""
    told: list[tuple[str, str]] = []
    for part in message.parts:
        match part:
            case Text():
                told.append(("user" if message.role == "user" else "assistant", part.text))
            case ToolCall():
                told.append(("argument", part.name))
                for text in list_string_values(part.arguments):
                    short = len(text) <= MAX_NAMING_ARGUMENT_CHARS
                    told.append(("argument" if short else "body", text))
            case ToolResult():
                told.append(("result", part.text))
            case _:
                pass
    return told


def _open_questions(messages: Sequence[Message]) -> tuple[str, ...]:
    """What the user asked last, if no text of the assistant follows."""
    asked: list[str] = []
    for message in reversed(messages):
        if message.role == "assistant" and message.text.strip():
            break
        if message.role == "user" and (text := message.text.strip()):
            questions = [
                said.strip() for said in _SENTENCE.split(text) if said.endswith(QUESTION_MARKS)
            ]
            asked = [*(questions or [text]), *asked]
    short = (sanitise_verbatim_item(text[:MAX_OPEN_QUESTION_CHARS]) for text in asked if text)
    return tuple(dict.fromkeys(short))[-MAX_OPEN_QUESTIONS:]


def _interleave(new: Sequence[str], old: Sequence[str]) -> tuple[str, ...]:
    both: list[str] = []
    for index in range(max(len(new), len(old))):
        both += [*old[index : index + 1], *new[index : index + 1]]
    return tuple(dict.fromkeys(both))


def _is_identifier(text: str) -> bool:
    """Whether it is an identifier or a path, by its form, and neither prose nor a plain number."""
    return (
        len(text) >= 4
        and _IDENTIFIER_SIGNS.search(text) is not None
        and re.search(r"[^\W\d_]", text) is not None
    )


def _is_unmistakable(word: str) -> bool:
    """Whether nobody writes this in prose: `input/output` and `e.g` are."""
    return (
        len(word) >= 5 and re.search(r"[0-9_]|[a-z][A-Z]|^[~.]*/|\.[a-z]{2,5}$", word) is not None
    )


def _contains_item(text: str, item: str) -> bool:
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
