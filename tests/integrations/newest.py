"""Each framework in an environment of its own, with the newest versions that can be resolved.

    python -m tests.integrations.newest                    # all, in new environments
    python -m tests.integrations.newest langchain --reuse  # one, in the environment of the last run

Of a framework with a module, the tests are run, and pyright and mypy check the types of its
`user_project*.py`, both strict. Of the others, the example is run. What broke is said at the end,
by name and version, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.frameworks import environments
from benchmarks.frameworks.environments import EXAMPLES, MODULES, ROOT, Framework

SOURCE = str(ROOT / "packages" / "trimtab" / "src")
NO_TESTS = 5
"""The exit status of pytest if it has found none."""
EXAMPLE_FOLDER = ROOT / "examples" / "frameworks"
LAST_LINES = {
    "strands_agent.py": "20 turns, 60 calls, 0 refused; Strands keeps all 120 messages",
    "google_adk_agent.py": "20 turns, 60 calls, 0 refused; ADK keeps all 120 events",
    "litellm_proxy.py": "20 turns, 60 calls, 0 refused; the client keeps all 141 messages",
}
"""What each example prints last."""


def run(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([SOURCE, str(ROOT)]), **variables}
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def module_faults(framework: Framework, python: str) -> Iterator[str]:
    name = framework.name.replace("-", "_")
    folder = ROOT / "tests" / "integrations" / name
    tests = run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)])
    print(tests.stdout[-6_000:], flush=True)
    if tests.returncode:
        yield f"tests: {'there are none' if tests.returncode == NO_TESTS else 'see above'}"
    projects = sorted(folder.glob("user_project*.py"))
    if not projects:
        yield f"types: {folder.relative_to(ROOT)} has no user_project*.py"
    module = Path(SOURCE) / "trimtab" / "integrations" / f"{name}.py"
    checks = [(module, run_pyright(module, python))]
    checks += [(path, run_pyright(path, python)) for path in projects]
    checks += [(path, run_mypy(path, python)) for path in projects]
    for path, done in checks:
        print(f"{path.name}: {done.stdout.strip()[-3_000:]}", flush=True)
        if done.returncode:
            yield f"types: {path.relative_to(ROOT)}"


def run_pyright(path: Path, python: str) -> subprocess.CompletedProcess[str]:
    """What pyright says in strict mode of a file beside the framework's own types.

    The project's settings exclude what needs a framework, so a copy is checked.
    """
    with tempfile.TemporaryDirectory() as folder:
        # A copy called pydantic_ai.py would hide the framework.
        (Path(folder) / f"checked_{path.name}").write_bytes(path.read_bytes())
        settings = {"typeCheckingMode": "strict", "extraPaths": [SOURCE]}
        (Path(folder) / "pyrightconfig.json").write_text(json.dumps(settings))
        options = ["--pythonpath", python, "--project", folder]
        return run([sys.executable, "-m", "pyright", *options])


def run_mypy(path: Path, python: str) -> subprocess.CompletedProcess[str]:
    """What mypy says of a user's project in strict mode."""
    with tempfile.TemporaryDirectory() as folder:
        # Our own sources are read as those of an installed package are: not reported upon.
        options = ["--strict", "--follow-imports=silent", "--python-executable", python]
        command = [sys.executable, "-m", "mypy", *options, "--cache-dir", folder, str(path)]
        return run(command, MYPYPATH=SOURCE, PYTHONPATH="")


def example_faults(framework: Framework, python: str) -> Iterator[str]:
    start = framework.name.replace("-", "_")
    name = next(name for name in LAST_LINES if name.startswith(start))
    done = run([python, str(EXAMPLE_FOLDER / name)])
    print(done.stdout[-3_000:], flush=True)
    last = (done.stdout.splitlines() or [""])[-1]
    if done.returncode or last != LAST_LINES[name]:
        yield f"example: {name} ended with status {done.returncode} and {last[:200]!r}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="which frameworks; all if none is named")
    parser.add_argument("--reuse", action="store_true", help="use environments that are there")
    asked = parser.parse_args()
    broken: list[str] = []
    for framework in (*MODULES, *EXAMPLES):
        if asked.names and framework.name not in asked.names:
            continue
        try:
            python = environments.interpreter(framework, newest=not asked.reuse)
        except environments.Absent as absent:
            broken.append(f"{framework.name}: its environment could not be made: {absent}")
            continue
        title = f"{framework.package} {environments.versions(python)[framework.package]}"
        print(f"\n== {title}", flush=True)
        faults = module_faults if framework in MODULES else example_faults
        broken += [f"{title}: {fault}" for fault in faults(framework, python)]
    for line in broken:
        print(f"BROKEN: {line}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
