"""Compact when it pays: the policy that knows what a cache write costs.

Every edit makes all behind it be written to the provider's cache again; waiting makes the text that
could be hidden be read once more at every call. A meter adds up the price of waiting, call by
call, and an edit is made when the meter has paid for it. A cold cache has nothing to lose, so the
edit is free then; a full window leaves no choice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from trimtab.core.budget import Budget
from trimtab.core.edits import masked, naming, text_of
from trimtab.core.guard import cut_giants
from trimtab.core.plan import Cap, Decision, Plan, Policy, Span
from trimtab.core.policies.awaiting import (
    oldest_down_to,
    summarised_since,
    summary_price,
    unlikely,
    waited,
)
from trimtab.core.policies.knobs import Goal, Knobs, Summaries
from trimtab.core.policies.offers import Offer, Prices
from trimtab.core.policies.order import least_needed
from trimtab.core.policies.steps import (
    bind_history,
    cap_results,
    kept_last,
    maskable,
    older_groups,
)
from trimtab.core.policies.summaries import low_water, stand_in_down_to, wanted_span
from trimtab.core.rounds import Group, Result
from trimtab.core.sacrifice import limit_instructions, sacrifice
from trimtab.core.summary_text import ASKED_TOKENS
from trimtab.core.window import Window
from trimtab.core.words import names as names_in

LOW: dict[Goal, int] = {"cost": 12_000, "balanced": 64_000, "quality": 96_000}
"""Tokens of messages that a compaction goes down to."""
CAP: dict[Goal, int] = {"cost": 4_000, "balanced": 8_000, "quality": 8_000}
"""Tokens of one tool result that it may take in any case; more as long as there is room."""
CAP_SHARE = 0.25
"""Of the room that one result may take, at most, where that is less."""
CAP_LEAST = 500
"""Tokens that it may take in any case."""
KEEP = 3
"""Newest results that are never masked."""
SUMMARY_NAMES: dict[Goal, int] = {"cost": 5, "balanced": 16, "quality": 16}
"""How many times as many a summary names of what it covers."""
SUMMARY_SHARE = 40
"""Tokens of the low-water mark for each of them: in a small window a summary names fewer."""
LISTED_TOKENS = 5
"""Of each of them, where a model's summary lists them."""
KEEP_MESSAGES = 6
"""Newest messages that are never summarised."""
HARD = 0.95
"""Share of the room at which a compaction is forced."""
THETA = 2.0
"""How many times over the meter must have paid for an edit."""
MIN_GAIN = 1_000
"""Tokens below which no compaction is worth its while."""
NAMES = 60
"""Words of a masked result that its placeholder names, at most; fewer for a small one."""
CUT_NAMES = 5
"""How many times as many the indicator of a truncated result names of what was cut."""

Order = Callable[[Window, list[Result]], list[Result]]
"""Which results to hide first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What one compaction would do, before any edit is written."""

    ordered: list[Result]
    """All that may be masked, in hiding order."""
    chosen: list[Result]
    """Those that would be."""
    removed: int
    """R: tokens that leave, net of placeholders."""
    rewritten: int
    """T: tokens that survive behind the first edit and would have been read."""
    older: list[Group]
    """Groups that would go into the summary, as far as needed; none where masks are enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What one `auto` is set to."""

    knobs: Knobs
    """What the user set."""
    goal: Goal
    """What it is tuned for."""
    theta: float
    """How many times over the meter must have paid for an edit."""
    names: int
    """Words that a placeholder names, at most."""

    @property
    def keep(self) -> int:
        """Newest results that are never masked."""
        last = self.knobs.tool_result_keep_last
        return KEEP if last is None else last

    @property
    def summary_names(self) -> int:
        """Words that an extractive summary names, at most."""
        return self.names * SUMMARY_NAMES[self.goal]

    def list_tokens(self, low: int) -> int:
        """Tokens of the list beside a model's summary."""
        own = self.knobs.summary.list_tokens
        return LISTED_TOKENS * min(self.summary_names, low // SUMMARY_SHARE) if own is None else own


def auto(
    knobs: Knobs,
    goal: Goal = "balanced",
    summaries: Summaries = "extractive",
    *,
    order: Order = least_needed,
    theta: float = THETA,
    names: int = NAMES,
) -> Policy:
    """The default policy. `order`, `theta` and `names` are for those who measure."""
    tuning = Tuning(knobs=knobs, goal=goal, theta=theta, names=names)
    manual = summaries == "manual"

    def decide(window: Window, budget: Budget) -> Decision:
        plan = Plan(window, budget)
        cap_results(plan, knobs, caps_of(plan, goal, names))
        cut_giants(plan, int(HARD * budget.room))
        bind_history(plan, knobs)
        low = target(budget, goal, plan.words)
        meter = float((window.note or {}).get("meter", 0.0))
        meter = 0.0 if manual and summarised_since(window) else meter
        if plan.tokens - plan.words <= low + MIN_GAIN:
            return decided(tuning, plan, meter)
        prices = prices_of(window, budget)
        ordered = order(window, candidates(plan, knobs, tuning.keep))
        look = outlook(plan, [r for r in ordered if r.key not in plan.kept], low)
        forced = plan.tokens > HARD * budget.room
        if manual and look.older and not forced:
            if (awaited := await_summary(tuning, plan, look, prices, meter)) is not None:
                return awaited
            look = outlook(plan, look.ordered, low, whole=False)
        meter += prices.read * look.removed
        price = (prices.write - prices.read) * look.rewritten
        pays = prices.cold or meter >= theta * price
        if forced or (look.removed >= MIN_GAIN and pays):
            limit_instructions(plan, "instructions over a quarter of the room")
            compact(tuning, plan, look.ordered, low, whole=forced or not manual)
            if forced and plan.tokens > low:
                escalate(tuning, plan, kept_last(plan, candidates(plan, knobs, 1)), low)
            bind_history(plan, knobs)  # a summary of what was found since counts as history
            return decided(tuning, plan, 0.0)
        first = min((result.seq for result in look.chosen), default=None)
        return decided(tuning, plan, meter, first)

    return decide


def decided(
    tuning: Tuning,
    plan: Plan,
    meter: float,
    frontier: int | None = None,
    wanted: Span | None = None,
) -> Decision:
    """The plan as a decision, with the meter, and with how long a summary was waited for."""
    note = {"meter": round(meter, 1)} if meter else {}
    note |= {"waited": waited(plan.window) + 1} if wanted is not None else {}
    return plan.decision(
        note=note or None,
        wanted=wanted,
        summary_tokens=tuning.knobs.summary.max_tokens,
        list_tokens=tuning.list_tokens(target(plan.budget, tuning.goal, plan.words)),
        frontier=frontier or plan.oldest_result(),
    )


def await_summary(
    tuning: Tuning, plan: Plan, look: Outlook, prices: Prices, meter: float
) -> Decision | None:
    """What is done while somebody may summarise; None where masks are the better way."""
    window, low = plan.window, target(plan.budget, tuning.goal, plan.words)
    taken = oldest_down_to(plan, look.older, low, ASKED_TOKENS + tuning.list_tokens(low) // 2)
    again = prices.write - prices.read
    paid = summary_price(window, taken, tuning.knobs)
    whole = Offer(removed=look.removed, rewrite=again * look.rewritten, summary=paid)
    only = outlook(plan, look.ordered, low, whole=False)
    masks = Offer(removed=only.removed, rewrite=again * only.rewritten)
    if only.removed >= MIN_GAIN and (unlikely(window) or masks.beats(whole, prices)):
        return None
    meter += prices.read * look.removed
    pays = look.removed >= MIN_GAIN and whole.pays(meter, tuning.theta, prices)
    return decided(tuning, plan, meter, wanted=wanted_span(plan, taken) if pays else None)


def caps_of(plan: Plan, goal: Goal, names: int) -> Callable[[Result], Cap]:
    """The cap of each result that is new. It follows what is left below the mark, so that a nearly
    empty window cuts nothing: half of the mark at first, and by the third power less as it fills,
    for what is let in is paid for at every call. The goal's own cap where that is more; in a small
    window less, so that one result leaves room for the rest."""
    least = min(CAP[goal], max(CAP_LEAST, int(CAP_SHARE * plan.budget.room)))
    mark = min(target(plan.budget, goal, plan.words), LOW["balanced"])
    new = {result.key: result.size.tokens for result in plan.window.new_results()}
    left = [mark - (plan.tokens - plan.words - sum(new.values()))]

    def cap(result: Result) -> Cap:
        share = max(0, left[0]) / max(1, mark)
        amount = max(least, int(mark * share**3 / 2))
        left[0] -= min(amount, new.get(result.key, 0))
        return Cap(amount=amount, names=names * CUT_NAMES * least // CAP[goal], strategy="lines")

    return cap


def target(budget: Budget, goal: Goal, words: int = 0) -> int:
    """The low-water mark: the goal's, but never more than a share of the room. The user's earlier
    `words` stand beside it."""
    share = 0.7 if budget.limit <= 64_000 else 0.5
    low = min(LOW[goal], int(share * budget.room))
    return max(0, min(low, int(HARD * budget.room) - MIN_GAIN - words))


def prices_of(window: Window, budget: Budget) -> Prices:
    """The catalog's cache prices, corrected by what was measured."""
    entry = window.settings.entry
    write = float(entry.get("cache_write", 1.0))
    read = float(entry.get("cache_read", 1.0))
    read = (1 - window.cache.miss_rate) * read + window.cache.miss_rate * write
    last = window.last_call
    idle = budget.now - last.at if last is not None else 0.0
    ttl = float(entry.get("cache_ttl", 0))
    small = budget.head.tokens + window.tokens < int(entry.get("cache_minimum", 0))
    cold = last is None or window.cold or small or idle > ttl
    return Prices(read=read, write=write, cold=cold)


def outlook(plan: Plan, ordered: list[Result], low: int, *, whole: bool = True) -> Outlook:
    """Take results in hiding order until the target is reached; see what that would cost.

    Where they are not enough, `whole` groups go, too.
    """
    need = plan.tokens - plan.words - low
    chosen: list[Result] = []
    removed = 0
    for result in ordered:
        if removed >= need:
            break
        chosen.append(result)
        tokens = plan.size(result.entry, result.part).tokens
        removed += max(0, tokens - 24 - 5 * min(NAMES, tokens // 16))
    older = summarisable(plan) if whole and removed < need else []
    if older:
        # Masked results leave their calls behind; whole groups leave nothing.
        removed = min(need, max(removed, sum(plan.net_tokens(group) for group in older)))
    first = 0 if older else min((r.entry.round.group.index for r in chosen), default=0)
    behind = 0
    for group in reversed(plan.window.visible.values()):
        if group.index < first:
            break
        if group.first <= plan.window.sent:
            behind += plan.group_tokens(group)
    return Outlook(
        ordered=ordered,
        chosen=chosen,
        removed=removed,
        rewritten=max(0, behind - removed),
        older=older,
    )


def compact(
    tuning: Tuning, plan: Plan, ordered: list[Result], low: int, *, whole: bool = True
) -> None:
    """One batch down to the target: masks, then `whole` oldest groups into the summary."""
    why = f"to {low} tokens"
    for result in ordered:
        if plan.tokens - plan.words <= low:
            return
        mask_naming(plan, result, why, tuning.names)
    if whole:
        summarise_down_to(tuning, plan, summarisable(plan), low, why)


def escalate(tuning: Tuning, plan: Plan, results: list[Result], low: int) -> None:
    """There is no room: mask all but the newest result, then let whole groups go, but not in vain:
    where what must stay is large, half of what may go is enough. What is to be hidden last goes
    only as far as it must."""
    why = f"no room left: to {low} tokens"
    hard = int(HARD * plan.budget.room)
    for result in results:
        if plan.tokens - plan.words <= low:
            return
        if result.key in plan.kept and plan.tokens <= hard - MIN_GAIN:
            return
        mask_naming(plan, result, why)
    if plan.tokens <= hard - MIN_GAIN:
        return
    older = older_groups(plan, 0)
    enough = low_water(plan, older, low + plan.words, hard)
    summarise_down_to(tuning, plan, older, enough - plan.words, why)
    if plan.tokens > enough:
        sacrifice(plan, lambda: plan.tokens <= enough, why)


def summarise_down_to(tuning: Tuning, plan: Plan, older: list[Group], low: int, why: str) -> None:
    """Put oldest groups into the extractive summary, as many as it takes."""
    stand_in_down_to(
        plan,
        older,
        low,
        why,
        max_names=min(tuning.summary_names, low // SUMMARY_SHARE),
        max_tokens=tuning.knobs.summary.max_tokens,
        list_tokens=tuning.list_tokens(low),
    )


def summarisable(plan: Plan) -> list[Group]:
    """Oldest groups that a summary may take: none behind the first that holds a newest result, and
    none with a result that is to be hidden last."""
    newest = islice(reversed(plan.window.results.values()), KEEP)
    first = min((result.entry.round.group.index for result in newest), default=None)
    older = [group for group in older_groups(plan, KEEP_MESSAGES) if not plan.keeps(group)]
    return older if first is None else [group for group in older if group.index < first]


def mask_naming(plan: Plan, result: Result, why: str, limit: int = NAMES) -> None:
    """Mask a result by a placeholder that still says what it named."""
    tokens = plan.size(result.entry, result.part).tokens
    text = text_of(result.entry.message.parts[result.part])
    named = names_in(text, min(limit, tokens // 16))
    plan.mask(result.entry, result.part, why, naming(masked(tokens), named))


def candidates(plan: Plan, knobs: Knobs, keep: int) -> list[Result]:
    """Results that may be masked, oldest first: all but the newest, and the first if so set."""
    first = knobs.tool_result_keep_first or 0
    if knobs.tool_result_keep_first == knobs.tool_result_keep_last == 0:
        return []
    results = list(plan.window.results.values())
    kept = {result.key for result in (*results[:first], *results[max(0, len(results) - keep) :])}
    return [result for result in maskable(plan, knobs) if result.key not in kept]
