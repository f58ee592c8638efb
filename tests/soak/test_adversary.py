"""The figures of hostile conversations: by name, and the same for the same seed."""

import argparse

import pytest

from tests.adversary.findings import KINDS
from tests.soak import adversary


@pytest.fixture
def asked(monkeypatch):
    """For one small conversation, without the fixed cases."""
    monkeypatch.setattr(adversary, "FIXED", ())
    own = {"quick": False, "seed": 25, "conversations": 1, "small": True, "seconds": 1.0}
    return argparse.Namespace(**own, record=False)


def test_every_kind_is_a_figure_and_together_they_are_all_violations(asked):
    report, found = adversary.main(asked)
    assert report["requests"] == found.requests > 10
    assert report["violations"] == sum(report[kind] for kind in KINDS)
    assert report["violations"] == sum(row["times"] for row in report["rows"])
    assert (report["seed"], report["conversations"]) == (25, 1)
    assert report["broken"] == []
    assert report == adversary.main(asked)[0], "a seed and a number give the same figures"
