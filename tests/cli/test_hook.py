"""`trimtab hook claude` in an empty home."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimtab.cli.app import app
from trimtab.integrations.claude_code.whole_texts import choose_file, save_text


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def hook(*words, status=0):
    run = CliRunner().invoke(app, ["hook", "claude", *words])
    assert run.exit_code == status, run.output
    return " ".join(run.output.split())


def read(path):
    return json.loads(path.read_text())


def test_the_hook_is_installed_once_and_removed(home):
    path = home / ".claude" / "settings.json"
    assert "Installed in" in hook()
    once = path.read_bytes()
    assert "Nothing to do" in hook()
    assert path.read_bytes() == once
    assert "Removed from" in hook("--remove")
    assert read(path) == {}
    assert "Nothing to do" in hook("--remove")


def test_a_dry_run_shows_the_change_and_makes_none(home):
    text = hook("--dry-run", "--max-tokens", "900")
    assert "+" in text
    assert "--max-tokens 900" in text
    assert list(home.iterdir()) == []


def test_a_project_gets_its_local_settings(home):
    hook("--project")
    assert read(home / ".claude" / "settings.local.json")["hooks"]
    assert not (home / ".claude" / "settings.json").exists()


def test_another_hook_is_named_when_ours_is_installed(home):
    path = home / ".claude" / "settings.json"
    path.parent.mkdir()
    group = {"matcher": "Bash", "hooks": [{"type": "command", "command": "rtk\x1b[31m run"}]}
    path.write_text(json.dumps({"hooks": {"PostToolUse": [group]}}))
    text = hook()
    assert "another hook runs after tools: rtk\\x1b[31m run" in text
    assert "last writer wins" in text
    assert read(path)["hooks"]["PostToolUse"][0] == group


def test_settings_that_are_not_understood_stay_and_their_texts_can_be_erased(home):
    path = home / ".claude" / "settings.json"
    path.parent.mkdir()
    path.write_text("{ // mine\n}")
    assert "is not valid JSON and stays as it is" in hook(status=2)
    assert path.read_text() == "{ // mine\n}"
    assert "Erased 0 whole texts" in hook("--erase")


def test_whole_texts_of_a_session_or_all_are_erased(home):
    folder = str(home / ".local" / "state" / "trimtab" / "claude-code")
    paths = [choose_file(folder, session, "Bash") for session in ("s1", "s1", "s2")]
    for path in paths:
        save_text(path, "whole")
    assert "Erased 2 whole texts of session s1" in hook("--erase", "s1")
    assert [Path(path).exists() for path in paths] == [False, False, True]
    assert "Erased 1 whole text." in hook("--erase")


@pytest.mark.parametrize(
    "words", [("s1",), ("--remove", "--check"), ("--erase", "--dry-run"), ("--max-tokens", "10")]
)
def test_words_that_do_not_go_together_are_refused(home, words):
    hook(*words, status=2)
    assert list(home.iterdir()) == []


def test_the_check_says_if_there_is_no_hook(home):
    assert "Not installed" in hook("--check", status=1)


@pytest.mark.process
def test_the_check_finds_a_hook_that_works(home):
    hook()
    assert "works" in hook("--check")
