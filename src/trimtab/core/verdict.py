"""Whether a model's text may stand for what it was made from, and in which form.

What can be put right is put right: lines that name what nobody said, or that give orders, go; what
is missing is carried in the list. What cannot be is a reason to leave the messages where they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trimtab.core.fidelity import (
    ASKS,
    FRAME_TOKENS,
    folded,
    invented,
    is_order,
    list_room,
    missing,
    need_of,
    told_by,
    with_list,
)
from trimtab.core.message import Message
from trimtab.core.summary_text import (
    LEAST_SECTIONS,
    LIST_TOKENS,
    MAX_TOKENS,
    cut,
    joined,
    lines_in,
    lines_of,
    sections_of,
    split,
    without,
    written,
)
from trimtab.core.summary_text import most as most_of
from trimtab.core.tokens import Counter

MOST_WRONG = 0.34
"""Share of a summary's lines that may be made up; above it none of the rest is believed."""
LEAST_SAID = 3
"""Of the names, figures and dates in the messages, which a text without our headings must say, or
all if there are fewer; without any of them it must at least speak of the same."""
LEAST_WORDS = 5
"""Different words of four letters or more that such a text must have."""
LEAST_SHARED = 0.5
"""Share of them that the messages or the prior summary must have, too."""

_LONGER = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]{2}|[^\W\d_\u3040-\u30ff\u3400-\u9fff]{4,}")
"""A word of four letters or more, or two signs of a script that has no spaces."""


class Rejected(ValueError):
    """A text that may not stand for what it was made from; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    text: str
    """The summary as it may stand: sections within their cap, then the list within its own."""
    patched: int = 0
    """Items that the sections do not say and the list carries."""
    lost: int = 0
    """Items that neither has room for; they stay recallable."""
    removed: int = 0
    """Lines that were taken out: made up, or orders."""
    cut: bool = False
    """True where lines had to go for the cap."""

    @property
    def changed(self) -> bool:
        """Whether the model's text was not good enough as it came."""
        return bool(self.patched or self.removed or self.cut)


def judged(
    text: str,
    prior: str,
    messages: Sequence[Message],
    counter: Counter,
    *,
    max_tokens: int = MAX_TOKENS,
    list_tokens: int = LIST_TOKENS,
    replaced: int | None = None,
    seen: str = "",
) -> Verdict:
    """The summary of `prior` and `messages` that a model's text gives; raises `Rejected`.

    `replaced` is what both take now, in tokens: the summary must be smaller. `seen` is what stands
    behind the messages and stays.
    """
    if not text.strip():
        raise Rejected("it is empty")
    body = split(text)[0]
    sections = sections_of(body)
    headed = len(sections) >= LEAST_SECTIONS
    lines = list(lines_of(sections)) if headed else lines_in(body)
    if not lines:
        raise Rejected("its sections are empty")
    said = [prior, *told_by(messages)]
    wrong = _wrong(lines, said)
    if headed:
        whole = written(without(sections, wrong))
    else:
        whole = "\n".join(line for line in lines if line not in set(wrong))
        _check_told(whole, said, messages, len(sections))
    body = cut(whole, counter, max_tokens)
    if replaced is not None:
        if (size := counter.count(body)) >= replaced - FRAME_TOKENS:
            raise Rejected(
                f"it is not smaller: its {size} tokens and {FRAME_TOKENS} for the words around it "
                f"would stand for {replaced}"
            )
        list_tokens = list_room(body, split(prior)[1], counter, replaced, list_tokens)
    made = with_list(prior, messages, body, counter, list_tokens=list_tokens, seen=seen)
    verdict = _verdict(made, messages, seen, removed=len(wrong), shortened=body != whole)
    if verdict.lost and not headed:
        raise Rejected(
            f"it has {len(sections)} of the sections, and {verdict.lost} names, figures or dates "
            "are neither in it nor in its list"
        )
    return verdict


def judged_result(
    text: str,
    result: Message,
    counter: Counter,
    *,
    max_tokens: int = MAX_TOKENS,
    list_tokens: int = LIST_TOKENS,
    most: int,
) -> Verdict:
    """The summary of one tool result that a model's text gives, line by line; raises `Rejected`.

    `most` is what the result would take if it were cut, in tokens: the summary, with its list and
    the line before it, must not take more.
    """
    body, _ = split(text)
    lines = lines_in(body)
    if not lines:
        raise Rejected("it is empty")
    wrong = _wrong(lines, told_by([result]))
    right = [line for line in lines if line not in set(wrong)]
    room = min(max_tokens, most - FRAME_TOKENS)
    kept = right[: most_of(len(right), lambda n: counter.count("\n".join(right[:n])) <= room)]
    if not kept:
        size = counter.count(right[0])
        raise Rejected(f"its first line takes {size} tokens, and {max(0, room)} are left for it")
    body = "\n".join(kept)
    left = max(0, most - FRAME_TOKENS - counter.count(body) - 1)
    made = with_list("", [result], body, counter, list_tokens=min(list_tokens, left))
    return _verdict(made, [result], "", removed=len(wrong), shortened=len(kept) < len(right))


def _check_told(text: str, said: Sequence[str], messages: Sequence[Message], found: int) -> None:
    """Whether a text without our headings tells of what was said. One that goes on with the
    conversation, or declines to write, does not."""
    items = need_of(messages).items
    if items and len(items) - len(missing(items, text)) >= min(LEAST_SAID, len(items)):
        return
    source = set(_LONGER.findall("\n".join(said).casefold()))
    used = set(_LONGER.findall(text.casefold()))
    asks = text.rstrip().endswith(ASKS)
    if asks or len(used) < LEAST_WORDS or len(used & source) < LEAST_SHARED * len(used):
        raise Rejected(
            f"it has {found} of the sections, at least {LEAST_SECTIONS} are due, and it tells too "
            "little of the messages to be taken without them"
        )


def looked_at(text: str) -> str:
    """A summary that its user answers for, without lines that give orders or let somebody speak;
    raises `Rejected` where too many do."""
    body, carried = split(text)
    lines = body.splitlines()
    wrong = [line for line in lines if is_order(line)]
    if len(wrong) > MOST_WRONG * sum(bool(line.strip()) for line in lines):
        raise Rejected(f"{len(wrong)} of its lines give orders or let somebody speak")
    if not wrong:
        return text
    return joined("\n".join(line for line in lines if line not in wrong), carried)


def _wrong(lines: Sequence[str], said: Iterable[str]) -> list[str]:
    """Lines that name what nobody said, or give orders; with too many of them none is believed."""
    source = folded(said)
    wrong = [line for line in lines if is_order(line) or invented(line, source)]
    if len(wrong) > MOST_WRONG * len(lines):
        raise Rejected(f"{len(wrong)} of its {len(lines)} lines name what nobody said")
    return wrong


def _verdict(
    made: str, messages: Sequence[Message], seen: str, *, removed: int, shortened: bool
) -> Verdict:
    body, carried = split(made)
    needed = missing(need_of(messages).items, f"{body}\n{seen}")
    listed = set(carried.items)
    patched = sum(item in listed for item in needed)
    return Verdict(
        text=made, patched=patched, lost=len(needed) - patched, removed=removed, cut=shortened
    )
