"""What a server does while something it needs is away: the provider, the database, room on disk.

Messages are sent at a steady pace before, during and after. One that is refused is sent again with
its key until it is accepted. Afterwards each session's history is read: nothing may be lost,
doubled or out of order, and nothing may have become a dead letter. `/metrics` and `/healthz` are
asked twice a second throughout. If Prometheus is installed it scrapes the server with the alert
rules that are shipped, and what it says is noted.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import harness
from tests.serve.process.processes import Serving, free_port, serving, write_agent
from tests.serve.queue.postgres import databases
from tests.soak.crash import cluster
from trimtab.errors import TrimtabError
from trimtab.testing.server import spawn_simulated_provider
from trimtab_serve.client import Client

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yaml"
SESSIONS = 8
PACE_S = 0.5
"""Seconds between two messages, over all sessions."""
BACK_WITHIN_S = 60.0
"""Seconds within which all must be answered once the trouble is over."""
SLOWEST_S = 1.0
DISK_BYTES = 8_000_000


@dataclass
class Watched:
    """What was seen of a server."""

    slowest_s: float = 0.0
    failures: list[str] = field(default_factory=list[str])
    alerts: set[str] = field(default_factory=set[str])
    looks: int = 0


@dataclass
class Sent:
    """Texts that were accepted, by session, in the order in which they were sent."""

    texts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    refused: int = 0


async def main(*, quick: bool) -> harness.Report:
    away = 8.0 if quick else 600.0
    short = 5.0 if quick else 60.0
    report: harness.Report = {
        "sample": f"a message every {PACE_S:g} s in {SESSIONS} sessions; the provider is away for "
        f"{away:g} s, PostgreSQL and the disk for {short:g} s",
        "broken": [],
    }
    scenes = {
        "provider": lambda: without_provider(away),
        "postgres": lambda: without_postgres(short),
        "disk": lambda: without_room(short),
    }
    for name, scene in scenes.items():
        harness.progress(name)
        seen = await scene()
        if seen is None:
            report[f"{name}_skipped"] = "this machine cannot make this outage"
            continue
        report |= {f"{name}_{key}": value for key, value in seen.items()}
        report["broken"] += broken(name, seen, quick=quick)
    return report


def broken(name: str, seen: dict[str, Any], *, quick: bool) -> list[str]:
    """What must hold and did not."""
    found = [
        f"{name}: {key} is {seen[key]}"
        for key in ("lost", "doubled", "out_of_order", "dead_letters", "unanswered")
        if seen[key]
    ]
    if seen["answered_after_s"] > BACK_WITHIN_S:
        found.append(f"{name}: all was answered only after {seen['answered_after_s']} s")
    if seen["slowest_answer_s"] > SLOWEST_S or seen["failed_looks"]:
        found.append(f"{name}: /metrics or /healthz took {seen['slowest_answer_s']} s or failed")
    wanted = {"provider": "TrimtabProviderAway"}.get(name, "TrimtabStoreFails")
    if not quick and seen["alerts"] is not None and wanted not in seen["alerts"]:
        found.append(f"{name}: {wanted} did not fire")
    return found


async def without_provider(away_s: float) -> dict[str, Any]:
    """Nobody listens at the provider's address."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        write_agent(Path(folder), f"http://127.0.0.1:{port}")
        with serving(Path(folder)) as server:
            up = spawn_simulated_provider(port=port, tokenizer="estimate", keeps=False)
            up.__enter__()

            def leave() -> None:
                up.__exit__(None, None, None)

            @contextmanager
            def back() -> Generator[None]:
                with spawn_simulated_provider(port=port, tokenizer="estimate", keeps=False):
                    yield

            return await through(server, away_s, leave, back)


async def without_postgres(away_s: float) -> dict[str, Any] | None:
    """The database is shut down, and started again."""
    programs = cluster.programs()
    if programs is None:
        return None
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster.cluster(programs) as postgres,
        spawn_simulated_provider(tokenizer="estimate", keeps=False) as model,
    ):
        address = f"postgresql://{cluster.USER}@127.0.0.1:{postgres.port}/postgres"
        await databases.migrate(address)
        write_agent(Path(folder), model.url, session={"store": address})
        with serving(Path(folder)) as server:

            @contextmanager
            def back() -> Generator[None]:
                postgres.start()
                yield

            return await through(server, away_s, postgres.stop, back)


async def without_room(away_s: float) -> dict[str, Any] | None:
    """The disk of the sessions is full."""
    with (
        tempfile.TemporaryDirectory() as folder,
        spawn_simulated_provider(tokenizer="estimate", keeps=False) as model,
    ):
        sessions = Path(folder) / "sessions"
        sessions.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(sessions)]
        if not run_program(mount):
            return None
        filler = sessions / "filler"
        try:
            write_agent(Path(folder), model.url)
            with serving(Path(folder)) as server:

                def fill() -> None:
                    with filler.open("wb", buffering=0) as file, suppress(OSError):
                        while file.write(b"x" * 4_096):
                            pass

                @contextmanager
                def back() -> Generator[None]:
                    filler.unlink()
                    yield

                return await through(server, away_s, fill, back)
        finally:
            run_program(["umount", "-l", str(sessions)])


def run_program(command: list[str]) -> bool:
    """Whether it is there and succeeds."""
    if not shutil.which(command[0]):
        return False
    return not subprocess.run(command, check=False).returncode


async def through(server: Serving, away_s: float, leave: Any, back: Any) -> dict[str, Any]:
    """An outage under load, from before to after."""
    sent, watched = Sent(), Watched()
    async with Client(server.url) as client, watching(server.url, watched):
        sending = asyncio.create_task(send_steadily(client, sent))
        await asyncio.sleep(3)
        await asyncio.to_thread(leave)
        await asyncio.sleep(away_s)
        since = time.monotonic()
        with back():
            await asyncio.sleep(1)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            unanswered = await until_answered(client, sent)
            took = time.monotonic() - since
            found = await compare(client, sent)
            dead = read_metric(server.url, "trimtab_dead_letters_total")
    return {
        "messages": sum(map(len, sent.texts.values())),
        "refused_at_first": sent.refused,
        **found,
        "unanswered": unanswered,
        "dead_letters": int(dead),
        "answered_after_s": round(took, 1),
        "slowest_answer_s": round(watched.slowest_s, 3),
        "failed_looks": len(watched.failures),
        "first_failed_look": next(iter(watched.failures), ""),
        "looks": watched.looks,
        "alerts": sorted(watched.alerts) if shutil.which("prometheus") else None,
    }


async def send_steadily(client: Client, sent: Sent) -> None:
    """Until it is cancelled; what a session's message before is not accepted, the next waits."""
    tasks = [
        asyncio.create_task(_send_in(client, sent, f"s{number}", number * PACE_S))
        for number in range(SESSIONS)
    ]
    try:
        await asyncio.gather(*tasks)
    finally:
        # What was begun is brought to its end: whether it was accepted is to be known.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _send_in(client: Client, sent: Sent, name: str, delay_s: float) -> None:
    await asyncio.sleep(delay_s)
    for number in itertools.count():
        text = f"{name} says {number}."
        await asyncio.shield(_send_until_accepted(client, sent, name, text))
        await asyncio.sleep(SESSIONS * PACE_S)


async def _send_until_accepted(client: Client, sent: Sent, name: str, text: str) -> None:
    while True:
        try:
            await client.session("helper", name).send(text, key=text.replace(" ", "-"))
        except TrimtabError:
            sent.refused += 1
            await asyncio.sleep(1)
        else:
            sent.texts.setdefault(name, []).append(text)
            return


async def until_answered(client: Client, sent: Sent) -> int:
    """Wait until each session rests with a reply; returns how many do not after a while."""
    waiting = set(sent.texts)
    ends = time.monotonic() + 3 * BACK_WITHIN_S
    while waiting and time.monotonic() < ends:
        for name in [*waiting]:
            with suppress(TrimtabError):
                said = [m async for m in client.session("helper", name).history()]
                own = [m.text for m in said if m.role == "user"]
                if said and said[-1].role == "assistant" and sent.texts[name][-1] in own:
                    waiting.discard(name)
        await asyncio.sleep(0.5)
    return len(waiting)


async def compare(client: Client, sent: Sent) -> dict[str, int]:
    """What the histories say against what was accepted."""
    lost = doubled = unordered = 0
    for name, texts in sent.texts.items():
        told = [m.text async for m in client.session("helper", name).history() if m.role == "user"]
        lost += len(set(texts) - set(told))
        doubled += len(told) - len(set(told))
        kept = [text for text in told if text in set(texts)]
        unordered += kept != [text for text in texts if text in set(told)]
    return {"lost": lost, "doubled": doubled, "out_of_order": unordered}


@asynccontextmanager
async def watching(url: str, watched: Watched) -> AsyncGenerator[None]:
    """Look twice a second, and let Prometheus look as well where there is one."""
    with prometheus(url) as alerts_url:

        async def look() -> None:
            while True:
                for path in ("/metrics", "/healthz"):
                    await asyncio.to_thread(_look_once, url + path, watched)
                if alerts_url:
                    watched.alerts |= await asyncio.to_thread(_firing, alerts_url)
                await asyncio.sleep(0.5)

        looking = asyncio.create_task(look())
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)


def _look_once(url: str, watched: Watched) -> None:
    since = time.monotonic()
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - our own
            answer.read()
    except OSError as error:
        watched.failures.append(f"{url}: {error}")
    watched.looks += 1
    watched.slowest_s = max(watched.slowest_s, time.monotonic() - since)


def _firing(url: str) -> set[str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own
            alerts = json.load(answer)["data"]["alerts"]
    except OSError:
        return set()
    return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}


@contextmanager
def prometheus(url: str) -> Generator[str]:
    """A Prometheus that scrapes the server; where its alerts are, or nothing without one."""
    program = shutil.which("prometheus")
    if program is None:
        yield ""
        return
    with tempfile.TemporaryDirectory() as folder, socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
        found.close()
        config = {
            "global": {"scrape_interval": "5s", "evaluation_interval": "5s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [
                {
                    "job_name": "trimtab",
                    "static_configs": [{"targets": [url.removeprefix("http://")]}],
                }
            ],
        }
        (Path(folder) / "prometheus.yml").write_text(json.dumps(config))
        command = [
            *(program, f"--config.file={folder}/prometheus.yml"),
            *(f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"),
        ]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                yield f"http://127.0.0.1:{port}/api/v1/alerts"
            finally:
                process.kill()


def read_metric(url: str, name: str) -> float:
    """The sum of a metric's samples."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:  # noqa: S310 - our own
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


if __name__ == "__main__":
    sys.exit(harness.run(__doc__, lambda quick: asyncio.run(main(quick=quick))))
