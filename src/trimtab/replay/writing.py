"""A summary by a model, in a replay: nobody is asked, but the sizes are those of a real one.

Lines of what was said stand for the model's sections, as many tokens as it is asked for; the list
beside them and the checks on sizes are the product's own. What the model would be shown is counted.
"""

from __future__ import annotations

from trimtab.context import Context
from trimtab.core.extract import extract
from trimtab.core.fidelity import list_room, with_list
from trimtab.core.policies.awaiting import PROMPT_TOKENS
from trimtab.core.policies.summaries import SummaryRefused
from trimtab.core.serial import serialised
from trimtab.core.summary_text import ASKED_TOKENS, split


def write_summary(context: Context, *, forced: bool) -> tuple[int, int]:
    """Put the summary in place that the policy wants; tokens read and written for it, if any."""
    wanted = context.wanted_summary(forced=forced)
    if wanted is None:
        return 0, 0
    counter = context.window.counter
    before, listed = split(wanted.prior)
    asked = min(ASKED_TOKENS, wanted.max_tokens)
    body = extract(before, wanted.messages, counter, max_tokens=asked)
    room = list_room(body, listed, counter, wanted.tokens, wanted.list_tokens)
    text = with_list(
        wanted.prior, wanted.messages, body, counter, list_tokens=room, seen=wanted.seen
    )
    shown = [wanted.prior, *serialised(wanted.messages)]
    try:
        context.add_summary(text, span=wanted.span)
    except SummaryRefused:
        return 0, 0
    return PROMPT_TOKENS + sum(map(counter.count, shown)), counter.count(body)
