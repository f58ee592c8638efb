"""What both of OpenAI's APIs refuse in names and ids, in their own words."""

from __future__ import annotations

import re
from typing import Any

_NAME = re.compile(r"[a-zA-Z0-9_-]+")


def wrong_name(name: Any, longest: int, where: str) -> list[str]:
    if isinstance(name, str) and _NAME.fullmatch(name):
        return too_long(name, longest, where)
    return [
        (
            f"Invalid '{where}': string does not match pattern. Expected a string that matches "
            "the pattern '^[a-zA-Z0-9_-]+$'."
        )
    ]


def too_long(text: Any, longest: int, where: str) -> list[str]:
    if not isinstance(text, str) or len(text) <= longest:
        return []
    return [
        (
            f"Invalid '{where}': string too long. Expected a string with maximum length {longest}, "
            f"but got a string with length {len(text)} instead."
        )
    ]
