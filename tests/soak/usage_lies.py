"""No request is over its window, whatever a provider reports of it.

    python -m tests.soak.usage_lies [--quick] [--json] [--seed N]

Conversations of words and results run under every preset and under the policy of the README, with
pictures and without, against providers of eight kinds: one that counts honestly; one that reports
only what its cache did not hold; one that always reports the same small number; one that begins to
lie after ten honest calls; one that reports a hundred times too much once; one that reports the sum
of all calls so far; one that adds a system prompt of its own; and a server that cuts what is too
long and says nothing. Real sizes are counted by o200k, with 4 tokens around a message,
8 around a call and 85 for a picture in low detail.

`over_window` counts requests whose real input and requested output are above the window, except,
for the server that cuts, those sent before its first cut, which nobody could foresee.
"""

from __future__ import annotations

import base64
import random
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import exact_tokenizers, harness
from trimtab import Context
from trimtab.engine.policy.planning.plan import Decision, Plan
from trimtab.engine.policy.presets import POLICY_NAMES

WINDOW = 24_000
CUTS_AT = 4_096
LOW_DETAIL = 85
"""Tokens of any picture that is looked at in low detail."""
OPENAI = "gpt-4o"
LOCAL = "llama3.1:8b"
TURNS = 40
WORDS = (
    "the ferry leaves at dawn when harbour lights are low and nobody asks who paid for rope or "
    "bread while clerks compare ledgers against tariffs posted beside old doors"
).split()

Wire = dict[str, Any]


def only_the_newest_result(window: Any, budget: Any) -> Decision:
    """The policy of the README."""
    plan = Plan(window, budget)
    for result in list(window.results.values())[:-1]:
        plan.mask(result.entry, result.part, "not the newest")
    return plan.to_decision()


class Provider:
    """What a provider reads of a request, and what it says that it read."""

    model = OPENAI
    cuts = False

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self.calls = 0
        self.before = 0
        """Tokens of the last request."""

    def real(self, request: Wire) -> int:
        """Tokens of a request: 3 for it, 4 for each message, 8 for each call."""
        total = 3 + sum(self._count(str(tool)) for tool in request.get("tools") or ())
        for message in request["messages"]:
            calls = message.get("tool_calls") or ()
            total += 4 + sum(8 + self._count(str(call["function"])) for call in calls)
            content = message.get("content") or ""
            for part in [{"text": content}] if isinstance(content, str) else content:
                total += self._count(part["text"]) if "text" in part else LOW_DETAIL
        return total

    def report(self, real: int) -> int:
        """The usage of the next call, whose real size is given."""
        self.calls += 1
        told, self.before = self.told(real), real
        return told

    def told(self, real: int) -> int:
        return real


class Uncached(Provider):
    """Reports what its cache did not hold."""

    def told(self, real: int) -> int:
        return max(1, real - self.before) if real > self.before else real


class Constant(Provider):
    def told(self, real: int) -> int:
        return min(real, 200)


class LaterWrong(Provider):
    def told(self, real: int) -> int:
        return real if self.calls <= 10 else real // 50


class OnceTooHigh(Provider):
    def told(self, real: int) -> int:
        return real * 100 if self.calls == 5 else real


class SumOfCalls(Provider):
    """Reports what the conversation has used so far."""

    total = 0

    def told(self, real: int) -> int:
        self.total += real
        return self.total


class OwnSystemPrompt(Provider):
    """Reads a text of its own before each request."""

    def real(self, request: Wire) -> int:
        return super().real(request) + 1_500


class Cutting(Provider):
    """Reads half of its window where a request is longer than all of it."""

    model, cuts = LOCAL, True

    def told(self, real: int) -> int:
        return real if real <= CUTS_AT else CUTS_AT // 2


PROVIDERS = {
    "honest": Provider,
    "uncached only": Uncached,
    "always 200": Constant,
    "wrong after ten calls": LaterWrong,
    "once a hundred times": OnceTooHigh,
    "sum of calls": SumOfCalls,
    "own system prompt": OwnSystemPrompt,
    "cuts in silence": Cutting,
}
PICTURES = {"words": False, "pictures": True}


def texts(dice: random.Random) -> Iterator[str]:
    """Prose, code and rows of numbers, of very different lengths."""
    while True:
        size = dice.choice((20, 60, 200, 800, 2_500))
        kind = dice.randrange(3)
        if kind == 0:
            yield " ".join(dice.choice(WORDS) for _ in range(size))
        elif kind == 1:
            yield "\n".join(
                f"    total_{n} = lookup[{dice.randrange(999)}] or {dice.choice(WORDS)}"
                for n in range(size // 12)
            )
        else:
            yield "\n".join(
                ",".join(f"{dice.random():.6f}" for _ in range(6)) for _ in range(size // 24)
            )


def png(width: int, height: int) -> str:
    """An empty PNG, in base64."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        head = struct.pack(">I", len(body)) + kind
        return head + body + struct.pack(">I", zlib.crc32(kind + body))

    size = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(bytes((width + 1) * height))
    whole = chunk(b"IHDR", size) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + whole).decode()


PNG = png(1_024, 768)


def picture() -> Wire:
    url = "data:image/png;base64," + PNG
    return {"type": "image_url", "image_url": {"url": url, "detail": "low"}}


def lived(policy: Any, provider: Provider, *, pictures: bool, seed: int) -> Iterator[int]:
    """Tokens by which each request of a conversation is over its window; 0 or less if not."""
    dice = random.Random(seed)  # noqa: S311 - the same conversation for the same seed
    said = texts(dice)
    tool = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
    context = Context(
        model=provider.model,
        dialect="openai_chat",
        policy=policy,
        tools=[tool],
        context_window=None if provider.cuts else WINDOW,
    )
    limit = WINDOW
    for turn in range(TURNS):
        content: list[Wire] = [{"type": "text", "text": next(said)}]
        content += [picture() for _ in range(dice.randrange(3) if pictures else 0)]
        context.add({"role": "user", "content": content})
        for call in range(dice.randrange(3)):
            yield from asked(context, provider, limit, (turn, call), calls=True)
            context.add({"role": "tool", "tool_call_id": f"c{turn}.{call}", "content": next(said)})
        yield from asked(context, provider, limit, (turn, "end"), calls=False)


def asked(
    context: Context, provider: Provider, limit: int, place: tuple[Any, ...], *, calls: bool
) -> Iterator[int]:
    request = context.request()
    real = provider.real(request)
    known = context.budget().source == "learned"
    if provider.cuts:
        limit = CUTS_AT if known else sys.maxsize
    output = request.get("max_completion_tokens") or request.get("max_tokens") or 0
    yield real + (0 if provider.cuts else output) - limit
    message: Wire = {"role": "assistant", "content": "Noted."}
    if calls:
        function = {"name": "read", "arguments": '{"path": "a.py"}'}
        call = {"id": f"c{place[0]}.{place[1]}", "type": "function", "function": function}
        message["tool_calls"] = [call]
    usage = provider.report(real)
    context.add(
        {
            "id": f"r{place}",
            "object": "chat.completion",
            "model": provider.model,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": usage, "completion_tokens": 5, "total_tokens": usage + 5},
        }
    )


def main(seed: int, *, quick: bool) -> harness.Report:
    count = exact_tokenizers.available().get("o200k_base")
    if count is None:
        return {"skipped": "rs-bpe is not installed", "broken": []}
    seeds = [seed + number for number in range(1 if quick else 8)]
    figures: dict[str, int] = {}
    requests = over = worst = 0
    policies: dict[str, Any] = {**dict.fromkeys(POLICY_NAMES), "README": only_the_newest_result}
    for name, own in policies.items():
        for told, kind in PROVIDERS.items():
            for shown, pictures in PICTURES.items():
                for each in seeds:
                    excess = list(lived(own or name, kind(count), pictures=pictures, seed=each))
                    wrong = sum(tokens > 0 for tokens in excess)
                    requests += len(excess)
                    over += wrong
                    worst = max([worst, *excess])
                    if wrong:
                        figures[f"{name}, {told}, {shown}"] = wrong
    return {
        "seed": seed,
        "requests": requests,
        "over_window": over,
        "most_over": worst,
        "where": figures,
        "broken": [f"{over} requests are over the window"] if over else [],
    }


if __name__ == "__main__":
    options = harness.parser(__doc__)
    options.add_argument("--seed", type=int, help="of the first conversation; else a random one")
    given = options.parse_args()
    first = given.seed if given.seed is not None else random.SystemRandom().randrange(10**6)
    figures = {**harness.head(["rs-bpe"]), **main(first, quick=given.quick)}
    sys.exit(harness.finish(figures, as_json=given.json))
