"""The command line as a process of its own that need not import everything anew.

A process that has imported the command line and the SDKs forks for each run: it has a pid, an
environment, a working folder, standard streams and an exit status like any other. What a start from
nothing does besides (`sitecustomize`, PYTHONPATH, the entry point) is for tests that start one.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess

IMPORTED = [
    "anthropic",
    "openai",
    "trimtab.agent.tools.tools_from_config",
    "trimtab.cli.chat.repl",
    "trimtab.cli.chat.single_shot",
    "trimtab.cli.chat.startup",
    "trimtab.cli.chat.stdin",
    "trimtab.cli.doctor.checks",
    "trimtab.providers.anthropic",
    "trimtab.providers.openai",
]
TIMEOUT_S = 120

_fork = multiprocessing.get_context("forkserver")


def trimtab(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], input: str = ""
) -> CompletedProcess[str]:
    """Run `trimtab` with these arguments to its end, with this text on its standard input."""
    _fork.set_forkserver_preload(IMPORTED)
    with tempfile.TemporaryDirectory() as held:
        streams = [Path(held) / name for name in ("in", "out", "err")]
        streams[0].write_text(input, encoding="utf-8")
        process = _fork.Process(target=_run, args=(list(arguments), cwd, dict(env), streams))
        process.start()
        process.join(TIMEOUT_S)
        if process.exitcode is None:
            process.kill()
            raise TimeoutError(f"trimtab {' '.join(arguments)}: still running after {TIMEOUT_S} s")
        out, err = (each.read_text(encoding="utf-8") for each in streams[1:])
        return CompletedProcess(["trimtab", *arguments], process.exitcode, out, err)


def _run(arguments: list[str], cwd: Path, env: dict[str, str], streams: list[Path]) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for number, path in enumerate(streams):
        opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - not a path
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.argv = ["trimtab", *arguments]
    from trimtab.cli import main

    main()
