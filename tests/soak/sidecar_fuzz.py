"""What the sidecar changes in bodies that fit, and in those of which it must hide something.

    python -m tests.soak.sidecar_fuzz            # 20,000 bodies that fit, 2,000 that do not
    python -m tests.soak.sidecar_fuzz --quick    # 400 and 100

fuzzed           bodies with nothing to hide
managed          of these, bodies that were read
changed          of these, bodies that came back changed
hiding           bodies that are larger than the window
hiding_changed   of these, bodies in which something was hidden
blocks           blocks of what is sent for them
edited_blocks    of these, blocks that an edit names
damaged          bodies with a difference that no edit names: in a block, around the list, in a
                 field beside the content, in the order
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import harness
from benchmarks.doors.bodies import Bodies
from trimtab.sidecar.call import Answer
from trimtab.sidecar.sidecar import Sidecar

FUZZED, QUICK_FUZZED = 20_000, 400
HIDING, QUICK_HIDING = 2_000, 100
SEED = 39
WINDOW, SMALL_WINDOW = 900_000, 4_000
OUTPUT_WORDS = 350
HINT = "recall {handle}"
MARKS = ("recall m", "[The user's earlier messages, word for word]")
"""One of these is in every text that Trimtab writes, with `HINT`."""
CONTENT_KEYS = ("content", "output", "arguments", "tool_calls", "input")
"""What of an item an edit may change."""
SHOWN_CASES = 3


def measure(*, quick: bool) -> harness.Report:
    """Fuzz, and return the figures."""
    return asyncio.run(_fuzz(quick=quick, random_=random.Random(SEED)))  # noqa: S311 - no secret


async def _fuzz(*, quick: bool, random_: random.Random) -> harness.Report:
    sidecar, counts, cases = Sidecar(), Counter[str](), list[str]()
    fuzzed = QUICK_FUZZED if quick else FUZZED
    bodies = Bodies(random_)
    for number in range(fuzzed):
        dialect, text, _ = bodies.write()
        answer = await _ask(sidecar, text, name=f"f{number}", window=WINDOW, policy="full")
        counts["managed"] += answer.fields.get("managed", False)
        counts["changed"] += answer.fields.get("changed", False)
        if answer.fields.get("changed") or not answer.fields.get("managed"):
            cases.append(f"{dialect}: {answer.write()[:300]} for {text[:600]}")
    hiding = QUICK_HIDING if quick else HIDING
    bodies = Bodies(random_, size=OUTPUT_WORDS)
    for number in range(hiding):
        dialect, text, _ = bodies.write()
        try:
            await _check_hiding(sidecar, dialect, text, f"h{number}", counts)
        except AssertionError as error:
            counts["damaged"] += 1
            cases.append(f"{dialect}: {error}")
    await sidecar.close()
    names = ("managed", "changed", "hiding_changed", "blocks", "edited_blocks", "damaged")
    broken = [f"{name} is {counts[name]}" for name in ("changed", "damaged") if counts[name]]
    if counts["managed"] < fuzzed:
        broken.append(f"managed is {counts['managed']} of {fuzzed}")
    if not counts["hiding_changed"]:
        broken.append("nothing was hidden")
    return {
        "fuzzed": fuzzed,
        "hiding": hiding,
        **{name: counts[name] for name in names},
        "cases": cases[:SHOWN_CASES],
        "broken": broken,
    }


async def _ask(sidecar: Sidecar, text: str, *, name: str, window: int, **more: str) -> Answer:
    """Ask what to send for a body."""
    want = more.pop("want", "body")
    options = {"context_window": window, "recall": HINT, **more}
    fields = json.dumps({"conversation": name, "options": options, "want": want})
    return await sidecar.answer("fit", f'{fields[:-1]},"body":{text}}}')


async def _check_hiding(
    sidecar: Sidecar, dialect: str, text: str, name: str, counts: Counter[str]
) -> None:
    answer = await _ask(sidecar, text, name=name, window=SMALL_WINDOW, goal="cost")
    if answer.body is None:
        assert answer.fields.get("managed"), answer.write()[:300]
        return
    counts["hiding_changed"] += 1
    again = await _ask(sidecar, text, name=name, window=SMALL_WINDOW, goal="cost", want="map")
    _compare(text, answer.body, again.fields["sent"], dialect, counts)


def _compare(
    own: str, sent: str, pieces: Sequence[Any], dialect: str, counts: Counter[str]
) -> None:
    """Raise `AssertionError` if a body differs from the client's where no edit says so."""
    key = "input" if dialect == "openai_responses" else "messages"
    own_list, sent_list = _find(own, own.index("{"), key), _find(sent, 0, key)
    assert own[own.index("{") : own_list[0]] == sent[: sent_list[0]], "what is before the list"
    assert own.rstrip()[own_list[1] :] == sent[sent_list[1] :], "what is after the list"
    mine = [own[first:end] for _, first, end in _list_items(own, own_list[0])]
    theirs = [sent[first:end] for _, first, end in _list_items(sent, sent_list[0])]
    place = last = 0
    for piece in pieces:
        if "from" in piece:
            span = range(piece["from"], piece["to"])
            assert span[0] >= last, "the order"
            for at in span:
                assert theirs[place] == mine[at], f"item {at} is not the client's own"
                counts["blocks"] += len(_list_blocks(mine[at]))
                place += 1
            last = piece["to"]
            continue
        assert not piece["at"] or piece["at"][0] >= last, "the order"
        last = max([last, *(at + 1 for at in piece["at"])])
        count = len(piece["items"])
        _compare_edited([mine[at] for at in piece["at"]], theirs[place : place + count], counts)
        place += count
    assert place == len(theirs), "more items than pieces"


def _compare_edited(mine: Sequence[str], theirs: Sequence[str], counts: Counter[str]) -> None:
    known = Counter(block for item in mine for block in _list_blocks(item))
    for item in theirs:
        for block in _list_blocks(item):
            counts["blocks"] += 1
            if known[block]:
                known[block] -= 1
                continue
            assert any(mark in block for mark in MARKS), (
                f"a block that no edit names: {block[:300]}"
            )
            counts["edited_blocks"] += 1
    if len(mine) != len(theirs):
        return
    for own, sent in zip(mine, theirs, strict=True):
        for key, first, end in _list_items(own, 0):
            if key not in CONTENT_KEYS:
                assert own[first:end] in sent, f"the field {key}"


def _list_blocks(item: str) -> list[str]:
    """Return the texts of the blocks of an item; the item itself if it has none."""
    for key, first, end in _list_items(item, 0):
        if key in ("content", "tool_calls") and item[first] == "[":
            blocks = [item[a:b] for _, a, b in _list_items(item, first)]
            if blocks:
                return blocks
        del end
    return [item]


def _find(text: str, at: int, key: str) -> tuple[int, int]:
    return next((first, end) for name, first, end in _list_items(text, at) if name == key)


def _list_items(text: str, at: int) -> Iterator[tuple[str, int, int]]:
    """Yield the key, the beginning and the end of each value of an object or a list."""
    decoder = json.JSONDecoder(parse_int=str, parse_float=str)
    is_object, at = text[at] == "{", _skip(text, at + 1)
    while text[at] not in "]}":
        key = ""
        if is_object:
            key, at = decoder.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        _, end = decoder.raw_decode(text, at)
        yield key, at, end
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    while text[at] in " \t\n\r":
        at += 1
    return at


if __name__ == "__main__":
    sys.exit(harness.run(__doc__, lambda quick: measure(quick=quick)))
