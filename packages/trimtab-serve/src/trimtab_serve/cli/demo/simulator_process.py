"""The demo's simulated provider: a separate process that is reached only over HTTP."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.request import Request, urlopen

START_TIMEOUT_S = 30.0
"""Seconds that the simulator may take to start listening."""


class SimulatorStartError(RuntimeError):
    """The simulator did not print its address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorControlClient:
    url: str
    """The address on which it listens."""

    async def set_replies(self, replies: Sequence[Any]) -> None:
        """Replace the script of the model's replies."""
        await self._send("/_control/script", {"replies": list(replies)})

    async def count_refused_requests(self) -> int:
        """Return how many requests the simulator has refused so far."""
        state = await self._send("/_control", None)
        return int(state["stats"]["refused"])

    async def count_tokens(self, request: dict[str, Any]) -> int:
        """Return the simulator's own token count of a request, whether it fits or not."""
        names = ("model", "system", "messages", "tools")
        body = {name: request[name] for name in names if name in request}
        answer = await self._send("/v1/messages/count_tokens", body)
        return int(answer["input_tokens"])

    async def _send(self, path: str, body: Any) -> Any:
        return await asyncio.to_thread(self._exchange, path, body)

    def _exchange(self, path: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"x-api-key": "demo", "anthropic-version": "2023-06-01"}
        http_request = Request(self.url + path, data, headers)  # noqa: S310 - our own process
        with urlopen(http_request, timeout=START_TIMEOUT_S) as answer:  # noqa: S310 - as above
            return json.loads(answer.read())


@asynccontextmanager
async def open_simulator_process(window_tokens: int) -> AsyncGenerator[SimulatorControlClient]:
    """Run a simulator with this window while the block runs."""
    # With a seed of our own all ids are the same in every run, and so is the picture.
    command = (
        "-m",
        "trimtab.testing.server",
        "--window",
        str(window_tokens),
        "--set",
        'seed="demo"',
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=PIPE
    )
    try:
        yield SimulatorControlClient(url=await _read_address(process))
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        # Not `communicate`: nothing that it still says is of interest.
        await process.wait()


async def _read_address(process: Process) -> str:
    assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018 - pipes
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            line = (await process.stdout.readline()).decode().strip()
    except TimeoutError:
        raise SimulatorStartError(
            f"the simulator did not listen within {START_TIMEOUT_S:g} seconds"
        ) from None
    if not line.startswith("http"):
        error_lines = (await process.stderr.read()).decode(errors="replace").strip().splitlines()
        raise SimulatorStartError(
            f"the simulator did not start: {error_lines[-1] if error_lines else line!r}"
        )
    return line
