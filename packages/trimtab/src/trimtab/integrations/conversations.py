"""`Conversations`: the sessions of a framework's conversations, for any thread or event loop.

A framework keeps the history and makes the calls. Before each call its module asks what to send
(`fit`), after it the module adds the reply (`add_reply`) or asks whether to send a smaller request
(`retry`).

All sessions live on one event loop in a thread of its own, because stores and locks belong to one
loop, and a framework may call from several.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from reprlib import repr as short
from typing import Any, TypedDict, TypeVar, Unpack, cast

from trimtab.context import Context
from trimtab.dialects import DialectName
from trimtab.dialects.base import WireObject
from trimtab.dialects.json_values import dict_or_none
from trimtab.dialects.tool_definitions import read_tool_name
from trimtab.engine.log.erase import RECALL_TOOL, SEARCH_TOOL
from trimtab.engine.log.event import Settings, Usage
from trimtab.engine.log.message import Role, ToolCall
from trimtab.engine.log.redaction import Redact
from trimtab.engine.policy.config import Goal, PolicyLimits
from trimtab.engine.policy.planning.plan import Policy
from trimtab.engine.policy.presets import PolicyName
from trimtab.engine.prompt.report import ContextReport
from trimtab.engine.prompt.shown_messages import View
from trimtab.engine.recall.tools import RECALL_TOOLS, parse_recall_arguments
from trimtab.engine.recall.visibility import VisibilityReason
from trimtab.engine.text.arguments import describe_wrong_value
from trimtab.engine.window.accounting import resolve_token_limit_and_source
from trimtab.errors import SessionLockedByOtherProcess, SessionNotFound
from trimtab.integrations.loop_thread import LoopThread
from trimtab.integrations.model_summaries import (
    AskModel,
    ModelAnswer,
    SummaryWriter,
    summarise_before_call,
)
from trimtab.integrations.refusal import ReplyCut, find_refusal
from trimtab.integrations.session_ids import check_conversation_id, make_session_id
from trimtab.integrations.shared_stores import SharedStores
from trimtab.models.catalog import (
    CacheMarks,
    ModelInfoValues,
    find_model_info,
    suggest_model_name,
)
from trimtab.options import Tokenizer, reject_unknown_options, validate_choice
from trimtab.session.session import Session
from trimtab.stores.base import Store
from trimtab.stores.factory import check_store_location
from trimtab.stores.memory import MemoryStore
from trimtab.verbs.notices import OnEdit

__all__ = ["AskModel", "ConversationOptions", "Conversations", "ModelAnswer", "SummaryWriter"]

T = TypeVar("T")

MAX_CONVERSATIONS = 1_000
"""Conversations that are kept in memory. Beyond that, those that were used least recently leave
it."""
MAX_RETRIES = 3
"""How often a list of one length is sent again after refusals of requests that were hardly
smaller."""
SMALLER_SHARE = 0.75
"""A request is smaller than the refused one before it if it has at most this share of its tokens.
As long as each is, the requests soon reach what fits, or the smallest possible one."""
RECALL_HINT = f"{RECALL_TOOL} {{handle}}"
"""How a placeholder tells the model to call the framework's own tool."""
MAX_COPIED_HISTORIES = 2
"""How many new conversations may continue the history of another one before the log says so."""
LOCK_WAIT_S, LOCK_RETRY_S = 10.0, 0.02
"""How long to wait for another process that writes to a conversation, and how often to look. A
process writes for a moment only, unless it is a server or a program that keeps the session open."""
_FRAMEWORKS_OPTIONS = ("model", "dialect", "system", "tools", "params")
"""Options of `Context` for what is in the framework's own request."""
_HANDLE_TAG = re.compile(r"\{handle\}(~[0-9a-f]{4})")
_PASSAGE_HANDLE = re.compile(r"(?:\A|(?<=\n\n))(m\d+\.\d+)(?=: )")
_WINDOW_OPTIONS = ("model", "dialect", "model_info", "context_window", "max_input_tokens")
"""Options of `Context` that say how large the window is."""
_LOOP_THREAD = LoopThread()
_STORES = SharedStores()

log = logging.getLogger("trimtab.conversations")


class ConversationOptions(TypedDict, total=False):
    """The options of `Context` that a framework's module takes. `Context` documents each option.

    `recall` is True unless it is set: the framework's own tools answer with `answer`. False names
    no handles, and a text says in other words how to get what a handle names.
    """

    policy: PolicyName | Policy
    goal: Goal
    limits: PolicyLimits | None
    context_window: int | None
    max_input_tokens: int | None
    max_output_tokens: int | None
    recall: bool | str
    model_info: ModelInfoValues | str | None
    cache: CacheMarks | None
    tokenizer: Tokenizer | None
    redact: Redact | None
    on_edit: OnEdit | None


@dataclass(slots=True)
class _Conversation:
    """A conversation in memory."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while one of its calls runs."""
    users: int = 0
    """Calls that hold the lock or wait for it."""
    session: Session | None = None
    """Its session, as soon as it is open."""
    list_length: int = 0
    """Messages in the list that was fitted last."""
    retries: int = 0
    """Refusals of this list, without those of a request that was smaller than the one before."""
    refused_tokens: int = 0
    """Tokens of the request with this list that was refused last; 0 if none was."""
    is_warned: bool = False
    """Whether the log has the line that the conversation began again."""
    handle_tag: str = ""
    """The end of its handles; empty if no earlier log can have had the same ones."""

    def read_handle(self, handle: str) -> str:
        """Return a handle without its tag, or raise `LookupError` if it is of an earlier log."""
        bare, mark, tag = handle.strip().partition("~")
        if mark + tag == self.handle_tag:
            return bare
        own = f"end in {self.handle_tag}" if self.handle_tag else "have no such end"
        raise LookupError(
            f"there is no {handle}: handles of this conversation {own}, and change when it "
            "begins again; a search finds the text"
        )

    def tag_passages(self, text: str) -> str:
        """Return what a search found, with the tag at the handle of each passage."""
        return _PASSAGE_HANDLE.sub(rf"\1{self.handle_tag}", text)

    def count_refusal(self, tokens: int) -> bool:
        """Count the refusal of a request of this size. Return whether to send another."""
        self.retries += tokens > SMALLER_SHARE * self.refused_tokens > 0
        self.refused_tokens = tokens
        may_retry = self.retries <= MAX_RETRIES
        if not may_retry:
            self.forget_refusals()  # the framework fails, and may be called again
        return may_retry

    def forget_refusals(self) -> None:
        """Begin to count again."""
        self.retries = self.refused_tokens = 0


class Conversations:
    """The sessions of a framework's conversations, by id, for any thread or event loop.

    Calls for one conversation wait for each other, and for a model only if it writes summaries.
    Every coroutine may be awaited on any event loop, or passed to `run` in a thread without one.

    Args:
        store: The store of the sessions, or its location as `open_store` takes it. A location is
            opened once in a process, whoever names it. Give a location for PostgreSQL, because its
            connections belong to one event loop. None keeps the sessions in memory, and forgets
            those that were used least recently.
        max_conversations: Conversations that are kept in memory.
        summaries: Who writes summaries. `model` is the framework's own model, which `ask_model` of
            `fit` asks; `extractive` takes lines of the conversation.
        tags_handles: Whether handles have a tag if the first list has replies already. An earlier
            log with other handles may be lost, and the caller may still know them.
        **options: Options of `Context`.

    Raises:
        TypeError: If an option is unknown or has a wrong type.
        ValueError: If an option has an invalid value.
    """

    def __init__(
        self,
        *,
        store: Store | str | os.PathLike[str] | None = None,
        max_conversations: int = MAX_CONVERSATIONS,
        summaries: SummaryWriter = "extractive",
        tags_handles: bool = False,
        **options: Unpack[ConversationOptions],
    ) -> None:
        _check_store(store)
        self._options = cast("dict[str, Any]", options)
        check_conversation_options(self._options)
        validate_choice("summaries", summaries, allowed=("extractive", "model"))
        self._has_model_summaries = summaries == "model"
        if self._has_model_summaries:
            limits = cast("PolicyLimits", self._options.get("limits") or {})
            own_price = {"price": 1.0, **(limits.get("summary") or {})}
            self._options |= {"summaries": "manual", "limits": {**limits, "summary": own_price}}
        if self._options.setdefault("recall", True) is True:
            self._options["recall"] = RECALL_HINT
        self._given_store = MemoryStore() if store is None else store
        self._keeps_nothing = store is None
        self._max_conversations = max_conversations
        self._tags_handles = tags_handles
        self._loop: asyncio.AbstractEventLoop | None = None
        self._store: Store | None = None
        self._opening = asyncio.Lock()
        self._by_id: OrderedDict[str, _Conversation] = OrderedDict()
        self._id_by_reply: OrderedDict[int, str] = OrderedDict()
        self._copied_histories = 0

    @property
    def recall_tools(self) -> Sequence[Mapping[str, Any]]:
        """The definitions of the tools that the framework offers the model; none if `recall` is
        False or a text."""
        return RECALL_TOOLS if self._options["recall"] == RECALL_HINT else ()

    async def fit(
        self,
        conversation_id: str,
        messages: Sequence[Any],
        *,
        model: str,
        dialect: DialectName | None = None,
        system: str | Sequence[WireObject] = "",
        tools: Sequence[WireObject] = (),
        ids: Sequence[str] | None = None,
        max_output_tokens: int | None = None,
        is_output_default: bool = False,
        context_window: int | None = None,
        params: Mapping[str, Any] | None = None,
        options: ConversationOptions | None = None,
        ask_model: AskModel | None = None,
    ) -> View:
        """Take the whole history before a model call, and return what to send.

        Args:
            conversation_id: The framework's id of the conversation: any text.
            messages: The whole history, in the form of any supported dialect.
            model: The model's name as the provider knows it.
            dialect: The wire format; None derives it from the model.
            system: The system prompt, if it is not in the list.
            tools: Tool definitions that the framework sends.
            ids: The framework's id of each message.
            max_output_tokens: Tokens of output that the framework asks for.
            is_output_default: Whether the framework chose them, and not the user. Then they are
                at most a quarter of the window, also of one that is smaller than believed.
            context_window: Tokens of the window by the framework, for a model that the catalog may
                not know. The user's own option takes precedence.
            params: Parameters of the request that count as input, such as a schema for the reply.
            options: Options of this conversation, instead of those of all.
            ask_model: Awaited on this event loop with a system prompt and a text if
                `summaries="model"` and a summary is due. If it fails or its text cannot be used,
                the fit goes on without it.

        Returns:
            What the model should see.

        Raises:
            CannotFit: If the request would not fit, whatever is hidden.
        """
        chosen = {**self._options, **cast("dict[str, Any]", options or {})}
        head: dict[str, Any] = {"model": model, "system": system, "tools": tools}
        head |= {name: value for name, value in (options or {}).items() if name != "on_edit"}
        head["max_output_tokens"] = max_output_tokens or chosen.get("max_output_tokens")
        if dialect is not None:
            head["dialect"] = dialect
        if params is not None:
            head["params"] = params
        if context_window is not None and chosen.get("context_window") is None:
            head["context_window"] = context_window
        hint = (options or {}).get("recall", self._options["recall"] == RECALL_HINT)
        if hint is True:  # only if the model can follow it
            names = map(read_tool_name, tools)
            head["recall"] = RECALL_HINT if RECALL_TOOL in names else False

        default_output = max_output_tokens if is_output_default else None
        loop = asyncio.get_running_loop()

        async def summarise(session: Session) -> None:
            if self._has_model_summaries and ask_model is not None:
                await summarise_before_call(session, ask_model, loop)

        async def fit_once(conversation: _Conversation) -> View:
            return await self._fit(
                conversation_id,
                conversation,
                head,
                messages,
                ids=ids,
                default_output=default_output,
                summarise=summarise,
            )

        async def fit() -> View:
            async with self._use(conversation_id) as conversation:
                if len(messages) != conversation.list_length:
                    conversation.list_length = len(messages)
                    conversation.forget_refusals()
                try:
                    return await fit_once(conversation)
                except SessionNotFound:
                    await self._begin_again(conversation_id, conversation)
                    return await fit_once(conversation)

        return await self._run_when_free(fit)

    async def _fit(
        self,
        conversation_id: str,
        conversation: _Conversation,
        head: Mapping[str, Any],
        messages: Sequence[Any],
        *,
        ids: Sequence[str] | None,
        default_output: int | None,
        summarise: Callable[[Session], Awaitable[None]],
    ) -> View:
        if conversation.session is None:
            self._warn_if_ids_are_forgotten(conversation_id, messages)
            chosen = {**self._options, **head}
            about_window = {name: chosen[name] for name in _WINDOW_OPTIONS if name in chosen}
            settings = Context(**cast("Any", about_window)).window.settings
            _warn_of_assumed_window(settings, chosen.get("model_info"))
            if default_output:  # not as a change afterwards, so that the first message is m2
                output = _limit_default_output(settings, None, default_output)
                head = {**head, "max_output_tokens": output}
        elif default_output:  # it is set below
            head = {name: head[name] for name in head if name != "max_output_tokens"}
        if self._tags_handles:
            head = await self._tag_handles(conversation_id, conversation, head, messages)
        session = await self._open(conversation_id, conversation, head)
        if default_output:
            window = session.window
            learned = window.accounting.learned_limit
            output = _limit_default_output(window.settings, learned, default_output)
            await session.configure(max_output_tokens=output)
        rewinds, first_role = len(session.window.base.rewinds), _read_first_role(session)
        await session.sync(messages, ids=ids)
        # A framework that hands over a whole history as one text begins its list with a reply.
        is_rewritten = "assistant" in (first_role, _read_first_role(session))
        if first_role and not is_rewritten and len(session.window.base.rewinds) > rewinds:
            self._warn_if_nothing_stayed(conversation_id, conversation, session)
        await summarise(session)
        await session.request()
        return session.view()

    def _warn_if_ids_are_forgotten(self, conversation_id: str, messages: Sequence[Any]) -> None:
        """Log once that new conversations continue the histories of others."""
        if len(messages) < 2:
            return
        other_id = self._id_by_reply.get(hash(repr(messages[-2])))
        if other_id is None or f"{conversation_id}/".startswith(f"{other_id}/"):
            return
        self._copied_histories += 1
        if self._copied_histories > MAX_COPIED_HISTORIES:
            _warn_once(
                "several new conversations continue the history of another one. If they are one "
                "conversation, give it the same id in each run (conversation_id, thread_id or a "
                "session): else Trimtab decides again, and the provider's cache is not read"
            )

    def _warn_if_nothing_stayed(
        self, conversation_id: str, conversation: _Conversation, session: Session
    ) -> None:
        """Log once that a conversation began again, because two agents may share its id."""
        rewind, _ = session.window.base.rewinds[-1]
        if conversation.is_warned or any(seq < rewind for seq in session.window.entries):
            return
        conversation.is_warned = True
        log.warning(
            "the list for conversation %r differs from the list before it from the first message "
            "on. If you shortened it, pass the whole history: Trimtab hides what does not fit. If "
            "two agents use this id in one store, give one of them another id or store",
            conversation_id[:100],
        )

    async def add_reply(
        self, conversation_id: str, message: Any, *, usage: Usage | None = None
    ) -> None:
        """Add the model's reply, as the next list will have it.

        Nothing happens if the conversation has left the memory: the next list has the reply.

        Args:
            conversation_id: The framework's id of the conversation.
            message: The reply, in any form that `Context.add` takes.
            usage: Its usage, if the message does not carry it.
        """

        async def add() -> None:
            async with self._use(conversation_id) as conversation:
                conversation.forget_refusals()
                if conversation.session is None:
                    return
                self._id_by_reply[hash(repr(message))] = conversation_id
                if len(self._id_by_reply) > self._max_conversations:
                    self._id_by_reply.popitem(last=False)
                try:
                    await conversation.session.add(message, usage=usage)
                except SessionNotFound:
                    await self._begin_again(conversation_id, conversation)

        await self._run_when_free(add)

    async def retry(self, conversation_id: str, error: BaseException) -> bool:
        """Say whether to fit and send again after an error.

        The error may be an SDK's or wrap one. If it refuses the request for its length, the next
        `fit` is smaller.

        Args:
            conversation_id: The framework's id of the conversation.
            error: What the model call raised.

        Returns:
            True for a refusal for length; False for anything else, and for a list whose requests
            were refused again and again although they were hardly smaller.

        Raises:
            CannotFit: If nothing can be made smaller.
        """
        failure = find_refusal(error)
        if failure is None:
            return False

        async def fail() -> bool:
            async with self._use(conversation_id) as conversation:
                try:
                    session = await self._require(conversation_id, conversation)
                except LookupError:
                    return False
                call = session.window.last_call
                if call is None or session.window.accounting.open_call_seq is None:
                    return False
                if not conversation.count_refusal(call.body.tokens):
                    return False
                return await session.fail(
                    failure.kind,
                    limit=failure.limit,
                    input=failure.input,
                    requested=failure.requested,
                    message=failure.message,
                    usage=error.usage if isinstance(error, ReplyCut) else None,
                )

        return await self._run_when_free(fail)

    async def answer(
        self, conversation_id: str, tool_name: str, arguments: Mapping[str, Any] | str
    ) -> str:
        """Answer a call of `recall` or `search_history`. Nothing is added: the framework keeps the
        result itself.

        Args:
            conversation_id: The framework's id of the conversation.
            tool_name: `recall` or `search_history`.
            arguments: The arguments of the call: a mapping, or JSON.

        Returns:
            The answer, or a text that says why there is none.

        Raises:
            ValueError: If it is another tool.
        """
        text = arguments if isinstance(arguments, str) else json.dumps(dict(arguments))
        call = ToolCall(id="recall", name=tool_name, arguments=text)

        async def answer(session: Session, conversation: _Conversation) -> str:
            text = await session.answer(_remove_tag(call, conversation), add=False)
            return conversation.tag_passages(text) if tool_name == SEARCH_TOOL else text

        try:
            return await self._use_known(conversation_id, answer)
        except LookupError as error:
            return f"[{error}]"

    async def recall(self, conversation_id: str, handle: str) -> str:
        """Return the text that a handle names, exactly as it was added.

        Args:
            conversation_id: The framework's id of the conversation.
            handle: The handle of a part, a message or a range.

        Raises:
            LookupError: If nothing is known of the conversation, or nothing has this handle.
            ValueError: If it is not a handle.
        """

        async def recall(session: Session, conversation: _Conversation) -> str:
            return await session.recall(conversation.read_handle(handle))

        return await self._use_known(conversation_id, recall)

    async def search(self, conversation_id: str, query: str) -> str:
        """Return the passages of a conversation that contain a text, or most of its words.

        Args:
            conversation_id: The framework's id of the conversation.
            query: The text.

        Raises:
            LookupError: If nothing is known of the conversation.
        """

        async def search(session: Session, conversation: _Conversation) -> str:
            return conversation.tag_passages(await session.search(query))

        return await self._use_known(conversation_id, search)

    def get_handle_tag(self, conversation_id: str) -> str:
        """Return what the handles of a conversation in memory end in."""
        conversation = self._by_id.get(conversation_id)
        return conversation.handle_tag if conversation else ""

    async def report(self, conversation_id: str) -> ContextReport:
        """Return how the next call would use its tokens.

        Args:
            conversation_id: The framework's id of the conversation.

        Raises:
            LookupError: If nothing is known of the conversation.
        """

        async def report(session: Session) -> ContextReport:
            return session.report()

        return await self.use_session(conversation_id, report)

    async def why(self, conversation_id: str, handle: str) -> VisibilityReason:
        """Explain why the model does or does not see something.

        Args:
            conversation_id: The framework's id of the conversation.
            handle: The handle of a part, a message or a range.

        Raises:
            LookupError: If nothing is known of the conversation, or nothing has this handle.
            ValueError: If it is not a handle.
        """
        return await self.use_session(conversation_id, lambda session: session.why(handle))

    async def use_session(
        self, conversation_id: str, work: Callable[[Session], Coroutine[Any, Any, T]]
    ) -> T:
        """Run work on the session of a conversation. No other call uses it meanwhile.

        Args:
            conversation_id: The framework's id of the conversation.
            work: What to do with the session, on the event loop of the sessions.

        Returns:
            What the work returns.

        Raises:
            LookupError: If nothing is known of the conversation.
        """
        return await self._use_known(conversation_id, lambda session, _: work(session))

    async def _use_known(
        self,
        conversation_id: str,
        work: Callable[[Session, _Conversation], Coroutine[Any, Any, T]],
    ) -> T:
        async def run() -> T:
            async with self._use(conversation_id) as conversation:
                session = await self._require(conversation_id, conversation)
                return await work(session, conversation)

        return await self._run_when_free(run)

    async def forget(self, conversation_id: str) -> None:
        """Remove a conversation from the memory. A store keeps it.

        Args:
            conversation_id: The framework's id of the conversation.
        """

        async def forget() -> None:
            async with self._use(conversation_id) as conversation:
                await self._leave(conversation)

        await self._run_when_free(forget)

    async def close(self) -> None:
        """Release all sessions, and close a store that was given by its location, unless others
        use it."""
        await self.run_async(self._close())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of this object, and block this thread until it ends.

        Use it in a thread without an event loop.

        Args:
            coroutine: For example `conversations.fit(…)`.

        Returns:
            Its result.
        """
        return _LOOP_THREAD.run(coroutine)

    async def run_async(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the event loop of the sessions, and await it on any event loop.

        Args:
            coroutine: A coroutine that uses a session.

        Returns:
            Its result.
        """
        return await _LOOP_THREAD.run_async(coroutine)

    async def _run_when_free(self, step: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a step on the event loop of the sessions, when no other process writes."""

        async def run() -> T:
            give_up = asyncio.get_running_loop().time() + LOCK_WAIT_S
            while True:
                try:
                    return await step()
                except SessionLockedByOtherProcess:
                    if asyncio.get_running_loop().time() >= give_up:
                        raise
                await asyncio.sleep(LOCK_RETRY_S)

        return await self.run_async(run())

    @asynccontextmanager
    async def _use(self, conversation_id: str) -> AsyncGenerator[_Conversation]:
        """Yield a conversation as soon as no other call uses it.

        After that other processes may write to its session: a framework does not say when a
        conversation ends.
        """
        self._use_running_loop()
        check_conversation_id(conversation_id)
        conversation = self._by_id.setdefault(conversation_id, _Conversation())
        self._by_id.move_to_end(conversation_id)
        conversation.users += 1
        try:
            async with conversation.lock:
                yield conversation
        finally:
            conversation.users -= 1
            if conversation.session is not None and not conversation.users:
                await conversation.session.store.release(conversation.session.id)
            elif not conversation.users:
                self._by_id.pop(conversation_id, None)
            await self._forget_least_recently_used()

    def _use_running_loop(self) -> None:
        """Begin without open sessions on another loop: in a forked process there is a new one."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._store, self._opening = loop, None, asyncio.Lock()
            self._by_id = OrderedDict()

    async def _forget_least_recently_used(self) -> None:
        while len(self._by_id) > self._max_conversations:
            unused = (key for key, known in self._by_id.items() if not known.users)
            if (key := next(unused, None)) is None:
                return
            await self._leave(self._by_id.pop(key))

    async def _leave(self, conversation: _Conversation) -> None:
        """Close the session of a conversation. Without a store it is gone."""
        session, conversation.session = conversation.session, None
        if session is not None and self._keeps_nothing:
            await session.store.delete(session.id)
        elif session is not None:
            await session.close()

    async def _open(
        self, conversation_id: str, conversation: _Conversation, head: Mapping[str, Any]
    ) -> Session:
        """Return the session of a conversation with this head, and create it if there is none."""
        if conversation.session is None:
            store, session_id = await self._get_store(), make_session_id(conversation_id)
            conversation.session = await Session.open_or_create(
                store, session_id, **cast("Any", {**self._options, **head})
            )
            return conversation.session
        session, changes = conversation.session, head
        if await session.store.position(session.id) != session.window.seq:
            await session.refresh()  # somebody else may have set other options
            changes = {**self._options, **head}
            changes.pop("on_edit", None)
        await session.configure(**cast("Any", changes))
        return session

    async def _tag_handles(
        self,
        conversation_id: str,
        conversation: _Conversation,
        head: Mapping[str, Any],
        messages: Sequence[Any],
    ) -> Mapping[str, Any]:
        """Return a head whose recall hint has the tag of the conversation's log."""
        if conversation.session is None:
            store, session_id = await self._get_store(), make_session_id(conversation_id)
            if await store.position(session_id):
                await self._require(conversation_id, conversation, head)
            else:
                has_replies = any(not _is_asked(item) for item in messages)
                conversation.handle_tag = f"~{secrets.token_hex(2)}" if has_replies else ""
        hint = head.get("recall")
        if not isinstance(hint, str):
            return head
        tagged = hint.replace("{handle}", f"{{handle}}{conversation.handle_tag}")
        return {**head, "recall": tagged}

    async def _begin_again(self, conversation_id: str, conversation: _Conversation) -> None:
        """Forget a session whose log is gone. The framework's list has the conversation."""
        session, conversation.session = conversation.session, None
        if session is not None:
            await session.store.release(session.id)
        log.warning(
            "conversation %r was deleted from its store; it begins again from the framework's list",
            conversation_id[:100],
        )

    async def _require(
        self,
        conversation_id: str,
        conversation: _Conversation,
        head: Mapping[str, Any] | None = None,
    ) -> Session:
        """Return the session of a known conversation, which needs the functions of its options."""
        if conversation.session is None:
            store, session_id = await self._get_store(), make_session_id(conversation_id)
            if not await store.position(session_id):
                reason = "it has left the memory: a store keeps it"
                raise LookupError(
                    f"nothing is known of conversation {conversation_id[:100]!r}; no model call "
                    f"was made for it, or {reason if self._keeps_nothing else 'it was deleted'}"
                )
            given = {name: value for name, value in (head or {}).items() if value is not None}
            chosen = {**self._options, **given}
            names = ("policy", "tokenizer", "redact", "on_edit")
            options = {name: chosen[name] for name in names if name in chosen}
            session = await Session.open(store, session_id, **options)
            tag = _HANDLE_TAG.search(session.window.settings.recall_hint or "")
            conversation.handle_tag = tag[1] if tag else ""
            conversation.session = session
        return conversation.session

    async def _get_store(self) -> Store:
        store = self._given_store
        if not isinstance(store, str | os.PathLike):
            return store
        async with self._opening:
            if self._store is None:
                self._store = await _STORES.open(os.fspath(store))
        return self._store

    async def _close(self) -> None:
        self._use_running_loop()
        for conversation in [*self._by_id.values()]:
            async with conversation.lock:
                session, conversation.session = conversation.session, None
                if session is not None:
                    await session.close()
        self._by_id.clear()
        if self._store is not None:
            self._store = None
            await _STORES.close(os.fspath(cast("str", self._given_store)))


def _read_first_role(session: Session) -> Role | None:
    first = next(iter(session.window.entries.values()), None)
    return None if first is None else first.message.role


def _check_store(store: Any) -> None:
    """Raise if this is not a store, and not the location of one."""
    if store is None or callable(getattr(store, "append", None)):
        return
    right = "a folder such as 'sessions', the address of a PostgreSQL database, or a store"
    if not isinstance(store, str | os.PathLike):
        raise TypeError(describe_wrong_value("store", store, right))
    location = os.fspath(cast("os.PathLike[str]", store))
    check_store_location(location)


def _limit_default_output(settings: Settings, learned_limit: int | None, default: int) -> int:
    """Return the tokens of output to ask for: at most a quarter of the window."""
    limit, _ = resolve_token_limit_and_source(settings, learned_limit)
    return min(default, max(1, limit // 4))


def _warn_of_assumed_window(settings: Settings, model_info: object) -> None:
    """Log once which window is assumed of a model that nobody has described."""
    model = settings.model
    limit, source = resolve_token_limit_and_source(settings, None)
    # A context warns itself of a name that may be misspelt.
    if source == "model" and not (
        model_info or find_model_info(model) or suggest_model_name(model)
    ):
        _warn_once(
            f"the catalog has no model {model!r}; a window of {limit:,} tokens is assumed. Set "
            "context_window to the window of its server"
        )


@lru_cache(maxsize=256)
def _warn_once(text: str) -> None:
    """Log a warning once in a process."""
    log.warning("%s", text)


def reject_unnamed_arguments(owner: object, arguments: Sequence[object]) -> None:
    """Raise if arguments have no name. Python would only count them.

    Args:
        owner: What was created with them.
        arguments: The arguments without a name.

    Raises:
        TypeError: If there are any.
    """
    if arguments:
        name = type(owner).__name__
        raise TypeError(
            f"{name} takes options by name, as in {name}() or {name}(store='sessions'), and not "
            f"{short(arguments[0])}"
        )


def check_conversation_options(options: Mapping[str, Any]) -> None:
    """Raise if an option is unknown or has an invalid value. A call would be too late.

    Args:
        options: The options of a module, or of one conversation.

    Raises:
        TypeError: If an option is unknown or has a wrong type.
        ValueError: If an option has an invalid value.
    """
    for name in _FRAMEWORKS_OPTIONS:
        if name in options:
            raise TypeError(
                f"this module has no option {name!r}: it takes what the framework sends; set it "
                "in the framework"
            )
    reject_unknown_options(
        options,
        [*ConversationOptions.__annotations__],
        owner="this module",
        sender="the framework's own settings",
    )
    if isinstance(window := options.get("context_window"), int) and window < 1:
        right = "more than 0, or None for the window of the model"
        raise ValueError(describe_wrong_value("context_window", window, right))
    if (on_edit := options.get("on_edit")) is not None and not callable(on_edit):
        right = "a function that takes an EditNotice"
        raise TypeError(describe_wrong_value("on_edit", on_edit, right))
    Context("the model", dialect="openai_chat", **cast("Any", options))


def _is_asked(item: Any) -> bool:
    """Whether an item of a list comes before the first reply."""
    return (dict_or_none(item) or {}).get("role") in ("system", "developer", "user")


def _remove_tag(call: ToolCall, conversation: _Conversation) -> ToolCall:
    """Return a call of a recall tool with the handle that the conversation's log has."""
    try:
        arguments = parse_recall_arguments(call)
    except ValueError:  # the answer says what is wrong
        return call
    if arguments["handle"]:
        arguments["handle"] = conversation.read_handle(arguments["handle"])
    return replace(call, arguments=json.dumps(arguments))


def limit_output(model: str, asked: int | None) -> int | None:
    """Return the tokens of output to reserve: what the framework asks for, as far as the model can
    write it."""
    info = find_model_info(model)
    return min(asked, info.max_output) if asked and info else asked
