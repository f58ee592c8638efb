"""How long properties look for a counterexample, and from which seed.

TRIMTAB_LAWS is quick (the default), long or thorough. A quick run meets the same lives each time,
so that a change is judged by what it changes. The others meet new lives: the seed is in the first
lines that pytest prints, and TRIMTAB_SEED runs the same lives again.
"""

from __future__ import annotations

import gc
import os
import secrets
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from trimtab.engine.tokens import piecewise
from trimtab.testing import MemoryStore

pytest_plugins = ["tests.lanes"]

# Every HTTP client loads all authorities that it trusts, which takes 50 ms of CPU. No test leaves
# this machine, so one authority is enough, also for the processes that tests start.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "authority.pem")

# A shell that runs pytest in the background lets it ignore Ctrl-C. Programs that tests start would
# inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

QUICK_SEED = 104
EXAMPLES = {"quick": 50, "long": 500, "thorough": 20_000}
CHOSEN = os.environ.get("TRIMTAB_LAWS") or "quick"
# The quick profile says whether a law holds; the others also look for the smallest life that
# breaks it.
SHRINK = () if CHOSEN == "quick" else (Phase.shrink,)

settings.register_profile(
    "laws",
    max_examples=EXAMPLES[CHOSEN],
    # A life is many steps long and meets texts of hundreds of kilobytes.
    stateful_step_count=10,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=(Phase.explicit, Phase.generate, *SHRINK),
)
settings.register_profile(
    "other",
    max_examples={"quick": 30, "long": 300, "thorough": 2_000}[CHOSEN],
    deadline=None,
    # Here new examples are looked for by the thorough profile alone.
    derandomize=CHOSEN != "thorough",
)
settings.load_profile("other")


def remember_estimates() -> None:
    """Let a slice of a text be looked at once, not each time that it is counted.

    The texts of tests repeat a few words, so that they consist of the same slices over and over.
    """
    count, estimates = piecewise.count_slice_tokens, dict[Any, float]()

    def count_once(piece: bytes, pairs: bytes, profile: Any) -> float:
        key = (piece, pairs[:1], id(profile))
        if (tokens := estimates.get(key)) is None:
            if len(estimates) > 4_000:
                estimates.clear()
            tokens = estimates[key] = count(piece, pairs, profile)
        return tokens

    piecewise.count_slice_tokens = count_once


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over the collected tests, which saves a seventh of the CPU."""
    gc.collect()
    gc.freeze()


if CHOSEN == "quick":
    remember_estimates()


@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"


@pytest.fixture
def memory():
    return MemoryStore()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose a seed, unless one is given."""
    if config.getoption("hypothesis_seed", None) is None:
        unset = QUICK_SEED if CHOSEN == "quick" else secrets.randbelow(2**32)
        seed = os.environ.get("TRIMTAB_SEED") or unset
        config.option.hypothesis_seed = str(seed)


def pytest_report_header(config: pytest.Config) -> str:
    return (
        f"laws: {EXAMPLES[CHOSEN]:,} lives each (TRIMTAB_LAWS={CHOSEN}), "
        f"seed {config.option.hypothesis_seed}; TRIMTAB_SEED runs the same again"
    )
