"""`trimtab session` on PostgreSQL: what it prints does not depend on the store."""

import asyncio
import json

import pytest
from typer.testing import CliRunner

from tests.cli.long_conversation import HIDDEN, converse
from tests.stores import places
from trimtab.cli.app import app


@pytest.fixture
def place(shared, tmp_path):
    with places.made("postgres", tmp_path, shared) as found:
        yield found


def session(conninfo, *arguments, stdin=None):
    env = {"TRIMTAB_STORE": str(conninfo), "XDG_STATE_HOME": "/nonexistent"}
    return CliRunner().invoke(app, ["session", *map(str, arguments)], env=env, input=stdin)


def test_a_database_is_looked_into_as_files_are(place, tmp_path):
    async def make():
        store = await place.open()
        made = await converse(store, "alpha")
        await store.close()
        return made

    kept = asyncio.run(make())
    for seq in list(kept.requests)[::7]:
        done = session(place.conninfo, "show", "alpha", "--call", seq, "--json")
        assert (done.exit_code, done.stdout) == (0, kept.requests[seq])
    exported = session(place.conninfo, "export", "alpha").stdout
    assert session(tmp_path / "files", "import", "-", stdin=exported).exit_code == 0
    assert session(tmp_path / "files", "export", "alpha").stdout == exported
    assert session(place.conninfo, "import", "-", "--as", "twin", stdin=exported).exit_code == 0
    twin = session(place.conninfo, "export", "twin").stdout
    assert twin.splitlines()[1:] == exported.splitlines()[1:]
    rows = json.loads(session(place.conninfo, "list", "--json").stdout)["sessions"]
    assert [(row["session"], row["position"]) for row in rows] == [
        ("alpha", kept.events),
        ("twin", kept.events),
    ]


def test_erase_and_delete_reach_the_database(place):
    async def make():
        store = await place.open()
        await converse(store, "alpha")
        await store.close()

    asyncio.run(make())
    handle = session(place.conninfo, "search", "alpha", HIDDEN).stdout.partition(":")[0]
    done = session(place.conninfo, "erase", "alpha", handle, "--yes")
    assert done.exit_code == 0, done.output
    assert HIDDEN not in session(place.conninfo, "export", "alpha").stdout
    done = session(place.conninfo, "delete", "alpha", stdin="y\n")
    assert "from the database? This cannot be undone" in done.stderr
    assert session(place.conninfo, "list").stdout == "no sessions\n"


def test_a_database_without_tables_says_what_to_run(template):
    with places.database("") as conninfo:
        done = session(conninfo, "list")
    assert done.exit_code == 2
    assert "run `trimtab migrate`" in done.stderr
