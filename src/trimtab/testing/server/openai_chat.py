"""What Chat Completions refuses beyond the dialect's rules, and how it tells a full window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from trimtab.catalog import Entry
from trimtab.dialects import dialect
from trimtab.testing.counting import Piece, RequestCounter, listed
from trimtab.testing.pairing import unpaired
from trimtab.testing.server.openai import (
    examine_breakpoints,
    examine_content,
    examine_list,
    examine_names,
    examine_output,
    in_functions,
    reasons,
)
from trimtab.testing.server.options import Options
from trimtab.testing.server.parameters import CHAT
from trimtab.testing.server.refusals import openai as refused

Wire = Mapping[str, Any]
_PARTS = ("text", "image_url", "input_audio", "file")


def examine(request: Wire, options: Options) -> None:
    examine_names(request, CHAT)
    examine_list(request, "messages")
    if reasons(request["model"]) and "max_tokens" in request:
        raise refused(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead.",
            param="max_tokens",
            code="unsupported_parameter",
        )
    if "stream_options" in request and not request.get("stream"):
        raise refused(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            param="stream_options",
        )
    for wrong in dialect("openai_chat").check(request):
        raise refused(wrong, param="messages")
    if (wrong := unpaired(request, "openai_chat")) is not None:
        raise refused(f"Invalid parameter: {wrong}", param="messages")
    examine_breakpoints(request, "messages", "content", _PARTS)
    examine_content(request, "openai_chat", options)
    if options.template == "strict":
        _examine_template(listed(request["messages"]))


def _examine_template(messages: Sequence[Wire]) -> None:
    """The rules that chat templates of open models raise as errors."""
    roles = [str(message.get("role")) for message in messages]
    if roles[0] in ("system", "developer"):
        roles = roles[1:]
    if any(role in ("system", "developer") for role in roles):
        raise refused("System message must be at the beginning.")
    spoken = [role for role in roles if role in ("user", "assistant")]
    if spoken[:1] != ["user"]:
        raise refused("Conversation roles must alternate user/assistant/user/assistant/...")
    for one, next_one in pairwise(roles):
        if one == next_one != "tool":
            raise refused("Conversation roles must alternate user/assistant/user/assistant/...")


def admit(
    request: Wire,
    tokens: int,
    pieces: Sequence[Piece],
    counter: RequestCounter,
    entry: Entry,
) -> int:
    """Tokens that the reply may take, if the request fits."""
    name = "max_completion_tokens" if "max_completion_tokens" in request else "max_tokens"
    asked = request.get(name)
    examine_output(asked, name, request["model"])
    window = entry.context_window
    functions = in_functions(pieces, counter)
    if asked is not None and tokens + asked > window:
        inside = f"{tokens - functions} in the messages, "
        inside += f"{functions} in the functions, and " if functions else ""
        shorter = "messages, functions, or completion" if functions else "messages or completion"
        raise _overflow(
            f"This model's maximum context length is {window} tokens. However, you requested "
            f"{tokens + asked} tokens ({inside}{asked} in the completion). Please reduce the "
            f"length of the {shorter}."
        )
    if tokens > window:
        raise _overflow(
            f"This model's maximum context length is {window} tokens. However, your messages "
            f"resulted in {tokens} tokens. Please reduce the length of the messages."
        )
    if tokens > entry.input_limit:
        raise _overflow(
            f"Input tokens exceed the configured limit of {entry.input_limit} tokens. Your "
            f"messages resulted in {tokens} tokens. Please reduce the length of the messages."
        )
    return min(asked or entry.max_output, window - tokens)


def _overflow(message: str) -> Exception:
    return refused(message, param="messages", code="context_length_exceeded", cause="overflow")
