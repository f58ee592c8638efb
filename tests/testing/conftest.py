from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lazy import anthropic, openai
from trimtab.testing.server import (
    ProviderSimulator,
    ProviderSimulatorOptions,
    ServedSimulator,
    serve_simulated_provider,
)


@pytest.fixture(scope="session")
def running() -> Iterator[ServedSimulator]:
    with serve_simulated_provider() as served:
        yield served


@pytest.fixture
def served(running: ServedSimulator) -> ServedSimulator:
    """The server as if it had just been started."""
    running.simulator.reset()
    running.simulator.configure(
        **{
            name: getattr(ProviderSimulatorOptions(), name)
            for name in ProviderSimulatorOptions.__slots__
        }
    )
    return running


@pytest.fixture
def simulator(served: ServedSimulator) -> ProviderSimulator:
    return served.simulator


@pytest.fixture
def claude(served: ServedSimulator) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=served.url, api_key="k", max_retries=0) as client:
        yield client


@pytest.fixture
def gpt(served: ServedSimulator) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=served.openai_url, api_key="k", max_retries=0) as client:
        yield client
