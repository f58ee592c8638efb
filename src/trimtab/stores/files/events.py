"""Events as the lines of a log, with their large texts beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.core.event import Event, event_from_json, event_to_json
from trimtab.stores.blobs import THRESHOLD, digests, externalise, inline
from trimtab.stores.errors import Damaged
from trimtab.stores.files.blobs import fetch_blob
from trimtab.stores.files.log import LogView, parsed


class BlobGone(Damaged):
    """An event names a text that is not there; to a reader, a rewrite may just have taken it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    data: Mapping[str, Any]
    """The event as plain JSON, large texts included."""
    text: bytes
    """The line, without its end."""
    blobs: Mapping[str, str]
    """The texts that the line names, by digest."""


def to_line(event: Event) -> Line:
    """The event as `dump` has it, without what is too large for a line."""
    data, blobs = event_to_json(event), dict[str, str]()
    text = _json(data)
    # ASCII is never shorter than UTF-8: a short line has no large text.
    if len(text) > THRESHOLD:
        small, blobs = externalise(json.loads(text), THRESHOLD)
        text = _json(small) if blobs else text
    return Line(data=data, text=text, blobs=blobs)


def from_line(view: LogView, seq: int, line: bytes) -> Event:
    """The inverse of `to_line`."""
    data = parsed(line)
    if data is None or data.get("seq") != seq:
        raise view.damaged(seq)
    try:
        texts = {digest: fetch_blob(view.folder, digest) for digest in digests(data)}
    except FileNotFoundError as error:
        raise BlobGone(
            f"event {seq} of {view.path} names {error.filename}, which is not there; restore it "
            "from a backup"
        ) from error
    try:
        return event_from_json(inline(data, texts))
    except (KeyError, TypeError) as error:
        raise view.damaged(seq) from error


def _json(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":"), allow_nan=False).encode("ascii")
