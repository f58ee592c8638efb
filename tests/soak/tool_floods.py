"""What tools that flood, hang or die cost the process that runs them, and that its session goes on.

Each case is a process of its own: a turn in which a scripted model calls the tool, and another one
behind it that calls a tool which prints one line. Its peak of resident memory stands against that
of the same with a tool that prints one line in both turns.

gigabyte      a shell command that prints 1 GB and ends
endless       one that prints for ever; it is stopped at 1,000 times the bytes that are kept
binary        one that prints 50 MB of random bytes
hanging       one that never ends
orphan        one that ends, and leaves a process behind that holds its output open
function      a Python function that hangs, and cannot be stopped
mcp_dies      an MCP server that ends in the middle of the call
mcp_floods    an MCP server that answers with 40 MB

seconds       that both turns took
mb            megabytes of resident memory at the peak
above_mb      those above the baseline
memory_ratio  to the baseline; of MCP servers, to a turn with an MCP server that says one line
went_on       whether the flood was told to the model and the second turn was like any other

What must hold: `went_on`, and `above_mb` within 64, which is 64 times what is kept of an output.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import Report, progress, run
from trimtab.session import Session
from trimtab.session.turn import run_turn
from trimtab.testing import MemoryStore, ScriptedCall, ScriptedProvider
from trimtab_serve.agent.config.spec import AnyToolSpec, McpToolSpec, PythonToolSpec, ShellToolSpec
from trimtab_serve.agent.tools.permissions.rules import PermissionGate, decline_unattended
from trimtab_serve.agent.tools.tool_setting import ToolSetting
from trimtab_serve.agent.tools.tools_from_config import open_tools

ROOT = Path(__file__).parents[2]
MOST_MB = 64
"""Megabytes above the baseline that are still bounded: copies of what is kept."""
CAP = 1_000_000
"""Bytes that are kept of an output."""
SERVER = """
import os, sys
from mcp.server.mcpserver import MCPServer
server = MCPServer("floods", log_level="CRITICAL")
@server.tool()
def line() -> str: return "one line"
@server.tool()
def die() -> str:
    sys.stderr.write("the server has had enough\\n"); sys.stderr.flush(); os._exit(3)
@server.tool()
def flood() -> str: return "x" * 40_000_000
server.run()
"""
FUNCTION = "import threading\ndef hangs(): threading.Event().wait()\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    tool: AnyToolSpec
    """What floods."""
    call: ScriptedCall
    """How it is called."""
    then: ScriptedCall
    """What is called in the second turn."""
    says: str
    """What its result must hold."""
    files: dict[str, str] = field(default_factory=dict[str, str])
    """What stands beside it."""


LINE = ScriptedCall(name="tool", arguments={"command": "echo one line"})


def shell(command: str, says: str, *, timeout: float = 120.0, cap: int = CAP) -> Case:
    tool = ShellToolSpec(kind="shell", permission="allow", timeout=timeout, max_output_bytes=cap)
    return Case(
        tool=tool,
        call=ScriptedCall(name="tool", arguments={"command": command}),
        then=LINE,
        says=says,
    )


def server(name: str, says: str) -> Case:
    tool = McpToolSpec(kind="mcp", permission="allow", command=(sys.executable, "server.py"))
    return Case(
        tool=tool,
        call=ScriptedCall(name=f"tool__{name}"),
        then=ScriptedCall(name="tool__line"),
        says=says,
        files={"server.py": SERVER},
    )


def cases(quick: bool) -> dict[str, Case]:
    size = 100_000_000 if quick else 1_000_000_000
    hangs = PythonToolSpec(kind="python", function="hangs.py:hangs", timeout=0.5)
    return {
        "baseline": shell("echo one line", "one line"),
        "gigabyte": shell(f"yes | head -c {size}", f"{size - CAP:,} bytes left out"),
        "endless": shell("yes", "write to a file", cap=CAP // 10 if quick else CAP),
        "binary": shell("head -c 50000000 /dev/urandom", "[binary output, 50,000,000 bytes"),
        "hanging": shell("echo begun; sleep 1000", "had not ended after 1 seconds", timeout=1),
        "orphan": shell("sleep 1000 & echo begun", "begun\n[what it left running"),
        "function": Case(
            tool=hangs,
            call=ScriptedCall(name="tool"),
            then=ScriptedCall(name="tool"),
            says="may still be running",
            files={"hangs.py": FUNCTION},
        ),
        "mcp_baseline": server("line", "one line"),
        "mcp_dies": server("die", "the server has had enough"),
        "mcp_floods": server("flood", "a message of more than"),
    }


async def lived_through(case: Case) -> Report:
    """Both turns, and what they cost."""
    with tempfile.TemporaryDirectory(prefix="trimtab-") as folder:
        for name, text in case.files.items():
            (Path(folder) / name).write_text(text)
        begun = time.monotonic()
        setting = ToolSetting(
            folder=Path(folder), gate=PermissionGate(approve=decline_unattended), environ=os.environ
        )
        box = open_tools({"tool": case.tool}, setting)
        async with box as tools:
            provider = ScriptedProvider("anthropic", [case.call, "Well.", case.then, "Done."])
            session = await Session.create(MemoryStore(), "s", model="claude-sonnet-4-5")
            ends = [
                (
                    await run_turn(
                        session, provider, tools, message={"role": "user", "content": says}
                    )
                ).reason
                for says in ("Flood.", "And on?")
            ]
            results = [
                result.text
                for round_ in session.window.conversation.rounds
                for entry in round_.entries
                for result in entry.message.results
            ]
        took = time.monotonic() - begun
    expected = case.says if case.tool.kind == "python" else "one line"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": round(took, 1),
        # Linux counts in kilobytes, macOS in bytes.
        "mb": round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10), 1),
        "went_on": ends == ["done", "done"]
        and len(results) == 2
        and case.says in results[0]
        and expected in results[1],
        "results": [each[-300:] for each in results],
    }


def in_its_own_process(name: str, quick: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.soak.tool_floods", "case", name, "quick" * quick]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def main(quick: bool) -> Report:
    rows: list[Report] = []
    broken: list[str] = []
    bases: dict[str, float] = {}
    for name in cases(quick):
        progress(name)
        found = in_its_own_process(name, quick)
        kind = "mcp" if name.startswith("mcp") else "own"
        base = bases.setdefault(kind, found["mb"])
        above = round(found["mb"] - base, 1)
        ratio = round(found["mb"] / base, 2)
        figures = {key: found[key] for key in ("seconds", "mb")}
        rows.append(
            {
                "case": name,
                **figures,
                "above_mb": above,
                "memory_ratio": ratio,
                "went_on": str(found["went_on"]).lower(),
            }
        )
        if not found["went_on"]:
            broken.append(f"{name} did not go on: {found['results']}")
        if above > MOST_MB:
            broken.append(f"{name} took {above} MB above the baseline, the limit is {MOST_MB}")
    return {
        "sample": f"{len(rows)} cases, each in a process of its own",
        "rows": rows,
        "memory_ratio": max(row["memory_ratio"] for row in rows),
        "above_mb": max(row["above_mb"] for row in rows),
        "went_on": all(row["went_on"] == "true" for row in rows),
        "broken": broken,
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["case"]:
        chosen = cases(sys.argv[3:] == ["quick"])[sys.argv[2]]
        print(json.dumps(asyncio.run(lived_through(chosen))))
        sys.exit(0)
    sys.exit(run(__doc__, main, ("mcp",)))
