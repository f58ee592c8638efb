"""A server that cuts a request off in silence, seen from the usage it reports.

Ollama answers a request beyond its `num_ctx` with 200, having dropped the start of it. All that
tells is a count of input far below what was sent.
"""

from __future__ import annotations

from trimtab.core.event import Usage
from trimtab.core.tokens import TOOLS_OVERHEAD
from trimtab.providers.provider import Failure

_LEAST = (
    # How small a part of the estimate the real count may be. Measured with the held-out texts of
    # benchmarks/token_estimates.py against o200k, cl100k and tekken, the lowest of any single
    # text: 0.73 by the weights of its own family (0.83 for whole contexts), 0.31 where the family
    # is not known and the estimate is the highest of all, 0.54 by bytes/4.
    ("piecewise/max", 0.3),
    ("piecewise/", 0.7),
    ("bytes/4", 0.5),
    ("exact/", 0.9),
)


_SMALLEST = 1_000
"""Tokens. Nobody cuts to less (Ollama to half of a window that is 2,048 at least), and a limit
below would leave a session without room for anything."""


def silently_truncated(estimate: int, usage: Usage, *, counter: str) -> bool:
    """Whether fewer tokens were read than any error of the estimate explains.

    `estimate` is what the call recorded (`Call.tokens`), never the bound: its margin is there to
    be unused. `counter` is the name of the counter that took it. What a provider adds for tools is
    left out, for local servers add nothing. A cut to half of the window, as Ollama makes it, is
    seen at once where the tokenizer's family is known; a smaller one when the history has grown
    on. A request whose media the server ignores looks the same.
    """
    least = next((share for name, share in _LEAST if counter.startswith(name)), 0.3)
    return _SMALLEST <= usage.input < least * (estimate - TOOLS_OVERHEAD)


def read_usage(estimate: int, usage: Usage, *, counter: str) -> Failure | None:
    """The overflow that a usage tells of; its limit is what was read, which certainly fits."""
    if not silently_truncated(estimate, usage, counter=counter):
        return None
    words = f"about {estimate:,} tokens were sent and {usage.input:,} read: the server cut the rest"
    return Failure(kind="overflow", message=words, limit=usage.input, input=estimate)
