"""The Bot API of one bot: its chats, the pending updates and the recorded calls."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulators.telegram.api_errors import (
    NOT_FOUND_REFUSAL,
    SECOND_POLL_REASON,
    WEBHOOK_ACTIVE_REASON,
    TelegramRefusal,
    make_conflict_refusal,
)
from tests.simulators.telegram.chats import (
    TelegramChat,
    find_commands_and_mentions,
    make_telegram_user,
)
from tests.simulators.telegram.rate_limits import TelegramRateLimits

TEST_BOT_TOKEN = "123456789:AAE-local_bot_api_token_of_thirty5ch"  # noqa: S105 - of nobody


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBotCall:
    """One call of a method."""

    method: str
    """The name of the method."""
    params: Mapping[str, Any]
    """The parameters. Files are bytes."""
    at: float
    """The time of the call in seconds since the epoch."""
    refusal_reason: str | None
    """Why the call was refused, in the API's words. None if it was carried out."""
    result: Any = None
    """The result of the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneTimeTelegramFault:
    """A fault that happens once."""

    refusal: TelegramRefusal | None = None
    """The error to answer with. If it is None, the connection ends without an answer."""
    carried_out: bool = False
    """Whether the call is carried out nevertheless."""


@dataclass(slots=True, kw_only=True)
class WebhookTarget:
    """The address that updates are pushed to."""

    url: str
    """The bot's address."""
    secret: str | None
    """The secret that is sent along."""


@dataclass(slots=True)
class TelegramSimulator:
    """A simulated Bot API with one bot, for tests. All methods are safe to call from any thread.

    Serve it with `serve_simulated_telegram`.
    """

    token: str = TEST_BOT_TOKEN
    """The bot's token."""
    name: str = "helper_bot"
    """The bot's user name."""
    limits: TelegramRateLimits = field(default_factory=TelegramRateLimits)
    """How many messages the bot may send in a time."""
    local: bool = True
    """Whether webhooks may be `http`, as with your own Bot API server."""
    chats: dict[int, TelegramChat] = field(default_factory=dict[int, TelegramChat])
    """Chats by id."""
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Files by file id."""
    recorded_calls: list[RecordedBotCall] = field(default_factory=list[RecordedBotCall])
    """All calls except those of `getUpdates`."""
    webhook: WebhookTarget | None = None
    """The address that updates are pushed to. None if the bot polls."""
    commands: list[Any] = field(default_factory=list[Any])
    """The commands that the bot has registered."""
    poll_count: int = 0
    """Number of calls of `getUpdates`."""
    conflict_count: int = 0
    """Number of these calls that another call has ended."""
    _updates: deque[dict[str, Any]] = field(default_factory=deque[dict[str, Any]])
    _troubles: dict[str, deque[OneTimeTelegramFault | None]] = field(
        default_factory=dict[str, deque[OneTimeTelegramFault | None]]
    )
    _number: int = 1_000
    _poll: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def id(self) -> int:
        """The bot's id."""
        return int(self.token.partition(":")[0])

    def make_bot_user(self) -> dict[str, Any]:
        """Return the bot as the API shows it."""
        return make_telegram_user(self.id, "Helper", self.name, is_bot=True)

    def get_or_add_chat(self, chat_id: int, title: str = "", **fields: Any) -> TelegramChat:
        """Return a chat, and create it if it does not exist: a group if the id is negative,
        otherwise a private chat."""
        with self._lock:
            if chat_id not in self.chats:
                kind = fields.pop("type", "private" if chat_id > 0 else "supergroup")
                self.chats[chat_id] = TelegramChat(
                    id=chat_id, type=kind, title=title or "Ada", **fields
                )
            return self.chats[chat_id]

    def post_user_message(
        self,
        chat_id: int,
        text: str = "",
        *,
        author: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> int:
        """Post a message of a user in a chat and return its id. `fields` are added to the
        message."""
        with self._lock:
            chat = self.get_or_add_chat(chat_id)
            sender = author or make_telegram_user(chat_id if chat_id > 0 else 42, "Ada", "ada")
            message: dict[str, Any] = {
                "message_id": chat.next_message_id(),
                "date": int(time.time()),
                "chat": chat.to_json(),
                "from": dict(sender),
            }
            if text:
                message |= {"text": text, "entities": find_commands_and_mentions(text)}
            message |= fields
            chat.messages[message["message_id"]] = message
            self.push_update({"message": message})
            return message["message_id"]

    def edit_user_message(self, chat_id: int, message_id: int, text: str) -> None:
        """Change the text of a user's message."""
        with self._lock:
            message = self.get_or_add_chat(chat_id).messages[message_id]
            message |= {
                "text": text,
                "entities": find_commands_and_mentions(text),
                "edit_date": int(time.time()),
            }
            self.push_update({"edited_message": message})

    def push_update(self, update: Mapping[str, Any], *, update_id: int | None = None) -> int:
        """Add an update of any kind, valid or not, and return its number."""
        with self._lock:
            if update_id is None:
                self._number += 1
                update_id = self._number
            self._updates.append({"update_id": update_id, **update})
            return update_id

    def redeliver_updates(self, updates: Sequence[Mapping[str, Any]]) -> None:
        """Deliver updates again that were already confirmed."""
        with self._lock:
            self._updates.extendleft(dict(one) for one in reversed(updates))

    def list_pending_updates(self) -> list[dict[str, Any]]:
        """Return the updates that were not confirmed yet."""
        with self._lock:
            return list(self._updates)

    def fail_calls(self, method: str, *faults: OneTimeTelegramFault | None) -> None:
        """Let the next calls of a method fail. None lets one call pass."""
        with self._lock:
            self._troubles.setdefault(method, deque()).extend(faults)

    def list_calls(self, *methods: str, only_done: bool = True) -> list[RecordedBotCall]:
        """Return the calls of these methods: only those that were carried out, or all."""
        with self._lock:
            return [
                one
                for one in self.recorded_calls
                if one.method in methods and not (only_done and one.refusal_reason)
            ]

    def list_bot_texts(self, chat_id: int) -> list[str]:
        """Return the current texts of the bot's messages in a chat, in order."""
        with self._lock:
            messages = self.get_or_add_chat(chat_id).messages
            mine = [messages[n] for n in sorted(messages) if messages[n]["from"]["id"] == self.id]
            return [one.get("text", one.get("caption", "")) for one in mine]

    def call_method(
        self,
        method: str,
        params: Mapping[str, Any],
        run: Callable[[TelegramSimulator, Mapping[str, Any]], Any] | None,
    ) -> tuple[Any, OneTimeTelegramFault | None]:
        """Carry out a method and return its answer with the fault to apply to it. Raises a
        refusal."""
        with self._lock:
            queue = self._troubles.get(method)
            trouble = queue.popleft() if queue else None
            refusal_to_raise: TelegramRefusal | None = None
            answer: Any = None
            try:
                if trouble is not None and trouble.refusal is not None:
                    raise trouble.refusal
                if trouble is None or trouble.carried_out:
                    if run is None:
                        raise NOT_FOUND_REFUSAL
                    answer = run(self, params)
            except TelegramRefusal as refusal:
                refusal_to_raise = refusal
            is_dropped = trouble is not None and not trouble.carried_out
            why = (
                refusal_to_raise.description
                if refusal_to_raise
                else "dropped"
                if is_dropped
                else None
            )
            self.recorded_calls.append(
                RecordedBotCall(
                    method=method, params=params, at=time.time(), refusal_reason=why, result=answer
                )
            )
            if refusal_to_raise is not None:
                raise refusal_to_raise
            return answer, trouble

    async def get_updates(
        self, params: Mapping[str, Any], is_gone: Callable[[], Awaitable[bool]]
    ) -> list[dict[str, Any]]:
        """Return the answer of `getUpdates`, at the latest after its timeout or when the client is
        gone."""
        with self._lock:
            self.poll_count += 1
            if self.webhook is not None:
                raise make_conflict_refusal(WEBHOOK_ACTIVE_REASON)
            self._poll += 1
            mine = self._poll
            self._confirm_up_to(int(params.get("offset") or 0))
        limit = min(100, max(1, int(params.get("limit") or 100)))
        ends = time.monotonic() + float(params.get("timeout") or 0)
        while True:
            with self._lock:
                if self._poll != mine:
                    self.conflict_count += 1
                    raise make_conflict_refusal(SECOND_POLL_REASON)
                updates = list(self._updates)[:limit]
            if updates or time.monotonic() >= ends or await is_gone():
                return updates
            await asyncio.sleep(0.01)

    def confirm_update(self, update_id: int) -> None:
        """Remove an update that has arrived at the webhook."""
        with self._lock:
            rest = [one for one in self._updates if one["update_id"] != update_id]
            self._updates = deque(rest)

    def _confirm_up_to(self, offset: int) -> None:
        if offset < 0:
            keep = list(self._updates)[offset:]
            self._updates = deque(keep)
        elif offset:
            self._updates = deque(one for one in self._updates if not _read_update_id(one) < offset)


def _read_update_id(update: Mapping[str, Any]) -> float:
    update_id = update.get("update_id")
    return update_id if isinstance(update_id, int) else -1


def looks_like_bot_token(token: str) -> bool:
    """Return whether a text looks like a bot token."""
    return re.fullmatch(r"\d+:[A-Za-z0-9_-]{30,}", token) is not None
