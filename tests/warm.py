"""Programs of the tests as processes of their own that need not import everything anew.

A process that has imported the command line and the SDKs forks for each of them: it has a pid, an
environment, a working folder, standard streams and an exit status like any other, and it is a child
of the tests. What a start from nothing does besides (`sitecustomize`, the entry point, options of
the interpreter, `/proc/PID/cmdline` and `environ`) is for tests that start one with `subprocess`.
"""

from __future__ import annotations

import atexit
import ctypes
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess
from typing import TYPE_CHECKING, Any, AnyStr
from unittest import mock

if TYPE_CHECKING:
    from trimtab.testing.server import RemoteSimulator

TIMEOUT_S = 120
TRIMTAB = (sys.executable, "-m", "trimtab.cli")
SERVER = Path(__file__).with_name("warm_server.py")
PASSED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "TMPDIR")
"""What programs are told of the environment: no key is in it."""
PR_SET_CHILD_SUBREAPER = 36

_cold = subprocess.Popen
_lock = threading.Lock()
_connection: socket.socket | None = None


class Popen(subprocess.Popen[AnyStr]):
    """A program of this Python (`-m`, `-c` or a file), forked; any other is started as ever."""

    def _execute_child(self, *given: Any) -> None:
        cold = super()._execute_child  # pyright: ignore[reportAttributeAccessIssue]
        asked = inspect.signature(cold).bind(*given).arguments
        if not _forks(asked):
            cold(*given)
            return
        sys.audit("subprocess.Popen", sys.executable, asked["args"], asked["cwd"], asked["env"])
        pipes = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        files = {number: number if pipe == -1 else pipe for number, pipe in enumerate(pipes)}
        files |= {number: number for number in asked["pass_fds"]}
        env = os.environ if asked["env"] is None else asked["env"]
        program = {
            "command": [os.fspath(word) for word in asked["args"][1:]],
            "cwd": os.fspath(asked["cwd"] or Path.cwd()),
            "env": dict(env),
            "new_session": asked["start_new_session"],
            "numbers": [*files],
        }
        self.pid = _fork(json.dumps(program).encode(), [*files.values()])
        self._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[name] for name in ends))  # pyright: ignore[reportAttributeAccessIssue]


def pass_environment() -> dict[str, str]:
    return {name: os.environ[name] for name in PASSED if name in os.environ}


def run(
    command: Sequence[str], *, input: str | None = None, timeout: float = TIMEOUT_S, **options: Any
) -> CompletedProcess[str]:
    """Run a program to its end, with this text on its standard input."""
    streams = {"stdin": DEVNULL if input is None else PIPE, "stdout": PIPE, "stderr": PIPE}
    with Popen(command, encoding="utf-8", **streams, **options) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    return CompletedProcess(command, process.returncode, out, err)


def trimtab(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], input: str = ""
) -> CompletedProcess[str]:
    """Run `trimtab` with these arguments to its end, with this text on its standard input."""
    return run([*TRIMTAB, *arguments], cwd=cwd, env=env, input=input)


@contextmanager
def starts() -> Generator[None]:
    """Whatever starts a program in this block, the product and asyncio too, forks it."""
    with mock.patch.object(subprocess, "Popen", Popen):
        yield


@contextmanager
def spawn_simulated_provider(**options: Any) -> Generator[RemoteSimulator]:
    """The product's function of this name, which starts nothing from nothing."""
    from trimtab.testing.server import spawn_simulated_provider as spawn

    with ExitStack() as held:
        with starts():
            simulator = held.enter_context(spawn(**options))
        yield simulator


def _forks(asked: Mapping[str, Any]) -> bool:
    """Whether a program can be forked as it is asked for."""
    args = asked["args"]
    if sys.platform != "linux" or isinstance(args, (str, bytes, os.PathLike)):
        return False
    plain = ("executable", "preexec_fn", "shell", "gid", "gids", "uid")
    if any(asked[name] for name in plain) or asked["umask"] != -1 or asked["process_group"] != -1:
        return False
    program, how = map(os.fspath, [*args, ""][:2])
    return program == sys.executable and (how in ("-m", "-c", "-W") or how.endswith(".py"))


def _fork(program: bytes, files: list[int]) -> int:
    """Ask for a program; its process id."""
    with _lock:
        connection = _connected()
        # Who adopts the orphan that the program is: for this moment, and not for those of programs.
        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            socket.send_fds(connection, [program], files)
            pid = connection.recv(64)
            connection.recv(64)
        finally:
            prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    assert pid, "the process that forks has ended"
    return int(pid)


def _connected() -> socket.socket:
    global _connection
    if _connection is None:
        _connection, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        number = other.fileno()
        server = _cold(
            [sys.executable, str(SERVER), str(number)],
            cwd=SERVER.parents[1],
            env=pass_environment(),
            stdin=DEVNULL,
            stdout=DEVNULL,
            pass_fds=[number],
        )
        other.close()
        atexit.register(_close, _connection, server)
    return _connection


def _close(connection: socket.socket, server: subprocess.Popen[bytes]) -> None:
    connection.close()
    server.wait(TIMEOUT_S)
