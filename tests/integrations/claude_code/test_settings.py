"""The hook in settings of Claude Code that belong to somebody."""

import json
import stat
import sys

import pytest

from trimtab.integrations.claude_code import settings as module
from trimtab.integrations.claude_code.settings import (
    SettingsFault,
    add_hook,
    build_hook_command,
    build_read_rule,
    check_hook,
    find_installed_folders,
    list_other_hooks,
    locate_settings,
    read_settings,
    remove_hook,
    write_settings,
)

FOLDER = "/home/user/.local/state/trimtab/claude-code"
OTHERS = {
    "model": "opus",
    "hooks": {
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "a"}]}],
        "PostToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "rtk x"}]}],
    },
    "permissions": {"allow": ["Bash(ls)"], "deny": ["Read(./.env)"]},
    "env": {"A": "ü"},
}


def test_everything_else_in_the_settings_is_kept():
    new = add_hook(OTHERS, FOLDER, 2_000)
    assert new["hooks"]["PreToolUse"] == OTHERS["hooks"]["PreToolUse"]
    others, ours = new["hooks"]["PostToolUse"]
    assert others == OTHERS["hooks"]["PostToolUse"][0]
    assert ours["hooks"][0]["command"] == build_hook_command(FOLDER, 2_000)
    assert new["permissions"] == {
        "allow": ["Bash(ls)", f"Read(/{FOLDER}/**)"],
        "deny": ["Read(./.env)"],
    }
    assert list(new) == list(OTHERS)
    assert remove_hook(new) == OTHERS


@pytest.mark.parametrize("settings", [{}, {"model": "x"}, {"hooks": {}, "permissions": {}}])
def test_removing_leaves_nothing_of_ours(settings):
    assert "trimtab" not in json.dumps(remove_hook(add_hook(settings, FOLDER, 2_000)))
    assert remove_hook(settings) == settings


def test_installing_again_changes_what_is_new_and_nothing_else():
    once = add_hook(OTHERS, FOLDER, 2_000)
    assert add_hook(once, FOLDER, 2_000) == once
    other = add_hook(once, FOLDER, 900)
    assert "--max-tokens 900" in json.dumps(other)
    assert "--max-tokens 2000" not in json.dumps(other)
    assert json.dumps(other).count("Read(/") == 1


def test_hooks_that_a_user_put_beside_ours_stay():
    settings = add_hook({}, FOLDER, 2_000)
    settings["hooks"]["PostToolUse"][0]["hooks"].append({"type": "command", "command": "mine"})
    assert list_other_hooks(settings) == ["mine"]
    (group,) = remove_hook(settings)["hooks"]["PostToolUse"]
    assert group["hooks"] == [{"type": "command", "command": "mine"}]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "7",
        '{"a": 1,}',
        '{"a": 1, "a": 2}',
        '{"hooks": []}',
        '{"hooks": {"PostToolUse": {}}}',
        '{"hooks": {"PostToolUse": [7]}}',
        '{"hooks": {"PostToolUse": [{"hooks": [7]}]}}',
        '{"permissions": {"allow": "x"}}',
        '{"a": NaN}',
        '{"a": 1e999}',
        "[" * 100_000,
        "\xff",
    ],
)
def test_a_file_that_is_not_understood_is_refused(tmp_path, text):
    path = tmp_path / "settings.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(SettingsFault):
        read_settings(path)


def test_a_missing_and_an_empty_file_have_no_settings(tmp_path):
    assert read_settings(tmp_path / "settings.json") == ({}, None)
    (tmp_path / "settings.json").write_text("\n")
    assert read_settings(tmp_path / "settings.json") == ({}, b"\n")


def test_a_file_is_replaced_at_once_with_its_mode_and_its_link(tmp_path):
    real = tmp_path / "dotfiles" / "settings.json"
    real.parent.mkdir()
    real.write_text('{"a": "\\ud800"}')
    real.chmod(0o640)
    link = tmp_path / "settings.json"
    link.symlink_to(real)
    settings, before = read_settings(link)
    write_settings(link, {**settings, "b": 1}, before)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert read_settings(real)[0] == {"a": "\ud800", "b": 1}
    assert list(real.parent.iterdir()) == [real]


def test_a_change_by_another_program_is_not_overwritten(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text("{}")
    settings, before = read_settings(path)
    path.write_text('{"theirs": 1}')
    with pytest.raises(SettingsFault, match="another program"):
        write_settings(path, {**settings, "ours": 1}, before)
    assert path.read_text() == '{"theirs": 1}'
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsFault, match=r"settings\.json cannot be written"):
        write_settings(tmp_path / "file" / "settings.json", {}, None)


@pytest.mark.parametrize("folder", ["/srv/a(b)/x", "/srv/*/x", "/srv/a,b", "/srv/a\nb"])
def test_a_folder_that_a_permission_cannot_name_is_refused(folder):
    with pytest.raises(SettingsFault, match="XDG_STATE_HOME"):
        build_read_rule(folder)


def test_the_settings_are_those_of_the_user_or_of_a_project(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/user")
    assert str(locate_settings({})) == "/home/user/.claude/settings.json"
    assert str(locate_settings({"CLAUDE_CONFIG_DIR": "/c"})) == "/c/settings.json"
    assert locate_settings({}, tmp_path) == tmp_path / ".claude" / "settings.local.json"


def test_only_a_folder_of_ours_is_taken_from_a_command():
    settings = add_hook({}, "/home/user", 2_000)
    assert find_installed_folders(settings) == []
    assert find_installed_folders(add_hook({}, FOLDER, 2_000)) == [FOLDER]


def test_a_foreign_command_is_not_started(tmp_path, monkeypatch):
    def run(*args, **options):
        raise AssertionError("started")

    monkeypatch.setattr(module.subprocess, "run", run)
    folder = str(tmp_path / "trimtab" / "claude-code")
    settings = add_hook({}, folder, 2_000)
    hook = settings["hooks"]["PostToolUse"][0]["hooks"][0]
    foreign = tmp_path / "foreign"
    hook["command"] = hook["command"].replace(sys.executable, str(foreign))
    state = check_hook(settings, {})
    assert state.is_installed
    assert f"its Python {foreign} is gone, so nothing is shortened" in state.faults[0]
    foreign.touch(0o700)
    assert f"another Python than {sys.executable}" in check_hook(settings, {}).faults[0]


@pytest.mark.process
def test_the_check_starts_the_hook_and_names_what_is_wrong(tmp_path):
    folder = str(tmp_path / "trimtab" / "claude-code")
    settings = add_hook(OTHERS, folder, 2_000)
    state = check_hook(settings, {})
    assert (state.is_installed, state.faults) == (True, ())
    assert any("the last writer wins" in note for note in state.notes)
    wrong = {**settings, "permissions": {}, "disableAllHooks": True}
    faults = " ".join(check_hook(wrong, {}).faults)
    assert "no permission to read" in faults
    assert "disableAllHooks" in faults
    assert not check_hook(OTHERS, {}).is_installed
