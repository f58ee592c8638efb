"""The real agents, in fixed versions: `python -m benchmarks.doors.installed`.

They are outside the repository, in the folder that TRIMTAB_CLIENTS names, else in the user's cache
folder. npm packages need no scripts of their own: the programs for this platform come as packages.
The benchmark itself installs nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.frameworks.environments import ROOT, Absent, make, versions

VARIABLE = "TRIMTAB_CLIENTS"
NODE = "22.23.3"
"""The version of Node. pi does not run on Node 20, and npm there installs older agents."""
NPM_PACKAGES = {
    "opencode-ai": "1.18.33",
    "@earendil-works/pi-coding-agent": "0.87.1",
    "@anthropic-ai/claude-code": "2.1.326",
    "@openai/codex": "0.169.0",
}
HERMES = "0.19.0"


def folder() -> Path:
    """The folder of the agents."""
    named, cache = os.environ.get(VARIABLE), os.environ.get("XDG_CACHE_HOME")
    home = (Path(cache) if cache else Path.home() / ".cache") / "trimtab" / "clients"
    return Path(named) if named else home


def find_npm_package(name: str) -> Path:
    """The folder of an npm package in its version; `Absent` if it is not there."""
    found = folder() / "npm" / "node_modules" / name
    wanted = NPM_PACKAGES[name]
    try:
        version = json.loads((found / "package.json").read_text())["version"]
    except OSError:
        raise Absent(f"{name} is not installed: python -m benchmarks.doors.installed") from None
    if version != wanted:
        raise Absent(f"{name} is {version}, and the figures are for {wanted}")
    return found


def find_node() -> Path:
    """Node for this platform; `Absent` if it is not there."""
    program = folder() / "npm" / "node_modules" / f"node-{_platform()}" / "bin" / "node"
    if not program.exists():
        raise Absent("Node is not installed: python -m benchmarks.doors.installed")
    return program


def find_platform_package(name: str) -> Path:
    """The folder of the package with an agent's program for this platform."""
    return folder() / "npm" / "node_modules" / f"{name}-{_platform()}"


def find_hermes() -> Path:
    """The Python of Hermes' environment; `Absent` if it is not there."""
    python = folder() / "hermes" / "bin" / "python"
    if not python.exists():
        raise Absent("Hermes is not installed: python -m benchmarks.doors.installed")
    installed = versions(str(python)).get("hermes-agent")
    if installed != HERMES:
        raise Absent(f"hermes-agent is {installed}, and the figures are for {HERMES}")
    return python


def install() -> None:
    """Install what is missing."""
    npm_folder = folder() / "npm"
    npm_folder.mkdir(parents=True, exist_ok=True)
    (npm_folder / "package.json").write_text('{"private": true}')
    npm = shutil.which("npm")
    if npm is None:
        raise Absent("there is no npm")
    node = f"node-{_platform()}@{NODE}"
    listed = [node, *(f"{name}@{version}" for name, version in NPM_PACKAGES.items())]
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", *listed]
    subprocess.run(command, cwd=npm_folder, check=True)  # noqa: S603 - our own
    ours = str(ROOT / "packages" / "trimtab")
    make(folder() / "hermes", [f"hermes-agent=={HERMES}", "-e", ours])


def _platform() -> str:
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return f"{sys.platform}-{machine}"


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    install()
    for name in NPM_PACKAGES:
        print(name, find_npm_package(name))
    print("hermes-agent", find_hermes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
