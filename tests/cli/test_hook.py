"""`trimtab hook claude` in an empty home."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimtab.cli.app import app
from trimtab.integrations.claude_code.whole_texts import choose_file, log_fault, save_text


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
    assert f"Removed from {path} and deleted the file" in hook("--remove")
    assert not path.exists()
    assert "Nothing to do" in hook("--remove")


def test_a_file_with_other_settings_or_behind_a_link_is_not_deleted(home):
    path = home / ".claude" / "settings.json"
    path.parent.mkdir()
    path.write_text('{"model": "opus"}')
    hook()
    assert f"Removed from {path}. Whole texts stay" in hook("--remove")
    assert read(path) == {"model": "opus"}
    path.unlink()
    path.symlink_to(home / "dotfiles.json")
    hook()
    hook("--remove")
    assert read(path) == {}


def test_the_number_of_tokens_stays_until_another_is_chosen(home):
    assert "- long outputs, but no files, are shortened to 2,000 tokens" in hook()
    assert "are shortened to 5,000 tokens" in hook("--max-tokens", "5000")
    assert "are shortened to 5,000 tokens" in hook()
    assert "--max-tokens 5000" in (home / ".claude" / "settings.json").read_text()


def test_files_are_truncated_only_if_the_user_asks_for_it(home):
    path = home / ".claude" / "settings.json"

    def matcher():
        return read(path)["hooks"]["PostToolUse"][0]["matcher"]

    hook()
    assert "Read" not in matcher()
    assert "- long outputs and files are shortened to 2,000 tokens" in hook("--files")
    assert matcher().startswith("Read|")
    hook("--max-tokens", "900")
    assert matcher().startswith("Read|")
    hook("--no-files")
    assert "Read" not in matcher()


def test_settings_that_switch_every_hook_off_are_named_at_installing(home):
    path = home / ".claude" / "settings.json"
    path.parent.mkdir()
    path.write_text('{"disableAllHooks": true}')
    text = hook()
    assert "but Claude Code does not use it: - the setting disableAllHooks" in text
    assert "next session" not in text
    assert "disableAllHooks" in hook()


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
    text = hook("--erase", "s3", status=1)
    assert "no whole text of session s3 is stored; sessions that have some: s2" in text
    assert "Erased 1 whole text and what was in hook.log." in hook("--erase")
    assert "sessions that have some: none" in hook("--erase", "s2", status=1)


def test_a_file_in_place_of_the_folder_is_named(home):
    folder = home / ".local" / "state" / "trimtab" / "claude-code"
    folder.parent.mkdir(parents=True)
    folder.touch()
    text = hook("--erase", status=2)
    assert f"trimtab: {folder} is a file or a link, not a folder; move it away" in text


@pytest.mark.parametrize(
    "words", [("s1",), ("--remove", "--check"), ("--erase", "--dry-run"), ("--max-tokens", "10")]
)
def test_words_that_do_not_go_together_are_refused(home, words):
    hook(*words, status=2)
    assert list(home.iterdir()) == []


def test_the_check_says_if_there_is_no_hook(home):
    assert "To install it: trimtab hook claude" in hook("--check", status=1)
    text = hook("--check", "--project", status=1)
    assert "To install it: trimtab hook claude --project" in text


@pytest.mark.process
def test_the_check_finds_a_hook_that_works(home):
    hook("--max-tokens", "900")
    folder = str(home / ".local" / "state" / "trimtab" / "claude-code")
    log_fault(folder, "2026-11-18T20:00:00Z ValueError")
    text = hook("--check")
    assert "works" in text
    assert "are shortened to 900 tokens" in text
    assert f"whole texts in {folder}: 0 (0 bytes)" in text
    assert "earlier faults in hook.log: 1, the newest: 2026-11-18T20:00:00Z ValueError" in text


def test_the_check_names_the_command_that_installs_in_the_project(home):
    hook("--project")
    path = home / ".claude" / "settings.local.json"
    path.write_text(path.read_text().replace(sys.executable, "/gone/python"))
    text = hook("--check", "--project", status=1)
    assert "is gone, so nothing is shortened; run `trimtab hook claude --project` again" in text
