"""The demo's tools and the data that they return: a shop whose checkout has become slow. Nothing
is real, and the same question has the same answer in every run.

The tools are plain functions, as in any agent.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from trimtab.session.tools import Tool, ToolInvocation

STORY_START = datetime(2026, 5, 12, 13, 40, tzinfo=UTC)
"""Twelve minutes before the deployment that made it slow."""

CULPRIT_COMMIT = "9f3c2ab"
"""The commit to find. The first results name it, and the user asks for it at the end."""

_MESSAGES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "checkout": (
        ("ERROR", "pool timeout: waited 5000 ms for a connection (size=4 in_use=4 queued={n})"),
        ("WARN", "order {id}: payment call retried, attempt {k} of 5"),
        ("INFO", "order {id}: placed in {ms} ms"),
        ("ERROR", "order {id}: gave up after 15000 ms, cart is kept"),
    ),
    "payments": (
        ("WARN", "duplicate request key=pay-{id}, answered from the first one"),
        ("INFO", "authorised pay-{id} in {k}2 ms"),
        ("WARN", "client went away before the answer, pay-{id}"),
    ),
    "gateway": (
        ("INFO", "POST /checkout 200 upstream={ms}ms client=10.4.{k}.{n}"),
        ("WARN", "POST /checkout 504 upstream=15000ms client=10.4.{k}.{n}"),
        ("INFO", "GET /cart/{id} 200 upstream={k}1ms"),
    ),
    "staging": (
        ("INFO", "order {id}: placed in {ms} ms"),
        ("ERROR", "pool timeout: waited 5000 ms for a connection (size=4 in_use=4 queued={n})"),
    ),
}

_FILES: Mapping[str, tuple[str, ...]] = {
    "deploy/checkout.yaml": (
        "service: checkout",
        "replicas: 6",
        "database:",
        "  host: cart-db.internal",
        "  pool_size: 4",
        "  pool_timeout_ms: 5000",
        "retries: {attempts: 5, backoff_ms: 0}",
    ),
    "src/checkout/db.py": (
        "class Pool:",
        "    def __init__(self, url: str, size: int, timeout: float) -> None:",
        "        self._free: asyncio.Queue[Connection] = asyncio.Queue(size)",
        "    async def acquire(self) -> Connection:",
        "        return await asyncio.wait_for(self._free.get(), self._timeout)",
    ),
}


def simulate_read_file(path: str, lines: int) -> str:
    """A file: what matters on top, then the rest of it."""
    dice = _seeded_random("file", path)
    file_lines = list(_FILES.get(path, (f"# {path}",)))
    names = ("order", "cart", "stock", "price", "session", "address", "invoice", "refund")
    while len(file_lines) < lines:
        one = dice.choice(names)
        other = dice.choice(names)
        file_lines.append(
            f"def {one}_{other}_{dice.randrange(99)}({one}_id: int) -> {other.title()}: "
            f"return fetch('{other}s', {one}_id, limit={dice.randrange(10, 500)})"
            if path.endswith(".py")
            else f"{one}.{other}.{dice.choice(('limit', 'ttl', 'size'))}: {dice.randrange(9_999)}"
        )
    return "\n".join(file_lines)


def simulate_log_search(service: str, pattern: str, lines: int) -> str:
    """Lines of a service's log."""
    dice = _seeded_random("logs", service, pattern)
    at = STORY_START + timedelta(minutes=12)
    log_lines = [f"{lines} of {lines * dice.randrange(20, 90):,} lines match {pattern!r}"]
    for _ in range(lines):
        at += timedelta(milliseconds=dice.randrange(90, 4_000))
        level, text = dice.choice(_MESSAGES[service])
        message = text.format(
            id=dice.randrange(40_000, 99_999),
            n=dice.randrange(3, 250),
            k=dice.randrange(1, 5),
            ms=dice.randrange(180, 14_900),
        )
        log_lines.append(
            f"{at:%H:%M:%S.%f}"[:-3] + f" {service}-{dice.randrange(6)} {level:<5} {message}"
        )
    return "\n".join(log_lines)


def simulate_metric_query(name: str, points: int) -> str:
    """A series by the minute: it jumps at 13:52 if it is one of checkout's own."""
    dice = _seeded_random("metric", name, str(points))
    slow = name.startswith("checkout") and "after" not in name
    rows = [f"{name} by the minute, UTC"]
    for minute in range(points):
        at = STORY_START + timedelta(minutes=minute)
        base = 4_800 if slow and minute >= 12 else 210
        rows.append(f"{at:%H:%M} {base + dice.randrange(base // 4)}")
    return "\n".join(rows)


def simulate_deployment_list(service: str) -> str:
    """The last deployments, each with its change."""
    dice = _seeded_random("deployments", service)
    log_lines: list[str] = []
    for number in range(2_210, 2_196, -1):
        at = STORY_START + timedelta(minutes=12) - timedelta(hours=9 * (2_210 - number))
        commit = CULPRIT_COMMIT if number == 2_210 else f"{dice.getrandbits(28):07x}"
        log_lines += [f"#{number} {service} {at:%Y-%m-%d %H:%M} {commit}"]
        if number == 2_210:
            log_lines += [
                "  tidy up the database settings",
                "  deploy/checkout.yaml",
                "  -  pool_size: 40",
                "  +  pool_size: 4",
            ]
        else:
            was = dice.randrange(10, 90)
            log_lines += [
                f"  {dice.choice(('raise', 'lower', 'tidy up'))} limits of the worker",
                f"  -  worker_{dice.randrange(9)}: {was}",
                f"  +  worker_{dice.randrange(9)}: {was + dice.randrange(1, 9)}",
            ]
    return "\n".join(log_lines)


def simulate_sql_query(sql: str, count: int) -> str:
    """What a query gives."""
    dice = _seeded_random("rows", sql)
    states = ("idle", "idle", "active", "idle in transaction")
    table_lines = ["pid   | state               | wait         | ms    | query"]
    for _ in range(count):
        query = f"fetch_cart({dice.randrange(9_999_999)})"
        state = dice.choice(states)
        wait = dice.choice(("Client", "Lock", "IO"))
        took = dice.randrange(1, 900)
        table_lines.append(
            f"{dice.randrange(99_999):<5} | {state:<19} | {wait:<12} | {took:<5} | {query}"
        )
    return "\n".join([*table_lines, f"({count} rows)"])


def simulate_load_test(rate: int, seconds: int) -> str:
    """A load test on staging."""
    dice = _seeded_random("load", str(rate))
    failing = rate > 30
    report_lines = [f"load test on staging: {rate} orders a second for {seconds} s"]
    for second in range(seconds):
        bad = dice.randrange(rate // 3, rate) if failing and second > 8 else 0
        slow = 5_000 + dice.randrange(900) if bad else 200 + dice.randrange(60)
        report_lines.append(
            f"t={second:>3} s  ok={rate - bad:>3}  failed={bad:>3}  p50={slow // 2} p99={slow}"
        )
    return "\n".join(report_lines)


def simulate_file_edit(path: str) -> str:
    """A change that was made."""
    return f"{path}: pool_size: 4 -> 40, 1 line changed"


def simulate_test_run(count: int) -> str:
    """A run of the tests."""
    dice = _seeded_random("tests")
    lines = [
        f"tests/checkout/test_{dice.choice(('pool', 'order', 'cart', 'retry'))}.py::"
        f"test_case_{number} PASSED [{100 * (number + 1) // count:>3}%] {dice.randrange(4, 90)} ms"
        for number in range(count)
    ]
    return "\n".join([*lines, f"{count} passed"])


def simulate_rollout(region: str, steps: int) -> str:
    """A deployment, step by step."""
    dice = _seeded_random("rollout", region)
    lines = [f"deploying #2211 to {region}"]
    for step in range(steps):
        pod = f"checkout-{dice.getrandbits(36):09x}"
        lines.append(f"{pod} {('pulled', 'started', 'ready')[step % 3]} in {dice.randrange(9)}.2 s")
    return "\n".join([*lines, f"#2211 is live in {region}"])


DEMO_FUNCTIONS: Mapping[str, Callable[..., str]] = {
    "read_file": simulate_read_file,
    "logs": simulate_log_search,
    "metric": simulate_metric_query,
    "deployments": simulate_deployment_list,
    "rows": simulate_sql_query,
    "load": simulate_load_test,
    "edit": simulate_file_edit,
    "tests": simulate_test_run,
    "rollout": simulate_rollout,
}
"""The functions by the names that the model uses."""


def _seeded_random(*parts: str) -> random.Random:
    return random.Random("/".join(parts))  # noqa: S311 - a story, the same in every run


def build_demo_tools(delay_s: float) -> list[Tool]:
    """Return all tools. Each takes `delay_s` seconds."""

    async def run(asked: ToolInvocation) -> str:
        await asyncio.sleep(delay_s)
        return DEMO_FUNCTIONS[asked.name](**asked.arguments)

    return [Tool(definition=_definition(name), run=run) for name in DEMO_FUNCTIONS]


def _definition(name: str) -> dict[str, Any]:
    function = DEMO_FUNCTIONS[name]
    kinds = {"str": "string", "int": "integer"}
    properties = {
        parameter.name: {"type": kinds[str(parameter.annotation)]}
        for parameter in inspect.signature(function).parameters.values()
    }
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    return {"name": name, "description": inspect.getdoc(function), "input_schema": schema}
