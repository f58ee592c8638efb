"""No copy of a tenant's sessions is made while something of the tenant is erased."""

from __future__ import annotations

import asyncio

import pytest

from trimtab_serve.service.pausable_forks import ForksPaused, PausableForks

pytestmark = pytest.mark.anyio


async def test_while_forks_are_paused_those_of_this_tenant_are_refused_and_no_others():
    forks = PausableForks()
    async with forks.pause("acme"), forks.pause("acme"):
        with pytest.raises(ForksPaused):
            async with forks.run("acme"):
                pass
        async with forks.run("zeta"):
            pass
    async with forks.run("acme"):
        pass


async def test_a_pause_begins_when_the_forks_that_run_have_ended():
    forks, begun = PausableForks(), asyncio.Event()

    async def erase() -> None:
        async with forks.pause("acme"):
            begun.set()

    async with forks.run("acme"):
        erasing = asyncio.create_task(erase())
        await asyncio.sleep(0)
        with pytest.raises(ForksPaused):
            async with forks.run("acme"):
                pass
        assert not begun.is_set()
    await erasing
    assert begun.is_set()
