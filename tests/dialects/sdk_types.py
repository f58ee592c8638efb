"""The types of messages that the SDKs ship, built once in a process: each takes a second."""

from __future__ import annotations

import functools
from typing import Any

from tests.lazy import anthropic, openai, pydantic


@functools.cache
def messages_of(target: str) -> pydantic.TypeAdapter[Any]:
    """The type of the messages that the SDK's call takes."""
    match target:
        case "anthropic":
            return pydantic.TypeAdapter(list[anthropic.types.MessageParam])
        case "openai_chat":
            return pydantic.TypeAdapter(list[openai.types.chat.ChatCompletionMessageParam])
        case _:
            return pydantic.TypeAdapter(list[openai.types.responses.ResponseInputItemParam])
