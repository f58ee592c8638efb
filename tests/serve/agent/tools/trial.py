"""Lines of shell tried for real: a simulated model sends them to a chat, or to a served agent."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests import warm
from tests.serve.process.processes import Serving, serving
from trimtab.testing.server.local_server import ServedSimulator
from trimtab.testing.server.simulator import ProviderSimulator

Lines = Sequence[tuple[str, str]]
"""Each with the tool that gets it."""

SECRET = "SECRET-OF-THE-OPERATOR"  # noqa: S105 - no secret, but what stands for one
"""What no line may show."""
NOT_RUN = "[not run: "
GIT = shutil.which("git") or "git"
AT_ONCE = 50
"""Lines that the model sends in one reply."""
FILES = {
    "README.md": "hello\nworld\n",
    "notes.txt": "a note\n",
    "Makefile": "all:\n\tcanary\n",
    "run.sh": "canary\n",
    "src/a.py": "def hello():\n    return '/api/v1'\n",
    "src/b.py": "def world():\n    return 2\n",
    "tests/test_a.py": "def test_hello():\n    pass\n",
    "sub/.git/HEAD": "ref: refs/heads/main\n",
    "sub/.git/config": "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = canary\n",
    "sub/.git/objects/x": "",
    "sub/.git/refs/x": "",
    "sub/ls": "#!/bin/sh\ncanary\n",
    "--output=globbed": "",
    "-delete": "",
    "-o": "",
}
"""What is in the folder; the last three are what a `*` could turn into."""
PROGRAMS = {
    "canary": ': > "{root}/marks/canary"',
    "rm": ': > "{root}/marks/rm"',
    # The real ones take a second each, and what they would do is not in question.
    "pytest": "exit 0",
    "python3": f'[ "$1 $2" = "-m pytest" ] || exec {sys.executable} "$@"',
}
"""What stands before all other programs on the PATH."""
HISTORY = (
    ("init", "-q", "-b", "main"),
    ("config", "--global", "user.name", "ann"),
    ("config", "--global", "user.email", "ann@example.com"),
    ("add", "README.md"),
    ("commit", "-q", "-m", "first"),
    ("add", "src", "tests"),
    ("commit", "-q", "-m", "second"),
)
"""How the folder becomes a repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a line."""

    tool: str
    """Whom the model gave it to."""
    line: str
    """The line."""
    text: str
    """What the model was told."""

    @property
    def ran(self) -> bool:
        """Whether a shell was given it."""
        return not self.text.startswith(NOT_RUN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What became of all lines."""

    outcomes: Sequence[Outcome]
    """One for each line, in their order."""
    changed: Sequence[str]
    """Files of the stage that are not as they were, marks of programs that ran among them."""

    def ran(self, tool: str) -> list[str]:
        """Lines for a tool that a shell was given."""
        return [each.line for each in self.outcomes if each.ran and each.tool == tool]

    @property
    def leaked(self) -> list[str]:
        """Lines that showed what lies outside of the folder."""
        return [each.line for each in self.outcomes if SECRET in each.text]


class Stage:
    """A folder to work in, and all around it that must stay as it is."""

    def __init__(
        self, root: Path, model: ServedSimulator, tools: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self.root, self.work, self.away = root, root / "work", root / "away"
        self.simulator = model.simulator
        for name in ("agent", "away", "bin", "home/.ssh", "marks", "tmp", "work"):
            (root / name).mkdir(parents=True)
        for secret in (self.away / "secret.txt", root / "home/.ssh/id_rsa"):
            secret.write_text(f"{SECRET}\n", encoding="utf-8")
        for name, text in PROGRAMS.items():
            self._write(root / "bin" / name, f"#!/bin/sh\n{text.format(root=root)}\n")
        for name, text in FILES.items():
            self._write(self.work / name, text)
        for words in HISTORY:
            subprocess.run([GIT, *words], cwd=self.work, env=self.environ(), check=True)
        document = {
            "name": "helper",
            "model": {"name": "claude-sonnet-5-5", "base_url": model.url},
            "session": {"policy": "full"},
            "serve": {"port": 0},
            "tools": {
                name: {"kind": "shell", "cwd": "../work", "timeout": 10, **block}
                for name, block in tools.items()
            },
        }
        (root / "agent/agent.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def environ(self) -> dict[str, str]:
        """What the process under trial sees."""
        path = f"{self.root / 'bin'}{os.pathsep}{os.environ['PATH']}"
        folders = {"HOME": str(self.root / "home"), "TMPDIR": str(self.root / "tmp")}
        return {"LANG": "C.UTF-8", "PATH": path, "ANTHROPIC_API_KEY": SECRET, **folders}

    def chat(self, lines: Lines) -> Trial:
        """`trimtab chat`, and nobody at the terminal."""
        before = self.files()
        run = warm.run(
            [*warm.TRIMTAB, "chat", "--json"],
            cwd=self.root / "agent",
            env=self.environ(),
            input=json.dumps({"text": self._asking(lines)}) + "\n",
            timeout=600,
        )
        assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
        return self._trial(lines, before)

    def served(self, lines: Lines) -> Trial:
        """`trimtab serve`, over HTTP."""
        before = self.files()
        with serving(self.root / "agent", environ=self.environ()) as server:
            asyncio.run(_ask(server, self._asking(lines)))
        return self._trial(lines, before)

    def _asking(self, lines: Lines) -> str:
        """What makes the simulated model send them."""
        calls = [
            {"name": tool, "arguments": {"command": line.replace("%AWAY%", str(self.away))}}
            for tool, line in lines
        ]
        replies = [calls[place : place + AT_ONCE] for place in range(0, len(calls), AT_ONCE)]
        return f"simulate: {json.dumps([*({'calls': each} for each in replies), 'Done.'])}"

    def _trial(self, lines: Lines, before: Mapping[str, bytes]) -> Trial:
        texts = _told(self.simulator)
        return Trial(
            outcomes=[
                Outcome(tool=tool, line=line, text=text)
                for (tool, line), text in zip(lines, texts, strict=True)
            ],
            changed=self.changed(before),
        )

    def changed(self, before: Mapping[str, bytes]) -> list[str]:
        """Files that are not as they were."""
        after = self.files()
        names = sorted(before.keys() | after.keys())
        return [name for name in names if before.get(name) != after.get(name)]

    def files(self) -> dict[str, bytes]:
        """All that is on the stage, but what the agent itself keeps."""
        paths = (path for path in self.root.rglob("*") if path.is_file())
        return {
            name: path.read_bytes()
            for path in paths
            if not (name := str(path.relative_to(self.root))).startswith("agent/")
        }


async def _ask(server: Serving, says: str) -> None:
    async with server.client() as client:
        assert await client.session("helper", "one").ask(says) == "Done."


def _told(simulator: ProviderSimulator) -> list[str]:
    """What the model was told of each call, in the order in which it made them."""
    messages = simulator.records.requests[-1].body["messages"]
    parts = [
        part for each in messages if isinstance(each["content"], list) for part in each["content"]
    ]
    results_by_id = {part["tool_use_id"]: part for part in parts if part["type"] == "tool_result"}
    return [
        _text(results_by_id[part["id"]]["content"]) for part in parts if part["type"] == "tool_use"
    ]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
