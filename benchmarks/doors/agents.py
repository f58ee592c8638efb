"""The real agents: how each is set up in an empty home, and runs one life without a person."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.doors.installed import (
    ROOT,
    find_hermes,
    find_node,
    find_npm_package,
    find_platform_package,
)
from benchmarks.doors.life import Life, Recorded, simulate

TIME_LIMIT_S = 540
PROMPT = "Read all files, then read one of them back."
CLAUDE = "claude-sonnet-4-5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One life of an agent."""

    recorded: Recorded
    """What the provider received."""
    output: str
    """What the agent printed, with its errors."""
    measured: tuple[Mapping[str, Any], ...]
    """What was measured of each call of Trimtab."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A real agent."""

    name: str
    """Its name."""
    read_tool: str
    """The name of its own tool that reads a file."""
    path_key: str = "path"
    """The argument of that tool."""
    find: Callable[[], Any]
    """Raises `Absent` if it is not installed."""
    set_up: Callable[[Path, str, Life, bool], tuple[list[str], dict[str, str]]]
    """Writes its configuration, with Trimtab or without, and returns its command and variables."""
    dialect: str = "anthropic"
    """The dialect of its requests."""
    window: int = 64_000
    """Tokens of the window in the figures."""

    def read_file(self, path: str) -> dict[str, Any]:
        """Its own call that reads a file."""
        return {"name": self.read_tool, "arguments": {self.path_key: path}}

    def run(self, life: Life, *, with_trimtab: bool) -> Run:
        """Run a life in an empty home."""
        with tempfile.TemporaryDirectory(prefix=f"{self.name}-") as folder:
            home, work = Path(folder), Path(folder) / "work"
            work.mkdir()
            with simulate(life, work, self.read_file) as (served, tell):
                command, variables = self.set_up(home, served.url, life, with_trimtab)
                figures = home / "measured.jsonl"
                environ = {
                    "PATH": f"{find_node().parent}:{os.environ['PATH']}",
                    "HOME": str(home),
                    "TERM": "dumb",
                    "TRIMTAB_MEASURED": str(figures),
                    **variables,
                }
                ended = subprocess.run(  # noqa: S603 - the agent
                    command,
                    cwd=work,
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    timeout=TIME_LIMIT_S,
                    check=False,
                )
                lines = figures.read_text().splitlines() if figures.exists() else ()
                measured = tuple(json.loads(line) for line in lines)
                return Run(recorded=tell(), output=ended.stdout, measured=measured)


def _set_up_hermes(
    home: Path, url: str, life: Life, with_trimtab: bool
) -> tuple[list[str], dict[str, str]]:
    folder = home / ".hermes"
    folder.mkdir()
    configuration: dict[str, Any] = {
        "model": {
            "default": "gpt-4o",
            "provider": "custom",
            "base_url": f"{url}/v1",
            "api_key": "sk-x",
            "api_mode": "chat_completions",
            "context_length": life.believed or life.window,
            "max_tokens": 2_000,
        }
    }
    if with_trimtab:
        configuration["plugins"] = {"enabled": ["trimtab"]}
        configuration["context"] = {"engine": "trimtab"}
    else:
        configuration["compression"] = {"enabled": False}
    (folder / "config.yaml").write_text(json.dumps(configuration))  # JSON is YAML
    script = str(ROOT / "benchmarks" / "doors" / "measured_hermes.py")
    words = ["chat", "-Q", "--yolo", "-q", PROMPT]
    return [str(find_hermes()), script, *words], {"TERMINAL_ENV": "local"}


def _set_up_opencode(
    home: Path, url: str, life: Life, with_trimtab: bool
) -> tuple[list[str], dict[str, str]]:
    limit = {"context": life.believed or life.window, "output": 8_000}
    model = f"anthropic/{CLAUDE}"
    provider = {
        "options": {"baseURL": f"{url}/v1", "apiKey": "sk-ant-x"},
        "models": {CLAUDE: {"limit": limit}},
    }
    configuration: dict[str, Any] = {
        "provider": {"anthropic": provider},
        "model": model,
        "small_model": model,
        "permission": {"*": "allow"},
        "autoupdate": False,
        "share": "disabled",
    }
    if with_trimtab:
        configuration["plugin"] = [f"file://{ROOT / 'plugins' / 'opencode'}"]
    else:
        configuration["compaction"] = {"auto": False, "prune": False}
    path = home / "opencode.json"
    path.write_text(json.dumps(configuration))
    find_npm_package("opencode-ai")
    program = find_platform_package("opencode") / "bin" / "opencode"
    switches = ("MODELS_FETCH", "AUTOUPDATE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD")
    variables = {f"OPENCODE_DISABLE_{name}": "1" for name in switches}
    variables |= {"OPENCODE_CONFIG": str(path), **_use_measured_sidecar()}
    return [str(program), "run", "--model", model, PROMPT], variables


def _set_up_pi(
    home: Path, url: str, life: Life, with_trimtab: bool
) -> tuple[list[str], dict[str, str]]:
    folder = home / ".pi" / "agent"
    folder.mkdir(parents=True)
    override = {"contextWindow": life.believed or life.window, "maxTokens": 8_000}
    models = {"anthropic": {"baseUrl": url, "modelOverrides": {CLAUDE: override}}}
    (folder / "models.json").write_text(json.dumps({"providers": models}))
    settings: dict[str, Any] = {} if with_trimtab else {"compaction": {"enabled": False}}
    if with_trimtab:
        settings["packages"] = [str(ROOT / "plugins" / "pi")]
    (folder / "settings.json").write_text(json.dumps(settings))
    program = find_npm_package("@earendil-works/pi-coding-agent") / "dist" / "cli.js"
    words = ["-p", "--provider", "anthropic", "--model", CLAUDE, "--thinking", "off", PROMPT]
    variables = {"ANTHROPIC_API_KEY": "sk-ant-x", "PI_OFFLINE": "1", **_use_measured_sidecar()}
    return [str(find_node()), str(program), *words], variables


def _use_measured_sidecar() -> dict[str, str]:
    script = ROOT / "benchmarks" / "doors" / "measured_sidecar.py"
    return {"TRIMTAB_COMMAND": f"{sys.executable} {script}"}


AGENTS = (
    Agent(
        name="hermes",
        dialect="openai_chat",
        read_tool="read_file",
        find=find_hermes,
        set_up=_set_up_hermes,
    ),
    Agent(
        name="opencode",
        read_tool="read",
        path_key="filePath",
        find=lambda: find_npm_package("opencode-ai"),
        set_up=_set_up_opencode,
    ),
    Agent(
        name="pi",
        read_tool="read",
        find=lambda: find_npm_package("@earendil-works/pi-coding-agent"),
        set_up=_set_up_pi,
    ),
)
