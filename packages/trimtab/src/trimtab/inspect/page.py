"""Assemble the page of a session: one file, with its style, its script and its data.

Logs hold what others wrote. So the data is compressed and encoded, which no markup survives. The
script inserts it as text. The policy in the file forbids every request, and every script and style
but those whose hashes it names.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from html import escape
from importlib.resources import files
from typing import Any

from trimtab.inspect.text_pool import ItemChunks, pack_json, split_into_chunks
from trimtab.inspect.timeline import SECTION_KINDS, Timeline

SHARED_SCRIPTS = ("text.js",)
PAGE_SCRIPTS = (
    *SHARED_SCRIPTS, "list.js", "data.js", "changes.js", "overview.js", "timeline.js", "call.js",
    "diff.js", "message.js", "search.js", "page.js",
)  # fmt: skip
"""The files of `script/` that are one script in the page, in this order."""
CALL_COLUMNS = (
    "seq", "position", "head", "sections", "limit", "low", "marks", "volatile", "input", "output",
    "status", "note", "lost",
)  # fmt: skip
"""What the page reads of every call as it is."""
_DATA = '<script type="text/plain" id="{id}">{payload}</script>\n'


def render_page(timeline: Timeline) -> str:
    """Return the whole page of a session."""
    script = read_script(PAGE_SCRIPTS)
    texts = timeline.pool.chunks()
    bodies = split_into_chunks((block.body for block in timeline.blocks), _measure_body)
    session = {
        **_list_session_fields(timeline),
        "chunks": {"texts": texts.first_numbers, "bodies": bodies.first_numbers},
    }
    return "".join(
        [
            render_document_start(timeline.title, script),
            read_resource("page.html"),
            # The first screen needs the session alone. The rest is read while it is painted.
            _DATA.format(id="session", payload=pack_json(session)),
            f"<script>{script}</script>\n",
            _DATA.format(id="structure", payload=pack_json(_list_structure_fields(timeline))),
            *_render_chunks("texts", texts),
            *_render_chunks("bodies", bodies),
            "</body>\n</html>\n",
        ]
    )


def render_document_start(title: str, script: str) -> str:
    """Return the head of a page, with a policy that allows only its own style and script."""
    style = read_resource("page.css")
    policy = (
        f"default-src 'none'; script-src {_hash_source(script)}; "
        f"style-src {_hash_source(style)}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(make_plain_title(title))} · Trimtab</title>\n"
        f"<style>{style}</style>\n</head>\n"
    )


def read_resource(name: str) -> str:
    """Return a file of this package."""
    return files("trimtab.inspect").joinpath(name).read_text(encoding="utf-8")


def read_script(names: Iterable[str]) -> str:
    """Return files of `script/` as one script."""
    return "\n".join(read_resource(f"script/{name}") for name in names)


def make_plain_title(title: str) -> str:
    """Return a title without characters that a browser's tab would obey, and not too long."""
    plain = "".join(one if one.isprintable() else " " for one in title)
    return " ".join(plain.split())[:120] or "a session"


def _hash_source(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _measure_body(body: Any) -> int:
    return len(str(body))


def _render_chunks(name: str, chunks: ItemChunks) -> Iterator[str]:
    for index, payload in enumerate(chunks.payloads):
        yield _DATA.format(id=f"{name}-{index}", payload=payload)


def _list_session_fields(timeline: Timeline) -> dict[str, Any]:
    """Return what the first screen needs."""
    reasons = ["", *dict.fromkeys(call.lost_because for call in timeline.calls if call.lost)]
    calls = timeline.calls
    return {
        "title": timeline.title,
        "source": timeline.source,
        "note": timeline.note,
        "policy": timeline.policy,
        "isRedacted": timeline.is_redacted,
        "kinds": SECTION_KINDS,
        "messageCount": len(timeline.messages),
        "heads": [asdict(head) for head in timeline.heads],
        "reasons": reasons,
        "calls": {
            **{name: [getattr(call, name) for call in calls] for name in CALL_COLUMNS},
            "at": [None if call.at is None else round(call.at, 1) for call in calls],
            "verified": [call.is_verified for call in calls],
            "read": [call.cache_read for call in calls],
            "write": [call.cache_write for call in calls],
            "dollars": [
                None if call.dollars is None else [round(part, 8) for part in call.dollars]
                for call in calls
            ],
            "lostDollars": [round(call.lost_dollars, 8) for call in calls],
            "because": [reasons.index(call.lost_because) for call in calls],
        },
        "edits": [asdict(edit) for edit in timeline.edits],
        "names": [asdict(name) for name in timeline.names],
        "rewinds": timeline.rewinds,
    }


def _list_structure_fields(timeline: Timeline) -> dict[str, Any]:
    """Return what a call needs: which blocks it has, and where they come from."""
    blocks, messages = timeline.blocks, timeline.messages
    labels = list(dict.fromkeys(block.label for block in blocks))
    number_by_label = {label: number for number, label in enumerate(labels)}
    return {
        "labels": labels,
        "blocks": {
            "kind": [SECTION_KINDS.index(block.kind) for block in blocks],
            "seq": [block.seq for block in blocks],
            "part": [block.part for block in blocks],
            "tokens": [block.tokens for block in blocks],
            "edit": [block.edit for block in blocks],
            "label": [number_by_label[block.label] for block in blocks],
            "front": [number for number, block in enumerate(blocks) if block.has_front],
        },
        "splices": [call.splices for call in timeline.calls],
        "messages": {
            "seq": [message.seq for message in messages],
            "role": [message.role for message in messages],
            "at": [None if message.at is None else round(message.at, 1) for message in messages],
            "parts": [
                [[part.kind, part.name, part.text, part.tokens] for part in message.parts]
                for message in messages
            ],
        },
    }
