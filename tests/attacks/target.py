"""A server to attack: `trimtab serve` as a process, and requests to it byte by byte."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from typer.testing import CliRunner

from tests.serve.process.processes import Serving, serving, write_agent
from trimtab.cli.app import app
from trimtab.testing import serve_simulated_provider
from trimtab.testing.server.simulator import ProviderSimulator

LONGEST = 60.0
"""Seconds after which an answer that should have come has not."""
PROVIDER_KEY = "sk-ant-0123456789abcdef-of-the-attacked"
"""What the server sends to its provider, and must show to nobody."""
CALLERS = {
    "operator": ("--tenant", "default", "--role", "admin"),
    "acme": ("--tenant", "acme", "--role", "admin"),
    "guest": ("--tenant", "guest"),
    "prometheus": ("--role", "metrics"),
}
"""Keys that there are, each with the options of `trimtab keys create`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    """By name, in lower case."""
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    def is_problem(self, status: int) -> bool:
        """Whether it is a refusal of this status, in the form that the API has for refusals."""
        return self.status == status and self.document["status"] == status


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server that runs, with what an attacker of one tenant has."""

    folder: Path
    """The folder with `agent.yaml` and `sessions`."""
    server: Serving
    model: ProviderSimulator
    """Who answers."""
    keys: dict[str, str]
    """By the name of the caller."""

    @property
    def address(self) -> tuple[str, int]:
        url = urlsplit(self.server.url)
        return url.hostname or "", url.port or 0

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        """A connection, from this or another address of this machine."""
        return socket.create_connection(self.address, LONGEST, source_address=(source, 0))

    def request(
        self,
        method: str,
        path: str,
        *,
        key: str | None = "acme",
        body: Any = None,
        raw: bytes | None = None,
        named: Mapping[str, str] | None = None,
        **headers: str,
    ) -> Answer:
        """One request; the path goes out as it is written, `raw` in place of a JSON body. Headers
        whose names are data come as `named`."""
        head = build_head(
            method,
            path,
            self.keys.get(key or ""),
            body=json.dumps(body).encode() if body is not None else raw,
            named=named,
            **headers,
        )
        # Guesses from one address are slowed down, and not each test is about that.
        return self.exchange(head, method, "127.0.0.1" if key else next(OTHER_ADDRESSES))

    def exchange(self, sent: bytes, method: str = "POST", source: str = "127.0.0.1") -> Answer:
        """What is answered to these bytes."""
        with self.connect(source) as wire:
            with suppress(OSError):  # refused before all of it was read
                wire.sendall(sent)
            return read_answer(wire, method)

    def say(self, text: str, session: str, *, key: str = "acme", **more: Any) -> Answer:
        path = f"/v1/agents/helper/sessions/{session}/messages"
        return self.request("POST", path, key=key, body={"text": text, **more})

    def ask(self, text: str, session: str, *, key: str = "acme") -> str:
        """Say something, and wait until it is answered; the events of the answer."""
        path = f"/v1/agents/helper/sessions/{session}/messages"
        answer = self.request("POST", path, key=key, body={"text": text}, Accept=STREAM)
        assert answer.status == 200, answer
        return answer.body.decode()

    def files(self) -> set[str]:
        """All that lies in the folder, and beside it."""
        around = self.folder.parent
        return {str(path.relative_to(around)) for path in around.rglob("*")}


STREAM = "text/event-stream"
OTHER_ADDRESSES = (f"127.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}" for n in count(0x10001))
"""Addresses of this machine, each once."""
CUT_OFF = 0
"""What stands for a status if the connection was closed without one."""


def build_head(
    method: str,
    path: str,
    key: str | None,
    *,
    body: bytes | None = None,
    named: Mapping[str, str] | None = None,
    **headers: str,
) -> bytes:
    """A request with its body; a `_` in a header's name is written as `-`."""
    lines = {"Host": "127.0.0.1", "Connection": "close"}
    if key is not None:
        lines["Authorization"] = f"Bearer {key}"
    if body is not None:
        lines |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines |= named or {}
    header_lines = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{header_lines}\r\n".encode() + (body or b"")


def read_answer(wire: socket.socket, method: str = "POST") -> Answer:
    """The next answer on a connection."""
    with HTTPResponse(wire, method=method) as response:
        response.begin()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(status=response.status, headers=headers, body=response.read())


def read_status(wire: socket.socket) -> int:
    """The status of an answer that came while more was being sent than the server has read: then
    the kernel may throw it away."""
    try:
        with HTTPResponse(wire) as response:
            response.begin()
            return response.status
    except (ConnectionError, HTTPException):
        return CUT_OFF


def erase(target: Target, path: str, key: str = "acme", body: Any = None) -> int:
    """Erase a user or a tenant, and wait for the end of the job; the number of its sessions.

    The request itself waits for a moment only, and then says how far the job has come.
    """
    answer = target.request("DELETE", path, key=key, body=body)
    assert answer.status in (200, 202), answer
    job = f"/v1/erasures/{answer.document['id']}"

    def done() -> Any:
        state = target.request("GET", job, key=key).document
        return state if state["state"] == "done" else None

    return until(done)["sessions"]


def until(holds: Callable[[], Any], seconds: float = LONGEST) -> Any:
    """Ask again and again until something holds; what it gave."""
    end = time.monotonic() + seconds
    while not (outcome := holds()):
        assert time.monotonic() < end, f"not within {seconds:g} s"
        time.sleep(0.01)
    return outcome


def create_key(store: Path | str, name: str, *options: str) -> str:
    """A new key, as `trimtab keys create` prints it."""
    return run_keys_command(store, "create", name, *options).strip()


def run_keys_command(store: Path | str, *command: str) -> str:
    """What `trimtab keys` prints for the keys of a store."""
    run = CliRunner().invoke(app, ["keys", *command, "--store", str(store)])
    assert run.exit_code == 0, run.output
    return run.stdout


@contextmanager
def attacked(
    folder: Path, *, python: Sequence[str] = (sys.executable,), **blocks: Any
) -> Generator[Target]:
    """A served agent with keys for several tenants, on files unless `session` says otherwise."""
    store = blocks.get("session", {}).get("store", folder / "sessions")
    keys = {name: create_key(store, name, *options) for name, options in CALLERS.items()}
    serve = {"keys": True, "requests_per_minute": 1_000_000, **blocks.pop("serve", {})}
    with serve_simulated_provider(tokenizer="estimate") as provider:
        model = {"name": "claude-sonnet-5-5", "base_url": provider.url}
        write_agent(folder, provider.url, **{"model": model, "serve": serve, **blocks})
        environ = {"ANTHROPIC_API_KEY": PROVIDER_KEY}
        with serving(folder, environ=environ, python=python) as server:
            yield Target(folder=folder, server=server, model=provider.simulator, keys=keys)
