"""Threads of the Messages API: the server holds the conversation, a request brings what is new."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.dialects.json_values import dict_or_none
from trimtab.testing.request_counter import list_array_objects, read_cache_ttl
from trimtab.testing.server.responses import ProviderRefusal, build_anthropic_error_body

THREADS_BETA = "message-threads-2026-08-12"
_HEAD = ("system", "tools")
"""What a thread keeps from the request that created it."""
_UNSUPPORTED = ("cache_control", "context_management", "thinking")
"""Parameters that a request with a thread cannot have."""
JsonObject = Mapping[str, Any]


class MessageThreads:
    """The conversations that the server holds, by the id of their newest reply."""

    def __init__(self) -> None:
        self._held: dict[str, JsonObject] = {}
        self._continued: set[str] = set()

    def expand_request(self, request: JsonObject, headers: Mapping[str, str]) -> JsonObject:
        """Return the whole request that the model reads.

        Without the beta the request comes back unchanged, and `thread` is an unknown parameter.
        """
        betas = {name.strip() for name in headers.get("anthropic-beta", "").split(",")}
        if "thread" not in request or THREADS_BETA not in betas:
            return request
        thread = dict_or_none(request["thread"]) or {}
        rest = {name: request[name] for name in request if name != "thread"}
        if unsupported := [name for name in _UNSUPPORTED if _has_parameter(rest, name)]:
            raise _refuse(
                f"thread: not supported together with {', '.join(unsupported)}",
                "thread_unsupported_request",
                unsupported=unsupported,
            )
        match thread.get("type"):
            case "create":
                return rest
            case "continue":
                return self._continue(rest, str(thread.get("previous_message_id")))
            case _:
                raise _refuse("thread.type: Input should be 'create' or 'continue'")

    def _continue(self, request: JsonObject, previous_id: str) -> JsonObject:
        if repeated := [name for name in _HEAD if name in request]:
            raise _refuse(f"{repeated[0]}: a request that continues a thread cannot set this")
        if previous_id in self._continued:
            raise _refuse(
                f"thread: {previous_id} has already been continued", "thread_already_continued"
            )
        if previous_id not in self._held:
            raise _refuse(f"thread: {previous_id} not found", "thread_not_found", status=404)
        held = self._held[previous_id]
        messages = [*held["messages"], *list_array_objects(request.get("messages"))]
        return {**held, **request, "messages": messages}

    def store_reply(self, request: JsonObject, whole: JsonObject, reply: JsonObject) -> None:
        """Hold the conversation with its newest reply, if the request names a thread."""
        thread = dict_or_none(request.get("thread"))
        if thread is None:
            return
        self._continued.add(str(thread.get("previous_message_id")))
        answer = {"role": "assistant", "content": reply["content"]}
        head = {name: whole[name] for name in _HEAD if name in whole}
        self._held[reply["id"]] = {**head, "messages": [*whole["messages"], answer]}


def _has_parameter(request: JsonObject, name: str) -> bool:
    """Return whether a request has a parameter. Marks of the cache also stand on blocks."""
    if name in request:
        return True
    return name == "cache_control" and any(
        read_cache_ttl(block)
        for key in (*_HEAD, "messages")
        for holder in list_array_objects(request.get(key))
        for block in (holder, *list_array_objects(holder.get("content")))
    )


def _refuse(
    message: str, error_code: str = "", *, status: int = 400, **details: Any
) -> ProviderRefusal:
    body = build_anthropic_error_body(status, message)
    if error_code:
        body["error"]["details"] = {"error_code": error_code, **details}
    return ProviderRefusal(status, body)
