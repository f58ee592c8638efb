"""What the patterns of a shell really allow, and whether it runs where secrets are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trimtab.agent.commands import program_of
from trimtab.agent.harmless import head_of
from trimtab.agent.patterns import is_literal, pattern_of
from trimtab.agent.readers import KNOWN
from trimtab.agent.reading import place_of_store
from trimtab.agent.spec import ShellTool, Spec
from trimtab.agent.suspects import runs_others
from trimtab.cli.doctor.finding import Finding, warn
from trimtab.cli.words import listed
from trimtab.stores.choose import is_database

_WRITERS = """
cc chmod chown clang cp curl dd g++ gcc install ln mkdir mv patch rm rmdir scp split tee touch
truncate unzip wget zip
"""
WRITERS = frozenset(_WRITERS.split())
"""Programs whose work is to write or to remove."""
EXAMPLES = {"make": "make test", "npm": "npm test", "python": "python manage.py check"}
"""By program, a call that is spelt out."""


def shells(spec: Spec, folder: Path) -> dict[str, list[Finding]]:
    """By the name of a shell, what is worth a word about it."""
    return {
        name: [*_patterns(name, tool), *_place(name, tool, spec, folder)]
        for name, tool in spec.tools.items()
        if isinstance(tool, ShellTool)
    }


def _patterns(name: str, tool: ShellTool) -> Iterator[Finding]:
    for pattern in tool.allow:
        if advice := broad(pattern):
            yield warn(f"tools.{name}", *advice)


def broad(text: str) -> tuple[str, str] | None:
    """What a pattern of `allow` means that may not be meant, and what to write instead."""
    pattern = pattern_of(text)
    words = pattern.words
    if is_literal(text):
        return None
    if not words or not is_literal(words[0]):
        told = f"allow: {text!r} names no program, so it means those known to only read"
        return told, 'name what may run: "ls *", "git diff *"'
    head = head_of(words)
    spaced = " ".join((*words, "*"))
    if head is None:
        return _unknown(text, words, rest=pattern.rest)
    if KNOWN[head].runs:
        told = f"allow: {text!r} runs the code of all tests in the folder, and of conftest.py"
        return told, "leave it out if others may write there"
    if head == ("find",):
        told = f"allow: {text!r} only finds; -exec, -delete and the like are asked about"
        return told, 'if you mean a certain search, spell it: "find . -name *.py"'
    if pattern.rest and text.split() != spaced.split():
        return f"allow: {text!r} is read as {spaced!r}, in whole words", f'write "{spaced}"'
    return None


def _unknown(text: str, words: tuple[str, ...], *, rest: bool) -> tuple[str, str] | None:
    """About a program that may do more than read."""
    if words == ("git",):
        told = f"allow: {text!r} means the commands of git that are known to only read"
        return told, 'name them: "git status *", "git diff *", "git log *"'
    name = " ".join(words[:2]) if words[0] == "git" else program_of(words[0])
    does = "is not known to only read"
    if runs_others(words):
        does = "runs what it is given"
    elif name in WRITERS:
        does = "writes or removes what it is given"
    elif not rest:
        return None
    such = f', such as "{EXAMPLES[name]}"' if name in EXAMPLES else ""
    to_do = f"write each call that may run, word by word{such}; or make a tool with `kind: command`"
    if rest:
        return f"allow: {text!r} allows nothing: {name} {does}, so `*` stands for nothing", to_do
    return f"allow: {name} {does}, and {text!r} leaves open what", to_do


def _place(name: str, tool: ShellTool, spec: Spec, folder: Path) -> Iterator[Finding]:
    """Callers with keys of their own should not read the keys and sessions of others."""
    if spec.serve.keys is None:
        return
    store = place_of_store(spec, folder)
    where = (folder / Path(tool.cwd).expanduser()).resolve()
    beside = {"the file of keys": folder / Path(spec.serve.keys).expanduser()}
    if not is_database(store):
        beside["the sessions of all tenants"] = Path(store)
    held = [what for what, path in beside.items() if path.resolve().is_relative_to(where)]
    if held:
        told = f"it runs in a folder that holds {listed(held)}, and may read them"
        yield warn(f"tools.{name}", told, f"set `cwd` of tools.{name} to a folder without them")
