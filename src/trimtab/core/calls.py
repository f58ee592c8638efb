"""What calls and their outcomes tell the window: usage, limits, how far our estimates are off."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from trimtab.core.budget import HIDE_FIRST, Budget, budget_for, limit_of
from trimtab.core.event import Attempt, Call, Event, Fork, Outcome, Sent, Settings, Turn, added
from trimtab.core.prices import cost_of
from trimtab.core.tokens import MAXIMUM_RATIO, Counter, upper_bound
from trimtab.core.truncation import silently_truncated

if TYPE_CHECKING:
    from trimtab.core.window import Window

FEW = 500
"""Tokens that a model is taken to count as we do before it has counted any: what a provider puts
around a few words would else be taken for their weight."""
SPAN = 32_768
"""Tokens that, coming at once, make what earlier text taught about its weight count for half."""


LEFT = 0.7
"""Share of its estimated tokens that a text which was hidden took at least."""
CAME = 1.3
"""How many times its estimated tokens what we write ourselves takes at most."""
LEAST_RATIO = 0.5
"""Usage below this share of our estimate is not believed: the estimate stands."""
SAME = 0.98
"""Nor is usage below this share of what was counted of a prefix of the request."""
SMALLEST_REFUSED = 1_000
"""Tokens: no window is that small, so a refusal of less says nothing about it."""


class Anchor(NamedTuple):
    """The last call that reported, where its request is a prefix of the next."""

    counted: int
    """Its input, as it was reported."""
    tokens: int
    """Our estimate of its messages."""
    estimate: int
    """And of all of it."""
    rode: bool = False
    """Whether a volatile tail was counted with it."""
    media: int = 0
    """Our estimate of the pictures and files in it."""


class Pending(NamedTuple):
    """Our estimates at the last call."""

    tokens: int
    """Of its messages."""
    estimate: int
    """Of all of it."""
    media: int = 0
    """Of the pictures and files in it."""


class Carried(NamedTuple):
    """What was reported before something was hidden: the next request has no more tokens than that
    one had, less what has left, plus what has come."""

    counted: int
    """Tokens that it had at most."""
    tokens: int
    """Our estimate of its messages."""
    ratio: float
    """`counted` over our estimate of all of it."""
    summary: int
    """The position of its summary's event."""
    dropped: int
    """How many messages its notice told of."""
    blocks: int
    """How many blocks its list of the user's words had."""
    came: int = 0
    """Our estimate of the words that stand in for others since."""
    new: int = 0
    """Our estimate of what was said since."""

    def bound(self, counter: Counter, ratio: float, *, tokens: int, came: int, tail: int) -> int:
        """Tokens that a request cannot exceed whose messages we estimate at `tokens`. `came` are
        those before its first message that are new, `tail` those of a volatile tail."""
        came += self.came
        left = max(0, self.tokens + self.new + came - tokens)
        usage = self.counted + self.ratio * (CAME * came - LEFT * left)
        return upper_bound(
            counter=counter, usage=max(0, math.ceil(usage)), new=self.new + tail, ratio=ratio
        )


class Rejection(NamedTuple):
    """A call that its provider rejected for what was said; until it takes one."""

    position: int = 0
    """The last position that was sent in it; 0 where the last call was not rejected."""
    words: str = ""
    """What the provider said."""
    passed: int = 0
    """The last position of what was rejected before the user's newest word was said."""

    def passed_by(self) -> Rejection:
        """The same when the user has said something else."""
        return self._replace(passed=self.position)


def happened(window: Window, event: Event) -> None:
    """Fold an event that names no messages."""
    match event.body:
        case Call() as body:
            call_made(window, event, body)
        case Outcome() as body:
            call_ended(window, body)
        case Turn() as body:
            window.epoch = max(window.epoch, body.epoch)
            if body.state == "tool_started" and body.key:
                window.started = [*window.started, body.key]
        case Fork():
            window.note = None
        case Attempt() as body:
            window.summaries = window.summaries.heard(body, window.said)
        case _:
            pass


def call_made(window: Window, event: Event, body: Call) -> None:
    window.calls += 1
    window.cache.expected = _expected_read(window, event.at)
    window.last_call = Sent(seq=event.seq, at=event.at, body=body)
    window.note = body.note
    window.cold = False
    window.sent = body.position
    window.call_version = window.version
    window.awaiting = event.seq
    window.pending = Pending(window.tokens, body.tokens, body.media)


def call_ended(window: Window, body: Outcome) -> None:
    error = body.error or {}
    limit = error.get("limit")
    overflow = error.get("kind") == "overflow"
    if overflow and isinstance(limit, int) and limit > 0:
        window.learned_limit = limit
    if body.call != window.awaiting:
        return
    window.awaiting = None
    if not error:
        window.rejection = Rejection()
    elif error.get("kind") == "rejected" and window.last_call is not None:
        window.rejection = window.rejection._replace(
            position=window.last_call.body.position, words=str(error.get("message", ""))
        )
    usage = body.usage
    counted = error.get("input") if overflow else None
    # A refusal that names its count teaches as much as a reply, if the figure can be true.
    known = isinstance(counted, int) and _may_be(counted, window.pending.estimate)
    if overflow or not error:
        # An error that has nothing to do with the length does not undo what a refusal taught.
        window.overflowed = known
        window.refused = overflow and counted is None and not isinstance(limit, int)
        if window.refused:
            _learn_refused(window)
    if usage is not None and usage.input > 0:
        window.cache.hear(usage, int(window.settings.entry.get("cache_minimum", 0)))
        window.last_usage = usage
        window.used = added(window.used, usage)
        paid = cost_of(usage, window.settings.entry)
        window.paid = None if window.paid is None or paid is None else window.paid + paid
        if silently_truncated(window, usage.input):
            window.learned_limit = usage.input  # that much certainly fits
        window.disbelieved = 0 if _calibrate(window, usage.input) else usage.input
    elif isinstance(counted, int) and known:
        _calibrate(window, counted)


def _may_be(counted: int, estimate: int) -> bool:
    """Whether a request that we estimate at so many tokens may really have been counted so."""
    return 0 < counted <= MAXIMUM_RATIO * estimate and estimate <= MAXIMUM_RATIO * (counted + FEW)


def weight_of(window: Window) -> float:
    """What our estimates are to be multiplied by: as the last call was counted, or the text that
    was added lately, whichever is heavier."""
    heavy, light = window.weighed
    return max(window.ratio, (heavy + FEW) / (light + FEW))


def budget_of(window: Window, *, volatile: str | None, now: float) -> Budget:
    """The terms of the next call's limit."""
    budget = budget_for(
        window.settings,
        learned=window.learned_limit,
        ratio=weight_of(window),
        margin=window.counter.unanchored,
        volatile=window.counter.count(volatile) + 8 if volatile else 0,
        output_first=window.overflowed or window.refused,
        now=now,
    )
    unchanged = window.call_version == window.version
    if window.refused and (unchanged or window.settings.policy not in HIDE_FIRST):
        # Nobody knows how long it may be: a shorter reply is what is easiest to do without.
        budget = replace(budget, max_output=budget.least_output)
    newest = {index for index in (window.turn_start, len(window.groups) - 1) if index >= 0}
    if sum(window.groups[index].tokens for index in newest) <= budget.room:
        return budget
    # What must stay is above where the price jumps: to hide the rest would be in vain.
    return replace(budget, soft_limit=budget.limit)


def carried_over(window: Window) -> Carried | None:
    """What is known of the size of the request before something in it is changed."""
    anchor = window.anchor
    if anchor is None:
        return window.carried
    new = max(0, window.tokens - anchor.tokens)
    ratio = min(max(weight_of(window), 1.0), MAXIMUM_RATIO)
    most = upper_bound(counter=window.counter, usage=anchor.counted, new=new, ratio=ratio)
    estimate = window.settings.head.tokens + window.tokens
    return Carried(
        counted=most,
        tokens=window.tokens,
        ratio=min(max(most / max(1, estimate), LEAST_RATIO), MAXIMUM_RATIO),
        summary=window.summary_by,
        dropped=window.dropped.messages,
        blocks=len(window.words.blocks),
    )


def served_otherwise(window: Window, before: Settings) -> None:
    """Forget what was learned of another model: its limit, which another window that the user
    names ends as well, and how it counts what is added."""
    now = window.settings
    if _window_of(now) != _window_of(before):
        window.learned_limit, window.doubted = None, False
    if (now.model, now.dialect) != (before.model, before.dialect):
        window.weighed = (0.0, 0.0)


def _window_of(settings: Settings) -> tuple[str, str, object]:
    return settings.model, settings.dialect, settings.limits.get("context_window")


def _calibrate(window: Window, counted: int) -> bool:
    """Learn from what was counted of the last call; False where that cannot be true."""
    pending, prefix = window.pending, window.call_version == window.version
    if not _believed(window, counted):
        return False
    if pending.estimate > 0:
        if not pending.media:
            window.ratio = (counted + FEW) / (pending.estimate + FEW)
        _weigh(window, counted)
    if prefix:
        rode = window.last_call is not None and bool(window.last_call.body.volatile)
        window.anchor = Anchor(counted, pending.tokens, pending.estimate, rode, pending.media)
        window.carried = None
    return True


def _believed(window: Window, counted: int) -> bool:
    """Whether a count may be that of the whole request: what was only counted in part, as what a
    cache did not hold, must not lower the bound. Pictures may cost far less than we think."""
    pending, anchor = window.pending, window.anchor
    text = pending.estimate - pending.media
    if anchor is None or anchor.rode or window.call_version != window.version:
        return counted >= LEAST_RATIO * text
    return counted >= min(text, max(LEAST_RATIO * text, SAME * anchor.counted))


def _weigh(window: Window, counted: int) -> None:
    """Add what is new in a request to what is known of the weight of text.

    What came on top of the call before says how more will count. A whole request says less: what a
    provider puts around the texts, or leaves out, is in it, too. It is believed where it holds more
    than all that is known. What came with a picture says nothing about text.
    """
    before, (heavy, light) = window.anchor or Anchor(0, 0, 0), window.weighed
    new = window.pending.estimate - before.estimate
    if window.pending.media == before.media and new > (0 if window.anchor else light):
        kept = SPAN / (SPAN + new)
        heavy = kept * heavy + min(max(0, counted - before.counted), MAXIMUM_RATIO * new)
        window.weighed = (heavy, kept * light + new)


def _learn_refused(window: Window) -> None:
    """A refusal without numbers: the limit is below what was refused.

    The first is not believed where less than half of the known window was in use, for it may have
    had another reason.
    """
    size, last, before = _likely_size(window), window.last_call, window.doubted
    if last is None or size < SMALLEST_REFUSED:
        return
    learned, known = size + last.body.max_output, window.learned_limit
    window.doubted = not before and learned < limit_of(window.settings, known)[0] // 2
    if not window.doubted:
        window.learned_limit = min(learned, known or learned)


def _likely_size(window: Window) -> int:
    """Tokens of the last call's input as the provider would probably count them."""
    anchor, pending = window.anchor, window.pending
    ratio = min(max(weight_of(window), 1.0), MAXIMUM_RATIO)
    if anchor is None:
        return int(ratio * pending.estimate)
    return int(anchor.counted + ratio * max(0, pending.estimate - anchor.estimate))


def _expected_read(window: Window, at: float) -> int:
    """Tokens that the provider's cache should hold for the call being made."""
    last = window.last_call
    ttl = float(window.settings.entry.get("cache_ttl", 0))
    warm = last is not None and at - last.at <= ttl and window.call_version == window.version
    return window.last_usage.input if warm and window.last_usage and not window.cold else 0
