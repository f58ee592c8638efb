"""A process that listens on nothing shows that it is alive."""

import asyncio
import os
import signal
from contextlib import suppress

import pytest

from tests.serve.process.processes import serving, write_agent
from trimtab_serve.process import health_file

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.mark.process
async def test_the_file_is_there_while_the_process_serves_and_gone_after_it(tmp_path):
    write_agent(tmp_path, "http://127.0.0.1:9")
    path = tmp_path / "alive"
    with serving(tmp_path, "--no-http", "--health-file", str(path)) as process:
        async with asyncio.timeout(10):
            while not path.exists():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert process.end(signal.SIGTERM) == 0
    assert not path.exists()


async def test_the_file_is_touched_again_and_again(tmp_path, monkeypatch):
    monkeypatch.setattr(health_file, "HEALTH_FILE_INTERVAL_S", 0.01)
    path = tmp_path / "alive"
    path.touch()
    os.utime(path, (1, 1))
    task = asyncio.create_task(health_file.keep_health_file_fresh(path))
    for _ in range(2):
        async with asyncio.timeout(10):
            while not path.exists() or path.stat().st_mtime == 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        os.utime(path, (1, 1))
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert not path.exists()


async def test_a_file_that_cannot_be_written_is_told_once_and_ends_nothing(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(health_file, "HEALTH_FILE_INTERVAL_S", 0)
    task = asyncio.create_task(health_file.keep_health_file_fresh(tmp_path / "missing" / "alive"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
