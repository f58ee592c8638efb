"""Room: what a request may hold, with every term of the subtraction visible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from trimtab.core.event import Settings, Size
from trimtab.core.tokens import MAXIMUM_RATIO

DEFAULT_WINDOW = 128_000
"""Tokens, for a model that nobody knows."""

SAFETY_MARGIN = 0.10
"""Share of the limit that the `bytes/4` arithmetic leaves free, against its own inaccuracy."""

LEAST_OUTPUT = 256
"""Tokens of output below which a reply is hardly one."""

MAX_OUTPUT = 8_192
"""Tokens of output asked for where the user did not say."""

HIDE_FIRST = ("layered", "compact", "rolling", "thresholds", "full")
"""Presets whose documents say what is hidden at once after a refusal for length. Others ask for
less output before they hide anything."""

ACTOR_MESSAGES = 1_000
"""Messages that a live session keeps in memory where its limit is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    limit: int
    """Tokens that input and requested output may reach together; the provider refuses more."""
    source: str
    """What set the limit: `max_input_tokens`, `context_window`, `learned`, `model` or `default`."""
    soft_limit: int
    """Tokens beyond which the price jumps, or the limit; policies stay below, the guard may not."""
    head: Size
    """System prompt, tool definitions, nested parameters, and what a provider adds for having
    tools."""
    max_output: int
    """Tokens reserved for the reply and asked for in the request."""
    least_output: int = 0
    """Tokens of output that are asked for at least, where nothing else makes the request fit."""
    output_first: bool = False
    """True where less output is asked for before anything is hidden: the last call was refused."""
    volatile: int = 0
    """Estimated tokens of the tail that rides with this call alone."""
    margin: float = 0.15
    """Share to add to an estimate so that it holds as an upper bound."""
    ratio: float = 1.0
    """Reported over estimated tokens, as learned from earlier calls; 1 or more."""
    now: float = 0.0
    """Seconds since the epoch: whether a cache is still alive depends on it."""
    input_limit: int = 0
    """Tokens of input alone that the provider takes at most; 0 where only the sum is limited."""

    @property
    def most_input(self) -> int:
        """Tokens that the input may reach by its upper bound."""
        rest = self.limit - self.max_output
        return min(rest, self.input_limit) if self.input_limit else rest

    @property
    def room(self) -> int:
        """Estimated tokens left for messages: soft limit − output − margin − head − volatile."""
        usable = (self.soft_limit - self.max_output) / (1 + self.margin) / self.ratio
        return max(0, int(usable) - self.head.tokens - self.volatile)

    @property
    def available(self) -> int:
        """The same by `bytes/4`: limit − system − tools − output − 10 % of the limit."""
        safety = int(self.soft_limit * SAFETY_MARGIN)
        return max(0, self.soft_limit - quarter(self.head.bytes) - self.max_output - safety)

    def share(self, part: float) -> int:
        """Estimated tokens of messages at which head and messages fill a share of the limit;
        never more than the room."""
        return max(0, min(int(self.soft_limit * part) - self.head.tokens, self.room))


def quarter(size: int) -> int:
    """Bytes as tokens, four to one, rounded up."""
    return (size + 3) // 4


def actor_message_limit(max_input_tokens: int | None) -> int:
    """Messages that a live session keeps in memory: twice what a limit holds at 200 tokens each."""
    if not max_input_tokens:
        return ACTOR_MESSAGES
    return min(max(max_input_tokens // 200 * 2, 100), 2_000)


def budget_for(
    settings: Settings,
    *,
    learned: int | None,
    ratio: float,
    margin: float,
    volatile: int = 0,
    output_first: bool = False,
    now: float = 0.0,
) -> Budget:
    """The budget of the next call."""
    limit, source = limit_of(settings, learned)
    explicit: int | None = settings.limits.get("max_output_tokens")
    cap: int | None = settings.entry.get("max_output")
    thinking = thinking_of(settings.params)
    reply = min(MAX_OUTPUT, max(1, (limit - thinking) // 4))
    reserve = explicit or min(reply + thinking, cap or reply + thinking)
    input_limit: int = (source == "model" and settings.entry.get("input_limit")) or 0
    if input_limit:
        limit = min(limit, input_limit + reserve)
    soft: Any = settings.entry.get("soft_window")
    cheap = min(limit, soft) if soft and source in ("model", "learned") else limit
    return Budget(
        limit=limit,
        source=source,
        soft_limit=cheap,
        head=settings.head,
        max_output=reserve,
        least_output=(not output_first and explicit) or min(reserve, LEAST_OUTPUT + thinking),
        volatile=volatile,
        output_first=output_first,
        margin=margin,
        ratio=min(max(ratio, 1.0), MAXIMUM_RATIO),
        now=now,
        input_limit=input_limit,
    )


def thinking_of(params: Mapping[str, Any]) -> int:
    """Tokens that the model may think before it replies; they are output, too."""
    asked = params.get("thinking")
    if not isinstance(asked, Mapping):
        return 0
    tokens = cast("Mapping[str, Any]", asked).get("budget_tokens")
    return tokens if isinstance(tokens, int) else 0


def limit_of(settings: Settings, learned: int | None) -> tuple[int, str]:
    """The limit and what set it. A limit that the provider taught is never exceeded knowingly."""
    for name in ("max_input_tokens", "context_window"):
        value: int | None = settings.limits.get(name)
        if value:
            return (learned, "learned") if learned and learned < value else (value, name)
    if learned:
        return learned, "learned"
    window: int | None = settings.entry.get("context_window")
    return (window, "model") if window else (DEFAULT_WINDOW, "default")
