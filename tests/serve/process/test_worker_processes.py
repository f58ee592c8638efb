"""Several processes on one database: some take in, some answer, and work is handed on."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.serve.process.processes import serving, write_agent
from tests.serve.process.test_serve import ENDLESS, said

pytestmark = [pytest.mark.anyio, pytest.mark.process]


async def test_a_worker_that_is_stopped_hands_its_turn_to_another(tmp_path, simulator, database):
    """Pieces come from one process over another; what was cut off is finished by a third."""
    write_agent(
        tmp_path, simulator.url, session={"store": database}, serve={"shutdown_timeout": 0.2}
    )
    with ExitStack() as held:
        front = held.enter_context(serving(tmp_path, "--no-turns"))
        worker = held.enter_context(serving(tmp_path, "--workers-only"))
        assert worker.url == ""
        async with front.client() as client:
            text, other = "", None
            async for event in client.session("helper", "one").stream(ENDLESS):
                if event.kind == "turn.started":
                    text = ""
                elif event.kind == "message.delta":
                    text += event.data["text"]
                    if other is None:
                        assert worker.end() == 0
                        assert worker.until("stopped")["handed_over"] == 1
                        other = held.enter_context(serving(tmp_path, "--workers-only"))
            assert text == "Here it is."
            assert await said(client) == [("user", ENDLESS), ("assistant", "Here it is.")]
        assert front.end() == 0
