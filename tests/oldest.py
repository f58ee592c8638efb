"""The oldest versions that the packages allow, each in an environment of its own.

    python -m tests.oldest                    # all, in new environments
    python -m tests.oldest clouds --reuse     # one, in the environment of the last run

Every `>=` of the named extras becomes `==`. What they need in turn is the newest, as it is for a
user who installs today. What broke is said at the end, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.frameworks import environments
from benchmarks.frameworks.environments import ROOT

TOOLS = ("httpx2", "hypothesis", "inline-snapshot", "jsonschema", "pytest")
"""What runs the tests, in the newest version."""
LEFT_OUT = (
    # What a user has with a newer SDK only, and Trimtab passes on without a need: openai counts
    # requests since 2.6, and has the options of its prompt cache since 2.45. The helper for streams
    # of 1.92 takes no tool that is not strict.
    "tests/testing/test_counting.py",
    "tests/testing/test_cache.py::test_breakpoints_are_written_and_read_exactly",
    "tests/testing/test_cache.py::test_what_another_key_or_model_has_written_is_not_read",
    "tests/testing/test_sdk_stream_helpers.py::test_the_reply_of_a_helpers_asynchronous_stream",
    # It also migrates the queue of the server, which is not in the environment of the stores.
    "tests/stores/test_postgres.py::test_the_command_migrates_and_says_what_was_done",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Oldest:
    name: str
    """Of its environment."""
    extras: Mapping[str, tuple[str, ...]]
    """By package."""
    tests: tuple[str, ...]
    packages: tuple[str, ...] = ()
    """What only the tests need."""


ENVIRONMENTS = (
    Oldest(
        name="library",
        extras={"trimtab": ("anthropic", "cli", "openai", "otel", "postgres", "report", "testing")},
        tests=(
            "tests/providers/test_sdk.py",
            "tests/providers/test_simulator.py",
            "tests/testing",
            "tests/stores",
            "tests/observe",
            "tests/replay",
            "tests/cli/test_models.py",
            "tests/cli/test_replay.py",
            "tests/cli/test_session.py",
        ),
        packages=("opentelemetry-sdk==1.30",),
    ),
    # Anthropic's clients of the clouds need a newer SDK than the others do.
    Oldest(
        name="clouds",
        extras={"trimtab": ("bedrock", "openai", "testing", "vertex")},
        tests=("tests/providers",),
    ),
    Oldest(
        name="serve",
        extras={
            "trimtab": ("anthropic", "cli", "openai", "otel", "postgres", "testing"),
            "trimtab-serve": ("agent", "client", "fleet", "serve"),
        },
        tests=(
            "tests/serve/channels/http",
            "tests/serve/metrics",
            "tests/serve/queue",
            "tests/serve/schedules",
        ),
        packages=("opentelemetry-sdk==1.30",),
    ),
)


def oldest_requirements(oldest: Oldest) -> Iterator[str]:
    for package, extras in oldest.extras.items():
        project = tomllib.loads((ROOT / "packages" / package / "pyproject.toml").read_text("utf-8"))
        extras_of_package = project["project"]["optional-dependencies"]
        for extra in extras:
            for requirement in extras_of_package[extra]:
                if not requirement.startswith("trimtab"):
                    yield requirement.replace(">=", "==")


def find_faults(oldest: Oldest, *, reuse: bool) -> Iterator[str]:
    """Run the tests, and say which broke."""
    requirements = list(dict.fromkeys(oldest_requirements(oldest)))
    print(f"\n== {oldest.name}: {' '.join(requirements)}", flush=True)
    ours = [f"--editable={ROOT / 'packages' / name}" for name in {"trimtab", *oldest.extras}]
    try:
        python = environments.make(
            environments.folder_of(f"oldest-{oldest.name}"),
            [*ours, *requirements, *oldest.packages, *TOOLS],
            newest=not reuse,
        )
    except environments.Absent as absent:
        yield f"its environment could not be made: {absent}"
        return
    options = ["-q", "-rfE", "--tb=short", "-p", "no:cacheprovider"]
    # An old package beside a new one may use what the new one will remove.
    options += ["-W", "default::DeprecationWarning"]
    # Processes of their own import everything, also what is not in this environment.
    options += ["-m", "not soak and not process"]
    options += [f"--deselect={test}" for test in LEFT_OUT]
    tests = subprocess.run(
        [python, "-m", "pytest", *options, *oldest.tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(tests.stdout[-6_000:], flush=True)
    lines = tests.stdout.splitlines()
    broken = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if tests.returncode:
        yield from broken or [f"pytest ended with status {tests.returncode}"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="which environments; all if none is named")
    parser.add_argument("--reuse", action="store_true", help="use environments that are there")
    options = parser.parse_args()
    broken: list[str] = []
    for oldest in ENVIRONMENTS:
        if not options.names or oldest.name in options.names:
            broken += [
                f"{oldest.name}: {fault}" for fault in find_faults(oldest, reuse=options.reuse)
            ]
    for line in broken:
        print(f"BROKEN: {line}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
