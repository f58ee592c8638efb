"""What the tests of the sidecar share: bodies, calls, a server on a real socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from trimtab.sidecar.http_server import HttpServer
from trimtab.sidecar.sidecar import Sidecar

TOKEN = "right-" * 8
SMALL = {"context_window": 8_000, "recall": "recall {handle}", "goal": "cost"}
OWNER = "me"


def report(number: int) -> str:
    """A tool's result of about 900 tokens, like no other one."""
    return f"report {number}: " + " ".join(f"row_{number}_{k} = {k * number}" for k in range(90))


def chat(turns: int, **more: Any) -> dict[str, Any]:
    """The body of a conversation in which each turn reads a report."""
    messages: list[Any] = [{"role": "system", "content": "Be careful."}]
    for turn in range(turns):
        call = {"name": "read", "arguments": json.dumps({"n": turn})}
        messages += [
            {"role": "user", "content": f"Turn {turn}"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{turn}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"c{turn}", "content": report(turn), "x_1": 10**40},
        ]
    return {"model": "gpt-4o", "messages": messages, "max_tokens": 500, **more}


def claude(turns: int, **more: Any) -> dict[str, Any]:
    """The same for Claude."""
    messages: list[Any] = []
    for turn in range(turns):
        call = {"type": "tool_use", "id": f"c{turn}", "name": "read", "input": {"n": turn}}
        result = {"type": "tool_result", "tool_use_id": f"c{turn}", "content": report(turn)}
        messages += [
            {"role": "user", "content": [{"type": "text", "text": f"Turn {turn}"}]},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
    return {"model": "claude-sonnet-4-5", "messages": messages, "max_tokens": 500, **more}


def ask(sidecar: Sidecar, operation: str, *, owner: str = OWNER, **fields: Any) -> dict[str, Any]:
    """Call an operation, and return its answer with its status."""
    answer = sidecar.run(sidecar.answer(operation, json.dumps(fields), owner=owner))
    return {"status": answer.status, **json.loads(answer.write())}


def fit(sidecar: Sidecar, body: Any, *, conversation: str = "a", **fields: Any) -> dict[str, Any]:
    """Fit a body in a small window."""
    fields.setdefault("options", SMALL)
    return ask(sidecar, "fit", conversation=conversation, body=body, **fields)


def fit_from_start(sidecar: Sidecar, turns: int, **fields: Any) -> dict[str, Any]:
    """Fit a body whose log began with the first question, so that its handles have no tag."""
    first = chat(1)
    first["messages"] = first["messages"][:2]
    fit(sidecar, first, **fields)
    return fit(sidecar, chat(turns), **fields)


class Door:
    """A sidecar that listens on a port."""

    def __init__(self, sidecar: Sidecar, address: str) -> None:
        self.sidecar = sidecar
        self.host = address.removeprefix("http://")
        self.port = int(self.host.rpartition(":")[2])

    def send(self, raw: bytes, *, timeout: float = 5.0) -> bytes:
        """Send bytes, and return everything that comes back until the connection ends."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while piece := connection.recv(65_536):
                answer += piece
        return answer

    def request(
        self,
        path: str = "/v1/fit",
        body: Any = None,
        *,
        method: str = "POST",
        raw: bytes | None = None,
        **headers: str | None,
    ) -> tuple[int, dict[str, Any]]:
        """Send a request as a client does; a header that is None is left out."""
        content = json.dumps(body).encode() if raw is None else raw
        fields: dict[str, str | None] = {
            "host": self.host,
            "authorization": f"Bearer {TOKEN}",
            "content-type": "application/json",
            "content-length": str(len(content)),
            "connection": "close",
        }
        fields |= {name.replace("_", "-"): each for name, each in headers.items()}
        lines = [f"{method} {path} HTTP/1.1"]
        lines += [f"{name}: {each}" for name, each in fields.items() if each is not None]
        head, _, text = self.send("\r\n".join([*lines, "", ""]).encode() + content).partition(
            b"\r\n\r\n"
        )
        return int(head.split(b" ")[1]), json.loads(text)


@contextmanager
def open_door(**options: Any) -> Generator[Door]:
    """Listen on a free port."""
    sidecar = Sidecar(**options)
    server = HttpServer(sidecar, token=TOKEN)
    address = sidecar.run(server.listen(0))
    try:
        yield Door(sidecar, address)
    finally:
        sidecar.run(server.close())
        sidecar.run(sidecar.close())
