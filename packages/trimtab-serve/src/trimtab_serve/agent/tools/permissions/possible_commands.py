"""All commands that a shell line may run, as far as it can be known.

The patterns of `deny` and `ask` are matched against all of them, so that none is missed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from trimtab_serve.agent.tools.permissions.read_only_check import explain_not_read_only
from trimtab_serve.agent.tools.permissions.shell_parser import (
    ASSIGNMENT_PREFIX,
    SHELL_KEYWORDS,
    AmbiguousShellLine,
    parse_shell_line,
    strip_program_path,
)
from trimtab_serve.agent.tools.permissions.shell_patterns import has_no_wildcards

CommandWords = Sequence[str]

_COMMAND_RUNNER_TEXT = """
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
COMMAND_RUNNERS = frozenset(_COMMAND_RUNNER_TEXT.split())
"""Programs that run other commands."""
_GIT_RUNNER_TEXT = """
-c --config-env --exec-path bisect config difftool filter-branch for-each-repo hook mergetool rebase
submodule
"""
_GIT_RUNNER_WORDS = frozenset(_GIT_RUNNER_TEXT.split())
"""Words that make git run other commands."""
_LOADER_PREFIXES = ("ld-linux", "ld-musl", "ld.so")
"""Prefixes of the names of dynamic loaders, which start other programs."""
_COMMAND_OPTION_TEXT = """
-exec -execdir -ok -okdir --exec -x --extcmd -e --rsh -c --command --pre -I -P -O -S
--compress-program --use-compress-program --to-command --run -TT --upload-pack --receive-pack
"""
_OPTIONS_BEFORE_COMMAND = frozenset(_COMMAND_OPTION_TEXT.split())
"""Options after which other programs expect a command."""
_COMMAND_BOUNDARY = re.compile(r"[;&|\n(){}<>`]+|\$(?=\()")
_WORD_BOUNDARY = re.compile(r"[\s;&|(){}<>`'\"!=,\[\]$\\]+")
_EXPANSION = re.compile(r"[*?\[$`]")
"""Characters that another shell would expand."""
_MAX_NESTED_WORDS = 50
"""Maximum number of words of a command to check after another program."""


def find_restricting_pattern(patterns: Sequence[str], line: str) -> str | None:
    """Return the first pattern of `deny` or `ask` that matches the line, or any part of it."""
    forms = {pattern: _pattern_forms(pattern) for pattern in patterns}
    # Most patterns name a program, and a long line is full of words that are none of them.
    programs = {form.partition(" ")[0] for each in forms.values() for form in each}
    anything = not all(map(has_no_wildcards, programs))
    matches: set[str] = set()
    for text in map(str.casefold, iterate_all_conceivable_commands(line) if patterns else ()):
        if anything or text.partition(" ")[0] in programs:
            matches |= {
                pattern
                for pattern, each in forms.items()
                if any(fnmatchcase(text, form) for form in each)
            }
    return next((pattern for pattern in patterns if pattern in matches), None)


def _pattern_forms(pattern: str) -> tuple[str, ...]:
    """Return the forms of a pattern: `rm *` and `rm` both match with and without further words."""
    whole = pattern.casefold().strip()
    bare = whole.rstrip("* ")
    return (whole, bare, f"{bare} *") if bare else (whole,)


def is_unambiguous_line(line: str) -> bool:
    """Return whether the line itself shows everything that it runs."""
    try:
        commands = parse_shell_line(line)
    except AmbiguousShellLine:
        return False
    return not any(
        word.has_variable or word.has_glob
        for command in commands
        if may_run_other_commands(command.texts)
        for word in command.words
    ) and not any(
        _EXPANSION.search(text)
        for command in commands
        if may_run_other_commands(command.texts)
        for text in command.texts
    )


def may_run_other_commands(command_words: CommandWords) -> bool:
    """Return whether the arguments may be commands."""
    program = strip_program_path(command_words[0]).casefold()
    # `python3.12` is `python3`.
    return (
        program in COMMAND_RUNNERS
        or program.startswith(_LOADER_PREFIXES)
        or re.sub(r"[\d.]+$", "", program) in COMMAND_RUNNERS
        or (program == "git" and not _GIT_RUNNER_WORDS.isdisjoint(command_words))
    )


def iterate_all_conceivable_commands(shell_line: str) -> Iterator[str]:
    """Yield each command that the line may contain, as its words without quotes."""
    yield shell_line
    yield " ".join(shell_line.split())
    try:
        commands = parse_shell_line(shell_line)
        for command in commands:
            yield from _possible_commands_of(
                command.texts, harmless=explain_not_read_only(command) is None
            )
        if any(
            command.reads_pipe and may_run_other_commands(command.texts) for command in commands
        ):
            yield from _commands_inside_text(shell_line)
    except AmbiguousShellLine:
        for words in _split_crudely(shell_line):
            yield from _possible_commands_of(words, harmless=False)


def _possible_commands_of(words: CommandWords, *, harmless: bool) -> Iterator[str]:
    """Yield a command, and the commands that it may run."""
    yield from _command_spellings(words)
    if harmless:
        return
    if may_run_other_commands(words):
        yield from _commands_inside_text(" ".join(words[1:]), strip_program_path(words[0]))
        return
    for place, word in enumerate(words[1:], 1):
        if words[place - 1] in _OPTIONS_BEFORE_COMMAND:
            yield from _commands_inside_text(" ".join(words[place : place + _MAX_NESTED_WORDS]))
        elif re.match(r"-*[\w.-]+=|\w+::|!", word):
            yield from _commands_inside_text(re.split(r"::|[=!]", word, maxsplit=1)[1])
        elif re.match(r"-[^-].", word):
            for start in range(2, min(len(word), 8)):
                yield from _commands_inside_text(word[start:])


def _after_options(words: CommandWords) -> Iterator[int]:
    """Yield the possible positions of the first word after the options and their values, as in `git
    -C . push`."""
    place = 1
    while place < len(words) and words[place].startswith("-"):
        place += 1
        if place < len(words) and not words[place].startswith("-"):
            yield place
            place += 1
            if place < len(words) and not words[place].startswith("-"):
                yield place


def _commands_inside_text(text: str, program: str = "") -> Iterator[str]:
    """Yield every possible command in a text. Each word may be a program, or a subcommand of
    `program`. Quotes and separators are tried both as boundaries and as removed."""
    flat = re.sub(r"\\\n|[\\'\"]", "", text)
    for form in (text,) if flat == text else (text, flat):
        words = [word for word in _WORD_BOUNDARY.split(form) if word]
        for place, word in enumerate(words):
            tail_words = words[place : place + _MAX_NESTED_WORDS]
            yield from _command_spellings(tail_words)
            if program == "git":
                yield from _command_spellings((program, *tail_words))
            if strip_program_path(word) == "git":
                for further in range(2, min(len(tail_words), 8)):
                    yield from _command_spellings(("git", *tail_words[further:]))
            if re.match(r"-\w.", word):
                # A value without a blank before it: `-Srm`, `-yxrm`.
                for start in range(2, min(len(word), 8)):
                    yield from _command_spellings((word[start:], *tail_words[1:]))


def _command_spellings(words: CommandWords) -> Iterator[str]:
    """Yield a command with the path and with the name of its program, with and without its first
    options."""
    if not words or not words[0]:
        return
    for place in (1, *_after_options(words)):
        rest = words[place:]
        yield " ".join((words[0], *rest))
        if (name := strip_program_path(words[0])) != words[0]:
            yield " ".join((name, *rest))
        if name.startswith("git-"):
            yield " ".join(("git", name[4:], *rest))


def _split_crudely(line: str) -> Iterator[CommandWords]:
    """Split a line that is not understood at everything that could begin a command, ignoring
    quotes."""
    flat = re.sub(r"\\\n|\$(?=['\"])|[\\'\"]", "", line)
    for piece in _COMMAND_BOUNDARY.split(flat):
        words = piece.split()
        while words and (words[0] in SHELL_KEYWORDS or ASSIGNMENT_PREFIX.match(words[0])):
            value = words[0].partition("=")[2]
            words = words[1:]
            if value and len(words) < 4 * _MAX_NESTED_WORDS:
                yield [value, *words[:_MAX_NESTED_WORDS]]
        if words:
            yield words
