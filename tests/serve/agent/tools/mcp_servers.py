"""The MCP server of the tests, as a program over stdio or over HTTP on a socket."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from tests import warm

PROGRAM = Path(__file__).with_name("mcp_program.py")
STDIO = (sys.executable, str(PROGRAM))


class Http:
    """A server on a socket that outlives it: who connects while none is there waits."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/mcp"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self.process is not None:
            self.kill()
        number = self.socket.fileno()
        self.process = warm.Popen(
            [*STDIO, "http", str(number)], pass_fds=[number], stderr=subprocess.DEVNULL
        )

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def close(self) -> None:
        self.kill()
        self.socket.close()
