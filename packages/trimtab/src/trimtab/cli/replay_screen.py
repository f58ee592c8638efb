"""The output of `trimtab replay`: what was paid, cache breaks, and what policies would have saved.

Nothing here comes from the content of a log: only figures, and the names of clients, policies and
tools.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from trimtab.cli.text_format import format_count, join_names, shorten_to_line
from trimtab.replay.cache_breaks import BreakCause
from trimtab.replay.payments import (
    CAPPED_RESULT_TOKENS,
    LARGE_RESULT_TOKENS,
    Payment,
    Payments,
)
from trimtab.replay.savings import (
    MIN_CALLS,
    MIN_SAVING,
    MIN_SESSIONS,
    PolicySaving,
    Savings,
)

_MAX_TOOLS = 10
"""Tools that are named. The rest are counted."""
_MAX_TOOL_NAME_CHARS = 50
"""Characters of a tool's name that are shown. A log may contain longer ones."""
_REMEDIES: dict[BreakCause, str] = {
    "pause": "A cache lives for five minutes after its last use, or for an hour if the client asks "
    "for it. To lose less, finish a task before a pause, and begin the next in a new session.",
    "compaction": "A compaction pays once for its summary, and less for each call after it.",
    "edit": "A client or a provider that clears old results pays for all that follows them.",
    "head": "Tools that appear later, and a date or a status in the system prompt, break it.",
    "model": "Each model has its own cache: switch between tasks, not within one.",
    "unknown": "Without times in the log, or without cache marks, the reason cannot be known.",
}
"""What to know about the cause that cost most."""
_CAUSES: dict[BreakCause, str] = {
    "pause": "a pause longer than the cache lives",
    "compaction": "the client replaced old messages by a summary",
    "edit": "earlier text was removed or changed",
    "head": "system prompt or tools changed",
    "model": "another model",
    "unknown": "the log shows no reason",
}


class Screen(NamedTuple):
    """All figures of one run."""

    payments: Payments
    """What was paid."""
    savings: Savings
    """What policies would have cost."""
    unreadable: int
    """Lines and files that were skipped."""

    def to_json(self) -> dict[str, Any]:
        """Return the same figures as the screen, under plain names."""
        return {
            **self.payments.to_json(),
            "replayed": self.savings.to_json(),
            "skipped": self.unreadable,
            "sentence": make_sentence(self),
        }


def list_screen_lines(screen: Screen) -> list[str]:
    """Return the whole output."""
    sections = [
        _list_paid_lines(screen.payments),
        _list_break_lines(screen.payments),
        _list_advice_lines(screen.payments),
        _list_policy_lines(screen),
        [make_sentence(screen)],
    ]
    lines = [line for section in sections if section for line in [*section, ""]]
    return lines[:-1]


def list_share_lines(screen: Screen) -> list[str]:
    """Return the sentence and a small table, to be sent to others."""
    return [
        make_sentence(screen),
        "",
        *_format_policy_table(screen),
        "",
        "Measured with `trimtab replay`: no model was called, and nothing was sent anywhere.",
    ]


def make_sentence(screen: Screen) -> str:
    """Return the answer in a sentence or two, also if it is that nothing would be saved."""
    total, savings = screen.payments.total, screen.savings
    first = savings.default
    best = max(savings.policies, key=lambda one: one.saved)
    of = f" of the {_dollars(total.total)} that these sessions cost" if total.total else ""
    if best.saved < MIN_SAVING:
        amount = f"{_percent(best.saved)}" if best.saved > 0 else "nothing"
        return f"Trimtab would have saved {amount}{of}. Not worth installing."
    amount = f"{_percent(first.saved)}" if first.saved > 0 else "nothing"
    sentence = f"Trimtab ({first.policy}) would have saved {amount}{of}"
    sentence += _describe_price(first, total.total)
    if first.visible is not None:
        sentence += " of what the agent used again out of its sight"
    if best is not first:
        sentence += f"; {best.policy}, {_percent(best.saved)}"
        sentence += _describe_price(best, total.total)
    return f"{sentence}."


def _describe_price(one: PolicySaving, paid: float) -> str:
    """Say what a saving is in money, and what it costs in sight."""
    money = f", about {_dollars(one.saved * paid)}" if paid and one.saved > 0 else ""
    if one.visible is None:
        return money
    return f"{money}, with {_percent(1 - one.visible, 1)}"


def _list_paid_lines(payments: Payments) -> list[str]:
    total = payments.total
    if not total.calls:
        calls = format_count(total.calls_without_usage, "call")
        return [f"What you paid is not in these logs: {calls} without usage."]
    sessions = format_count(len(total.sessions), "session")
    summary = (
        f"You paid {_dollars(total.total)} at list prices for {format_count(total.calls, 'call')} "
        f"in {sessions}. On a flat plan this is usage, not money."
    )
    lines = [
        summary,
        "",
        *_format_paid_table(payments, total),
    ]
    left_out = [
        f"{format_count(count, 'call')} {reason}"
        for count, reason in (
            (total.calls_without_usage, "without usage"),
            (total.calls_without_price, "of models without a known price"),
        )
        if count
    ]
    if left_out:
        lines += ["", f"Not counted: {join_names(left_out)}."]
    return lines


def _format_paid_table(payments: Payments, total: Payment) -> list[str]:
    payments_by_kind = sorted(payments.by_kind.items(), key=lambda pair: -pair[1].total)
    rows = [(kind, payment) for kind, payment in payments_by_kind if payment.calls]
    if len(rows) > 1:
        rows.append(("all", total))
    has_long = total.dollars.cache_write_long > 0
    heads = ["", "sessions", "calls", "fresh input", "cache reads"]
    heads += ["writes, 5 min", "1 h"] if has_long else ["cache writes"]
    cells: list[list[str]] = []
    for kind, payment in rows:
        dollars = payment.dollars
        amounts = [dollars.fresh, dollars.cache_read, dollars.cache_write]
        amounts += [dollars.cache_write_long] if has_long else []
        amounts += [dollars.output, payment.total]
        counts = [f"{len(payment.sessions):,}", f"{payment.calls:,}"]
        cells.append([kind, *counts, *map(_dollars, amounts)])
    return _format_table([*heads, "output", "total"], cells)


def _list_break_lines(payments: Payments) -> list[str]:
    breaks = sorted(payments.breaks.items(), key=lambda pair: -pair[1].dollars)
    if not breaks:
        return []
    total = payments.total
    count = sum(loss.count for _, loss in breaks)
    dollars = sum(loss.dollars for _, loss in breaks)
    share = f" ({_percent(dollars / total.total)})" if total.total else ""
    rows = [[_CAUSES[cause], f"{loss.count:,}", _dollars(loss.dollars)] for cause, loss in breaks]
    summary = (
        f"The cache broke {count:,} times. Sending its text again cost {_dollars(dollars)}{share}. "
        "Why it broke:"
    )
    return [
        summary,
        "",
        *_format_table(["", "times", "cost"], rows),
        "",
        _REMEDIES[breaks[0][0]],
    ]


def _list_advice_lines(payments: Payments) -> list[str]:
    lines: list[str] = []
    large = payments.large_results
    if large.count:
        lines.append(
            f"{format_count(large.count, 'tool result')} had more than {LARGE_RESULT_TOKENS:,} "
            f"tokens. Cut to {CAPPED_RESULT_TOKENS:,} each, they would have cost "
            f"{_dollars(large.dollars)} less. This does not need Trimtab."
        )
    return [*lines, *([""] if lines else []), *_list_tool_lines(payments)]


def _list_tool_lines(payments: Payments) -> list[str]:
    """Say which tools to remove, or why the logs do not show it."""
    tools = payments.tools
    lines: list[str] = []
    if payments.head:
        lines.append(
            f"System prompt and tools: about {round(payments.head, -2):,} tokens of each call."
        )
    if not tools.by_name:
        lines.append(
            "Tools to remove: unknown, because these logs do not name tools that were never "
            "called. Your client lists all of them; in Claude Code, type /context."
        )
        return lines
    unused = tools.list_never_called()
    if not unused:
        return [*lines, "Tools to remove: none. Every tool was called in some session."]
    tokens = sum(use.tokens for _, use in unused) / tools.model_calls
    dollars = sum(use.dollars for _, use in unused)
    lines.append(
        f"Tools to remove: {len(unused):,} of {len(tools.by_name):,} were never called. They took "
        f"{tokens:,.0f} tokens of each call{f', {_dollars(dollars)} in all' if dollars else ''}."
    )
    rows = [
        [
            shorten_to_line(name, _MAX_TOOL_NAME_CHARS),
            *(
                f"{use.size:,}",
                f"{len(use.sessions):,}",
                _dollars(use.dollars) if use.dollars else "–",
            ),
        ]
        for name, use in unused[:_MAX_TOOLS]
    ]
    lines += ["", *_format_table(["", "tokens", "sessions", "cost"], rows)]
    if len(unused) > _MAX_TOOLS:
        lines.append(f"  and {len(unused) - _MAX_TOOLS:,} more; --json lists all")
    return lines


def _list_policy_lines(screen: Screen) -> list[str]:
    savings = screen.savings
    total = screen.payments.total
    sessions = format_count(savings.sessions, "session")
    is_sample = savings.sessions < len(total.sessions)
    choice_note = " chosen at random (--limit replays more)" if is_sample else ""
    lines = [
        (
            "What the same calls would have cost if Trimtab had chosen what to send: "
            f"{'' if is_sample else 'all '}{format_count(savings.calls, 'call')} of "
            f"{sessions}{choice_note}."
        ),
        "",
        (
            'auto: Trimtab as it is installed. auto:cost: the same with goal="cost", which hides '
            "more and earlier."
        ),
        "",
        *_format_policy_table(screen),
        "",
        (
            "Still visible, of what the agent took from earlier messages: names and paths; old "
            "texts that its edits quote; runs of four words that it copied from far back. The rest "
            "it can read back, and the cost includes that for names."
        ),
    ]
    if savings.error is not None:
        off = savings.modelled / savings.paid - 1
        error = (
            "How far to trust it: estimated in the same way, the calls as they were sent are "
            f"{_percent(abs(off), 1)} {'above' if off > 0 else 'below'} what you paid for input"
        )
        half = f" ({_percent(savings.error, 1)} or less in half of the sessions)"
        lines.append(f"{error}{half if savings.sessions > 1 else ''}.")
    else:
        lines.append("These logs have no usage, so system prompts and tools are not counted.")
    if savings.is_too_little:
        lines.append(
            f"To judge, replay at least {MIN_SESSIONS} sessions and {MIN_CALLS} calls. This is "
            f"{sessions} with {format_count(savings.calls, 'call')}."
        )
    return lines


def _format_policy_table(screen: Screen) -> list[str]:
    """Return what each policy would have cost, beside what was paid or is estimated."""
    savings, total = screen.savings, screen.payments.total
    is_paid = bool(total.total) and savings.sessions >= len(total.sessions)
    base = total.total if is_paid else savings.everything
    heads = ["", "cost", "saved", "still visible: names", "edits", "copies"]
    rows = [["everything, as sent", _dollars(base), "", "", "", ""]]
    for one in savings.policies:
        visible_edits = None if one.hidden_edits is None else 1 - one.hidden_edits
        needs = [
            "–" if share is None else _percent(share, 1)
            for share in (one.visible, visible_edits, one.far_4grams)
        ]
        rows.append([one.policy, _dollars(base * (1 - one.saved)), _percent(one.saved), *needs])
    refusals = [savings.refused, *(one.refused for one in savings.policies)]
    if any(refusals):
        heads.append("calls that did not fit")
        rows = [[*row, f"{count:,}"] for row, count in zip(rows, refusals, strict=True)]
    return _format_table(heads, rows)


def _percent(share: float, digits: int = 0) -> str:
    text = f"{100 * share:.{digits}f}"
    is_zero = not text.strip("-0.")
    return f"{text.lstrip('-') if is_zero else text} %"


def _dollars(amount: float) -> str:
    """Return `$1,234`, `$12.34` or `$0.0012`."""
    if amount >= 1_000:
        return f"${amount:,.0f}"
    return f"${amount:.2f}" if amount >= 0.01 or amount == 0 else f"${amount:.4f}"


def _format_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines with aligned columns: the first to the left, the others to the right."""
    table = [list(heads), *map(list, rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(heads))]
    return [
        (
            f"  {row[0]:<{widths[0]}}"
            + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        ).rstrip()
        for row in table
    ]
