"""One suite for all that keeps schedules: `place` is each in turn."""

import asyncio

import psycopg
import pytest

from tests.serve.schedules.places import Files, Postgres
from tests.stores import places as stores
from trimtab_serve.queue.postgres.job_queue_migrations import migrate_job_queue


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session")
def template():
    yield from stores.template()


@pytest.fixture(scope="session")
def queued(template):
    with stores.database(template) as conninfo:
        asyncio.run(migrate_job_queue(conninfo))
        yield conninfo


@pytest.fixture
def database(queued):
    """A database with nothing in it."""
    with psycopg.connect(queued, autocommit=True) as connection:
        connection.execute("TRUNCATE trimtab.schedules, trimtab.inbox, trimtab.outbox CASCADE")
        connection.execute("TRUNCATE trimtab_queue.procrastinate_jobs CASCADE")
    return queued


@pytest.fixture(params=["files", "postgres"])
def place(request, tmp_path):
    if request.param == "files":
        return Files(tmp_path)
    return Postgres(request.getfixturevalue("database"))


@pytest.fixture
async def kept(place):
    async with place.open() as opened:
        yield opened
