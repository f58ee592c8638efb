"""What the tests of policies share."""

import pytest

from trimtab.engine.policy.auto import RESULT_CAP_TOKENS_BY_GOAL, TARGET_TOKENS_BY_GOAL


@pytest.fixture
def low_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The goal `cost` with a mark and a cap that a short conversation reaches."""
    monkeypatch.setitem(TARGET_TOKENS_BY_GOAL, "cost", 12_000)
    monkeypatch.setitem(RESULT_CAP_TOKENS_BY_GOAL, "cost", 4_000)
