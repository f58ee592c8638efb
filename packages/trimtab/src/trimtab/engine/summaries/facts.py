"""Find what a summary must keep, what it lost and what it invented.

No model is used: names, paths, figures, dates, addresses and open questions are found by their
form. Those that the summary does not contain are kept beside it, in a list of its own size.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trimtab.engine.log.message import Message, Text, ToolCall, ToolResult
from trimtab.engine.summaries.format import (
    DEFAULT_LIST_TOKENS,
    VerbatimList,
    cut_verbatim_list,
    format_verbatim_list,
    join_summary,
    sanitise_verbatim_item,
    split_summary,
)
from trimtab.engine.text.identifiers import list_string_values
from trimtab.engine.tokens.counter import TokenCounter

ItemKind = Literal["url", "date", "quantity", "word", "name", "number"]
"""The kind of an item by its form. A `word` is an identifier or a path."""

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
"""Characters that end a question."""
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
"""Phrases that may be an order or a permission. Users and the agent also use such phrases."""
_WORD = re.compile(r"[^\W\d_]{3,}")
MIN_SPOKEN_SHARE = 0.6
"""Minimum share of an order's words that one message of the user or the agent must contain."""

_WEIGHT_BY_PLACE: Mapping[str, float] = {
    "user": 1.5,
    "argument": 3.0,
    "body": 1.0,
    "assistant": 2.0,
    "result": 1.0,
}
"""How much more likely an item is needed again if it was named in this place. Places multiply."""
_RESULT_ONLY_WEIGHT = 0.25
"""The same for items that only tool results contain."""
_WEIGHT_BY_KIND: Mapping[ItemKind, float] = {
    "url": 1.0,
    "date": 0.5,
    "quantity": 0.5,
    "word": 1.0,
    "name": 0.2,
    "number": 0.3,
}
_DIGEST_WEIGHT = 0.5
"""The same for hashes, ids of 128 bits and timestamps: machines write many of them."""
_IS_DIGEST = re.compile(
    r"(?i)(?=\D*\d)[0-9a-f]{7,}$|[0-9a-f]{8}-[0-9a-f]{4}-|\S*\d{4}-\d\d-\d\dT|\S*:\d+$"
)
MAX_NAMING_ARGUMENT_CHARS = 200
"""Maximum characters of an argument that names something. A longer one is a body, such as a file's
new text."""
SUMMARY_FRAME_TOKENS = 48
"""Maximum tokens of the line before a summary and of the message around it."""
MAX_OPEN_QUESTION_CHARS = 160
"""Maximum characters of a question or request."""
MAX_OPEN_QUESTIONS = 4
"""Maximum number of questions and requests."""
MAX_SCANNED_CHARS = 20_000
"""Maximum characters of one text to search, half at each end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededFacts:
    """Facts that later turns are likely to need."""

    open_questions: tuple[str, ...] = ()
    """The user's questions, and the latest request, that the assistant has not answered."""
    items: tuple[str, ...] = ()
    """Names, paths, figures, dates and addresses, the most likely needed first."""


def find_needed_facts(messages: Sequence[Message]) -> NeededFacts:
    """Find facts in messages that later turns are likely to need.

    Arguments of tool calls count most, then messages. Items that only results contain count least.
    Later items count more. Of two equally likely items the shorter comes first, because more of
    them fit. docs/summaries.md says on which data this was measured.
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

    ranking = sorted(places, key=lambda item: (-weight(item), item))
    return NeededFacts(open_questions=_open_questions(messages), items=tuple(ranking))


def find_named_items(text: str) -> dict[str, ItemKind]:
    """Return the items that a text names, each once, ordered by kind."""
    if len(text) > MAX_SCANNED_CHARS:
        text = f"{text[: MAX_SCANNED_CHARS // 2]}\n{text[-MAX_SCANNED_CHARS // 2 :]}"
    kinds: dict[str, ItemKind] = {}
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
                kinds.setdefault(sanitise_verbatim_item(item), kind)
            return "\0"

        text = pattern.sub(take, text)
    return kinds


def find_missing_items(items: Iterable[str], text: str) -> list[str]:
    """Return the items that a text does not contain, ignoring case."""
    haystack = text.casefold()
    return [item for item in items if not _contains_item(haystack, item.casefold())]


def build_verbatim_list(
    prior_list: VerbatimList,
    messages: Sequence[Message],
    sections_text: str,
    counter: TokenCounter,
    *,
    facts: NeededFacts,
    max_tokens: int = DEFAULT_LIST_TOKENS,
    visible_text: str = "",
) -> VerbatimList:
    """Build the list beside a summary: the needed items that its sections do not contain.

    `facts` are what `find_needed_facts` has found in the messages. Items in `visible_text` are left
    out until that text is also summarised.

    The items of the previous list stay as long as there is room. If there is no room, its first
    half stays unchanged. Otherwise the oldest items would move back with every summary until they
    are lost. In the rest, one old item stays for each new one.
    """
    prior_items = set(prior_list.items)
    new = find_missing_items(
        (item for item in facts.items if item not in prior_items),
        f"{sections_text}\n{visible_text}",
    )
    old = find_missing_items(prior_list.items, sections_text)
    covered_items = cut_verbatim_list(
        VerbatimList(items=tuple(old)), counter, max_tokens // 2
    ).items
    # A question that has got a reply since is the first to be left out.
    has_reply = any(message.role == "assistant" and message.text.strip() for message in messages)
    old_questions = [text for text in prior_list.open_questions if text not in facts.open_questions]
    waiting = facts.open_questions if has_reply else (*facts.open_questions, *old_questions)
    short_list = VerbatimList(
        open_questions=tuple(waiting),
        items=(*covered_items, *_interleave(new, old[len(covered_items) :])),
    )
    whole = VerbatimList(
        open_questions=(*facts.open_questions, *old_questions), items=short_list.items
    )
    if cut_verbatim_list(whole, counter, max_tokens) == whole:
        return whole
    return cut_verbatim_list(short_list, counter, max_tokens)


def compute_list_room(
    sections_text: str,
    prior_list: VerbatimList,
    counter: TokenCounter,
    replaced_tokens: int,
    max_list_tokens: int,
) -> int:
    """Return the tokens for a list so that the summary stays smaller than what it replaces.

    That is half of what the sections save, or the previous size of the list.
    """
    gain = replaced_tokens - counter.count(sections_text) - SUMMARY_FRAME_TOKENS
    before = counter.count(format_verbatim_list(prior_list))
    return max(0, min(max_list_tokens, gain, max(before, gain // 2)))


def add_verbatim_list(
    prior_summary: str,
    messages: Sequence[Message],
    summary_text: str,
    counter: TokenCounter,
    *,
    list_tokens: int = DEFAULT_LIST_TOKENS,
    visible_text: str = "",
) -> str:
    """Return a summary's text with its list, whoever wrote the text.

    `prior_summary` is the whole previous summary. Its list and the items in its sections are kept.
    A list in `summary_text` is ignored. `visible_text` is the text after the messages that stays
    visible.
    """
    body, _ = split_summary(summary_text)
    verbatim_list = build_verbatim_list(
        add_items_of_sections(*split_summary(prior_summary)),
        messages,
        body,
        counter,
        facts=find_needed_facts(messages),
        max_tokens=list_tokens,
        visible_text=visible_text,
    )
    return join_summary(body, verbatim_list)


def add_items_of_sections(sections_text: str, verbatim_list: VerbatimList) -> VerbatimList:
    """Return the list of a summary with the items that its sections name."""
    items = dict.fromkeys((*verbatim_list.items, *find_named_items(sections_text)))
    return replace(verbatim_list, items=tuple(items))


def find_invented_items(line: str, normalised_source: str) -> list[str]:
    """Return items of a line that its source does not contain. `normalise_source` made the
    source."""
    made_up: list[str] = []
    for item, kind in find_named_items(line).items():
        if kind == "name" or (kind == "word" and not _is_unmistakable(item)):
            continue
        # A figure may be written otherwise, and a date put together from what was said apart.
        numbers = re.findall(r"\d+", item if kind == "date" else _normalise(item))
        is_in_source = kind != "word" and all(
            number.lstrip("0") in normalised_source for number in numbers
        )
        if not is_in_source and _normalise(item) not in normalised_source:
            made_up.append(item)
    return made_up


def normalise_source(texts: Iterable[str]) -> str:
    """Return all texts in the form in which `find_invented_items` searches."""
    return _normalise("\n".join(texts))


def is_instruction_line(line: str) -> bool:
    """Whether a line gives its reader an instruction or imitates a speaker, instead of
    reporting."""
    return _INSTRUCTIONS.search(line) is not None


def is_order_that_nobody_gave(line: str, spoken_texts: Sequence[str]) -> bool:
    """Whether a line orders or permits something that neither the user nor the agent mentioned.

    A tool result is only data: a summary must not turn it into a rule.
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
    """Return the texts of users and the agent, without tool results."""
    return [
        text
        for message in messages
        for place, text in _texts_with_place(message)
        if place != "result"
    ]


def list_message_texts(messages: Iterable[Message]) -> list[str]:
    """Return all texts of messages in full."""
    return [text for message in messages for _, text in _texts_with_place(message)]


def _normalise(text: str) -> str:
    """Remove case, spaces and the separators of digits."""
    return re.sub(r"[\s,'’_]", "", text.casefold())


def _texts_with_place(message: Message) -> list[tuple[str, str]]:
    """Return each text of a message with its place."""
    texts: list[tuple[str, str]] = []
    for part in message.parts:
        match part:
            case Text(is_document=True):
                texts.append(("result", part.text))
            case Text():
                texts.append(("user" if message.role == "user" else "assistant", part.text))
            case ToolCall():
                texts.append(("argument", part.name))
                for text in list_string_values(part.arguments):
                    short = len(text) <= MAX_NAMING_ARGUMENT_CHARS
                    texts.append(("argument" if short else "body", text))
            case ToolResult():
                texts.append(("result", part.text))
            case _:
                pass
    return texts


def _open_questions(messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the user's last questions if the assistant has not answered."""
    user_texts: list[str] = []
    for message in reversed(messages):
        if message.role == "assistant" and message.text.strip():
            break
        parts = [p.text for p in message.parts if isinstance(p, Text) and not p.is_document]
        if message.speaker == "user" and (text := "\n".join(parts).strip()):
            questions = [
                sentence.strip()
                for sentence in _SENTENCE.split(text)
                if sentence.endswith(QUESTION_MARKS)
            ]
            user_texts = [*(questions or [text]), *user_texts]
    short = (sanitise_verbatim_item(text[:MAX_OPEN_QUESTION_CHARS]) for text in user_texts if text)
    return tuple(dict.fromkeys(short))[-MAX_OPEN_QUESTIONS:]


def _interleave(new: Sequence[str], old: Sequence[str]) -> tuple[str, ...]:
    both: list[str] = []
    for index in range(max(len(new), len(old))):
        both += [*old[index : index + 1], *new[index : index + 1]]
    return tuple(dict.fromkeys(both))


def _is_identifier(text: str) -> bool:
    """Whether a text has the form of an identifier or a path, not of prose or a plain number."""
    return (
        len(text) >= 4
        and _IDENTIFIER_SIGNS.search(text) is not None
        and re.search(r"[^\W\d_]", text) is not None
    )


def _is_unmistakable(word: str) -> bool:
    """Whether a word is never part of prose. `input/output` and `e.g` may be."""
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
