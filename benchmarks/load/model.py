"""The simulated model in a process of its own: it calls a tool, sees the result, and answers."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection

from benchmarks.load.talk import ASKS
from trimtab.session.tools import Tool, ToolInvocation
from trimtab.testing.server import ProviderSimulator, serve_simulated_provider
from trimtab.testing.server.options import ProviderSimulatorOptions
from trimtab.testing.server.responses import SimulatedResponse
from trimtab.testing.server.simulator import STEP_HEADER

MODEL = "claude-sonnet-4-6"
SYSTEM = "You look after a code base. Read before you change, and say what you have found."
MAX_TOKENS = 1_024
CALLS = json.dumps({"calls": [{"name": "read_file", "arguments": {"path": "src/main.py"}}]})
SAYS = json.dumps({"text": 60})
CONTENT = "A line of what was found there, as long as most lines are.\n" * 16
DEFINITION = {
    "name": "read_file",
    "description": "Read a file and see what it says.",
    "input_schema": {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "From the root of the code."}},
        "required": ["path"],
    },
}
CALLS_A_TURN = 2
"""Requests to the model."""


class Looking(ProviderSimulator):
    """Calls the tool when it is asked, and answers what the tool has said."""

    def answer(self, dialect: str, headers: Mapping[str, str], raw: bytes) -> SimulatedResponse:
        seen = raw.rfind(b'"tool_result"') > raw.rfind(ASKS.encode())
        if len(self.records.requests) > 1_000:
            self.records.requests.clear()  # the counts stay
        return super().handle_request(
            dialect, {**headers, STEP_HEADER: SAYS if seen else CALLS}, raw
        )


async def read_file(_: ToolInvocation) -> str:
    return CONTENT


def tools() -> list[Tool]:
    return [Tool(definition=DEFINITION, run=read_file)]


@contextmanager
def model() -> Generator[Connection]:
    """The process; its address comes first, and its counts whenever something is sent."""
    ours, its = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(its,), daemon=True)
    process.start()
    try:
        yield ours
    finally:
        process.kill()
        process.join()


def _serve(pipe: Connection) -> None:
    with serve_simulated_provider(Looking(ProviderSimulatorOptions(keeps=False))) as served:
        pipe.send(served.url)
        while True:
            pipe.recv()
            pipe.send(served.simulator.stats())
