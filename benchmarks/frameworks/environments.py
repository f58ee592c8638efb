"""One virtual environment for each framework, outside the repository, with the newest versions that
can be resolved: `python -m benchmarks.frameworks.environments` makes those that are missing.

They are in the folder that TRIMTAB_FRAMEWORKS names, else in the user's cache folder. A second run
uses what is there; `--newest` makes them again. For an environment of your own set a variable such
as TRIMTAB_PYTHON_OF_LANGCHAIN to its interpreter.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "TRIMTAB_FRAMEWORKS"
BESIDE = ("pytest", "hypothesis")
"""What runs the tests of a framework."""
LISTING = (
    "import importlib.metadata as m, json;"
    "print(json.dumps({d.metadata['Name'].lower(): d.version for d in m.distributions()}))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    name: str
    """Of its environment."""
    packages: tuple[str, ...]
    """What is installed; the first is the one whose version is reported."""
    extras: tuple[str, ...] = ("testing",)
    """Of `trimtab`: the simulated provider, and for a module its own."""

    @property
    def package(self) -> str:
        return self.packages[0].partition("[")[0]

    @property
    def variable(self) -> str:
        """The environment variable that names an interpreter to use instead."""
        return f"TRIMTAB_PYTHON_OF_{self.name.upper().replace('-', '_')}"


MODULES = (
    Framework(
        name="langchain",
        packages=(
            "langchain",
            "langchain-openai",
            "langchain-anthropic",
            "langgraph-checkpoint-sqlite",
        ),
        extras=("testing", "langchain"),
    ),
    Framework(
        name="pydantic-ai",
        packages=("pydantic-ai-slim[openai,anthropic]",),
        extras=("testing", "pydantic-ai"),
    ),
    Framework(
        name="openai-agents",
        packages=("openai-agents[litellm]",),
        extras=("testing", "openai-agents"),
    ),
)
"""Those that `trimtab.integrations` has a module for."""
EXAMPLES = (
    Framework(name="strands", packages=("strands-agents[openai]",)),
    Framework(name="google-adk", packages=("google-adk", "anthropic")),
    Framework(name="litellm", packages=("litellm[proxy]",)),
)
"""Those that an example shows."""


class Absent(Exception):
    """An environment that could not be made, and why."""


def folder_of(name: str) -> Path:
    named, cache = os.environ.get(VARIABLE), os.environ.get("XDG_CACHE_HOME")
    home = (Path(cache) if cache else Path.home() / ".cache") / "trimtab" / "frameworks"
    return (Path(named) if named else home) / name


def interpreter(framework: Framework, *, newest: bool = False) -> str:
    """The Python of a framework's environment. It is made if it is not there."""
    if python := os.environ.get(framework.variable):
        return python
    ours = f"{ROOT / 'packages' / 'trimtab'}[{','.join(framework.extras)}]"
    requirements = ["-e", ours, *framework.packages, *BESIDE]
    return make(folder_of(framework.name), requirements, newest=newest)


def make(folder: Path, requirements: Sequence[str], *, newest: bool = False) -> str:
    """The Python of an environment with these requirements, which is made if it is not there."""
    python = str(folder / "bin" / "python")
    done = folder / "complete"
    if newest or not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", *_without_pip(), str(folder)])
        _run([*_installer(python), "--quiet", *requirements])
        # Written last: a half-made environment is made again.
        done.touch()
    return python


def versions(python: str) -> dict[str, str]:
    """Everything that is installed in an environment."""
    return json.loads(_run([python, "-c", LISTING]))


def _has_uv() -> bool:
    return importlib.util.find_spec("uv") is not None


def _without_pip() -> list[str]:
    return ["--without-pip"] if _has_uv() else []


def _installer(python: str) -> list[str]:
    """The command that installs into an environment: uv where there is one, because it needs a
    sixth of pip's CPU."""
    if _has_uv():
        return [sys.executable, "-m", "uv", "pip", "install", "--python", python]
    return [python, "-m", "pip", "install", "--disable-pip-version-check"]


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    if done.returncode:
        raise Absent(f"{' '.join(command)}\n{done.stderr.strip()[-2000:]}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="which frameworks; all if none is named")
    parser.add_argument("--newest", action="store_true", help="make them again")
    asked = parser.parse_args()
    failed = False
    for framework in (*MODULES, *EXAMPLES):
        if asked.names and framework.name not in asked.names:
            continue
        try:
            python = interpreter(framework, newest=asked.newest)
        except Absent as absent:
            failed = True
            print(f"{framework.name}: {absent}")
            continue
        print(f"{framework.name} {versions(python)[framework.package]} {python}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
