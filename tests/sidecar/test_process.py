"""`trimtab sidecar` and `trimtab fit` as programs start them."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.sidecar.calls import SMALL, chat
from trimtab.cli.app import app
from trimtab.sidecar import stdio
from trimtab.sidecar.sidecar import Sidecar
from trimtab.sidecar.stdio import serve_stdio

TURNS = 12
COMMAND = [sys.executable, "-m", "trimtab.cli"]
WITHOUT_TYPER = "import sys; sys.modules['typer'] = None; from trimtab.cli import main; main()"
WITHOUT_SOCKETS = (
    "import os, sys; refused = ('socket.bind', 'socket.connect');"
    "sys.addaudithook(lambda event, _: event in refused and os._exit(3));"
    "from trimtab.cli import main; main()"
)


@pytest.mark.process
def test_a_killed_sidecar_goes_on_from_its_store(tmp_path: Path):
    command = [*COMMAND, "sidecar", "--store", str(tmp_path)]
    fields = {"op": "fit", "conversation": "a", "body": chat(TURNS), "options": SMALL}
    line = json.dumps(fields).encode() + b"\n"
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(line)
        process.stdin.flush()
        sent = json.loads(process.stdout.readline())["body"]["messages"]
        process.kill()
    ended = subprocess.run(command, input=line, stdout=subprocess.PIPE, check=True)
    again = json.loads(ended.stdout)
    assert (again["body"]["messages"], again["hidden"]) == (sent, [])


@pytest.mark.process
@pytest.mark.parametrize("program", [WITHOUT_TYPER, WITHOUT_SOCKETS])
def test_a_program_asks_over_standard_input_and_nobody_else(program: str, tmp_path: Path):
    calls = [
        {"id": "x", "op": "fit", "conversation": "a", "body": chat(TURNS), "options": SMALL},
        {"id": 2, "op": "health"},
        {"id": 3, "op": "none"},
    ]
    lines = "".join(json.dumps(each) + "\n" for each in calls) + "nonsense\n"
    command = [sys.executable, "-c", program, "sidecar", "--store", str(tmp_path)]
    ended = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    answers = {each["id"]: each for each in map(json.loads, ended.stdout.splitlines())}
    assert answers["x"]["changed"]
    assert [answers[name]["status"] for name in ("x", 2, 3, None)] == [200, 200, 404, 400]


def test_a_body_goes_through_a_pipe(tmp_path: Path):
    def fit_body(text: str, *options: str) -> Result:
        return CliRunner().invoke(app, ["fit", "--window", "8000", *options], input=text)

    odd = ' {"model": "gpt-4o",\n "messages": [{"role": "user", "content": "hi"}], "x": 1e400}\n'
    same = fit_body(odd)
    assert (same.exit_code, same.stdout) == (0, odd)
    options = ("--store", str(tmp_path), "--conversation", "c")
    first = fit_body(json.dumps(chat(TURNS)), *options)
    assert len(first.stdout) < len(json.dumps(chat(TURNS)))
    assert "mask" in first.stderr
    assert fit_body(json.dumps(chat(TURNS)), *options).stdout == first.stdout
    too_small = CliRunner().invoke(app, ["fit", "--window", "100"], input=json.dumps(chat(TURNS)))
    assert (too_small.exit_code, too_small.stdout) == (1, json.dumps(chat(TURNS)))
    broken = fit_body('{"model": "gpt-4o",\n "messages": [}')
    assert (broken.exit_code, "not JSON" in broken.stderr) == (2, True)
    assert "line 2, column 15" in broken.stderr


@pytest.mark.process
def test_a_program_that_no_longer_reads_ends_the_process_without_noise():
    with subprocess.Popen(
        [*COMMAND, "sidecar"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        process.stdin.write(b'{"op": "health"}\n')
        process.stdin.flush()
        assert process.wait(timeout=60) == 1
        assert process.stderr.read() == b""


@pytest.mark.process
def test_an_interrupt_in_the_terminal_of_the_agent_does_not_end_it():
    with subprocess.Popen(
        [*COMMAND, "sidecar"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        for _ in range(2):
            process.stdin.write(b'{"op": "health"}\n')
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["status"] == 200
            process.send_signal(signal.SIGINT)
        process.stdin.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == b""


@pytest.mark.process
def test_whoever_types_the_command_reads_that_it_waits():
    terminal, own_end = pty.openpty()
    with (
        os.fdopen(terminal, "wb", buffering=0) as keys,
        os.fdopen(own_end) as typed,
        subprocess.Popen([*COMMAND, "sidecar"], stdin=typed, stderr=subprocess.PIPE) as process,
    ):
        assert process.stderr
        assert b"waiting for calls" in process.stderr.readline()
        keys.write(b"\x04")
        assert process.wait(timeout=60) == 0


class BrokenInput(io.BytesIO):
    """A terminal that is gone after the first line."""

    def readline(self, *args: Any) -> bytes:
        if self.tell():
            raise OSError(errno.EIO, "Input/output error")
        return super().readline(*args)


def test_an_input_that_breaks_is_an_input_that_ends(caplog: pytest.LogCaptureFixture):
    answers, sidecar = io.BytesIO(), Sidecar()
    calls = BrokenInput(b'{"op": "health"}\n{"op": "health"}\n')
    sidecar.run(asyncio.wait_for(serve_stdio(sidecar, calls, answers), timeout=60))
    assert len(answers.getvalue().splitlines()) == 1
    assert "Input/output error" in caplog.text


@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_line_that_is_too_long_is_refused_and_the_next_one_is_read(
    monkeypatch: pytest.MonkeyPatch, end: bytes
):
    monkeypatch.setattr(stdio, "MAX_LINE_BYTES", 100)
    answers = io.BytesIO()
    calls = io.BytesIO(b"a" * 1_000 + b"\n" + b'{"op": "health", "id": 1}\n\xff' + end)
    sidecar = Sidecar()
    sidecar.run(serve_stdio(sidecar, calls, answers))
    told = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert sorted(each["status"] for each in told) == [200, 400, 413]


def test_more_calls_than_are_answered_at_a_time_wait(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stdio, "MAX_OPEN_CALLS", 2)
    answers = io.BytesIO()
    calls = b"".join(b'{"op": "health", "id": %d}\n' % number for number in range(9))
    sidecar = Sidecar()
    sidecar.run(serve_stdio(sidecar, io.BytesIO(calls), answers))
    assert sorted(json.loads(line)["id"] for line in answers.getvalue().splitlines()) == [*range(9)]
