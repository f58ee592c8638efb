"""How long properties look for a counterexample: TRIMTAB_LAWS is quick, default or thorough."""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

EXAMPLES = {"quick": 50, "default": 500, "thorough": 20_000}
CHOSEN = os.environ.get("TRIMTAB_LAWS") or "default"
# The quick profile says whether a law holds; why it does not is for the others to find out.
SHRINK = () if CHOSEN == "quick" else (Phase.shrink,)

settings.register_profile(
    "laws",
    max_examples=EXAMPLES[CHOSEN],
    # A life is many steps long and meets texts of hundreds of kilobytes.
    stateful_step_count=10,
    deadline=None,
    database=None,
    print_blob=True,
    # The same lives on every run: a check that fails by chance tells its reader nothing. New ones
    # are looked for by the thorough profile.
    derandomize=CHOSEN == "default",
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=(Phase.explicit, Phase.generate, *SHRINK),
)
settings.register_profile(
    "other",
    max_examples={"quick": 25, "default": 60, "thorough": 2_000}[CHOSEN],
    deadline=None,
    derandomize=CHOSEN == "default",
)
settings.load_profile("other")

LONGEST = ("tests/laws/", "tests/contracts/test_types.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: one that is left for the end keeps all other processes waiting."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))
