"""`trimtab keys`: made once, kept as a hash, scoped, and gone when they are revoked."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import stat
from contextlib import closing
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from trimtab.cli.app import app
from trimtab_serve.api_keys.api_key import ApiKey, hash_api_key
from trimtab_serve.api_keys.command_line_control import open_api_keys
from trimtab_serve.cli.keys import parse_expiry

RUN = CliRunner()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def keys(*command: str):
    return RUN.invoke(app, ["keys", *command])


def create(*command: str) -> str:
    """A key, as its owner gets it."""
    done = keys("create", *command)
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


def find(key: str) -> ApiKey | None:
    """What a server that runs finds for a key."""

    async def look() -> ApiKey | None:
        async with open_api_keys("sessions") as stored:
            return await stored.find(hash_api_key(key))

    return asyncio.run(look())


def change(key: str, *, expires: float | None = None, used: float | None = None) -> None:
    sql = "UPDATE api_keys SET expires_at = ?, last_used_at = ? WHERE sha256 = ?"
    with closing(sqlite3.connect("sessions/.server/server.db", isolation_level=None)) as database:
        database.execute(sql, [expires, used, hash_api_key(key)])


def test_a_key_is_shown_once_and_kept_as_a_hash_that_its_owner_alone_reads(folder):
    done = keys("create", "web", "--tenant", "acme", "--agent", "helper", "--agent", "other")
    assert done.exit_code == 0
    key = done.stdout.strip()
    assert key.startswith("tt_")
    assert len(key) > 40
    assert "sessions of tenant acme and talks in them, only with helper and other." in done.stderr
    kept = [path for path in (folder / "sessions").rglob("*") if path.is_file()]
    assert len(kept) > 1
    assert [path for path in kept if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
    assert [path for path in kept if key.encode() in path.read_bytes()] == []
    stored = find(key)
    assert stored is not None
    assert stored.sha256 == hashlib.sha256(key.encode()).digest()
    assert (stored.name, stored.tenant, stored.agents) == ("web", "acme", ("helper", "other"))
    assert stored.role == "talk"
    one = keys("create", "one", "--agent", "helper", "--json")
    assert json.loads(one.stdout)["agents"] == ["helper"]


@pytest.mark.parametrize(
    ("role", "told"),
    [
        ("read", "reads sessions of tenant acme."),
        ("talk", "reads sessions of tenant acme and talks in them."),
        ("admin", "may do everything with sessions of tenant acme."),
    ],
)
def test_a_key_has_a_role(role, told):
    done = keys("create", "web", "--tenant", "acme", "--role", role)
    assert f"The key web {told}" in done.stderr
    stored = find(done.stdout.strip())
    assert stored is not None
    assert stored.role == role
    assert keys("create", "other", "--role", "root").exit_code == 2


NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("12h", "2026-11-18 00:00"),
        ("90d", "2027-02-15 12:00"),
        ("4w", "2026-12-15 12:00"),
        ("2027-01-31", "2027-01-31 23:59"),
        ("2026-11-17", "2026-11-17 23:59"),
        ("9999-12-31", "9999-12-31 23:59"),
    ],
)
def test_when_a_key_expires_is_said_as_a_time_or_a_day(text, ends):
    assert f"{parse_expiry(text, NOON):%Y-%m-%d %H:%M}" == ends


@pytest.mark.parametrize(
    "text", ["0d", "90", "soon", "-1d", "2026-11-16", "2026-02-30", "1e9d", ""]
)
def test_a_time_that_is_none_or_over_is_refused(text, folder):
    with pytest.raises(ValueError, match="--expires"):
        parse_expiry(text, NOON)
    done = keys("create", "web", f"--expires={text}")
    assert done.exit_code == 2
    assert not (folder / "sessions").exists()


def test_the_list_says_when_keys_expire_and_were_used():
    made = {
        name: create(name, *more)
        for name, more in (("web", ()), ("old", ("--expires", "1h")), ("idle", ("--expires", "2h")))
    }
    change(made["old"], expires=1_700_000_000.0)
    change(made["web"], used=datetime.now(UTC).timestamp())
    shown = keys("list").stdout.splitlines()
    web, old, idle = shown[2:]
    assert ("never" in web, "just now" in web.split("never")[1]) == (True, True)
    assert "EXPIRED 2023-11-14" in old
    assert ("EXPIRED" in idle, idle.rstrip().endswith("–")) == (False, True)
    told = json.loads(keys("list", "--json").stdout)
    assert [each["expired"] for each in told] == [False, True, False]
    assert [each["expires"] is None for each in told] == [True, False, False]
    assert told[0]["last_used"] >= told[0]["created"]
    assert [each["last_used"] for each in told[1:]] == [None, None]
    # Made anew under its name, it has not been used.
    assert keys("revoke", "web").exit_code == 0
    create("web")
    assert json.loads(keys("list", "--json").stdout)[-1]["last_used"] is None


def test_no_two_keys_are_the_same_and_no_name_is_used_twice():
    assert create("one") != create("two")
    done = keys("create", "one")
    assert done.exit_code == 2
    assert "there already is a key called one" in done.stderr


def test_keys_are_listed_without_what_would_open_anything():
    key = create("web", "--tenant", "acme")
    create("ops", "--role", "metrics")
    done = keys("list")
    assert [line.split()[:4] for line in done.stdout.splitlines()[2:]] == [
        ["web", "talk", "acme", "all"],
        ["ops", "metrics", "–", "–"],
    ]
    assert not done.stderr
    told = json.loads(keys("list", "--json").stdout)
    assert [(each["name"], each["tenant"], each["role"]) for each in told] == [
        ("web", "acme", "talk"),
        ("ops", None, "metrics"),
    ]
    digest = hashlib.sha256(key.encode()).hexdigest()
    for secret in (key, digest):
        assert secret not in done.stdout + json.dumps(told)


def test_a_key_for_metrics_has_neither_a_tenant_nor_agents():
    done = keys("create", "ops", "--role", "metrics")
    assert "The key ops reads /metrics and nothing else." in done.stderr
    for more in (("--tenant", "acme"), ("--agent", "helper")):
        done = keys("create", "other", "--role", "metrics", *more)
        assert done.exit_code == 2
        assert "a key for metrics cannot use sessions" in done.stderr
    assert [key["name"] for key in json.loads(keys("list", "--json").stdout)] == ["ops"]


def test_a_revoked_key_opens_nothing():
    key, other = create("web"), create("other")
    assert find(key) is not None
    assert keys("revoke", "web").exit_code == 0
    assert find(key) is None
    assert find(other) is not None
    again = keys("revoke", "web")
    assert again.exit_code == 2
    assert "has no key called web; its keys: other" in again.stderr


def test_keys_are_in_the_store_that_the_agent_here_names(folder):
    (folder / "agent.yaml").write_text("model: {name: gpt-5.1}\nsession: {store: data/all}\n")
    create("web")
    assert json.loads(keys("list", "--json").stdout)[0]["name"] == "web"
    assert json.loads(keys("list", "--json", "--store", "data/all").stdout)[0]["name"] == "web"
    assert keys("list", "--json", "--store", "elsewhere").stdout.strip() == "[]"


def test_a_key_for_an_agent_that_no_file_here_describes_is_refused(folder):
    (folder / "agent.yaml").write_text("name: helper\nmodel: {name: gpt-5.1}\n")
    (folder / "other").mkdir()
    (folder / "other" / "agent.yaml").write_text("model: {name: gpt-5.1}\nname: other\n")
    (folder / "compose.yaml").write_text("name: nosuch\nservices: {}\n")
    done = keys("create", "web", "--agent", "helper", "--agent", "nosuch")
    assert done.exit_code == 2
    assert "no agent file here is for nosuch; they are for helper and other." in done.stderr
    assert not (folder / "sessions").exists()
    create("web", "--agent", "helper", "--agent", "other")
    # The files here say nothing of a store that the caller names.
    create("remote", "--agent", "nosuch", "--store", "elsewhere")


def test_keys_are_listed_by_tenant_and_a_long_table_shows_the_newest(monkeypatch):
    monkeypatch.setattr("trimtab_serve.cli.keys.MAX_SHOWN_KEYS", 2)
    for name, tenant in (("one", "acme"), ("two", "acme"), ("three", "acme"), ("four", "other")):
        create(name, "--tenant", tenant)
    done = keys("list")
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == ["three", "four"]
    assert "2 older keys are not shown: name a tenant with --tenant" in done.stderr
    assert [key["name"] for key in json.loads(keys("list", "--json").stdout)][:2] == ["one", "two"]
    done = keys("list", "--tenant", "other")
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == ["four"]
    assert not done.stderr
    assert "no keys of tenant nobody in" in keys("list", "--tenant", "nobody").stderr


@pytest.mark.parametrize("name", ["a b", "", "a/b", "-x/", "ü"])
def test_a_name_that_would_not_fit_into_an_address_is_refused(name, folder):
    assert keys("create", "fine", "--tenant", name).exit_code == 2
    assert not (folder / "sessions").exists()
