"""The same line again and again fills no disk."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import logging

import pytest

from trimtab_serve.metrics import definitions as meters
from trimtab_serve.process import logging_setup
from trimtab_serve.process.logging_setup import MAX_LINES_PER_MINUTE, RepeatedLineFilter


class Log:
    """A logger with the filter, and a clock that is set by hand."""

    def __init__(self, name: str) -> None:
        self.now = 0.0
        self.stream = io.StringIO()
        handler = logging.StreamHandler(self.stream)
        handler.setFormatter(logging_setup.JsonLogFormatter())
        handler.addFilter(RepeatedLineFilter(lambda: self.now))
        self.logger = logging.getLogger(name)
        self.logger.handlers[:] = [handler]
        self.logger.propagate = False
        self.logger.setLevel(logging.DEBUG)

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


@pytest.fixture
def make_log():
    made: list[Log] = []

    def make(name: str) -> Log:
        made.append(Log(name))
        return made[-1]

    yield make
    for log in made:
        log.logger.handlers[:] = []
        log.logger.propagate = True
        log.logger.setLevel(logging.NOTSET)


def suppressed(name: str) -> float:
    return meters.log_lines_suppressed.labels(name)._value.get()


def test_a_few_are_written_and_the_next_one_says_how_many_were_not(make_log):
    log, before = make_log("asyncio"), suppressed("asyncio")
    error = OSError(errno.EMFILE, "Too many open files")
    for number in range(6_500):
        text = f"socket.accept() out of system resource\nsocket: <fd={number}>"  # as asyncio does
        log.logger.error(text, exc_info=error)
    assert len(log.lines()) == MAX_LINES_PER_MINUTE
    assert suppressed("asyncio") - before == 6_500 - MAX_LINES_PER_MINUTE
    log.now = 60.0
    log.logger.error("socket.accept() out of system resource\nsocket: <fd=7>")
    last = log.lines()[-1]
    assert "(6,495 more of these were left out)" in str(last["message"])
    assert last["suppressed"] == 6_495
    assert len(log.stream.getvalue()) < 10_000


def test_other_lines_and_other_sessions_are_not_left_out(make_log):
    log = make_log("trimtab.turns")
    for number in range(50):
        log.logger.warning("the turn failed: %s", "away", extra={"session": f"a/b/{number}"})
        log.logger.info("turn %d is done", number)
    assert len(log.lines()) == 100
    for _ in range(50):
        log.logger.warning("the turn failed: %s", "away", extra={"session": "a/b/1"})
    assert len(log.lines()) == 100 + MAX_LINES_PER_MINUTE - 1


def test_what_anybody_can_cause_is_limited_at_every_level(make_log):
    log = make_log("trimtab.http.anonymous")
    for number in range(400):
        status = 401 if number < 20 else 429
        log.logger.info("%s %s %s", "GET", "/v1/agents", status, extra={"event": "request"})
    assert [str(line["message"]) for line in log.lines()] == [
        *["GET /v1/agents 401"] * MAX_LINES_PER_MINUTE,
        *["GET /v1/agents 429"] * MAX_LINES_PER_MINUTE,
    ]


def test_kinds_that_are_remembered_are_bounded(make_log):
    found = RepeatedLineFilter(lambda: 0.0)
    for number in range(5_000):
        text = "x" * (number % 70) + chr(65 + number // 200) + chr(65 + number % 200)
        found.filter(logging.makeLogRecord({"name": "a", "levelno": 30, "msg": text}))
    assert len(found._windows) <= 1_000


def test_a_server_writes_its_log_through_it(capsys):
    before = logging.getLogger().handlers[:], logging.getLogger().level
    try:
        logging_setup.configure_logging(as_json=True)
        for _ in range(500):
            logging.getLogger("psycopg.pool").error("error connecting in 'pool-1': refused")
            logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
        asyncio.run(asyncio.sleep(0))
        assert len(capsys.readouterr().err.splitlines()) == 2 * MAX_LINES_PER_MINUTE
    finally:
        logging.getLogger().handlers[:] = before[0]
        logging.getLogger().setLevel(before[1])
