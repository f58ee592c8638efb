"""The stores of `tests/stores`, with turns run in them."""

import pytest

from tests.stores.conftest import anyio_backend, place, shared, store, template
from trimtab.testing import MemoryStore

__all__ = ["anyio_backend", "memory", "place", "shared", "store", "template"]


@pytest.fixture
def memory():
    return MemoryStore()
