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
    "for it. To lose less, pause between tasks, not within one.",
    "compaction": "A compaction pays once for its summary, and less for each call after it.",
    "edit": "A client or a provider that clears old results pays for all that follows them.",
    "head": "Tools that appear later, and a date or a status in the system prompt, break it.",
    "model": "Each model has its own cache: switch between tasks, not within one.",
    "unknown": "Without times in the log, or without cache marks, the reason cannot be known.",
}
"""What to know about the cause that cost most."""
_CAUSES: dict[BreakCause, str] = {
    "pause": "a pause longer than the cache lives",
    "compaction": "the client compacted",
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
    total = screen.payments.total
    rows = [["as sent", _dollars(total.total) if total.calls else "", "", ""]]
    rows += [_policy_cells(one, total.total) for one in screen.savings.policies]
    return [
        make_sentence(screen),
        "",
        *_format_table(["", "cost", "saved", "still visible"], rows),
        "",
        "Measured with `trimtab replay`: no model was called, and nothing was sent anywhere.",
    ]


def make_sentence(screen: Screen) -> str:
    """Return the answer in a sentence or two, also if it is that nothing would be saved."""
    total, savings = screen.payments.total, screen.savings
    first = savings.default
    if first is None:
        return "No policy was replayed."
    best = max(savings.policies, key=lambda one: one.saved)
    of = f" of the {_dollars(total.total)} that these sessions cost" if total.total else ""
    money = f", about {_dollars(first.saved * total.total)}" if total.total else ""
    if best.saved < MIN_SAVING:
        amount = f"{_percent(best.saved)}" if best.saved > 0 else "nothing"
        return f"Trimtab would have saved {amount}{of}. Not worth installing."
    amount = f"{_percent(first.saved)}" if first.saved > 0 else "nothing"
    sentence = f"Trimtab ({first.policy}) would have saved {amount}{of}"
    sentence += money if first.saved > 0 else ""
    if best is not first:
        sentence += f"; with {best.policy} it would have been {_percent(best.saved)}"
        if best.visible is not None:
            sentence += f", which hides {_percent(1 - best.visible, 1)} of what is used again"
    unsure = " The sessions differ too much to be sure." if best.low <= 0 else ""
    return f"{sentence}.{unsure}"


def _list_paid_lines(payments: Payments) -> list[str]:
    total = payments.total
    if not total.calls:
        calls = format_count(total.calls_without_usage, "call")
        return [f"What you paid is not in these logs: {calls} without usage."]
    sessions = format_count(len(total.sessions), "session")
    summary = (
        f"You paid {_dollars(total.total)} at list prices for {format_count(total.calls, 'call')} "
        f"in {sessions} (on a flat plan: usage, not money)."
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
    paid = sorted(payments.by_kind.items(), key=lambda pair: -pair[1].total)
    rows = [(kind, payment) for kind, payment in paid if payment.calls]
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
        f"The cache broke {count:,} times. To send again what it had held cost "
        f"{_dollars(dollars)}{share}. Why it broke:"
    )
    return [
        summary,
        "",
        *_format_table(["", "calls", "cost"], rows),
        "",
        _REMEDIES[breaks[0][0]],
    ]


def _list_advice_lines(payments: Payments) -> list[str]:
    lines: list[str] = []
    large = payments.large_results
    if large.count:
        lines.append(
            f"{format_count(large.count, 'tool result')} had more than {LARGE_RESULT_TOKENS:,} "
            f"tokens. Cut to {CAPPED_RESULT_TOKENS:,}, they would have cost "
            f"{_dollars(large.dollars)} less."
        )
    return [*lines, *([""] if lines else []), *_list_tool_lines(payments)]


def _list_tool_lines(payments: Payments) -> list[str]:
    """Name the tools to remove, or the reason why the logs do not show them."""
    tools = payments.unused_tools
    lines: list[str] = []
    if payments.head:
        lines.append(
            f"System prompt and tools: about {payments.head:,} tokens of each call (median of the "
            "sessions)."
        )
    if not tools.sessions:
        lines.append(
            "Tools to remove: these logs do not name the tools that were not called. Your client "
            "lists all of them; in Claude Code, type /context."
        )
        return lines
    unused = tools.list_never_called()
    if not unused:
        return [*lines, "Tools to remove: none. Every tool was called in some session."]
    lines.append(
        f"Tools to remove: {len(unused):,} of {len(tools.by_name):,} were never called. Unused "
        f"tools took {tools.tokens_per_call:,.0f} tokens of each call"
        f"{f', {_dollars(tools.dollars)} in all' if tools.dollars else ''}."
    )
    rows = [
        [
            shorten_to_line(name, _MAX_TOOL_NAME_CHARS),
            *(
                f"{use.tokens:,}",
                f"{use.sessions:,}",
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
    if not savings.policies:
        return []
    heads = ["", "cost", "saved", "still visible"]
    rows = [["everything, as sent", _dollars(savings.everything), "", ""]]
    rows += [_policy_cells(one) for one in savings.policies]
    refused = [savings.refused, *(one.refused for one in savings.policies)]
    if any(refused):
        heads.append("calls that did not fit")
        rows = [[*row, f"{count:,}"] for row, count in zip(rows, refused, strict=True)]
    total = screen.payments.total
    sessions = format_count(savings.sessions, "session")
    is_sample = savings.sessions < len(total.sessions)
    chosen = " chosen at random; --limit replays more" if is_sample else ""
    lines = [
        (
            f"What Trimtab would have cost: {'' if is_sample else 'all '}"
            f"{format_count(savings.calls, 'call')} of {sessions}{chosen}."
        ),
        "",
        *_format_table(heads, rows),
        "",
        *_explain_policies(savings),
        (
            "Still visible: of the names and paths that the agent used "
            "again, what it could still see. "
            "A name that only Trimtab's note about hidden text lists does not count."
        ),
    ]
    if savings.error is not None:
        off = savings.modelled / savings.paid - 1
        error = (
            f"How far to trust it: for everything, as sent, the model says "
            f"{_percent(abs(off), 1)} {'more' if off > 0 else 'less'} than you paid for input "
            f"(median of a session: {_percent(savings.error, 1)})."
        )
        lines.append(error)
    else:
        lines.append("These logs have no usage, so system prompts and tools are not counted.")
    if savings.is_too_little:
        lines.append(
            f"This is too little for a judgement: replay at least {MIN_SESSIONS} sessions and "
            f"{MIN_CALLS} calls."
        )
    return lines


def _explain_policies(savings: Savings) -> list[str]:
    """Say what the default policies are. Others are known to whoever typed them."""
    names = {policy.policy for policy in savings.policies}
    meanings = {
        "auto": "auto: Trimtab as it is installed.",
        "auto:cost": 'auto:cost: the same with goal="cost", which hides more and earlier.',
    }
    line = " ".join(text for name, text in meanings.items() if name in names)
    return [line] if line else []


def _policy_cells(one: PolicySaving, paid: float | None = None) -> list[str]:
    dollars = one.dollars if paid is None else paid * (1 - one.saved)
    interval = f"{_percent(one.saved)} ({_percent(one.low)} to {_percent(one.high)})"
    visible = "" if one.visible is None else _percent(one.visible, 1)
    return [one.policy, _dollars(dollars), interval, visible]


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
