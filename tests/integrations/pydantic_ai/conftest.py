"""These tests run in an environment of their own, with the newest Pydantic AI:

pip install -e 'packages/trimtab[testing]' 'pydantic-ai-slim[openai,anthropic]' pytest hypothesis
python -m pytest tests/integrations/pydantic_ai
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trimtab.testing import ServedSimulator, serve_simulated_provider


@pytest.fixture
def served() -> Iterator[ServedSimulator]:
    """A strict provider whose window is 16,000 tokens."""
    with serve_simulated_provider(window=16_000) as each:
        yield each
