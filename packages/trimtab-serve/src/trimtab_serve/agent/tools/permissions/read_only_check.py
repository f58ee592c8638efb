"""Check whether a command is known to only read, and only in the folder that it runs in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from trimtab_serve.agent.tools.permissions.read_only_programs import (
    PARTLY_KNOWN_PROGRAMS,
    READ_ONLY_USAGES,
    ReadOnlyUsage,
)
from trimtab_serve.agent.tools.permissions.shell_parser import (
    GLOB_CHARACTERS,
    ShellCommand,
    ShellWord,
)

MAX_REASON_CHARS = 200
"""Maximum number of characters of a reason."""


def explain_not_read_only(command: ShellCommand, *, after_cd: bool = False) -> str | None:
    """Return why the command is not known to be harmless. None if it is harmless.

    `after_cd` says that there is a `cd` before it in the line.
    """
    texts = command.texts
    head = find_read_only_program_words(texts)
    if head is None:
        name = " ".join(texts[:2]) if texts[0] in PARTLY_KNOWN_PROGRAMS else texts[0]
        return f"{name} is not known to be read-only"
    if after_cd and head[0] == "git":
        return "after a cd, git may read the settings of another repository"
    doubt = next(_reasons_to_doubt(READ_ONLY_USAGES[head], head, command.words[len(head) :]), None)
    # A word may be as long as the model likes.
    return doubt and doubt[:MAX_REASON_CHARS]


def find_read_only_program_words(command_words: Sequence[str]) -> tuple[str, ...] | None:
    """Return the words that name a known program: `ls`, `git diff`. None if the program is
    unknown."""
    heads = (tuple(command_words[:size]) for size in (3, 2, 1))
    return next((head for head in heads if head in READ_ONLY_USAGES), None)


def strip_git_pager_option(command: ShellCommand) -> ShellCommand:
    """Return `git --no-pager log` as `git log`, because no pager is ever used here."""
    texts = command.texts
    if texts[0] != "git" or texts[1:2] not in (("--no-pager",), ("-P",)):
        return command
    return ShellCommand(words=(command.words[0], *command.words[2:]), reads_pipe=command.reads_pipe)


def may_lead_outside_folder(text: str) -> bool:
    """Return whether a text could be, or contain, a path that leads out of the folder."""
    # To git, `:(top)` is the folder that its repository begins in.
    return re.match(r":\([^)]*top", text) is not None or any(
        piece.startswith(("/", "~")) or ".." in piece.split("/")
        for piece in re.split(r"[=:,]", text)
    )


def may_expand_to_parent(pattern: str) -> bool:
    """Return whether the shell could expand a part of it to `..`, as with `.*` and `.?`."""
    return any(
        part.startswith(".") and any(each in part for each in GLOB_CHARACTERS)
        for part in pattern.split("/")
    )


def _reasons_to_doubt(
    program: ReadOnlyUsage, head: Sequence[str], words: Sequence[ShellWord]
) -> Iterator[str]:
    name = " ".join(head)
    operands: list[ShellWord] = []
    gives_pattern = after_dashes = False
    remaining_words = iter(words)
    for word in remaining_words:
        yield from _doubts_about_expansion(program, word, ended=after_dashes)
        if word.text == "--" and not after_dashes:
            after_dashes = True
        elif word.text.startswith("-") and word.text != "-":
            if after_dashes:
                yield f"{word.text} looks like an option"
            value = _read_option_value(program, word.text)
            if value is None:
                yield f"{name} with {word.text} is not known to be read-only"
            elif value == VALUE_IN_NEXT_WORD:
                next_word = next(remaining_words, ShellWord(text="-"))
                yield from _doubts_about_expansion(program, next_word, ended=False)
                value = next_word.text
                if value.startswith("-"):
                    yield f"{word.text} of {name} has no value"
            if value and may_lead_outside_folder(value):
                yield f"{value} is outside of the folder"
            gives_pattern = gives_pattern or _gives_pattern(word.text)
        else:
            operands.append(word)
    yield from _doubts_about_operands(program, name, operands, searches=not gives_pattern)


def _doubts_about_expansion(
    program: ReadOnlyUsage, word: ShellWord, *, ended: bool
) -> Iterator[str]:
    """Yield the problems that depend on how the shell expands this word."""
    if word.has_variable:
        yield f"{word.text} holds a variable"
    if not word.has_glob:
        return
    # What `ls`, `cat` or `head` makes of an option does no harm, whichever it is.
    harmless = program.any_option and not program.searches and program.forbidden is None
    literal_start = re.split(r"[*?\[]", word.text, maxsplit=1)[0]
    is_open = not literal_start or (literal_start.startswith("-") and "=" not in literal_start)
    if is_open and not (harmless or ended):
        yield f"{word.text} could expand to a file whose name is an option; ./{word.text} could not"
    if may_expand_to_parent(word.text):
        yield f"{word.text} could lead out of the folder"


def _doubts_about_operands(
    program: ReadOnlyUsage, name: str, operands: Sequence[ShellWord], *, searches: bool
) -> Iterator[str]:
    if len(operands) < program.min_operands:
        yield f"{name} without an operand leads out of the folder"
    if program.max_operands is not None and len(operands) > program.max_operands:
        yield f"{name} may write to {operands[-1].text}"
    for place, word in enumerate(operands):
        if program.max_operands is not None and word.has_glob:
            yield f"{word.text} could expand to several files, and {name} may write to one of them"
        if program.forbidden and program.forbidden.search(word.text):
            yield f"{name} with {word.text} is not known to be read-only"
        if place == 0 and program.first_operand:
            if not program.first_operand.fullmatch(word.text):
                yield f"{name} with {word.text} is not known to be read-only"
            continue
        if program.operand and not program.operand.fullmatch(word.text):
            yield f"{name} with {word.text} is not known to be read-only"
        is_path = not (program.operands_are_texts or (place == 0 and program.searches and searches))
        if (is_path or word.has_glob) and may_lead_outside_folder(word.text):
            yield f"{word.text} is outside of the folder"


VALUE_IN_NEXT_WORD = "\0"
"""Means that an option's value is the next word. No word contains this character."""


def _read_option_value(program: ReadOnlyUsage, text: str) -> str | None:
    """Return the value of an option, empty if it has none. None if the option is unknown."""
    if program.forbidden and program.forbidden.search(text):
        return None
    if program.other_options and program.other_options.fullmatch(text):
        return ""
    if text.startswith("--"):
        option, _, value = text[2:].partition("=")
        return value if program.any_option or option in program.long_options else None
    if program.any_option:
        # It is unknown where a value begins, so a possible path must be a word of its own.
        return None if "/" in text else ""
    for place, letter in enumerate(text[1:], 1):
        if letter in program.valued_flags:
            return text[place + 1 :] or VALUE_IN_NEXT_WORD
        if letter not in program.flags and not (place > 1 and letter in "0123456789%"):
            return None
    return ""


def _gives_pattern(text: str) -> bool:
    """Return whether it is `-e`, `-f` or a long form of one, or an option that needs no pattern."""
    if text.startswith("--"):
        option = text[2:].partition("=")[0]
        return any(long.startswith(option) for long in ("regexp", "file", "files"))
    return "e" in text or "f" in text
