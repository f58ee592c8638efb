"""Compute the cost of one call, in fresh input tokens of the main model.

- *input*: tokens read from the cache, written to it and all others, each at its price;
- *output*: the recorded reply, at the price of output;
- *summary*: if a policy summarised before the call, a summariser read the summarised messages and
  wrote 400 tokens, or the known number, at a third of the main model's prices;
- *re-fetch*: if the reply refers to something hidden, its message is fetched again and written to
  the cache, in one more call that reads the prompt and writes 100 tokens.
"""

from __future__ import annotations

from trimtab.replay.billing import CacheRules
from trimtab.replay.calls import ReplayedCall

SUMMARY_OUTPUT_TOKENS = 400
"""Tokens of a modelled summary."""
SUMMARISER_PRICE_RATIO = 1 / 3
"""The summariser's price relative to the main model."""
REFETCH_OUTPUT_TOKENS = 100
"""Output tokens of the modelled call that fetches a lost text again."""


def compute_call_cost_in_input_tokens(
    call: ReplayedCall, provider_name: str, cache_rules: CacheRules
) -> float:
    """Return the cost of a call as it was made: input, output and summary."""
    spent = call.bill[provider_name].cost(cache_rules) + call.output * cache_rules.output
    if call.summarised:
        written = SUMMARY_OUTPUT_TOKENS if call.written is None else call.written
        spent += (call.summarised + written * cache_rules.output) * SUMMARISER_PRICE_RATIO
    return spent


def compute_refetch_cost(call: ReplayedCall, cache_rules: CacheRules) -> float:
    """Return the cost of fetching what the call refers to but no longer sees, or 0."""
    if call.needs.shows_every_reference:
        return 0.0
    again = cache_rules.read * call.tokens + REFETCH_OUTPUT_TOKENS * cache_rules.output
    return cache_rules.write * call.missing + again
