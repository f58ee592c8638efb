"""The lines that were typed into chats: kept for the next one, and forgotten with a message."""

import asyncio
import threading

import pytest
from prompt_toolkit.history import FileHistory

from trimtab.engine.log.redaction import redactor
from trimtab_serve.cli.chat.line_input import ErasableFileHistory, KeyboardInput, open_input_history
from trimtab_serve.forgetting.history_file import (
    locate_history_file,
    lock_history_file,
    remove_history_lines,
)

LINES = ["I am Ada.", "two\nrows", "I am Ada. Really.", "+ a plus\n# a hash\n\nend", "last – ✓"]


@pytest.fixture
def environ(tmp_path):
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def path(environ):
    """A file with lines, as prompt_toolkit writes it."""
    history = open_input_history(environ)
    for line in LINES:
        history.append_string(line)
    return locate_history_file(environ)


def kept(path):
    """What the next chat offers, the oldest first."""
    return [*FileHistory(str(path)).load_history_strings()][::-1]


def test_the_file_is_for_its_owner_alone(path):
    assert kept(path) == LINES
    assert [one.stat().st_mode & 0o777 for one in (path, path.parent)] == [0o600, 0o700]


@pytest.mark.parametrize("line", LINES)
def test_a_line_that_is_erased_leaves_the_file_and_all_others_stay(path, line):
    before = path.read_bytes()
    assert remove_history_lines(path, [f" {line}\n", "nobody typed this"]) == 1
    assert kept(path) == [one for one in LINES if one != line]
    assert path.stat().st_mode & 0o777 == 0o600
    gone = "".join(f"+{row}\n" for row in line.split("\n")).encode()
    assert path.read_bytes().count(b"# 20") == before.count(b"# 20") - 1
    assert len(path.read_bytes()) < len(before) - len(gone)


def test_the_same_line_goes_as_often_as_it_was_typed(path):
    history = FileHistory(str(path))
    for line in ("I am Ada.", "between", "I am Ada."):
        history.append_string(line)
    assert remove_history_lines(path, ["I am Ada."]) == 3
    assert kept(path) == [*LINES[1:], "between"]


def test_where_nothing_is_to_go_nothing_is_written(path):
    before = path.stat()
    assert remove_history_lines(path, ["nobody typed this"]) == remove_history_lines(path, []) == 0
    assert path.stat().st_ino == before.st_ino
    assert remove_history_lines(path.with_name("none"), ["I am Ada."]) == 0
    assert not path.with_name("none").exists()


def test_a_line_that_a_crash_cut_off_goes_as_well(path):
    with path.open("ab") as file:
        file.write("\n# now\n+my \udc00secret".encode("utf-8", "replace"))
    assert remove_history_lines(path, ["my \udc00secret"]) == 1
    assert b"secret" not in path.read_bytes()
    assert kept(path) == LINES


def test_what_a_crash_left_of_an_earlier_erasure_is_gone(path):
    left = path.with_name("history.new")
    left.write_text("I am Ada.")
    remove_history_lines(path, ["I am Ada."])
    assert [*path.parent.iterdir()] == [path]


def test_a_chat_that_runs_offers_an_erased_line_no_more(path, environ):
    async def offered(history):
        return [line async for line in history.load()]

    history = open_input_history(environ)
    assert isinstance(history, ErasableFileHistory)
    assert "two\nrows" in asyncio.run(offered(history))
    KeyboardInput((), history).forget_lines(["two\nrows"])
    assert "two\nrows" not in asyncio.run(offered(history))
    assert "two\nrows" not in history.get_strings()
    assert "two\nrows" not in kept(path)


def test_a_line_that_is_typed_meanwhile_is_not_lost(path):
    own, done = ErasableFileHistory(path), threading.Event()

    def type_more():
        own.store_string("typed meanwhile")
        done.set()

    with lock_history_file(path):
        thread = threading.Thread(target=type_more)
        thread.start()
        whole = path.read_bytes()
        # As an erasure does: what is written to the old file now would be lost.
        assert not done.is_set()
        _copy(path, whole).replace(path)
    thread.join(10)
    assert kept(path)[-1] == "typed meanwhile"


def _copy(path, data):
    other = path.with_name("other")
    other.write_bytes(data)
    return other


def test_what_is_redacted_in_messages_is_not_kept_here_either(environ):
    history = open_input_history(environ, redactor("email"))
    history.append_string("write to ada@example.com")
    assert kept(locate_history_file(environ)) == ["write to [redacted: email]"]
    assert history.get_strings() == ["write to [redacted: email]"]
