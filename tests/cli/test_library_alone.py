"""The library's commands where the server's distribution is not installed."""

import asyncio
import re

import pytest
from typer.testing import CliRunner

from trimtab.cli import EXTRAS_BY_COMMAND, explain_missing_command, main
from trimtab.cli.app import LIBRARY_COMMANDS, list_commands
from trimtab.cli.extension import find_extension
from trimtab.cli.session import session as session_app
from trimtab.session import Session
from trimtab.stores.files import FileStore

USERS = (
    "trimtab.cli",
    "trimtab.cli.app",
    "trimtab.cli.extension",
    "trimtab.cli.session.changes",
)


@pytest.fixture
def alone(monkeypatch):
    for module in USERS:
        monkeypatch.setattr(f"{module}.find_extension", lambda: None)


async def stored(folder, name):
    session = await Session.create(FileStore(folder, fsync=False), name, model="gpt-4o")
    await session.add({"role": "user", "content": "My name is Zanzibar."})
    await session.close()


def run(*arguments):
    return CliRunner().invoke(session_app, [str(argument) for argument in arguments])


def test_every_command_has_a_place_in_the_help():
    extension = find_extension()
    assert extension is not None
    assert list(EXTRAS_BY_COMMAND) == list(list_commands())
    assert {*extension.COMMANDS} | {*LIBRARY_COMMANDS} == {*EXTRAS_BY_COMMAND}


@pytest.mark.usefixtures("alone")
def test_a_command_that_is_not_installed_is_answered_by_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["trimtab", "serve", "agent.yaml"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err == f"{explain_missing_command('serve')}\n"
    assert "pip install 'trimtab[serve]'" in explain_missing_command("serve")
    assert list_commands() == LIBRARY_COMMANDS


@pytest.mark.usefixtures("alone")
def test_a_text_is_erased_from_a_session_that_no_server_has(tmp_path):
    asyncio.run(stored(tmp_path, "mine"))
    done = run("erase", "mine", "m2", "--yes", "--store", tmp_path)
    assert (done.exit_code, "erased m2" in done.stderr) == (0, True), done.output
    assert not any(b"Zanzibar" in each.read_bytes() for each in tmp_path.rglob("*.jsonl"))
    assert run("delete", "mine", "--yes", "--store", tmp_path).exit_code == 0
    assert asyncio.run(FileStore(tmp_path).position("mine")) == 0


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("words", [("erase", "m2"), ("delete",)])
def test_nothing_of_a_served_session_is_erased_unless_all_of_it_can_be(tmp_path, words):
    asyncio.run(stored(tmp_path, "default/helper/mine"))
    verb, *handle = words
    done = run(verb, "default/helper/mine", *handle, "--yes", "--store", tmp_path)
    assert (done.exit_code, "nothing was erased" in re.sub(r"\s+", " ", done.stderr)) == (2, True)
    assert asyncio.run(FileStore(tmp_path).position("default/helper/mine")) == 2
