"""A Bot API of one bot: its chats, the updates that wait, what it was asked to do."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab.testing.telegram.chats import Chat, entities_in, user
from trimtab.testing.telegram.limits import Limits
from trimtab.testing.telegram.methods import METHODS
from trimtab.testing.telegram.refusals import NOT_FOUND, SECOND_POLL, WEBHOOK_SET, Refusal, conflict

TOKEN = "123456789:AAE-local_bot_api_token_of_thirty5ch"  # noqa: S105 - of nobody


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One call of a method."""

    method: str
    """Its name."""
    given: Mapping[str, Any]
    """Its parameters; files as bytes."""
    at: float
    """When, in seconds since the epoch."""
    refused: str | None
    """Why, in the API's words; None where it was done."""
    answer: Any = None
    """What it was answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something that goes wrong once."""

    refusal: Refusal | None = None
    """What is said; None for a connection that ends without an answer."""
    done: bool = False
    """Whether it was done nevertheless."""


@dataclass(slots=True, kw_only=True)
class Hook:
    """Where updates are pushed to."""

    url: str
    """The bot's address."""
    secret: str | None
    """What is said there."""


@dataclass(slots=True)
class BotApi:
    """All that the server knows. Safe to be used from any thread."""

    token: str = TOKEN
    """The bot's."""
    name: str = "helper_bot"
    """The bot's user name."""
    limits: Limits = field(default_factory=Limits)
    """How fast it may speak."""
    local: bool = True
    """Whether webhooks may be `http`, as with a Bot API server of one's own."""
    chats: dict[int, Chat] = field(default_factory=dict[int, Chat])
    """By id."""
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """By file id."""
    asked: list[Asked] = field(default_factory=list[Asked])
    """All calls but those of `getUpdates`."""
    hook: Hook | None = None
    """Where updates are pushed to; None where they are asked for."""
    commands: list[Any] = field(default_factory=list[Any])
    """Those that the bot has told."""
    polls: int = 0
    """Calls of `getUpdates`."""
    conflicts: int = 0
    """Of them those that another one has ended."""
    _updates: deque[dict[str, Any]] = field(default_factory=deque[dict[str, Any]])
    _troubles: dict[str, deque[Trouble]] = field(default_factory=dict[str, deque[Trouble]])
    _number: int = 1_000
    _poll: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def id(self) -> int:
        """The bot's."""
        return int(self.token.partition(":")[0])

    def me(self) -> dict[str, Any]:
        """The bot as the API shows it."""
        return user(self.id, "Helper", self.name, is_bot=True)

    def chat(self, number: int, title: str = "", **own: Any) -> Chat:
        """A chat, made where there is none: a person's, or a group's where the id is below 0."""
        with self._lock:
            if number not in self.chats:
                kind = own.pop("type", "private" if number > 0 else "supergroup")
                self.chats[number] = Chat(id=number, type=kind, title=title or "Ada", **own)
            return self.chats[number]

    def says(
        self, number: int, text: str = "", *, by: Mapping[str, Any] | None = None, **own: Any
    ) -> int:
        """Somebody writes in a chat; returns the message's id. `own` are fields of the message."""
        with self._lock:
            chat = self.chat(number)
            sender = by or user(number if number > 0 else 42, "Ada", "ada")
            message: dict[str, Any] = {
                "message_id": chat.next(),
                "date": int(time.time()),
                "chat": chat.json(),
                "from": dict(sender),
            }
            if text:
                message |= {"text": text, "entities": entities_in(text)}
            message |= own
            chat.messages[message["message_id"]] = message
            self.push({"message": message})
            return message["message_id"]

    def edits(self, number: int, message: int, text: str) -> None:
        """Somebody changes what they have said."""
        with self._lock:
            kept = self.chat(number).messages[message]
            kept |= {"text": text, "entities": entities_in(text), "edit_date": int(time.time())}
            self.push({"edited_message": kept})

    def push(self, update: Mapping[str, Any], *, number: int | None = None) -> int:
        """An update of any kind, well formed or not; returns its number."""
        with self._lock:
            if number is None:
                self._number += 1
                number = self._number
            self._updates.append({"update_id": number, **update})
            return number

    def redeliver(self, updates: Sequence[Mapping[str, Any]]) -> None:
        """Hand out updates again that were confirmed."""
        with self._lock:
            self._updates.extendleft(dict(one) for one in reversed(updates))

    def waiting(self) -> list[dict[str, Any]]:
        """Updates that nobody has confirmed."""
        with self._lock:
            return list(self._updates)

    def fail(self, method: str, *troubles: Trouble) -> None:
        """Let the next calls of a method go wrong."""
        with self._lock:
            self._troubles.setdefault(method, deque()).extend(troubles)

    def calls(self, *methods: str, done: bool = True) -> list[Asked]:
        """Calls of these methods, those that were done or all."""
        with self._lock:
            return [
                one for one in self.asked if one.method in methods and not (done and one.refused)
            ]

    def texts(self, number: int) -> list[str]:
        """What the bot's messages in a chat say now, in order."""
        with self._lock:
            found = self.chat(number).messages
            mine = [found[n] for n in sorted(found) if found[n]["from"]["id"] == self.id]
            return [one.get("text", one.get("caption", "")) for one in mine]

    def call(self, method: str, given: Mapping[str, Any]) -> tuple[Any, Trouble | None]:
        """Do what a method says; raises a refusal. With it, what goes wrong with the answer."""
        with self._lock:
            queue = self._troubles.get(method)
            trouble = queue.popleft() if queue else None
            refused: Refusal | None = None
            answer: Any = None
            try:
                if trouble is not None and trouble.refusal is not None:
                    raise trouble.refusal
                if trouble is None or trouble.done:
                    answer = self._do(method, given)
            except Refusal as refusal:
                refused = refusal
            dropped = trouble is not None and not trouble.done
            why = refused.description if refused else "dropped" if dropped else None
            self.asked.append(
                Asked(method=method, given=given, at=time.time(), refused=why, answer=answer)
            )
            if refused is not None:
                raise refused
            return answer, trouble

    def _do(self, method: str, given: Mapping[str, Any]) -> Any:
        if method not in METHODS:
            raise NOT_FOUND
        return METHODS[method](self, given)

    async def updates(
        self, given: Mapping[str, Any], gone: Callable[[], Awaitable[bool]]
    ) -> list[dict[str, Any]]:
        """What `getUpdates` answers, at the latest after its timeout, or when whoever asked is
        `gone`."""
        with self._lock:
            self.polls += 1
            if self.hook is not None:
                raise conflict(WEBHOOK_SET)
            self._poll += 1
            mine = self._poll
            self._confirm(int(given.get("offset") or 0))
        limit = min(100, max(1, int(given.get("limit") or 100)))
        ends = time.monotonic() + float(given.get("timeout") or 0)
        while True:
            with self._lock:
                if self._poll != mine:
                    self.conflicts += 1
                    raise conflict(SECOND_POLL)
                found = list(self._updates)[:limit]
            if found or time.monotonic() >= ends or await gone():
                return found
            await asyncio.sleep(0.01)

    def confirmed(self, number: int) -> None:
        """An update has arrived at the webhook."""
        with self._lock:
            kept = [one for one in self._updates if one["update_id"] != number]
            self._updates = deque(kept)

    def _confirm(self, offset: int) -> None:
        if offset < 0:
            keep = list(self._updates)[offset:]
            self._updates = deque(keep)
        elif offset:
            self._updates = deque(one for one in self._updates if not _number(one) < offset)


def _number(update: Mapping[str, Any]) -> float:
    found = update.get("update_id")
    return found if isinstance(found, int) else -1


def well_formed(token: str) -> bool:
    """Whether something looks like a token."""
    return re.fullmatch(r"\d+:[A-Za-z0-9_-]{30,}", token) is not None
