"""`trimtab serve` as a process of its own, against a simulated provider."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests import warm
from trimtab_serve.client import Client

PATIENCE = 60.0
"""Seconds after which a process that should have said something has not."""


@dataclass
class Serving:
    """A process that serves."""

    process: subprocess.Popen[str]
    lines: queue.SimpleQueue[dict[str, Any] | None]
    heard: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    url: str = ""

    def until(self, event: str) -> dict[str, Any]:
        """The next log line of this kind."""
        while True:
            line = self.lines.get(timeout=PATIENCE)
            assert line is not None, f"it ended before {event!r}: {self.heard}"
            self.heard.append(line)
            if line.get("event") == event:
                return line

    def client(self, **options: Any) -> Client:
        return Client(self.url, **options)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, unless it has ended, and wait for the end; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=PATIENCE)


@contextmanager
def serving(
    folder: Path,
    *options: str,
    environ: Mapping[str, str] | None = None,
    inherit: bool = True,
    up: bool = True,
    python: Sequence[str] = (sys.executable,),
    cold: bool = False,
) -> Generator[Serving]:
    """The agent of a folder, served for the length of the block; `cold` starts from nothing."""
    start = subprocess.Popen if cold else warm.Popen
    command = [*python, "-m", "trimtab.cli", "serve", "--log", "json", *options]
    with start(
        command,
        cwd=folder,
        # What a developer has typed into chats is none of a test's business.
        env={
            **(os.environ if inherit else {}),
            "PYTHONWARNINGS": "error",
            "XDG_STATE_HOME": str(folder / "state"),
            **(environ or {}),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        server = Serving(process, queue.SimpleQueue())
        reader = threading.Thread(target=_read, args=(process, server.lines), daemon=True)
        reader.start()
        try:
            if up:
                server.url = server.until("serving")["url"] or ""
            yield server
        finally:
            process.kill()
            reader.join(timeout=PATIENCE)


def _read(process: subprocess.Popen[str], lines: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        lines.put(json.loads(line) if line.startswith("{") else {"raw": line.rstrip()})
    lines.put(None)


def write_agent(folder: Path, model_url: str, **blocks: Any) -> Path:
    """An `agent.yaml` in a folder; `session` and `serve` are added to."""
    session = {"store": "sessions", **blocks.pop("session", {})}
    document = {
        "name": "helper",
        "model": {"name": "claude-sonnet-5-5", "base_url": model_url, "api_key": "none"},
        "system": "You are brief.",
        "session": session,
        "serve": {"port": 0, **blocks.pop("serve", {})},
        **blocks,
    }
    file = folder / "agent.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


def free_port() -> int:
    """A port that nobody listens on now: a server that starts again needs the same."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
