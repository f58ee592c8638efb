"""What the fuzzers of chat platforms share: a model that repeats numbers, spoilt payloads, faults.

A message carries a number, and the model's reply repeats the numbers that it was shown: so it can
be seen where what was said has gone.
"""

from __future__ import annotations

import copy
import json
import logging
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from trimtab.engine.log.event import Usage
from trimtab.testing import ScriptedReply
from trimtab.testing.replies import ReplyMetadata, SeededIds
from trimtab.testing.wire_formats import get_wire_format

MODEL = "claude-sonnet-4-5"
NUMBER = re.compile(r"k(\d{6})k")
AGAIN = re.compile(r"is not stored yet|could not be stored|failed; retrying|may not have arrived")
"""What is logged where something went wrong and is tried again."""
TEXTS = (
    "hello", "", "\u0000", "*_`[", "</b>", "a" * 3_000, "😀" * 1_100, "\u202e\u200d\ufe0f",
    "# x\n> y", "```py\n1\n", "é" * 200, "| a | b |\n|---|---|\n| 1 | 2 |",
    "[x](javascript:1)", "\n\n\n",
)  # fmt: skip
JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 2, 1.5, 2**63, -(2**70), "", "2", "-1001", "../../etc", "a/b",
    "\ud800", "😀", [], [[]], {}, {"id": 2}, [None], [{}], "null", "x" * 9_000, 1e308, "²", "١٢",
)  # fmt: skip


class Echo:
    """A model that says which numbers it was shown last."""

    dialect = "anthropic"

    def __init__(self) -> None:
        self._wire, self._ids = get_wire_format(self.dialect), SeededIds("fuzz")

    async def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        newest = json.dumps(request["messages"][-1])
        numbers = dict.fromkeys(NUMBER.findall(newest))
        text = " ".join(f"k{number}k" for number in numbers) or "I see nothing."
        frame = ReplyMetadata(model=MODEL, ids=self._ids, usage=Usage(input=100, output=10))
        body = self._wire.build_reply_body(ScriptedReply(text=f"**You** said: {text}"), frame)
        for event in (
            self._wire.stream_reply_events(body, request) if request.get("stream") else [body]
        ):
            yield event

    async def close(self) -> None:
        """Nothing is held."""


class Faults(logging.Handler):
    """Counts what must not be in a log."""

    def __init__(self) -> None:
        super().__init__()
        self.found = Counter[str]()

    def emit(self, record: logging.LogRecord) -> None:
        told = record.getMessage()
        if record.levelno >= logging.ERROR or AGAIN.search(told):
            why = repr(record.exc_info[1]) if record.exc_info else told
            self.found[f"{told[:60]}: {why[-120:]}"] += 1


def spoil(
    raw: Any, pick: random.Random, *, names: Sequence[str], nests: str, junk: Sequence[Any] = JUNK
) -> None:
    """Change one thing somewhere: `names` are fields worth adding, `nests` one that goes deep."""
    at, places = raw, list(_places(raw))
    if not places:
        return  # all was taken away before
    parent, key = pick.choice(places)
    match pick.randrange(6):
        case 0 if isinstance(parent, dict):
            del parent[key]
        case 1 if isinstance(parent, dict):
            parent[pick.choice(names)] = copy.deepcopy(pick.choice(junk))
        case 2:
            other, name = pick.choice(places)
            parent[key] = copy.deepcopy(other[name])
        case 3 if isinstance(parent[key], int):
            parent[key] += pick.choice((-1, 1, 10**6, -(10**6)))
        case 4:
            for _ in range(pick.choice((3, 60))):
                at = {nests: at}
            parent[key] = copy.deepcopy(at)
        case _:
            parent[key] = copy.deepcopy(pick.choice(junk))


def _places(raw: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(raw) if isinstance(raw, dict) else range(len(raw))
    for key in keys:
        yield raw, key
        if isinstance(raw[key], dict | list):
            yield from _places(raw[key])
