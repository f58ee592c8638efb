"""Make the reply of a step: words, calls of the caller's tools, thoughts, cut to the output
limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from trimtab.testing.replies import ScriptedCall, ScriptedReply
from trimtab.testing.request_counter import (
    CALL_TOKENS,
    RequestCounter,
    iterate_loaded_tool_names,
    list_array_objects,
)
from trimtab.testing.server.script import ScriptStep
from trimtab.testing.tool_arguments import (
    OfferedTool,
    build_tool_call,
    dump_tool_arguments,
    generate_schema_value,
    list_callable_tools,
)

_FILLER_SENTENCE = (
    "the report says that most files were read and a few of them need another look before "
    "tomorrow so here is what was found and what should be done about it"
)
_FILLER_WORDS = _FILLER_SENTENCE.split()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredReply:
    """A reply with its size."""

    reply: ScriptedReply
    """The reply."""
    tokens: int
    """The tokens of the whole reply."""
    thinking_tokens: int
    """The tokens of the thinking, included in `tokens`."""


def generate_reply(
    step: ScriptStep,
    request: Mapping[str, Any],
    *,
    seed: int,
    thinks: bool,
    counter: RequestCounter,
    max_tokens: int,
    cut_stop_reason: str,
) -> MeasuredReply:
    """Return the reply that a step describes, as far as it fits the output limit."""
    calls = _build_calls(step, request, seed)
    thinking = _build_thinking(step, seed, thinks=thinks)
    text = _build_text(step, request, seed, has_calls=bool(calls))
    answer = ScriptedReply(
        text=text, calls=calls, thinking=thinking, redacted=step.redacted, stop=step.stop
    )
    spoken = _measure_reply(answer, counter)
    while spoken.tokens > max_tokens and (answer.text or answer.calls):
        # Calls are whole or not there; of a text, what fits is said.
        chars = (
            max(0, len(answer.text) * max_tokens // spoken.tokens - 4) if not answer.calls else 0
        )
        answer = replace(
            answer, text=answer.text[:chars], calls=(), stop=step.stop or cut_stop_reason
        )
        spoken = _measure_reply(answer, counter)
    return spoken


def _build_calls(
    step: ScriptStep, request: Mapping[str, Any], seed: int
) -> tuple[ScriptedCall, ...]:
    if not isinstance(step.calls, int):
        return step.calls
    loaded = {*iterate_loaded_tool_names(request.get("messages", request.get("input")))}
    tools = list_callable_tools(list_array_objects(request.get("tools")), loaded)
    if not tools:
        return ()
    if not step.calls and step.text is None and (name := _find_forced_tool(request, tools)):
        return (build_tool_call(tools, seed, name),)
    return tuple(build_tool_call(tools, seed + index, step.tool) for index in range(step.calls))


def _find_forced_tool(request: Mapping[str, Any], tools: Sequence[OfferedTool]) -> str | None:
    """Return the tool that the request forces the model to call: the last one if it may choose,
    because frameworks add the tool for the output last. None if a text will do."""
    choice = request.get("tool_choice")
    if not isinstance(choice, Mapping):
        return tools[-1].name if choice == "required" else None
    settings: dict[str, Any] = dict(cast("Mapping[str, Any]", choice))
    settings = settings.get("function") or settings.get("allowed_tools") or settings
    if settings.get("type") == "any" or settings.get("mode") == "required":
        return tools[-1].name
    return next((tool.name for tool in tools if tool.name == settings.get("name")), None)


def _find_text_schema(request: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the JSON Schema that the request demands of the text of the reply."""
    for name in ("text", "response_format", "output_config", "output_format"):
        settings: dict[str, Any] = request.get(name) or {}
        settings = settings.get("format") or settings.get("json_schema") or settings
        if "schema" in settings:
            return settings["schema"]
    return None


def _build_thinking(step: ScriptStep, seed: int, *, thinks: bool) -> str | None:
    if step.thinking is False:
        return None
    if isinstance(step.thinking, str):
        return step.thinking
    return generate_words(12, seed) if thinks or step.thinking else None


def _build_text(step: ScriptStep, request: Mapping[str, Any], seed: int, *, has_calls: bool) -> str:
    if isinstance(step.text, str):
        return step.text
    if step.text is None and has_calls:
        return ""
    if step.text is None and (schema := _find_text_schema(request)) is not None:
        return dump_tool_arguments(generate_schema_value(schema, seed))
    return generate_words(12 if step.text is None else step.text, seed)


def generate_words(count: int, seed: int) -> str:
    """Return this many words. They begin with a number, so that no two replies are the same."""
    words = [_FILLER_WORDS[(seed + index) % len(_FILLER_WORDS)] for index in range(count - 1)]
    return " ".join([f"#{seed}", *words]) if count else ""


def _measure_reply(reply: ScriptedReply, counter: RequestCounter) -> MeasuredReply:
    thinking_tokens = counter.scale_tokens(counter.count_text(reply.thinking or ""))
    tokens = counter.count_text(reply.text)
    for call in reply.calls:
        tokens += (
            CALL_TOKENS
            + counter.count_text(call.name)
            + counter.count_text(dump_tool_arguments(call.arguments))
        )
    return MeasuredReply(
        reply=reply,
        tokens=thinking_tokens + counter.scale_tokens(tokens),
        thinking_tokens=thinking_tokens,
    )
