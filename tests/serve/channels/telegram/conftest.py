from __future__ import annotations

from collections.abc import Generator

import pytest

from trimtab_serve.testing.telegram import ServedTelegramSimulator, serve_simulated_telegram


@pytest.fixture
def served() -> Generator[ServedTelegramSimulator]:
    with serve_simulated_telegram() as found:
        found.simulator.get_or_add_chat(7, "Ada", username="ada")
        found.simulator.get_or_add_chat(8, "Bob", username="bob")
        found.simulator.get_or_add_chat(-100123, "The team", topics={5, 6})
        yield found
