"""Lines of an output that report an error.

A model needs the error lines of a build, a test run or a log most, and they are often in the
middle. The words are those of compilers, test runners, shells and runtimes. A line that says that
there was no error does not count. Neither does a name such as `error_handler.py`, nor a line of
code that handles errors: most long outputs are files.
"""

from __future__ import annotations

import re

MAX_SCANNED_LINE_CHARS = 4000
"""How many characters of a line are examined. A longer line is data."""

_ERROR_HINTS = (
    "error",
    "exception",
    "traceback",
    "fail",
    "fatal",
    "panic",
    "abort",
    "assert",
    "fault",
    "core dumped",
    "out of memory",
    "killed",
    "err!",
    "e  ",
    "exit",
    "non-zero",
    "caused by",
    "unhandled",
    "uncaught",
    "undefined reference",
    "not found",
    "no such file",
    "denied",
    "refused",
    "timed out",
    "✗",
    "✘",
    "✖",
    "❌",
)
"""Every line that the expression finds contains one of these, in lower case. Searching for them
first is many times faster."""

_ERROR_PATTERN = re.compile(
    # `error`, `ValueError`, `java.io.IOException`, `error[E0308]`; no paths, names or plurals
    r"(?<![\w./-])(?:[\w.]*(?-i:Error|Exception)|(?:[\w.]*[._])?(?:error|exception))"
    r"(?![\w/-]|\.\w)"
    r"|(?<![\w./-])(?:traceback|fail(?:ed|ure|ing)|fatal|panic(?:ked)?|aborted|assertion|segfault"
    r"|unhandled|uncaught)(?![\w/-]|\.\w)"
    r"|(?<![\w./-])(?-i:FAIL|ERR!)(?!\w)"
    r"|\b[1-9]\d{0,8} (?:errors|failures)\b"
    r"|segmentation fault|core dumped|out of memory|undefined reference"
    r"|no such file or directory|permission denied|access denied|connection refused|timed out"
    r"|(?:command|module|symbol|file|package) not found|not found: "
    r"|\bcaused by: |^killed\b"
    r"|\bexit(?:ed)?(?: with)?(?: code| status)?[ :=]{1,3}-?[1-9]|non-zero exit"
    r"|^(?-i:E) {2,}\S"  # pytest
    r"|[✗✘✖❌]",
    re.IGNORECASE,
)

_ERROR_NOUNS = r"(?:errors?|exceptions?|fail(?:ed|ures?))"
_NO_ERROR_PATTERN = re.compile(
    rf"\b(?:no|0|zero|without(?: any)?|not an?) (?:\w{{1,20}} )?{_ERROR_NOUNS}\b"
    rf"|\b{_ERROR_NOUNS}\b[\"']?\s{{0,3}}[:=]\s{{0,3}}"
    r"(?:0(?![\d.])|(?:none|null|nil|false)\b|\[\]|\{\}|\"\"|'')",
    re.IGNORECASE,
)
"""Phrases that say that there was no error. They are removed before the line is judged."""


_SOURCE_CODE_PATTERN = re.compile(
    r"^\s*\d+(?:→|\||\t)"  # a line of a file, with its number
    r"|^(?:[^\s:]{1,300}:\d+[:-]|[+-])?\s*(?:\}\s*)?"  # as it is, found by grep, or in a diff
    r"(?://|/\*|(?:raise|throw|func|def|class|if|elif|else|except|catch|import|var|const|let|case"
    r"|public|private|assert\w*|return(?! code)|from \S+ import)\b)"
    r"|%[vwsdq]\b|[{;(]\s*$|\w\(\s*[\"'`]| := |, error\)|\berr (?:!= nil|error)\b"
)
"""What code looks like. Code that handles errors does not mean that an error happened."""


def find_possible_error_line_starts(text: str) -> list[int]:
    """Return the offsets of lines that may name an error, in ascending order.

    The text is searched once for each hint, so a line without hints costs nothing.
    """
    small = text.replace("\u0130", "i").lower()  # the one letter that becomes two
    begins: set[int] = set()
    for hint in _ERROR_HINTS:
        at = small.find(hint)
        while at >= 0:
            begins.add(small.rfind("\n", 0, at) + 1)
            end = small.find("\n", at)
            at = small.find(hint, end) if end >= 0 else -1
    return sorted(begins)


def find_error_offset(line: str) -> int | None:
    """Return the offset at which a line names an error, or None."""
    line = line[:MAX_SCANNED_LINE_CHARS]
    match = _ERROR_PATTERN.search(line)
    if match is not None and _NO_ERROR_PATTERN.search(line):
        match = _ERROR_PATTERN.search(_NO_ERROR_PATTERN.sub(lambda none: " " * len(none[0]), line))
    return None if match is None or _SOURCE_CODE_PATTERN.search(line) else match.start()
