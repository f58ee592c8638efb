"""The output of `trimtab replay`: what was paid, what to tell each client, and what it loses.

Only figures, and the names of clients, models, tools and files come from a log: no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from trimtab.cli.text_format import format_count, join_names, shorten_to_line
from trimtab.replay import locations
from trimtab.replay.advice import MIN_CALLS, MIN_SAVING, MIN_SESSIONS
from trimtab.replay.cache_breaks import BreakCause
from trimtab.replay.client_study import ClientStudy
from trimtab.replay.payments import Filling, Payment, Payments

_MAX_NAMES = 5
"""Tools that are named. --json lists all."""
_MAX_NAME_CHARS = 50
"""Characters of a name that are shown. A log may contain longer ones."""
_CAUSES: dict[BreakCause, str] = {
    "pause": "a pause was longer than the cache lives",
    "compaction": "the client compacted",
    "edit": "earlier text was removed or changed",
    "head": "system prompt or tools changed",
    "model": "the model changed",
    "unknown": "of a reason that the log does not show",
}
_PLACES = {
    "/": "in Claude Code, for the model in use",
    "trimtab hook": "in a shell, after uv tool install 'trimtab[cli]'",
    "model_": "in ~/.codex/config.toml, above any [table]",
    "tool_": "in ~/.codex/config.toml, above any [table]",
    "Context": "in your program",
    "uv ": "in a shell",
}
"""Where to type a line, by its beginning."""
_WAYS_BACK = {
    locations.CLAUDE_CODE: "trimtab hook claude --remove and /autocompact auto",
    locations.CODEX: "delete the line of ~/.codex/config.toml",
}
"""How to undo the settings of the clients that have no plugin of Trimtab."""


class Screen(NamedTuple):
    """All figures of one run."""

    payments: Payments
    """What was paid."""
    studies: Sequence[ClientStudy]
    """What each client can be told."""
    unreadable: int
    """Lines and files that were skipped."""

    def to_json(self) -> dict[str, Any]:
        """Return the same figures as the screen, under plain names."""
        return {
            **self.payments.to_json(),
            "clients": {study.client: study.to_json() for study in self.studies},
            "skipped": self.unreadable,
            "sentences": list_sentences(self),
        }


def list_screen_lines(screen: Screen) -> list[str]:
    """Return the whole output."""
    sections = [
        _list_paid_lines(screen.payments),
        *(_list_advice_lines(study, screen.payments) for study in screen.studies),
        _list_notes(screen.studies),
        _list_filling_lines(screen.payments),
        list_sentences(screen),
    ]
    lines = [line for section in sections if section for line in [*section, ""]]
    return lines[:-1]


def list_sentences(screen: Screen) -> list[str]:
    """Return a sentence to act on for each client that has advice, or one that says to change
    nothing."""
    judged = [study for study in screen.studies if not study.is_too_little]
    if not judged:
        return [
            (
                "Leave it as it is: these are too few sessions to judge by. Come back with "
                f"{MIN_SESSIONS} sessions and {MIN_CALLS} calls of one client."
            )
        ]
    sentences = [
        _make_sentence(study, best, screen.payments)
        for study in judged
        if (best := study.advice.best) is not None
    ]
    if sentences:
        return sentences
    names = join_names([_name_client(study.client) for study in judged])
    return [
        (
            f"Leave {names} unchanged: no setting saves {_percent(MIN_SAVING)} unless it hides "
            "more than Trimtab's default would."
        )
    ]


def _make_sentence(study: ClientStudy, best: str, payments: Payments) -> str:
    saving = study.advice.saving[best]
    dollars = saving.saved * _find_payment(payments, study.client).total
    amount = _percent(saving.saved) + (f" ({_describe_money(dollars)})" if dollars else "")
    typed = " and ".join(f"{line} ({_find_place(line)})" for line in study.settings[best].lines)
    return (
        f"{_name_client(study.client)}: type {typed}. It would have saved {amount} in these "
        f"sessions, and hidden {_percent(saving.hidden_share, 1)} of what the agent used again."
    )


def _list_paid_lines(payments: Payments) -> list[str]:
    total = payments.total
    if not total.calls:
        calls = format_count(total.calls_without_usage, "call")
        return [f"What you paid is not in these logs: {calls} without usage."]
    sessions = format_count(len(total.sessions), "session")
    share = total.reread / total.total if total.total else 0.0
    lines = [
        (
            f"You paid {_dollars(total.total)} at list prices, {_dollars(total.reread)} of it "
            f"({_percent(share)}) to read old context again: "
            f"{format_count(total.calls, 'call')} in {sessions}."
        ),
        "On a flat plan this is usage, not money.",
    ]
    if len(payments.by_kind) > 1:
        lines += ["", *_format_paid_table(payments)]
    if payments.lost:
        cause = max(payments.lost, key=lambda one: payments.lost[one])
        lines += [
            "",
            (
                f"{_dollars(total.lost)} went to sending text again that the cache had lost, "
                f"{_dollars(payments.lost[cause])} because {_CAUSES[cause]}."
            ),
        ]
    left_out = [
        f"{format_count(count, 'call')} {reason}"
        for count, reason in (
            (total.calls_without_usage, "without usage"),
            (total.calls_without_price, "of models without a known price"),
        )
        if count
    ]
    return [*lines, f"Not counted: {join_names(left_out)}."] if left_out else lines


def _format_paid_table(payments: Payments) -> list[str]:
    rows = [
        [
            _name_client(kind),
            f"{len(payment.sessions):,}",
            f"{payment.calls:,}",
            _dollars(payment.reread),
            _dollars(payment.total),
        ]
        for kind, payment in sorted(payments.by_kind.items(), key=lambda pair: -pair[1].total)
    ]
    return _format_table(["", "sessions", "calls", "old context again", "total"], rows)


def _list_advice_lines(study: ClientStudy, payments: Payments) -> list[str]:
    """Say what to type, what it saves and what it loses; then what would save more."""
    advice, client = study.advice, _name_client(study.client)
    paid = _find_payment(payments, study.client)
    is_sample = study.sessions < len(paid.sessions)
    replayed = f"{format_count(study.calls, 'call')} of {format_count(study.sessions, 'session')}"
    chosen = f", taken at random from {len(paid.sessions):,}" if is_sample else ""
    lines = [f"WHAT TO TELL {client.upper()} ({replayed} replayed{chosen})"]
    if study.is_too_little:
        return [*lines, f"Too few to judge: {MIN_SESSIONS} sessions and {MIN_CALLS} calls needed."]
    rows: list[list[str]] = []
    choices = (
        ("Type this", "", advice.best, "nothing; leave it as it is"),
        ("Or instead", ", to save more and hide more", advice.next, "nothing saves more"),
    )
    for title, purpose, name, nothing in choices:
        if name is None:
            lines += ["", f"{title}: {nothing}."]
            continue
        lines += ["", f"{title}{purpose}:"]
        for line in study.settings[name].lines:
            lines.append(f"    {line:<44}  {_find_place(line)}")
        saving = advice.saving[name]
        label = f"{title.lower()}: {name}"
        rows.append([label, *_format_saving(saving.saved, saving.hidden_share, paid.total)])
    trimtab = advice.trimtab
    is_foreign = study.client in _WAYS_BACK
    label = f"Trimtab's default{' (own loop or plugin only)' if is_foreign else ''}"
    rows.append([label, *_format_saving(trimtab.saved, trimtab.hidden_share, paid.total)])
    of_total = f"of {_dollars(paid.total)}" if paid.total else ""
    lines += ["", *_format_table(["", "saves", of_total, "hides"], rows)]
    differing = {
        model: own.best for model, own in study.advice_by_model.items() if own.best != advice.best
    }
    if differing:
        sentences: list[str] = []
        for model, best in differing.items():
            setting = best or "change nothing"
            name = shorten_to_line(model, _MAX_NAME_CHARS)
            sentences.append(f"Only {name}? {setting[0].upper()}{setting[1:]}.")
        lines += ["", " ".join(sentences)]
    return lines


def _list_notes(studies: Sequence[ClientStudy]) -> list[str]:
    """Say what the figures mean, and what they leave out."""
    judged = [study for study in studies if not study.is_too_little]
    if not judged:
        return []
    lines = [
        (
            "These are savings in the past; on later sessions expect less. Whether the agent would "
            "have solved the task was not measured."
        ),
        (
            "Hides: the share of names and paths used again that the request would no longer show. "
            "Reading them again is in the cost."
        ),
    ]
    ways_back = [_WAYS_BACK[study.client] for study in judged if study.client in _WAYS_BACK]
    if ways_back:
        lines.append(f"To go back: {'; '.join(ways_back)}.")
        lines.append(
            "A compaction counts as hiding all that it replaces: how good the model's summary is "
            "was not measured."
        )
    errors = [
        f"{_percent(study.error, 1)} ({_name_client(study.client)})"
        for study in judged
        if study.error is not None
    ]
    if errors:
        lines.append(
            "How far to trust it: computed in the same way, half of the conversations are within "
            f"{join_names(errors)} of what was paid for their input."
        )
    return lines


def _format_saving(saved: float, hidden: float, paid: float) -> list[str]:
    money = _describe_money(saved * paid) if paid else ""
    return [_percent(saved), money, _percent(hidden, 1)]


def _describe_money(amount: float) -> str:
    """Return an estimate, which has no cents above ten dollars."""
    return f"about ${amount:,.0f}" if amount >= 10 else f"about {_dollars(amount)}"


def _list_filling_lines(payments: Payments) -> list[str]:
    """Say what filled the windows, and which tools were never called."""
    lines = [line for filling in payments.fillings for line in _describe_filling(filling)]
    unused = payments.tools.list_never_called()
    if unused:
        tokens = sum(use.tokens for _, use in unused) / payments.tools.model_calls
        names = [shorten_to_line(name, _MAX_NAME_CHARS) for name, _ in unused[:_MAX_NAMES]]
        more = f" and {len(unused) - _MAX_NAMES:,} more" if len(unused) > _MAX_NAMES else ""
        lines.append(
            f"  {len(unused):,} of {len(payments.tools.by_name):,} tools were never called, and "
            f"took {tokens:,.0f} tokens of each call: {', '.join(names)}{more}"
        )
    head = "WHAT FILLED THE WINDOWS (dollars: sent once, then read again by each later call)"
    return [head, *lines] if lines else []


def _describe_filling(filling: Filling) -> list[str]:
    name = shorten_to_line(filling.tool, _MAX_NAME_CHARS)
    file, log = (
        # The end of a path says more than its beginning.
        shorten_to_line("/".join(path.split("/")[-2:]), _MAX_NAME_CHARS)
        for path in (filling.file, filling.source)
    )
    what = f"{name} of {file}" if file else name
    often = f", {filling.results:,} times" if filling.results > 1 else ""
    calls = format_count(filling.calls, "call")
    return [
        f"  {_dollars(filling.dollars):>8}  {what}{often}: {filling.tokens:,} tokens,",
        f"            read again by up to {calls}, in {log}",
    ]


def _find_payment(payments: Payments, client: str) -> Payment:
    """Return what a client's sessions cost, those of its subagents included."""
    total = Payment()
    for kind, payment in payments.by_kind.items():
        if locations.find_client(kind) == client:
            total.add(payment)
    return total


def _name_client(client: str) -> str:
    return {"messages": "your own loop", "Trimtab": "your own agents"}.get(client, client)


def _find_place(line: str) -> str:
    return next((place for start, place in _PLACES.items() if line.startswith(start)), "")


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
