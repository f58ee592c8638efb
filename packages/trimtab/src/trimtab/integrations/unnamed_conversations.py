"""`UnnamedConversations`: conversations without an id of the framework, known by their history."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any

from trimtab.integrations.conversations import MAX_CONVERSATIONS

__all__ = ["UnnamedConversations"]


class UnnamedConversations:
    """Our ids of conversations to which a framework gives no id, by their histories.

    A list continues a conversation if it begins with the whole history, which ends with a reply
    that this process received. Only one call may continue it. So two users never share a
    conversation, also if their first messages are the same.

    A history is a list of anything that can be compared: messages, or their ids. Its items are
    compared, not hashed, because that is much cheaper for a long list of long messages.
    """

    def __init__(self, *, max_conversations: int = MAX_CONVERSATIONS) -> None:
        self._lock = Lock()
        self._max_conversations = max_conversations
        self._history_by_id: OrderedDict[str, list[Any]] = OrderedDict()
        self._taken: set[str] = set()

    def put(self, conversation_id: str, history: Sequence[Any]) -> None:
        """Let one call continue a history, which ends with a reply."""
        with self._lock:
            self._history_by_id[conversation_id] = [*history]
            self._history_by_id.move_to_end(conversation_id)
            self._taken.discard(conversation_id)
            while len(self._history_by_id) > self._max_conversations:
                forgotten, _ = self._history_by_id.popitem(last=False)
                self._taken.discard(forgotten)

    def take(self, messages: list[Any]) -> str | None:
        """Return the id that `find` returns, and let no other call continue the conversation."""
        with self._lock:
            conversation_id = self._find(messages)
            if conversation_id is not None:
                self._taken.add(conversation_id)
            return conversation_id

    def give_back(self, conversation_id: str) -> None:
        """Let another call continue a conversation, because the one that took it has failed."""
        with self._lock:
            self._taken.discard(conversation_id)

    def find(self, messages: list[Any]) -> str | None:
        """Return the id of the conversation that a list continues; None if there is none."""
        with self._lock:
            return self._find(messages)

    def _find(self, messages: list[Any]) -> str | None:
        candidates = (
            (len(history), conversation_id)
            for conversation_id, history in self._history_by_id.items()
            if conversation_id not in self._taken and _begins_with(messages, history)
        )
        return max(candidates, default=(0, None))[1]


def _begins_with(messages: list[Any], history: list[Any]) -> bool:
    end = len(history)
    # The reply at the end differs most often.
    return len(messages) >= end and messages[end - 1] == history[-1] and messages[:end] == history
