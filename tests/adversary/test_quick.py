"""The quick form: fixed cases and conversations of fixed seeds break no promise that is not known
to be broken, and none that is mended stays in the table of what is."""

from __future__ import annotations

import pytest

from tests.adversary.expected import compare, expected_of, sums, table
from tests.adversary.findings import KINDS
from tests.adversary.running import QUICK


@pytest.mark.slow
@pytest.mark.parametrize("batch", QUICK, ids=lambda each: each.name)
def test_as_many_promises_are_broken_as_are_known(batch):
    found = batch.found()
    assert found.requests
    told = compare(batch.name, found, expected_of(batch.name))
    if told:
        pytest.fail(told, pytrace=False)


def test_the_table_knows_the_batches_and_the_kinds_and_no_others():
    known = table()
    assert list(known["quick"]) == [batch.name for batch in QUICK]
    assert {kind for kind, _ in sums(known["quick"].values())} <= set(KINDS)
    assert set(known["rates"]) <= set(KINDS)
