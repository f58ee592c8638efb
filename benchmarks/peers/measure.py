"""What a peer would send, billed and looked through by the same rules as our own replay.

Prompts are chains of messages, each with its blocks; `trimtab.replay` takes rounds as its pieces,
which is coarser by a few blocks. References, caches, prices and the figures of a row are those of
`trimtab.replay`.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.samples import CLAUDE_MODEL
from trimtab.dialects.openai_chat.codec import parse_message, serialize_history
from trimtab.engine.log.message import Message
from trimtab.engine.tokens.counter import measure_message_parts, measure_request_head
from trimtab.replay.billing import CacheRules, InputBill, PromptCacheModel, PromptPiece
from trimtab.replay.call_costs import SUMMARISER_PRICE_RATIO
from trimtab.replay.calls import MAX_REFETCH_TOKENS, ConversationRun, ReplayedCall
from trimtab.replay.needs import NO_NEEDS, CallNeeds, ShownText, count_needs, join_message_text
from trimtab.replay.prompt_scale import (
    PromptScale,
    choose_output_tokens,
    make_counter,
    with_learned_lifetime,
)
from trimtab.replay.selection import RecordedCall, RecordedConversation
from trimtab.replay.times import estimate_believed_times

COUNTER = make_counter(CLAUDE_MODEL)
COMPACTION_TOKENS = 300
"""Tokens that a provider's compaction writes: as many as the stand-in's summary has."""


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
class Material:
    """One conversation, prepared once for all peers."""

    conversation: RecordedConversation
    """As recorded."""
    needs: Mapping[int, CallNeeds]
    """By assistant message."""
    scale: PromptScale
    """What its usage says about the tokens of its prompts."""
    wires: list[dict[str, Any]] = field(init=False)
    """Its messages as Chat Completions dicts."""
    pieces: list[PromptPiece] = field(init=False)
    """The same as pieces of a prompt."""
    head: PromptPiece = field(init=False)
    """What stands before them."""

    def __post_init__(self) -> None:
        one = self.conversation
        self.wires = serialize_history(one.messages)
        self.pieces = [_build_piece(message) for message in one.messages]
        shown = measure_request_head(one.system, one.tools, COUNTER).tokens
        tokens = max(shown, self.scale.head)
        self.head = PromptPiece(digest=b"head", tokens=tokens, blocks=1)

    def build_job(self, options: Mapping[str, Any]) -> dict[str, Any]:
        ratio = self.scale.ratio
        sizes = [round(piece.tokens * ratio) for piece in self.pieces]
        head = round(self.head.tokens * ratio)
        return {"setup": options, "messages": self.wires, "sizes": sizes, "head": head}


class PeerRequest:
    """What a peer sends in one call. Nothing says for which message a changed one stands."""

    def __init__(self, sent: Sequence[Any]) -> None:
        self._ranges = [(piece[0], piece[1]) for piece in sent if isinstance(piece, list)]
        changed = (json.dumps(piece, sort_keys=True) for piece in sent if isinstance(piece, dict))
        self.changed = [_read_changed(key)[1] for key in changed]

    def is_whole(self, index: int) -> bool:
        return any(first <= index <= last for first, last in self._ranges)

    def list_changed(self, indexes: Sequence[int]) -> list[ShownText]:
        del indexes
        return self.changed


def build_run(
    material: Material,
    name: str,
    answers: Sequence[Any],
    rules_by_provider: Mapping[str, CacheRules],
    *,
    in_provider: bool,
) -> ConversationRun:
    """Return the peer's answers as a run that `trimtab.replay` adds up.

    Args:
        material: The conversation.
        name: The setup's name.
        answers: For each call what is sent, what a summariser read, and seconds.
        rules_by_provider: The cache rules that bill each call.
        in_provider: Whether the provider of the main model itself writes summaries.
    """
    one, scale = material.conversation, material.scale
    rules_by_provider = with_learned_lifetime(rules_by_provider, scale)
    first = next(iter(rules_by_provider.values()))
    times = estimate_believed_times(one, first.ttl)
    caches = {
        provider: PromptCacheModel(rules, scale.shared)
        for provider, rules in rules_by_provider.items()
    }
    indexes = [i for i, message in enumerate(one.messages) if message.role == "assistant" and i]
    records: list[ReplayedCall] = []
    before: list[PromptPiece] = []
    sent_messages = 0
    for index, (sent, summarised, _) in zip(indexes, answers, strict=True):
        request = PeerRequest(sent)
        counts, lost = count_needs(
            material.needs.get(index, NO_NEEDS), request.is_whole, request.list_changed
        )
        lost_sizes = (material.pieces[source].tokens for source in lost)
        pieces = [material.head, *_list_pieces(material, sent)]
        new_tokens = sum(
            material.pieces[message].tokens
            for message in range(sent_messages, index)
            if request.is_whole(message)
        )
        reported = one.recorded.get(index, RecordedCall()).usage
        is_empty = len(pieces) == 1
        tokens = 0 if is_empty else round(scale.ratio * sum(piece.tokens for piece in pieces))
        summary = {"summarised": summarised}
        if summarised and in_provider:
            # The model that answers writes it, and reads the prompt from its cache.
            summary = {
                "summarised": round(summarised * first.read / SUMMARISER_PRICE_RATIO),
                "written": round(COMPACTION_TOKENS / SUMMARISER_PRICE_RATIO),
            }
        records.append(
            ReplayedCall(
                index=index,
                at=times[index],
                tokens=tokens,
                head=min(tokens, round(scale.ratio * material.head.tokens)),
                new=round(scale.ratio * new_tokens),
                is_cold=not records or times[index] - records[-1].at > first.ttl,
                bill=_bill(caches, pieces, before, times[index], scale),
                output=choose_output_tokens(
                    reported, one.messages[index], material.pieces[index].tokens, scale
                ),
                edits=len(request.changed),
                broke=bool(before) and not _extends(pieces, before),
                needs=counts,
                missing=sum(min(size, MAX_REFETCH_TOKENS) for size in lost_sizes),
                **summary,
            )
        )
        before = pieces
        sent_messages = index
    return ConversationRun(conversation=one.id, setup=name, calls=tuple(records), cannot_fit=0)


def _bill(
    caches: Mapping[str, PromptCacheModel],
    pieces: list[PromptPiece],
    before: list[PromptPiece],
    now: float,
    scale: PromptScale,
) -> dict[str, InputBill]:
    last = len(pieces) - 1
    # As the documentation shows for conversations: the newest user turn and the one before it.
    marks = [0, len(before) - 1, last] if 0 < len(before) <= last else [0, last]
    return {
        provider: cache.bill_call(pieces, marks, now).scaled(
            scale.ratio, long_lived=scale.long_lived and cache.rules.style == "marks"
        )
        for provider, cache in caches.items()
    }


def _extends(pieces: list[PromptPiece], before: list[PromptPiece]) -> bool:
    return [piece.digest for piece in pieces[: len(before)]] == [p.digest for p in before]


def _list_pieces(material: Material, sent: Sequence[Any]) -> list[PromptPiece]:
    pieces: list[PromptPiece] = []
    for one in sent:
        if isinstance(one, list):
            pieces += material.pieces[one[0] : one[1] + 1]
        else:
            pieces.append(_read_changed(json.dumps(one, sort_keys=True))[0])
    return pieces


@cache
def _read_changed(key: str) -> tuple[PromptPiece, ShownText]:
    """Size and read a message that a peer made, once: a cleared result is sent at every call."""
    message = parse_message(json.loads(key))
    return _build_piece(message), ShownText(join_message_text(message))


def _build_piece(message: Message) -> PromptPiece:
    (wire,) = serialize_history([message])
    digest = hashlib.blake2b(json.dumps(wire, sort_keys=True).encode(), digest_size=16).digest()
    tokens = sum(size.tokens for size in measure_message_parts(message, COUNTER))
    return PromptPiece(digest=digest, tokens=tokens, blocks=max(1, len(message.parts)))
