"""What a pattern for a shell says of a command, word by word."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

from trimtab.agent.commands import WILDCARDS, Command, Word
from trimtab.agent.harmless import expands_upwards, head_of, leads_out
from trimtab.agent.readers import KNOWN

_NAME = re.compile(r"[\w-]*[^\W_]\*")
"""A name with a `*` directly after it: `git diff*`."""
_PROGRAM = re.compile(r"[^*?\[]*[^\W_]\*")
_STANDS_FOR = re.compile(r"[\w.%+/-]*")
"""What a `*` inside a word stands for if the program is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A pattern, read."""

    words: tuple[str, ...]
    """Each stands for one word of a command; a `*` in it stays in that word."""
    rest: bool
    """Whether further words may follow."""

    def matches(self, texts: tuple[str, ...]) -> bool:
        """Whether the words are those of the pattern."""
        enough = len(texts) >= len(self.words) if self.rest else len(texts) == len(self.words)
        return enough and all(map(fnmatchcase, texts, self.words))


@cache
def pattern_of(text: str) -> Pattern:
    """A `*` at the end, alone or directly after a name, stands for any further words, or none."""
    words = text.split()
    last = words[-1] if words else ""
    # A program may have a path: `./build.sh*`.
    name = _PROGRAM if len(words) == 1 else _NAME
    rest = last == "*" or name.fullmatch(last) is not None
    if rest:
        words[-1:] = [last[:-1]] if last != "*" else []
    return Pattern(words=tuple(words), rest=rest)


def is_literal(text: str) -> bool:
    """Whether nothing in it stands for something else."""
    return not any(each in text for each in WILDCARDS)


def objection(pattern: Pattern, command: Command, doubt: str | None, *, moved: bool) -> str | None:
    """Why a pattern that matches does not allow the command; None if it does.

    `doubt` says why the command is not known to be harmless, and `moved` that a `cd` stands before
    it. A command that is not known to be harmless is allowed only if each of its words is spelt.
    """
    if doubt is None:
        return _unnamed(pattern, command)
    named = is_literal(pattern.words[0]) if pattern.words else False
    if pattern.rest or not named or not all(map(_spelt, pattern.words, command.words)):
        return doubt
    if command.piped:
        return f"{doubt}, and what is piped into it is not part of the pattern"
    if moved:
        return f"{doubt}, and a cd stands before it"
    return None


def _unnamed(pattern: Pattern, command: Command) -> str | None:
    """What runs code is not meant by `*`: a pattern has to name it."""
    head = head_of(command.texts) or ()
    if head and KNOWN[head].runs and pattern.words[: len(head)] != head:
        return f"{' '.join(head)} runs code of the folder, so a pattern has to name it"
    return None


def _spelt(said: str, word: Word) -> bool:
    """Whether a pattern's word spells a word: all of it, or all but a part of a path or value."""
    if word.variable:
        return False
    if is_literal(said):
        return said == word.text and not word.glob
    begun = re.split(r"[*?\[]", said, maxsplit=1)[0]
    if said.startswith("-") and "=" not in begun:
        # Which option it is must not be left to whoever writes the command.
        return False
    if word.glob:
        return said == word.text and begun not in ("", "-") and not expands_upwards(said)
    if "://" in said and "/" not in begun.partition("://")[2]:
        # Which host it is must not be left to whoever writes the command.
        return False
    named = re.sub(r"\*|\?|\[[^]]*\]", "", said)
    free = word.text[len(begun) :]
    below = word.text[max(map(begun.rfind, "/=:,")) + 1 :]
    return (
        fnmatchcase(word.text, said)
        and any(each in named for each in "/.=")
        and _STANDS_FOR.fullmatch(free) is not None
        and not free.startswith(("/", "~") if begun else ("-", "+", "@"))
        and not leads_out(below)
    )
