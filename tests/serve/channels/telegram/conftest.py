from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.simulators.telegram import ServedTelegramSimulator, serve_simulated_telegram


@pytest.fixture
def served() -> Generator[ServedTelegramSimulator]:
    with serve_simulated_telegram() as telegram:
        telegram.simulator.get_or_add_chat(7, "Ada", username="ada")
        telegram.simulator.get_or_add_chat(8, "Bob", username="bob")
        telegram.simulator.get_or_add_chat(-100123, "The team", topics={5, 6})
        yield telegram
