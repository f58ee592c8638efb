"""Cost of fitting a long conversation, against langchain-core's `trim_messages`.

Both get the same OpenAI-style dicts and the same budget of 20,000 tokens, LangChain with its
approximate counter. Times are CPU times of one process, the median of several runs, and only
ratios of the same run are claimed.

warm    one new message, then the request; LangChain trims the list anew. `warm_auto` is the same
        with the default policy
cold    the first fold of the whole list: `Context.sync` and one request; `fit` is shown beside
stored  folding a stored log, whose events carry their sizes
odd     the cold fold of 1,000 messages of random letters, which are looked at more closely
"""

from __future__ import annotations

import gc
import random
import re
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import run
from trimtab import Context, fit

BUDGET = 20_000
MODEL = "gpt-4o"
OPTIONS: dict[str, Any] = {
    "policy": "layered",
    "max_input_tokens": 40_000,
    "limits": {"max_history_tokens": BUDGET},
}
"""A 20k history cap: what LangChain is asked for, with room around it for the reply."""
AUTO: dict[str, Any] = {"policy": "auto", "max_input_tokens": 40_000}
"""The default policy in the same window, where it plans at almost every call."""


WORDS = re.findall(r"[A-Za-z]+", (Path(__file__).parents[1] / "ARCHITECTURE.md").read_text())
"""Words of English text."""


def random_words() -> list[str]:
    """Words of random letters, which no tokenizer knows."""
    pick = random.Random(1)  # noqa: S311  not for secrets
    letters = "abcdefghijklmnopqrstuvwxyz"
    return ["".join(pick.choices(letters, k=pick.randint(2, 9))) for _ in range(2_000)]


def conversation(length: int, words: Sequence[str] = WORDS) -> list[dict[str, Any]]:
    """Turns of a user, a tool call, its result and an answer; 700 bytes a message on average."""
    pick = random.Random(length)  # noqa: S311  not for secrets

    def text(count: int) -> str:
        return " ".join(pick.choices(words, k=count))

    messages: list[dict[str, Any]] = []
    for turn in range(length // 4 + 1):
        call = {"id": f"call_{turn}", "type": "function"}
        call["function"] = {"name": "read", "arguments": f'{{"path": "/src/module_{turn}.py"}}'}  # type: ignore[assignment]
        messages += [
            {"role": "user", "content": text(40)},
            {"role": "assistant", "content": text(20), "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{turn}", "content": text(300)},
            {"role": "assistant", "content": text(60)},
        ]
    return messages[:length]


def cpu(function: Callable[[], Any], repeat: int) -> list[float]:
    times: list[float] = []
    for _ in range(repeat):
        gc.collect()
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return times


def trimmer(messages: list[dict[str, Any]]) -> Callable[[], Any]:
    from langchain_core.messages import trim_messages
    from langchain_core.messages.utils import count_tokens_approximately

    def trim() -> Any:
        return trim_messages(
            messages,
            max_tokens=BUDGET,
            token_counter=count_tokens_approximately,
            strategy="last",
            start_on="human",
            include_system=True,
        )

    return trim


def warm(
    messages: list[dict[str, Any]], steps: int, options: dict[str, Any] = OPTIONS
) -> list[float]:
    """CPU seconds of one new message and the request, on a context that has seen the list."""
    context = Context(MODEL, **options)
    context.sync(messages)
    context.request()
    times: list[float] = []
    for step in range(steps):
        context.add({"role": "assistant", "content": f"noted {step}"})
        fresh = {"role": "user", "content": f"and then? {step} " + "word " * 40}
        start = time.process_time()
        context.add(fresh)
        context.request()
        times.append(time.process_time() - start)
    return times


def peak(function: Callable[[], Any]) -> float:
    """Megabytes that one run holds at its peak."""
    tracemalloc.start()
    kept = function()
    size = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    del kept
    return round(size, 1)


def measure(length: int, repeat: int) -> dict[str, Any]:
    messages = conversation(length)
    trim = trimmer(messages)
    trim()

    def sync() -> Context:
        context = Context(MODEL, **OPTIONS)
        context.sync(messages)
        context.request()
        return context

    lines = sync().dump()
    trims = cpu(trim, repeat)
    row: dict[str, list[float]] = {
        "trim": trims,
        "cold": cpu(sync, repeat),
        "fit": cpu(lambda: fit(messages, model=MODEL, **OPTIONS), repeat),
        "stored": cpu(lambda: Context.load(lines), repeat),
        "warm": warm(messages, 20 * repeat),
        "warm_auto": warm(messages, 20 * repeat, AUTO),
    }
    out: dict[str, Any] = {"messages": length}
    for name, times in row.items():
        out[f"{name}_ms"] = round(statistics.median(times) * 1e3, 3)
        out[f"{name}_spread_ms"] = [round(min(times) * 1e3, 3), round(max(times) * 1e3, 3)]
    out["peak_mb_trim"], out["peak_mb_cold"] = peak(trim), peak(sync)
    return out


def main(quick: bool) -> dict[str, Any]:
    repeat = 3 if quick else 9
    rows = [measure(length, repeat) for length in (100, 1_000, 10_000)]
    small, large = rows[0], rows[-1]
    odd = conversation(1_000, random_words())
    odd_ms = 1e3 * statistics.median(cpu(lambda: fit(odd, model=MODEL, **OPTIONS), repeat))
    saved = large["trim_ms"] - large["warm_ms"]
    return {
        "budget_tokens": BUDGET,
        "rows": rows,
        "warm_speedup_10k": round(large["trim_ms"] / large["warm_ms"], 1),
        "warm_growth": round(large["warm_ms"] / small["warm_ms"], 2),
        "warm_auto_ratio_10k": round(large["warm_auto_ms"] / large["warm_ms"], 2),
        "cold_ratio_10k": round(large["cold_ms"] / large["trim_ms"], 2),
        "fit_ratio_10k": round(large["fit_ms"] / large["trim_ms"], 2),
        "stored_ratio_10k": round(large["stored_ms"] / large["trim_ms"], 2),
        "odd_ratio_1k": round(odd_ms / rows[1]["trim_ms"], 2),
        "breakeven_calls": -(-large["cold_ms"] // saved) if saved > 0 else None,
    }


if __name__ == "__main__":
    sys.exit(run(__doc__, main, packages=("langchain-core",)))
