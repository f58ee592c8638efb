"""Which commands a line of shell runs, read with suspicion.

This is no shell. It knows the plain part of the language: words, quotes, and what stands between
two commands. Whatever else it meets makes the line one that nobody can be sure of.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SHELL_KEYWORD_TEXT = (
    "! [[ case do done elif else esac fi for function if in select then until while { }"
)
SHELL_KEYWORDS = frozenset(_SHELL_KEYWORD_TEXT.split())
"""Words that make more of a line than commands."""
GLOB_CHARACTERS = "*?["
"""What the shell, and a pattern, put other characters in place of."""

_BLANK = re.compile(r"[ \t]+")
_CONTINUATION = re.compile(r"\\\n")
"""The shell takes it away, so the letters around it are one word."""
_SEPARATOR = re.compile(r"&&|\|\||\|&|[;|\n]|&(?![>&])")
_REDIRECTION = re.compile(
    r"(?:\d?>>?|&>>?)[ \t]*/dev/null(?=[ \t\n;&|]|$)|\d?>&[12](?=[ \t\n;|]|$)"
)
"""Those that write nowhere: `2>&1`, `>/dev/null`."""
_PLAIN = re.compile(r"[^\s\\'\"`$;&|<>(){}#\x00-\x1f\x7f]+|(?<=[^\s;&|])#")
_ESCAPED = re.compile(r"\\([^\n\x00-\x1f])")
_SINGLE = re.compile(r"'([^'\x00-\x08\x0b-\x1f]*)'")
_DOUBLE = re.compile(r"\"((?:[^\"\\`$\x00-\x08\x0b-\x1f]|\\[^\x00-\x1f]|\\\n|\$\w+)*)\"")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[?0-9])")
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Characters that count as printable, and that nobody sees."""
ASSIGNMENT_PREFIX = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^]]*\])?\+?=")
"""How a word begins that sets a variable."""


class AmbiguousShellLine(ValueError):
    """A line that is not understood for certain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellWord:
    """A word of a command."""

    text: str
    """The word without its quotes."""
    has_glob: bool = False
    """Whether the shell puts the names of files in its place."""
    has_variable: bool = False
    """Whether the shell puts the value of a variable into it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellCommand:
    """A program with its arguments."""

    words: tuple[ShellWord, ...]
    """The program first; there is at least one."""
    reads_pipe: bool = False
    """Whether it reads what another command prints."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The words without their quotes."""
        return tuple(word.text for word in self.words)


def parse_shell_line(line: str) -> list[ShellCommand]:
    """The commands that the line runs; raises Unsure."""
    commands: list[ShellCommand] = []
    words: list[ShellWord] = []
    at, piped = 0, False
    while at < len(line):
        if skipped := (_BLANK.match(line, at) or _CONTINUATION.match(line, at)):
            at = skipped.end()
        elif silent := _REDIRECTION.match(line, at):
            at = silent.end()
        elif separator := _SEPARATOR.match(line, at):
            if words:
                commands.append(ShellCommand(words=tuple(words), reads_pipe=piped))
                piped = False
            # A line break may stand after a pipe, which is still one then.
            piped = piped or separator[0] in ("|", "|&")
            words, at = [], separator.end()
        else:
            word, at = _parse_word(line, at, first=not words)
            words.append(word)
    if words:
        commands.append(ShellCommand(words=tuple(words), reads_pipe=piped))
    return commands


def _parse_word(line: str, at: int, *, first: bool) -> tuple[ShellWord, int]:
    """The word that begins here, and where it ends."""
    begun, pieces, glob, variable = at, list[str](), False, False
    while at < len(line) and not (_BLANK.match(line, at) or _SEPARATOR.match(line, at)):
        if found := _PLAIN.match(line, at):
            if not found[0].isprintable() or _INVISIBLE.search(found[0]):
                # Blanks of other scripts, and what nobody sees.
                raise AmbiguousShellLine(found[0])
            pieces.append(found[0])
            glob = glob or any(each in found[0] for each in GLOB_CHARACTERS)
        elif found := _CONTINUATION.match(line, at):
            pass
        elif found := _ESCAPED.match(line, at) or _SINGLE.match(line, at):
            pieces.append(found[1])
        elif found := _DOUBLE.match(line, at):
            pieces.append(re.sub(r"\\([\\\"$`])", r"\1", found[1].replace("\\\n", "")))
            variable = variable or "$" in found[1]
        elif found := _VARIABLE.match(line, at):
            pieces.append(found[0])
            variable = True
        else:
            raise AmbiguousShellLine(line[at : at + 10])
        at = found.end()
    word = ShellWord(text="".join(pieces), has_glob=glob, has_variable=variable)
    if first and not _can_name_program(word):
        # What the shell puts together only now may be any program at all.
        raise AmbiguousShellLine(line[begun:at])
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
    """A program's name without its path."""
    return program.rstrip("/").rpartition("/")[2] or program
