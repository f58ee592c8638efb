"""All that a line of shell may run, as far as can be told: for patterns that must not be missed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from trimtab.agent.commands import (
    ASSIGNMENT,
    KEYWORDS,
    Unsure,
    commands_of,
    program_of,
)
from trimtab.agent.harmless import doubt
from trimtab.agent.patterns import is_literal

Words = Sequence[str]

_RUNNERS = """
. alias ash at awk bash batch builtin bun bunx busybox bwrap cargo catchsegv chroot chrt command
compgen conda coproc cpulimit csh dash dbus-run-session deno direnv doas docker ed emacs entr env
eval ex exec expect fakeroot faketime firejail fish flock gawk gdb go gpg-agent gradle hash
hyperfine ionice just ksh kubectl less ltrace lua lxc make mamba man mawk more mvn nawk ncat nice
ninja node nodejs nohup npm npx nsenter numactl nvim openvt parallel perf perl php pip pip3 pipx
pkexec pnpm podman poetry prlimit proot psql python python2 python3 rake rlwrap rsync ruby run0
runuser scp screen script sed sem setarch setpriv setsid sh socat source sqlite3 ssh ssh-agent
stdbuf strace su sudo systemd-run tar taskset tclsh tcsh time timeout tmux tox toybox trap unbuffer
unshare uv uvx valgrind vi view vim watch xargs xvfb-run yarn zsh
"""
RUNNERS = frozenset(_RUNNERS.split())
"""Programs that run what they are given."""
_GIT = """
-c --config-env --exec-path bisect config difftool filter-branch for-each-repo hook mergetool rebase
submodule
"""
_GIT_RUNS = frozenset(_GIT.split())
"""What makes git a runner."""
_LOADERS = ("ld-linux", "ld-musl", "ld.so")
"""How the programs begin by which the system starts others."""
_OPTIONS = """
-exec -execdir -ok -okdir --exec -x --extcmd -e --rsh -c --command --pre -I -P -O -S
--compress-program --use-compress-program --to-command --run -TT --upload-pack --receive-pack
"""
_BEFORE_A_COMMAND = frozenset(_OPTIONS.split())
"""Options after which other programs expect a command."""
_CUTS = re.compile(r"[;&|\n(){}<>`]+|\$(?=\()")
_PIECES = re.compile(r"[\s;&|(){}<>`'\"!=,\[\]$\\]+")
_PUT_IN = re.compile(r"[*?\[$`]")
"""What another shell puts words in place of."""
_LONGEST = 50
"""Words of a command that are looked at after another program."""


def forbidding(patterns: Sequence[str], line: str) -> str | None:
    """The first pattern of `deny` or `ask` that means the line, or any part of it."""
    forms = {pattern: _forms(pattern) for pattern in patterns}
    # Most patterns name a program, and a long line is full of words that are none of them.
    named = {form.partition(" ")[0] for each in forms.values() for form in each}
    anything = not all(map(is_literal, named))
    found: set[str] = set()
    for text in map(str.casefold, suspects(line) if patterns else ()):
        if anything or text.partition(" ")[0] in named:
            found |= {
                pattern
                for pattern, each in forms.items()
                if any(fnmatchcase(text, form) for form in each)
            }
    return next((pattern for pattern in patterns if pattern in found), None)


def _forms(pattern: str) -> tuple[str, ...]:
    """Whoever denies `rm *` or `rm` means it with any words after it, and with none."""
    said = pattern.casefold().strip()
    bare = said.rstrip("* ")
    return (said, bare, f"{bare} *") if bare else (said,)


def is_certain(line: str) -> bool:
    """Whether it can be told what the line runs, as far as the line itself says it."""
    try:
        commands = commands_of(line)
    except Unsure:
        return False
    return not any(
        word.variable or word.glob
        for command in commands
        if runs_others(command.texts)
        for word in command.words
    ) and not any(
        _PUT_IN.search(text)
        for command in commands
        if runs_others(command.texts)
        for text in command.texts
    )


def runs_others(words: Words) -> bool:
    """Whether its arguments may be commands."""
    program = program_of(words[0]).casefold()
    # `python3.12` is `python3`.
    return (
        program in RUNNERS
        or program.startswith(_LOADERS)
        or re.sub(r"[\d.]+$", "", program) in RUNNERS
        or (program == "git" and not _GIT_RUNS.isdisjoint(words))
    )


def suspects(line: str) -> Iterator[str]:
    """Each command that may be meant, as its words without quotes."""
    yield line
    yield " ".join(line.split())
    try:
        commands = commands_of(line)
        for command in commands:
            yield from _of(command.texts, harmless=doubt(command) is None)
        if any(command.piped and runs_others(command.texts) for command in commands):
            yield from _inside(line)
    except Unsure:
        for words in _crude(line):
            yield from _of(words, harmless=False)


def _of(words: Words, *, harmless: bool) -> Iterator[str]:
    """A command, and what it may run in its turn."""
    yield from _named(words)
    if harmless:
        return
    if runs_others(words):
        yield from _inside(" ".join(words[1:]), program_of(words[0]))
        return
    for place, word in enumerate(words[1:], 1):
        if words[place - 1] in _BEFORE_A_COMMAND:
            yield from _inside(" ".join(words[place : place + _LONGEST]))
        elif re.match(r"-*[\w.-]+=|\w+::|!", word):
            yield from _inside(re.split(r"::|[=!]", word, maxsplit=1)[1])
        elif re.match(r"-[^-].", word):
            for begun in range(2, min(len(word), 8)):
                yield from _inside(word[begun:])


def _after_options(words: Words) -> Iterator[int]:
    """Where the first word may be that is no option and no option's value: `git -C . push`."""
    place = 1
    while place < len(words) and words[place].startswith("-"):
        place += 1
        if place < len(words) and not words[place].startswith("-"):
            yield place
            place += 1
            if place < len(words) and not words[place].startswith("-"):
                yield place


def _inside(text: str, program: str = "") -> Iterator[str]:
    """Each word of a text may be a program, or a command of the one that is named: quotes, and all
    that stands between commands, are cut, or are nothing, as inside of a word."""
    flat = re.sub(r"\\\n|[\\'\"]", "", text)
    for form in (text,) if flat == text else (text, flat):
        words = [word for word in _PIECES.split(form) if word]
        for place, word in enumerate(words):
            found = words[place : place + _LONGEST]
            yield from _named(found)
            if program == "git":
                yield from _named((program, *found))
            if program_of(word) == "git":
                for further in range(2, min(len(found), 8)):
                    yield from _named(("git", *found[further:]))
            if re.match(r"-\w.", word):
                # A value without a blank before it: `-Srm`, `-yxrm`.
                for begun in range(2, min(len(word), 8)):
                    yield from _named((word[begun:], *found[1:]))


def _named(words: Words) -> Iterator[str]:
    """A command by the path and by the name of its program, with its first options and without."""
    if not words or not words[0]:
        return
    for place in (1, *_after_options(words)):
        rest = words[place:]
        yield " ".join((words[0], *rest))
        if (name := program_of(words[0])) != words[0]:
            yield " ".join((name, *rest))
        if name.startswith("git-"):
            yield " ".join(("git", name[4:], *rest))


def _crude(line: str) -> Iterator[Words]:
    """A line that is not understood: cut at all that could begin a command, quotes or not."""
    flat = re.sub(r"\\\n|\$(?=['\"])|[\\'\"]", "", line)
    for piece in _CUTS.split(flat):
        words = piece.split()
        while words and (words[0] in KEYWORDS or ASSIGNMENT.match(words[0])):
            value = words[0].partition("=")[2]
            words = words[1:]
            if value and len(words) < 4 * _LONGEST:
                yield [value, *words[:_LONGEST]]
        if words:
            yield words
