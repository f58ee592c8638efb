"""The stores of `tests/stores`, with sessions in them."""

import pytest

from tests.stores.conftest import place, shared, store, template
from trimtab.session import loading

__all__ = ["place", "shared", "store", "template"]


@pytest.fixture
def often(monkeypatch):
    """Checkpoints come often, so that a short conversation has many behind it."""
    monkeypatch.setattr(loading, "MIN_CHECKPOINT_EVENTS", 24)
