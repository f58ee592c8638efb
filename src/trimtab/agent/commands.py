"""Which commands a line of shell runs, read with suspicion.

This is no shell. It knows the plain part of the language: words, quotes, and what stands between
two commands. Whatever else it meets makes the line one that nobody can be sure of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

Words = tuple[str, ...]

_RUNNERS = """
. ash at awk bash batch builtin bun busybox bwrap chroot command coproc csh dash deno doas docker
env eval exec expect fish flock gawk ionice ksh lua mawk nice node nodejs nohup nsenter parallel
perl php pkexec podman python python2 python3 rlwrap ruby run0 runuser screen script setarch setpriv
setsid sh source ssh ssh-agent stdbuf strace su sudo systemd-run taskset tclsh tcsh time timeout
tmux trap unshare watch xargs zsh
"""
_KEYWORDS = "! [[ case do done elif else esac fi for function if in select then until while { }"

RUNNERS = frozenset(_RUNNERS.split())
"""Programs that run what they are given: whoever allows one of them allows everything."""
KEYWORDS = frozenset(_KEYWORDS.split())
"""Words that make more of a line than commands."""
EXECUTING = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
"""With these `find` is a runner."""

_BLANK = re.compile(r"[ \t]+|\\\n")
_SEPARATOR = re.compile(r"&&|\|\||\|&|[;|\n]|&(?![>&])")
_REDIRECTION = re.compile(r"(?:\d?>>?|&>>?)[ \t]*/dev/null(?=[\s;&|]|$)|\d?>&[12](?=[\s;|]|$)")
"""Those that write nowhere: `2>&1`, `>/dev/null`."""
_PLAIN = re.compile(r"[^\s\\'\"`$;&|<>(){}#\x00-\x1f\x7f]+|(?<=[^\s;&|])#")
_ESCAPED = re.compile(r"\\([^\n\x00-\x1f])")
_SINGLE = re.compile(r"'([^'\x00-\x08\x0b-\x1f]*)'")
_DOUBLE = re.compile(r"\"((?:[^\"\\`$\x00-\x08\x0b-\x1f]|\\[^\x00-\x1f]|\\\n|\$\w+)*)\"")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[?0-9])")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^]]*\])?\+?=")
_CRUDE = re.compile(r"[;&|\n(){}<>`]+|\$(?=\()")
_DEPTH = 3


class Unsure(ValueError):
    """A line that is not understood for certain."""


def simple_commands(line: str) -> list[Words]:
    """The commands that the line runs, each as its words without their quotes; raises Unsure."""
    commands: list[Words] = []
    words: list[str] = []
    at = 0
    while at < len(line):
        if blank := _BLANK.match(line, at):
            at = blank.end()
        elif silent := _REDIRECTION.match(line, at):
            at = silent.end()
        elif separator := _SEPARATOR.match(line, at):
            commands.append(tuple(words))
            words, at = [], separator.end()
        else:
            word, at = _word(line, at, first=not words)
            words.append(word)
    commands.append(tuple(words))
    # A line break may stand anywhere, and a line may end in `;` or `&`.
    return [each for each in commands if each]


def _word(line: str, at: int, *, first: bool) -> tuple[str, int]:
    """The word that begins here, and where it ends."""
    begun, pieces, changed = at, list[str](), False
    while at < len(line) and not (_BLANK.match(line, at) or _SEPARATOR.match(line, at)):
        if found := _PLAIN.match(line, at):
            pieces.append(found[0])
            changed = changed or any(each in found[0] for each in "*?[")
        elif found := _ESCAPED.match(line, at) or _SINGLE.match(line, at):
            pieces.append(found[1])
        elif found := _DOUBLE.match(line, at):
            pieces.append(re.sub(r"\\([\\\"$`])", r"\1", found[1].replace("\\\n", "")))
            changed = changed or "$" in found[1]
        elif found := _VARIABLE.match(line, at):
            pieces.append(found[0])
            changed = True
        else:
            raise Unsure(line[at : at + 10])
        at = found.end()
    word = "".join(pieces)
    if first and (
        changed
        or not word
        or any(each.isspace() for each in word)
        or _ASSIGNMENT.match(line, begun)
        or word in KEYWORDS
    ):
        # What the shell puts together only now may be any program at all.
        raise Unsure(line[begun:at])
    return word, at


def runs_others(words: Words) -> bool:
    """Whether its arguments are commands."""
    program = program_of(words)
    # `python3.12` is `python3`.
    return (
        re.sub(r"[\d.]+$", "", program) in RUNNERS
        or program in RUNNERS
        or (program == "find" and not EXECUTING.isdisjoint(words))
    )


def program_of(words: Words) -> str:
    return PurePosixPath(words[0]).name


def suspects(line: str, depth: int = _DEPTH) -> Iterator[str]:
    """All that the line may run, as far as can be told: for patterns that must not be missed."""
    yield line
    yield " ".join(line.split())
    try:
        commands = simple_commands(line)
    except Unsure:
        # The empty word stands for arguments that were cut off: `rm *` is to match it.
        commands = [(*words, "") for words in _crude(line)]
    for words in commands:
        yield from _named(words)
        if runs_others(words):
            for place in range(1, len(words)):
                yield from _named(words[place:])
                # The whole of a script is one word: sh -c 'ls; rm x'.
                if depth and re.search(r"\s", words[place]):
                    yield from suspects(words[place], depth - 1)


def _named(words: Words) -> Iterator[str]:
    """A command by the name and by the path of its program."""
    if words and words[0]:
        yield " ".join(words)
        yield " ".join((program_of(words) or words[0], *words[1:]))


def _crude(line: str) -> list[Words]:
    """Where the line is not understood: cut at all that could begin a command, quotes or not."""
    out: list[Words] = []
    for piece in _CRUDE.split(re.sub(r"[\\'\"]", "", line)):
        words = piece.split()
        while words and (words[0] in KEYWORDS or _ASSIGNMENT.match(words[0])):
            words = words[1:]
        if words:
            out.append(tuple(words))
    return out
