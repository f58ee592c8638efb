"""Finds the content of a request that a provider's error message points to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from trimtab.dialects.json_values import dict_or_none, dicts_in_list
from trimtab.dialects.provider_safe_values import parse_data_url

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
    messages = dicts_in_list(request.get("messages", request.get("input")))
    at: Any = _nth(messages, match[1])
    for number in (match[2], match[3]):
        if number is not None:
            message = dict_or_none(at) or {}
            at = _nth(dicts_in_list(message.get("content", message.get("output"))), number)
    return frozenset(text for text in _texts(at) if text)


def _nth(listed: list[dict[str, Any]], number: str) -> Any:
    return listed[int(number)] if int(number) < len(listed) else None


def _texts(value: Any, *, depth: int = 8) -> Iterator[str]:
    if isinstance(value, str):
        split = parse_data_url(value)
        yield value if split is None else split[1]
    elif isinstance(value, list) and depth:
        for each in cast("list[Any]", value):
            yield from _texts(each, depth=depth - 1)
    elif isinstance(value, dict) and depth:
        for key, inner in cast("dict[str, Any]", value).items():
            if key in _TEXT_KEYS or isinstance(inner, dict | list):
                yield from _texts(inner, depth=depth - 1)
