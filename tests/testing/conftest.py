from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lazy import anthropic, openai
from trimtab.testing.server import Options, Served, Simulator, serve


@pytest.fixture(scope="session")
def running() -> Iterator[Served]:
    with serve() as served:
        yield served


@pytest.fixture
def served(running: Served) -> Served:
    """The server as if it had just been started."""
    running.simulator.reset()
    running.simulator.configure(**{name: getattr(Options(), name) for name in Options.__slots__})
    return running


@pytest.fixture
def simulator(served: Served) -> Simulator:
    return served.simulator


@pytest.fixture
def claude(served: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=served.url, api_key="k", max_retries=0) as client:
        yield client


@pytest.fixture
def gpt(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=served.openai_url, api_key="k", max_retries=0) as client:
        yield client
