"""A process that serves from files is killed at random moments: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.soak.crash.points import MODES
from trimtab import check
from trimtab.engine.log.event import MessageAdded
from trimtab.session import Session
from trimtab.stores.files import FileStore
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue
from trimtab_serve.service.replies import extract_assistant_text

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[3]
SEED, KILLS = 11, 8
SESSIONS = [f"default/helper/{name}" for name in ("one", "two", "three")]
MESSAGES = 4
"""Of each session."""
PER_LIFE = 250
"""Writes of a life without an end, about."""


def script(key: str) -> str:
    """What is said, and what the model is to do about it: a tool, then words that are its own."""
    plan = {"tool_calls": 1, "then": f"Answer to {key}."}
    return f"simulate: {json.dumps(plan)}\nMessage {key}."


@contextmanager
def nursery(url: str) -> Generator[subprocess.Popen[str]]:
    """Where lives begin; `url` is the simulator's."""
    command = [sys.executable, "-m", "tests.serve.service.killed_process", url]
    pipe = subprocess.PIPE
    with warm.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def lived(process: subprocess.Popen[str], **life: Any) -> tuple[list[list[str]], int]:
    """A whole life: what was told in it, and how it ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(life) + "\n")
    process.stdin.flush()
    told: list[list[str]] = []
    for line in process.stdout:
        word, *rest = json.loads(line)
        if word == "ended":
            return told, int(rest[0])
        told.append([word, *rest])
    raise AssertionError("the process that forks has ended")


def killed(root: Path, url: str, *, seed: int, kills: int) -> int:
    """Hand in messages, those that were not acknowledged again, through many lives. Return how
    many lives were cut short."""
    pick = random.Random(seed)  # noqa: S311 - not for secrets
    waiting = [
        [session, f"{session[-3:]}{n}", script(f"{session[-3:]}{n}")]
        for n in range(MESSAGES)
        for session in SESSIONS
    ]
    made, share = 0, -(-len(waiting) // kills)
    told: list[list[str]] = []
    with nursery(url) as process:
        for number in range(kills + 1):
            last = number == kills
            messages = waiting if last else waiting[: share + pick.randint(0, share)]
            point = 0 if last else pick.randint(1, PER_LIFE)
            life = {"root": str(root), "url": url, "messages": messages}
            mode = "channel" if number % 3 == 1 and not last else pick.choice(MODES)
            told, status = lived(process, **life, point=point, mode=mode)
            kept = [rest for word, *rest in told if word == "kept"]
            waiting = [each for each in waiting if each[:2] not in kept]
            made += status == -signal.SIGKILL
            assert status == -signal.SIGKILL or told[-1] == ["quiet"], (number, status, told)
        assert told[-1] == ["quiet"]
        assert waiting == []
    return made


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def look(root: Path) -> None:
    """Judge what is there in the end."""
    store = FileStore(root / "sessions")
    queue = await SqliteMessageQueue.open(store)
    assert (await queue.depth(), await queue.list_dead_letters()) == (0, [])
    got = lines(root / "got")
    for session in SESSIONS:
        opened = await Session.open(store, session)
        said = [e.body async for e in store.events(session) if isinstance(e.body, MessageAdded)]
        keys = [body.key for body in said if body.message.role == "user"]
        assert keys == [f"{session[-3:]}{n}" for n in range(MESSAGES)]
        answered = [
            "user" if body.message.role == "user" else "reply"
            for body in said
            if body.message.role == "user" or extract_assistant_text(body.message)
        ]
        # Of messages that follow each other all but one reply would be one too many.
        runs = [(who, len([*each])) for who, each in groupby(answered)]
        assert runs[0][0] == "user"
        assert runs[-1][0] == "reply"
        assert {count for who, count in runs if who == "reply"} == {1}
        here = [each for each in got if each[0] == session]
        delivered(here, [text for body in said if (text := extract_assistant_text(body.message))])
        await opened.add({"role": "user", "content": "Well?"})
        assert check(await opened.request(), dialect_name="anthropic") == []
    await queue.close()
    await store.close()


def delivered(got: list[Any], replies: list[str]) -> None:
    """Each reply in order, once, or again with the mark of an attempt that may have arrived."""
    by_key = {key: [each for each in got if each[1] == key] for key in [each[1] for each in got]}
    assert [each[0][3] for each in by_key.values()] == replies
    for attempts in ([each[2] for each in sent] for sent in by_key.values()):
        assert attempts == sorted(set(attempts))
        assert all(attempts[1:])


def test_whenever_the_process_is_killed_each_message_is_answered_once_and_each_reply_leaves(
    tmp_path,
):
    with warm.spawn_simulated_provider(tokenizer="estimate") as remote:
        assert killed(tmp_path, remote.url, seed=SEED, kills=KILLS) >= KILLS // 2
        asyncio.run(look(tmp_path))
        assert remote.stats()["violations"] == 0
    done = Counter(lines(tmp_path / "done"))
    assert done
    assert max(done.values()) == 1


@pytest.mark.parametrize(
    "got",
    [
        [["s", "a", 0, "A"], ["s", "a", 0, "A"], ["s", "b", 0, "B"]],
        [["s", "b", 0, "B"], ["s", "a", 0, "A"]],
        [["s", "a", 0, "A"]],
    ],
    ids=["twice without a mark", "out of order", "not at all"],
)
def test_what_is_judged_can_be_found_wrong(got):
    with pytest.raises(AssertionError):
        delivered(got, ["A", "B"])
