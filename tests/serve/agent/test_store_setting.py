"""Where the sessions are is read from an agent's file, whatever else is wrong with it."""

from pathlib import Path

import pytest

from tests.serve.agent.config_files import GOOD, LEAST, folder
from trimtab_serve.agent.config.problems import AgentFileError
from trimtab_serve.agent.config.store_location import read_store_location

__all__ = ["folder"]

FILE = Path("agent.yaml")
STORE = "session:\n  store: kept\n"


def place(text: str, **environ: str) -> str | None:
    FILE.write_text(text, encoding="utf-8")
    return read_store_location(FILE, environ)


@pytest.mark.parametrize(
    ("store", "found"),
    [
        ("kept", "kept"),
        ("/var/kept", "/var/kept"),
        ("${URL}", "postgresql://me@db/agents"),
        ("${NOWHERE:-kept}", "kept"),
        ("postgresql://me@db/agents", "postgresql://me@db/agents"),
        ("", None),
        ("${NOWHERE:-}", None),
    ],
)
def test_the_store_is_read_with_what_it_refers_to(store, found, folder):
    text = f"{LEAST}session:\n  store: {store}\n"
    assert place(text, URL="postgresql://me@db/agents") == found


def test_a_folder_is_meant_beside_the_file(folder):
    (folder / FILE).write_text(STORE, encoding="utf-8")
    assert read_store_location(folder / FILE, {}) == str(folder / "kept")


@pytest.mark.parametrize("text", ["", LEAST, "session:\n", "session: kept\n", "- session\n"])
def test_a_file_may_name_no_store(text, folder):
    assert place(text) is None


@pytest.mark.parametrize(
    "text",
    [
        *(text + STORE for text in GOOD.values() if "session" not in text and text[0] != "{"),
        "model: 7\nmodle: x\n" + STORE,
        "model:\n  api_key: ${KEY}\n" + STORE,
        "name: a\nname: b\n" + STORE,
        "name: !who me\n" + STORE,
        STORE + "  policy: none such\n  redact: ['(']\n",
    ],
)
def test_what_is_wrong_elsewhere_is_not_in_the_way(text, folder):
    assert place(text) == "kept"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("session: {store: '${URL}'}\n", "session.store refers to ${URL}, which is not set"),
        ("session: {store: 7}\n", "line 1, column 18: session.store must be a text: a folder, or"),
        ("session:\n  store: a\n  store: b\n", "session.store is set twice"),
        (
            "session: {store: 'mysql://me:hush@db/x'}\n",
            "line 1, column 18: session.store: the store's address begins with 'mysql://'; a store",
        ),
        ("session: {store: kept\n", "a `{` is not closed, or a comma is missing"),
    ],
)
def test_a_store_that_cannot_be_read_says_why(text, said, folder):
    with pytest.raises(AgentFileError) as raised:
        place(text)
    assert said in str(raised.value)
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    ("store", "found"),
    [
        ("postgresql://me@db/agents", "user=me dbname=agents host=db password=hush"),
        ("host=db dbname=agents", "dbname=agents host=db password=hush"),
        ("postgresql://me:own@db/agents", "postgresql://me:own@db/agents"),
        ("postgresql://[::1", "postgresql://[::1"),
        ("kept", "kept"),
    ],
)
def test_a_password_that_only_the_agent_knows_is_put_into_the_address(
    store, found, folder, monkeypatch
):
    text = f"{LEAST}session:\n  store: {store!r}\n"
    assert place(text, PGPASSWORD="hush") == found
    # The library of the database finds it by itself.
    monkeypatch.setenv("PGPASSWORD", "hush")
    assert place(text, PGPASSWORD="hush") == store
