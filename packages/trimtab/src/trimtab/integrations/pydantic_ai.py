"""Pydantic AI: a capability that decides before each model call what the model sees.

The agent's message history stays whole. Before a call it is translated to Trimtab's messages. What
is shown unchanged is sent as the agent's own objects. A part that was hidden or cut is replaced in
a copy of its message.
"""

from __future__ import annotations

import json
import logging
import operator
import os
import weakref
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from types import MappingProxyType
from typing import Any, NamedTuple, Never, Unpack, cast

from trimtab.integrations.missing_framework import make_missing_framework_error

try:
    from pydantic_ai import RunContext, Tool
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.direct import model_request
    from pydantic_ai.exceptions import RetryModelRequest
    from pydantic_ai.messages import (
        ERROR_OUTCOMES,
        BinaryContent,
        CachePoint,
        CompactionPart,
        ImageUrl,
        ModelMessage,
        ModelRequest,
        ModelRequestPart,
        ModelResponse,
        ModelResponsePart,
        RetryFeedbackPart,
        SpeechPart,
        SystemPromptPart,
        TextContent,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserContent,
        UserPromptPart,
    )
    from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.toolsets import FunctionToolset
except ImportError as error:
    raise make_missing_framework_error("pydantic-ai", error) from error

from trimtab.dialects import DialectName
from trimtab.dialects.known_history import MAX_COMPARED_ITEMS
from trimtab.engine.log.event import Usage
from trimtab.engine.log.message import (
    Media,
    Message,
    OpaqueBlock,
    Part,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from trimtab.engine.prompt.report import ContextReport
from trimtab.engine.prompt.shown_messages import ShownMessage, View
from trimtab.engine.recall.visibility import VisibilityReason
from trimtab.errors import CannotFit
from trimtab.integrations.conversations import (
    ConversationOptions,
    Conversations,
    ModelAnswer,
    SummaryWriter,
    limit_output,
    reject_unnamed_arguments,
)
from trimtab.integrations.refusal import find_full_window
from trimtab.models.catalog import UNKNOWN_MODEL_WINDOW_TOKENS, find_model_info
from trimtab.stores.base import Store

__all__ = ["TrimtabCapability"]

logger = logging.getLogger("trimtab.integrations.pydantic_ai")

SERVER_SIDE_HISTORY = ("openai_previous_response_id", "openai_conversation_id")
"""Settings with which the provider keeps the history. Trimtab then leaves requests alone."""
DEFAULT_CLAUDE_OUTPUT = 16_384
"""Tokens of output that Pydantic AI asks for if it does not know a Claude model's largest reply."""
MIN_TEXT_TOKENS = 1_024
"""Tokens of output that are left for the text, besides the thinking budget."""
PDF_MIME_TYPE = "application/pdf"
_DIALECT_BY_MODEL_CLASS: Mapping[str, DialectName] = {
    "AnthropicModel": "anthropic",
    "OpenAIResponsesModel": "openai_responses",
    "OpenAIChatModel": "openai_chat",
}
_TOOL_SETTINGS = ("tool_choice", "parallel_tool_calls")
"""Settings that a provider refuses in a request without tools."""
_SIMULATED_SYSTEMS = ("test", "function")
"""What `TestModel` and `FunctionModel` say as their provider."""
_OUTER_RUNS: ContextVar[Mapping[str, str]] = ContextVar(
    "trimtab_outer_runs", default=MappingProxyType({})
)
"""The outermost run of each conversation that the current code is part of, by conversation."""


class TrimtabCapability(AbstractCapability[object]):
    """Keep the requests of an agent within its model's window, and its history whole.

    A conversation is known by its `conversation_id`. A run inside another run of the same
    conversation, such as an agent that is a tool of another one, is a conversation of its own.

    Args:
        store: A store of Trimtab, or its location. The edits then survive a restart. None keeps
            them in memory.
        summaries: `model` lets the agent's own model write the summaries, with a call of its own;
            `extractive` takes lines of the conversation.
        **options: Options of `Context`: `goal`, `policy`, `limits`, `context_window`,
            `max_input_tokens`, `recall`, `cache`, `on_edit` and others.

    Example:
        One line for an agent::

            agent = Agent("anthropic:claude-sonnet-5-5", capabilities=[TrimtabCapability()])
    """

    id: str | None = "trimtab"

    def __init__(
        self,
        *unnamed: Never,
        store: Store | str | os.PathLike[str] | None = None,
        summaries: SummaryWriter = "extractive",
        **options: Unpack[ConversationOptions],
    ) -> None:
        reject_unnamed_arguments(self, unnamed)
        self._conversations = Conversations(store=store, summaries=summaries, **options)
        self._options = options
        self._has_window = bool(options.get("context_window") or options.get("max_input_tokens"))
        self._translations = _Translations()
        self._warnings: set[str] = set()
        self._toolset = self._make_toolset()

    async def report(self, conversation_id: str) -> ContextReport:
        """Return how the next call would use its tokens.

        Args:
            conversation_id: As `result.conversation_id` says it. A run inside another run of
                the same conversation has the id "conversation_id/run_id" of its own result.

        Raises:
            LookupError: If nothing is known of the conversation.
        """
        return await self._conversations.report(conversation_id)

    async def why(self, handle: str, conversation_id: str) -> VisibilityReason:
        """Explain why the model sees something or does not.

        Args:
            handle: The handle of a part, a message or a range, such as `m12`.
            conversation_id: As `result.conversation_id` says it.

        Raises:
            LookupError: If nothing is known of the conversation, or nothing has this handle.
        """
        return await self._conversations.why(conversation_id, handle)

    async def close(self) -> None:
        """Release the conversations, and close a store that was given by its location."""
        await self._conversations.close()

    def __deepcopy__(self, memo: object) -> TrimtabCapability:
        return self  # a copy of an agent has the same conversations

    # What Pydantic AI calls. An agent has one of these; the last one that it is given counts.

    @classmethod
    def combine(cls, capabilities: Sequence[AbstractCapability[Any]]) -> AbstractCapability[Any]:
        last = capabilities[-1]
        has_others = any(capability is not last for capability in capabilities)
        if isinstance(last, TrimtabCapability) and has_others:
            text = "an agent uses one TrimtabCapability, and it has several: the last counts"
            last._warn_once(text)  # noqa: SLF001 - one of ours
        return last

    @classmethod
    def get_serialization_name(cls) -> str | None:
        return None

    def get_toolset(self) -> FunctionToolset[object] | None:
        return self._toolset

    async def before_run(self, ctx: RunContext[object]) -> None:
        conversation_id, run_id = ctx.conversation_id or "", ctx.run_id or ""
        # Pydantic AI carries it into the run, and resets it after the run.
        _OUTER_RUNS.set({conversation_id: run_id, **_OUTER_RUNS.get()})

    async def prepare_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        settings = _read_settings(request_context)
        if _is_kept_by_provider(settings):
            names = " or ".join(SERVER_SIDE_HISTORY)
            self._warn_once(f"{names} is set: the provider keeps the history, Trimtab does nothing")
            return request_context
        model = _ModelFacts.of(request_context.model)
        parameters = request_context.model_request_parameters
        history = _History(request_context.messages, self._translations, model.dialect)
        asked_limit = settings.get("max_tokens")
        default = None if asked_limit else model.default_output
        reserved = limit_output(model.name, asked_limit or default)
        own_output = self._options.get("max_output_tokens")
        view = await self._conversations.fit(
            _find_key(ctx),
            history.messages,
            model=model.name,
            dialect=model.dialect,
            system=_read_system(parameters),
            tools=_list_tools(ctx, parameters),
            max_output_tokens=own_output if default and own_output else reserved,
            is_output_default=bool(default) and not own_output,
            context_window=None if self._has_window else model.find_smaller_window(),
            ask_model=partial(_ask_model, request_context.model, settings),
        )
        # Without a limit of the caller's own, only a refusal says that less output is needed.
        needs_less = (
            request_context.attempt > 1 if reserved is None else view.max_output_tokens < reserved
        )
        own_settings: ModelSettings = {}
        if needs_less:
            thinking = cast("Mapping[str, Any]", settings.get("anthropic_thinking") or {})
            budget = cast("int", thinking.get("budget_tokens") or 0)
            min_tokens = budget + MIN_TEXT_TOKENS if budget else 0
            own_settings["max_tokens"] = max(view.max_output_tokens, min_tokens)
        cache_point: CachePoint | None = None
        lifetime = self._options.get("cache") or "5m"
        if lifetime in ("5m", "1h") and not any("cache" in name for name in settings):
            own_settings["cache"] = "1h" if lifetime == "1h" else True
            if model.takes_cache_points:
                cache_point = CachePoint(ttl=cast("Any", lifetime))
        return replace(
            request_context,
            messages=history.assemble(view, cache_point),
            model_settings=cast("ModelSettings", {**settings, **own_settings}),
        )

    async def after_model_request(
        self,
        ctx: RunContext[object],
        *,
        request_context: ModelRequestContext,
        response: ModelResponse,
    ) -> ModelResponse:
        if _is_kept_by_provider(_read_settings(request_context)):
            return response
        is_too_long = await self._is_too_long_for_a_reply(ctx, response)
        if is_too_long and not request_context.streaming:
            raise RetryModelRequest
        model = _ModelFacts.of(request_context.model)
        [reply] = self._translations.find(response, model.dialect).pieces
        usage = None if model.is_simulated else _read_usage(response)
        await self._conversations.add_reply(_find_key(ctx), reply.message, usage=usage)
        return response

    async def on_model_request_error(
        self, ctx: RunContext[object], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        is_ours = not _is_kept_by_provider(_read_settings(request_context))
        if is_ours and await self._conversations.retry(_find_key(ctx), error):
            raise RetryModelRequest from error
        raise error

    async def _is_too_long_for_a_reply(
        self, ctx: RunContext[object], response: ModelResponse
    ) -> bool:
        """Whether the window was full before the reply was complete. The next request is then
        smaller."""
        reason = (response.provider_details or {}).get("finish_reason")
        error = find_full_window(reason, _read_usage(response))
        try:
            return error is not None and await self._conversations.retry(_find_key(ctx), error)
        except CannotFit:
            return False  # a part of a reply is better than none

    def _make_toolset(self) -> FunctionToolset[object] | None:
        definitions = self._conversations.recall_tools
        tools = [self._make_recall_tool(definition) for definition in definitions]
        return FunctionToolset(tools, id="trimtab") if tools else None

    def _make_recall_tool(self, definition: Mapping[str, Any]) -> Tool[object]:
        name = definition["name"]

        async def answer(ctx: RunContext[object], **arguments: Any) -> str:
            return await self._conversations.answer(_find_key(ctx), name, arguments)

        return Tool[object].from_schema(
            answer,
            name=name,
            description=definition["description"],
            json_schema=definition["input_schema"],
            takes_ctx=True,
        )

    def _warn_once(self, text: str) -> None:
        if text not in self._warnings:
            self._warnings.add(text)
            logger.warning("%s", text)


async def _ask_model(
    model: Model, settings: Mapping[str, Any], system: str, text: str
) -> ModelAnswer:
    """Ask the model something else, without the agent's tools."""
    own_settings = {name: settings[name] for name in settings if name not in _TOOL_SETTINGS}
    response = await model_request(
        model,
        [ModelRequest(parts=[SystemPromptPart(system), UserPromptPart(text)])],
        model_settings=cast("ModelSettings", own_settings),
        instrument=False,
    )
    texts = [part.content for part in response.parts if isinstance(part, TextPart)]
    return ModelAnswer(text="".join(texts), usage=_read_usage(response))


def _find_key(ctx: RunContext[object]) -> str:
    """Return Trimtab's id of the conversation: another one for a run inside another run of it."""
    conversation_id, run_id = ctx.conversation_id or "", ctx.run_id or ""
    outer_run = _OUTER_RUNS.get().get(conversation_id, run_id)
    return conversation_id if outer_run == run_id else f"{conversation_id}/{run_id}"


def _read_settings(request_context: ModelRequestContext) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", request_context.model_settings or {})


def _is_kept_by_provider(settings: Mapping[str, Any]) -> bool:
    return any(settings.get(name) for name in SERVER_SIDE_HISTORY)


class _ModelFacts(NamedTuple):
    """What Trimtab must know of the framework's model."""

    name: str
    """As the provider knows it."""
    dialect: DialectName
    """The nearest wire format: Chat Completions for a format that Trimtab does not know."""
    context_window: int | None
    """What its profile says."""
    default_output: int | None
    """Tokens of output that the framework asks for if the user says nothing; None for no limit."""
    takes_cache_points: bool
    """Whether a mark for the provider's cache may stand in a message."""
    is_simulated: bool
    """Whether it stands for a model in tests: the usage that it reports is invented."""

    @classmethod
    def of(cls, model: Model) -> _ModelFacts:
        context_window = model.context_window
        while (inner := _find_inner_model(model)) is not None:
            model = inner
        names = [kind.__name__ for kind in type(model).__mro__]
        is_claude_at_bedrock = "BedrockConverseModel" in names and "claude" in model.model_name
        default: DialectName = "anthropic" if is_claude_at_bedrock else "openai_chat"
        matches = [name for name in names if name in _DIALECT_BY_MODEL_CLASS]
        return cls(
            model.model_name,
            _DIALECT_BY_MODEL_CLASS[matches[0]] if matches else default,
            context_window,
            _find_default_output(model, names),
            takes_cache_points="AnthropicModel" in names,
            is_simulated=model.system in _SIMULATED_SYSTEMS,
        )

    def find_smaller_window(self) -> int | None:
        """Return the window of the profile if the catalog has none, or a larger one."""
        info = find_model_info(self.name)
        if self.is_simulated:  # nobody needs to be told what is assumed
            return self.context_window or UNKNOWN_MODEL_WINDOW_TOKENS
        profile = self.context_window
        return None if info and profile and profile >= info.context_window else profile


def _find_default_output(model: Model, class_names: Sequence[str]) -> int | None:
    """Return how many tokens of output a model of Claude is asked for by default."""
    largest = cast("Mapping[str, Any]", model.profile).get("anthropic_max_output_tokens")
    if "AnthropicModel" in class_names:
        return largest or DEFAULT_CLAUDE_OUTPUT
    return largest if "BedrockConverseModel" in class_names else None


def _find_inner_model(model: Model) -> Model | None:
    """Return the model that a wrapper wraps, or the first one of a `FallbackModel`."""
    models = getattr(model, "models", None)
    return getattr(model, "wrapped", None) or (models[0] if models else None)


def _read_system(parameters: ModelRequestParameters) -> str:
    """Return everything that the model reads before the messages, except the tools."""
    parts = parameters.instruction_parts or ()
    texts = [p.content for p in parts if parameters.instruction_visibility_of(p) == "prefix"]
    if parameters.output_object is not None and parameters.output_mode in ("native", "prompted"):
        schema = parameters.output_object.json_schema
        texts.append(parameters.prompted_output_instructions or json.dumps(schema))
    return "\n\n".join(texts)


def _list_tools(
    ctx: RunContext[object], parameters: ModelRequestParameters
) -> list[dict[str, Any]]:
    """Return the definitions that the model sees."""
    return [
        {
            "name": tool.name,
            "description": tool.description or "",
            "parameters": tool.parameters_json_schema,
        }
        for tool in (*parameters.function_tools, *parameters.output_tools)
        if not tool.defer_loading or tool.name in ctx.discovered_tool_names
    ]


def _read_usage(response: ModelResponse) -> Usage | None:
    usage = response.usage
    if not usage.input_tokens:
        return None
    return Usage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cache_read=usage.cache_read_tokens,
        cache_write=usage.cache_write_tokens,
        cache_write_long=usage.cache_write_1h_tokens,
    )


class _Piece(NamedTuple):
    """One message of Trimtab, and what it was made from."""

    message: Message
    part_index: int | None
    """The part of the request; None for a whole response."""
    items: tuple[int, ...]
    """For each part of `message`: the item of the prompt, or the part of the response."""


@dataclass(slots=True)
class _Translation:
    """A message of the framework in Trimtab's form."""

    source: weakref.ref[ModelMessage]
    snapshot: list[object]
    """Its parts and their content, to notice that a part was changed in place."""
    pieces: list[_Piece]
    can_be_hidden: bool
    """Whether nothing of it is state that the framework always needs."""
    shown: list[Message | bool] | None = None
    """What the model saw of each piece when it was sent last."""
    sent: list[ModelMessage] = field(default_factory=list[ModelMessage])
    """What was sent then: a copy with edited parts, or nothing."""


class _Translations:
    """Translates messages, each once as long as it lives."""

    def __init__(self) -> None:
        self._by_dialect: dict[DialectName, dict[int, _Translation]] = {}

    def find(self, message: ModelMessage, dialect: DialectName) -> _Translation:
        """Return the translation of a message as it is now."""
        return self.find_all([message], dialect)[0]

    def find_all(
        self, messages: Sequence[ModelMessage], dialect: DialectName
    ) -> list[_Translation]:
        """Return the translations of messages. The newest are compared with what was read."""
        by_id = self._by_dialect.setdefault(dialect, {})
        newest = len(messages) - MAX_COMPARED_ITEMS
        translations: list[_Translation] = []
        for index, message in enumerate(messages):
            translation = by_id.get(id(message))
            if translation is not None and translation.source() is not message:
                translation = None
            if translation is not None and index >= newest:
                is_unchanged = _are_same(translation.snapshot, _take_snapshot(message))
                translation = translation if is_unchanged else None
            translations.append(translation or self._translate(message, dialect))
        return translations

    def _translate(self, message: ModelMessage, dialect: DialectName) -> _Translation:
        has_state = any(map(_is_protected, message.parts))
        if isinstance(message, ModelRequest):
            pieces = list(_translate_request(message))
            has_state = has_state or len(pieces) < len(message.parts)
        else:
            pieces = [_translate_response(message, dialect)]
        by_id, key = self._by_dialect[dialect], id(message)
        source = weakref.ref(message, lambda _: by_id.pop(key, None))
        snapshot = _take_snapshot(message)
        translation = _Translation(source, snapshot, pieces, can_be_hidden=not has_state)
        by_id[key] = translation
        return translation


def _take_snapshot(message: ModelMessage) -> list[object]:
    snapshot: list[object] = []
    for part in message.parts:
        snapshot += (part, getattr(part, "content", None), getattr(part, "args", None))
    return snapshot


def _are_same(left: Sequence[object], right: Sequence[object]) -> bool:
    return len(left) == len(right) and all(map(operator.is_, left, right))


# From the framework's messages to Trimtab's.


def _translate_request(request: ModelRequest) -> Iterator[_Piece]:
    """Yield a message for each part that the model reads."""
    for index, part in enumerate(request.parts):
        match part:
            case UserPromptPart():
                parts, items = _translate_prompt(part)
                yield _Piece(_make_message("user", parts), index, items)
            case ToolReturnPart():
                result = _translate_result(part)
                yield _Piece(Message(role="tool", parts=(result,)), index, (0,))
            case SystemPromptPart():
                if part.scope == "conversation":
                    yield _make_text_piece("system", part.content, index)
            case RetryFeedbackPart():
                yield _make_text_piece("user", part.model_response(), index)
            case CompactionPart() | SpeechPart():
                yield _make_text_piece("user", part.content or "", index)
            case _ if part.part_kind == "retry-prompt":
                text = part.model_response()
                if part.tool_name is None:
                    yield _make_text_piece("user", text, index)
                else:
                    result = ToolResult(
                        call_id=part.tool_call_id, content=(Text(text=text),), is_error=True
                    )
                    yield _Piece(Message(role="tool", parts=(result,)), index, (0,))
            case _:
                pass  # the framework's own state, which it always needs


def _make_text_piece(role: Role, text: str, index: int) -> _Piece:
    return _Piece(_make_message(role, [Text(text=text)]), index, (0,))


def _make_message(role: Role, parts: Sequence[Part], origin: str = "") -> Message:
    is_plain = len(parts) == 1 and isinstance(parts[0], Text)
    return Message(role=role, parts=tuple(parts), plain=is_plain or not parts, origin=origin)


def _translate_prompt(part: UserPromptPart) -> tuple[list[Part], tuple[int, ...]]:
    if isinstance(part.content, str):
        return [Text(text=part.content)], (0,)
    contents = enumerate(part.content)
    items = tuple(index for index, item in contents if not isinstance(item, CachePoint))
    return [_translate_content(part.content[index]) for index in items], items


def _translate_content(item: object) -> Text | Media:
    """Translate a text, or a file as far as Trimtab knows its kind; describe other files."""
    match item:
        case str():
            return Text(text=item)
        case TextContent():
            return Text(text=item.content)
        case ImageUrl():
            return Media(kind="image", url=item.url)
        case BinaryContent() if item.is_image:
            return Media(kind="image", mime=item.media_type, data=item.base64)
        case BinaryContent() if item.media_type == PDF_MIME_TYPE:
            return Media(kind="document", mime=item.media_type, data=item.base64)
        case BinaryContent() if item.media_type.startswith("text/"):
            return Text(text=item.data.decode("utf-8", "replace"))
        case BinaryContent():
            return Text(text=f"[{item.media_type}]")
        case _:
            place = getattr(item, "url", None) or getattr(item, "file_id", "")
            return Text(text=f"[{getattr(item, 'kind', 'file')} {place}]")


def _translate_result(part: ToolReturnPart) -> ToolResult:
    files = [_translate_content(file) for file in part.files]
    text = part.model_response_str(wrap_if_error=False)
    return ToolResult(
        call_id=part.tool_call_id,
        content=(Text(text=text), *files) if text or not files else tuple(files),
        is_error=part.outcome in ERROR_OUTCOMES,
        plain=not files,
    )


def _translate_response(response: ModelResponse, dialect: DialectName) -> _Piece:
    parts: list[Part] = []
    items: list[int] = []
    for index, part in enumerate(response.parts):
        match part:
            case TextPart() | SpeechPart():
                translated: Part = Text(text=part.content)
            case ToolCallPart():
                arguments = part.args_as_json_str()
                translated = ToolCall(
                    id=part.tool_call_id, name=part.tool_name, arguments=arguments
                )
            case ThinkingPart():
                translated = _translate_thinking(part, dialect)
            case _:
                translated = OpaqueBlock(data={"type": part.part_kind, **_describe(part)})
        if translated != Text(text=""):
            parts.append(translated)
            items.append(index)
    return _Piece(_make_message("assistant", parts, dialect), None, tuple(items))


def _translate_thinking(part: ThinkingPart, dialect: DialectName) -> OpaqueBlock:
    """Make a block of the size and the kind that the provider gets."""
    match dialect:
        case "anthropic":
            block = {"type": "thinking", "thinking": part.content, "signature": part.signature}
        case "openai_responses":
            summary = [{"type": "summary_text", "text": part.content}] if part.content else []
            block = {
                "type": "reasoning",
                "id": part.id,
                "summary": summary,
                "encrypted_content": part.signature,
            }
        case _:
            block = {"reasoning_content": part.content}
    return OpaqueBlock(data=block, thinking=True)


def _describe(part: ModelResponsePart) -> dict[str, Any]:
    """Return the text of a provider's own part, so that it has about its size."""
    values = {name: getattr(part, name, None) for name in ("tool_name", "args", "content")}
    return {
        name: value if isinstance(value, str) else json.dumps(value, default=str)
        for name, value in values.items()
        if value is not None and not isinstance(value, BinaryContent)
    }


# Back to the framework's messages.


class _History:
    """The framework's messages, translated, and what is sent of them."""

    def __init__(
        self, sources: Sequence[ModelMessage], translations: _Translations, dialect: DialectName
    ) -> None:
        self._sources = sources
        self._translations = translations.find_all(sources, dialect)
        self.messages = [
            piece.message for translation in self._translations for piece in translation.pieces
        ]

    def assemble(self, view: View, cache_point: CachePoint | None = None) -> list[ModelMessage]:
        """Return the messages to send: the framework's own objects wherever nothing differs.

        `cache_point` is placed after the first text of the user or of Trimtab with a mark in the
        view. The texts up to there stay when others are hidden. The setting `cache` marks the end.
        """
        if view.is_unchanged:
            return list(self._sources)
        self._own: set[int] = set()
        self._edited: dict[int, ShownMessage] = {}
        self._written: dict[int, list[ModelRequestPart]] = {}
        piece_counts = (len(translation.pieces) for translation in self._translations)
        self._starts = [0, *accumulate(piece_counts)]
        self._place(view, cache_point)
        self._sent: list[ModelMessage] = []
        self._waiting: list[ModelRequestPart] = []
        # 1 where the framework's own is sent, 2 where anything else is: most need no closer look.
        sent = bytearray(len(self.messages) + 1)
        for place in self._own:
            sent[place] = 1
        for place in (*self._edited, *self._written):
            sent[place] = 2
        for index, source in enumerate(self._sources):
            start, end = self._starts[index], self._starts[index + 1]
            if not self._waiting and sent.count(1, start, end) == end - start:
                self._sent.append(source)
            elif self._translations[index].can_be_hidden and not any(sent[start:end]):
                pass
            else:
                self._send(source, self._translations[index], range(start, end))
        self._waiting += self._written.get(len(self.messages), ())
        if self._waiting:
            self._sent.append(ModelRequest(parts=self._waiting))
        return self._sent

    def _place(self, view: View, cache_point: CachePoint | None) -> None:
        """Note for each position what is sent there, and what Trimtab wrote before it."""
        # System messages at the start are the system prompt. It is always sent, and not viewed.
        for position, message in enumerate(self.messages):
            if message.role != "system":
                break
            self._own.add(position)
        written: list[ModelRequestPart] = []
        for shown in view:
            if not shown.positions:
                written += self._make_written_parts(shown.message)
            else:
                if written:
                    self._written[shown.positions[0]] = written
                    written = []
                if shown.is_callers_own:
                    self._own.update(shown.positions)
                else:
                    self._edited.update(dict.fromkeys(shown.positions, shown))
            is_text = shown.message.role == "user" and not shown.message.results
            if cache_point and shown.has_cache_mark and is_text and shown is not view[-1]:
                written.append(UserPromptPart([cache_point]))
                cache_point = None
        if written:
            self._written[len(self.messages)] = written

    def _send(self, source: ModelMessage, translation: _Translation, places: range) -> None:
        shown = [self._find_shown(place) for place in places]
        is_alone = not self._waiting and self._written.keys().isdisjoint(places)
        if is_alone and translation.shown is not None and _are_same(translation.shown, shown):
            self._sent += translation.sent
            return
        before = len(self._sent)
        if isinstance(source, ModelRequest):
            self._send_request(source, translation, places)
        else:
            self._send_response(source, translation.pieces[0], places[0])
        if is_alone and not self._waiting:
            translation.shown, translation.sent = shown, self._sent[before:]

    def _find_shown(self, place: int) -> Message | bool:
        """Return what is seen there: True for the framework's own, False for nothing."""
        if place in self._own:
            return True
        edited = self._edited.get(place)
        return edited.message if edited is not None else False

    def _make_written_parts(self, message: Message) -> list[ModelRequestPart]:
        """Return what Trimtab wrote: a text, or results for calls that never got one."""
        if not message.results:
            return [UserPromptPart(message.text)]
        names = {
            part.tool_call_id: part.tool_name
            for source in self._sources
            for part in source.parts
            if isinstance(part, ToolCallPart)
        }
        return [
            ToolReturnPart(names.get(result.call_id, ""), result.text, result.call_id)
            for result in message.results
        ]

    def _find_place(self, position: int) -> tuple[ModelRequestPart, _Piece]:
        """Return the part of a request at a position, and what it was translated to."""
        index = bisect_right(self._starts, position) - 1
        piece = self._translations[index].pieces[position - self._starts[index]]
        request = cast("ModelRequest", self._sources[index])
        return request.parts[cast("int", piece.part_index)], piece

    def _rebuild_place(self, position: int) -> list[ModelRequestPart]:
        """Return what is sent at a position of a request."""
        part, piece = self._find_place(position)
        if position in self._own or _is_protected(part):
            return [part]
        edited = self._edited.get(position)
        if edited is None or edited.positions[0] != position:
            return []
        if len(edited.positions) > 1 or len(edited.message.parts) != len(piece.items):
            return self._join_parts(edited)
        return [_rebuild_part(part, piece, edited.message, edited.edited_parts)]

    def _join_parts(self, shown: ShownMessage) -> list[ModelRequestPart]:
        """Return the parts of several messages, or of one and Trimtab's texts, as one prompt."""
        own: list[tuple[Part, UserContent | ModelRequestPart]] = []
        for position in shown.positions:
            part, piece = self._find_place(position)
            items = _list_content(part) if isinstance(part, UserPromptPart) else [part]
            originals = [items[index] for index in piece.items]
            own += zip(piece.message.parts, originals, strict=True)
        results: list[ModelRequestPart] = []
        content: list[UserContent] = []
        for index, part in enumerate(shown.message.parts):
            original = None if index in shown.edited_parts else _take(own, part)
            if isinstance(part, ToolResult) and original is not None:
                results.append(original)
            elif isinstance(part, ToolResult):
                results.append(ToolReturnPart("", part.text, part.call_id))
            elif isinstance(original, str | TextContent | ImageUrl | BinaryContent):
                content.append(original)
            elif isinstance(part, Text):
                content.append(part.text)
        return [*results, UserPromptPart(content)] if content else results

    def _send_request(self, source: ModelRequest, translation: _Translation, places: range) -> None:
        place_by_part = {
            piece.part_index: place for piece, place in zip(translation.pieces, places, strict=True)
        }
        parts: list[ModelRequestPart] = []
        has_content = False
        for index, part in enumerate(source.parts):
            place = place_by_part.get(index)
            if place is None:
                parts.append(part)  # the framework's own state
                continue
            sent, written = self._rebuild_place(place), self._written.get(place, [])
            has_content = has_content or bool(written or sent)
            parts += [*written, *sent]
        if not has_content:
            self._waiting += parts
        elif self._waiting or not _are_same(parts, source.parts):
            # A model must read the results of its calls before anything else.
            parts = [*self._waiting, *parts]
            parts.sort(key=lambda part: part.part_kind != "tool-return")
            self._sent.append(replace(source, parts=parts))
            self._waiting = []
        else:
            self._sent.append(source)

    def _send_response(self, source: ModelResponse, piece: _Piece, place: int) -> None:
        self._waiting += self._written.get(place, ())
        sent = source if place in self._own else None
        if (edited := self._edited.get(place)) is not None:
            sent = _rebuild_response(source, piece, edited.message, edited.edited_parts)
        if sent is None:
            protected = [part for part in source.parts if _is_protected(part)]
            if not protected:
                return
            sent = replace(source, parts=protected)
        if any(isinstance(part, UserPromptPart | ToolReturnPart) for part in self._waiting):
            self._sent.append(ModelRequest(parts=self._waiting))
            self._waiting = []
        self._sent.append(sent)


def _is_protected(part: object) -> bool:
    """Whether the framework reads its own state from a call or a result: it is always sent."""
    return isinstance(part, ToolCallPart | ToolReturnPart) and part.tool_kind is not None


def _list_content(part: UserPromptPart) -> list[UserContent]:
    return [part.content] if isinstance(part.content, str) else list(part.content)


def _take(own: list[tuple[Part, Any]], part: Part) -> Any:
    """Take the framework's object for a part, or return None."""
    for index, (own_part, original) in enumerate(own):
        if own_part == part:
            del own[index]
            return original
    return None


def _rebuild_part(
    part: ModelRequestPart, piece: _Piece, shown: Message, edited: Set[int]
) -> ModelRequestPart:
    """Return a part of a request as the model sees it."""
    if isinstance(part, UserPromptPart):
        content = _list_content(part)
        for number, index in enumerate(piece.items):
            if number in edited and isinstance(part_shown := shown.parts[number], Text):
                content[index] = part_shown.text
        only = content[0] if len(content) == 1 else None
        return replace(part, content=only if isinstance(only, str) else content)
    [part_shown] = shown.parts
    if isinstance(part_shown, ToolResult) and isinstance(part, ToolReturnPart):
        content = _rebuild_result(part, part_shown)
        return replace(part, content=content, tool_call_id=part_shown.call_id)
    text = part_shown.text if isinstance(part_shown, Text | ToolResult) else ""
    if isinstance(part, SystemPromptPart | CompactionPart):
        return replace(part, content=text)
    if isinstance(part_shown, ToolResult):
        name = getattr(part, "tool_name", None) or ""
        return ToolReturnPart(name, text, part_shown.call_id, outcome="retried")
    return UserPromptPart(text)


def _rebuild_result(part: ToolReturnPart, result: ToolResult) -> Any:
    if result.content == _translate_result(part).content:
        return part.content  # only the id of its call differs
    # An edit keeps all files of a result or none.
    has_files = any(not isinstance(item, Text) for item in result.content)
    return [result.text, *part.files] if has_files else result.text


def _rebuild_response(
    source: ModelResponse, piece: _Piece, shown: Message, edited: Set[int]
) -> ModelResponse:
    number_by_item = {index: number for number, index in enumerate(piece.items)}
    parts: list[ModelResponsePart] = []
    for index, part in enumerate(source.parts):
        number = number_by_item.get(index)
        if number is None or number not in edited:
            parts.append(part)
            continue
        part_shown = shown.parts[number]
        if isinstance(part_shown, ToolCall) and isinstance(part, ToolCallPart):
            parts.append(replace(part, args=part_shown.arguments, tool_call_id=part_shown.id))
        elif isinstance(part_shown, Text) and part_shown.text:
            # An id and citations belong to the text as it was.
            parts.append(TextPart(part_shown.text))
    return replace(source, parts=parts)
