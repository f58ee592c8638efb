"""Find the results to hide last: those of calls that name a file the user wants to keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, cast

from trimtab.engine.log.message import ToolCall
from trimtab.engine.text.identifiers import list_string_values
from trimtab.engine.window.structure import ToolResultView
from trimtab.engine.window.window import Window

MAX_SEARCHED_ARGUMENT_CHARS = 4_000
"""Maximum characters of a call's arguments to search for a file name. Longer ones contain a
text."""
MAX_PATH_CHARS = 500
"""Maximum characters of an argument that may be a file name."""


def find_results_of_kept_files(window: Window) -> frozenset[tuple[int, int]]:
    """Return the keys of visible results whose call has an argument that matches a `keep`
    pattern."""
    patterns = read_kept_file_patterns(window.settings.policy_params.get("context"))
    if not patterns:
        return frozenset()
    return frozenset(r.key for r in window.results.values() if _is_result_of_kept_file(r, patterns))


def read_kept_file_patterns(context_settings: Any) -> tuple[str, ...]:
    """Return the `keep` patterns from the recorded settings of a context."""
    if not isinstance(context_settings, Mapping):
        return ()
    patterns: Any = cast("Mapping[str, Any]", context_settings).get("keep") or ()
    return tuple(str(each) for each in cast("Iterable[Any]", patterns))


def _is_result_of_kept_file(result: ToolResultView, patterns: tuple[str, ...]) -> bool:
    return any(
        arguments_name_kept_file(part.arguments, patterns)
        for entry in result.entry.round.entries
        for part in entry.message.parts
        if isinstance(part, ToolCall)
        and part.id == result.call.id
        and len(part.arguments) <= MAX_SEARCHED_ARGUMENT_CHARS
    )


@lru_cache(maxsize=2_048)
def arguments_name_kept_file(arguments_json: str, keep_patterns: tuple[str, ...]) -> bool:
    """Whether any string in a call's arguments matches a pattern, whole or by its last part."""
    return any(
        _path_matches(text.strip(), pattern)
        for text in list_string_values(arguments_json)
        if len(text) <= MAX_PATH_CHARS and "\n" not in text
        for pattern in keep_patterns
    )


def _path_matches(text: str, pattern: str) -> bool:
    path = text.replace("\\", "/")
    last = path.rstrip("/").rsplit("/", 1)[-1]
    # `docs/*.md` is meant from wherever the agent looks at it.
    below = "/" in pattern and fnmatchcase(path, f"*/{pattern}")
    return fnmatchcase(path, pattern) or fnmatchcase(last, pattern) or below
