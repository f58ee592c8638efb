"""The folder of whole texts: private, short-lived, and nobody else's."""

import os
import stat
import threading
from errno import ENOSPC
from pathlib import Path

import pytest

from trimtab.integrations.claude_code import whole_texts
from trimtab.integrations.claude_code.whole_texts import (
    KEPT_SECONDS,
    choose_file,
    count_texts,
    erase_texts,
    locate_folder,
    log_fault,
    read_log,
    save_text,
    sweep_if_due,
)

NOW = 1_795_000_000.0


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "state" / "trimtab" / "claude-code")


def save(folder, text="whole", session="s1", tool="Bash", age=0.0):
    path = choose_file(folder, session, tool)
    save_text(path, text)
    os.utime(path, (NOW - age, NOW - age))
    return Path(path)


def test_a_text_is_readable_by_its_owner_only(folder):
    before = os.umask(0)
    try:
        path = save(folder, "über\n")
    finally:
        os.umask(before)
    assert path.read_bytes() == "über\n".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for inner in (path.parent, path.parent.parent, path.parent.parent.parent):
        assert stat.S_IMODE(inner.stat().st_mode) == 0o700


def test_a_folder_that_others_could_open_is_closed(folder):
    Path(folder).mkdir(parents=True)
    Path(folder).chmod(0o777)
    save(folder)
    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "session", ["../../../etc", "a/b", "..", "", ".", "x" * 5_000, "a\0b", "ü"]
)
def test_a_hostile_session_or_tool_stays_in_the_folder(folder, session):
    path = save(folder, session=session, tool=f"mcp__{session}")
    assert path.parent.parent == Path(folder)
    assert len(path.name) < 100
    assert erase_texts(folder, session) == 1


@pytest.mark.parametrize("depth", ["trimtab", "trimtab/claude-code", "trimtab/claude-code/s1"])
def test_a_link_in_place_of_a_folder_is_not_followed(tmp_path, depth):
    target = tmp_path / "target"
    target.mkdir()
    link = tmp_path / "state" / depth
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    with pytest.raises(OSError, match=r"s1|trimtab|claude-code"):
        save(str(tmp_path / "state" / "trimtab" / "claude-code"))
    assert list(target.iterdir()) == []


def test_a_folder_of_another_user_is_refused(folder, monkeypatch):
    Path(folder).mkdir(parents=True)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionError, match="another user"):
        save(folder)


def test_an_existing_file_or_link_is_never_written_to(folder, tmp_path):
    path = save(folder)
    with pytest.raises(FileExistsError):
        save_text(str(path), "other")
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        save_text(str(path), "other")
    assert not (tmp_path / "elsewhere").exists()


def test_nothing_is_left_of_a_text_if_the_disk_is_full(folder, monkeypatch):
    def write(fd, data):
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(whole_texts.os, "write", write)
    with pytest.raises(OSError, match="No space"):
        save_text(choose_file(folder, "s1", "Bash"), "whole")
    assert count_texts(folder) == (0, 0)


def test_texts_are_deleted_after_seven_days(folder):
    old, new = save(folder, age=KEPT_SECONDS + 1), save(folder, age=KEPT_SECONDS - 60)
    sweep_if_due(folder, NOW)
    assert not old.exists()
    assert new.exists()


def test_an_old_session_loses_its_folder_and_a_young_one_does_not(folder):
    old = save(folder, age=KEPT_SECONDS + 1)
    os.utime(old.parent, (NOW - KEPT_SECONDS - 1, NOW - KEPT_SECONDS - 1))
    young = save(folder, session="s2", age=KEPT_SECONDS + 1)
    os.utime(young.parent, (NOW, NOW))
    sweep_if_due(folder, NOW)
    assert not old.parent.exists()
    assert young.parent.exists()


def test_old_texts_are_looked_for_once_an_hour(folder):
    sweep_if_due(folder, NOW)
    old = save(folder, age=KEPT_SECONDS + 1)
    sweep_if_due(folder, NOW + 3_000)
    assert old.exists()
    sweep_if_due(folder, NOW + 3_700)
    assert not old.exists()


def test_a_clock_that_was_ahead_does_not_stop_the_search(folder):
    sweep_if_due(folder, NOW + 10**8)
    old = save(folder, age=KEPT_SECONDS + 1)
    sweep_if_due(folder, NOW)
    assert not old.exists()


def test_one_session_or_everything_is_erased_and_other_files_stay(folder):
    first, second = save(folder), save(folder, session="s2")
    foreign = second.parent / "notes.md"
    foreign.write_text("mine")
    log_fault(folder, "fault")
    assert erase_texts(folder, "s1") == 1
    assert not first.parent.exists()
    assert erase_texts(folder) == 1
    assert foreign.exists()
    assert count_texts(folder)[0] == 1
    assert read_log(folder) == []
    assert erase_texts(folder, "never") == 0


def test_nothing_is_made_only_to_look(folder):
    assert (erase_texts(folder), count_texts(folder), read_log(folder)) == (0, (0, 0), [])
    assert not Path(folder).exists()


def test_a_link_in_the_folder_is_deleted_and_not_its_target(folder, tmp_path):
    path = save(folder)
    target = tmp_path / "precious.txt"
    target.write_text("mine")
    (path.parent / "link.txt").symlink_to(target)
    (Path(folder) / "s3").symlink_to(tmp_path)
    assert erase_texts(folder) == 2
    assert target.read_text() == "mine"


def test_many_hooks_write_and_sweep_at_once(folder):
    paths = []

    def work(number):
        for index in range(10):
            sweep_if_due(folder, NOW + number * 4_000)
            paths.append(save(folder, f"{number}.{index}", session=f"s{index % 3}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({path.read_text() for path in paths}) == len(paths) == 80


def test_the_log_begins_again_before_it_is_long(folder):
    for number in range(3_000):
        log_fault(folder, f"2026-11-18T20:00:00Z OSError fault {number}")
    assert (Path(folder) / "hook.log").stat().st_size < 70_000
    assert read_log(folder)[-1].endswith("fault 2999")


def test_the_log_is_not_written_through_a_link(folder, tmp_path):
    save(folder)
    (Path(folder) / "hook.log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"hook\.log"):
        log_fault(folder, "fault")
    assert not (tmp_path / "elsewhere").exists()


def test_the_state_folder_is_that_of_the_user(monkeypatch):
    monkeypatch.setenv("HOME", "/home/user")
    assert locate_folder({"XDG_STATE_HOME": "/x"}) == "/x/trimtab/claude-code"
    for wrong in ({}, {"XDG_STATE_HOME": ""}, {"XDG_STATE_HOME": "relative"}):
        assert locate_folder(wrong) == "/home/user/.local/state/trimtab/claude-code"
