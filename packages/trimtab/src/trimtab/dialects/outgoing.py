"""What is sent: a window rendered in its dialect, and a recorded call as keyword arguments for an
SDK."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from trimtab.dialects import get_dialect
from trimtab.dialects.anthropic import model_features
from trimtab.dialects.caller_marks import move_marks, place_marks, without_marks
from trimtab.dialects.json_values import dict_or_none, dicts_in_list
from trimtab.dialects.provider_safe_values import parse_data_url
from trimtab.engine.log.event import Event, ModelCall, Settings
from trimtab.engine.log.message import Message
from trimtab.engine.prompt.render import (
    IncrementalRenderer,
    Prompt,
    PromptBlock,
    SentBlocks,
    build_call_fields_to_hash,
)
from trimtab.engine.prompt.shown_messages import IncrementalView
from trimtab.engine.tokens.counter import TokenCounter
from trimtab.engine.window.window import Window
from trimtab.errors import RequestChangedError

_COMPARISON_KEY = "comparison_response_id"


def add_cache_comparison(
    dialect: str, params: Mapping[str, Any], last_reply_id: str | None
) -> Mapping[str, Any]:
    """Add the id of the previous reply to the parameters, if a diagnosis is requested.

    An id of another provider is left out.
    """
    reply_id = last_reply_id or ""
    if (
        dialect == "anthropic"
        and (diagnostics := dict_or_none(params.get("diagnostics"))) is not None
    ):
        is_claude_id = reply_id.startswith("msg_")
        last_id = reply_id if is_claude_id else diagnostics.get("previous_message_id")
        return {**params, "diagnostics": {**diagnostics, "previous_message_id": last_id}}
    options = dict_or_none(params.get("prompt_cache_options")) or {}
    if dialect != "openai_responses" or _COMPARISON_KEY not in options:
        return params
    last_id = reply_id if reply_id.startswith("resp_") else options[_COMPARISON_KEY]
    new_options = {key: value for key, value in options.items() if key != _COMPARISON_KEY}
    if last_id is not None:
        new_options[_COMPARISON_KEY] = last_id
        return {**params, "prompt_cache_options": new_options}
    new_params = {key: value for key, value in params.items() if key != "prompt_cache_options"}
    return {**new_params, "prompt_cache_options": new_options} if new_options else new_params


# `messages.3.content.1.tool_result.content.0` at Anthropic, `messages[3].content[1]` at OpenAI.
_ERROR_LOCATION = re.compile(
    r"\b(?:messages|input)[.\[](\d{1,6})\]?"
    r"(?:\.(?:content|output)[.\[](\d{1,6})\]?(?:\.tool_result\.content\.(\d{1,6}))?)?"
)
_TEXT_KEYS = frozenset({"text", "data", "url", "image_url", "file_data", "content", "output"})


def find_texts_at_error_location(request: Mapping[str, Any], error_message: str) -> frozenset[str]:
    """Return the texts, payloads and URLs at the place that the error names; none if it names
    none."""
    match = _ERROR_LOCATION.search(error_message)
    if match is None:
        return frozenset()
    messages = request.get("messages", request.get("input"))
    place: dict[str, Any] = {"content": messages}
    for number in match.groups():
        if number is not None:
            items = dicts_in_list(place.get("content", place.get("output")))
            place = items[int(number)] if int(number) < len(items) else {}
    return frozenset(text for text in _texts(place) if text)


def _texts(value: Any, *, depth: int = 8) -> Iterator[str]:
    if isinstance(value, str):
        split = parse_data_url(value)
        yield value if split is None else split[1]
    elif isinstance(value, list) and depth:
        for item in cast("list[Any]", value):
            yield from _texts(item, depth=depth - 1)
    elif isinstance(value, dict) and depth:
        for key, inner in cast("dict[str, Any]", value).items():
            if key in _TEXT_KEYS or isinstance(inner, dict | list):
                yield from _texts(inner, depth=depth - 1)


def create_rendering(settings: Settings) -> IncrementalRenderer:
    """Create an empty rendering in the settings' dialect."""
    wire = get_dialect(settings.dialect)

    def render(messages: Sequence[Message]) -> list[PromptBlock]:
        return wire.render_round_blocks(messages, settings.rules_model)

    return IncrementalRenderer(
        render, system_notices=wire.allows_system_notices, join_text=wire.prepend_text
    )


def create_view(settings: Settings) -> IncrementalView:
    """Create an empty view in the settings' dialect."""
    wire = get_dialect(settings.dialect)
    model = settings.rules_model
    return IncrementalView(
        lambda blocks: wire.join_blocks(blocks, model),
        lambda first, second: wire.must_join(first, second, model),
    )


def build_request(
    settings: Settings,
    rendering: IncrementalRenderer,
    call: ModelCall,
    *,
    last_reply_id: str | None,
) -> dict[str, Any]:
    """Build the request of a call whose window is rendered.

    `last_reply_id` is the provider's id of the previous reply, for a diagnosis of the cache.
    """
    prompt = build_prompt(settings, rendering, call, last_reply_id=last_reply_id)
    return get_dialect(settings.dialect).build_request_kwargs(prompt)


def build_prompt(
    settings: Settings,
    rendering: IncrementalRenderer,
    call: ModelCall,
    *,
    last_reply_id: str | None = None,
) -> Prompt:
    """Build the prompt of a call whose window is rendered."""
    cache_marks = settings.entry.get("cache_marks")
    blocks = rendering.blocks
    system = settings.system
    tools = settings.tools
    if cache_marks in ("off", "caller"):
        blocks = place_marks(blocks, call.caller_marks)
    if cache_marks == "off":
        system = tuple(move_marks(message, None) for message in system)
        tools = tuple(map(without_marks, tools))
    return Prompt(
        model=settings.model,
        rules_model=settings.rules_model,
        system=system,
        tools=tools,
        blocks=blocks,
        marks=call.marks,
        max_output=call.max_output,
        output_param=_name_output_param(settings),
        params=add_cache_comparison(settings.dialect, settings.params, last_reply_id),
        stream=call.stream,
        volatile=call.volatile,
        selected_tools=settings.selected,
        hour_cache=cache_marks == "1h",
    )


def render_blocks_as_sent(window: Window, rendering: IncrementalRenderer) -> SentBlocks:
    """Return how the last call sends the blocks of a rendered window.

    Marks and the volatile text belong to that call. They are left out if the window has changed
    since.
    """
    settings = window.settings
    last = window.last_call
    unbroken = window.accounting.version_at_last_call == window.accounting.prefix_version
    if last is None or not unbroken or last.body.blocks != len(rendering.blocks):
        call = ModelCall(position=window.seq, max_output=0)
    else:
        call = last.body
    prompt = build_prompt(settings, rendering, call)
    sent_blocks = get_dialect(settings.dialect).render_sent_blocks(prompt)
    if prompt.blocks is rendering.blocks:
        return sent_blocks
    pairs = enumerate(zip(rendering.blocks, prompt.blocks, strict=True))
    block_moves = {index: block for index, (was, block) in pairs if block is not was}
    return replace(sent_blocks, changed={**block_moves, **sent_blocks.changed})


COUNT_PARAMETERS: Mapping[str, frozenset[str]] = {
    "anthropic": frozenset(
        [
            "model",
            "messages",
            "system",
            "tools",
            "tool_choice",
            "thinking",
            "cache_control",
            "compaction",
            "context_management",
            "mcp_servers",
            "output_config",
            "output_format",
            "speed",
            "betas",
            "user_profile_id",
            "workspace_id",
            "extra_headers",
            "extra_query",
            "timeout",
        ]
    ),
    "openai_responses": frozenset(
        [
            "model",
            "input",
            "instructions",
            "tools",
            "tool_choice",
            "parallel_tool_calls",
            "personality",
            "reasoning",
            "text",
            "truncation",
            "extra_headers",
            "extra_query",
            "timeout",
        ]
    ),
}
"""By dialect: the request parameters that the provider's count endpoint accepts."""


def continues_replies(settings: Settings) -> bool:
    """Whether the model continues a reply that the caller began."""
    return settings.dialect != "anthropic" or model_features.accepts_prefill(
        settings.rules_model, settings.params.get("thinking")
    )


def select_count_parameters(dialect: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a request for the provider's count endpoint."""
    names = COUNT_PARAMETERS.get(dialect)
    if names is None:
        raise ValueError(
            f"{dialect} has no count endpoint: report() estimates, and tokenizer= takes an exact "
            "counter; Anthropic's Messages and OpenAI's Responses have one"
        )
    return {name: value for name, value in request.items() if name in names}


def find_rejected_texts(
    window: Window, get_rendering: Callable[[], IncrementalRenderer], provider_message: str
) -> frozenset[str]:
    """Find the texts of the last request that a provider's error message points to.

    Return nothing if it names no place, or if sent content has changed since.
    """
    last = window.last_call
    if (
        not provider_message
        or last is None
        or window.accounting.version_at_last_call != window.accounting.prefix_version
    ):
        return frozenset()
    return find_texts_at_error_location(
        build_request(
            window.settings,
            get_rendering(),
            last.body,
            last_reply_id=window.conversation.last_reply_id,
        ),
        provider_message,
    )


def rebuild_request_from_events(
    events: Sequence[Event], call_seq: int, counters: Mapping[str, TokenCounter] | None = None
) -> dict[str, Any]:
    """Rebuild the exact request of a past call from the log alone, and check its hash."""
    call = require_call(events[call_seq - 1] if 0 < call_seq <= len(events) else None, call_seq)
    window = Window(counters)
    window.apply(*events[: call.position])
    return rebuild_request_from_window(window, call_seq, call)


def require_call(event: Event | None, seq: int) -> ModelCall:
    """Return the call that an event records."""
    if event is None or not isinstance(event.body, ModelCall):
        raise LookupError(f"event {seq} is not a call")
    if event.body.imported:
        raise LookupError(
            f"event {seq} is a call of an imported history: Trimtab has not sent it, so no request "
            "can be rebuilt"
        )
    return event.body


def rebuild_request_from_window(window: Window, call_seq: int, call: ModelCall) -> dict[str, Any]:
    """Rebuild the request of a past call from the window of that time, and check its hash."""
    rendering = create_rendering(window.settings)
    rendering.update(window)
    if (
        call.hash
        and rendering.hash_request(build_call_fields_to_hash(window.settings.params, call))
        != call.hash
    ):
        raise RequestChangedError(
            f"the request of call {call_seq} cannot be shown as it was sent: the request that "
            "Trimtab builds from the log has another hash. Content was erased, or the renderer "
            "changed"
        )
    return build_request(
        window.settings, rendering, call, last_reply_id=window.conversation.last_reply_id
    )


def _name_output_param(settings: Settings) -> str:
    match settings.dialect:
        case "openai_responses":
            return "max_output_tokens"
        case "anthropic":
            return "max_tokens"
        case _:
            return str(settings.entry.get("output_param", "max_tokens"))
