"""What calls and their outcomes tell the window: usage, limits, how far our estimates are off."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from trimtab.core.budget import HIDE_FIRST, Budget, budget_for
from trimtab.core.event import Attempt, Call, Event, Fork, Outcome, Sent, Settings, Turn, added
from trimtab.core.prices import cost_of
from trimtab.core.tokens import MAXIMUM_RATIO, Counter, upper_bound

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
    window.pending = (window.tokens, body.tokens)


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
    known = isinstance(counted, int) and _may_be(counted, window.pending[1])
    if overflow or not error:
        # An error that has nothing to do with the length does not undo what a refusal taught.
        window.overflowed = known
        window.refused = overflow and counted is None and not isinstance(limit, int)
    if usage is not None and usage.input > 0:
        window.cache.hear(usage, int(window.settings.entry.get("cache_minimum", 0)))
        window.last_usage = usage
        window.used = added(window.used, usage)
        paid = cost_of(usage, window.settings.entry)
        window.paid = None if window.paid is None or paid is None else window.paid + paid
        _calibrate(window, usage.input)
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
        window.learned_limit = None
    if (now.model, now.dialect) != (before.model, before.dialect):
        window.weighed = (0.0, 0.0)


def _window_of(settings: Settings) -> tuple[str, str, object]:
    return settings.model, settings.dialect, settings.limits.get("context_window")


def _calibrate(window: Window, counted: int) -> None:
    tokens, estimate = window.pending
    if estimate > 0:
        window.ratio = (counted + FEW) / (estimate + FEW)
        _weigh(window, counted, estimate)
    if window.call_version == window.version and counted >= LEAST_RATIO * estimate:
        rode = window.last_call is not None and bool(window.last_call.body.volatile)
        window.anchor, window.carried = Anchor(counted, tokens, estimate, rode), None


def _weigh(window: Window, counted: int, estimate: int) -> None:
    """Add what is new in a request to what is known of the weight of text.

    What came on top of the call before says how more will count. A whole request says less: what a
    provider puts around the texts, or leaves out, is in it, too. It is believed where it holds more
    than all that is known.
    """
    before, (heavy, light) = window.anchor or Anchor(0, 0, 0), window.weighed
    new = estimate - before.estimate
    if new > (0 if window.anchor else light):
        kept = SPAN / (SPAN + new)
        heavy = kept * heavy + min(max(0, counted - before.counted), MAXIMUM_RATIO * new)
        window.weighed = (heavy, kept * light + new)


def _expected_read(window: Window, at: float) -> int:
    """Tokens that the provider's cache should hold for the call being made."""
    last = window.last_call
    ttl = float(window.settings.entry.get("cache_ttl", 0))
    warm = last is not None and at - last.at <= ttl and window.call_version == window.version
    return window.last_usage.input if warm and window.last_usage and not window.cold else 0
