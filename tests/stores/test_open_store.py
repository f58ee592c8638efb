"""One place, one store: a folder, or a database."""

import pytest

from tests.conversations import user
from tests.stores import places
from trimtab.errors import StoreUnavailable
from trimtab.session import Session
from trimtab.stores.factory import is_database_address, open_store
from trimtab.stores.files import FileStore


@pytest.mark.parametrize(
    ("place", "database"),
    [
        ("sessions", False),
        ("/var/lib/sessions", False),
        ("./a=b", False),
        ("postgres://user@host/name", True),
        ("postgresql://user@host/name", True),
        ("host=127.0.0.1 dbname=x", True),
    ],
)
def test_an_address_is_a_database_and_all_else_a_folder(place, database):
    assert is_database_address(place) is database


@pytest.mark.anyio
async def test_a_folder_that_is_not_there_is_made_when_something_is_kept(tmp_path):
    store = await open_store(str(tmp_path / "new"))
    try:
        assert isinstance(store, FileStore)
        session = await Session.create(store, "a", model="claude-sonnet-4-5")
        await session.add(user("hello"))
    finally:
        await store.close()
    assert (tmp_path / "new" / "a" / "events.jsonl").exists()


@pytest.mark.anyio
async def test_a_folder_that_must_be_there_is_missed(tmp_path):
    with pytest.raises(
        StoreUnavailable, match="none' does not exist; set the folder of the sessions"
    ):
        await open_store(str(tmp_path / "none"), allow_new_folder=False)
    (tmp_path / "file").touch()
    with pytest.raises(
        StoreUnavailable, match="file' is not a folder; set the folder of the sessions"
    ):
        await open_store(str(tmp_path / "file"))


@pytest.mark.anyio
async def test_a_database_is_opened_by_its_address(template):
    with places.database(template) as conninfo:
        store = await open_store(conninfo)
        try:
            await Session.create(store, "a", model="claude-sonnet-4-5")
            assert await store.position("a")
        finally:
            await store.close()
