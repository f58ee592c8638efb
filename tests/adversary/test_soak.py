"""The whole form: random conversations break no promise that is not known to be broken, and none
more often than is known. TRIMTAB_SEED is the first seed, TRIMTAB_FUZZ_SECONDS how long it takes."""

from __future__ import annotations

import os
import secrets
import sys

import pytest

from tests.adversary.expected import table, too_often
from tests.adversary.running import converse


@pytest.mark.soak
def test_random_conversations_break_no_promise_more_often_than_is_known(capsys):
    seed = int(os.environ.get("TRIMTAB_SEED") or secrets.randbelow(10**9))
    with capsys.disabled():
        sys.stdout.write(f"\nTRIMTAB_SEED={seed}\n")
    found = converse(seed, seconds=float(os.environ.get("TRIMTAB_FUZZ_SECONDS") or 150))
    told = "\n".join(too_often(found, table()["rates"]))
    again = f"--seed {seed} --conversations {found.conversations}"
    if told:
        pytest.fail(f"{told}\nAgain: python -m tests.soak.adversary {again}", pytrace=False)
