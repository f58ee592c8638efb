"""Programs that print too much, never end, or leave others behind."""

import asyncio
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from trimtab_serve.agent.tools import process as module
from trimtab_serve.agent.tools.process import run_process

pytestmark = [pytest.mark.anyio, pytest.mark.process]
WAIT = 30.0


async def run(command: str, cwd: Path, **own):
    how: dict[str, Any] = {
        "timeout": WAIT,
        "max_output_bytes": 10_000,
        "env": {"PATH": os.environ["PATH"]},
        **own,
    }
    return await run_process(("bash", "-c", command), cwd=cwd, **how)


def alive(pid: int) -> bool:
    """Whether it runs; one that has ended and that nobody has fetched does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def until(condition):
    """Other processes set no event: what they did is looked for, and not for ever."""
    deadline = time.monotonic() + WAIT
    while not (found := condition()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    return found


async def pid_in(file: Path) -> int:
    return int(await until(lambda: file.exists() and file.read_text().strip()))


async def test_both_streams_come_in_order_with_the_exit_status_last(tmp_path):
    ran = await run("echo one; echo two >&2; echo three; exit 3", tmp_path)
    assert ran.describe() == "one\ntwo\nthree\n[exit status 3]"


async def test_a_program_that_says_nothing_is_told_so(tmp_path):
    assert (await run("true", tmp_path)).describe() == "[no output]"
    assert (await run("kill -9 $$", tmp_path)).describe() == "[ended by signal SIGKILL]"


async def test_there_is_no_input_and_no_terminal(tmp_path):
    assert (
        await run("cat; echo read; (: < /dev/tty) 2>/dev/null || echo none", tmp_path)
    ).describe() == ("read\nnone")


async def test_a_timeout_stops_a_program_and_keeps_what_it_printed(tmp_path):
    ran = await run("echo begun; sleep 1000", tmp_path, timeout=1)
    assert (
        ran.describe()
        == "begun\n[stopped: it had not ended after 1 seconds (`timeout` in agent.yaml)]"
    )


async def test_one_that_does_not_want_to_end_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TERMINATION_GRACE_S", 0.2)
    monkeypatch.setattr(module.terminate_process_group, "__defaults__", (0.2,))
    file = tmp_path / "pid"
    ran = await run("trap '' TERM; echo $$ > pid; while :; do sleep 1; done", tmp_path, timeout=1)
    assert ran.stop_reason
    assert not alive(await pid_in(file))


async def test_an_orphan_that_holds_the_pipe_does_not_hold_the_call(tmp_path):
    begun = time.monotonic()
    ran = await run("sleep 1000 & echo $! > pid; echo done", tmp_path)
    assert (
        ran.describe() == "done\n[what it left running in the background was ended with the call]"
    )
    assert time.monotonic() - begun < WAIT / 2
    pid = await pid_in(tmp_path / "pid")
    await until(lambda: not alive(pid))


async def test_one_that_got_away_is_not_waited_for_even_if_it_prints_on(tmp_path):
    file = tmp_path / "pid"
    # Slow enough that the shell ends before too much was printed, also on a busy machine.
    flood = (
        "import os, time\nopen('pid', 'w').write(str(os.getpid()))\n"
        "while True: os.write(1, b'x' * 1000), time.sleep(0.01)"
    )
    python = f"{shlex.quote(sys.executable)} -c {shlex.quote(flood)}"
    ran = await run(f"setsid {python} & until test -s pid; do :; done; echo done", tmp_path)
    pid = await pid_in(file)
    try:
        assert ran.stop_reason is None
        assert ran.exit_status == 0
    finally:
        # Its pipe is closed: it may have ended by itself.
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


async def test_what_is_printed_at_the_very_end_is_read(tmp_path):
    for _ in range(20):
        ran = await run(
            "head -c 60000 /dev/zero | tr '\\0' x; echo end", tmp_path, max_output_bytes=100
        )
        assert ran.output.endswith("xend\n")
        assert "59,904 bytes left out" in ran.output


async def test_a_flood_is_stopped_and_told(tmp_path):
    ran = await run("yes", tmp_path, max_output_bytes=1_000)
    assert ran.stop_reason is not None
    assert ran.stop_reason.startswith("stopped: it had printed 1,0")
    assert "write to a file" in ran.stop_reason
    assert len(ran.output) < 1_200


async def test_on_cancellation_nothing_is_left_running(tmp_path):
    command = "sleep 1000 & echo $! > child; echo $$ > pid; sleep 1000"
    task = asyncio.create_task(run(command, tmp_path))
    pids = [await pid_in(tmp_path / "pid"), await pid_in(tmp_path / "child")]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not any(map(alive, pids)))


async def test_cancelled_twice_it_does_not_wait_for_the_program_to_agree(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "STOP_GRACE_S", WAIT)
    command = "trap '' TERM; echo $$ > pid; while :; do sleep 1; done"
    task = asyncio.create_task(run(command, tmp_path))
    pid = await pid_in(tmp_path / "pid")
    begun = time.monotonic()
    task.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - begun < WAIT / 2
    await until(lambda: not alive(pid))


async def test_no_file_stays_open_behind_calls(tmp_path):
    async def several():
        for _ in range(5):
            await run("echo x", tmp_path)
            with pytest.raises(FileNotFoundError):
                await run_process(
                    ("no-such-program",), cwd=tmp_path, env={}, timeout=1, max_output_bytes=10
                )

    await several()
    before = len(os.listdir("/dev/fd"))  # noqa: PTH208 - a listing of what is open now
    await several()
    assert len(os.listdir("/dev/fd")) == before  # noqa: PTH208 - as above


async def test_calls_run_side_by_side(tmp_path):
    async with asyncio.timeout(WAIT):
        first = run("until test -e b; do sleep 0.01; done; touch a; echo first", tmp_path)
        second = run("touch b; until test -e a; do sleep 0.01; done; echo second", tmp_path)
        told = [each.describe() for each in await asyncio.gather(first, second)]
    assert told == ["first", "second"]
