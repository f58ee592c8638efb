"""What one call costs, in fresh input tokens of the main model.

- *input*: tokens read from the cache, written to it and neither, each at its price;
- *output*: the recorded reply, at the price of output;
- *summary*: where a policy summarised before the call, a summariser read what was summarised and
  wrote 400 tokens, or what it is known to have written, at a third of the main model's prices;
- *re-fetch*: where the reply refers to something that was hidden, what held it is fetched again
  and written to the cache, in one more call that reads the prompt and writes 100 tokens.
"""

from __future__ import annotations

from trimtab.replay.cache import Rules
from trimtab.replay.run import CallRecord

SUMMARY_OUTPUT = 400
"""Tokens that a modelled summary has."""
SUMMARY_PRICE = 1 / 3
"""Of the summariser, relative to the main model."""
FETCH_OUTPUT = 100
"""Tokens of the modelled call that asks for a lost text again."""


def cost(call: CallRecord, provider: str, rules: Rules) -> float:
    """Of a call as it was made: input, output and summary."""
    spent = call.bill[provider].cost(rules) + call.output * rules.output
    if call.summarised:
        written = SUMMARY_OUTPUT if call.written is None else call.written
        spent += (call.summarised + written * rules.output) * SUMMARY_PRICE
    return spent


def refetch(call: CallRecord, rules: Rules) -> float:
    """Of getting back what the call refers to and no longer sees; 0 where nothing is lost."""
    if call.seen == call.needs:
        return 0.0
    again = rules.read * call.tokens + FETCH_OUTPUT * rules.output
    return rules.write * call.missing + again
