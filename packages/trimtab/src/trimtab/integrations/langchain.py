"""`TrimtabMiddleware`: each request of a LangChain agent fits, and the agent's history stays whole.

    agent = create_agent(model, tools, middleware=[TrimtabMiddleware()])

LangGraph keeps the history. Before each model call the middleware decides which of its messages
the model sees. A message that is shown in full is sent as the caller's own object.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import dropwhile, takewhile
from typing import Any, Never, Unpack, cast
from weakref import ref

from trimtab.integrations.missing_framework import make_missing_framework_error

try:
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
    from langchain.agents.structured_output import ToolStrategy
    from langchain.tools import BaseTool, ToolRuntime
    from langchain_core.exceptions import ContextOverflowError
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import (
        AIMessage,
        AnyMessage,
        BaseMessage,
        HumanMessage,
        SystemMessage,
        ToolMessage,
    )
    from langchain_core.tools import StructuredTool
    from langchain_core.utils.function_calling import convert_to_openai_tool
except ImportError as error:
    raise make_missing_framework_error("langchain", error) from error

from trimtab.dialects import DialectName
from trimtab.dialects.langchain import read_langchain_usage
from trimtab.engine.log.message import (
    Media,
    Message,
    OpaqueBlock,
    Part,
    Text,
    ToolCall,
    ToolResult,
)
from trimtab.engine.prompt.report import ContextReport
from trimtab.engine.prompt.shown_messages import View
from trimtab.engine.recall.visibility import VisibilityReason
from trimtab.errors import CannotFit, ProviderError
from trimtab.integrations.conversations import (
    AskModel,
    ConversationOptions,
    Conversations,
    ModelAnswer,
    SummaryWriter,
    reject_unnamed_arguments,
)
from trimtab.integrations.refusal import ReplyCut, find_full_window, find_refusal
from trimtab.integrations.unnamed_conversations import UnnamedConversations
from trimtab.models.catalog import find_model_info, resolve_model_info
from trimtab.providers.error_parser import parse_error_response
from trimtab.stores.base import Store

__all__ = ["TrimtabMiddleware"]

_logger = logging.getLogger("trimtab.langchain")
Block = dict[str, Any]

MAX_DEFINITIONS = 1_000
"""Tools whose definitions are kept."""
MAX_CACHE_MARKS = 4
"""Cache marks that Anthropic accepts in one request. The setting counts as one."""
MIN_TEXT_TOKENS = 1_024
"""Tokens of output that are left for the text, besides the thinking budget."""
_SUMMARY_CONFIG: Any = {"tags": ["nostream"], "metadata": {"lc_source": "summarization"}}
"""A summary is no part of what the agent streams to its user."""
_CLASSES_THAT_CACHE = ("ChatAnthropic", "ChatBedrock", "ChatBedrockConverse")
"""Classes that take `cache_control` as a model setting, with their subclasses."""
_OUTPUT_LIMIT_NAMES = ("max_tokens", "max_output_tokens", "max_completion_tokens")
"""What model classes call the limit of output tokens."""
_ARGUMENTS_KEY_BY_BLOCK_TYPE = {
    "tool_use": "input",
    "function_call": "arguments",
    "tool_call": "args",
}
"""By type of a block that repeats a call: the key of its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What is known of the chat model of a request."""

    name: str
    """The model's name."""
    dialect: DialectName
    """The format that its messages are counted in."""
    context_window: int | None
    """Tokens of its window by LangChain's profile, for a name that the catalog does not know."""
    output_setting: str
    """The name of the setting that limits output tokens."""
    asked_output: int | None
    """Output tokens that LangChain asks for; None if it sends no limit."""
    reserved_output: int | None
    """Output tokens to reserve; None for Trimtab's default."""
    is_output_default: bool
    """Whether they are LangChain's default, its profile's largest reply, and not the user's."""
    thinking_tokens: int
    """The budget for thinking, which the output limit must exceed."""
    takes_cache_control: bool
    """Whether prompt caching is switched on by the setting `cache_control`."""
    takes_cache_marks: bool
    """Whether a text block may also carry a cache mark."""


@dataclass(slots=True, kw_only=True)
class _Call:
    """One model call of an agent, with its repetitions after refusals."""

    request: ModelRequest[Any]
    """What LangChain would send."""
    model: ModelFacts
    """The request's model."""
    ask_model: AskModel
    """Asks it something else."""
    conversations: Conversations
    """The conversations that its own belongs to."""
    conversation_id: str
    """The name of its conversation there."""
    has_thread: bool
    """Whether a thread of LangGraph names it; otherwise its history does."""
    attempts: int = 0
    """How often it was sent."""


class TrimtabMiddleware(AgentMiddleware[Any, Any, Any]):
    """Makes each request of an agent fit. The agent's own history is never changed.

    Model, system prompt and tools are read from the agent's requests. The model gets the tools
    `recall` and `search_history`, which read what is hidden. Use one middleware for each agent.

    Example:
        Any agent of LangChain::

            agent = create_agent(model, tools, middleware=[TrimtabMiddleware()])
    """

    def __init__(
        self,
        *unnamed: Never,
        model: str | None = None,
        dialect: DialectName | None = None,
        store: Store | str | os.PathLike[str] | None = None,
        agent: str = "",
        summaries: SummaryWriter = "extractive",
        **options: Unpack[ConversationOptions],
    ) -> None:
        """Create the middleware. It needs no argument.

        Args:
            model: The model's name in Trimtab's catalog, if LangChain's model does not tell it.
            dialect: The wire format to count in, if the class of LangChain's model does not tell
                it.
            store: A store of Trimtab for what it decided, or the location of one. None keeps it in
                memory, and a restarted program decides again.
            agent: A name of the agent, if another one uses the same store with the same thread ids.
            summaries: `model` lets the agent's own model write them, with a call of its own;
                `extractive` takes lines of the conversation.
            **options: Options of `Context`, such as `goal` or `context_window`.
        """
        super().__init__()
        reject_unnamed_arguments(self, unnamed)
        self._model_name = model
        self._dialect: DialectName | None = dialect
        self._agent = agent
        self._options = options
        self._stored = Conversations(store=store, summaries=summaries, **options)
        self._in_memory = Conversations(summaries=summaries, **options)
        self._unnamed = UnnamedConversations()
        self._newest: tuple[Conversations, str] | None = None
        self._definitions = _Definitions()
        self._is_told: set[str] = set()
        self.tools: Sequence[BaseTool] = [
            self._make_tool(definition) for definition in self._stored.recall_tools
        ]

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        """Send what fits. After a refusal for length, send less."""
        call = self._begin(request, _ask_in_thread)
        if call is None:
            return handler(request)
        run = call.conversations.run
        try:
            while True:
                fitted = run(self._fit(call))
                try:
                    response = handler(fitted)
                except Exception as error:
                    if not run(self._retry(call, error)):
                        raise
                else:
                    cut = find_cut_reply(response)
                    if cut is None or not run(self._retry_cut(call, cut)):
                        break
        except BaseException:
            self._give_up(call)
            raise
        run(self._finish(call, response))
        return response

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Send what fits. After a refusal for length, send less."""
        call = self._begin(request, _ask_in_loop)
        if call is None:
            return await handler(request)
        try:
            while True:
                fitted = await self._fit(call)
                try:
                    response = await handler(fitted)
                except Exception as error:
                    if not await self._retry(call, error):
                        raise
                else:
                    cut = find_cut_reply(response)
                    if cut is None or not await self._retry_cut(call, cut):
                        break
        except BaseException:
            self._give_up(call)
            raise
        await self._finish(call, response)
        return response

    def report(self, thread_id: str | int | uuid.UUID | None = None) -> ContextReport:
        """Return how a conversation uses its tokens.

        Args:
            thread_id: LangGraph's thread. None takes the conversation that was called last.

        Raises:
            LookupError: If nothing is known of it.
        """
        conversations, conversation_id = self._find(thread_id)
        return conversations.run(conversations.report(conversation_id))

    async def areport(self, thread_id: str | int | uuid.UUID | None = None) -> ContextReport:
        """Return how a conversation uses its tokens, as `report` does."""
        conversations, conversation_id = self._find(thread_id)
        return await conversations.report(conversation_id)

    def why(self, handle: str, thread_id: str | int | uuid.UUID | None = None) -> VisibilityReason:
        """Explain why the model does or does not see something.

        Args:
            handle: A handle from a placeholder, such as `m12.0`, `m12` or `m3-m50`.
            thread_id: LangGraph's thread. None takes the conversation that was called last.

        Raises:
            LookupError: If nothing is known of the conversation, or nothing has this handle.
            ValueError: If it is not a handle.
        """
        conversations, conversation_id = self._find(thread_id)
        return conversations.run(conversations.why(conversation_id, handle))

    async def awhy(
        self, handle: str, thread_id: str | int | uuid.UUID | None = None
    ) -> VisibilityReason:
        """Explain why the model does or does not see something, as `why` does."""
        conversations, conversation_id = self._find(thread_id)
        return await conversations.why(conversation_id, handle)

    def close(self) -> None:
        """Release the store, so that another middleware or process may open its sessions."""
        for conversations in (self._stored, self._in_memory):
            conversations.run(conversations.close())

    async def aclose(self) -> None:
        """Release the store, as `close` does."""
        for conversations in (self._stored, self._in_memory):
            await conversations.close()

    def _find(self, thread_id: str | int | uuid.UUID | None) -> tuple[Conversations, str]:
        if not isinstance(thread_id, str | int | uuid.UUID | None):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's
            kind = type(thread_id).__name__
            raise TypeError(f"a thread's id must be a text, a number or a UUID, not {kind}")
        if thread_id is not None:
            return self._stored, self._name_conversation(thread_id)
        if self._newest is None:
            raise LookupError("no model call was made yet")
        return self._newest

    def _begin(
        self,
        request: ModelRequest[Any],
        ask_model: Callable[[Any, str, str], Awaitable[ModelAnswer]],
    ) -> _Call | None:
        """Begin a call; None if nothing can be hidden: there are no messages, or the provider keeps
        them."""
        if all(isinstance(message, SystemMessage) for message in request.messages):
            return None
        model = unwrap_model(request.model)
        if getattr(model, "use_previous_response_id", None):
            self._tell("the model keeps its history at the provider; Trimtab does not edit it")
            return None
        self._check_tool_names(request)
        place = self._find_by_thread(request.runtime, request.messages)
        conversations, conversation_id = place or (self._in_memory, "")
        call = _Call(
            request=request,
            model=self._read_model(request, model),
            ask_model=partial(ask_model, request.model),
            conversations=conversations,
            conversation_id=conversation_id,
            has_thread=place is not None,
        )
        if not call.has_thread:
            continued_id = self._unnamed.take(list_ids(request.messages))
            call.conversation_id = continued_id or uuid.uuid4().hex
        self._newest = (call.conversations, call.conversation_id)
        return call

    def _check_tool_names(self, request: ModelRequest[Any]) -> None:
        """Refuse a tool of the agent that replaces one of ours, because placeholders name ours."""
        function_by_name = {tool.name: cast("StructuredTool", tool).func for tool in self.tools}
        for tool in request.tools:
            name = "" if isinstance(tool, Mapping) else tool.name
            # Another middleware may have copied our tool. The copy has the same function.
            if (
                name in function_by_name
                and getattr(tool, "func", None) is not function_by_name[name]
            ):
                raise ValueError(
                    f"the agent has a tool of its own named {name!r}, which replaces Trimtab's; "
                    "rename it, or pass recall=False to TrimtabMiddleware"
                )

    def _find_by_thread(
        self, runtime: Any, messages: Sequence[BaseMessage]
    ) -> tuple[Conversations, str] | None:
        """Return a conversation by its thread; None if it has none.

        A graph within a graph shares the thread. Its namespace has a new id in each run, so its
        nodes and its first message name it. Most sub-agents run once for a task and never again,
        so they are stored only if the user speaks a second time.
        """
        info = getattr(runtime, "execution_info", None)
        if info is None or info.thread_id is None:
            return None
        thread_id = self._name_conversation(info.thread_id)
        outer = info.checkpoint_ns.split("|")[:-1]
        if not outer:
            return self._stored, thread_id
        nodes = [piece.partition(":")[0] for piece in outer]
        first = messages[0].id if messages else ""
        name = "|".join([thread_id, *nodes, first or ""])
        return (self._stored if has_second_turn(messages) else self._in_memory), name

    def _name_conversation(self, thread_id: str | int | uuid.UUID) -> str:
        return f"{self._agent}/{thread_id}" if self._agent else str(thread_id)

    def _read_model(self, request: ModelRequest[Any], model: Any) -> ModelFacts:
        return read_model(
            model,
            request.model_settings,
            name=self._model_name,
            dialect=self._dialect,
            limit=self._options.get("max_input_tokens") or self._options.get("context_window"),
        )

    async def _fit(self, call: _Call) -> ModelRequest[Any]:
        request, model = call.request, call.model
        ids = [message.id for message in request.messages]
        has_ids = all(ids) and len({*ids}) == len(ids)
        own_output = self._options.get("max_output_tokens")
        view = await call.conversations.fit(
            call.conversation_id,
            request.messages,
            model=model.name,
            dialect=model.dialect,
            system=request.system_prompt or "",
            tools=self._definitions.read(request, model.dialect),
            ids=cast("list[str]", ids) if has_ids else None,
            max_output_tokens=own_output or model.reserved_output,
            is_output_default=model.is_output_default and not own_output,
            context_window=model.context_window,
            ask_model=call.ask_model,
        )
        settings = {**request.model_settings}
        mark = self._switch_caching_on(call, settings)
        self._limit_output(call, view, settings)
        call.attempts += 1
        return request.override(
            messages=cast("list[AnyMessage]", build_messages(view, request.messages, mark)),
            model_settings=settings,
        )

    def _switch_caching_on(self, call: _Call, settings: dict[str, Any]) -> Block | None:
        """Add Claude's prompt cache to the settings, unless the caller has set it.

        Returns the mark for the last text that Trimtab wrote, such as a summary; None if there may
        be none. The setting only marks the end of a request. Most edits change what follows that
        text. With a mark at it, Claude still reads the part before it from the cache.
        """
        model, cache = call.model, self._options.get("cache")
        if cache in ("off", "caller"):
            return None
        if not model.takes_cache_control:
            if model.dialect == "anthropic" and "cache_control" not in settings:
                self._tell(
                    f"Claude's prompt cache is not used: {type(call.request.model).__name__} has "
                    "no setting for it that Trimtab knows, so each call pays for its whole prompt"
                )
            return None
        marks = count_cache_marks(call.request)
        if marks >= MAX_CACHE_MARKS:
            return None
        settings.setdefault("cache_control", {"type": "ephemeral", "ttl": cache or "5m"})
        can_mark = model.takes_cache_marks and marks + 1 < MAX_CACHE_MARKS
        return settings["cache_control"] if can_mark else None

    def _limit_output(self, call: _Call, view: View, settings: dict[str, Any]) -> None:
        """Ask for the output that fits, if LangChain would ask for more or the user set it."""
        model = call.model
        is_lowered = view.max_output_tokens < (model.reserved_output or 0)
        if is_lowered or call.attempts or self._options.get("max_output_tokens"):
            least = model.thinking_tokens + MIN_TEXT_TOKENS if model.thinking_tokens else 0
            settings[model.output_setting] = max(view.max_output_tokens, least)
        elif model.asked_output and (model.reserved_output or 0) < model.asked_output:
            settings[model.output_setting] = model.reserved_output

    def _tell(self, text: str) -> None:
        """Log a warning once."""
        if text not in self._is_told:
            self._is_told.add(text)
            _logger.warning("%s", text)

    async def _retry(self, call: _Call, error: Exception) -> bool:
        if find_refusal(error) is None:
            # In a stream of the Responses API, LangChain raises a bare ValueError.
            failure = parse_error_response(None, str(error))
            if failure.kind == "overflow":
                error = ProviderError(failure)
            elif isinstance(error, ContextOverflowError):
                error = ProviderError(replace(failure, kind="overflow"))
        return await call.conversations.retry(call.conversation_id, error)

    async def _retry_cut(self, call: _Call, cut: ReplyCut) -> bool:
        """Say whether to send again because the window was full before the reply was complete."""
        try:
            return await self._retry(call, cut)
        except CannotFit:
            return False  # a part of a reply is better than none

    async def _finish(self, call: _Call, response: ModelResponse[Any]) -> None:
        reply = find_reply(response)
        if reply is None:
            self._give_up(call)
            return
        if not reply.tool_calls:  # else the next list has it, with its usage
            await call.conversations.add_reply(call.conversation_id, reply)
        if not call.has_thread:
            history = list_ids([*call.request.messages, reply])
            self._unnamed.put(call.conversation_id, history)

    def _give_up(self, call: _Call) -> None:
        """Let a call that failed be tried again in the same conversation."""
        self._unnamed.give_back(call.conversation_id)

    def _make_tool(self, definition: Mapping[str, Any]) -> BaseTool:
        """Make one of the recall tools."""
        name = str(definition["name"])

        def find(runtime: ToolRuntime[Any, Any]) -> tuple[Conversations, str]:
            messages = runtime.state["messages"]
            unnamed = self._in_memory, self._unnamed.find(list_ids(messages)) or ""
            return self._find_by_thread(runtime, messages) or unnamed

        def answer(runtime: ToolRuntime[Any, Any], **arguments: Any) -> str:
            conversations, conversation_id = find(runtime)
            return conversations.run(conversations.answer(conversation_id, name, arguments))

        async def answer_async(runtime: ToolRuntime[Any, Any], **arguments: Any) -> str:
            conversations, conversation_id = find(runtime)
            return await conversations.answer(conversation_id, name, arguments)

        return StructuredTool(
            name=name,
            description=str(definition["description"]),
            args_schema=dict(definition["input_schema"]),
            func=answer,
            coroutine=answer_async,
        )


def list_ids(messages: Sequence[BaseMessage]) -> list[str | None]:
    """Return the ids of messages. The first one's does not tell a conversation: LangChain writes
    it into the object that it is given, and programs use such an object for several users."""
    return [message.id for message in messages]


def find_reply(response: ModelResponse[Any]) -> AIMessage | None:
    """Return the model's reply."""
    return next((message for message in response.result if isinstance(message, AIMessage)), None)


def find_cut_reply(response: ModelResponse[Any]) -> ReplyCut | None:
    """Return as an error that a full window cut the reply; None if it ended in another way."""
    reply = find_reply(response)
    if reply is None:
        return None
    metadata = reply.response_metadata
    keys = ("stop_reason", "finish_reason", "stopReason")
    reason = next((metadata[key] for key in keys if metadata.get(key)), None)
    return find_full_window(reason, read_langchain_usage(reply))


def has_second_turn(messages: Sequence[BaseMessage]) -> bool:
    """Whether the user speaks again after a reply."""
    after_reply = dropwhile(lambda message: not isinstance(message, AIMessage), messages)
    return any(isinstance(message, HumanMessage) for message in after_reply)


class _Definitions:
    """Tool definitions of requests. Each tool is converted once."""

    def __init__(self) -> None:
        self._converted: OrderedDict[tuple[int, str], tuple[Any, list[Block]]] = OrderedDict()

    def read(self, request: ModelRequest[Any], dialect: DialectName) -> list[Block]:
        """Return the definitions that the model gets, with those for a structured response."""
        definitions: list[Block] = []
        for tool in request.tools:
            definitions += self._convert(tool, dialect, _define_tool)
        if request.response_format is not None:
            definitions += self._convert(request.response_format, dialect, _define_response)
        return definitions

    def _convert(
        self, value: Any, dialect: DialectName, define: Callable[[Any, DialectName], list[Block]]
    ) -> list[Block]:
        key = (id(value), dialect)
        entry = self._converted.get(key)
        if entry is None or entry[0] is not value:
            entry = self._converted[key] = (value, define(value, dialect))
            while len(self._converted) > MAX_DEFINITIONS:
                self._converted.popitem(last=False)
        return entry[1]


def _define_tool(tool: BaseTool | Mapping[str, Any], dialect: DialectName) -> list[Block]:
    if not isinstance(tool, Mapping):
        return [convert_to_openai_tool(tool)]
    is_function = "function" in tool or "name" in tool or tool.get("type") == "object"
    if is_function or dialect != "openai_chat":
        return [dict(tool)]
    # A provider's own tool, which Chat Completions does not have. It is only counted.
    return [{"name": "provider_tool", "description": json.dumps(tool, default=str)}]


def _define_response(response_format: Any, _: DialectName) -> list[Block]:
    """Return the schemas of a structured response as tools. As a parameter they have the same
    size."""
    specs: Any = getattr(response_format, "schema_specs", None)
    if specs is None:
        specs = ToolStrategy(getattr(response_format, "schema", response_format)).schema_specs
    return [
        {"name": spec.name, "description": spec.description, "input_schema": spec.json_schema}
        for spec in specs
    ]


async def _ask_in_loop(model: Any, system: str, text: str) -> ModelAnswer:
    """Ask a chat model on the event loop of the agent."""
    messages = [SystemMessage(system), HumanMessage(text)]
    return _read_answer(await model.ainvoke(messages, config=_SUMMARY_CONFIG))


async def _ask_in_thread(model: Any, system: str, text: str) -> ModelAnswer:
    """Ask a chat model for an agent without an event loop."""
    messages = [SystemMessage(system), HumanMessage(text)]
    return _read_answer(await asyncio.to_thread(model.invoke, messages, config=_SUMMARY_CONFIG))


def _read_answer(reply: AIMessage) -> ModelAnswer:
    return ModelAnswer(text=str(reply.text), usage=read_langchain_usage(reply))


def unwrap_model(model: Any) -> Any:
    """Return the chat model that answers: the one in a binding, or the one that the run's config
    chooses."""
    if not isinstance(model, BaseChatModel) and hasattr(cast("Any", type(model)), "_model"):
        model = model._model()  # noqa: SLF001 - the models of `init_chat_model` have no other name for it
    while not isinstance(model, BaseChatModel) and hasattr(model, "bound"):
        model = model.bound
    return model


def read_model(
    model: Any,
    settings: Mapping[str, Any],
    *,
    name: str | None = None,
    dialect: DialectName | None = None,
    limit: int | None = None,
) -> ModelFacts:
    """Read from a chat model what Trimtab needs to know.

    `name`, `dialect` and `limit`, a number of tokens, are the user's if they are set.
    """
    name = name or _find_model_name(model)
    info = resolve_model_info(name)
    profile: Mapping[str, Any] = getattr(model, "profile", None) or {}
    window = profile.get("max_input_tokens") if find_model_info(name) is None else None
    output_setting, output_limit = _find_output_limit(model, settings)
    reserved = min(output_limit, info.max_output) if output_limit else None
    # LangChain asks Claude for its largest reply by default, which may be a third of the window.
    # It writes this into the model as if the user had set it, so only the number tells.
    is_set = output_setting in settings or output_limit != profile.get("max_output_tokens")
    is_default = bool(output_limit) and not is_set
    if reserved and is_default:
        reserved = min(reserved, (limit or window or info.context_window) // 4)
    thinking: Mapping[str, Any] = settings.get("thinking") or getattr(model, "thinking", None) or {}
    classes = {kind.__name__ for kind in type(model).__mro__}
    can_cache = any(maker in name.lower() for maker in ("claude", "amazon.nova"))
    return ModelFacts(
        name=name,
        dialect=dialect or _find_dialect(model, classes, name),
        context_window=window,
        output_setting=output_setting,
        asked_output=output_limit,
        reserved_output=reserved,
        is_output_default=is_default,
        thinking_tokens=thinking.get("budget_tokens") or 0,
        takes_cache_control=can_cache and not classes.isdisjoint(_CLASSES_THAT_CACHE),
        takes_cache_marks="ChatAnthropic" in classes,
    )


def _find_model_name(model: Any) -> str:
    names = (getattr(model, key, None) for key in ("model_name", "model", "model_id"))
    name_of_model = next((name for name in names if isinstance(name, str) and name), None)
    return (name_of_model or type(model).__name__).removeprefix("models/")


def _find_dialect(model: Any, classes: set[str], name: str) -> DialectName:
    if "BaseChatOpenAI" in classes and getattr(model, "use_responses_api", None):
        return "openai_responses"
    has_claudes_blocks = not classes.isdisjoint((*_CLASSES_THAT_CACHE, "ChatAnthropicVertex"))
    return "anthropic" if has_claudes_blocks and "claude" in name.lower() else "openai_chat"


def _find_output_limit(model: Any, settings: Mapping[str, Any]) -> tuple[str, int | None]:
    """Return the name of the setting that limits the output, and its value."""
    for key in _OUTPUT_LIMIT_NAMES:
        value = settings.get(key) or getattr(model, key, None)
        if isinstance(value, int):
            return key, value
    fields: Mapping[str, Any] = getattr(cast("Any", type(model)), "model_fields", {})
    return next((key for key in _OUTPUT_LIMIT_NAMES if key in fields), "max_tokens"), None


def count_cache_marks(request: ModelRequest[Any]) -> int:
    """Count the cache marks that the caller placed in the system prompt, tools and messages."""
    system = request.system_message
    contents = [message.content for message in (*([system] if system else []), *request.messages)]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    extras = [
        cast("Any", tool.extras or {}) for tool in request.tools if isinstance(tool, BaseTool)
    ]
    tools = [tool for tool in request.tools if isinstance(tool, dict)]
    holders = [holder for holder in (*blocks, *extras, *tools) if "cache_control" in holder]
    return sum(isinstance(holder, Mapping) for holder in holders)


def build_messages(
    view: View, own: Sequence[BaseMessage], mark: Block | None = None
) -> list[BaseMessage]:
    """Return the messages to send: the caller's own objects, and copies of edited ones.

    `mark` is a cache mark for the last text that Trimtab wrote, if the view has one there.
    """
    if view.is_unchanged:
        return [*own]
    # System messages at the start of a list count as system prompt. They are not in the view.
    messages = [*takewhile(lambda message: isinstance(message, SystemMessage), own)]
    texts = [shown for shown in view if shown.has_cache_mark and not shown.positions]
    marked_text = texts[-1] if texts and mark is not None else None
    for shown in view:
        positions = shown.positions
        if positions and not shown.is_edited:
            messages += [own[position] for position in positions]
            continue
        built = _EDITED_COPIES.build(shown.message, [own[position] for position in positions])
        if shown is marked_text:
            block = {"type": "text", "text": built[-1].text, "cache_control": mark}
            built = [*built[:-1], built[-1].model_copy(update={"content": [block]})]
        messages += built
    return messages


class _EditedCopies:
    """Edited copies of callers' messages. Each is built once, because in a long history there are
    hundreds, and is forgotten with the caller's message."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[ref[BaseMessage], Message, list[BaseMessage]]] = {}

    def build(self, message: Message, own: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return an edited message; `own` are the caller's messages that it is made of."""
        if len(own) != 1:
            return _build_edited(message, own)
        key = id(own[0])
        copies = self._by_id.get(key)
        if copies is None or copies[0]() is not own[0] or copies[1] is not message:
            alive = ref(own[0], lambda _: self._by_id.pop(key, None))
            copies = self._by_id[key] = (alive, message, _build_edited(message, own))
        return copies[2]


_EDITED_COPIES = _EditedCopies()


def _build_edited(message: Message, own: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Build a message that is edited. What the edit leaves is taken from the caller's message."""
    results = message.results
    if results:
        return [_build_result(result, own) for result in results]
    content = _build_content(message.parts, own)
    if message.role == "assistant":
        return [_copy(AIMessage, own, {"content": content, **_build_calls(message, own)})]
    return [
        _copy(
            SystemMessage if message.role == "system" else HumanMessage, own, {"content": content}
        )
    ]


def _copy(
    kind: type[AIMessage | HumanMessage | SystemMessage | ToolMessage],
    own: Sequence[BaseMessage],
    fields: Mapping[str, Any],
) -> BaseMessage:
    """Return the caller's message with other fields, or a new one if there is none of its kind."""
    for message in own:
        if isinstance(message, kind):
            return message.model_copy(update={**fields})
    return kind(**fields)


def _build_result(result: ToolResult, own: Sequence[BaseMessage]) -> BaseMessage:
    """Build a tool's result. Name, status and artifact stay the caller's."""
    originals = [
        message
        for message in own
        if isinstance(message, ToolMessage) and message.tool_call_id == result.call_id
    ]
    fields: dict[str, Any] = {"content": _build_content(result.content, originals)}
    if not originals:
        fields |= {
            "tool_call_id": result.call_id,
            "status": "error" if result.is_error else "success",
        }
    return _copy(ToolMessage, originals, fields)


def _build_calls(message: Message, own: Sequence[BaseMessage]) -> dict[str, Any]:
    """Build the tool calls of a reply. Arguments that are not JSON stay among the invalid calls."""
    replies = [reply for reply in own if isinstance(reply, AIMessage)]
    invalid_ids = {call["id"] for reply in replies for call in reply.invalid_tool_calls}
    calls: list[Block] = []
    invalid: list[Block] = []
    for call in message.calls:
        arguments: Any = _parse_arguments(call.arguments)
        if call.id in invalid_ids or arguments is None:
            fields = {"name": call.name, "args": call.arguments, "id": call.id, "error": None}
            invalid.append({**fields, "type": "invalid_tool_call"})
        else:
            calls.append({"name": call.name, "args": arguments, "id": call.id, "type": "tool_call"})
    return {"tool_calls": calls, "invalid_tool_calls": invalid}


def _parse_arguments(arguments: str) -> dict[str, Any] | None:
    try:
        parsed: Any = json.loads(arguments or "{}")
    except ValueError:
        return None
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else None


def _build_content(parts: Sequence[Part], own: Sequence[BaseMessage]) -> str | list[Any]:
    """Build the content of an edited message: a text if the caller's is one, else blocks."""
    contents = [cast("str | list[str | Block]", message.content) for message in own]
    is_text = all(isinstance(part, Text | ToolCall) for part in parts)
    if is_text and all(isinstance(content, str) for content in contents):
        return "\n\n".join(part.text for part in parts if isinstance(part, Text))
    blocks: list[str | Block] = []
    for content in contents:
        blocks += [content] if isinstance(content, str) else content
    built: list[str | Block] = []
    for part in parts:
        original = next((block for block in blocks if _is_block_of(part, block)), None)
        if original is not None:
            blocks.remove(original)
        block = _build_block(part, original)
        if block is not None:
            built.append(block)
    return built


def _is_block_of(part: Part, block: str | Block) -> bool:
    """Whether a block of the caller's is shown as this part."""
    if isinstance(block, str):
        return isinstance(part, Text) and part.text == block
    match part:
        case Text():
            return block.get("type") == "text" and block.get("text") == part.text
        case Media():
            payload = part.data or part.url
            return payload is not None and any(
                text.endswith(payload) for text in _list_texts(block)
            )
        case ToolCall():
            is_call = block.get("type") in _ARGUMENTS_KEY_BY_BLOCK_TYPE
            return is_call and part.id in (block.get("call_id"), block.get("id"))
        case OpaqueBlock():
            return all(block.get(key) == value for key, value in part.data.items())
        case ToolResult():
            return False


def _list_texts(value: Any) -> Iterator[str]:
    """Yield all texts in a block."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in cast("Mapping[str, Any]", value).values():
            yield from _list_texts(inner)


def _build_block(part: Part, original: str | Block | None) -> str | Block | None:
    """Return a part as a block: the caller's own if there is one."""
    match part:
        case ToolCall():
            if original is None or isinstance(original, str):
                return None  # LangChain adds it from `tool_calls`
            key = _ARGUMENTS_KEY_BY_BLOCK_TYPE[original["type"]]
            is_json = isinstance(original.get(key), str)
            return {
                **original,
                key: part.arguments if is_json else _parse_arguments(part.arguments),
            }
        case Text():
            return {"type": "text", "text": part.text} if original is None else original
        case Media():
            if original is not None:
                return original
            source = {"base64": part.data} if part.data else {"url": part.url}
            kind = part.kind if part.kind in ("image", "audio", "video") else "file"
            return {"type": kind, **source, "mime_type": part.mime}
        case OpaqueBlock():
            return dict(part.data) if original is None else original
        case ToolResult():
            return None
