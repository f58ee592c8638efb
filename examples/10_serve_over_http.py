"""An agent served by `trimtab serve`, asked over HTTP by the typed client, and ended.

Needs: pip install 'trimtab[serve,client,anthropic,testing]'
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from trimtab.testing import serve_simulated_provider
from trimtab_serve.client import Client

AGENT = """\
name: helper
model: {name: claude-sonnet-5-5, base_url: "%s", api_key: none}
serve: {port: 0}
"""
SERVE = [sys.executable, "-m", "trimtab", "serve", "--log", "json"]


async def ask(url: str) -> str:
    """Send a message to a session, and wait for the reply."""
    async with Client(url) as client:
        return await client.session("helper", "first").ask("Is the harbour deep enough?")


with tempfile.TemporaryDirectory() as folder, serve_simulated_provider() as model:
    model.simulator.script.set_replies(["Deep enough: 4.2 m."])
    Path(folder, "agent.yaml").write_text(AGENT % model.url, encoding="utf-8")
    with subprocess.Popen(SERVE, cwd=folder, stderr=subprocess.PIPE) as server:  # noqa: S603
        try:
            log = map(json.loads, server.stderr or ())
            url = next(line["url"] for line in log if line.get("event") == "serving")
            print(asyncio.run(ask(url)))
        finally:
            server.terminate()
print(f"the server ended with status {server.returncode}")
