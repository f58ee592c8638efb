"""Callers without a key who come in numbers: connections that say nothing."""

from __future__ import annotations

import json
import resource
import sys
from contextlib import ExitStack

import pytest

from tests.attacks.target import Target, attacked, build_head, read_status

pytestmark = pytest.mark.process

DESCRIPTORS, HALF_OPEN = 512, 650
"""What the process may have, half of them for connections, and more than all of them."""
LIMITED = ("/bin/sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$0" "$@"', sys.executable)
MAX_LOG_BYTES = 1_000_000
MAX_WAIT_S = 20
"""Without a limit of connections there is no answer for as long as they are held."""


@pytest.fixture(scope="module")
def flooded(tmp_path_factory):
    with attacked(tmp_path_factory.mktemp("flooded"), python=LIMITED) as target:
        yield target


def test_connections_that_say_nothing_keep_nobody_out(flooded: Target):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = HALF_OPEN + 500
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"{needed} descriptors are needed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    try:
        with ExitStack() as held:
            for number in range(HALF_OPEN):
                wire = held.enter_context(flooded.connect(f"127.7.{number % 250}.1"))
                wire.sendall(b"GET / HTTP/1.1\r\nX: ")
            with flooded.connect("127.8.0.1") as wire:
                wire.settimeout(MAX_WAIT_S)
                wire.sendall(build_head("GET", "/healthz", None))
                assert read_status(wire) == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    flooded.server.end()
    flooded.server.until("stopped")
    assert len(json.dumps(flooded.server.heard)) < MAX_LOG_BYTES
