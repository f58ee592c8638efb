"""What it takes to erase a range of messages, next to one fold of the whole log.

    python -m benchmarks.erase_range [--quick] [--json]

erase_seconds     CPU seconds to erase a fifth of the messages in one call
erase_over_fold   the same over the time of folding the log once from its lines, in the same run
left              erased texts that the log still holds; must be 0

One call folds the log once, so the ratio must not grow with the number of messages: it must stay
below 2.
"""

from __future__ import annotations

import sys
from time import process_time

from benchmarks.harness import Report, run
from trimtab import Context

SIZES = {True: (1_000, 4_000), False: (1_000, 4_000, 16_000)}


def talk(messages: int) -> Context:
    context = Context(model="gpt-4o", policy="full", context_window=100_000_000)
    for number in range(messages):
        role = "assistant" if number % 2 else "user"
        context.add({"role": role, "content": f"secret_{number:06}: " + "some words. " * 20})
    return context


def measured(messages: int) -> Report:
    context, many = talk(messages), messages // 5
    lines = context.dump()
    start = process_time()
    Context.load(lines)
    fold = process_time() - start
    start = process_time()
    context.erase(f"m2-m{many + 1}")
    erase = process_time() - start
    log = "\n".join(context.dump())
    left = sum(f"secret_{number:06}:" in log for number in range(many))
    return {
        "messages": messages,
        "erased": many,
        "seconds": round(erase, 3),
        "over_fold": round(erase / fold, 2),
        "left": left,
    }


def main(quick: bool) -> Report:
    rows = [measured(messages) for messages in SIZES[quick]]
    at = next(row for row in rows if row["messages"] == 4_000)
    left, most = sum(row["left"] for row in rows), max(row["over_fold"] for row in rows)
    broken = [f"{left} erased texts are left"] if left else []
    broken += [f"erasing takes {most} folds"] if most >= 2 else []
    return {
        "rows": rows,
        "erase_seconds": at["seconds"],
        "erase_over_fold": at["over_fold"],
        "left": left,
        "broken": broken,
    }


if __name__ == "__main__":
    sys.exit(run(__doc__, main))
