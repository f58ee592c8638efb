"""Which results are hidden last: those of calls that name a file the user wants kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, cast

from trimtab.core.message import ToolCall
from trimtab.core.rounds import Result
from trimtab.core.window import Window
from trimtab.core.words import values

MOST_CHARS = 4_000
"""Of a call's arguments: longer ones hold a text, and are not looked through for a file's name."""
PATH_CHARS = 500
"""Of an argument that may be a file's name."""


def kept_results(window: Window) -> frozenset[tuple[int, int]]:
    """The visible results, by key, of calls with an argument that matches a pattern of `keep`."""
    patterns = patterns_of(window.settings.policy_params.get("context"))
    if not patterns:
        return frozenset()
    return frozenset(r.key for r in window.results.values() if _is_kept(r, patterns))


def patterns_of(context: Any) -> tuple[str, ...]:
    """The patterns of `keep` among the settings of a context, as they are recorded."""
    if not isinstance(context, Mapping):
        return ()
    given: Any = cast("Mapping[str, Any]", context).get("keep") or ()
    return tuple(str(each) for each in cast("Iterable[Any]", given))


def _is_kept(result: Result, patterns: tuple[str, ...]) -> bool:
    return any(
        names_kept(part.arguments, patterns)
        for entry in result.entry.round.entries
        for part in entry.message.parts
        if isinstance(part, ToolCall)
        and part.id == result.call.id
        and len(part.arguments) <= MOST_CHARS
    )


@lru_cache(maxsize=2_048)
def names_kept(arguments: str, patterns: tuple[str, ...]) -> bool:
    """Whether any text among a call's arguments matches a pattern, whole or by its last part."""
    return any(
        _matches(text.strip(), pattern)
        for text in values(arguments)
        if len(text) <= PATH_CHARS and "\n" not in text
        for pattern in patterns
    )


def _matches(text: str, pattern: str) -> bool:
    path = text.replace("\\", "/")
    last = path.rstrip("/").rsplit("/", 1)[-1]
    # `docs/*.md` is meant from wherever the agent looks at it.
    below = "/" in pattern and fnmatchcase(path, f"*/{pattern}")
    return fnmatchcase(path, pattern) or fnmatchcase(last, pattern) or below
