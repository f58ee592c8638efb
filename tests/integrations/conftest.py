"""The databases of `tests/stores`."""

from tests.stores.conftest import migrated, template

__all__ = ["migrated", "template"]
