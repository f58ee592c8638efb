"""The steps that presets are made of. Each looks at a plan and adds to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trimtab.core.budget import quarter
from trimtab.core.edits import Strategy, masked, previously_viewed
from trimtab.core.plan import Cap, Plan
from trimtab.core.policies.knobs import Knobs, ToolKnobs, Truncation
from trimtab.core.rounds import Group, Result

_COMMON = ToolKnobs()
NEAR = 100
"""Tokens over a cap at which the list of the user's words is no longer estimated, but counted."""


Own = Cap | Callable[[Result], Cap] | None
"""A preset's own cap of a result, or what gives it."""


def cap_results(plan: Plan, knobs: Knobs, own: Own) -> None:
    """Cut results that were never sent to the cap: the one edit that costs no cache write."""
    for result in reversed([*plan.window.new_results()]):
        preset = own(result) if callable(own) else own
        if result.edited is not None or result.entry.revealed:
            continue
        tool = knobs.tools.get(result.tool, _COMMON)
        truncation = knobs.truncation(result.tool)
        cap = _cap_for(tool, knobs, preset, truncation)
        if cap is not None and not tool.exempt and _may_exceed(result, cap):
            # Where somebody has summarised it, it is edited already.
            told = "; no summary was made" if truncation == "summary" else ""
            why = f"{result.tool}: over {cap.amount} {cap.unit}{told}"
            plan.truncate(result.entry, result.part, cap, why)


def _cap_for(tool: ToolKnobs, knobs: Knobs, own: Cap | None, truncation: Truncation) -> Cap | None:
    tokens = tool.max_tool_result_tokens or knobs.max_tool_result_tokens
    cap = own
    if tokens is not None:
        # A cap that the user gave in tokens replaces a preset's bytes or characters, words and all.
        unit = own.unit if own is not None and own.unit == "bytes/4" else "tokens"
        cap = Cap(amount=tokens, unit=unit, strategy=own.strategy if own is not None else "head")
    said = tool.tool_result_truncation or knobs.tool_result_truncation
    if cap is None or (said is None and cap.strategy == "lines"):
        return cap
    strategy: Strategy = "head" if truncation == "summary" else truncation
    return replace(cap, strategy=strategy)


def _may_exceed(result: Result, cap: Cap) -> bool:
    size = result.size
    match cap.unit:
        case "tokens":
            return size.tokens > cap.amount
        case "bytes/4":
            return size.bytes > cap.amount * 4
        case "bytes" | "chars":
            return size.bytes > cap.amount


def cap_history(plan: Plan, tokens: int) -> None:
    """Drop oldest groups until what stands before the newest user message is within the cap."""
    limit = min(tokens, plan.budget.available) if tokens else plan.budget.available
    window, start, asked = plan.window, plan.window.turn_start, 0
    if window.revealed > window.seen:
        # What was revealed comes on top until it was read: nothing else goes for it, nor when the
        # guard lets it go again and a notice stands there.
        unread = [g for g in plan.groups() if g.index < start and plan.unread(g)]
        asked = sum(map(plan.group_bytes, unread))

    def over() -> int:
        notice = plan.notice_bytes() if asked else 0
        return quarter(plan.bytes - plan.turn_bytes - asked + notice) - limit

    def enough() -> bool:
        # By an estimate of what is listed more would go than has to: it is counted at the end.
        if 0 < over() <= limit // 8 + NEAR:
            plan.settle()
        return over() <= 0

    plan.drop_oldest(enough, f"history over {limit} tokens", before=start)


def cap_messages(plan: Plan, limit: int) -> None:
    """Drop oldest groups until no more messages are seen than a live session keeps in memory."""
    plan.drop_oldest(lambda: plan.messages <= limit, f"over {limit} messages")


def mask_middle(plan: Plan, knobs: Knobs, first: int, last: int) -> None:
    """Mask results of the active turn but the first and last ones; both 0 masks nothing."""
    first = first if knobs.tool_result_keep_first is None else knobs.tool_result_keep_first
    last = last if knobs.tool_result_keep_last is None else knobs.tool_result_keep_last
    results = plan.window.turn_results
    if (first == 0 and last == 0) or results.count <= first + last:
        return
    kept = results.ends(first, last)
    why = f"middle of {results.count} results"
    kept |= plan.kept
    for result in maskable(plan, knobs):
        if result.key not in kept and result.entry.round.group.index >= plan.window.turn_start:
            size = plan.size(result.entry, result.part).bytes
            content = size - len(result.call.id.encode("utf-8", "surrogatepass"))
            plan.mask(result.entry, result.part, why, masked(quarter(content)))


def mask_older(plan: Plan, knobs: Knobs, keep: int, why: str, enough: Callable[[], bool]) -> None:
    """Turn all but the newest results into their first lines; both 0 masks nothing. Those that are
    to be hidden last follow only until it is `enough`."""
    last = keep if knobs.tool_result_keep_last is None else knobs.tool_result_keep_last
    first = knobs.tool_result_keep_first or 0
    if first == 0 and last == 0:
        return
    results = [r for r in plan.window.results.values() if not plan.hides(r.entry.round.group)]
    kept = {result.key for result in (*results[:first], *results[max(0, len(results) - last) :])}
    for result in kept_last(plan, maskable(plan, knobs)):
        if result.key in plan.kept and enough():
            return
        if result.key not in kept:
            text = previously_viewed(text_of_result(result))
            plan.mask(result.entry, result.part, why, text)


def maskable(plan: Plan, knobs: Knobs) -> list[Result]:
    """Visible results, oldest first, that a policy may mask: seen by the model, not exempt."""
    return [
        result
        for result in plan.window.results.values()
        if max(result.seq, result.entry.revealed) <= plan.window.seen
        and not result.entry.pinned
        and not plan.hides(result.entry.round.group)
        and not knobs.tools.get(result.tool, _COMMON).exempt
    ]


def kept_last(plan: Plan, results: list[Result]) -> list[Result]:
    """Results in their order, those that are to be hidden last at the end."""
    return sorted(results, key=lambda result: result.key in plan.kept) if plan.kept else results


def text_of_result(result: Result) -> str:
    part = result.entry.message.results
    return next((p.text for p in part if p is result.entry.message.parts[result.part]), "")


def older_groups(plan: Plan, keep: int) -> list[Group]:
    """Groups that a summary may replace, in the order in which they go: all but those that hold
    the newest messages."""
    kept = 0
    older: list[Group] = []
    for group in reversed(list(plan.groups())):
        if kept >= keep and plan.may_hide(group) and not plan.unread(group):
            older.append(group)
        kept += group.messages
    return plan.kept_last(older[::-1])


def bind_history(plan: Plan, knobs: Knobs) -> None:
    """The user's history cap, in a preset that has none of its own."""
    if knobs.max_history_tokens:
        cap_history(plan, knobs.max_history_tokens)


def bind_masks(plan: Plan, knobs: Knobs) -> None:
    """The user's first and last results, in a preset that masks nothing of its own."""
    if knobs.tool_result_keep_first is not None or knobs.tool_result_keep_last is not None:
        mask_middle(plan, knobs, 0, 0)


def bind_knobs(plan: Plan, knobs: Knobs) -> None:
    """All that the user set, in a preset that has nothing of its own."""
    cap_results(plan, knobs, None)
    bind_history(plan, knobs)
    bind_masks(plan, knobs)
