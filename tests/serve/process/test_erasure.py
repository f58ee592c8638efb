"""What is forgotten is in no byte that a server on files has written, whatever becomes of it."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tests import warm
from tests.serve.process.processes import serving, write_agent
from tests.stores.folders import holding

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.soak]

WORD = "zq4711needle"


async def session(folder, *command):
    """`trimtab session`, as an operator types it beside the server."""
    done = await asyncio.to_thread(
        warm.run,
        [*warm.TRIMTAB, "session", *command, "--yes"],
        cwd=folder,
        env={**os.environ, "XDG_STATE_HOME": str(folder / "state")},
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


async def test_what_is_forgotten_while_it_is_served_does_not_come_back(tmp_path, simulator):
    write_agent(
        tmp_path,
        simulator.url,
        session={"debounce": 0},
        schedules={"far": {"at": "2099-01-01 08:00", "message": "It is late."}},
    )
    simulator.set_replies(otherwise=f"You are {WORD}.")
    with serving(tmp_path) as server:
        async with server.client() as client:
            for name in ("one", "two", "three", "four"):
                await client.session("helper", name).ask(f"I am {WORD}.")
            last = (await client.session("helper", "one").state()).position
            await client.session("helper", "one").erase(f"m2-m{last}")
            await client.session("helper", "two").delete()
        told = await session(tmp_path, "erase", "default/helper/three", f"m2-m{last}")
        assert "erased m2-" in told
        await session(tmp_path, "delete", "default/helper/four")
        assert holding(tmp_path, WORD) == []
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
    with serving(tmp_path) as server:
        assert holding(tmp_path, WORD) == []
        assert server.end() == 0
    kept = [*(tmp_path / "sessions").rglob("*")]
    assert {".server", ".erasures", "default%2Fhelper%2Fone"} <= {path.name for path in kept}
    assert [str(path) for path in kept if path.stat().st_mode & 0o077] == []
