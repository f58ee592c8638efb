"""`trimtab serve` and a simulated provider, each a process of its own, for benchmarks over HTTP."""

from __future__ import annotations

import asyncio
import json
import queue
import resource
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.testing.server import RemoteSimulator, spawn_simulated_provider
from trimtab_serve.api_keys.api_key import ApiKey, create_api_key
from trimtab_serve.api_keys.command_line_control import open_api_keys

PATIENCE = 300.0
STREAMS = ("/events 200", "/messages 200")
"""What the log says of requests that take as long as somebody reads."""
MODEL = "claude-sonnet-5-5"


@dataclass
class Server:
    """One that runs."""

    url: str
    key: str
    metrics_key: str
    model: RemoteSimulator
    process: subprocess.Popen[str]
    faults: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    """Log lines of mistakes."""
    slowest: tuple[float, str] = (0.0, "")
    """Milliseconds of the request that took longest, streams left out, and which it was."""
    log_bytes: int = 0
    """Of all log lines so far."""

    @property
    def runs(self) -> bool:
        return self.process.poll() is None


async def _store_keys(store: Path, *keys: ApiKey) -> None:
    async with open_api_keys(str(store)) as stored:
        for key in keys:
            await stored.add(key)


@contextmanager
def served(folder: Path, *, descriptors: int | None = None, **session: Any) -> Generator[Server]:
    """An agent `helper` on files, for the length of the block, with no more than so many
    descriptors."""

    def limit_descriptors() -> None:
        if descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    with spawn_simulated_provider(tokenizer="estimate", keeps=False) as model:
        text, kept = create_api_key("bench", role="admin")
        figures, own = create_api_key("figures", role="metrics")
        asyncio.run(_store_keys(folder / "sessions", kept, own))
        block = {
            "port": 0,
            "keys": True,
            "requests_per_minute": 10**9,
            "max_body_bytes": 65_536,
            "shutdown_timeout": 1,
        }
        told = {
            "name": "helper",
            "model": {"name": MODEL, "base_url": model.url, "api_key": "none"},
            "session": session,
            "serve": block,
        }
        # JSON is YAML.
        (folder / "agent.yaml").write_text(json.dumps(told), encoding="utf-8")
        command = [sys.executable, "-m", "trimtab.cli", "serve", "--log", "json"]
        with subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=limit_descriptors,  # noqa: PLW1509 - there are no other threads yet
        ) as process:
            made = Server(url="", key=text, metrics_key=figures, model=model, process=process)
            up: queue.SimpleQueue[str] = queue.SimpleQueue()
            reader = threading.Thread(target=_read, args=(made, up), daemon=True)
            reader.start()
            try:
                made.url = up.get(timeout=PATIENCE)
                yield made
            finally:
                process.kill()
                reader.join(timeout=PATIENCE)


def _read(server: Server, up: queue.SimpleQueue[str]) -> None:
    assert server.process.stderr is not None
    for line in server.process.stderr:
        server.log_bytes += len(line.encode())
        told: dict[str, Any] = json.loads(line) if line.startswith("{") else {"raw": line}
        if told.get("event") == "serving":
            up.put(told["url"])
        elif told.get("event") == "request":
            if not str(told["message"]).partition(" ")[2].endswith(STREAMS):
                server.slowest = max(
                    server.slowest, (float(told["duration_ms"]), str(told["message"]))
                )
        elif "raw" in told or told.get("message", "").startswith("internal error "):
            server.faults.append(told)
