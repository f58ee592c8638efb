import signal

import pytest

LONGEST = 60
"""Seconds after which a test that waits for something waits in vain."""


@pytest.fixture(autouse=True)
def patience():
    def give_up(number, frame):
        raise TimeoutError(f"this test takes longer than {LONGEST} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LONGEST)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
