"""How long the laws look for a counterexample: TRIMTAB_LAWS is quick, default or thorough."""

import os

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
    derandomize=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=(Phase.explicit, Phase.generate, *SHRINK),
)
