"""A process that has imported what programs of the tests import, and forks for each of them.

`tests/warm.py` starts it and asks it, over a socket. It imports, reads the catalog of models, and
runs nothing else: no thread, no event loop and no connection of it can be found in a program.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import threading
import time
import types
import warnings
from pathlib import Path
from typing import Any

IMPORTED = (
    "anthropic",
    "anthropic.resources.messages",
    "anyio._backends._asyncio",
    "httpcore2",
    "mcp.server.mcpserver",
    "openai",
    "openai.resources.chat.completions.completions",
    "tomllib",
    "trimtab.dialects.anthropic.codec",
    "trimtab.dialects.openai_chat.codec",
    "trimtab.dialects.openai_responses.codec",
    "trimtab.observe.otel",
    "truststore",
    "trimtab_serve.agent.process_secrecy_linux",
    "trimtab_serve.agent.tools.tools_from_config",
    "trimtab.cli.app",
    "trimtab_serve.cli.chat.repl",
    "trimtab_serve.cli.chat.single_shot",
    "trimtab_serve.cli.chat.startup",
    "trimtab_serve.cli.chat.stdin",
    "trimtab_serve.cli.doctor.checks",
    "trimtab_serve.process.server",
    "trimtab.providers.anthropic",
    "trimtab.providers.openai",
    "trimtab_serve.process.worker_pool",
    "trimtab_serve.queue.postgres.queue",
    "trimtab.stores.postgres",
    "trimtab.testing.server.http_app",
)
"""What takes long to import and is needed by many programs."""
MOST_BYTES = 1 << 20
MOST_FILES = 16
FIRST_FREE = 1_000
"""Above every number that a file of a program has."""

STREAMS = (
    (0, "r", -1, "surrogateescape"),
    (1, "w", -1, "surrogateescape"),
    (2, "w", 1, "backslashreplace"),
)
"""Number, mode, buffer and what becomes of bytes that are not UTF-8."""


def serve(connection: socket.socket) -> None:
    """Start the programs that are asked for, until the other end is closed."""
    # A Ctrl-C at the terminal is for the tests; this process ends with them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in IMPORTED:
        importlib.import_module(name)
    importlib.import_module("trimtab.models.catalog").find_model_info("gpt-5")
    assert threading.active_count() == 1, "a thread would be missing from each program"
    gc.collect()
    gc.freeze()
    while True:
        asked, files, _, _ = socket.recv_fds(connection, MOST_BYTES, MOST_FILES)
        if not asked:
            return
        between = os.fork()
        if not between:
            # An orphan is handed to the process that runs the tests, which so can wait for it.
            between = os.getpid()
            pid = os.fork()
            if pid:
                connection.send(str(pid).encode())
                os._exit(0)
            while os.getppid() == between:
                time.sleep(0.001)
            _become(json.loads(asked), files)
        for each in files:
            os.close(each)
        os.waitpid(between, 0)
        connection.send(b"it is yours")


def _become(program: dict[str, Any], files: list[int]) -> None:
    """Be this program, to its end."""
    # Whatever runs the tests may have been told to ignore a signal, and that is inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    status = 1
    try:
        _take(program, files)
        _run(program["command"])
        status = 0
    except SystemExit as end:
        status = _status(end.code)
    except KeyboardInterrupt:
        status = -signal.SIGINT
    except BaseException as error:  # noqa: BLE001 - an interpreter shows it and ends
        sys.excepthook(type(error), error, error.__traceback__)
    _end(status)


def _take(program: dict[str, Any], files: list[int]) -> None:
    """Its files, folder, environment and warnings, and nothing else."""
    numbers: list[int] = program["numbers"]
    away = [fcntl.fcntl(each, fcntl.F_DUPFD, FIRST_FREE) for each in files]
    os.closerange(0, FIRST_FREE)
    for number, each in zip(numbers, away, strict=True):
        os.dup2(each, number)
    os.closerange(FIRST_FREE, FIRST_FREE + 2 * MOST_FILES)
    if program["new_session"]:
        os.setsid()
    os.chdir(program["cwd"])
    os.environ.clear()
    os.environ.update(program["env"])
    time.tzset()
    tempfile.tempdir = None
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, buffering, "utf-8", errors, closefd=False)  # noqa: SIM115 - not a path
        for number, mode, buffering, errors in STREAMS
    )
    for action in filter(None, os.environ.get("PYTHONWARNINGS", "").split(",")):
        warnings.simplefilter(action)  # pyright: ignore[reportArgumentType]


def _run(command: list[str]) -> None:
    how, *words = command
    if how == "-W":
        warnings.simplefilter(words[0])  # pyright: ignore[reportArgumentType]
        how, *words = words[1:]
    found = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if how == "-m":
        name, *arguments = words
        sys.argv = [name, *arguments]
        sys.path[:0] = [str(Path.cwd()), *found]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    elif how == "-c":
        code, *arguments = words
        sys.argv = ["-c", *arguments]
        sys.path[:0] = ["", *found]
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        exec(compile(code, "<string>", "exec"), main.__dict__)  # noqa: S102 - a test's own code
    else:
        sys.argv = [how, *words]
        sys.path[:0] = [str(Path(how).parent), *found]
        runpy.run_path(how, run_name="__main__")


def _status(code: Any) -> int:
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


def _end(status: int) -> None:
    """End as an interpreter does, except that it does not take apart what it has not used."""
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
    atexit._run_exitfuncs()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            status = status or 120
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    # The folder of this file is not a place that programs import from.
    del sys.path[0]
    serve(socket.socket(fileno=int(sys.argv[1])))
