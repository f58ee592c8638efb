"""A turn during which the process is killed, again at each start."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.serve.process.processes import serving, write_agent
from trimtab_serve.queue.protocol import MAX_INTERRUPTIONS

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.slow]

ENDLESS = 'simulate: {"text": 400, "pace": 0.2}'
INNOCENT = 'simulate: [{"text": 400, "pace": 0.2}, {"text": "Here it is."}]'


async def asked(simulator, count):
    async with asyncio.timeout(60):
        while len(simulator.list_requests()) < count:  # noqa: ASYNC110 - nobody signals it
            await asyncio.sleep(0.05)


async def last_text(session):
    return [message.text async for message in session.history()][-1]


async def test_a_turn_that_kills_the_process_at_each_start_becomes_a_dead_letter(
    tmp_path, simulator
):
    write_agent(tmp_path, simulator.url)
    with serving(tmp_path) as server:
        async with server.client() as client:
            await client.session("helper", "poison").send(ENDLESS)
            await asked(simulator, 1)
            await client.session("helper", "innocent").send(INNOCENT)
            await asked(simulator, 2)
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
    for _ in range(MAX_INTERRUPTIONS - 1):
        before = len(simulator.list_requests())
        with serving(tmp_path) as server:
            await asked(simulator, before + 1)
            assert server.end(signal.SIGKILL) == -signal.SIGKILL
    with serving(tmp_path) as server:
        async with server.client() as client:
            innocent = client.session("helper", "innocent")
            async with asyncio.timeout(60):
                while await last_text(innocent) != "Here it is.":  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.05)
            poison = await client.session("helper", "poison").state()
            assert "3 times in a row" in (poison.failure_reason or "")
            assert (await innocent.state()).failure_reason is None
