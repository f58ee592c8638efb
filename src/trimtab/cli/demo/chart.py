"""Model calls as columns: what was sent, what stayed hidden, and where the window ends."""

from __future__ import annotations

from rich.text import Text

from trimtab.cli.demo.seen import Seen, Sent

LABEL = 8
"""Characters before a row."""
WORD = "┄ window"
"""What stands behind the line where the window ends."""
SENT, HIDDEN, EDGE = "cyan", "grey35", "red"
_STEPS = " ▁▂▃▄▅▆▇█"


def chart(seen: Seen, width: int, rows: int, *, colours: bool) -> list[Text]:
    """Rows from the top down; a column for each call, and the window as a line."""
    room = width - LABEL
    # The newest calls, with room for the word behind the line.
    wide = max(1, min(2, (room - len(WORD)) // max(1, len(seen.calls))))
    calls = seen.calls[-max(1, (room - len(WORD)) // wide) :]
    top = max([seen.window * 1.25, *(call.whole for call in calls)])
    step = top / rows
    edge = rows - 1 - int(seen.window / step)
    drawn: list[Text] = []
    for row in range(rows):
        line = Text(_label(row, edge, top, seen.window), EDGE if row == edge else "dim")
        for call in calls:
            cell, style = _cell(call, (rows - 1 - row) * step, step, at_edge=row == edge)
            line.append(cell if colours or style != HIDDEN else "░", style)
            if wide > 1:
                line.append("┄" if row == edge else " ", EDGE)
        if row == edge:
            line.append("┄" * max(0, room - wide * len(calls) - len(WORD) + 1) + WORD[1:], EDGE)
        drawn.append(line)
    return [*drawn, _legend(seen, "█" if colours else "░")]


def _label(row: int, edge: int, top: float, window: int) -> str:
    if row == edge:
        return f"{window / 1_000:>5.0f}k ┄"
    return f"{top / 1_000:>5.0f}k  " if row == 0 else " " * LABEL


def _cell(call: Sent, floor: float, step: float, *, at_edge: bool) -> tuple[str, str]:
    """One character: how far the call fills the row, in eighths."""
    sent = _eighths(call.input, floor, step)
    whole = _eighths(call.whole, floor, step)
    if whole == 8 and 0 < sent < 8:
        return _STEPS[sent], f"{SENT} on {HIDDEN}"
    if sent:
        # One character has two colours: what is above both stays empty.
        return _STEPS[sent], SENT
    if whole:
        return _STEPS[whole], HIDDEN
    return ("┄", EDGE) if at_edge else (" ", "")


def _eighths(tokens: int, floor: float, step: float) -> int:
    return max(0, min(8, round((tokens - floor) / step * 8)))


def _legend(seen: Seen, hidden: str) -> Text:
    return Text.assemble(
        " " * LABEL,
        ("█ ", SENT),
        f"sent: {seen.sent:,} tokens in {len(seen.calls)} calls   ",
        (f"{hidden} ", HIDDEN),
        f"not sent: {max(0, seen.whole - seen.sent):,}",
    )
