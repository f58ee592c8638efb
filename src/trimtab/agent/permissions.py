"""Which calls of a tool may run, which are asked about, and which never run."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from trimtab.agent.commands import (
    EXECUTING,
    Unsure,
    Words,
    program_of,
    runs_others,
    simple_commands,
    suspects,
)
from trimtab.agent.spec import Common, McpTool, Permission, ShellTool
from trimtab.session.tools import Failed, Invocation, Permit

log = logging.getLogger("trimtab.agent")

Answer = Literal["yes", "always", "no", "nobody"]
"""`always` holds for the same call of the same tool until the process ends; `nobody` is no, for
there is nobody to ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A call that waits for somebody to allow it."""

    tool: str
    """The tool's name."""
    text: str
    """What patterns are matched against, and what a person should read: a shell's command, else the
    arguments."""
    arguments: Mapping[str, Any]
    """All that the model gave."""


Approve = Callable[[Question], Awaitable[Answer]]
"""Whoever may allow a call. Two questions may be open at a time."""


async def nobody(question: Question) -> Answer:
    """Nobody is there to ask: the call does not run."""
    del question
    return "nobody"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a tool's block says about its calls."""

    default: Permission
    """What holds where no pattern matches."""
    allow: tuple[str, ...] = ()
    """Patterns of calls that run without asking."""
    ask: tuple[str, ...] = ()
    """Patterns of calls that are asked about, even where `allow` matches."""
    deny: tuple[str, ...] = ()
    """Patterns of calls that never run."""
    by_command: bool = False
    """Whether a call is a line of shell, of which each command counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    permission: Permission
    """What holds for the call."""
    pattern: str | None = None
    """The pattern that says so."""


def rules_of(spec: Common) -> Rules:
    """The block's rules. What its user did not write is asked about, unless the block says else."""
    kind: Permission = "ask" if isinstance(spec, ShellTool | McpTool) else "allow"
    return Rules(
        default=spec.permission or kind,
        allow=spec.allow,
        ask=spec.ask,
        deny=spec.deny,
        by_command=isinstance(spec, ShellTool),
    )


def judge(rules: Rules, text: str) -> Verdict:
    """`deny` before `ask` before `allow` before the default."""
    parts = list(suspects(text)) if rules.by_command else [text]
    if pattern := _first(rules.deny, parts):
        return Verdict(permission="deny", pattern=pattern)
    if pattern := _first(rules.ask, parts):
        return Verdict(permission="ask", pattern=pattern)
    if pattern := _allowing(rules, text):
        return Verdict(permission="allow", pattern=pattern)
    if (
        rules.default == "allow"
        and rules.by_command
        and (rules.deny or rules.ask)
        and not _sure(text)
    ):
        # What is denied may hide in it.
        return Verdict(permission="ask")
    return Verdict(permission=rules.default)


def rendered(arguments: Mapping[str, Any]) -> str:
    """Arguments as patterns see them: `city=Oslo days=3`, by name, texts with blanks in quotes."""
    return " ".join(f"{name}={_value(arguments[name])}" for name in sorted(arguments))


@dataclass(slots=True, kw_only=True)
class Gate:
    """Who is asked, and what has been allowed for good."""

    approve: Approve
    """Whoever may allow a call."""
    always: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """By tool and text, the calls that are not asked about again."""

    def permit(self, rules: Rules, text_of: Callable[[Invocation], str]) -> Permit:
        """What a tool asks before it runs."""

        async def permit(asked: Invocation) -> str | None:
            try:
                text = text_of(asked)
            except Failed as wrong:
                # It would not run anyway; nobody needs to be asked.
                return str(wrong.content)
            verdict = judge(rules, text)
            if verdict.permission == "allow":
                return None
            if verdict.permission == "deny":
                return _denied(asked.name, verdict.pattern)
            if (asked.name, text) in self.always:
                return None
            question = Question(tool=asked.name, text=text, arguments=asked.arguments)
            answer = await self.approve(question)
            if answer == "always":
                self.always.add((asked.name, text))
            if answer == "nobody":
                log.info(
                    "%s was not run: it asks first, and nobody can be asked here",
                    asked.name,
                    extra={"session": asked.session, "tool": asked.name},
                )
                return _unasked(asked.name, verdict.pattern)
            return REFUSED if answer == "no" else None

        return permit


REFUSED = (
    "[not run: the user did not allow this call. Do not try to reach the same in another way; "
    "go on without it, or ask the user what to do instead.]"
)


def _unasked(tool: str, pattern: str | None) -> str:
    change = f"a pattern under `allow` of {tool} has to match the call"
    if pattern:
        change = f"the pattern {pattern!r} under `ask` of {tool} would have to go"
    return (
        f"[not run: {tool} asks before it does this, and nobody can be asked here. The user you "
        "talk to cannot allow it. Do not try to reach the same in another way; go on without it, "
        f"and say what has to change in agent.yaml: {change}.]"
    )


def _denied(tool: str, pattern: str | None) -> str:
    why = f"the pattern {pattern!r} denies it" if pattern else f"{tool} may not do this"
    return (
        f"[not run: {why}, by the user's settings in agent.yaml. Do not try to reach the same in "
        "another way; go on without it, or tell the user what you would need it for.]"
    )


def _allowing(rules: Rules, text: str) -> str | None:
    """The pattern that allows all of it; of several the last."""
    if text in rules.allow:
        return text
    if not rules.by_command:
        return _first(rules.allow, (text,))
    try:
        commands = simple_commands(text)
    except Unsure:
        return None
    found = [_allowing_command(rules.allow, words) for words in commands]
    return found[-1] if found and all(found) else None


def _allowing_command(patterns: Iterable[str], words: Words) -> str | None:
    line = " ".join(words)
    for pattern in patterns:
        # `*` does not mean sudo: who wants that has to say its name.
        if fnmatchcase(line, pattern) and (not runs_others(words) or _names(pattern, words)):
            return pattern
    return None


def _names(pattern: str, words: Words) -> bool:
    """Whether it says the very program, and of `find` that it runs others."""
    said = pattern.split()
    return said[:1] == [words[0]] and (
        program_of(words) != "find" or not EXECUTING.isdisjoint(said)
    )


def _sure(text: str) -> bool:
    try:
        simple_commands(text)
    except Unsure:
        return False
    return True


def _first(patterns: Iterable[str], texts: Iterable[str]) -> str | None:
    texts = list(texts)
    return next((each for each in patterns if any(fnmatchcase(text, each) for text in texts)), None)


def _value(value: Any) -> str:
    if isinstance(value, str) and value and not any(c.isspace() or c in "\"'=" for c in value):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
