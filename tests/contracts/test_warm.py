"""A program that `tests/warm.py` forks is one that was started, as far as it can tell."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests import warm

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="not forked")]

LOOK = """
import asyncio, json, os, sys, threading, warnings

try:
    asyncio.get_running_loop()
    loop = True
except RuntimeError:
    loop = False
print(json.dumps({
    "argv": sys.argv[1:],
    "cwd": os.getcwd(),
    "environ": {name: os.environ.get(name) for name in ("WORD", "HOME")},
    "files": sorted(set(map(int, os.listdir("/proc/self/fd"))) & set(range(3, 900)))[:-1],
    "first": warnings.filters[0][0],
    "group": os.getpgrp() == os.getpid(),
    "input": sys.stdin.read(),
    "loop": loop,
    "name": __name__,
    "parent": os.getppid(),
    "path": sys.path[0],
    "threads": threading.active_count(),
}))
print("ä", file=sys.stderr)
sys.exit(7)
"""
FAIL = "import atexit; atexit.register(print, 'the end'); 1 / 0"
WAIT = "import time; print('ready', flush=True); time.sleep(100)"
START = {"forked": warm.Popen, "from nothing": subprocess.Popen}


@pytest.fixture(params=["-c", "-m", "file"])
def program(request, tmp_path):
    (tmp_path / "look.py").write_text(LOOK, encoding="utf-8")
    return {
        "-c": ["-c", LOOK],
        "-m": ["-m", "look"],
        "file": ["-W", "error", str(tmp_path / "look.py")],
    }[request.param]


@pytest.mark.parametrize("new_session", [True, False])
def test_it_sees_what_one_sees_that_was_started(program, new_session, tmp_path):
    told = {}
    for name, start in START.items():
        env = {"PATH": os.environ["PATH"], "WORD": "ü", "PYTHONWARNINGS": "error"}
        with start(
            [sys.executable, *program, "one", "two"],
            cwd=tmp_path,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=new_session,
        ) as process:
            out, err = process.communicate("a line")
        told[name] = (json.loads(out), err, process.returncode)
    assert told["forked"] == told["from nothing"]
    seen, err, status = told["forked"]
    assert (seen["parent"], err, status) == (os.getpid(), "ä\n", 7)


@pytest.mark.parametrize("start", START.values(), ids=START)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_it(start, number):
    with start(
        [sys.executable, "-c", WAIT], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(60) == -number


def test_one_that_fails_says_so_and_ends_in_order():
    done = warm.run([sys.executable, "-c", FAIL])
    assert (done.returncode, done.stdout) == (1, "the end\n")
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_it_has_the_files_that_it_is_passed_under_their_numbers():
    reads, writes = os.pipe()
    code = f"import os; os.write({writes}, b'here')"
    with warm.Popen([sys.executable, "-c", code], pass_fds=[writes]) as process:
        os.close(writes)
        assert os.read(reads, 10) == b"here"
    os.close(reads)
    assert process.returncode == 0
