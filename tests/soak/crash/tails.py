"""Files that were damaged: cut, garbled or gone. What stands before the damage must be there.

Such damage is not what a killed process leaves; a machine that loses power may.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.soak.crash.files import NAME, Place
from tests.soak.crash.ledger import Ledger, Ledgers
from tests.soak.crash.look import looked, read_or_refused

MADE = ("events.end", "state.yaml", "index.db")
"""What can be made again from the log."""

Damage = Callable[[Path], int]
"""Does it to a session's folder; returns how many events stand before it."""


def cuts(place: Place) -> Iterator[tuple[str, Damage]]:
    """The log cut at every byte of its last batch; the index says what it said."""
    log = _log(place).read_bytes()
    start = _last_batch(log)
    before = log[:start].count(b"\n")
    for offset in range(start, len(log)):
        yield f"cut at byte {offset - start}", _cut(offset, before)


def garbage(place: Place, pick: random.Random, times: int) -> Iterator[tuple[str, Damage]]:
    """Bytes of no meaning behind the log, some with the look of a line."""
    events = _log(place).read_bytes().count(b"\n")
    for _ in range(times):
        data = pick.randbytes(pick.randint(1, 3_000))
        begun = pick.choice(
            (b"", b'{"version":1,"seq":%d,"kind":"mess' % (events + 1), b"\n", b" \n")
        )
        yield "garbage behind", _appended(begun + data, events)


def flips(place: Place, pick: random.Random, times: int) -> Iterator[tuple[str, Damage]]:
    """One bit turned over in the last line."""
    log = _log(place).read_bytes()
    line = log[:-1].rfind(b"\n") + 1
    before = log[: _last_batch(log)].count(b"\n")
    for _ in range(times):
        offset = pick.randrange(line, len(log))
        yield (
            f"bit at {offset - line}",
            _changed(offset, log[offset] ^ 1 << pick.randrange(8), before),
        )


def made_again(place: Place, pick: random.Random, times: int) -> Iterator[tuple[str, Damage]]:
    """What is made from the log is gone, empty or cut."""
    events = _log(place).read_bytes().count(b"\n")
    for name in MADE:
        yield f"{name} gone", _spoiled(name, events, None)
        yield f"{name} empty", _spoiled(name, events, 0)
        size = (_log(place).parent / name).stat().st_size
        for _ in range(times):
            kept = pick.randrange(size)
            yield f"{name} cut at {kept} of {size}", _spoiled(name, events, kept)


def survived(place: Place, name: str, damage: Damage) -> Counter[str]:
    """Damage a copy, and look at it from a fresh process."""
    whole = place.fresh().sessions[NAME].acknowledged
    before = damage(place.root / NAME)
    # The rest was acknowledged too, but bytes of it are gone: it is there as a whole, or not.
    ledgers = Ledgers({NAME: Ledger(whole[:before], batch=whole[before:])})
    flipped = name.startswith("bit at")
    if flipped and read_or_refused(place.store(), NAME)[1]:
        return Counter(damages=1, said=1)
    try:
        found = looked(place.store(), ledgers, 1)
    except RuntimeError:
        found = Counter(stuck=1)
    if flipped and found.pop("torn_batches", 0):
        found["unnoticed"] = 1  # a letter turned into another, which no JSON shows
    return Counter(damages=1) + found


def middle(place: Place, pick: random.Random, times: int) -> Counter[str]:
    """A byte that no JSON has, in a line with others behind it: the reader must be told."""
    out = Counter[str]()
    log = _log(place).read_bytes()
    for _ in range(times):
        place.fresh()
        offset = pick.randrange(_last_batch(log) - 1)
        _changed(offset, 0xFF, 0)(place.root / NAME)
        lines, error = read_or_refused(place.store(), NAME)
        out["damages"] += 1
        out["unsaid"] += bool(lines) or not error
    return +out


def _log(place: Place) -> Path:
    return place.folder / "past" / NAME / "events.jsonl"


def _last_batch(log: bytes) -> int:
    """Where the last append begins: its first line is the last that begins with no space."""
    at = len(log)
    while True:
        at = log.rfind(b"\n", 0, at - 1) + 1
        if log[at : at + 1] != b" ":
            return at


def _cut(offset: int, before: int) -> Damage:
    def damage(folder: Path) -> int:
        path = folder / "events.jsonl"
        path.write_bytes(path.read_bytes()[:offset])
        return before

    return damage


def _appended(data: bytes, events: int) -> Damage:
    def damage(folder: Path) -> int:
        with (folder / "events.jsonl").open("ab") as log:
            log.write(data)
        return events

    return damage


def _changed(offset: int, byte: int, before: int) -> Damage:
    def damage(folder: Path) -> int:
        path = folder / "events.jsonl"
        data = bytearray(path.read_bytes())
        data[offset] = byte
        path.write_bytes(data)
        return before

    return damage


def _spoiled(name: str, events: int, kept: int | None) -> Damage:
    def damage(folder: Path) -> int:
        path = folder / name
        if kept is None:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:kept])
        return events

    return damage
