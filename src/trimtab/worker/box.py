"""What waits in a mail, folded from its records: letters that came in, replies that must go out.

A record is a step of its life as plain JSON values. The fold is the same for a mail in memory and
for one on files, where the records are lines of a log.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from trimtab.core.edits import erased_message
from trimtab.worker.letters import Inbound, Outbound
from trimtab.worker.mail import Dead, without_details
from trimtab.worker.outbox import Outbox
from trimtab.worker.records import Record, from_letter, from_reply, to_letter, to_reply

KNOWN = 10_000
"""Keys of replies that are remembered, the newest: a turn that is done again is done soon."""
REFUSED = 1_000
"""Replies that will never arrive and are kept to be looked at, the newest."""
DESTROYING = ("forgotten", "erased")
"""Kinds of records by which something is to go: a log that has one holds what must not be there."""


@dataclass(slots=True)
class _Waiting:
    """The letters of one session."""

    letters: dict[int, tuple[Inbound, int]] = field(
        default_factory=dict[int, "tuple[Inbound, int]"]
    )
    """By number, in order, each with the bytes it takes in a log."""
    keys: set[str] = field(default_factory=set[str])
    """Of these."""


class Box:
    """Changed by `apply` alone, but for what is lent, which no crash need remember."""

    def __init__(self) -> None:
        self.number = 0
        """The last that was given."""
        self.live = 0
        """Bytes, about, that a log of what waits would take."""
        self.outbox = Outbox()
        """Replies that wait."""
        self._waiting: dict[str, _Waiting] = {}
        self._depth = Counter[str]()
        self._dead: OrderedDict[str, Dead] = OrderedDict()
        self._refused: OrderedDict[int, tuple[Outbound, str, float]] = OrderedDict()
        self._known: OrderedDict[str, None] = OrderedDict()

    def apply(self, record: Record, size: int = 0) -> None:
        """Take a step; `size` is what it takes in a log, in bytes."""
        match record["kind"]:
            case "head":
                self.number = max(self.number, record["number"])
                self._known = OrderedDict.fromkeys(record["known"])
            case "letter":
                self._letter(to_letter(record), size)
            case "finished":
                self._remove(record["session"], record["taken"])
                self._keep(record["replies"], size)
            case "given_up":
                self._given_up(record, size)
            case "revived":
                self._revived(record["session"])
            case "forgotten":
                self._forgotten(record["session"])
            case "erased":
                self._erased(record["session"], {*record["positions"]}, {*record["keys"]})
            case _:
                self._sending(record, size)

    def _sending(self, record: Record, size: int) -> None:
        """What becomes of a reply."""
        match record["kind"]:
            case "reply":
                self._reply(to_reply(record), size, record["until"])
            case "begun":
                for number in record["numbers"]:
                    self.outbox.raise_attempts(number, 1)
            case "put_off":
                if not record["sent"]:
                    self.outbox.raise_attempts(record["number"], -1)
                self.outbox.put_off(record["number"], record["until"])
            case "delivered":
                self._out(record["number"])
            case "refused":
                self._refuse(record["number"], record["why"], record["at"])
            case kind:
                raise ValueError(f"a mail has no records of kind {kind!r}")

    def waits(self, session: str, key: str) -> bool:
        """Whether a letter with this key waits."""
        found = self._waiting.get(session)
        return found is not None and key in found.keys

    def pending(self, session: str, after: int, limit: int) -> list[Inbound]:
        """The letters of a session from behind a number."""
        found: list[Inbound] = []
        waiting = self._waiting.get(session)
        for number, (letter, _) in waiting.letters.items() if waiting is not None else ():
            if number > after:
                if len(found) >= limit:
                    break
                found.append(letter)
        return found

    def waiting(self) -> list[str]:
        """Sessions with letters, the one that waits longest first; not those given up."""
        first = {one: next(iter(kept.letters)) for one, kept in self._waiting.items()}
        return sorted((one for one in first if one not in self._dead), key=first.__getitem__)

    def depth(self, prefix: str) -> int:
        """Letters in sessions whose ids begin so, not those given up; at once for all of them and
        for a tenant's."""
        if not prefix:
            return self._depth.total()
        if prefix.find("/") == len(prefix) - 1:
            return self._depth.get(prefix, 0)
        return sum(
            len(kept.letters)
            for one, kept in self._waiting.items()
            if one.startswith(prefix) and one not in self._dead
        )

    def dead(self, prefix: str, limit: int) -> list[Dead]:
        """What was given up, the newest first."""
        found: dict[str, Dead] = {}
        for one, dead in self._dead.items():
            if one.startswith(prefix):
                found[one] = replace(dead, letters=self._count(one))
        for reply, why, at in self._refused.values():
            if reply.session.startswith(prefix):
                here = found.get(reply.session)
                before = here or Dead(session=reply.session, why=why, letters=0, at=at)
                found[reply.session] = replace(before, replies=before.replies + 1)
        return sorted(found.values(), key=lambda one: -one.at)[:limit]

    def why_given_up(self, session: str) -> str | None:
        """Why a session's letters rest; None where none do."""
        found = self._dead.get(session)
        return found.why if found is not None and self.has_letters(session) else None

    def is_dead(self, session: str) -> bool:
        """Whether there is something to revive."""
        return session in self._dead or bool(self._refused_in(session))

    def knows(self, session: str) -> bool:
        """Whether anything of a session is here."""
        if self.has_letters(session) or self.is_dead(session) or self.outbox.of(session):
            return True
        return any(key.startswith(f"{session}/") for key in self._known)

    def has_letters(self, session: str) -> bool:
        """Whether any letter waits."""
        return session in self._waiting

    def records(self) -> Iterator[Record]:
        """The shortest log that folds to this."""
        yield {"kind": "head", "number": self.number, "known": list(self._known)}
        for kept in self._waiting.values():
            for letter, _ in kept.letters.values():
                yield from_letter(letter)
        for reply, until in self.outbox.all():
            yield {"kind": "reply", "until": until, **from_reply(reply)}
        for reply, why, at in self._refused.values():
            yield {"kind": "reply", "until": 0.0, **from_reply(reply)}
            yield {"kind": "refused", "number": reply.number, "why": why, "at": at}
        for dead in self._dead.values():
            yield given_up(dead.session, dead.why, dead.at, ())

    def _count(self, session: str) -> int:
        found = self._waiting.get(session)
        return len(found.letters) if found is not None else 0

    def _letter(self, letter: Inbound, size: int) -> None:
        self.number = max(self.number, letter.number)
        self._wake(letter.session)
        kept = self._waiting.setdefault(letter.session, _Waiting())
        kept.letters[letter.number] = (letter, size)
        kept.keys.add(letter.key)
        self._deepen(letter.session, 1)
        self.live += size

    def _given_up(self, record: Record, size: int) -> None:
        session, letter = record["session"], record.get("letter")
        kept = self._waiting.get(session)
        if kept is None or (letter is not None and letter not in kept.letters):
            return
        self._wake(session)
        self._dead[session] = Dead(session=session, why=record["why"], letters=0, at=record["at"])
        self._deepen(session, -len(kept.letters))
        self._keep(record["replies"], size)

    def _wake(self, session: str) -> None:
        """Letters that rested wait again."""
        if self._dead.pop(session, None) is not None:
            self._deepen(session, self._count(session))

    def _deepen(self, session: str, by: int) -> None:
        tenant = _tenant(session)
        self._depth[tenant] += by
        if not self._depth[tenant]:
            del self._depth[tenant]

    def _revived(self, session: str) -> None:
        self._wake(session)
        for number in self._refused_in(session):
            reply, _, _ = self._refused.pop(number)
            self.outbox.add(reply, 0)

    def _forgotten(self, session: str) -> None:
        if session in self._waiting:
            self._remove(session, list(self._waiting[session].letters))
        for reply in self.outbox.of(session):
            self._out(reply.number)
        for number in self._refused_in(session):
            del self._refused[number]
        for key in [key for key in self._known if key.startswith(f"{session}/")]:
            del self._known[key]

    def _erased(self, session: str, positions: Collection[int], keys: Collection[str]) -> None:
        letters = self._waiting.get(session, _Waiting()).letters
        for number, (letter, size) in letters.items():
            if letter.key in keys:
                blank = replace(letter, message=erased_message(letter.message, None))
                letters[number] = (blank, size)
        for reply in self.outbox.of(session):
            if reply.seq in positions:
                self._out(reply.number)
        for number in self._refused_in(session):
            reply, why, at = self._refused[number]
            if reply.seq in positions:
                del self._refused[number]
            else:
                self._refused[number] = (reply, without_details(why), at)
        if session in self._dead:
            dead = self._dead[session]
            self._dead[session] = replace(dead, why=without_details(dead.why))

    def _reply(self, reply: Outbound, size: int, until: float) -> None:
        self.number = max(self.number, reply.number)
        self.outbox.add(reply, size, until=until)
        self.live += size

    def _refuse(self, number: int, why: str, at: float) -> None:
        reply = self._out(number)
        if reply is not None:
            self._refused[number] = (reply, why, at)
            while len(self._refused) > REFUSED:
                self._refused.popitem(last=False)

    def _refused_in(self, session: str) -> list[int]:
        return [n for n, (reply, _, _) in self._refused.items() if reply.session == session]

    def _remove(self, session: str, taken: Collection[int]) -> None:
        kept = self._waiting.get(session)
        if kept is None:
            return
        self._wake(session)
        for number in taken:
            found = kept.letters.pop(number, None)
            if found is not None:
                kept.keys.discard(found[0].key)
                self._deepen(session, -1)
                self.live -= found[1]
        if not kept.letters:
            del self._waiting[session]

    def _keep(self, replies: Sequence[Record], size: int) -> None:
        share = size // len(replies) if replies else 0
        for each in replies:
            reply = to_reply(each)
            self.number = max(self.number, reply.number)
            if reply.key in self._known:
                continue
            self._known[reply.key] = None
            if len(self._known) > KNOWN:
                self._known.popitem(last=False)
            self.outbox.add(reply, share)
            self.live += share

    def _out(self, number: int) -> Outbound | None:
        found = self.outbox.remove(number)
        if found is None:
            return None
        self.live -= found[1]
        return found[0]


def given_up(
    session: str, why: str, at: float, replies: Sequence[Record], *, letter: int | None = None
) -> Record:
    """The record of a session that was given up; void where it names a letter that is gone."""
    made = {"session": session, "why": why, "at": at, "replies": list(replies)}
    return {"kind": "given_up", **made, "letter": letter}


def erased(session: str, positions: Collection[int], keys: Collection[str]) -> Record:
    """The record of messages that are erased."""
    return {
        "kind": "erased",
        "session": session,
        "positions": sorted(positions),
        "keys": sorted(keys),
    }


def _tenant(session: str) -> str:
    return session.partition("/")[0] + "/"
