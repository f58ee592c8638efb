"""`TrimtabModel`: an agent of the OpenAI Agents SDK calls it, and it calls the agent's model.

The SDK passes a model the whole history as Responses items, and `TrimtabModel` passes on what fits.
The SDK's own history is not changed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from itertools import takewhile
from threading import Lock
from typing import Any, Never, TypeVar, Unpack, cast
from uuid import uuid4

from trimtab.integrations.missing_framework import make_missing_framework_error

try:
    from agents import (
        AgentOutputSchemaBase,
        FunctionTool,
        Handoff,
        Model,
        ModelResponse,
        ModelRetryAdvice,
        ModelRetryAdviceRequest,
        ModelSettings,
        ModelTracing,
        MultiProvider,
        OpenAIResponsesModel,
        Tool,
        TResponseInputItem,
        get_current_trace,
    )
    from agents.items import TResponseStreamEvent
    from agents.models import get_default_model_settings
    from agents.tool_context import ToolContext
except ImportError as error:
    raise make_missing_framework_error("openai-agents", error) from error

from trimtab.dialects import DialectName
from trimtab.dialects.openai_cache_breakpoints import add_cache_breakpoints_to_items
from trimtab.dialects.openai_responses.codec import serialize_history
from trimtab.engine.log.erase import RECALL_TOOL_NAMES
from trimtab.engine.log.event import Usage
from trimtab.engine.log.message import Message, ToolResult
from trimtab.engine.prompt.report import ContextReport
from trimtab.engine.prompt.shown_messages import View
from trimtab.engine.recall.visibility import VisibilityReason
from trimtab.errors import UnsupportedMedia
from trimtab.integrations.conversations import (
    MAX_CONVERSATIONS,
    ConversationOptions,
    Conversations,
    ModelAnswer,
    SummaryWriter,
    limit_output,
    reject_unnamed_arguments,
)
from trimtab.integrations.refusal import find_full_window
from trimtab.integrations.session_ids import check_conversation_id
from trimtab.integrations.unnamed_conversations import UnnamedConversations
from trimtab.stores.base import Store

__all__ = ["TrimtabModel"]

_logger = logging.getLogger("trimtab.integrations.openai_agents")

_KEY = "prompt_cache_key"
_CONVERSATION = "trimtab_conversation"
"""An entry of the settings' `extra_args`: the caller's own id of the conversation."""
_RUNNER_KEY_PREFIX = "agents-sdk:"
"""How the runner's cache keys begin. They name the conversation: `agents-sdk:session:HASH`."""
_POINTS = "cache_control_injection_points"
MAX_CACHE_POINTS = 3
"""Cache marks of messages. Claude takes four, and one is for the instructions."""
MAX_OPEN_CALLS = 1_000
"""Calls of recall tools that wait for an answer. Those of an interrupted run wait forever."""
_EVENTS_BEFORE_TEXT = (
    "response.created",
    "response.queued",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
)
_FAILURE_EVENTS = ("response.failed", "response.incomplete", "response.error", "error")
_INCOMPLETE = re.compile(r"incomplete_details=\w+\(reason='(\w+)'")
"""Why a reply is incomplete, in the text of the SDK's error."""

Items = list[TResponseInputItem]
T = TypeVar("T")


class TrimtabModel(Model):
    """A model that sends what fits of the conversation to another model.

    The conversation is known by the id of the SDK's `Session`, else by `RunConfig.group_id`. What
    was hidden is kept by this id, in memory or in a store.

    If the provider keeps the history (`conversation_id`, `previous_response_id`), calls are passed
    on unchanged.

    Args:
        model: The model's name as `Agent` takes it, or a `Model`. None is the SDK's default model.
        store: Keeps what was hidden, also beyond this process: a store, or its location as
            `trimtab.stores.open_store` takes it.
        summaries: `model` lets this model write the summaries, with a call of its own;
            `extractive` takes lines of the conversation.
        **options: Options of `trimtab.Context`.

    Example:
        Give an agent the model and the tools that look up what was hidden::

            model = TrimtabModel("gpt-5.4")
            agent = Agent(name="Assistant", model=model, tools=[get_weather, *model.tools])
    """

    def __init__(
        self,
        model: str | Model | None = None,
        *unnamed: Never,
        store: Store | str | os.PathLike[str] | None = None,
        summaries: SummaryWriter = "extractive",
        **options: Unpack[ConversationOptions],
    ) -> None:
        reject_unnamed_arguments(self, unnamed)
        self._given_model = _check_model(model)
        self._provider: MultiProvider | None = None
        self._named = Conversations(store=store, summaries=summaries, **options)
        # Nobody could ask a store for a conversation without an id.
        self._unnamed = self._named
        if store is not None:
            self._unnamed = Conversations(summaries=summaries, **options)
        self._unnamed_conversations = UnnamedConversations()
        self._ids_by_run: OrderedDict[str, str] = OrderedDict()
        self._ids_by_group: OrderedDict[str, str] = OrderedDict()
        self._open_calls = _OpenCalls()
        self._notices: set[str] = set()
        self._cache_lifetime = options.get("cache") or "5m"
        self._limits_output = options.get("max_output_tokens") is not None
        self.tools: list[Tool] = []
        """The tools by which the model reads what was hidden. Empty if `recall` is set."""
        self.tools += map(self._build_tool, self._named.recall_tools)

    def with_model(self, model: str | Model | None) -> TrimtabModel:
        """Return the same for another model. It knows the same conversations.

        Args:
            model: The model's name, or a `Model`. None is the SDK's default model.

        Example:
            Two agents with one history::

                billing = Agent(name="Billing", model=model.with_model("gpt-5.4-mini"))
                triage = Agent(name="Triage", model=model, handoffs=[billing])
        """
        other = copy(self)
        other._given_model = _check_model(model)  # noqa: SLF001 - its own class
        return other

    async def report(self, session_id: str) -> ContextReport:
        """Return how the next call would use its tokens.

        Args:
            session_id: The id of the SDK's session, or the group id: its newest conversation.

        Raises:
            LookupError: If nothing is known of this conversation.
        """
        with self._find(session_id) as conversation_id:
            return await self._named.report(conversation_id)

    async def why(self, handle: str, session_id: str) -> VisibilityReason:
        """Explain why the model does or does not see something.

        Args:
            handle: The handle of a part, a message or a range, such as `m12.0`.
            session_id: The id of the SDK's session, or the group id: its newest conversation.

        Raises:
            LookupError: If nothing is known of this conversation, or nothing has this handle.
            ValueError: If it is not a handle.
        """
        with self._find(session_id) as conversation_id:
            return await self._named.why(conversation_id, handle)

    async def get_response(self, *arguments: Any, **named: Any) -> ModelResponse:
        """Send what fits, and return the model's response."""
        call = self._begin_call(_Request(*arguments, **named))
        with self._keep_if_failed(call):
            while True:
                request = await self._fit(call)
                try:
                    response = await request.pass_to(call.model.get_response)
                except Exception as error:
                    if not await self._should_retry(call, error):
                        raise
                else:
                    await self._add_reply(call, response.output, response.usage)
                    return response

    async def stream_response(
        self, *arguments: Any, **named: Any
    ) -> AsyncGenerator[TResponseStreamEvent]:
        """Send what fits, and yield the events of the model's response."""
        call = self._begin_call(_Request(*arguments, **named))
        with self._keep_if_failed(call):
            async with _closing(self._stream(call)) as events:
                async for event in events:
                    yield event

    async def _stream(self, call: _Call) -> AsyncGenerator[TResponseStreamEvent]:
        """Yield the events of the first request that is not refused for its length."""
        held: list[TResponseStreamEvent] = []
        items: list[Any] = []
        has_yielded, is_refused = False, True
        while is_refused:
            is_refused = False
            held.clear()
            request = await self._fit(call)
            async with _closing(request.pass_to(call.model.stream_response)) as events:
                try:
                    async for event in events:
                        if event.type in _EVENTS_BEFORE_TEXT and not has_yielded:
                            held.append(event)  # until it is known that the request is accepted
                            continue
                        if event.type in _FAILURE_EVENTS:
                            is_refused = await self._should_retry(call, _read_failure(event))
                            if is_refused and not has_yielded:
                                break
                        has_yielded = True
                        for earlier in held:
                            yield earlier
                        held.clear()
                        if event.type == "response.output_item.done":
                            items.append(event.item)
                        elif event.type == "response.completed":
                            # Before the event, because its receiver may stop listening. Some
                            # servers name the items only one by one.
                            response = event.response
                            await self._add_reply(call, response.output or items, response.usage)
                        yield event
                except Exception as error:
                    is_refused = await self._should_retry(call, error)
                    if not is_refused or has_yielded:
                        raise
            is_refused = is_refused and not has_yielded
        for earlier in held:
            yield earlier

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """Return the advice of the model that was called."""
        return self._resolve_model().get_retry_advice(request)

    async def close(self) -> None:
        """Close the model that was given, and end the conversations' thread."""
        if isinstance(self._given_model, Model):
            await self._given_model.close()
        if self._provider is not None:
            await self._provider.aclose()
        await self._named.close()
        if self._unnamed is not self._named:
            await self._unnamed.close()

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self._resolve_model()._cleanup_on_run_end(owner)  # noqa: SLF001 - the runner's hook

    def _supports_default_prompt_cache_key(self) -> bool:
        """Ask the runner for its cache key: a model sees the session nowhere else."""
        return True

    def _resolve_model(self) -> Model:
        if isinstance(self._given_model, Model):
            return self._given_model
        if self._provider is None:
            # At the first call, as the SDK does: its defaults may be set after this was created.
            self._provider = MultiProvider()
        return self._provider.get_model(self._given_model)

    def _begin_call(self, request: _Request) -> _Call:
        model = self._resolve_model()
        items = _list_items(request.input)
        settings, key = self._split_settings(request.model_settings, model)
        request = replace(request, model_settings=settings)
        call = _Call(model=model, request=request, items=items, conversations=self._named)
        if request.previous_response_id or request.conversation_id:
            self._warn_once(
                "the history of a conversation is kept by the provider (conversation_id or "
                "previous_response_id), so its calls are passed on unchanged; use a Session to "
                "have them fitted"
            )
            return call
        if not items:
            return call
        kind, _, name = (key or "").removeprefix(_RUNNER_KEY_PREFIX).partition(":")
        if kind == "session":
            return replace(call, id=f"session-{name}")
        if kind == "group":
            # An agent that runs as a tool is in the group of its caller, with a list of its own.
            first = _hash(json.dumps(items[:1], sort_keys=True, default=str))
            conversation_id = f"group-{name}-{first[:16]}"
            _put(self._ids_by_group, name, conversation_id, maximum=MAX_CONVERSATIONS)
            return replace(call, id=conversation_id)
        continued_id = self._ids_by_run.get(name) or self._unnamed_conversations.take(items)
        conversation_id = continued_id or f"run-{uuid4().hex}"
        if name:
            _put(self._ids_by_run, name, conversation_id, maximum=MAX_CONVERSATIONS)
        return replace(call, id=conversation_id, conversations=self._unnamed, is_unnamed=True)

    def _split_settings(
        self, settings: ModelSettings, model: Model
    ) -> tuple[ModelSettings, str | None]:
        """Return the settings for the model, and the key that names the conversation."""
        arguments = dict(settings.extra_args or {})
        name = arguments.pop(_CONVERSATION, None)
        own_key = None if name is None else _make_group_key(str(name))
        if own_key is not None:
            settings = replace(settings, extra_args=arguments or None)
        key = arguments.get(_KEY)
        if not isinstance(key, str) or not key.startswith(_RUNNER_KEY_PREFIX):
            return settings, own_key or self._find_group_key(settings)
        del arguments[_KEY]
        settings = replace(settings, extra_args=arguments or None)
        if not isinstance(self._given_model, Model) and settings == ModelSettings():
            # As the SDK does for an agent whose model is a name.
            settings = get_default_model_settings(self._given_model)
        supports_key = getattr(model, "_supports_default_prompt_cache_key", None)
        if supports_key is not None and supports_key():
            arguments = {**(settings.extra_args or {}), _KEY: key}
            settings = replace(settings, extra_args=arguments)
        return settings, own_key or key

    def _find_group_key(self, settings: ModelSettings) -> str | None:
        """Return the key of the group that the runner's trace names, if the caller has set a cache
        key, and so the runner has not."""
        group = getattr(get_current_trace(), "group_id", None)
        if group:
            return _make_group_key(group)
        if _KEY in {**(settings.extra_args or {}), **cast("Any", settings.extra_body or {})}:
            self._warn_once(
                f"{_KEY} is set, so the SDK does not say which session it is, and nothing is kept "
                f"in a store; name it with ModelSettings(extra_args={{'{_CONVERSATION}': …}})"
            )
        return None

    async def _fit(self, call: _Call) -> _Request:
        """Return the request with the items that fit."""
        request = call.request
        if call.id is None:
            return request
        self._check_tools(request.tools)
        name = _get_model_name(call.model)
        dialect = self._choose_dialect(call.model, name)
        reserved = limit_output(name, request.model_settings.max_tokens)
        try:
            view = await call.conversations.fit(
                call.id,
                call.items,
                model=name,
                dialect=dialect,
                system=request.system_instructions or "",
                tools=_describe_tools(request.tools, request.handoffs),
                max_output_tokens=reserved,
                ask_model=partial(_ask_model, call.model, request.model_settings),
            )
        except UnsupportedMedia as error:
            # The runner stores the user's message before a call.
            text = f"{error}; every run fails until it is removed, with session.pop_item()"
            raise UnsupportedMedia(text, media_field=error.media_field) from None
        settings = request.model_settings
        is_ours = settings.max_tokens is None and self._limits_output
        if call.is_refused or is_ours or view.max_output_tokens < (reserved or 0):
            settings = replace(settings, max_tokens=view.max_output_tokens)
        items, ends = _build_items(call.items, view, dialect)
        mark_ends = [end for end, shown in zip(ends, view, strict=True) if shown.has_cache_mark]
        if dialect == "anthropic":
            has_system = bool(request.system_instructions)
            points = _list_cache_points(
                items, mark_ends, self._cache_lifetime, has_system=has_system
            )
            arguments = {_POINTS: points, **(settings.extra_args or {})}
            settings = replace(settings, extra_args=arguments)
        elif mark_ends:
            mappings = cast("list[Mapping[str, Any]]", items)
            items = cast("Items", add_cache_breakpoints_to_items(mappings, 0, mark_ends))
        return replace(request, input=items, model_settings=settings)

    def _choose_dialect(self, model: Model, name: str) -> DialectName:
        """Return the dialect whose rules the sent items must follow."""
        if isinstance(model, OpenAIResponsesModel):
            return "openai_responses"
        if "claude" not in name.lower() or self._cache_lifetime in ("off", "caller"):
            return "openai_chat"
        if type(model).__name__ == "LitellmModel":
            return "anthropic"
        self._warn_once(
            f"the prompt cache of {name} is not used, because {type(model).__name__} cannot send "
            "cache marks; use LitellmModel"
        )
        return "openai_chat"

    def _check_tools(self, tools: Sequence[Tool]) -> None:
        names = {tool.name for tool in tools}
        for own in self.tools:
            if any(tool.name == own.name and tool is not own for tool in tools):
                self._warn_once(
                    f"an agent has another tool named {own.name} than the one in model.tools; "
                    "rename it, or set recall=False and leave model.tools out"
                )
        if not all(tool.name in names for tool in self.tools):
            self._warn_once(
                "an agent lacks the tools that look up what was hidden; give it "
                "tools=[…, *model.tools], or set recall=False"
            )

    async def _should_retry(self, call: _Call, error: Exception) -> bool:
        """Whether the request was too long for a whole reply, and a smaller one can be sent."""
        if incomplete := _INCOMPLETE.search(str(error)):
            error = find_full_window(incomplete[1]) or error
        if call.id is None or not await call.conversations.retry(call.id, error):
            return False
        call.is_refused = True
        return True

    @contextmanager
    def _keep_if_failed(self, call: _Call) -> Generator[None]:
        """Let another call continue the conversation if this one gets no reply."""
        try:
            yield
        finally:
            if call.is_unnamed and not call.is_answered:
                self._unnamed_conversations.give_back(str(call.id))

    async def _add_reply(self, call: _Call, output: Sequence[Any], usage: Any) -> None:
        if call.id is None or not output:
            return
        self._open_calls.add(call, output)
        reply = {"object": "response", "status": "completed", "output": [*output]}
        try:
            await call.conversations.add_reply(call.id, reply, usage=_read_usage(usage))
        except Exception:
            # The reply is paid for, and the next call brings it in the list.
            _logger.warning("could not record a reply; its usage is lost", exc_info=True)
        if call.is_unnamed:
            history = [*call.items, *map(_to_item, output)]
            self._unnamed_conversations.put(call.id, history)
        call.is_answered = True

    def _build_tool(self, definition: Mapping[str, Any]) -> FunctionTool:
        name = definition["name"]

        async def answer(context: ToolContext[Any], arguments: str) -> str:
            open_call = self._open_calls.take(context.tool_call_id, context.tool_call)
            if open_call is None:
                return f"[{name} cannot tell which conversation this call is from; call it again]"
            _, conversations, conversation_id = open_call
            return await conversations.answer(conversation_id, name, arguments)

        return FunctionTool(
            name=name,
            description=definition["description"],
            params_json_schema=definition["input_schema"],
            on_invoke_tool=answer,
            strict_json_schema=False,
        )

    @contextmanager
    def _find(self, session_id: str) -> Generator[str]:
        """Yield the id of a conversation. An error that says it says the caller's own instead."""
        check_conversation_id(session_id)
        name = _hash(session_id.strip())
        conversation_id = self._ids_by_group.get(name, f"session-{name}")
        try:
            yield conversation_id
        except LookupError as error:
            if conversation_id not in str(error):
                raise
            raise LookupError(str(error).replace(conversation_id, session_id[:100])) from None

    def _warn_once(self, text: str) -> None:
        if text not in self._notices:
            self._notices.add(text)
            _logger.warning(text)


@dataclass(frozen=True, slots=True)
class _Request:
    """The arguments of a model call, in the order of the SDK's interface."""

    system_instructions: str | None
    input: str | Items
    model_settings: ModelSettings
    tools: list[Tool]
    output_schema: AgentOutputSchemaBase | None
    handoffs: list[Handoff[Any, Any]]
    tracing: ModelTracing
    _: KW_ONLY
    previous_response_id: str | None
    conversation_id: str | None
    prompt: Any | None

    def pass_to(self, method: Callable[..., T]) -> T:
        """Call a method of a model."""
        return method(
            self.system_instructions,
            self.input,
            self.model_settings,
            self.tools,
            self.output_schema,
            self.handoffs,
            self.tracing,
            previous_response_id=self.previous_response_id,
            conversation_id=self.conversation_id,
            prompt=self.prompt,
        )


@dataclass(slots=True, kw_only=True)
class _Call:
    """A call by the runner, with all its attempts."""

    model: Model
    """The model that is called."""
    request: _Request
    """What the runner wants to send."""
    items: Items
    """The whole history."""
    conversations: Conversations
    """What keeps the conversation."""
    id: str | None = None
    """The conversation's id; None if the call is passed on unchanged."""
    is_unnamed: bool = False
    """Whether the framework has no id for the conversation."""
    is_refused: bool = False
    """Whether an attempt was refused for its length."""
    is_answered: bool = False
    """Whether it got a reply."""


class _OpenCalls:
    """The calls of recall tools that wait for an answer, each with its conversation."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: OrderedDict[str, list[_OpenCall]] = OrderedDict()

    def add(self, call: _Call, output: Sequence[Any]) -> None:
        """Add those among the items of a reply."""
        for item in output:
            if getattr(item, "name", None) in RECALL_TOOL_NAMES:
                with self._lock:
                    calls = self._waiting.get(item.call_id, [])
                    all_calls = [*calls, (item, call.conversations, str(call.id))]
                    _put(self._waiting, item.call_id, all_calls, maximum=MAX_OPEN_CALLS)

    def take(self, call_id: str, tool_call: Any) -> _OpenCall | None:
        """Take a call; None if it is not certain which one it is.

        Some servers use the same call ids in every conversation. The runner passes on the object.
        """
        with self._lock:
            calls = self._waiting.pop(call_id, [])
            candidates = [call for call in calls if call[0] is tool_call] or calls
            if len(candidates) != 1:
                return None
            if other_calls := [call for call in calls if call is not candidates[0]]:
                self._waiting[call_id] = other_calls
            return candidates[0]


_OpenCall = tuple[Any, Conversations, str]


class _StreamFailure(Exception):
    """A failure that is an event of a stream."""

    def __init__(self, code: Any, message: Any) -> None:
        self.body = {"error": {"code": code, "message": message}}
        super().__init__(message)


def _read_failure(event: Any) -> Exception:
    """Return the failure that an event of a stream tells."""
    response: Any = getattr(event, "response", None)
    details: Any = getattr(response, "incomplete_details", None)
    if details is not None:
        cut = find_full_window(details.reason, _read_usage(response.usage))
        return cut or _StreamFailure(details.reason, None)
    error = event if response is None else response.error
    return _StreamFailure(getattr(error, "code", None), getattr(error, "message", None))


@asynccontextmanager
async def _closing(
    events: AsyncIterator[TResponseStreamEvent],
) -> AsyncGenerator[AsyncIterator[TResponseStreamEvent]]:
    """Close a stream at the end if it can be closed."""
    try:
        yield events
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


def _check_model(model: object) -> str | Model | None:
    if model is None or isinstance(model, str | Model):
        return model
    raise TypeError(
        f"model is of type {type(model).__name__}; give the model's name, a Model of the SDK, or "
        "None for the SDK's default model"
    )


def _get_model_name(model: Model) -> str:
    return str(getattr(model, "model", None) or type(model).__name__)


def _list_items(text_or_items: str | Items) -> Items:
    if isinstance(text_or_items, str):
        return [{"role": "user", "content": text_or_items}]
    return text_or_items


def _build_items(items: Items, view: View, dialect: DialectName) -> tuple[Items, list[int]]:
    """Return the items to send, and for each shown message the index of its last item.

    The items are the caller's own, and new ones for what was edited.
    """
    if view.is_unchanged:
        return items, [shown.positions[-1] for shown in view]
    # Trimtab counts system messages at the start as the system prompt, and does not list them.
    request_items = [*takewhile(_is_system_item, items)]
    ends: list[int] = []
    for shown in view:
        if shown.is_callers_own:
            request_items += items[shown.positions[0] : shown.positions[-1] + 1]
        elif dialect == "openai_responses":
            request_items += cast("Items", shown.wire)
        else:
            # The model converts items to messages itself.
            request_items += _write_items(shown.message)
        ends.append(len(request_items) - 1)
    return request_items, ends


def _is_system_item(item: TResponseInputItem) -> bool:
    return item.get("role") in ("system", "developer")


def _write_items(message: Message) -> Items:
    """Write a message as items. Results in a user's message, as Claude has them, come first."""
    messages = [message]
    if message.role == "user" and message.results:
        messages = [replace(message, role="tool", parts=message.results)]
        if texts := tuple(part for part in message.parts if not isinstance(part, ToolResult)):
            messages.append(replace(message, parts=texts))
    return cast("Items", serialize_history(messages))


def _list_cache_points(
    items: Items, mark_ends: Sequence[int], lifetime: str, *, has_system: bool
) -> list[dict[str, Any]]:
    """Return the places of the cache marks for LiteLLM: indexes of messages.

    Args:
        items: The items to send.
        mark_ends: The indexes of the items that are to be marked.
        lifetime: `5m` or `1h`.
        has_system: Whether there are instructions. They are the first message.
    """
    # For Claude, the SDK sends each call in a message of its own, followed by its result. A text
    # before a call is in the message of the call.
    kinds = [cast("Mapping[str, Any]", item).get("type", "message") for item in items]
    ends: list[int] = []
    message_index = 0 if has_system else -1
    for item, kind, next_kind in zip(items, kinds, [*kinds[1:], ""], strict=True):
        is_part_of_call = item.get("role") == "assistant" and next_kind == "function_call"
        if kind in ("message", "function_call", "function_call_output") and not is_part_of_call:
            message_index += 1
        ends.append(message_index)
    indexes = [0] if has_system else []
    indexes += [ends[index] for index in mark_ends[-MAX_CACHE_POINTS:]]
    control = {"type": "ephemeral"} if lifetime == "5m" else {"type": "ephemeral", "ttl": lifetime}
    return [{"location": "message", "index": index, "control": control} for index in indexes]


def _describe_tools(tools: Sequence[Tool], handoffs: Sequence[Handoff[Any, Any]]) -> list[Any]:
    """Return the definitions that are sent. Those that a provider runs itself are not counted."""
    definitions = {
        tool.name: (tool.description, tool.params_json_schema)
        for tool in tools
        if isinstance(tool, FunctionTool) and not tool.defer_loading
    }
    for handoff in handoffs:
        definitions[handoff.tool_name] = (handoff.tool_description, handoff.input_json_schema)
    return [
        {"type": "function", "name": name, "description": description, "parameters": schema}
        for name, (description, schema) in definitions.items()
    ]


async def _ask_model(model: Model, settings: ModelSettings, system: str, text: str) -> ModelAnswer:
    """Ask the model something else, without the agent's tools."""
    response = await model.get_response(
        system,
        text,
        replace(settings, tool_choice=None, parallel_tool_calls=None),
        [],
        None,
        [],
        ModelTracing.DISABLED,
        previous_response_id=None,
        conversation_id=None,
        prompt=None,
    )
    messages = [item for item in response.output if item.type == "message"]
    parts = [part for message in messages for part in message.content]
    texts = [part.text for part in parts if part.type == "output_text"]
    return ModelAnswer(text="".join(texts), usage=_read_usage(response.usage))


def _read_usage(usage: Any) -> Usage | None:
    """Read the usage of the SDK or of OpenAI; None if the server reported none."""
    if usage is None or not usage.input_tokens:
        return None
    details = usage.input_tokens_details
    return Usage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cache_read=getattr(details, "cached_tokens", 0) or 0,
        cache_write=getattr(details, "cache_write_tokens", 0) or 0,
    )


def _to_item(item: Any) -> Any:
    """Return an item of a reply as the SDK puts it into the next list."""
    return item.model_dump(exclude_unset=True) if hasattr(item, "model_dump") else item


def _make_group_key(name: str) -> str:
    return f"{_RUNNER_KEY_PREFIX}group:{_hash(name.strip())}"


def _hash(text: str) -> str:
    """Return a hash as the runner makes it of a session's id."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _put(values: OrderedDict[str, T], key: str, value: T, *, maximum: int) -> None:
    """Set a value, and forget the oldest above the maximum."""
    values[key] = value
    values.move_to_end(key)
    while len(values) > maximum:
        values.popitem(last=False)
