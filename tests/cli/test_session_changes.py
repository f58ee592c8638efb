"""`trimtab session`, on files: what leaves a store, comes into one, or is changed in it."""

import fcntl
import json
import os
import re
import threading
from contextlib import contextmanager

import pytest

from tests.cli.long_conversation import HIDDEN, answer, session
from trimtab.cli.store_command import ProgressStatus, show_progress_if_slow
from trimtab_serve.cli.chat.line_input import open_input_history
from trimtab_serve.forgetting.history_file import locate_history_file


@contextmanager
def locked(root, name):
    with (root / name / "lock").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def test_reading_goes_on_while_another_process_writes(own):
    with locked(own, "alpha"):
        for arguments in (
            ["list"],
            ["show", "alpha"],
            ["show", "alpha", "--call", "last"],
            ["why", "alpha", "m2"],
            ["search", "alpha", "symbol_3"],
            ["recall", "alpha", "m2"],
            ["export", "alpha"],
            ["fork", "alpha", "gamma"],
        ):
            answer(*arguments, store=own)
        for arguments in (["delete", "alpha", "--yes"], ["erase", "alpha", "m2", "--yes"]):
            done = session(*arguments, store=own)
            assert done.exit_code == 2
            assert f"trimtab: session 'alpha' is written to by process {os.getpid()}" in done.stderr


def test_export_import_export_is_identical(kept, tmp_path):
    first = answer("export", "alpha", store=kept.root)
    done = session("import", "-", store=tmp_path / "new", stdin=first)
    assert done.exit_code == 0, done.output
    assert f"imported {kept.events} events as session alpha into" in done.stderr
    assert answer("export", "alpha", store=tmp_path / "new") == first
    assert json.loads(first.splitlines()[0]) == {
        "trimtab": "session",
        "version": 1,
        "id": "alpha",
        "events": kept.events,
    }


def test_a_redacted_export_has_no_text_and_the_same_structure(kept, own):
    plain = [json.loads(line) for line in answer("export", "alpha", store=own).splitlines()]
    redacted_export = answer("export", "alpha", "--redact", store=own)
    for secret in (HIDDEN, "symbol", "Question", "careful", "src/file", "clock", "alpha"):
        assert secret not in redacted_export
    redacted = [json.loads(line) for line in redacted_export.splitlines()]
    kept_fields = ("seq", "at", "kind", "op", "sizes", "first", "last", "tokens", "usage", "model")
    for event, original in zip(redacted[1:-1], plain[1:-1], strict=True):
        assert [event.get(name) for name in kept_fields] == [
            original.get(name) for name in kept_fields
        ]

    done = session("import", "-", store=own, stdin=redacted_export)
    assert "as session redacted into" in done.stderr
    shown, original = (
        json.loads(answer("show", name, "--json", store=own)) for name in ("redacted", "alpha")
    )
    structure = ("handle", "role", "state", "tokens")
    assert [[message[name] for name in structure] for message in shown["messages"]] == [
        [message[name] for name in structure] for message in original["messages"]
    ]
    assert shown["calls"] == original["calls"] > 0


def test_an_imported_session_has_the_same_requests(kept, own):
    for seq in list(kept.requests)[::16]:
        assert answer("show", "alpha", "--call", seq, "--json", store=own) == kept.requests[seq]


def test_an_import_may_take_another_name_but_not_one_that_is_taken(kept, tmp_path, own):
    file = tmp_path / "alpha.jsonl"
    assert (
        "as session omega, which was alpha,"
        in session("import", file, "--as", "omega", store=own).stderr
    )
    done = session("import", file, store=own)
    assert done.exit_code == 2
    assert f"session 'alpha' already exists with {kept.events} events" in done.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[:-1], "is truncated: it should have"),
        (lambda lines: [*lines[:-1], lines[-1][:20]], "is truncated: it should have"),
        (lambda lines: lines[:9], "is truncated: it should have"),
        (lambda lines: [*lines[:9], *lines[10:]], "events; export the session again"),
        (lambda lines: [lines[0], lines[1], lines[1], *lines[3:]], "the file was changed"),
        (lambda lines: lines[1:], "this is not an exported session"),
        (lambda lines: [], "this is not an exported session"),
        (
            lambda lines: [lines[0].replace('"version":1', '"version":2'), *lines[1:]],
            "upgrade trimtab",
        ),
        (
            lambda lines: [lines[0].replace('"version":1', '"v":1'), *lines[1:]],
            "the first line of this export has no version",
        ),
    ],
)
def test_a_file_that_is_not_whole_is_refused_and_nothing_is_written(kept, tmp_path, change, said):
    lines = answer("export", "alpha", store=kept.root).splitlines()
    file = tmp_path / "broken.jsonl"
    file.write_text("\n".join(change(lines)), encoding="utf-8")
    done = session("import", file, store=tmp_path / "new")
    assert done.exit_code == 2
    assert said in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_file_that_cannot_be_written_or_read_is_named(kept, tmp_path):
    file = tmp_path / "no" / "file"
    why = "(No such file or directory)"
    done = session("export", "alpha", "-o", file, store=kept.root)
    assert (done.exit_code, done.stderr) == (2, f"trimtab: {file}: cannot be written {why}\n")
    done = session("import", file, store=kept.root)
    assert (done.exit_code, done.stderr) == (2, f"trimtab: {file}: cannot be read {why}\n")


def test_whoever_waits_is_told_what_for(capfd, monkeypatch):
    monkeypatch.setattr("trimtab.cli.store_command.PROGRESS_DELAY_S", 0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    started = threading.Event()
    monkeypatch.setattr(ProgressStatus, "start", lambda told: (Doing_start(told), started.set()))
    with show_progress_if_slow("exporting alpha") as told:
        assert started.wait(10)
        told.show_count(1_000, 5_000, "lines")
    assert "exporting alpha" in capfd.readouterr().err


Doing_start = ProgressStatus.start


def test_a_failed_export_leaves_the_file_as_it_was(kept, tmp_path):
    file = tmp_path / "out"
    file.write_text("before", encoding="utf-8")
    assert session("export", "nobody", "-o", file, store=kept.root).exit_code == 2
    assert file.read_text(encoding="utf-8") == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_a_deletion_is_asked_for_first(own):
    done = session("delete", "alpha", store=own, stdin="n\n")
    assert done.exit_code == 1
    assert "Delete alpha with its" in done.stderr
    assert session("list", store=own).stdout.count("alpha")
    done = session("delete", "alpha", store=own, stdin="y\n")
    assert done.exit_code == 0
    assert re.search(r"deleted alpha: \d+ events", done.stderr)
    assert answer("list", store=own) == "no sessions\n"


def test_an_erased_text_is_gone_and_forks_are_named(own):
    answer("fork", "alpha", "copy", store=own)
    handle = answer("search", "alpha", HIDDEN, store=own).partition(":")[0]
    done = session("erase", "alpha", handle, "--reason", "a user asked", store=own, stdin="y\n")
    assert done.exit_code == 0, done.output
    assert f"erased {handle}" in done.stderr
    assert "not erased in 1 fork (copy), because forks keep their own copies" in done.stderr
    held = b"".join(path.read_bytes() for path in (own / "alpha").rglob("*") if path.is_file())
    assert HIDDEN.encode() not in held
    told = answer("why", "alpha", handle, store=own)
    assert told.startswith(f"{handle} is not in the context: its text was erased")
    assert "reason: a user asked" in told


def test_a_call_that_cannot_be_shown_any_more_says_so(kept, own):
    handle = answer("search", "alpha", HIDDEN, store=own).partition(":")[0]
    sent = next(seq for seq, made in kept.requests.items() if HIDDEN in made)
    answer("erase", "alpha", handle, "--yes", store=own)
    done = session("show", "alpha", "--call", sent, "--json", store=own)
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"trimtab: the request of call {sent} cannot be shown as it was sent" in done.stderr


def test_a_fork_shares_the_past_up_to_a_position(kept, own):
    done = session("fork", "alpha", "gamma", "--at", 20, store=own)
    assert f"forked alpha at event 20 of {kept.events} as gamma" in done.stderr
    (row,) = json.loads(answer("list", "--json", "--after", "alpha", store=own))["sessions"]
    assert (row["session"], row["position"], row["parent"]) == ("gamma", 21, "alpha")
    assert session("fork", "alpha", "gamma", store=own).exit_code == 2
    done = session("fork", "alpha", "delta", "--at", 9_999, store=own)
    assert done.exit_code == 2
    assert f"use --at 1 to {kept.events}" in done.stderr


def test_an_export_is_for_its_owner_alone(kept, tmp_path):
    file = tmp_path / "out"
    file.write_text("before", encoding="utf-8")
    file.chmod(0o644)
    answer("export", "alpha", "-o", file, store=kept.root)
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_is_erased_or_deleted_leaves_the_lines_that_were_typed(own):
    history = open_input_history({"XDG_STATE_HOME": f"{own}-state"})
    for line in ("Question 0: where is symbol_0?", "Question 1: where is symbol_1?", "another"):
        history.append_string(line)
    path = locate_history_file({"XDG_STATE_HOME": f"{own}-state"})
    handle = answer("search", "alpha", "Question 0", store=own).partition(":")[0]
    answer("erase", "alpha", handle, "--yes", store=own)
    assert [b"symbol_0" in path.read_bytes(), b"symbol_1" in path.read_bytes()] == [False, True]
    answer("delete", "alpha", "--yes", store=own)
    assert b"symbol_1" not in path.read_bytes()
    assert b"+another" in path.read_bytes()


def test_a_session_that_a_chat_has_open_says_what_to_type_there(own):
    with locked(own, "alpha"):
        done = session("erase", "alpha", "m2", "--yes", store=own)
    assert "If that process is a chat, type there: /erase m2" in " ".join(done.stderr.split())
