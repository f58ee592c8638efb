"""`Sidecar`: the answers to a client's calls.

A client keeps its history and makes its model calls. Before each one it passes the body that it
would send, and gets the body to send. Each operation takes the fields of one call, and returns a
status as in HTTP with the fields of the answer.
"""

from __future__ import annotations

import logging
import os
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar, cast

import trimtab
from trimtab.dialects import DIALECT_NAMES, get_dialect
from trimtab.dialects.anthropic.reply_usage import parse_anthropic_usage
from trimtab.dialects.openai_chat.codec import parse_chat_usage
from trimtab.dialects.openai_responses.reply_usage import parse_responses_usage
from trimtab.engine.log.event import Usage, add_usage
from trimtab.engine.log.redaction import REDACTION_PATTERNS, redactor
from trimtab.engine.prompt.shown_messages import View
from trimtab.engine.recall.tools import RECALL_TOOLS
from trimtab.errors import CannotFit, StoreError
from trimtab.integrations.conversations import (
    ConversationOptions,
    Conversations,
)
from trimtab.providers.error_parser import parse_error_response
from trimtab.session.session import Session
from trimtab.session.threads import run_in_thread_if_long
from trimtab.sidecar.call import Answer, Call, Refusal, read_call
from trimtab.sidecar.call_options import CallOptions
from trimtab.sidecar.redacted_conversations import RedactedConversations
from trimtab.sidecar.tally import Tally, format_totals
from trimtab.sidecar.wire_body import WireBody, describe_pieces
from trimtab.stores.base import Store
from trimtab.verbs.notices import EditNotice

T = TypeVar("T")

MAX_CONVERSATIONS = 256
"""Conversations that are kept in memory. One with a body of a megabyte takes about nine."""
STORE_FAULT = "store: "
"""How a fault begins after which the conversation goes on in memory."""

log = logging.getLogger("trimtab.sidecar")


class _ProviderRefusal(Exception):
    """What a provider answered instead of a reply."""

    def __init__(self, status: int | None, body: Any) -> None:
        super().__init__("refused")
        self.status_code, self.body = status, body


class Sidecar:
    """The conversations of programs that pass their bodies.

    Args:
        store: The store of the conversations, or its location. None keeps them in memory.
        max_conversations: Conversations that are kept in memory.
        redacted: Which conversations are redacted, also of those that left the memory.
    """

    def __init__(
        self,
        store: Store | str | os.PathLike[str] | None = None,
        *,
        max_conversations: int = MAX_CONVERSATIONS,
        redacted: RedactedConversations | None = None,
    ) -> None:
        self._redacted = redacted or RedactedConversations()
        self._notices: ContextVar[list[EditNotice] | None] = ContextVar("notices", default=None)
        options: ConversationOptions = {
            "cache": "caller",
            "on_edit": self._note_edit,
            "redact": redactor(*REDACTION_PATTERNS),  # until a fit sets its own
        }
        open_conversations = partial(
            Conversations, max_conversations=max_conversations, tags_handles=True, **options
        )
        self._stored = self._unstored = open_conversations(store=store)
        if store is not None:
            self._unstored = open_conversations()
        self._tallies: OrderedDict[str, Tally] = OrderedDict()
        self._max_conversations = max_conversations
        self._options = CallOptions()
        self._operations: Mapping[str, _Operation] = {
            "fit": self._fit,
            "reply": self._record_reply,
            "refused": self._record_refusal,
            "recall": self._recall,
            "search": self._search,
            "answer": self._answer_tool,
            "totals": self._sum_up,
            "health": self._describe_health,
        }

    async def answer(self, operation: str, text: str) -> Answer:
        """Answer a call.

        Args:
            operation: The name of the operation.
            text: The call as JSON.

        Returns:
            The answer. It never raises for anything that is in the call.
        """
        try:
            call = await read_call(text)
        except Refusal as refusal:
            return refuse(refusal)
        return await self.answer_read(operation, call)

    async def answer_read(self, operation: str, call: Call) -> Answer:
        """Answer a call that was already read."""
        try:
            run = self._operations.get(operation, self._refuse_operation)
            if not _is_other_version(call):
                call.check_fields(_FIELDS.get(operation, call.fields))
            return await run(call)
        except Refusal as refusal:
            reason = refusal
        except Exception as error:
            log.exception("%s failed", operation)
            reason = Refusal(500, f"{type(error).__name__}: {error}")
        is_fit = operation == "fit" or operation not in self._operations
        return refuse(reason, is_blocked=is_fit and call.asks_to_redact)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the event loop of the conversations, and block this thread."""
        return self._stored.run(coroutine)

    async def close(self) -> None:
        """Release all conversations."""
        await self._stored.close()
        if self._unstored is not self._stored:
            await self._unstored.close()

    async def _fit(self, call: Call) -> Answer:
        started = time.perf_counter()
        conversation_id = call.conversation_id
        given = call.fields.get("options")
        options = self._options.read(given)
        if "redact" not in (given or {}) and await self._is_redacted(conversation_id):
            reason = 'this conversation is redacted: pass redact in each call, or "redact": []'
            raise Refusal(400, reason, is_blocked=True)
        if options.get("redact"):
            self._redacted.note(conversation_id, is_redacted=True)
        try:
            answer = await self._fit_or_pass(call, conversation_id, options)
        except Refusal:
            raise
        except Exception as error:  # noqa: BLE001 - the client goes on
            redact = options.get("redact") or str
            trace = redact(traceback.format_exc())  # an error may quote what it could not read
            log.error("a body of conversation %r passes as it is\n%s", call.short_id, trace)  # noqa: TRY400
            await self._drop(conversation_id)
            fault = redact(f"{type(error).__name__}: {error}")
            answer = Answer(fields=_describe_fit(managed=True, fault=fault))
        passed = not answer.fields["managed"] or answer.fields["fault"]
        is_stopped = passed and not answer.fields["fault"].startswith(STORE_FAULT)
        if call.asks_to_redact and (is_stopped or answer.fields["why"]):
            why = answer.fields["fault"] or answer.fields["why"]
            raise Refusal(503, f"not redacted, so do not send it: {why}")
        tally = self._tally(conversation_id)
        tally.calls += 1
        if not options.get("redact"):
            self._redacted.note(conversation_id, is_redacted=False)
        spent_ms = round((time.perf_counter() - started) * 1_000, 2)
        return Answer(fields={**answer.fields, "ms": spent_ms}, body=answer.body)

    async def _is_redacted(self, conversation_id: str) -> bool:
        """Whether the last call of a conversation, or its log, was redacted. If nobody can tell,
        it was."""
        if conversation_id in self._redacted or not self._redacted.is_known:
            return True
        tally = self._tallies.get(conversation_id)
        if tally is not None and tally.calls:
            return False

        async def read(session: Session) -> bool:
            return session.window.settings.redacts

        try:
            return await self._stored.use_session(conversation_id, read)
        except LookupError:
            return False
        except Exception as error:  # noqa: BLE001 - whatever makes a log unreadable
            log.warning("the log of a conversation cannot be read: %s", type(error).__name__)
            return False  # it would be among those above

    async def _fit_or_pass(
        self, call: Call, conversation_id: str, options: ConversationOptions
    ) -> Answer:
        if _is_other_version(call):
            client = call.read_text("client")[:40]
            return _pass(f"version: the client is {client}, this is {trimtab.__version__}")
        if call.read_text("want") not in ("", "body", "map"):
            raise Refusal(400, "want must be 'body' or 'map'")
        try:
            body = call.read_body()
        except (TypeError, ValueError) as error:
            raise Refusal(400, str(error)) from None
        reason = body.find_reason_to_pass()
        if call.read_text("purpose") == "summary":
            reason = "summary: the client asks for a summary of its own"
        if reason:
            return _pass(reason)
        try:
            return await self._fit_body(call, conversation_id, body, options)
        except CannotFit as error:
            fields = _describe_fit(managed=True, used=error.needed, limit=error.limit)
            return Answer(fields={**fields, "why": f"cannot fit: {error}"})
        except (TypeError, ValueError) as error:
            reason = (options.get("redact") or str)(str(error))
            log.warning("a body of conversation %r cannot be read: %s", call.short_id, reason)
            return _pass(f"not read: {reason}")

    async def _fit_body(
        self, call: Call, conversation_id: str, body: WireBody, options: ConversationOptions
    ) -> Answer:
        notices: list[EditNotice] = []
        self._notices.set(notices)
        tally = self._tally(conversation_id)

        async def fit(conversations: Conversations) -> tuple[View, int, int]:
            view = await conversations.fit(
                conversation_id,
                body.messages,
                model=body.model,
                dialect=body.dialect,
                system=body.system,
                tools=body.tools,
                max_output_tokens=body.max_output_tokens,
                is_output_default=body.may_lower_output,
                params=body.counted_params,
                options=options,
            )
            try:
                return view, *await conversations.use_session(conversation_id, _measure)
            except LookupError:  # others have just pushed it out of the memory
                return view, 0, 0

        try:
            view, used, limit = await fit(self._get_conversations(conversation_id))
        except (StoreError, OSError) as error:
            if tally.store_fault or self._unstored is self._stored:
                raise
            log.error("conversation %r goes on in memory: %s", call.short_id, error)  # noqa: TRY400 - the store's own words
            tally.store_fault = f"{STORE_FAULT}{type(error).__name__}: {error}"
            notices.clear()
            view, used, limit = await fit(self._unstored)
        size = len(call.source.text)
        check = tally.check_redaction(options.get("redact"))
        pieces = await run_in_thread_if_long(lambda: body.plan(view, check), size)
        own_output = body.max_output_tokens or 0
        lowered = None
        if body.may_lower_output and used + own_output > limit:
            lowered = min(own_output, view.max_output_tokens) or None
        changed = body.is_changed_by(pieces)
        tag = self._get_conversations(conversation_id).get_handle_tag(conversation_id)
        hidden = [_describe_notice(notice, tag) for notice in notices]
        if tag != tally.handle_tag:
            tally.handle_tag, tally.handles = tag, {}
        tally.handles |= dict.fromkeys(notice.handle for notice in notices)
        fields = _describe_fit(
            managed=True,
            changed=changed or (lowered or own_output) != own_output,
            hidden=hidden,
            used=used,
            limit=limit,
            max_output_tokens=lowered or own_output or view.max_output_tokens,
            fault=tally.store_fault,
        )
        if not fields["changed"]:
            return Answer(fields=fields)
        if call.read_text("want") == "map":
            sent = describe_pieces(pieces)
            return Answer(fields={**fields, "sent": sent, "frontier": view.frontier})
        write = partial(body.write, pieces, tally.patches, max_output_tokens=lowered, check=check)
        return Answer(fields=fields, body=await run_in_thread_if_long(write, size))

    async def _record_reply(self, call: Call) -> Answer:
        body = call.fields.get("usage")
        reply = call.fields.get("reply")
        if body is None and isinstance(reply, dict):
            body = cast("dict[str, Any]", reply).get("usage")
        if not isinstance(body, dict):
            raise Refusal(400, "pass usage, or the reply that has it")
        usage = _read_usage(cast("dict[str, Any]", body))

        async def record(session: Session) -> bool:
            return await session.recorder.record_usage(usage)

        is_recorded = await self._use(call, record)
        if is_recorded:
            tally = self._tally(call.conversation_id)
            tally.usage = add_usage(tally.usage, usage)
        counts = {"input": usage.input, "output": usage.output, "cache_read": usage.cache_read}
        return Answer(fields={"recorded": is_recorded, **counts})

    async def _record_refusal(self, call: Call) -> Answer:
        status, body = call.fields.get("status"), call.fields.get("body")
        number = status if isinstance(status, int) else None
        failure = parse_error_response(number, body)
        refusal = _ProviderRefusal(number, body)
        conversation_id, why, is_retried = call.conversation_id, "", False
        try:
            is_retried = await self._get_conversations(conversation_id).retry(
                conversation_id, refusal
            )
        except CannotFit as error:
            why = f"cannot fit: {error}"
        if tally := self._tallies.get(conversation_id):
            tally.refused += failure.kind == "overflow"
        return Answer(fields={"retry": is_retried, "kind": failure.kind, "why": why})

    async def _recall(self, call: Call) -> Answer:
        handle = call.require_text("handle")
        conversation_id = call.conversation_id
        recalled = self._get_conversations(conversation_id).recall(conversation_id, handle)
        return Answer(fields={"text": await _find(recalled)})

    async def _search(self, call: Call) -> Answer:
        query = call.require_text("query")
        conversation_id = call.conversation_id
        search = self._get_conversations(conversation_id).search(conversation_id, query)
        return Answer(fields={"text": await _find(search)})

    async def _answer_tool(self, call: Call) -> Answer:
        name, arguments = call.require_text("tool"), call.fields.get("arguments")
        if not isinstance(arguments, dict | str):
            raise Refusal(400, "arguments must be an object, or JSON as a text")
        conversation_id = call.conversation_id
        try:
            text = await self._get_conversations(conversation_id).answer(
                conversation_id, name, cast("Any", arguments)
            )
        except ValueError as error:
            raise Refusal(400, str(error)) from None
        return Answer(fields={"text": text})

    async def _sum_up(self, call: Call) -> Answer:
        conversation_id = call.conversation_id
        tally = self._tallies.get(conversation_id) or Tally()

        async def sum_up(session: Session) -> dict[str, Any]:
            report, unreadable = session.report(), 0
            for handle in tally.handles:
                try:
                    await session.recall(handle)
                except LookupError:
                    unreadable += 1
            return {
                "hidden": sum(count for count, _ in report.hidden.values()),
                "hidden_tokens": sum(tokens for _, tokens in report.hidden.values()),
                "unreadable": unreadable,
                "input": tally.usage.input,
                "cache_read": tally.usage.cache_read,
                "output": tally.usage.output,
            }

        sums = await self._use(call, sum_up)
        if call.fields.get("end") is True:
            await self._drop(conversation_id)
            self._tallies.pop(conversation_id, None)
        fields = {"calls": tally.calls, "refused": tally.refused, **sums}
        return Answer(fields={**fields, "line": format_totals(fields)})

    async def _refuse_operation(self, _: Call) -> Answer:
        raise Refusal(
            404, f"unknown operation; the operations are {', '.join(sorted(self._operations))}"
        )

    async def _describe_health(self, _: Call) -> Answer:
        tools = {name: get_dialect(name).render_tools(RECALL_TOOLS) for name in DIALECT_NAMES}
        return Answer(fields={"conversations": len(self._tallies), "tools": tools})

    def _note_edit(self, notice: EditNotice) -> None:
        notices = self._notices.get()
        if notices is not None:
            notices.append(notice)

    def _tally(self, conversation_id: str) -> Tally:
        tally = self._tallies.setdefault(conversation_id, Tally())
        self._tallies.move_to_end(conversation_id)
        while len(self._tallies) > self._max_conversations:
            self._tallies.popitem(last=False)
        return tally

    def _get_conversations(self, conversation_id: str) -> Conversations:
        tally = self._tallies.get(conversation_id)
        return self._unstored if tally and tally.store_fault else self._stored

    async def _use(self, call: Call, work: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        """Run work on the session of a call's conversation."""
        conversation_id = call.conversation_id
        conversations = self._get_conversations(conversation_id)
        return await _find(conversations.use_session(conversation_id, work))

    async def _drop(self, conversation_id: str) -> None:
        """Let a conversation leave the memory. It begins again from the store or the next list."""
        try:
            await self._get_conversations(conversation_id).forget(conversation_id)
        except Exception:
            log.exception("a conversation cannot be closed")


_Operation = Callable[["Call"], Coroutine[Any, Any, Answer]]
_FIELDS: Mapping[str, Sequence[str]] = {
    "fit": ("conversation", "body", "dialect", "options", "want", "client", "purpose"),
    "reply": ("conversation", "usage", "reply"),
    "refused": ("conversation", "status", "body"),
    "recall": ("conversation", "handle"),
    "search": ("conversation", "query"),
    "answer": ("conversation", "tool", "arguments"),
    "totals": ("conversation", "end"),
    "health": ("conversation",),
}
"""The fields of the operations. A program may name the conversation in each."""


def _is_other_version(call: Call) -> bool:
    """Whether a plugin of another version calls, which may know other fields."""
    return call.read_text("client") not in ("", trimtab.__version__)


async def _find(coroutine: Coroutine[Any, Any, T]) -> T:
    """Await what looks something up. What is not there is a refusal."""
    try:
        return await coroutine
    except LookupError as error:
        raise Refusal(404, str(error)) from None
    except ValueError as error:
        raise Refusal(400, str(error)) from None


async def _measure(session: Session) -> tuple[int, int]:
    """Return the tokens of the last request, and those of the window."""
    call, anchor = session.window.last_call, session.window.accounting.usage_anchor
    # What the report sums up, without its sections.
    difference = anchor.reported_tokens - anchor.estimated_tokens if anchor else 0
    return call.body.tokens + difference if call else 0, session.budget().limit


def _describe_fit(
    *,
    managed: bool,
    changed: bool = False,
    hidden: Sequence[Mapping[str, Any]] = (),
    used: int = 0,
    limit: int = 0,
    max_output_tokens: int = 0,
    why: str = "",
    fault: str = "",
) -> dict[str, Any]:
    """Return the fields of an answer to `fit`."""
    return {
        "managed": managed,
        "changed": changed,
        "hidden": [*hidden],
        "used": used,
        "limit": limit,
        "max_output_tokens": max_output_tokens,
        "why": why,
        "fault": fault,
    }


def _pass(why: str) -> Answer:
    """Answer that a body is sent as it is, and not remembered."""
    return Answer(fields=_describe_fit(managed=False, why=why))


def refuse(refusal: Refusal, *, is_blocked: bool = False) -> Answer:
    """Answer that a call cannot be answered, and whether the client must not send its body."""
    fields: dict[str, Any] = {"error": str(refusal)}
    if is_blocked or refusal.is_blocked:
        fields["blocked"] = True
    return Answer(status=refusal.status, fields=fields)


def _describe_notice(notice: EditNotice, handle_tag: str) -> dict[str, Any]:
    return {
        "handle": notice.handle + handle_tag,
        "kind": notice.op,
        "count": notice.count,
        "tokens": notice.tokens_before,
        "tokens_after": notice.tokens_after,
        "why": notice.reason,
    }


def _read_usage(usage: dict[str, Any]) -> Usage:
    """Read the usage of a reply in any dialect."""
    if "prompt_tokens" in usage:
        return parse_chat_usage(usage)
    if "input_tokens_details" in usage:
        return parse_responses_usage(usage)
    return parse_anthropic_usage(usage)
