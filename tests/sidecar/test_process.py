"""`trimtab sidecar` and `trimtab fit` as programs start them."""

from __future__ import annotations

import asyncio
import errno
import http.client
import io
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.sidecar.doors import SMALL, chat
from trimtab.cli.app import app
from trimtab.sidecar import stdio
from trimtab.sidecar.sidecar import Sidecar
from trimtab.sidecar.stdio import serve_stdio

TURNS = 12
COMMAND = [sys.executable, "-m", "trimtab.cli"]
WITHOUT_TYPER = "import sys; sys.modules['typer'] = None; from trimtab.cli import main; main()"


@contextmanager
def running(folder: Path, *options: str) -> Generator[subprocess.Popen[str]]:
    """Start a sidecar, and wait until it listens."""
    process = subprocess.Popen(
        [*COMMAND, "sidecar", "--state", str(folder), *options], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert "listens" in process.stderr.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def call(folder: Path, body: Any, *, conversation: str = "a") -> dict[str, Any]:
    """Fit a body as a client that finds the sidecar by its file."""
    place = json.loads((folder / "sidecar.json").read_text())
    if place["socket"]:
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(place["socket"])
    else:
        connection = http.client.HTTPConnection(place["url"].removeprefix("http://"))
    headers = {"Authorization": f"Bearer {place['token']}", "Content-Type": "application/json"}
    fields = {"conversation": conversation, "body": body, "options": SMALL}
    connection.request("POST", "/v1/fit", json.dumps(fields), headers)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


@pytest.mark.process
def test_a_killed_sidecar_goes_on_from_its_store(tmp_path: Path):
    store = str(tmp_path / "store")
    with running(tmp_path / "state", "--store", store) as process:
        sent = call(tmp_path / "state", chat(TURNS))["body"]["messages"]
        process.send_signal(signal.SIGKILL)
        process.wait()
    with running(tmp_path / "state", "--store", store) as process:
        again = call(tmp_path / "state", chat(TURNS))
        assert (again["body"]["messages"], again["hidden"]) == (sent, [])
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    place = json.loads((tmp_path / "state" / "sidecar.json").read_text())
    assert (place["url"], place["pid"]) == ("", 0)


@pytest.mark.process
def test_one_folder_has_one_sidecar_and_a_socket_is_no_port(tmp_path: Path):
    with running(tmp_path, "--socket"):
        assert call(tmp_path, chat(1))["managed"]
        path = tmp_path / "sidecar.sock"
        assert path.stat().st_mode & 0o777 == 0o600
        second = subprocess.run(
            [*COMMAND, "sidecar", "--state", str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert second.returncode == 2
        assert "already runs" in second.stderr


@pytest.mark.process
@pytest.mark.parametrize(
    "program",
    [
        pytest.param([*COMMAND], marks=pytest.mark.soak),
        [sys.executable, "-c", WITHOUT_TYPER],
    ],
)
def test_a_program_asks_over_standard_input(program: list[str], tmp_path: Path):
    calls = [
        {"id": "x", "op": "fit", "conversation": "a", "body": chat(TURNS), "options": SMALL},
        {"id": 2, "op": "health"},
        {"id": 3, "op": "none"},
    ]
    lines = "".join(json.dumps(each) + "\n" for each in calls) + "nonsense\n"
    command = [*program, "sidecar", "--stdio", "--store", str(tmp_path)]
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
        [*COMMAND, "sidecar", "--stdio"],
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
        [*COMMAND, "sidecar", "--stdio"],
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
