"""Old sessions go by themselves, in PostgreSQL, and one process of many does it."""

from functools import partial

import pytest

from tests.serve.forgetting.test_retention import *  # noqa: F403 - the whole suite
from tests.serve.forgetting.test_retention import ONE, names, runner, said, talk
from tests.serve.queue.postgres import databases
from trimtab_serve.forgetting.postgres_records import hold_retention_lock

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]


@pytest.fixture
def place(database):
    return databases.Postgres(database)


async def test_one_process_of_many_deletes(service):
    await talk(service.store, ONE, said("hi"), "Hello.")
    lock = partial(hold_retention_lock, service.queue.borrow_connection)
    async with lock() as is_mine:
        assert is_mine
        assert await runner(service, days_later=91, hold_lock=lock).delete_expired() == 0
        assert await names(service) == [ONE]
    assert await runner(service, days_later=91, hold_lock=lock).delete_expired() == 1
