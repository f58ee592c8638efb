"""What goes wrong around a server is visible and passes: real signals, disks and databases."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

from tests import warm
from tests.serve.process.processes import free_port, serving, write_agent
from tests.serve.queue.postgres import databases
from tests.soak.crash import cluster

pytestmark = [pytest.mark.anyio, pytest.mark.process]


def get(url: str, timeout: float = 5.0) -> tuple[int, str, float]:
    """Status, body and seconds of a request."""
    since = time.monotonic()
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:  # noqa: S310 - our own
            status, body = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        status, body = error.code, error.read().decode()
    return status, body, time.monotonic() - since


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def metric(url: str, name: str) -> float:
    """The sum of a metric's samples."""
    lines = get(f"{url}/metrics")[1].splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


async def eventually(holds, seconds: float = 60.0):
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(holds):  # noqa: ASYNC110 - nobody signals it
            await asyncio.sleep(0.2)


async def texts(client, name):
    return [m.text async for m in client.session("helper", name).history()]


@pytest.mark.soak_on("postgres")
async def test_messages_for_a_provider_that_is_away_go_out_by_themselves_when_it_is_back(
    tmp_path, store
):
    port = free_port()
    write_agent(tmp_path, f"http://127.0.0.1:{port}", session={"store": store})
    with serving(tmp_path) as server:
        async with server.client() as client:
            for name in ("a", "b", "c"):
                for text in ("one", "two"):
                    await client.session("helper", name).send(text)
            opened = lambda: metric(server.url, "trimtab_provider_circuit_open{")  # noqa: E731
            await eventually(lambda: opened() == 1)
            await eventually(lambda: metric(server.url, "trimtab_turns_waiting_to_retry") == 3)
            assert metric(server.url, "trimtab_dead_letters_total") == 0
            with warm.spawn_simulated_provider(port=port, tokenizer="estimate") as remote:
                since = time.monotonic()
                await eventually(lambda: metric(server.url, "trimtab_queued_messages") == 0)
                assert time.monotonic() - since < 60
                for name in ("a", "b", "c"):
                    said = await texts(client, name)
                    assert [text for text in said if text in {"one", "two"}] == ["one", "two"]
                    assert len(said) > 2
                assert opened() == 0
                assert remote.stats()["requests"] >= 3
    levels = [line["level"] for line in server.heard if "circuit is open" in str(line)]
    assert all(level.lower() == "error" for level in levels)


async def test_sighup_takes_up_changed_agents_and_keeps_the_last_good_ones(tmp_path, simulator):
    file = write_agent(tmp_path, simulator.url)
    simulator.set_replies(["First.", "Second.", "Third."])
    with serving(tmp_path) as server:
        async with server.client() as client:
            session = await client.create_session("helper", "one")
            assert await session.ask("Hello!") == "First."
            told = yaml.safe_load(file.read_text())
            file.write_text(yaml.safe_dump({**told, "system": "You are PIRATE."}))
            server.process.send_signal(signal.SIGHUP)
            assert server.until("reloaded")["agents"] == ["helper"]
            assert await session.ask("And now?") == "Second."
            assert "PIRATE" in json.dumps(body_of(simulator, -1))
            file.write_text("model: [broken\n")
            server.process.send_signal(signal.SIGHUP)
            line = server.until("reload_failed")
            assert line["level"].lower() == "error"
            file.write_text(yaml.safe_dump({**told, "serve": {"port": 0, "retry_for": 5}}))
            server.process.send_signal(signal.SIGHUP)
            assert "serve.retry_for" in json.dumps(server.until("reload_failed"))
            assert await session.ask("Still there?") == "Third."
            assert "PIRATE" in json.dumps(body_of(simulator, -1))
        assert server.end() == 0


def body_of(simulator, number):
    return simulator.list_requests()[number]


async def test_sighup_lets_a_turn_that_runs_end_with_the_agent_it_began_with(tmp_path, simulator):
    write_agent(tmp_path, simulator.url)
    with serving(tmp_path) as server:
        async with server.client() as client:
            reloaded = False
            async for event in client.session("helper", "one").stream(
                'simulate: {"text": 60, "pace": 0.02}'
            ):
                if event.kind == "message.delta" and not reloaded:
                    server.process.send_signal(signal.SIGHUP)
                    reloaded = True
                if event.kind == "turn.finished":
                    assert event.data["reason"] == "done"
        server.until("reloaded")
        assert server.end() == 0


async def test_stop_over_http_ends_a_reply_and_a_tool_within_a_second(tmp_path, simulator):
    nap = {"kind": "command", "description": "Naps.", "command": ["sleep", "61.7"]}
    write_agent(tmp_path, simulator.url, tools={"nap": nap})
    with serving(tmp_path) as server:
        async with server.client() as client:
            for name, said in (
                ("reply", 'simulate: {"text": 400, "pace": 0.2}'),
                ("tool", 'simulate: {"calls": [{"name": "nap", "arguments": {}}]}'),
            ):
                session = client.session("helper", name)
                since = 0.0
                async for event in session.stream(said):
                    if event.kind in {"message.delta", "tool.started"} and not since:
                        since = time.monotonic()
                        assert await session.stop()
                    if event.kind == "turn.finished":
                        assert event.data["reason"] == "stopped"
                        break
                assert 0 < time.monotonic() - since < 20  # by itself it takes a minute
        assert run("pgrep", "-f", "^sleep 61.7").stdout == ""


@contextmanager
def small_disk(folder: Path):
    """A disk of one megabyte."""
    folder.mkdir()
    if os.getuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root mounts a disk")
    if run("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        yield
    finally:
        run("umount", "-l", str(folder))


def fill(file: Path) -> None:
    """Write until the disk takes no more."""
    with file.open("wb", buffering=0) as filler, suppress(OSError):
        while filler.write(b"x" * 4_096):
            pass


async def test_a_full_disk_is_told_and_counted(tmp_path, simulator):
    write_agent(tmp_path, simulator.url)
    with small_disk(tmp_path / "sessions"), serving(tmp_path) as server:
        async with server.client() as client:
            await (await client.create_session("helper", "one")).ask("Hello!")
            assert get(f"{server.url}/readyz")[0] == 200
            filler = tmp_path / "sessions" / "filler"
            fill(filler)
            status, body, _ = get(f"{server.url}/readyz")
            assert status == 503
            assert "full" in json.loads(body)["detail"]
            assert get(f"{server.url}/healthz")[0] == 200
            assert metric(server.url, 'trimtab_store_errors_total{error="StoreFull"}') >= 1
            assert server.until("store_failed")["level"].lower() == "error"
            filler.unlink()
            assert get(f"{server.url}/readyz")[0] == 200
            assert await client.session("helper", "one").ask("And now?")
        assert server.end() == 0


@pytest.mark.soak  # it waits for half a minute; test_takeover.py has a database that comes back
async def test_a_database_that_is_away_leaves_metrics_and_health_within_a_second(
    tmp_path, simulator
):
    programs = cluster.programs()
    if programs is None:
        pytest.skip("PostgreSQL's programs are not installed")
    with cluster.cluster(programs) as postgres:
        address = f"postgresql://{cluster.USER}@127.0.0.1:{postgres.port}/postgres"
        await databases.migrate(address)
        write_agent(tmp_path, simulator.url, session={"store": address})
        with serving(tmp_path) as server:
            async with server.client() as client:
                await (await client.create_session("helper", "one")).ask("Hello!")
                assert get(f"{server.url}/readyz")[0] == 200
                assert metric(server.url, "trimtab_store_reachable") == 1
                postgres.stop()
                for path in ("healthz", "metrics", "readyz"):
                    looks = [get(f"{server.url}/{path}") for _ in range(3)]
                    wanted = 503 if path == "readyz" else 200
                    assert [status for status, _, _ in looks] == [wanted] * 3
                    # This machine may be busy with other tests.
                    assert min(seconds for _, _, seconds in looks) < 1, path
                assert "store" in json.loads(get(f"{server.url}/readyz")[1])["detail"]
                assert metric(server.url, "trimtab_store_reachable") == 0
                assert get(f"{server.url}/v1/agents/helper/sessions", timeout=20)[0] == 503
                counted = metric(server.url, "trimtab_store_errors_total")
                assert counted >= 1
                postgres.start()
                await eventually(lambda: get(f"{server.url}/readyz")[0] == 200)
                assert await client.session("helper", "one").ask("And now?")
                postmaster = postgres.postmaster_pid
                children = run("pgrep", "-P", str(postmaster)).stdout.split()
                for pid in (postmaster, *map(int, children)):
                    os.kill(pid, signal.SIGSTOP)
                try:
                    for path in ("healthz", "metrics", "readyz"):
                        looks = [get(f"{server.url}/{path}") for _ in range(3)]
                        wanted = 503 if path == "readyz" else 200
                        assert [status for status, _, _ in looks] == [wanted] * 3
                        assert min(seconds for _, _, seconds in looks) < 1.2, path
                finally:
                    for pid in (postmaster, *map(int, children)):
                        os.kill(pid, signal.SIGCONT)
                await eventually(lambda: get(f"{server.url}/readyz")[0] == 200)
