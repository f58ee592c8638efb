"""What goes when not everything fits: one order, for all who must hide something.

Older pictures go first, then older results, older replies and calls, the summary, what is new in
the active round, older words of the user, the pictures of the newest message, and at the very last
its text, of which a quarter of the room always stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from trimtab.core.message import Media, Text, ToolCall, ToolResult
from trimtab.core.plan import MASKABLE, Cap, Plan
from trimtab.core.rounds import Entry, Group, has_thinking
from trimtab.core.tokens import MESSAGE_OVERHEAD
from trimtab.core.user_words import LEVELS, SHARE, has_words

LONG_ARGUMENT = 200
"""Characters of one argument of an older call from which on it may be left out."""
LONG_REPLY = 200
"""Tokens of an older reply that stay where it cannot go with its round."""

SIGN = 32
"""Tokens of the words that say how much of a text was cut, at most."""

Place = tuple[Entry, int]
"""A message, and the index of one of its parts."""
Enough = Callable[[], bool]


def sacrifice(plan: Plan, enough: Enough, why: str) -> None:
    """Hide in order until it is enough, or until nothing is left that may go."""
    for step in (
        _older_media,
        _older_results,
        _older_replies,
        _summary,
        _new_results,
        _older_words,
        _instructions,
        _newest_media,
        _newest_text,
    ):
        if enough():
            return
        step(plan, enough, why)


def active_entries(plan: Plan) -> list[Entry]:
    """The messages of the active round, and the newest user message."""
    window = plan.window
    entries = list(window.rounds[-1].entries) if window.rounds else []
    newest = window.newest_user
    return entries if newest is None or newest in entries else [*entries, newest]


def new_results(plan: Plan) -> list[Place]:
    """What tools gave in the active round, late answers among it."""
    active = plan.window.rounds[-1] if plan.window.rounds else None
    if active is None:
        return []
    answers = [call.result for call in active.calls if call.result is not None]
    found = [(result.entry, result.part) for result in answers]
    found += [(entry, part) for entry in active.entries for part in entry.notes]
    return [place for place in found if not place[0].pinned]


def newest_words(plan: Plan) -> list[Place]:
    """Texts of the newest user message, and of whatever users said in the active round."""
    return [
        (entry, part)
        for entry in active_entries(plan)
        if entry.message.role in ("user", "tool") and not entry.pinned
        for part, content in enumerate(entry.message.parts)
        if isinstance(content, Text)
    ]


def least_words(plan: Plan) -> int:
    """Tokens of the newest user message that stay whatever goes, with the sign of what was cut."""
    # A cut goes a little deeper than it must.
    return plan.budget.room // SHARE * 6 // 5 + SIGN


def cap_of(entry: Entry, part: int, amount: int) -> Cap:
    """What was said keeps its end, too: questions stand there."""
    said = isinstance(entry.message.parts[part], Text) or part in entry.notes
    return Cap(amount=amount, strategy="both" if said else "lines")


def level(plan: Plan, texts: list[Place], enough: Enough, why: str, least: int = 0) -> None:
    """Cut the largest texts to one size, lowered until it is enough; `least` tokens of them
    together stay."""
    sizes = [plan.size(*place).tokens for place in texts]
    low, high = _floor(sizes, least), max(sizes, default=0)

    def cut(most: int) -> None:
        for entry, part in texts:
            if plan.size(entry, part).tokens > most:
                plan.truncate(entry, part, cap_of(entry, part, most), why)

    # The largest size that is enough, to about a hundredth: more of a text is cut than has to be
    # where one goes down by large steps.
    while high - low > max(8, high // 100):
        middle = (low + high) // 2
        with plan.provided(lambda: False):  # only to see
            cut(middle)
            reached = enough()
        low, high = (middle, high) if reached else (low, middle)
    cut(low)


def _floor(sizes: list[int], least: int) -> int:
    """The size of one text down to which all may be cut so that `least` tokens of them stay."""
    if sum(sizes) <= least:
        return max(sizes, default=0)
    left = least
    for index, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - index)
        if size > share:
            return share
        left -= size
    return 0


def _older(plan: Plan) -> Iterator[Group]:
    """Visible groups, oldest first; what was revealed and is unread comes last."""
    groups = list(plan.groups())
    yield from (group for group in groups if not plan.unread(group))
    yield from (group for group in groups if plan.unread(group))


def _older_entries(plan: Plan) -> Iterator[Entry]:
    active = {entry.seq for entry in active_entries(plan)}
    for group in _older(plan):
        yield from (e for e in group.entries() if e.seq not in active and not e.pinned)


def _older_media(plan: Plan, enough: Enough, why: str) -> None:
    for entry in list(_older_entries(plan)):
        for part, content in enumerate(entry.message.parts):
            holds = isinstance(content, ToolResult) and any(
                isinstance(inner, Media) for inner in content.content
            )
            if holds or isinstance(content, Media):
                plan.mask(entry, part, why, _removed(content))
                if enough():
                    return


def _older_results(plan: Plan, enough: Enough, why: str) -> None:
    found = [
        (entry, part)
        for entry in _older_entries(plan)
        for part, content in enumerate(entry.message.parts)
        # A small one is about as short as the words that would stand for it.
        if isinstance(content, ToolResult) and plan.size(entry, part).tokens > MASKABLE
    ]
    for entry, part in sorted(found, key=lambda place: (place[0].seq, place[1]) in plan.kept):
        plan.mask(entry, part, why)
        if enough():
            return


def _older_replies(plan: Plan, enough: Enough, why: str) -> None:
    """Rounds in which no user speaks go whole, the oldest first; of those that must stay, long
    replies and arguments are cut, and then all replies."""
    apart = _apart(plan)
    quiet = [g for g in _in_turn(plan) if not _speaks(g) and g.index not in apart]
    drop(plan, quiet, enough, why)
    for most in (LONG_REPLY, LEVELS[-1]):
        for entry in [] if enough() else list(_older_entries(plan)):
            for part in range(len(entry.message.parts)):
                _cut_reply(plan, (entry, part), most, why)
                if enough():
                    return


def _cut_reply(plan: Plan, place: Place, most: int, why: str) -> None:
    entry, part = place
    content = entry.message.parts[part]
    if entry.seq == plan.window.replied and (entry.message.calls or has_thinking(entry.message)):
        return  # what the model is in the middle of stays as it is, or goes whole
    if isinstance(content, ToolCall):
        plan.cut_arguments(entry, part, LONG_ARGUMENT, why)
    elif entry.message.role != "assistant" or not isinstance(content, Text):
        return
    elif plan.size(entry, part).tokens > most + MESSAGE_OVERHEAD:  # others need not be counted
        plan.truncate(entry, part, Cap(amount=most, strategy="both"), why)


def _apart(plan: Plan) -> set[int]:
    """The last of the groups between two in which a user speaks. Without it the user's messages
    would stand one after the other, and many servers refuse that. One with signed thinking cannot
    be cut, and goes."""
    apart: set[int] = set()
    heard = False
    for before, after in pairwise(plan.groups()):
        heard = heard or _speaks(before)
        if heard and _speaks(after) and not (_speaks(before) or before.thinking):
            apart.add(before.index)
    return apart


def _speaks(group: Group) -> bool:
    return any(map(has_words, group.entries()))


def _summary(plan: Plan, enough: Enough, why: str) -> None:
    plan.shorten_summary(enough, why)


def _new_results(plan: Plan, enough: Enough, why: str) -> None:
    places = new_results(plan)
    level(plan, places, enough, why)
    for entry, part in places:
        content = entry.message.parts[part]
        if not enough() and isinstance(content, ToolResult) and not content.text:
            plan.mask(entry, part, why, _removed(content))


def _older_words(plan: Plan, enough: Enough, why: str) -> None:
    """Whole groups, the oldest first. What users said in them is listed where a list is kept, and
    the list becomes shorter until it is enough."""
    before = plan.tokens
    with plan.provided(lambda: plan.tokens < before or enough()):
        drop(plan, list(_in_turn(plan)), enough, why, anyway=True)
        while not enough() and plan.halve_words():
            plan.settle()


def _instructions(plan: Plan, enough: Enough, why: str) -> None:
    """System and developer messages: the longest are cut, then the oldest, then the oldest go."""
    texts = [
        (entry, part)
        for group in _older(plan)
        for entry in group.entries()
        if entry.message.role == "system" and not entry.pinned
        for part in range(len(entry.message.parts))
    ]
    for most in LEVELS:
        for entry, part in texts:
            if enough():
                return
            plan.truncate(entry, part, Cap(amount=most, strategy="both"), why)
    held = [group for group in _in_turn(plan) if group.instructs]
    drop(plan, held, enough, why, instructions=True)


def limit_instructions(plan: Plan, why: str) -> None:
    """Let system and developer messages in mid-conversation take no more than a quarter of the
    room together."""
    told = [e for g in plan.groups() for e in g.entries() if e.message.role == "system"]
    most = plan.budget.room // SHARE

    def enough() -> bool:
        seen = (entry for entry in told if not plan.hides(entry.round.group))
        return sum(plan.size(e, part).tokens for e in seen for part in range(len(e.sizes))) <= most

    if not enough():
        _instructions(plan, enough, why)


def _newest_media(plan: Plan, enough: Enough, why: str) -> None:
    for entry in active_entries(plan):
        for part, content in enumerate(entry.message.parts):
            if isinstance(content, Media) and not enough():
                plan.mask(entry, part, why, _removed(content))


def _newest_text(plan: Plan, enough: Enough, why: str) -> None:
    level(plan, newest_words(plan), enough, why, least=least_words(plan))


def drop(
    plan: Plan,
    groups: Iterable[Group],
    enough: Enough,
    why: str,
    *,
    instructions: bool = False,
    anyway: bool = False,
) -> None:
    """Drop groups until it is enough; none where the context would not be smaller for it, unless
    that is seen to elsewhere."""
    before = plan.tokens
    with plan.provided(lambda: anyway or plan.tokens < before):
        for group in groups:
            # A drop alone may make it fit because what was reported for the old prefix no longer
            # holds: it must save more than the notice of it takes, too.
            if plan.tokens < before and enough():
                return
            plan.drop(group, why, instructions=instructions)


def _in_turn(plan: Plan) -> Iterator[Group]:
    """Groups in the order in which they go: under `layered` rounds of the active turn first."""
    groups = plan.kept_last(_older(plan))
    if plan.window.settings.policy == "layered":
        start = plan.window.turn_start
        groups.sort(key=lambda group: group.index < start)
    return iter(groups)


def _removed(content: object) -> str | None:
    """What stands for something without a text."""
    if isinstance(content, Media):
        return f"[{content.kind} removed]"
    if isinstance(content, ToolResult) and not content.text:
        kinds = [inner.kind for inner in content.content if isinstance(inner, Media)]
        return f"[{kinds[0]} removed]" if kinds else None
    return None
