"""The hook as Claude Code starts it: JSON on standard input, JSON or nothing on standard output."""

import io
import json
import shlex
import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import pytest

from trimtab.integrations.claude_code.__main__ import answer_event, main
from trimtab.integrations.claude_code.settings import build_hook_command
from trimtab.integrations.claude_code.whole_texts import read_log

LONG = "\n".join(f"row {number}: value {number * 37 % 1009}" for number in range(1_500))


def event(stdout=LONG, **more):
    response = {"stdout": stdout, "stderr": "", "isImage": False}
    fields = {"hook_event_name": "PostToolUse", "session_id": "s1", "tool_name": "Bash"}
    return {**fields, "tool_input": {"command": "make"}, "tool_response": response, **more}


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "trimtab" / "claude-code")


def run(folder, raw, **options):
    return subprocess.run(
        shlex.split(build_hook_command(folder, 1_000)),
        input=raw,
        capture_output=True,
        check=False,
        timeout=120,
        **options,
    )


@pytest.mark.process
def test_an_output_is_replaced_and_the_whole_text_is_in_the_file_it_names(folder):
    process = run(folder, json.dumps(event()).encode())
    assert (process.returncode, process.stderr) == (0, b"")
    reply = json.loads(process.stdout)["hookSpecificOutput"]
    assert reply["hookEventName"] == "PostToolUse"
    header = reply["updatedToolOutput"]["stdout"].partition("\n")[0]
    path = Path(header.rpartition("the whole text is in ")[2].removesuffix("]"))
    assert path.read_text() == LONG
    assert read_log(folder) == []


@pytest.mark.process
def test_modules_in_the_users_project_are_not_imported(folder, tmp_path):
    for name in ("trimtab.py", "json.py", "typing.py"):
        (tmp_path / name).write_text("raise SystemExit('imported')")
    process = run(folder, json.dumps(event()).encode(), cwd=tmp_path)
    assert json.loads(process.stdout)
    assert process.stderr == b""


@pytest.mark.process
def test_a_small_output_takes_little_cpu_and_imports_nothing_that_cuts(folder):
    raw = json.dumps(event("4 passed\n")).encode()
    spent = []
    for _ in range(5):
        before = getrusage(RUSAGE_CHILDREN)
        assert run(folder, raw).stdout == b""
        after = getrusage(RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) <= 0.1
    assert not Path(folder).exists()
    command = [sys.executable, "-X", "importtime", "-m", "trimtab.integrations.claude_code"]
    process = subprocess.run(command, input=raw, capture_output=True, check=True)
    modules = process.stderr.decode().replace(" ", "")
    assert "trimtab.engine" not in modules
    for name in ("asyncio", "dataclasses", "pathlib", "logging", "typer"):
        assert f"|{name}\n" not in modules


@pytest.mark.parametrize(
    ("raw", "is_logged"),
    [
        (b"", True),
        (b"{", True),
        (b"\xff\xfe{}", True),
        (b"[" * 200_000, True),
        (b"7", False),
        (b"null", False),
        (b"{}", False),
        (json.dumps(event(hook_event_name="PostToolUseFailure")).encode(), False),
        (json.dumps(event(tool_name=7)).encode(), False),
        (json.dumps(event(tool_input="x", tool_response=[[]])).encode(), False),
    ],
)
def test_an_event_that_is_not_understood_changes_nothing(
    folder, raw, is_logged, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "stdin", type("", (), {"buffer": io.BytesIO(raw)}))
    main(["--folder", folder])
    assert capsys.readouterr() == ("", "")
    assert len(read_log(folder)) == is_logged


def test_a_fault_is_logged_without_the_output(folder, monkeypatch, capsys):
    Path(folder).parent.mkdir()
    Path(folder).write_text("a file in place of the folder")
    raw = json.dumps(event("secret\n" + LONG)).encode()
    monkeypatch.setattr(sys, "stdin", type("", (), {"buffer": io.BytesIO(raw)}))
    main(["--folder", folder])
    assert capsys.readouterr() == ("", "")
    Path(folder).unlink()
    monkeypatch.setattr(sys, "stdin", type("", (), {"buffer": io.BytesIO(b"secret")}))
    main(["--folder", folder])
    (line,) = read_log(folder)
    assert line.endswith("JSONDecodeError")
    session = Path(folder, "s1")
    session.write_text("a file in place of the folder of a session")
    monkeypatch.setattr(sys, "stdin", type("", (), {"buffer": io.BytesIO(raw)}))
    main(["--folder", folder])
    line = read_log(folder)[-1]
    assert line.endswith(
        f"NotADirectoryError {session} is a file or a link, not a folder; move it away"
    )


@pytest.mark.parametrize("arguments", [["--max-tokens"], ["--max-tokens", "many"]])
def test_wrong_arguments_change_nothing(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    main(arguments)
    assert capsys.readouterr() == ("", "")
    assert len(read_log(str(tmp_path / "trimtab" / "claude-code"))) == 1


def test_a_half_of_a_surrogate_pair_is_shown_and_stored(folder):
    raw = json.dumps(event("\ud800\n" + LONG)).encode()
    shown = json.loads(answer_event(raw, folder, 1_000))["hookSpecificOutput"]["updatedToolOutput"]
    assert "\ud800" in shown["stdout"]
    (path,) = Path(folder, "s1").iterdir()
    assert path.read_text() == "\ufffd\n" + LONG


@pytest.mark.process
def test_many_hooks_at_once_store_each_of_their_texts(folder):
    command = shlex.split(build_hook_command(folder, 1_000))
    raw = json.dumps(event()).encode()
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    processes = [subprocess.Popen(command, **streams) for _ in range(6)]
    replies = [process.communicate(raw, timeout=120)[0] for process in processes]
    assert all(map(json.loads, replies))
    assert len(list(Path(folder, "s1").iterdir())) == 6


@pytest.mark.soak
@pytest.mark.process
def test_fifty_megabytes_end_within_the_time_limit(folder):
    lines = LONG + "\n"
    text = lines * (50_000_000 // len(lines))
    process = run(folder, json.dumps(event(text)).encode())
    assert len(process.stdout) < 20_000
    (path,) = Path(folder, "s1").iterdir()
    assert path.stat().st_size == len(text)
