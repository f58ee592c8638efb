import subprocess
import sys

import pytest
from typer.testing import CliRunner

from trimtab.cli.app import app

NOWHERE = "host=127.0.0.1 port=1 user=u password=hush dbname=nowhere"


def run(*arguments, **env):
    env = {"TRIMTAB_DATABASE": "", "DATABASE_URL": "", **env}
    return CliRunner().invoke(app, ["migrate", *arguments], env=env)


def called(name):
    """A database of that name, which nobody runs."""
    return f"host=127.0.0.1 port=1 user=u dbname={name}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_psycopg_it_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("trimtab.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    done = run(TRIMTAB_DATABASE=NOWHERE)
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
    done = run(TRIMTAB_DATABASE="postgresql://u:hush@[::1")
    assert done.exit_code == 2
    assert done.stderr.startswith(
        "trimtab: the database's address cannot be read; it must look like"
    )
    assert "hush" not in done.output


def test_without_a_database_it_says_where_one_is_looked_for(folder):
    (folder / "agent.yaml").write_text("session: {store: sessions}\n", encoding="utf-8")
    done = run()
    assert done.exit_code == 2
    assert done.stderr == (
        "trimtab: no database is named; use --database, the environment variable "
        "TRIMTAB_DATABASE or DATABASE_URL, or `store` under `session` in agent.yaml\n"
    )


def test_the_database_is_the_typed_one_else_ours_else_the_agents_else_everybodys(folder):
    def asked(*arguments, **env):
        done = run(*arguments, DATABASE_URL=called("everybodys"), **env)
        assert done.exit_code == 2
        return done.stderr.removeprefix("trimtab: database ").split()[0]

    assert asked() == "everybodys"
    (folder / "agent.yaml").write_text("session: {store: sessions}\n", encoding="utf-8")
    assert asked() == "everybodys"
    text = f"modle: 7\nsession:\n  store: {called('agents')}\n"
    (folder / "agent.yaml").write_text(text, encoding="utf-8")
    assert asked() == "agents"
    assert asked(TRIMTAB_DATABASE=called("ours")) == "ours"
    assert asked("--database", called("typed"), TRIMTAB_DATABASE=called("ours")) == "typed"


def test_an_agents_database_that_is_not_set_is_named(folder):
    (folder / "agent.yaml").write_text("session:\n  store: ${PLACE}\n", encoding="utf-8")
    done = run()
    assert done.exit_code == 2
    assert "session.store refers to ${PLACE}, which is not set" in done.stderr


@pytest.mark.process
def test_psycopg_is_imported_by_nothing_else():
    modules = "trimtab, trimtab.cli.app, trimtab.stores.base, trimtab.testing"
    code = f"import sys, {modules}; sys.exit('psycopg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("command", "option", "variable"),
    [("migrate", "--database", "TRIMTAB_DATABASE"), ("session list", "--store", "TRIMTAB_STORE")],
)
def test_a_password_that_is_typed_is_warned_of_and_not_repeated(command, option, variable):
    words = command.split()
    typed = CliRunner().invoke(app, [*words, option, NOWHERE])
    warned = f"can see the password in {option} while this command runs; put the address into the"
    assert warned in typed.stderr
    assert f"variable {variable}" in typed.stderr
    assert "hush" not in typed.output
    without = CliRunner().invoke(app, [*words, option, called("nowhere")])
    named = CliRunner().invoke(app, words, env={variable: NOWHERE})
    assert "password" not in without.stderr + named.stderr
