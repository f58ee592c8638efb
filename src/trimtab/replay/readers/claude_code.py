"""Claude Code transcripts: one line for each block said, with who, when and under which message.

A reply comes as several lines of one message id, and is one message again here. Lines of
subagents, injected notes, errors made up by the client and reasoning are left out: the first are
conversations of their own, the last is not sent again in later turns. The transcript ends for us
where the agent compacted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.core.event import Usage
from trimtab.dialects import dialect
from trimtab.dialects.shapes import as_dict, objects
from trimtab.replay.conversation import Conversation
from trimtab.replay.readers.lines import Line, Unreadable, name_of, seconds, usage_of

_REASONING = ("thinking", "redacted_thinking")


@dataclass(slots=True)
class _Spoken:
    role: str
    """`user` or `assistant`."""
    content: list[dict[str, Any]]
    """Anthropic blocks."""
    at: float | None
    """Seconds since the epoch, of its first line."""
    usage: Usage | None = None
    """Of its last line: earlier ones count the output so far."""


@dataclass(slots=True)
class _Transcript:
    spoken: list[_Spoken] = field(default_factory=list[_Spoken])
    """In the order of the file."""
    by_id: dict[str, _Spoken] = field(default_factory=dict[str, _Spoken])
    """Replies by message id."""
    seen: set[str] = field(default_factory=set[str])
    """Line ids: a resumed session repeats its past."""

    def take(self, path: Path, line: Line) -> None:
        message = as_dict(line.data.get("message"))
        if message is None or "content" not in message:
            raise Unreadable(path, line.number, "expected a `message` with `content`")
        uuid = str(line.data.get("uuid") or f"line {line.number}")
        content = _blocks(message["content"])
        if uuid in self.seen or not content or message.get("model") == "<synthetic>":
            return
        self.seen.add(uuid)
        usage, key = usage_of(message.get("usage")), str(message.get("id") or uuid)
        known = self.by_id.get(key)
        if known is not None and line.data["type"] == "assistant":
            known.content += content
            known.usage = usage or known.usage
            return
        spoken = _Spoken(line.data["type"], content, seconds(line.data.get("timestamp")), usage)
        self.spoken.append(spoken)
        self.by_id[key] = spoken


def fits(line: Line) -> bool:
    return line.data.get("type") in ("user", "assistant") and "message" in line.data


def read(path: Path, lines: Iterator[Line]) -> Iterator[Conversation]:
    kept = [line for line in lines if fits(line) or _compacted(line)]
    aside = [line for line in kept if line.data.get("isSidechain")]
    # A subagent's own file has nothing but lines of the side.
    main = [line for line in kept if not line.data.get("isSidechain")] or aside
    transcript = _Transcript()
    for line in main:
        if _compacted(line):
            break
        if not line.data.get("isMeta"):
            transcript.take(path, line)
    spoken = transcript.spoken
    if spoken:
        yield Conversation(
            id=name_of(path),
            source=str(path),
            messages=tuple(
                dialect("anthropic").read({"role": one.role, "content": one.content})
                for one in spoken
            ),
            times=times_of([one.at for one in spoken]),
            usage={i: one.usage for i, one in enumerate(spoken) if one.usage} or None,
        )


def times_of(stamps: list[float | None]) -> tuple[float, ...] | None:
    """Times that never go back; None where there are none."""
    if not stamps or stamps[0] is None:
        return None
    times = [stamps[0]]
    for stamp in stamps[1:]:
        times.append(max(times[-1], stamp if stamp is not None else times[-1]))
    return tuple(times)


def _compacted(line: Line) -> bool:
    return bool(line.data.get("isCompactSummary")) or (
        line.data.get("type") == "system" and line.data.get("subtype") == "compact_boundary"
    )


def _blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [block for block in objects(content) if block.get("type") not in _REASONING]
