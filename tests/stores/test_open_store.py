"""One place, one store: a folder, or a database."""

from pathlib import Path

import pytest

from tests.conversations import user
from tests.stores import places
from trimtab.errors import StoreUnavailable
from trimtab.integrations.conversations import Conversations
from trimtab.integrations.shared_stores import SharedStores
from trimtab.session import Session
from trimtab.stores.factory import is_database_address, open_store
from trimtab.stores.files import FileStore
from trimtab.stores.files.disk import folder_name_to_session, session_to_folder_name
from trimtab.stores.files.lock import find_lock_holder
from trimtab_serve.agent.config.store_location import explain_invalid_store


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
@pytest.mark.parametrize(
    "address",
    [
        "postgresql+psycopg://u:hunter2@db.example/x",
        "jdbc:postgresql://u:hunter2@db.example/x",
        "POSTGRESQL://u:hunter2@db.example/x",
        " postgresql://u:hunter2@db.example/x",
        "mysql://u:hunter2@db.example/x",
        "rediss://:hunter2@cache:6379/0",
        "sqlite:///hunter2.db",
        "s3://hunter2",
        "gs://hunter2",
    ],
)
async def test_an_address_of_something_else_is_refused_and_makes_no_folder(
    address, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ValueError, match="postgresql://user@host/name or host=… dbname=…"
    ) as raised:
        await open_store(address)
    assert "a folder" in str(raised.value)
    assert "hunter2" not in str(raised.value)
    asks_for_postgres = "postgres" in address.lower()
    assert ("write postgresql:// instead" in str(raised.value)) is asks_for_postgres
    assert not [*tmp_path.iterdir()]


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["C:", "C:\\chats", "C://chats", "chats:2027", "a:b/c", "./x://y"])
async def test_a_folder_with_a_colon_in_its_name_is_a_folder(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = await open_store(name)
    await store.close()
    assert isinstance(store, FileStore)


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


@pytest.mark.anyio
async def test_a_store_and_a_session_are_closed_at_the_end_of_a_block(tmp_path):
    async with (
        await open_store(str(tmp_path / "sessions")) as store,
        await Session.create(store, "s", model="claude-sonnet-5-5") as session,
    ):
        assert find_lock_holder(store.root / "s") is not None
        assert session.id == "s"
    assert find_lock_holder(store.root / "s") is None


@pytest.mark.anyio
async def test_a_tilde_is_the_home_of_the_user_wherever_a_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    shared = SharedStores()
    stores = [
        FileStore("~/chats"),
        FileStore(Path("~/chats")),
        await open_store("~/chats"),
        await open_store(Path("~/chats")),
        await shared.open("~/chats"),
    ]
    assert {store.root for store in stores} == {tmp_path / "home" / "chats"}
    for store in stores:
        await store.close()


@pytest.mark.anyio
async def test_an_empty_location_is_refused_in_the_same_words_everywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    empty = "the store's location is empty; it must be a folder such as 'sessions'"
    with pytest.raises(ValueError, match=empty):
        FileStore("")
    with pytest.raises(ValueError, match=empty):
        await open_store("")
    with pytest.raises(ValueError, match=empty):
        Conversations(store="")
    assert empty in explain_invalid_store("")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("session", "folder"),
    [("con", "%63on"), ("NUL.txt", "%4EUL.txt"), ("com1", "%63om1"), ("console", "console")],
)
def test_no_folder_has_the_name_of_a_device(session, folder):
    assert session_to_folder_name(session) == folder
    assert folder_name_to_session(folder) == session
