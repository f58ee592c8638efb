"""Which calls of a tool may run, which are asked about, and which never run."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from trimtab.agent.commands import Command, Unsure, commands_of
from trimtab.agent.harmless import doubt, without_pager
from trimtab.agent.patterns import is_literal, objection, pattern_of
from trimtab.agent.spec import Common, McpTool, Permission, ShellTool
from trimtab.agent.suspects import forbidding, is_certain
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
    why: str = ""
    """Why a pattern that seems to allow it does not; empty where there is nothing to say."""


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
    why: str = ""
    """Why a pattern of `allow` that matches does not allow it; empty where none does."""


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
    first = forbidding if rules.by_command else _matching
    if pattern := first(rules.deny, text):
        return Verdict(permission="deny", pattern=pattern)
    if pattern := first(rules.ask, text):
        return Verdict(permission="ask", pattern=pattern)
    allowing = _of_line(rules.allow, text) if rules.by_command else _of_text(rules.allow, text)
    if allowing.permission == "allow":
        return allowing
    guarded = rules.by_command and (rules.deny or rules.ask)
    if rules.default == "allow" and guarded and not is_certain(text):
        # What is denied may hide in it.
        return Verdict(permission="ask")
    return Verdict(permission=rules.default, why=allowing.why)


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
            question = Question(
                tool=asked.name, text=text, arguments=asked.arguments, why=verdict.why
            )
            answer = await self.approve(question)
            if answer == "always":
                self.always.add((asked.name, text))
            if answer == "nobody":
                log.info(
                    "%s was not run: it asks first, and nobody can be asked here",
                    asked.name,
                    extra={"session": asked.session, "tool": asked.name},
                )
                return _unasked(asked.name, verdict)
            return REFUSED if answer == "no" else None

        return permit


REFUSED = (
    "[not run: the user did not allow this call. Do not try to reach the same in another way; "
    "go on without it, or ask the user what to do instead.]"
)


def _unasked(tool: str, verdict: Verdict) -> str:
    change = f"a pattern under `allow` of {tool} has to match the call"
    if verdict.why:
        change = f"{verdict.why}. A pattern under `allow` of {tool} would have to spell each word"
    if verdict.pattern:
        change = f"the pattern {verdict.pattern!r} under `ask` of {tool} would have to go"
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


def _of_text(patterns: Sequence[str], text: str) -> Verdict:
    """Whether a pattern allows a call that is no line of shell."""
    found = _matching(patterns, text)
    return Verdict(permission="allow" if found else "ask", pattern=found)


def _matching(patterns: Sequence[str], text: str) -> str | None:
    return next((each for each in patterns if fnmatchcase(text, each)), None)


def _of_line(patterns: Sequence[str], line: str) -> Verdict:
    """Whether patterns allow all commands of a line; of several patterns the last is named."""
    if is_literal(line) and line in patterns:
        return Verdict(permission="allow", pattern=line)
    asks = Verdict(permission="ask")
    try:
        commands = commands_of(line)
    except Unsure:
        return asks
    last, moved = asks, False
    for command in map(without_pager, commands):
        last = _of_command(patterns, command, moved=moved)
        if last.permission != "allow":
            return last
        moved = moved or command.texts[0] == "cd"
    return last


def _of_command(patterns: Sequence[str], command: Command, *, moved: bool) -> Verdict:
    doubted, why = doubt(command, moved=moved), ""
    for text in patterns:
        pattern = pattern_of(text)
        if not pattern.matches(command.texts):
            continue
        against = objection(pattern, command, doubted, moved=moved)
        if against is None:
            return Verdict(permission="allow", pattern=text)
        why = why or f"the pattern {text!r} does not allow it: {against}"
    return Verdict(permission="ask", why=why)


def _value(value: Any) -> str:
    if isinstance(value, str) and value and not any(c.isspace() or c in "\"'=" for c in value):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
