"""The store in files where `fcntl`, modes and offsets are missing, as on Windows."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="it imitates Windows with /proc"),
]
ROOT = Path(__file__).parents[2]


def test_a_session_lives_in_files_without_fcntl(tmp_path):
    command = [sys.executable, "-m", "tests.stores.without_posix", str(tmp_path / "sessions")]
    # A program of its own: what a warm one has imported has met POSIX already.
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.stdout == "ok\n", finished.stderr
