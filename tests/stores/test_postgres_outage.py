"""A PostgreSQL server that goes away: in mid-append, between appends, and comes back."""

import asyncio

import pytest
from psycopg import AsyncConnection, AsyncRawCursor

from tests.soak.crash.cluster import cluster, programs
from tests.stores.events import held, said
from tests.stores.test_postgres import opened, somebody_waits
from trimtab.engine.log.event import dump_event_line
from trimtab.errors import StoreUnavailable
from trimtab.stores.postgres import PostgresStore
from trimtab.stores.postgres.escaping import compute_session_uuid
from trimtab.stores.postgres.migrations import migrate
from trimtab.stores.postgres.queries import QUERIES

pytestmark = [pytest.mark.anyio, pytest.mark.process]


@pytest.fixture(scope="module")
def server():
    where = programs()
    if where is None:
        pytest.skip("the programs of a PostgreSQL server are not installed")
    with cluster(where) as made:
        asyncio.run(migrate(made.conninfo))
        yield made


async def test_an_append_in_flight_says_that_the_server_is_gone(server):
    async with opened(server.conninfo, wait=1) as store:
        await store.append("flight", [said(1)])
        other = await AsyncConnection.connect(server.conninfo, cursor_factory=AsyncRawCursor)
        await other.execute(QUERIES["lock"], [compute_session_uuid("flight")])
        append = asyncio.create_task(store.append("flight", [said(2)]))
        await somebody_waits(server.conninfo)
        await asyncio.to_thread(server.stop)
        await other.close()
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1.*unknown whether an open write"):
            await append
        with pytest.raises(StoreUnavailable, match="gave no connection"):
            await store.append("flight", [said(2)])
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await PostgresStore.connect(server.conninfo)
        server.start()
        assert await back(store, "flight") == 1
        await store.append("flight", [said(2)])
        assert await held(store, "flight") == [dump_event_line(said(1)), dump_event_line(said(2))]


async def test_a_store_works_again_after_a_restart_that_it_did_not_see(server):
    async with opened(server.conninfo, max_size=3) as store:
        await asyncio.gather(*(store.append(name, [said(1)]) for name in ("idle", "b", "c")))
        assert len(store._connections._idle) == 3
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        # Every connection of the pool is dead, and none is given out.
        for seq in range(2, 8):
            await store.append("idle", [said(seq)])
        assert await store.position("idle") == 7


async def test_what_was_acknowledged_before_a_crash_is_there_behind_it(server):
    acknowledged: dict[str, int] = {}

    async def write(store, session):
        for seq in range(1, 100_000):
            await store.append(session, [said(seq, f"{session} {seq}")])
            acknowledged[session] = seq

    async with opened(server.conninfo, max_size=4, wait=1) as store:
        writers = [asyncio.create_task(write(store, f"w{number}")) for number in range(4)]
        while sum(acknowledged.values()) < 200:
            await asyncio.wait(writers, timeout=0.01)
        await asyncio.to_thread(server.stop)
        results = await asyncio.gather(*writers, return_exceptions=True)
        assert {type(result) for result in results} == {StoreUnavailable}
        server.start()
        for session, last in acknowledged.items():
            position = await back(store, session)
            # One more may have landed than was acknowledged.
            assert position - last in (0, 1)
            whole = [
                dump_event_line(said(seq, f"{session} {seq}")) for seq in range(1, position + 1)
            ]
            assert await held(store, session) == whole


async def back(store, session):
    """The position, once the pool has found the server again."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await store.position(session)
            except StoreUnavailable:
                continue
