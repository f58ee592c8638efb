"""All benchmarks, one after the other: `python -m benchmarks --quick`.

Runs all of them, and names at the end those that failed: one that raised, or in which something
that must hold did not. Those that need the recorded conversations say so where there are none, and
are passed over; so is the real model, where its server is not built.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMANDS = (
    ("-m", "benchmarks.catalog_age"),
    ("-m", "benchmarks.token_estimates"),
    ("-m", "benchmarks.text_kinds"),
    ("-m", "benchmarks.fit"),
    ("-m", "benchmarks.corpus_laws"),
    ("-m", "benchmarks.paid"),
    ("-m", "benchmarks.adversary"),
    ("-m", "benchmarks.wire_switches"),
    ("-m", "benchmarks.store_crash"),
    ("-m", "benchmarks.store_scale"),
    ("-m", "benchmarks.explain"),
    ("-m", "benchmarks.long_chat"),
    ("-m", "benchmarks.faults"),
    ("-m", "benchmarks.turn_crash"),
    ("-m", "benchmarks.summary_cost"),
    ("-m", "benchmarks.summary_fidelity"),
    ("-m", "benchmarks.standing_rules"),
    ("-m", "benchmarks.request_stalls"),
    ("-m", "benchmarks.usage_lies"),
    ("-m", "benchmarks.deferred_tools"),
    ("-m", "benchmarks.erase_range"),
    ("-m", "benchmarks.first_token"),
    ("-m", "benchmarks.tool_floods"),
    ("-m", "benchmarks.real_model", "--if-built"),
    ("-m", "benchmarks.observe_cost"),
    ("-m", "benchmarks.turn_footprint"),
    ("-m", "benchmarks.serve_load"),
    ("-m", "benchmarks.serve_chaos"),
    ("-m", "benchmarks.move_sessions"),
    ("-m", "benchmarks.outages"),
    ("-m", "benchmarks.serve_backlog"),
    ("-m", "benchmarks.noisy_tenant"),
    ("-m", "benchmarks.http_fuzz"),
    ("-m", "benchmarks.sse_streams"),
    ("-m", "benchmarks.half_open"),
    ("-m", "benchmarks.telegram_fuzz"),
    ("-m", "benchmarks.discord_fuzz"),
    ("-m", "benchmarks.schedule_clock"),
    ("-m", "benchmarks.bot_months"),
    ("-m", "benchmarks.frameworks"),
    ("-m", "benchmarks.doors"),
    ("-m", "benchmarks.screenshots"),
    ("-m", "benchmarks.inspector"),
    ("-m", "benchmarks.forgetting"),
    ("-m", "benchmarks.personal_data"),
)
"""In the order they run. `fit_weights` and `fit_vocabulary` only write tables."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller sample of each")
    asked = ["--quick"] if parser.parse_args().quick else []
    failed: list[str] = []
    for command in COMMANDS:
        print(f"\n== python {' '.join((*command, *asked))}", flush=True)
        begun = time.monotonic()
        whole = [sys.executable, *command, *asked]
        status = subprocess.run(whole, cwd=ROOT, check=False).returncode  # noqa: S603 - our own
        print(f"-- {time.monotonic() - begun:.0f} s", flush=True)
        if status:
            failed.append(command[1].removeprefix("benchmarks."))
    print(f"\nbroken: {', '.join(failed)}" if failed else f"\nall {len(COMMANDS)} hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
