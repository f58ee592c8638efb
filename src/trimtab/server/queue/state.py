"""What waits in a queue, folded from its records: messages that came in, replies that must go out.

A record is a step of its life as plain JSON values. The fold is the same for a queue in memory and
for one on files, where the records are lines of a log.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from trimtab.log.edits import erase_message_payload
from trimtab.server.queue.inbound_outbound import (
    InboundMessage,
    OutboundMessage,
    QueueRecord,
    inbound_from_record,
    inbound_to_record,
    outbound_from_record,
    outbound_to_record,
)
from trimtab.server.queue.protocol import DeadLetterSession, erase_failure_details
from trimtab.server.queue.waiting_replies import WaitingReplies

MAX_REMEMBERED_REPLY_KEYS = 10_000
"""Keys of replies that are remembered, the newest: a turn that is done again is done soon."""
MAX_UNDELIVERABLE_REPLIES = 1_000
"""Replies that will never arrive and are kept to be looked at, the newest."""
ERASING_RECORD_KINDS = ("forgotten", "erased")
"""Kinds of records by which something is to go: a log that has one holds what must not be there."""


@dataclass(slots=True)
class _SessionMessages:
    """The messages of one session."""

    messages: dict[int, tuple[InboundMessage, int]] = field(
        default_factory=dict[int, "tuple[InboundMessage, int]"]
    )
    """By number, in order, each with the bytes it takes in a log."""
    keys: set[str] = field(default_factory=set[str])
    """Of these."""


class QueueState:
    """Changed by `apply` alone, but for what is lent, which no crash need remember."""

    def __init__(self) -> None:
        self.last_number = 0
        """The last that was given."""
        self.live_bytes = 0
        """Bytes, about, that a log of what waits would take."""
        self.outbox = WaitingReplies()
        """Replies that wait."""
        self._by_session: dict[str, _SessionMessages] = {}
        self._depth = Counter[str]()
        self._dead_sessions: OrderedDict[str, DeadLetterSession] = OrderedDict()
        self._undeliverable: OrderedDict[int, tuple[OutboundMessage, str, float]] = OrderedDict()
        self._reply_keys: OrderedDict[str, None] = OrderedDict()

    def apply(self, record: QueueRecord, size: int = 0) -> None:
        """Take a step; `size` is what it takes in a log, in bytes."""
        match record["kind"]:
            case "head":
                self.last_number = max(self.last_number, record["number"])
                self._reply_keys = OrderedDict.fromkeys(record["known"])
            case "letter":
                self._add_message(inbound_from_record(record), size)
            case "finished":
                self._remove_messages(record["session"], record["taken"])
                self._add_new_replies(record["replies"], size)
            case "given_up":
                self._apply_dead_letter(record, size)
            case "revived":
                self._revive(record["session"])
            case "forgotten":
                self._forget_session(record["session"])
            case "erased":
                self._erase_messages(record["session"], {*record["positions"]}, {*record["keys"]})
            case _:
                self._apply_reply_record(record, size)

    def _apply_reply_record(self, record: QueueRecord, size: int) -> None:
        """What becomes of a reply."""
        match record["kind"]:
            case "reply":
                self._add_reply(outbound_from_record(record), size, record["until"])
            case "begun":
                for number in record["numbers"]:
                    self.outbox.change_attempts(number, 1)
            case "put_off":
                if not record["sent"]:
                    self.outbox.change_attempts(record["number"], -1)
                self.outbox.postpone(record["number"], record["until"])
            case "delivered":
                self._remove_reply(record["number"])
            case "refused":
                self._mark_undeliverable(record["number"], record["why"], record["at"])
            case kind:
                raise ValueError(f"a queue has no records of kind {kind!r}")

    def has_message(self, session: str, key: str) -> bool:
        """Whether a message with this key waits."""
        found = self._by_session.get(session)
        return found is not None and key in found.keys

    def pending(self, session: str, after: int, limit: int) -> list[InboundMessage]:
        """The messages of a session from behind a number."""
        found: list[InboundMessage] = []
        waiting = self._by_session.get(session)
        for number, (queued, _) in waiting.messages.items() if waiting is not None else ():
            if number > after:
                if len(found) >= limit:
                    break
                found.append(queued)
        return found

    def waiting_sessions(self) -> list[str]:
        """Sessions with messages, the one that waits longest first; not those given up."""
        first = {one: next(iter(kept.messages)) for one, kept in self._by_session.items()}
        return sorted(
            (one for one in first if one not in self._dead_sessions), key=first.__getitem__
        )

    def depth(self, prefix: str) -> int:
        """Messages in sessions whose ids begin so, not those given up; at once for all of them and
        for a tenant's."""
        if not prefix:
            return self._depth.total()
        if prefix.find("/") == len(prefix) - 1:
            return self._depth.get(prefix, 0)
        return sum(
            len(kept.messages)
            for one, kept in self._by_session.items()
            if one.startswith(prefix) and one not in self._dead_sessions
        )

    def oldest_waiting_at(self) -> float | None:
        """When the first of the messages that wait arrived."""
        waiting = (
            next(iter(kept.messages.items()))
            for one, kept in self._by_session.items()
            if one not in self._dead_sessions
        )
        first = min(waiting, key=lambda item: item[0], default=None)
        return None if first is None else first[1][0].at

    def dead_letters(self, prefix: str, limit: int) -> list[DeadLetterSession]:
        """What was given up, the newest first."""
        found: dict[str, DeadLetterSession] = {}
        for one, dead in self._dead_sessions.items():
            if one.startswith(prefix):
                found[one] = replace(dead, messages=self._count_messages(one))
        for reply, why, at in self._undeliverable.values():
            if reply.session.startswith(prefix):
                here = found.get(reply.session)
                before = here or DeadLetterSession(
                    session=reply.session, why=why, messages=0, at=at
                )
                found[reply.session] = replace(before, replies=before.replies + 1)
        return sorted(found.values(), key=lambda one: -one.at)[:limit]

    def dead_letter_reason(self, session: str) -> str | None:
        """Why a session's messages rest; None where none do."""
        found = self._dead_sessions.get(session)
        return found.why if found is not None and self.has_messages(session) else None

    def has_dead_letters(self, session: str) -> bool:
        """Whether there is something to revive."""
        return session in self._dead_sessions or bool(self._undeliverable_in(session))

    def has_session(self, session: str) -> bool:
        """Whether anything of a session is here."""
        if (
            self.has_messages(session)
            or self.has_dead_letters(session)
            or self.outbox.replies_in_session(session)
        ):
            return True
        return any(key.startswith(f"{session}/") for key in self._reply_keys)

    def has_messages(self, session: str) -> bool:
        """Whether any message waits."""
        return session in self._by_session

    def records(self) -> Iterator[QueueRecord]:
        """The shortest log that folds to this."""
        yield {"kind": "head", "number": self.last_number, "known": list(self._reply_keys)}
        for kept in self._by_session.values():
            for queued, _ in kept.messages.values():
                yield inbound_to_record(queued)
        for reply, until in self.outbox.all_replies():
            yield {"kind": "reply", "until": until, **outbound_to_record(reply)}
        for reply, why, at in self._undeliverable.values():
            yield {"kind": "reply", "until": 0.0, **outbound_to_record(reply)}
            yield {"kind": "refused", "number": reply.number, "why": why, "at": at}
        for dead in self._dead_sessions.values():
            yield build_dead_letter_record(dead.session, dead.why, dead.at, ())

    def _count_messages(self, session: str) -> int:
        found = self._by_session.get(session)
        return len(found.messages) if found is not None else 0

    def _add_message(self, inbound: InboundMessage, size: int) -> None:
        self.last_number = max(self.last_number, inbound.number)
        self._unrest(inbound.session)
        kept = self._by_session.setdefault(inbound.session, _SessionMessages())
        kept.messages[inbound.number] = (inbound, size)
        kept.keys.add(inbound.key)
        self._change_depth(inbound.session, 1)
        self.live_bytes += size

    def _apply_dead_letter(self, record: QueueRecord, size: int) -> None:
        session, queued = record["session"], record.get("letter")
        kept = self._by_session.get(session)
        if kept is None or (queued is not None and queued not in kept.messages):
            return
        self._unrest(session)
        self._dead_sessions[session] = DeadLetterSession(
            session=session, why=record["why"], messages=0, at=record["at"]
        )
        self._change_depth(session, -len(kept.messages))
        self._add_new_replies(record["replies"], size)

    def _unrest(self, session: str) -> None:
        """Messages that rested wait again."""
        if self._dead_sessions.pop(session, None) is not None:
            self._change_depth(session, self._count_messages(session))

    def _change_depth(self, session: str, by: int) -> None:
        tenant = _tenant_prefix(session)
        self._depth[tenant] += by
        if not self._depth[tenant]:
            del self._depth[tenant]

    def _revive(self, session: str) -> None:
        self._unrest(session)
        for number in self._undeliverable_in(session):
            reply, _, _ = self._undeliverable.pop(number)
            self.outbox.add(reply, 0)

    def _forget_session(self, session: str) -> None:
        if session in self._by_session:
            self._remove_messages(session, list(self._by_session[session].messages))
        for reply in self.outbox.replies_in_session(session):
            self._remove_reply(reply.number)
        for number in self._undeliverable_in(session):
            del self._undeliverable[number]
        for key in [key for key in self._reply_keys if key.startswith(f"{session}/")]:
            del self._reply_keys[key]

    def _erase_messages(
        self, session: str, positions: Collection[int], keys: Collection[str]
    ) -> None:
        queued_messages = self._by_session.get(session, _SessionMessages()).messages
        for number, (queued, size) in queued_messages.items():
            if queued.key in keys:
                blank = replace(queued, message=erase_message_payload(queued.message, None))
                queued_messages[number] = (blank, size)
        for reply in self.outbox.replies_in_session(session):
            if reply.seq in positions:
                self._remove_reply(reply.number)
        for number in self._undeliverable_in(session):
            reply, why, at = self._undeliverable[number]
            if reply.seq in positions:
                del self._undeliverable[number]
            else:
                self._undeliverable[number] = (reply, erase_failure_details(why), at)
        if session in self._dead_sessions:
            dead = self._dead_sessions[session]
            self._dead_sessions[session] = replace(dead, why=erase_failure_details(dead.why))

    def _add_reply(self, reply: OutboundMessage, size: int, until: float) -> None:
        self.last_number = max(self.last_number, reply.number)
        self.outbox.add(reply, size, until=until)
        self.live_bytes += size

    def _mark_undeliverable(self, number: int, why: str, at: float) -> None:
        reply = self._remove_reply(number)
        if reply is not None:
            self._undeliverable[number] = (reply, why, at)
            while len(self._undeliverable) > MAX_UNDELIVERABLE_REPLIES:
                self._undeliverable.popitem(last=False)

    def _undeliverable_in(self, session: str) -> list[int]:
        return [n for n, (reply, _, _) in self._undeliverable.items() if reply.session == session]

    def _remove_messages(self, session: str, answered: Collection[int]) -> None:
        kept = self._by_session.get(session)
        if kept is None:
            return
        self._unrest(session)
        for number in answered:
            found = kept.messages.pop(number, None)
            if found is not None:
                kept.keys.discard(found[0].key)
                self._change_depth(session, -1)
                self.live_bytes -= found[1]
        if not kept.messages:
            del self._by_session[session]

    def _add_new_replies(self, replies: Sequence[QueueRecord], size: int) -> None:
        share = size // len(replies) if replies else 0
        for each in replies:
            reply = outbound_from_record(each)
            self.last_number = max(self.last_number, reply.number)
            if reply.key in self._reply_keys:
                continue
            self._reply_keys[reply.key] = None
            if len(self._reply_keys) > MAX_REMEMBERED_REPLY_KEYS:
                self._reply_keys.popitem(last=False)
            self.outbox.add(reply, share)
            self.live_bytes += share

    def _remove_reply(self, number: int) -> OutboundMessage | None:
        found = self.outbox.remove(number)
        if found is None:
            return None
        self.live_bytes -= found[1]
        return found[0]


def build_dead_letter_record(
    session: str,
    why: str,
    at: float,
    replies: Sequence[QueueRecord],
    *,
    message_number: int | None = None,
) -> QueueRecord:
    """The record of a session that was given up; void where it names a message that is gone."""
    made = {"session": session, "why": why, "at": at, "replies": list(replies)}
    return {"kind": "given_up", **made, "letter": message_number}


def build_erasure_record(
    session: str, positions: Collection[int], keys: Collection[str]
) -> QueueRecord:
    """The record of messages that are erased."""
    return {
        "kind": "erased",
        "session": session,
        "positions": sorted(positions),
        "keys": sorted(keys),
    }


def _tenant_prefix(session: str) -> str:
    return session.partition("/")[0] + "/"
