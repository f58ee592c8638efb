"""What `trimtab serve` makes of requests that were made to trouble it.

A real server on files, a simulated provider behind it, and two kinds of requests over its socket:
those that Schemathesis makes from the OpenAPI document, half of them as it says and half against
it; and such requests with their addresses, headers and bodies bent: cut off, nested, repeated, of
another type, in no encoding, with lengths that lie. Streams are left after their first bytes.

server_errors  answers with 500 or above
crashes        connections that ended without an answer, mistakes in the server's log, and its end
undocumented   answers to Schemathesis with a status that the document does not give the operation
formless       refusals that are no problem document, but for those of requests that are no HTTP

All must be 0.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from benchmarks.harness import Report, progress, run
from tests.soak.http_served import served

CASES, QUICK = 100_000, 2_000
SEED, HANDS = 7, 2
FIGURES = ("server_errors", "crashes", "undocumented", "formless")
PATIENCE = 120.0
"""Seconds after which an answer that has not come will not."""
BATCH = 50
"""Cases of Schemathesis for one operation at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """One request, as it goes over the wire."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None
    documented: frozenset[int] = frozenset()
    """Statuses that the document gives; empty where it has nothing to say."""
    length: int | None = None
    """What it says of its length, where that is a lie."""


def from_schema(schema: Any, name: str, count: int, seed: int) -> Iterator[Shot]:
    """Cases of one operation, as Schemathesis makes them."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded
    from requests import Request

    operation = next(o.ok() for o in schema.get_all_operations() if o.ok().label == name)
    documented = frozenset(int(s) for s in operation.definition.raw["responses"] if s.isdigit())
    modes = schemathesis.GenerationMode
    found: list[Shot] = []
    for mode in (modes.POSITIVE, modes.NEGATIVE):

        @seeded(seed)
        @settings(
            max_examples=max(1, count // 2),
            deadline=None,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=[*HealthCheck],  # pyright: ignore[reportArgumentType] - its metaclass
        )
        @given(operation.as_strategy(generation_mode=mode))
        def gather(case: Any) -> None:
            sent = case.as_transport_kwargs(base_url="http://server")
            kept = {k: v for k, v in sent.items() if k not in ("timeout", "allow_redirects")}
            with suppress(ValueError, UnicodeError):  # what cannot be written down is not sent
                ready = Request(**kept).prepare()
                body: Any = ready.body
                headers = {str(k): str(v) for k, v in ready.headers.items()}
                found.append(
                    Shot(
                        method=str(ready.method),
                        path=ready.path_url,
                        headers=headers,
                        body=body.encode() if isinstance(body, str) else body,
                        documented=documented,
                    )
                )

        with suppress(Exception):  # an operation without anything to get wrong
            gather()
    yield from found


NASTY = (
    "",
    "..",
    "%00",
    "%2e%2e%2f",
    "a" * 5_000,
    "'; DROP TABLE events; --",
    "\U0001f9ad",
    "m1-m999999999999999999",
    "m" + "9" * 40,
    "-1",
    "1e9",
    "NaN",
    "null",
    "{agent}",
    "%ff%fe",
    "a/b",
    "\u202e",
)
TYPES = ("application/json", "text/plain", "", "application/xml", "APPLICATION/JSON; charset=x")
ACCEPTS = ("*/*", "text/event-stream", "text/plain", "", "image/png", "text/event-stream;q=0")


def bent(shot: Shot, dice: random.Random) -> Shot:
    """The same, bent once to three times."""
    for _ in range(dice.randint(1, 3)):
        shot = dice.choice((_path, _query, _header, _bytes, _json, _length))(shot, dice)
    return replace(shot, documented=frozenset())


def _path(shot: Shot, dice: random.Random) -> Shot:
    path, mark, query = shot.path.partition("?")
    parts = path.split("/")
    parts[dice.randrange(len(parts))] = quote(dice.choice(NASTY), safe="%{}'")
    return replace(shot, path="/" + "/".join(parts).lstrip("/") + mark + query)


def _query(shot: Shot, dice: random.Random) -> Shot:
    name = dice.choice(("after", "before", "limit", "q", "x", "", "%00"))
    mark = "&" if "?" in shot.path else "?"
    return replace(shot, path=f"{shot.path}{mark}{name}={quote(dice.choice(NASTY), safe='%')}")


def _header(shot: Shot, dice: random.Random) -> Shot:
    name, value = dice.choice(
        (
            ("Accept", dice.choice(ACCEPTS)),
            ("Content-Type", dice.choice(TYPES)),
            ("Last-Event-ID", dice.choice(("0", "1.2.3", "9" * 18, "x", "-1", "1.1.1.1"))),
            ("Idempotency-Key", dice.choice(("k", "\x7f", "a" * 300, "é"))),
            ("Authorization", dice.choice(("Bearer x", "Basic x", "Bearer \xff", ""))),
            ("Host", dice.choice(("evil.example", "", "127.0.0.1:1", "[::1]"))),
            ("Origin", dice.choice(("https://evil.example", "null", "http://[", ""))),
            ("Expect", "100-continue"),
            ("X-Long", "y" * 20_000),
        )
    )
    return replace(shot, headers={**shot.headers, name: value})


def _bytes(shot: Shot, dice: random.Random) -> Shot:
    body = bytearray(shot.body or b'{"text": "x", "key": "k"}')
    for _ in range(dice.randint(1, 8)):
        at = dice.randrange(len(body) + 1)
        match dice.randrange(4):
            case 0:
                body[at : at + 1] = bytes([dice.randrange(256)])
            case 1:
                del body[at:]
            case 2:
                body[at:at] = body[: dice.randrange(200)]
            case _:
                body[at:at] = dice.choice((b"\\ud800", b"\xff", b"\0", b'"', b"{", b"[" * 500))
    return replace(shot, body=bytes(body[:100_000]))


def _json(shot: Shot, dice: random.Random) -> Shot:
    values: tuple[Any, ...] = ("", "x", 0, -1, 2**70, 1.5, True, None, [], {}, "\ud800", "\0" * 9)
    names = ("text", "parts", "key", "name", "to", "at", "type", "mime", "data", "url", "x")
    made: Any = {dice.choice(names): dice.choice(values) for _ in range(dice.randint(0, 4))}
    for _ in range(dice.randrange(4)):
        made = dice.choice(([made] * dice.randint(1, 9), {dice.choice(names): made}))
    headers = {**shot.headers, "Content-Type": "application/json"}
    return replace(shot, headers=headers, body=json.dumps(made).encode())


def _length(shot: Shot, dice: random.Random) -> Shot:
    # Never more than is sent but beyond what is let in: the server would wait, as it must.
    return replace(shot, length=dice.choice((0, 1, 10**6, 10**12)))


class Gun:
    """Sends shots, over one connection for as long as that holds."""

    def __init__(self, url: str, key: str) -> None:
        self._place = urlsplit(url)
        self._key = key
        self._connection: HTTPConnection | None = None
        self.figures = Counter[str]()
        self.examples: list[str] = []

    def fire(self, shot: Shot) -> None:
        self.figures["cases"] += 1
        try:
            status, kind = self._send(shot)
        except (HTTPException, OSError) as error:
            self.close()
            self._note("crashes", shot, repr(error))
            return
        self.figures[f"{status // 100}xx"] += 1
        if status >= 500:
            self._note("server_errors", shot, str(status))
        if shot.documented and status not in shot.documented and status != 405:
            self._note("undocumented", shot, str(status))
        if status >= 400 and kind != "application/problem+json" and shot.documented:
            self._note("formless", shot, f"{status} {kind}")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(self, shot: Shot) -> tuple[int, str]:
        connection = self._connection
        if connection is None:
            connection = HTTPConnection(
                str(self._place.hostname), self._place.port, timeout=PATIENCE
            )
            self._connection = connection
        connection.putrequest(
            shot.method,
            _written(shot.path),
            skip_accept_encoding=True,
            skip_host="Host" in shot.headers,
        )
        own = {"Authorization": f"Bearer {self._key}", **shot.headers}
        body = shot.body or b""
        for name, value in own.items():
            if name.lower() not in ("content-length", "transfer-encoding"):
                connection.putheader(name, _written(value).encode("latin-1", "replace"))
        lie = shot.length if shot.length is not None and shot.method == "POST" else None
        if body or shot.method == "POST":
            connection.putheader("Content-Length", str(len(body) if lie is None else lie))
        connection.endheaders()
        if body and lie is None:
            with suppress(BrokenPipeError, ConnectionResetError):  # refused before it was read
                connection.send(body)
        if lie is not None and 0 < lie <= 65_536:
            connection.send(b" " * lie)
        answer = connection.getresponse()
        kind = (answer.headers.get("content-type") or "").partition(";")[0]
        if kind == "text/event-stream":
            answer.read1(200)
            self.close()
        else:
            answer.read()
            if answer.will_close or lie is not None:
                self.close()
        return answer.status, kind

    def _note(self, figure: str, shot: Shot, why: str) -> None:
        self.figures[figure] += 1
        if len(self.examples) < 5:
            self.examples.append(f"{figure}: {why}: {shot}"[:600])


def _written(text: str) -> str:
    """Without what the client library itself refuses to write."""
    return "".join(c for c in text if c >= " " and c != "\x7f")


def hand(task: tuple[str, str, Any, int, int]) -> tuple[Counter[str], list[str]]:
    """One of those who send: so many cases, half of each kind."""
    url, key, document, count, seed = task
    import schemathesis

    warnings.simplefilter("ignore")
    schema: Any = schemathesis.openapi.from_dict(document)
    names = [found.ok().label for found in schema.get_all_operations()]
    dice, gun, turn = random.Random(seed), Gun(url, key), 0  # noqa: S311 - to be repeated
    pool: list[Shot] = []
    while gun.figures["cases"] < count:
        name = names[turn % len(names)]
        for shot in from_schema(schema, name, min(BATCH, count), seed * 10_007 + turn):
            pool.append(_real(shot, dice))
            gun.fire(pool[-1])
            gun.fire(bent(dice.choice(pool), dice))
        del pool[:-2_000]
        turn += 1
    gun.close()
    return gun.figures, gun.examples


def _real(shot: Shot, dice: random.Random) -> Shot:
    """Half the time at a session that is there: what is not there is refused too soon."""
    parts = shot.path.split("/")
    if dice.random() < 0.5 and len(parts) > 3 and parts[2] == "agents":
        parts[3] = "helper"
        if len(parts) > 5:
            tail, mark, query = parts[5].partition("?")
            parts[5] = f"s{dice.randrange(4)}{mark}{query}"
            del tail
    return replace(shot, path="/".join(parts))


def main(quick: bool) -> Report:
    count = QUICK if quick else CASES
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as server:
        place = urlsplit(server.url)
        connection = HTTPConnection(str(place.hostname), place.port, timeout=60)
        connection.request("GET", "/openapi.json")
        document = json.loads(connection.getresponse().read())
        connection.close()
        document["security"] = []
        tasks = [
            (server.url, server.key, document, count // HANDS, SEED + number)
            for number in range(HANDS)
        ]
        figures, examples = Counter[str](), list[str]()
        with multiprocessing.get_context("spawn").Pool(HANDS) as pool:
            for done, shown in pool.imap_unordered(hand, tasks):
                figures += done
                examples += shown
                progress(f"{figures['cases']:,} cases")
        figures["crashes"] += len(server.faults) + (not server.runs)
        examples += [str(fault)[:600] for fault in server.faults[:5]]
        slowest = f"{server.slowest[0]:,.0f} ms: {server.slowest[1]}"
    seconds = time.monotonic() - begun
    told = {name: figures[name] for name in FIGURES}
    return {
        "sample": f"{figures['cases']:,} requests, seeds {SEED} and {SEED + 1}",
        **told,
        "answers": {name: figures[name] for name in sorted(figures) if name.endswith("xx")},
        "slowest": slowest,
        "seconds": round(seconds),
        "per_second": round(figures["cases"] / seconds),
        "broken": [f"{name} is {value}" for name, value in told.items() if value] + examples[:10],
    }


if __name__ == "__main__":
    sys.exit(run(__doc__, main, ("schemathesis", "starlette", "uvicorn", "pydantic")))
