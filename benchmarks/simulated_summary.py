"""Simulate a summary by a model: no model is called, but the sizes are those of a real summary.

Lines of the conversation replace the model's sections, with the number of tokens that a model would
be asked for. The verbatim list and the size checks are those of production. The input that the
model would read is counted.
"""

from __future__ import annotations

from trimtab.engine.policy.costs import SUMMARY_PROMPT_TOKENS
from trimtab.engine.summaries.extract import extract_summary
from trimtab.engine.summaries.facts import add_verbatim_list, compute_list_room
from trimtab.engine.summaries.format import REQUESTED_SUMMARY_TOKENS, split_summary
from trimtab.engine.summaries.transcript import transcribe_messages
from trimtab.errors import UnusableSummary
from trimtab.verbs import summarising
from trimtab.verbs.state import State, Verb


def add_simulated_summary(state: State, forced: bool) -> Verb[tuple[int, int]]:
    """Add the summary that the policy wants, and return the tokens read and written for it."""
    request = summarising.find_pending_summary(state, forced=forced)
    if request is None:
        return 0, 0
    counter = state.window.counter
    before, prior_list = split_summary(request.prior_summary)
    max_tokens = min(REQUESTED_SUMMARY_TOKENS, request.max_tokens)
    body = extract_summary(before, request.messages, counter, max_tokens=max_tokens)
    room = compute_list_room(
        body, prior_list, counter, request.replaced_tokens, request.list_tokens
    )
    text = add_verbatim_list(
        request.prior_summary,
        request.messages,
        body,
        counter,
        list_tokens=room,
        visible_text=request.visible_text,
    )
    source_texts = [request.prior_summary, *transcribe_messages(request.messages)]
    try:
        yield from summarising.add_summary(state, text, span=request.span)
    except UnusableSummary:
        return 0, 0
    return SUMMARY_PROMPT_TOKENS + sum(map(counter.count, source_texts)), counter.count(body)
