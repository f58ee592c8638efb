"""`trimtab migrate` brings up all that a fleet needs, and once."""

from __future__ import annotations

import json

import psycopg
import pytest
from typer.testing import CliRunner

from tests.stores.places import database as fresh
from trimtab.cli.app import app

TABLES = """
SELECT format('%s.%s', schemaname, tablename) FROM pg_tables
WHERE schemaname IN ('trimtab', 'trimtab_queue')
"""
FORGET = """
DELETE FROM trimtab_queue.migrations
WHERE name = (SELECT max(name) FROM trimtab_queue.migrations) RETURNING name
"""


@pytest.fixture
def empty(database):
    """A database with nothing in it, where the others are."""
    del database  # skips where there is no server
    with fresh("") as conninfo:
        yield conninfo


def run(conninfo, *options):
    done = CliRunner().invoke(app, ["migrate", "--database", conninfo, "--json", *options])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def tables(conninfo):
    with psycopg.connect(conninfo) as connection:
        return {name for (name,) in connection.execute(TABLES)}


def test_a_plan_names_what_is_missing_and_changes_nothing(empty):
    planned = run(empty, "--plan")
    assert tables(empty) == set()
    assert run(empty)["applied"] == planned["missing"]
    assert run(empty, "--plan") == {"missing": []}
    assert run(empty) == {"applied": []}


def test_store_message_queue_schedules_and_job_queue_are_created(empty):
    *ours, queue = run(empty)["applied"]
    assert ours == ["0001_tables"]
    assert queue.startswith("procrastinate ")
    assert {
        "trimtab.sessions",
        "trimtab.inbox",
        "trimtab.outbox",
        "trimtab.dead",
        "trimtab.schedules",
        "trimtab_queue.procrastinate_jobs",
    } <= tables(empty)


def test_a_queue_of_an_earlier_procrastinate_lacks_its_newest_migrations_by_name(empty):
    run(empty)
    with psycopg.connect(empty) as connection:
        row = connection.execute(FORGET).fetchone()
    assert row is not None
    assert run(empty, "--plan") == {"missing": [f"procrastinate {row[0]}"]}
