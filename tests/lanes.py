"""What a test needs, and in which lane it runs: a plugin, loaded by `tests/conftest.py`.

A test that needs PostgreSQL is marked by what it asks for: a fixture below, or a parameter of that
name. A test that starts a process says so itself, `pytest.mark.process`; one that starts a process
without saying so fails, or the quick lane would slow down unnoticed.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

DATABASES = frozenset({"template", "shared_database", "database", "server"})
"""Fixtures that make a database, or look whether there is a server."""
STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})
"""What Python tells its audit hooks when a process is started."""
INCIDENTAL = frozenset({"fc-list", "file", "lsb_release", "uname"})
"""What the SDKs run once in a process to say which kind of machine it is, and matplotlib once on a
machine to find its fonts."""
LANES = {
    "quick: no service, no process": "make test",
    "slow": ".ci/run",
    "processes": ".ci/run",
    "PostgreSQL": ".ci/run",
    "long sweeps": "make thorough",
}
"""By what a lane holds: the command that runs it. `.ci/run` runs all but the last."""

_running: list[pytest.Item] = []
_started: Counter[str] = Counter()


def pytest_configure(config: pytest.Config) -> None:
    del config
    sys.addaudithook(_notice)


def _notice(event: str, arguments: tuple[Any, ...]) -> None:
    if event in STARTS and _running and _running[0].get_closest_marker("process") is None:
        what = arguments[0] if arguments and isinstance(arguments[0], str) else event
        program = os.path.basename(what)  # noqa: PTH119 - runs inside an audit hook
        if program not in INCIDENTAL:
            _started[program] += 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures: Iterable[str] = getattr(item, "fixturenames", ())
        if not DATABASES.isdisjoint(fixtures) or "postgres" in parameters(item):
            item.add_marker("postgres")
        if any(set(each.args) & parameters(item) for each in item.iter_markers("soak_on")):
            item.add_marker("soak")


def parameters(item: pytest.Item) -> set[str]:
    """The texts among the values that it was made with."""
    callspec = getattr(item, "callspec", None)
    params: dict[str, Any] = callspec.params if callspec is not None else {}
    return {value for value in params.values() if isinstance(value, str)}


def require_postgres() -> None:
    """Fail a test that makes a database and is not marked: it would slow the quick lane down."""
    if _running and "postgres" not in _running[0].keywords:
        pytest.fail("needs PostgreSQL: mark it with pytest.mark.postgres", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    _running[:] = [item]
    _started.clear()
    try:
        return (yield)
    finally:
        _running.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Any:
    result = yield
    if _started:
        programs = ", ".join(sorted(_started))
        _started.clear()
        pytest.fail(
            f"starts a process ({programs}): mark it with pytest.mark.process", pytrace=False
        )
    return result


def lane_of(item: pytest.Item) -> str:
    """The lane it belongs to; what needs several is in the last of them."""
    markers = ("soak", "postgres", "process", "slow")
    names = dict(zip(markers, reversed(LANES), strict=False))
    return next(
        (names[each] for each in markers if item.get_closest_marker(each)), next(iter(LANES))
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    config = session.config
    if not config.option.collectonly:
        return
    counts = Counter(lane_of(item) for item in session.items)
    lanes = " · ".join(f"{lane} {counts[lane]:,}" for lane in LANES)
    config.stash[_COUNTED] = f"lanes: {lanes} · together {sum(counts.values()):,}"


_COUNTED = pytest.StashKey[str]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if (line := terminalreporter.config.stash.get(_COUNTED, None)) is not None:
        terminalreporter.write_line(line)
