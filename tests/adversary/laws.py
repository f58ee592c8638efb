"""The laws of ARCHITECTURE.md, as they are seen from outside: from requests, sizes and texts.

Each takes what was seen and says which rule it breaks. None of them asks Trimtab anything; what it
declares, a size or the room, they are given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from tests.adversary.counting import count, sent, texts_of
from tests.adversary.findings import Broken

Wire = Mapping[str, Any]
MARKS = ("cache_control", "prompt_cache_breakpoint")
SHORT = 400
"""Characters up to which a question is short."""
LEAST_FALL = 0.01
"""Share by which a request must become smaller after it was refused for its length."""
OF_A_MESSAGE = ("role", "type", "content", "text", "annotations")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large a request says that it is, in tokens."""

    bound: int
    """The declared upper bound of the input."""
    output: int
    """The output that it asks for."""
    limit: int
    """What both together may reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What is left for messages."""

    tokens: int
    """As it is declared."""
    count: Callable[[str], int]
    """Tokens of a text, as they are counted for it."""


_HALF = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A user's message that can be found again: it begins and ends with its name."""

    name: str
    """Of this message alone."""
    words: str
    """What is said between."""

    @property
    def ends(self) -> tuple[str, str]:
        return f"«{self.name}»", f"¿{self.name}?"

    @property
    def text(self) -> str:
        """The whole message."""
        return f"{self.ends[0]} {self.words} {self.ends[1]}"


def output_of(request: Wire) -> int:
    """Tokens that a request asks for."""
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    return next((request[name] for name in names if request.get(name)), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """How many characters a request holds of a message."""

    head: int
    """Of its beginning."""
    tail: int
    """Of its end, if not all of it is there."""

    @property
    def characters(self) -> int:
        return self.head + self.tail


def all_of(question: Question) -> Kept:
    """What is kept of a message of which nothing was cut."""
    return Kept(head=len(on_the_wire(question.text)), tail=0)


def on_the_wire(text: str) -> str:
    """A text as it can be sent: for half of a surrogate pair a sign stands that says so."""
    return _HALF.sub("\ufffd", text)


def kept_of(request: Wire, question: Question) -> Kept:
    """What a request holds of a message, wherever it stands."""
    (first, last), whole = question.ends, on_the_wire(question.text)
    head = tail = 0
    for message in request.get("messages", request.get("input")) or ():
        for text in texts_of(message):
            if whole in text:
                return Kept(head=len(whole), tail=0)
            if first in text:
                head = _common(text[text.index(first) :], whole)
            if last in text:
                end = text.rindex(last) + len(last)
                tail = _common(text[:end][::-1], whole[::-1])
    return Kept(head=head, tail=min(tail, len(whole) - head))


def _common(one: str, other: str) -> int:
    """Characters that both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def newest_is_there(request: Wire, question: Question, size: Size) -> Iterator[Broken]:
    """The newest user message is there, whole or cut (law 3)."""
    if not kept_of(request, question).characters:
        free, length = size.limit - size.bound - size.output, len(on_the_wire(question.text))
        short = "a short newest user message" if length <= SHORT else "the newest user message"
        why = "there is room" if free > min(length, SHORT) else "other text is kept"
        detail = f"{length:,} characters were said; {free:,} of {size.limit:,} tokens are free"
        yield Broken(f"{short} is not cut to nothing while {why}", detail)


def newest_keeps_its_share(
    now: Kept, before: Kept, question: Question, room: Room
) -> Iterator[Broken]:
    """The text of the newest user message is cut last, and never below a quarter of the room
    (law 9); `before` is what was kept of it until now.

    A quarter of what is declared is asked for: that a limit which the provider has named was
    invented, nobody can know who cuts. It is there by the count in which it is declared or by ours:
    an estimate jumps where a text is long enough to look odd, and two ends may be just below that.
    Each cut is judged by the room in which it was made, for what was cut stays so in a larger one.
    """
    if not 0 < now.characters < before.characters:
        return
    whole = on_the_wire(question.text)
    ends = whole[: now.head] + whole[len(whole) - now.tail :]
    tokens, of = max(room.count(ends), count(sent(ends))), room.count(whole)
    if tokens < min(of, room.tokens // 4):
        detail = f"{tokens:,} of {of:,} tokens are kept, the room is {room.tokens:,}"
        yield Broken("the newest user message keeps a quarter of the room", detail)


def fits(size: Size) -> Iterator[Broken]:
    """Law 1, by what is declared."""
    if size.bound + size.output > size.limit:
        detail = f"{size.bound:,} + {size.output:,} of {size.limit:,}"
        yield Broken("bound and output are within the limit", detail)


def really_fits(real: int, size: Size) -> Iterator[Broken]:
    """Law 1 by what an exact tokenizer counts; 2 % are left for what stands around the texts."""
    if real + size.output > size.limit * 1.02:
        detail = f"{real:,} + {size.output:,} of {size.limit:,}"
        yield Broken("counted exactly, the request fits", detail)


def says_why(needed: int, limit: int) -> Iterator[Broken]:
    """Law 1: what cannot be sent needs more than the limit."""
    if needed <= limit:
        yield Broken("what is refused needs more than the limit", f"{needed:,} of {limit:,}")


def respects(size: Size, named: int) -> Iterator[Broken]:
    """A limit that the provider has named is never exceeded knowingly."""
    if size.bound + size.output > named:
        detail = f"{size.bound:,} + {size.output:,} of {named:,}"
        yield Broken("the limit that a refusal named is respected", detail)


def is_smaller(before: Size, after: Size) -> Iterator[Broken]:
    """Law 8: after a refusal without numbers, less is sent or less output is asked for."""
    if after.output < before.output:
        return
    detail = (
        f"bound {before.bound:,} → {after.bound:,}, output {before.output:,} → {after.output:,}"
    )
    if after.bound >= before.bound:
        yield Broken("after a refusal the bound is lower", detail)
    elif after.bound > (1 - LEAST_FALL) * before.bound and before.bound > 2_000:
        yield Broken("after a refusal the bound is lower by more than 1 %", detail)


def hides(before: int, after: int) -> Iterator[Broken]:
    """Law 8: a pass that hides something lowers the bound; both are given."""
    if after >= before:
        yield Broken("a pass that hides lowers the bound", f"{before:,} → {after:,}")


def blocks_of(request: Wire, dialect: str) -> list[Any]:
    """What a cache sees of a request, block by block, without marks."""
    head = {name: request[name] for name in ("tools", "system", "instructions") if name in request}
    blocks: list[Any] = [_plain(head)]
    for message in request.get("messages", request.get("input")) or ():
        plain = _plain(message)
        parts = plain.get("content")
        if dialect == "openai_chat" and plain.get("role") == "user":
            # What the user says next may stand in the same message: a paragraph is what stays.
            for part in [parts] if isinstance(parts, str) else parts or ():
                text = part if isinstance(part, str) else part.get("text")
                texts = text.split("\n\n") if isinstance(text, str) else [part]
                blocks += [("user", each) for each in texts]
            continue
        if dialect != "anthropic":
            blocks.append(plain)
            continue
        # Neighbours of one role are one message to this API: where they are split says nothing.
        parts = [{"type": "text", "text": parts}] if isinstance(parts, str) else parts
        blocks += [(plain["role"], part) for part in parts or ()]
    return blocks


def _plain(value: Any) -> Any:
    """Without cache marks; a text and a list that holds only it are the same to a cache."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    plain = {key: _plain(each) for key, each in value.items() if key not in MARKS}
    for name in ("content", "output", "system", "instructions"):
        match plain.get(name):
            case [{"text": str(only), **rest}] if not rest.keys() - set(OF_A_MESSAGE):
                plain[name] = only
            case _:
                pass
    return plain


def grows_at_its_end(before: Sequence[Any], now: Sequence[Any]) -> Iterator[Broken]:
    """Law 4: all blocks of a request begin the next one."""
    for number, block in enumerate(before):
        there = now[number] if number < len(now) else "nothing"
        if block != there:
            detail = f"block {number} of {len(before)}: {block!s:.150} → {there!s:.150}"
            yield Broken("nothing was hidden or changed, and the prompt begins as before", detail)
            return


def same(what: str, one: str, other: str) -> Iterator[Broken]:
    """Laws 5 and 7: two requests, written as JSON, are the same."""
    if one != other:
        at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
        start = max(0, at - 40)
        detail = f"at character {at}: {one[start : at + 40]!r} → {other[start : at + 40]!r}"
        yield Broken(what, detail)


def records_nothing(before: int, after: int) -> Iterator[Broken]:
    """Law 5: the log's last position, before and after."""
    if before != after:
        yield Broken("asked twice, nothing is recorded", f"position {before} → {after}")


def as_many(sent_messages: int, known: int) -> Iterator[Broken]:
    """A history that is sent again has the messages that are known."""
    if sent_messages != known:
        detail = f"{known} messages for {sent_messages}"
        yield Broken("a history has as many messages as were sent", detail)


PICTURE_LINE = re.compile(
    r"\n\[\w+/[\w.+-]+, [\d,]+ bytes[^\]\n]*; recall_part\('m\d+\.\d+'\) returns it\]"
)
"""What a recall says of a picture or a file in a result."""


def recalled(what: str, said: str, found: str) -> Iterator[Broken]:
    """Law 6: what is recalled is what was said; for a picture beside it stands what it is."""
    if said != PICTURE_LINE.sub("", found):
        yield Broken(what, f"{found[:60]!r} for {said[:60]!r}")


NAME = re.compile(r"\d{5}-[0-9a-f]{6}")
"""Of a text: no other text, and no id, has it."""


def is_gone(text: str, log: Sequence[str]) -> Iterator[Broken]:
    """Law 6: of an erased text, its name is nowhere in the log."""
    match = NAME.search(text)
    if match and any(match[0] in line for line in log):
        yield Broken("what was erased is nowhere in the log", match[0])


def is_not_said(names: Set[str], written: str) -> Iterator[Broken]:
    """What was erased or taken back is in no later request; `names` are those of its texts."""
    if leaks := names & set(NAME.findall(written)):
        yield Broken("what was erased or taken back is in no request", str(sorted(leaks)[:5]))


OWN_HANDLE = re.compile(r" · recall m\d+(\.\d+)?\]\Z")
"""Where a placeholder names what it stands for."""
FOREIGN_HANDLE = re.compile(r"\bm\d+(\.\d+|-m\d+)?\b|recall")


def stands_in(shown: str, said: str) -> Iterator[Broken]:
    """A result is data. What stands in its place is our text, so no handle of the result's making
    may be in it."""
    if said[:20] in shown:
        return  # it is there itself, whole or cut
    if FOREIGN_HANDLE.search(OWN_HANDLE.sub("", shown)):
        yield Broken("a placeholder holds no handle that a result has written", shown[:200])


def nobody_else_speaks(request: Wire) -> Iterator[Broken]:
    """A summary cannot end itself, nor let somebody speak after it."""
    for message in request.get("messages", request.get("input")) or ():
        for text in texts_of(message):
            if "</summary>" in text or re.search(r"^(Human|Assistant|User):", text, re.MULTILINE):
                yield Broken("a summary passes for nobody else", text[-200:])
