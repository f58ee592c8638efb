"""What a peer would send, billed and looked through by the same rules as our own replay.

Prompts are chains of messages, each with its blocks; `trimtab.replay` takes rounds as its pieces,
which is coarser by a few blocks. References, caches, prices and the table are those of
`trimtab.replay`.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.dialects.openai_chat.codec import parse_message, serialize_history
from trimtab.engine.log.message import Message
from trimtab.engine.tokens.counter import (
    make_piecewise_counter,
    measure_message_parts,
    measure_request_head,
)
from trimtab.models.catalog import resolve_model_info
from trimtab.replay.billing import CacheRules, InputBill, PromptCacheModel, PromptPiece
from trimtab.replay.references import EarlierReference
from trimtab.replay.runner import (
    MAX_REFETCH_TOKENS,
    ConversationRun,
    ReplayedCall,
    estimate_message_times,
)
from trimtab.replay.selection import RecordedConversation

MODEL = "claude-sonnet-4-5"
WINDOW = 200_000
NAIVE = "Anthropic, naive marks"
"""Marks at the head and the last block; elsewhere the end of the call before is marked as well."""


class PeerFailed(Exception):
    """What the peer raised, or that its process ended."""


class Worker:
    """A peer's process; it answers one conversation at a time."""

    def __init__(self, python: str, adapter: str) -> None:
        script = str(Path(__file__).with_name("worker.py"))
        self._process = subprocess.Popen(  # noqa: S603 - our own worker
            [python, script, adapter],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, job: Mapping[str, Any]) -> list[Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerFailed("its process ended; run worker.py by hand to see why")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerFailed(answer["error"])
        return answer["calls"]

    def close(self) -> None:
        self._process.communicate()


@dataclass(slots=True)
class Told:
    """What a table of replay has no column for, added up over conversations."""

    refused: int = 0
    """Calls above the window or with no message: the provider would have refused them."""
    seconds: float = 0.0
    """Processor time of the peer's decisions."""


@dataclass(slots=True)
class Material:
    """One conversation, prepared once for all peers."""

    conversation: RecordedConversation
    """As recorded."""
    needs: Mapping[int, list[EarlierReference]]
    """By assistant message."""
    wires: list[dict[str, Any]] = field(init=False)
    """Its messages as Chat Completions dicts."""
    pieces: list[PromptPiece] = field(init=False)
    """The same as pieces of a prompt."""
    head: PromptPiece = field(init=False)
    """What stands before them."""
    times: list[float] = field(init=False)
    """Of each message, in seconds."""

    def __post_init__(self) -> None:
        one = self.conversation
        self.wires = serialize_history(one.messages)
        self.pieces = [_piece(message) for message in one.messages]
        head = measure_request_head(one.system, one.tools, COUNTER)
        self.head = PromptPiece(digest=b"head", tokens=head.tokens, blocks=1)
        self.times = estimate_message_times(one)

    def job(self, setup: Mapping[str, Any]) -> dict[str, Any]:
        sizes = [piece.tokens for piece in self.pieces]
        return {"setup": setup, "messages": self.wires, "sizes": sizes}


COUNTER = make_piecewise_counter(resolve_model_info(MODEL).tokenizer)


def run_of(
    material: Material,
    name: str,
    answers: Sequence[Any],
    rules: Mapping[str, CacheRules],
    told: Told,
) -> ConversationRun:
    """The peer's answers as a run that `trimtab.replay.setup_costs` adds up."""
    caches = {provider: PromptCacheModel(rule) for provider, rule in rules.items()}
    calls = [
        index
        for index, message in enumerate(material.conversation.messages)
        if message.role == "assistant" and index
    ]
    records: list[ReplayedCall] = []
    before: list[PromptPiece] = []
    for index, (sent, summarised, seconds) in zip(calls, answers, strict=True):
        kept, made = _sent(sent)
        pieces = [material.head, *_pieces(material, sent)]
        bills = _bills(caches, pieces, before, material.times[index])
        tokens = sum(piece.tokens for piece in pieces)
        told.refused += tokens > WINDOW or len(pieces) == 1
        told.seconds += seconds
        records.append(
            ReplayedCall(
                index=index,
                at=material.times[index],
                tokens=tokens,
                bill=bills,
                output=material.pieces[index].tokens,
                edits=len(made),
                broke=bool(before) and not _extends(pieces, before),
                summarised=summarised,
                sections=None,
                **_recall(material, index, kept, made),
            )
        )
        before = pieces
    return ConversationRun(
        conversation=material.conversation.id, setup=name, calls=tuple(records), cannot_fit=0
    )


def _bills(
    caches: Mapping[str, PromptCacheModel],
    pieces: list[PromptPiece],
    before: list[PromptPiece],
    now: float,
) -> dict[str, InputBill]:
    last = len(pieces) - 1
    naive = [0, last]
    # As the documentation shows for conversations: the newest user turn and the one before it.
    rolling = [0, len(before) - 1, last] if 0 < len(before) <= last else naive
    return {
        provider: cache.bill_call(pieces, naive if provider == NAIVE else rolling, now)
        for provider, cache in caches.items()
    }


def _extends(pieces: list[PromptPiece], before: list[PromptPiece]) -> bool:
    return [piece.digest for piece in pieces[: len(before)]] == [p.digest for p in before]


def _sent(sent: Sequence[Any]) -> tuple[list[tuple[int, int]], list[Message]]:
    """Ranges of recorded messages that go out as they are, and the messages that do not."""
    kept = [(one[0], one[1]) for one in sent if isinstance(one, list)]
    return kept, [_read(one) for one in sent if isinstance(one, dict)]


def _pieces(material: Material, sent: Sequence[Any]) -> list[PromptPiece]:
    out: list[PromptPiece] = []
    for one in sent:
        if isinstance(one, list):
            out += material.pieces[one[0] : one[1] + 1]
        else:
            out.append(_made_piece(json.dumps(one, sort_keys=True)))
    return out


_made_pieces: dict[str, PromptPiece] = {}


def _made_piece(key: str) -> PromptPiece:
    # A cleared result is sent again at every call: it is sized once.
    if key not in _made_pieces:
        _made_pieces[key] = _piece(_read(json.loads(key)))
    return _made_pieces[key]


def _read(wire: dict[str, Any]) -> Message:
    return parse_message(wire)


def _piece(message: Message) -> PromptPiece:
    (wire,) = serialize_history([message])
    digest = hashlib.blake2b(json.dumps(wire, sort_keys=True).encode(), digest_size=16).digest()
    tokens = sum(size.tokens for size in measure_message_parts(message, COUNTER))
    return PromptPiece(digest=digest, tokens=tokens, blocks=max(1, len(message.parts)))


def _recall(
    material: Material, index: int, kept: list[tuple[int, int]], made: list[Message]
) -> dict[str, int]:
    """As `trimtab.replay.runner` counts it: a source sent whole, or a text that still holds it."""
    names = ("needs", "seen", "far", "far_seen", "tool", "tool_seen")
    out: dict[str, int] = dict.fromkeys(names, 0)
    shown = "\n".join(_words(message) for message in made)
    lost: dict[int, int] = {}
    for need in material.needs.get(index, ()):
        whole = any(first <= at <= last for at in need.sources for first, last in kept)
        seen = whole or need.text in shown
        if not seen:
            at = need.sources[-1]
            lost[at] = material.pieces[at].tokens
        for counted, name in ((True, "needs"), (need.far, "far"), (need.tool_only, "tool")):
            out[name] += counted
            out["seen" if name == "needs" else f"{name}_seen"] += counted and seen
    return {**out, "missing": sum(min(size, MAX_REFETCH_TOKENS) for size in lost.values())}


def _words(message: Message) -> str:
    calls = [f"{call.name} {call.arguments}" for call in message.calls]
    return "\n".join([message.text, *(result.text for result in message.results), *calls])
