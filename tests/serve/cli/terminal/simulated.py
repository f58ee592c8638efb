"""The strict simulator as a process of its own, and an agent's folder that talks to it."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests import warm

WINDOW = 16_000
"""Tokens of the simulated model."""
AGENT = """\
name: helper
model:
  name: gpt-4o
  base_url: {url}/v1
  context_window: {window}
  max_output_tokens: 1000
session:
  thresholds:
    display: {display}
system: |
  You are a helper.
  Say what you have found.
tools:
  shell:
    kind: shell
    on_interrupt: ask
    allow: ["echo free*", "seq *"]
"""


class Simulated:
    """A model that says what it is told to say."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "trimtab.testing.server", "--window", str(WINDOW)]
        self._process = warm.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    def reset(self) -> None:
        self._post("/_control/reset", {})

    def says(self, *replies: Any, otherwise: Any = None) -> None:
        """What comes next, in the form of the simulator's script."""
        script = {"replies": list(replies)}
        self._post(
            "/_control/script", script if otherwise is None else {**script, "otherwise": otherwise}
        )

    def options(self, **options: Any) -> None:
        self._post("/_control/options", options)

    def requests(self) -> list[dict[str, Any]]:
        """All that it was asked."""
        return self._ask("GET", "/_control/requests", None)

    def said(self) -> list[dict[str, Any]]:
        """The conversation in the last request, without the system prompt."""
        messages = self.requests()[-1]["body"]["messages"]
        return [message for message in messages if message["role"] != "system"]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _post(self, path: str, body: Any) -> Any:
        return self._ask("POST", path, json.dumps(body))

    def _ask(self, method: str, path: str, body: str | None) -> Any:
        where = urlsplit(self.url)
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=10)
        try:
            connection.request(method, path, body, {"content-type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        assert answer.status == 200, text
        return json.loads(text)


def shell(command: str, text: str = "") -> dict[str, Any]:
    """A reply that calls the shell."""
    return {"text": text, "calls": [{"name": "shell", "arguments": {"command": command}}]}


def write_agent(folder: Path, url: str, *, window: int = WINDOW, display: float = 0.3) -> None:
    document = AGENT.format(url=url, window=window, display=display)
    (folder / "agent.yaml").write_text(document, encoding="utf-8")
