"""Find the commands that a shell line runs, conservatively.

This is not a shell. It knows the simple part of the language: words, quotes, and the separators
between commands. Everything else makes the line ambiguous.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SHELL_KEYWORD_TEXT = (
    "! [[ case do done elif else esac fi for function if in select then until while { }"
)
SHELL_KEYWORDS = frozenset(_SHELL_KEYWORD_TEXT.split())
"""Words that make a line more than a list of commands."""
GLOB_CHARACTERS = "*?["
"""Characters that the shell, and a pattern, expand."""

_BLANK = re.compile(r"[ \t]+")
_CONTINUATION = re.compile(r"\\\n")
"""The shell removes it, so that the characters around it form one word."""
_SEPARATOR = re.compile(r"&&|\|\||\|&|[;|\n]|&(?![>&])")
_REDIRECTION = re.compile(
    r"(?:\d?>>?|&>>?)[ \t]*/dev/null(?=[ \t\n;&|]|$)|\d?>&[12](?=[ \t\n;|]|$)"
)
"""Redirections that write nowhere: `2>&1`, `>/dev/null`."""
_PLAIN = re.compile(r"[^\s\\'\"`$;&|<>(){}#\x00-\x1f\x7f]+|(?<=[^\s;&|])#")
_ESCAPED = re.compile(r"\\([^\n\x00-\x1f])")
_SINGLE = re.compile(r"'([^'\x00-\x08\x0b-\x1f]*)'")
_DOUBLE = re.compile(r"\"((?:[^\"\\`$\x00-\x08\x0b-\x1f]|\\[^\x00-\x1f]|\\\n|\$\w+)*)\"")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[?0-9])")
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Characters that count as printable but are invisible."""
ASSIGNMENT_PREFIX = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^]]*\])?\+?=")
"""The beginning of a word that sets a variable."""


class AmbiguousShellLine(ValueError):
    """It is not certain what the line runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellWord:
    """A word of a command."""

    text: str
    """The word without its quotes."""
    has_glob: bool = False
    """Whether the shell replaces it by the names of files."""
    has_variable: bool = False
    """Whether the shell inserts the value of a variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellCommand:
    """A program with its arguments."""

    words: tuple[ShellWord, ...]
    """The program and its arguments, at least one word."""
    reads_pipe: bool = False
    """Whether it reads the output of another command."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The words without their quotes."""
        return tuple(word.text for word in self.words)


def parse_shell_line(line: str) -> list[ShellCommand]:
    """Return the commands that the line runs. Raises `AmbiguousShellLine`."""
    commands: list[ShellCommand] = []
    words: list[ShellWord] = []
    at = 0
    after_pipe = False
    while at < len(line):
        if blank := (_BLANK.match(line, at) or _CONTINUATION.match(line, at)):
            at = blank.end()
        elif silent := _REDIRECTION.match(line, at):
            at = silent.end()
        elif separator := _SEPARATOR.match(line, at):
            if words:
                commands.append(ShellCommand(words=tuple(words), reads_pipe=after_pipe))
                after_pipe = False
            # A line break may stand after a pipe, which is still one then.
            after_pipe = after_pipe or separator[0] in ("|", "|&")
            words = []
            at = separator.end()
        else:
            word, at = _parse_word(line, at, first=not words)
            words.append(word)
    if words:
        commands.append(ShellCommand(words=tuple(words), reads_pipe=after_pipe))
    return commands


def _parse_word(line: str, at: int, *, first: bool) -> tuple[ShellWord, int]:
    """Return the word that begins here, and where it ends."""
    start = at
    pieces = list[str]()
    glob = False
    variable = False
    while at < len(line) and not (_BLANK.match(line, at) or _SEPARATOR.match(line, at)):
        if match := _PLAIN.match(line, at):
            if not match[0].isprintable() or _INVISIBLE.search(match[0]):
                # Blanks of other scripts, and invisible characters.
                raise AmbiguousShellLine(match[0])
            pieces.append(match[0])
            glob = glob or any(each in match[0] for each in GLOB_CHARACTERS)
        elif match := _CONTINUATION.match(line, at):
            pass
        elif match := _ESCAPED.match(line, at) or _SINGLE.match(line, at):
            pieces.append(match[1])
        elif match := _DOUBLE.match(line, at):
            pieces.append(re.sub(r"\\([\\\"$`])", r"\1", match[1].replace("\\\n", "")))
            variable = variable or "$" in match[1]
        elif match := _VARIABLE.match(line, at):
            pieces.append(match[0])
            variable = True
        else:
            raise AmbiguousShellLine(line[at : at + 10])
        at = match.end()
    word = ShellWord(text="".join(pieces), has_glob=glob, has_variable=variable)
    if first and not _can_name_program(word):
        # What the shell puts together only now may be any program at all.
        raise AmbiguousShellLine(line[start:at])
    return word, at


def _can_name_program(word: ShellWord) -> bool:
    return not (
        word.has_glob
        or word.has_variable
        or not word.text
        or any(each.isspace() for each in word.text)
        or ASSIGNMENT_PREFIX.match(word.text)
        or word.text in SHELL_KEYWORDS
    )


def strip_program_path(program: str) -> str:
    """Return a program's name without its path."""
    return program.rstrip("/").rpartition("/")[2] or program
