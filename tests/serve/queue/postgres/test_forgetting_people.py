"""Users and tenants are forgotten whole, in PostgreSQL."""

import os
import signal
import sys

import pytest

from tests import warm
from tests.serve.forgetting.test_forgetting import *  # noqa: F403 - the whole suite
from tests.serve.forgetting.test_forgetting import (
    ANNA,
    BOB,
    WORD,
    by,
    erasure,
    holders,
    talk,
    texts,
)
from tests.serve.queue.postgres import databases
from tests.serve.queue.postgres.workers import until

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]


@pytest.fixture
def place(database):
    return databases.Postgres(database)


@pytest.mark.process
async def test_a_process_that_is_killed_in_the_middle_is_followed_by_one_that_finishes(
    service, conninfo, tmp_path
):
    groups = [f"default/helper/group-{number:02}" for number in range(30)]
    for name in groups:
        await talk(service.store, name, by(BOB, "hi"), "Hi.", by(ANNA, f"I am {WORD}"), "Hello.")
    command = [sys.executable, "-m", "trimtab", "user", "erase", ANNA, "--yes"]
    environ = {**os.environ, "TRIMTAB_STORE": conninfo, "XDG_STATE_HOME": str(tmp_path)}
    with warm.Popen(command, env=environ) as erasing:
        await until(lambda: erased_in(service, groups[1]))
        erasing.send_signal(signal.SIGKILL)
        assert erasing.wait() == -signal.SIGKILL
    assert not await erased_in(service, groups[-1]), "it was over before it was killed"
    (left,) = await service.erasure_records.list_jobs()
    assert (left.state, left.by) == ("running", "command line")
    async with service.queue.borrow_connection() as connection:
        await connection.execute("UPDATE trimtab.erasure_jobs SET lease_until = now()")

    done = await erasure.erase_user(service, "default", ANNA, by="office")

    assert done.id == left.id
    assert 0 < done.messages <= 2 * len(groups)
    assert await holders(service) == []
    assert await holders(service, ANNA) == []
    for name in groups:
        assert (await texts(service.store, name))[:2] == ["hi", "Hi."]


async def erased_in(service, session):
    return WORD not in str(await texts(service.store, session))
