"""The command line as a process of its own, with an environment of its own."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests import warm
from tests.warm import TRIMTAB as TRIMTAB


@dataclass(frozen=True, kw_only=True)
class Done:
    code: int
    out: str
    err: str


def environ(home: Path | None = None, **more: str) -> dict[str, str]:
    """No keys, no proxies, no colours: what the test says and what Python needs."""
    defaults = {"HOME": str(home or Path.cwd()), "LANG": "C.UTF-8", "PYTHONWARNINGS": "error"}
    return {**warm.pass_environment(), **defaults, **more}


def run(*command: str, cwd: Path | None = None, **more: str) -> Done:
    """Run it to its end, started from nothing."""
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=environ(cwd, **more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        out, err = process.communicate(timeout=120)
    return Done(code=process.returncode, out=out.decode(), err=err.decode())


def trimtab(*arguments: str, cwd: Path | None = None, **more: str) -> Done:
    """Run the command line to its end, forked."""
    run = warm.run([*TRIMTAB, *arguments], cwd=cwd, env=environ(cwd, **more))
    return Done(code=run.returncode, out=run.stdout, err=run.stderr)
