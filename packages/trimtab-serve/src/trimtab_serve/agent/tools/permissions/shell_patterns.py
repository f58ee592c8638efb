"""Match the pattern of a shell with a command, word by word."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

from trimtab_serve.agent.tools.permissions.read_only_check import (
    find_read_only_program_words,
    may_expand_to_parent,
    may_lead_outside_folder,
)
from trimtab_serve.agent.tools.permissions.read_only_programs import READ_ONLY_USAGES
from trimtab_serve.agent.tools.permissions.shell_parser import (
    GLOB_CHARACTERS,
    ShellCommand,
    ShellWord,
)

_NAME_WITH_STAR = re.compile(r"[\w-]*[^\W_]\*")
"""A name with a `*` directly after it: `git diff*`."""
_PROGRAM_WITH_STAR = re.compile(r"[^*?\[]*[^\W_]\*")
_STAR_MATCH = re.compile(r"[\w.%+/-]*")
"""The characters that a `*` inside a word matches if the program is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellPattern:
    """A parsed pattern."""

    words: tuple[str, ...]
    """Each matches one word of a command. A `*` in it matches only within that word."""
    allows_more_words: bool
    """Whether further words may follow."""

    def matches(self, command_words: tuple[str, ...]) -> bool:
        """Return whether the words match the pattern."""
        enough = (
            len(command_words) >= len(self.words)
            if self.allows_more_words
            else len(command_words) == len(self.words)
        )
        return enough and all(map(fnmatchcase, command_words, self.words))


@cache
def parse_shell_pattern(text: str) -> ShellPattern:
    """Parse a pattern. A `*` at the end, alone or directly after a name, matches any further words,
    or none."""
    words = text.split()
    last = words[-1] if words else ""
    # A program may have a path: `./build.sh*`.
    name = _PROGRAM_WITH_STAR if len(words) == 1 else _NAME_WITH_STAR
    rest = last == "*" or name.fullmatch(last) is not None
    if rest:
        words[-1:] = [last[:-1]] if last != "*" else []
    return ShellPattern(words=tuple(words), allows_more_words=rest)


def has_no_wildcards(text: str) -> bool:
    """Return whether the pattern contains no wildcards."""
    return not any(each in text for each in GLOB_CHARACTERS)


def explain_why_match_is_insufficient(
    matching_pattern: ShellPattern,
    command: ShellCommand,
    not_read_only_reason: str | None,
    *,
    after_cd: bool,
) -> str | None:
    """Return why a pattern that matches does not allow the command. None if it does.

    `not_read_only_reason` says why the command is not known to be harmless, and `after_cd` that
    there is a `cd` before it. A command that is not known to be harmless is allowed only if the
    pattern spells each of its words.
    """
    if not_read_only_reason is None:
        return _explain_unnamed_runner(matching_pattern, command)
    names_program = has_no_wildcards(matching_pattern.words[0]) if matching_pattern.words else False
    if (
        matching_pattern.allows_more_words
        or not names_program
        or not all(map(_spells_word, matching_pattern.words, command.words))
    ):
        return not_read_only_reason
    if command.reads_pipe:
        return f"{not_read_only_reason}, and the pattern does not cover the input from the pipe"
    if after_cd:
        return f"{not_read_only_reason}, and there is a cd before it"
    return None


def _explain_unnamed_runner(pattern: ShellPattern, command: ShellCommand) -> str | None:
    """Return a reason if the pattern does not name a program that runs code. `*` does not cover
    it."""
    head = find_read_only_program_words(command.texts) or ()
    if head and READ_ONLY_USAGES[head].runs_code and pattern.words[: len(head)] != head:
        program = " ".join(head)
        return f"{program} runs code from the folder, so the pattern must begin with {program}"
    return None


def _spells_word(pattern_word: str, word: ShellWord) -> bool:
    """Return whether a pattern's word spells a word: completely, or except for a part of a path or
    value."""
    if word.has_variable:
        return False
    if has_no_wildcards(pattern_word):
        return pattern_word == word.text and not word.has_glob
    literal_start = re.split(r"[*?\[]", pattern_word, maxsplit=1)[0]
    if pattern_word.startswith("-") and "=" not in literal_start:
        # The pattern must name the option, because the model writes the command.
        return False
    if word.has_glob:
        return (
            pattern_word == word.text
            and literal_start not in ("", "-")
            and not may_expand_to_parent(pattern_word)
        )
    if "://" in pattern_word and "/" not in literal_start.partition("://")[2]:
        # The pattern must name the host, because the model writes the command.
        return False
    literal_text = re.sub(r"\*|\?|\[[^]]*\]", "", pattern_word)
    free = word.text[len(literal_start) :]
    below = word.text[max(map(literal_start.rfind, "/=:,")) + 1 :]
    return (
        fnmatchcase(word.text, pattern_word)
        and any(each in literal_text for each in "/.=")
        and _STAR_MATCH.fullmatch(free) is not None
        and not free.startswith(("/", "~") if literal_start else ("-", "+", "@"))
        and not may_lead_outside_folder(below)
    )
