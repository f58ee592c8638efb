"""Decide which calls of a tool run, which need approval, and which never run."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from trimtab.session.tools import CheckPermission, ToolError, ToolInvocation
from trimtab_serve.agent.config.spec import CommonToolSpec, McpToolSpec, Permission, ShellToolSpec
from trimtab_serve.agent.tools.permissions.possible_commands import (
    find_restricting_pattern,
    is_unambiguous_line,
)
from trimtab_serve.agent.tools.permissions.read_only_check import (
    explain_not_read_only,
    strip_git_pager_option,
)
from trimtab_serve.agent.tools.permissions.shell_parser import (
    AmbiguousShellLine,
    ShellCommand,
    parse_shell_line,
)
from trimtab_serve.agent.tools.permissions.shell_patterns import (
    explain_why_match_is_insufficient,
    has_no_wildcards,
    parse_shell_pattern,
)

log = logging.getLogger("trimtab.agent")

ApprovalAnswer = Literal["yes", "always", "no", "nobody"]
"""`always` applies to the same call of the same tool until the process ends. `nobody` means no,
because nobody is available to approve the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """A call that waits for approval."""

    tool: str
    """The tool's name."""
    text: str
    """The text that patterns are matched against and that a person should read: the command of a
    shell, otherwise the arguments."""
    arguments: Mapping[str, Any]
    """All arguments that the model wrote."""
    why: str = ""
    """Why a pattern that seems to allow the call does not. Empty if there is no such pattern."""


ApprovalCallback = Callable[[ApprovalRequest], Awaitable[ApprovalAnswer]]
"""Approves or declines a call. Two requests may be open at the same time."""


async def decline_unattended(request: ApprovalRequest) -> ApprovalAnswer:
    """Decline the call, because nobody is there to approve it."""
    del request
    return "nobody"


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionRules:
    """The permissions that a tool's block sets for its calls."""

    default: Permission
    """The permission if no pattern matches."""
    allow: tuple[str, ...] = ()
    """Patterns of calls that run without approval."""
    ask: tuple[str, ...] = ()
    """Patterns of calls that need approval, even if `allow` matches."""
    deny: tuple[str, ...] = ()
    """Patterns of calls that never run."""
    is_shell: bool = False
    """Whether a call is a shell line, whose commands are checked one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionDecision:
    permission: Permission
    """The permission for the call."""
    pattern: str | None = None
    """The pattern that decided."""
    why: str = ""
    """Why a matching pattern of `allow` does not allow the call. Empty if there is no such
    pattern."""


def build_permission_rules(spec: CommonToolSpec) -> PermissionRules:
    """Return the rules of a block. A tool that the user did not write needs approval by default."""
    kind: Permission = "ask" if isinstance(spec, ShellToolSpec | McpToolSpec) else "allow"
    return PermissionRules(
        default=spec.permission or kind,
        allow=spec.allow,
        ask=spec.ask,
        deny=spec.deny,
        is_shell=isinstance(spec, ShellToolSpec),
    )


def decide_permission(rules: PermissionRules, call_text: str) -> PermissionDecision:
    """Decide about a call: `deny` before `ask` before `allow` before the default."""
    first = find_restricting_pattern if rules.is_shell else _find_matching_pattern
    if pattern := first(rules.deny, call_text):
        return PermissionDecision(permission="deny", pattern=pattern)
    if pattern := first(rules.ask, call_text):
        return PermissionDecision(permission="ask", pattern=pattern)
    allowing = (
        _decide_shell_line(rules.allow, call_text)
        if rules.is_shell
        else _decide_text(rules.allow, call_text)
    )
    if allowing.permission == "allow":
        return allowing
    has_guards = rules.is_shell and (rules.deny or rules.ask)
    if rules.default == "allow" and has_guards and not is_unambiguous_line(call_text):
        # What is denied may hide in it.
        return PermissionDecision(permission="ask")
    return PermissionDecision(permission=rules.default, why=allowing.why)


def format_arguments_for_patterns(arguments: Mapping[str, Any]) -> str:
    """Format arguments for patterns: `city=Oslo days=3`, sorted by name, texts with spaces in
    quotes."""
    return " ".join(
        f"{name}={_format_argument_value(arguments[name])}" for name in sorted(arguments)
    )


@dataclass(slots=True, kw_only=True)
class PermissionGate:
    """Asks for approval, and remembers what was always allowed."""

    approve: ApprovalCallback
    """Approves or declines a call."""
    always_allowed: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """The calls that need no further approval, by tool and text."""

    def make_permission_check(
        self, rules: PermissionRules, describe_call: Callable[[ToolInvocation], str]
    ) -> CheckPermission:
        """Return the check that a tool makes before it runs."""

        async def permit(asked: ToolInvocation) -> str | None:
            try:
                text = describe_call(asked)
            except ToolError as wrong:
                # It would not run anyway; nobody needs to be asked.
                return str(wrong.content)
            verdict = decide_permission(rules, text)
            if verdict.permission == "allow":
                return None
            if verdict.permission == "deny":
                return _explain_denied(asked.name, verdict.pattern)
            if (asked.name, text) in self.always_allowed:
                return None
            question = ApprovalRequest(
                tool=asked.name, text=text, arguments=asked.arguments, why=verdict.why
            )
            answer = await self.approve(question)
            if answer == "always":
                self.always_allowed.add((asked.name, text))
            if answer == "nobody":
                log.info(
                    "%s was not run: the call needs approval, and nobody can approve it here",
                    asked.name,
                    extra={"session": asked.session, "tool": asked.name},
                )
                return _explain_unattended(asked.name, verdict)
            return USER_REFUSED_TEXT if answer == "no" else None

        return permit


USER_REFUSED_TEXT = (
    "[not run: the user did not allow this call. Do not try to reach the same in another way; "
    "go on without it, or ask the user what to do instead.]"
)


def _explain_unattended(tool: str, verdict: PermissionDecision) -> str:
    change = f"a pattern under `allow` of {tool} has to match the call"
    if verdict.why:
        change = f"{verdict.why}. A pattern under `allow` of {tool} would have to spell each word"
    if verdict.pattern:
        change = f"the pattern {verdict.pattern!r} under `ask` of {tool} would have to go"
    return (
        f"[not run: {tool} needs approval for this, and nobody can approve it here. The user you "
        "talk to cannot allow it. Do not try to reach the same in another way; go on without it, "
        f"and say what has to change in agent.yaml: {change}.]"
    )


def _explain_denied(tool: str, pattern: str | None) -> str:
    why = f"the pattern {pattern!r} denies it" if pattern else f"{tool} may not do this"
    return (
        f"[not run: {why}, by the user's settings in agent.yaml. Do not try to reach the same in "
        "another way; go on without it, or tell the user what you would need it for.]"
    )


def _decide_text(patterns: Sequence[str], text: str) -> PermissionDecision:
    """Decide whether a pattern allows a call that is not a shell line."""
    pattern = _find_matching_pattern(patterns, text)
    return PermissionDecision(permission="allow" if pattern else "ask", pattern=pattern)


def _find_matching_pattern(patterns: Sequence[str], text: str) -> str | None:
    return next((each for each in patterns if fnmatchcase(text, each)), None)


def _decide_shell_line(patterns: Sequence[str], line: str) -> PermissionDecision:
    """Decide whether patterns allow all commands of a line. Of several patterns, name the last."""
    if has_no_wildcards(line) and line in patterns:
        return PermissionDecision(permission="allow", pattern=line)
    asks = PermissionDecision(permission="ask")
    try:
        commands = parse_shell_line(line)
    except AmbiguousShellLine:
        return asks
    last = asks
    after_cd = False
    for command in map(strip_git_pager_option, commands):
        last = _decide_shell_command(patterns, command, moved=after_cd)
        if last.permission != "allow":
            return last
        after_cd = after_cd or command.texts[0] == "cd"
    return last


def _decide_shell_command(
    patterns: Sequence[str], command: ShellCommand, *, moved: bool
) -> PermissionDecision:
    doubt = explain_not_read_only(command, after_cd=moved)
    why = ""
    for text in patterns:
        pattern = parse_shell_pattern(text)
        if not pattern.matches(command.texts):
            continue
        against = explain_why_match_is_insufficient(pattern, command, doubt, after_cd=moved)
        if against is None:
            return PermissionDecision(permission="allow", pattern=text)
        why = why or f"the pattern {text!r} does not allow it: {against}"
    return PermissionDecision(permission="ask", why=why)


def _format_argument_value(value: Any) -> str:
    if isinstance(value, str) and value and not any(c.isspace() or c in "\"'=" for c in value):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
