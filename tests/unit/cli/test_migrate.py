import subprocess
import sys

from typer.testing import CliRunner

from trimtab.cli.app import app

NOWHERE = "host=127.0.0.1 port=1 user=u password=hush dbname=nowhere"


def run(*arguments):
    return CliRunner().invoke(app, ["migrate", *arguments], env={"TRIMTAB_DATABASE": ""})


def test_without_psycopg_it_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "trimtab.stores.postgres.migrations", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    done = run("--database", NOWHERE)
    assert (done.exit_code, done.stderr) == (
        2,
        "trimtab: PostgreSQL needs two more packages: pip install 'trimtab[postgres]'\n",
    )


def test_a_database_that_cannot_be_reached_is_named_without_its_password():
    done = run("--database", NOWHERE)
    assert done.exit_code == 2
    assert "trimtab: database nowhere at 127.0.0.1:1 cannot be reached" in done.stderr
    assert "hush" not in done.output


def test_an_address_that_cannot_be_read_is_said_without_its_password():
    done = run("--database", "postgresql://u:hush@[::1")
    assert done.exit_code == 2
    assert done.stderr.startswith("trimtab: the database's address cannot be read; it looks like")
    assert "hush" not in done.output


def test_without_a_database_it_asks_for_one():
    done = run()
    assert done.exit_code == 2
    assert "--database" in done.stderr


def test_psycopg_is_imported_by_nothing_else():
    modules = "trimtab, trimtab.cli.app, trimtab.stores.store, trimtab.testing"
    code = f"import sys, {modules}; sys.exit('psycopg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
