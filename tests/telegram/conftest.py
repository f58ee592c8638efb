from __future__ import annotations

from collections.abc import Generator

import pytest

from trimtab.testing.telegram import ServedBotApi, serve


@pytest.fixture
def served() -> Generator[ServedBotApi]:
    with serve() as found:
        found.api.chat(7, "Ada", username="ada")
        found.api.chat(8, "Bob", username="bob")
        found.api.chat(-100123, "The team", topics={5, 6})
        yield found
