"""`pytest -p tests.contracts.ran`: a run fails if a test named in tests/conformance.md did not run.

Only files that the run collects count, because `.ci/tests` divides the files between three runs.
The end of the output names tests that were skipped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import pytest

from tests.contracts.test_conformance import PAGE, TEST

outcomes: dict[str, set[str]] = defaultdict(set)
"""By path and name: what its cases came to."""
collected: set[str] = set()
"""The paths of the files that this run has collected."""


def named() -> list[str]:
    """The tests of the collected files that hold a requirement."""
    tests = TEST.findall(PAGE.read_text(encoding="utf-8"))
    return sorted({f"{path}::{name}" for path, name in tests if path in collected})


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    collected.update(item.nodeid.partition("::")[0] for item in items)


def without(tests: Iterable[str], came_to: Mapping[str, set[str]]) -> tuple[list[str], list[str]]:
    """Those of the tests that were not there at all, and those that were skipped in every case."""
    absent = [test for test in tests if not came_to.get(test)]
    skipped = [test for test in tests if came_to.get(test) == {"skipped"}]
    return absent, skipped


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.skipped:
        # One that is expected to fail is reported as skipped, though it ran.
        came_to = "failed" if hasattr(report, "wasxfail") else report.outcome
        outcomes[report.nodeid.partition("[")[0]].add(came_to)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.exitstatus == pytest.ExitCode.OK and without(named(), outcomes)[0]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    absent, skipped = without(named(), outcomes)
    for told, tests in (("was not run", absent), ("was skipped here", skipped)):
        for test in tests:
            terminalreporter.write_line(f"tests/conformance.md names {test}, which {told}")
