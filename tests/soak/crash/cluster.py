"""A PostgreSQL server of one's own, with its stock settings, to be stopped at will."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

USER = "postgres"


class Cluster:
    """A server in a folder, on a free port."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self._data = folder / "data"
        self._programs = programs
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._run("initdb", "-A", "trust", "-U", USER, "-D", str(self._data))

    @property
    def conninfo(self) -> str:
        return f"host=127.0.0.1 port={self.port} user={USER} dbname=postgres"

    @property
    def log(self) -> Path:
        """What the server has logged."""
        return self._folder / "log"

    @property
    def runs(self) -> bool:
        return (self._data / "postmaster.pid").exists()

    @property
    def postmaster_pid(self) -> int:
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def start(self) -> None:
        settings = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self._folder}"
        log = ("-l", str(self.log))
        self._run("pg_ctl", "start", "-w", "-D", str(self._data), *log, "-o", settings)

    def stop(self) -> None:
        """As a crash would: nothing is finished or written out."""
        self._run("pg_ctl", "stop", "-m", "immediate", "-D", str(self._data))

    def _run(self, program: str, *arguments: str) -> None:
        # The server refuses to run as root.
        other = ["runuser", "-u", USER, "--"] if os.geteuid() == 0 else []
        command = [*other, str(self._programs / program), *arguments]
        nowhere = subprocess.DEVNULL
        subprocess.run(command, check=True, cwd=self._folder, stdin=nowhere, stdout=nowhere)


def programs() -> Path | None:
    """Where the server's programs are; None where they are not installed."""
    config = shutil.which("pg_config")
    if config is None:
        return None
    asked = subprocess.run([config, "--bindir"], check=True, capture_output=True, text=True)
    folder = Path(asked.stdout.strip())
    return folder if (folder / "initdb").exists() else None


@contextmanager
def cluster(where: Path) -> Generator[Cluster]:
    """A running one, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="trimtab-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, USER)
        made = Cluster(folder, where)
        made.start()
        try:
            yield made
        finally:
            if made.runs:
                made.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
