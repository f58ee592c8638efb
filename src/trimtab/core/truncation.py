"""A server that cuts a request off in silence, seen from the usage it reports.

Ollama answers a request beyond its `num_ctx` with 200, having dropped the start of it. All that
tells is a count of input far below what was sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.core.tokens import TOOLS_OVERHEAD

if TYPE_CHECKING:
    from trimtab.core.window import Window

_LEAST = (
    # How small a part of the estimate the real count may be. Measured with the held-out texts of
    # benchmarks/token_estimates.py against o200k, cl100k and tekken, the lowest of any single text
    # of 1,000 tokens or more: 0.59 by the weights of its own family (0.68 for whole contexts),
    # 0.21 where the family is not known and the estimate is the highest of all, 0.48 by bytes/4.
    # Below are texts of a few characters that repeat, 5 % of those that benchmarks/text_kinds.py
    # generates: there the estimate leans on bytes.
    ("piecewise/max", 0.2),
    ("piecewise/", 0.55),
    ("bytes/4", 0.45),
    ("exact/", 0.9),
)
_SMALLEST = 1_000
"""Tokens. Nobody cuts to less (Ollama to half of a window that is 2,048 at least), and a limit
below would leave a session without room for anything."""


def silently_truncated(window: Window, counted: int) -> bool:
    """Whether the server has read fewer tokens of the last call than any error of our estimate
    explains, so that it must have cut the request.

    Pictures are left out, for a server may ignore them, and so is what a provider adds for tools,
    for local servers add nothing. Where a provider has a cache, a low count may be what the cache
    did not hold, and such providers refuse rather than cut. A cut to half of the window, as Ollama
    makes it, is seen once twice as much was sent, if the tokenizer's family is known; any other
    when the history has grown on.
    """
    pending, counter = window.pending, window.counter.name
    chat = window.settings.dialect == "openai_chat"  # no others cut
    cached = window.settings.entry.get("cache_style") != "none"
    if not chat or cached or counted < _SMALLEST:
        return False
    estimate = (pending.estimate - pending.media) * min(1.0, window.ratio)
    known = window.learned_limit or 0
    if (window.overflowed or window.disbelieved == known) and estimate <= known:
        # Cut down to what the server has read already, and again little of it was counted: it is
        # the estimate that is off, and the limit would go down for ever.
        return False
    least = next((share for name, share in _LEAST if counter.startswith(name)), 0.3)
    overhead = TOOLS_OVERHEAD if window.settings.tools else 0
    return counted < least * (estimate - overhead)


def cut_in_silence(sent: int, read: int) -> str:
    """What is said of it."""
    return f"about {sent:,} tokens were sent and {read:,} read: the server cut the rest"
