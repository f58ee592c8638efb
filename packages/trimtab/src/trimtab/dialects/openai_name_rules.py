"""What both of OpenAI's APIs reject in names and ids, in OpenAI's own words."""

from __future__ import annotations

import re
from typing import Any

_VALID_NAME = re.compile(r"[a-zA-Z0-9_-]+")


def find_name_errors(name: Any, max_chars: int, location: str) -> list[str]:
    if isinstance(name, str) and _VALID_NAME.fullmatch(name):
        return find_max_length_errors(name, max_chars, location)
    return [
        (
            f"Invalid '{location}': string does not match pattern. Expected a string that matches "
            "the pattern '^[a-zA-Z0-9_-]+$'."
        )
    ]


def find_max_length_errors(text: Any, max_chars: int, location: str) -> list[str]:
    if not isinstance(text, str) or len(text) <= max_chars:
        return []
    return [
        (
            f"Invalid '{location}': string too long. Expected a string with maximum length "
            f"{max_chars}, "
            f"but got a string with length {len(text)} instead."
        )
    ]
