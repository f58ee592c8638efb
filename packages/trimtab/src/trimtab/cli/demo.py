"""`trimtab demo`: a long conversation in a small window. The model is a script."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer

from trimtab.cli.stderr_messages import print_error_for_exit

if TYPE_CHECKING:
    from trimtab.context import Context
    from trimtab.engine.policy.presets import PolicyName

MODEL = "claude-sonnet-5-5"
"""The model whose rules apply. No request is sent to it."""
MIN_WINDOW_TOKENS = 8_000
UNLIMITED_WINDOW_TOKENS = 100_000_000
"""A window that is never full, to count what was said in all."""
BAR_CHARS = 24
SYSTEM_PROMPT = "You help the engineer on call. Look before you answer, and say what you saw."
CULPRIT_COMMIT = "9f3c2ab"
"""Named by a result of the first turn. The user asks for it in the last one."""


def demo_command(
    policy: Annotated[str, typer.Option(help="The policy: auto, layered, compact, …")] = "auto",
    window: Annotated[str, typer.Option(help="The model's window in tokens.")] = "16k",
) -> None:
    """Watch a long conversation stay within a small window. No key is needed.

    The conversation is a script. What is sent, hidden and read back is real.
    """
    from trimtab.cli.token_count import parse_token_count
    from trimtab.engine.policy.presets import POLICY_NAMES

    try:
        window_tokens = parse_token_count(window)
    except ValueError as error:
        raise print_error_for_exit(str(error)) from error
    if policy not in POLICY_NAMES:
        raise print_error_for_exit(
            f"unknown policy {policy!r}; choose from {', '.join(POLICY_NAMES)}"
        )
    if window_tokens < MIN_WINDOW_TOKENS:
        raise print_error_for_exit(
            f"a window of {window_tokens:,} tokens is too small for the demo; use 8k or more"
        )
    for line in play_story(policy, window_tokens):
        typer.echo(line)


class StoryTurn(NamedTuple):
    """One turn of the script."""

    question: str
    calls: tuple[tuple[str, str], ...]
    """Tool calls: the tool, and what it is asked for."""
    answer: str


STORY = (
    StoryTurn(
        "Checkout has been slow since 14:00. Why?",
        (("deployments", "checkout"), ("metric", "checkout.p99_ms")),
        "p99 jumped to 5 s at 13:52, with deployment #2210. I would look at the logs next.",
    ),
    StoryTurn(
        "What do the logs say?",
        (("logs", "checkout"), ("logs", "payments")),
        "Checkout waits for a database connection: its pool has 4, all in use.",
    ),
    StoryTurn(
        "Is the database all right?",
        (("query", "pg_stat_activity"), ("metric", "cart-db.cpu")),
        "Yes. It could serve ten times as much.",
    ),
    StoryTurn(
        "Who else uses that pool?",
        (("read_file", "src/checkout/db.py"), ("read_file", "src/cart/db.py")),
        "Nobody. The cart has a pool of its own.",
    ),
    StoryTurn(
        "Could it be the network, or the cache?",
        (("logs", "gateway"), ("read_file", "config/redis.conf")),
        "Neither: the gateway waits for checkout as well.",
    ),
    StoryTurn(
        "Write the fix and test it.",
        (("edit", "deploy/checkout.yaml"), ("test", "checkout")),
        "pool_size is 40 again, and all tests pass.",
    ),
    StoryTurn(
        "Roll it out everywhere.",
        (("rollout", "eu-west"), ("rollout", "us-east"), ("logs", "gateway after")),
        "#2211 is live everywhere. The last 504 is from 15:31.",
    ),
)
LAST_QUESTION = "For the report: which commit was it?"


def play_story(policy: str, window_tokens: int) -> Iterator[str]:
    """Play the conversation, and yield the lines to show."""
    from trimtab.context import Context

    context = Context(
        model=MODEL,
        system=SYSTEM_PROMPT,
        policy=cast("PolicyName", policy),
        context_window=window_tokens,
        max_output_tokens=1_024,
        recall=True,
    )
    everything = Context(
        model=MODEL,
        system=SYSTEM_PROMPT,
        policy="full",
        context_window=UNLIMITED_WINDOW_TOKENS,
        recall=True,
    )
    yield (
        f"An agent looks into a slow checkout. Its model takes {window_tokens:,} tokens; its tools "
        "return far more.\n"
    )
    yield f"{'':<42}{'said':>8}{'sent':>8}  of the window"
    deployments_handle = ""
    for turn in STORY:
        _add({"role": "user", "content": turn.question}, context, everything)
        for name, subject in turn.calls:
            _request(context, everything)
            call_id = f"toolu_{name}_{subject}".replace("/", "_").replace(".", "_").replace(" ", "")
            call = {"type": "tool_use", "id": call_id, "name": name, "input": {"of": subject}}
            _add({"role": "assistant", "content": [call]}, context, everything)
            result = {
                "type": "tool_result",
                "tool_use_id": call_id,
                "content": TOOLS[name](subject),
            }
            handle = _add({"role": "user", "content": [result]}, context, everything)
            deployments_handle = deployments_handle or f"{handle}.0"
        _request(context, everything)
        yield _draw_row(turn.question, context, everything)
        _add({"role": "assistant", "content": turn.answer}, context, everything)
    _add({"role": "user", "content": LAST_QUESTION}, context, everything)
    _request(context, everything)
    yield _draw_row(LAST_QUESTION, context, everything)
    yield f"\n{context.why(deployments_handle)}"
    text = context.recall(deployments_handle)
    line = next(line for line in text.splitlines() if CULPRIT_COMMIT in line)
    yield f"The agent reads it back: recall {deployments_handle} → {line!r}\n"
    yield str(context.report())


def _add(message: dict[str, Any], context: Context, everything: Context) -> str:
    everything.add(message)
    return context.add(message)


def _request(context: Context, everything: Context) -> None:
    context.request()
    everything.request()


def _draw_row(question: str, context: Context, everything: Context) -> str:
    report = context.report()
    share = report.used / report.limit
    bar = "█" * round(BAR_CHARS * share)
    return (
        f"{question:<42}{everything.report().used:>8,}"
        f"{report.used:>8,}  {bar:░<{BAR_CHARS}} {share:.0%}"
    )


def _write_rows(title: str, count: int, write_row: Callable[[random.Random, int], str]) -> str:
    """Write a result: the same rows for the same title in every run."""
    dice = random.Random(title)  # noqa: S311 - a story, not a secret
    return "\n".join([title, *(write_row(dice, number) for number in range(count))])


TOOLS: dict[str, Callable[[str], str]] = {
    "deployments": lambda service: (
        f"#2210 {service} 13:52 {CULPRIT_COMMIT} pool_size: 40 -> 4\n"
        + _write_rows(
            f"older deployments of {service}",
            40,
            lambda dice, row: f"#{2209 - row} {service} {dice.getrandbits(28):07x} worker limits",
        )
    ),
    "metric": lambda name: _write_rows(
        f"{name} by the minute",
        240,
        lambda dice, row: f"{13 + row // 60}:{row % 60:02} {dice.randrange(210, 5_000)}",
    ),
    "logs": lambda service: _write_rows(
        f"log of {service}",
        140,
        lambda dice, row: (
            f"13:52:{row % 60:02} {service}-{dice.randrange(6)} ERROR order "
            f"{dice.randrange(40_000, 99_999)}: pool timeout, waited {dice.randrange(5_000)} ms"
        ),
    ),
    "query": lambda table: _write_rows(
        f"rows of {table}",
        110,
        lambda dice, _: f"{dice.randrange(99_999)} | idle | fetch_cart({dice.randrange(9_999)})",
    ),
    "read_file": lambda path: _write_rows(
        f"# {path}",
        120,
        lambda dice, row: f"def order_{row}(cart): return fetch('orders', {dice.randrange(500)})",
    ),
    "edit": lambda path: f"{path}: pool_size: 4 -> 40, 1 line changed",
    "test": lambda name: _write_rows(
        f"tests of {name}",
        120,
        lambda dice, row: f"test_{name}.py::test_case_{row} PASSED {dice.randrange(90)} ms",
    ),
    "rollout": lambda region: _write_rows(
        f"deploying #2211 to {region}",
        50,
        lambda dice, _: f"checkout-{dice.getrandbits(36):09x} ready in {dice.randrange(9)}.2 s",
    ),
}
