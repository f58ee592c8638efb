"""What the patterns of a shell really allow, and whether it runs where secrets are.

Each tool made ready as a chat would, and what its definitions take.

Whether the keys of this process are within the reach of its tools.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from trimtab.agent.config.loader import locate_agent_store
from trimtab.agent.config.spec import AgentSpec, AnyToolSpec, ProcessToolSpec, ShellToolSpec
from trimtab.agent.environment import list_withheld_variables
from trimtab.agent.tools.permissions.possible_commands import may_run_other_commands
from trimtab.agent.tools.permissions.read_only_check import find_read_only_program_words
from trimtab.agent.tools.permissions.read_only_programs import READ_ONLY_USAGES
from trimtab.agent.tools.permissions.rules import decline_unattended
from trimtab.agent.tools.permissions.shell_parser import strip_program_path
from trimtab.agent.tools.permissions.shell_patterns import has_no_wildcards, parse_shell_pattern
from trimtab.agent.tools.sandbox import (
    Bubblewrap,
    Sandbox,
    build_tool_setting,
    find_bubblewrap,
)
from trimtab.agent.tools.tool_setting import ToolSetting
from trimtab.agent.tools.tools_from_config import open_tools
from trimtab.agent.tools.unusable_tool_error import UnusableToolError
from trimtab.cli.doctor.findings import (
    Finding,
    find_secret_variables,
    make_failure_finding,
    make_ok_finding,
    make_skipped_finding,
    make_warning_finding,
)
from trimtab.cli.terminal_text_format import format_count, join_names
from trimtab.context import Context
from trimtab.dialects import DialectName
from trimtab.session.tools import Tool
from trimtab.stores.factory import is_database_address

_WRITING_PROGRAM_TEXT = """
cc chmod chown clang cp curl dd g++ gcc install ln mkdir mv patch rm rmdir scp split tee touch
truncate unzip wget zip
"""
WRITING_PROGRAMS = frozenset(_WRITING_PROGRAM_TEXT.split())
"""Programs whose work is to write or to remove."""
EXAMPLE_CALLS = {"make": "make test", "npm": "npm test", "python": "python manage.py check"}
"""By program, a call that is spelt out."""


def list_shell_tool_warnings(spec: AgentSpec, folder: Path) -> dict[str, list[Finding]]:
    """By the name of a shell, what is worth a word about it."""
    return {
        name: [*_check_allow_patterns(name, tool), *_check_shell_folder(name, tool, spec, folder)]
        for name, tool in spec.tools.items()
        if isinstance(tool, ShellToolSpec)
    }


def check_sandboxes(spec: AgentSpec, environ: Mapping[str, str]) -> Iterator[Finding]:
    """In what the programs of shells and commands run."""
    started = {n: tool for n, tool in spec.tools.items() if isinstance(tool, ProcessToolSpec)}
    off = [name for name, tool in started.items() if tool.sandbox == "off"]
    if off:
        yield make_skipped_finding(
            "sandbox", f"off for {join_names(off)}, see `sandbox` in docs/tools.md"
        )
    wanted = {name: tool for name, tool in started.items() if tool.sandbox != "off"}
    if not wanted:
        return
    found = find_bubblewrap(environ.get("PATH") or os.defpath)
    if not isinstance(found, Bubblewrap):
        required = any(tool.sandbox == "required" for tool in wanted.values())
        make = make_failure_finding if required else make_warning_finding
        yield make("sandbox", f"none for {join_names([*wanted])}: {found}", "install bubblewrap")
        return
    for network in (False, True):
        names = [name for name, tool in wanted.items() if tool.sandbox_network is network]
        if names:
            made = Sandbox(bubblewrap=found, network=network)
            yield make_ok_finding("sandbox", f"{made.describe()}: {join_names(names)}")


def _check_allow_patterns(name: str, tool: ShellToolSpec) -> Iterator[Finding]:
    for pattern in tool.allow:
        if advice := explain_misleading_allow_pattern(pattern):
            yield make_warning_finding(f"tools.{name}", *advice)


def explain_misleading_allow_pattern(pattern_text: str) -> tuple[str, str] | None:
    """What a pattern of `allow` means that may not be meant, and what to write instead."""
    pattern = parse_shell_pattern(pattern_text)
    words = pattern.words
    if has_no_wildcards(pattern_text):
        return None
    if not words or not has_no_wildcards(words[0]):
        told = f"allow: {pattern_text!r} names no program, so it means those known to only read"
        return told, 'name what may run: "ls *", "git diff *"'
    head = find_read_only_program_words(words)
    spaced = " ".join((*words, "*"))
    if head is None:
        return _explain_unknown_program(pattern_text, words, rest=pattern.allows_more_words)
    if READ_ONLY_USAGES[head].runs_code:
        told = (
            f"allow: {pattern_text!r} runs the code of all tests in the folder, and of conftest.py"
        )
        return told, "leave it out if others may write there"
    if head == ("find",):
        told = f"allow: {pattern_text!r} only finds; -exec, -delete and the like are asked about"
        return told, 'if you mean a certain search, spell it: "find . -name *.py"'
    if pattern.allows_more_words and pattern_text.split() != spaced.split():
        return f"allow: {pattern_text!r} is read as {spaced!r}, in whole words", f'write "{spaced}"'
    return None


def _explain_unknown_program(
    text: str, words: tuple[str, ...], *, rest: bool
) -> tuple[str, str] | None:
    """About a program that may do more than read."""
    if words == ("git",):
        told = f"allow: {text!r} means the commands of git that are known to only read"
        return told, 'name them: "git status *", "git diff *", "git log *"'
    name = " ".join(words[:2]) if words[0] == "git" else strip_program_path(words[0])
    does = "is not known to only read"
    if may_run_other_commands(words):
        does = "runs what it is given"
    elif name in WRITING_PROGRAMS:
        does = "writes or removes what it is given"
    elif not rest:
        return None
    such = f', such as "{EXAMPLE_CALLS[name]}"' if name in EXAMPLE_CALLS else ""
    to_do = f"write each call that may run, word by word{such}; or make a tool with `kind: command`"
    if rest:
        return f"allow: {text!r} allows nothing: {name} {does}, so `*` stands for nothing", to_do
    return f"allow: {name} {does}, and {text!r} leaves open what", to_do


def _check_shell_folder(
    name: str, tool: ShellToolSpec, spec: AgentSpec, folder: Path
) -> Iterator[Finding]:
    """Callers with keys of their own should not read the keys and sessions of others."""
    if spec.serve.keys is None or tool.sandbox == "required":
        return
    store = locate_agent_store(spec, folder)
    where = (folder / Path(tool.cwd).expanduser()).resolve()
    beside = {"the file of keys": folder / Path(spec.serve.keys).expanduser()}
    if not is_database_address(store):
        beside["the sessions of all tenants"] = Path(store)
    held = [what for what, path in beside.items() if path.resolve().is_relative_to(where)]
    if held:
        told = f"it runs in a folder that holds {join_names(held)}, and may read them"
        yield make_warning_finding(
            f"tools.{name}", told, f"set `cwd` of tools.{name} to a folder without them"
        )


TOOL_START_TIMEOUT_S = 30.0
"""Seconds that a tool has to get ready: some MCP servers are downloaded first."""


@dataclass(slots=True, kw_only=True)
class AllToolsCheckResult:
    """What came of all of them."""

    findings: list[Finding] = field(default_factory=list[Finding])
    """One for each block of the file, in its order, and what is worth a word about a shell."""
    ready_tools: list[Tool] = field(default_factory=list[Tool])
    """Those that can be offered."""


async def check_tools(
    spec: AgentSpec, folder: Path, environ: Mapping[str, str], dialect: str
) -> AllToolsCheckResult:
    """All tools, side by side: the slowest decides how long it takes."""
    setting = build_tool_setting(spec, folder, approve=decline_unattended, environ=environ)
    done = await asyncio.gather(
        *(_start_tool(name, tool, setting) for name, tool in spec.tools.items())
    )
    found, doubtful = AllToolsCheckResult(), list_shell_tool_warnings(spec, folder)
    for name, outcome in zip(spec.tools, done, strict=True):
        if isinstance(outcome, Finding):
            found.findings.append(outcome)
            continue
        tokens = estimate_tool_definition_tokens(spec.model.name, dialect, outcome)
        what = "ready" if len(outcome) == 1 else format_count(len(outcome), "tool")
        found.findings.append(
            make_ok_finding(f"tools.{name}", f"{what}, {tokens:,} tokens of definitions")
        )
        found.findings += doubtful.get(name, [])
        found.ready_tools += outcome
    return found


def estimate_tool_definition_tokens(model: str, dialect: str, tools: Sequence[Tool]) -> int:
    """Estimated tokens of their definitions."""
    tool_definitions = [tool.definition for tool in tools]
    context = Context(model, dialect=cast("DialectName", dialect), tools=tool_definitions)
    sections = context.report().sections
    return sum(one.tokens for one in sections if one.name.startswith("tool definition"))


async def _start_tool(name: str, tool: AnyToolSpec, setting: ToolSetting) -> Finding | list[Tool]:
    about = f"tools.{name}"
    try:
        async with (
            asyncio.timeout(TOOL_START_TIMEOUT_S),
            open_tools({name: tool}, setting) as made,
        ):
            return list(made)
    except TimeoutError:
        told = f"it was not ready within {TOOL_START_TIMEOUT_S:g} seconds"
        return make_failure_finding(
            about, told, "run its command by hand and see what it waits for"
        )
    except UnusableToolError as error:
        return make_failure_finding(about, error.problem)
    except ImportError as error:
        return make_failure_finding(about, str(error), "install what is missing")
    except (OSError, ValueError) as error:
        return make_failure_finding(
            about, f"{type(error).__name__}: {error}", "see the block of this tool"
        )


_PROC = Path("/proc")
_OPEN_MEMORY = 'exec < "/proc/$PPID/mem"'
"""What a program needs to read the memory of the process that has started it."""


async def check_secret_exposure(environ: Mapping[str, str]) -> Finding:
    """What a program that a tool starts could read, by trying it."""
    if sys.platform != "linux":
        return make_skipped_finding(
            "secrets", "on this system programs of one user can see each other's keys"
        )
    if await _memory_is_open():
        return make_warning_finding(
            "secrets",
            "tools can read the memory of this process, with all keys in it",
            "start it as the command `trimtab`; run it as an ordinary user and not as root",
        )
    for pid, program, name in _find_secrets_in_parents(environ):
        return make_warning_finding(
            "secrets",
            f"tools can read {name} in the environment of {program} (process {pid}), which "
            "started this process or a parent of it",
            "set it for trimtab alone; docs/tools.md says how, under Secrets",
        )
    told = format_count(len(list_withheld_variables()), "variable")
    return make_ok_finding(
        "secrets", f"tools cannot read the memory of this process, nor {told} of yours"
    )


async def _memory_is_open() -> bool:
    nothing = asyncio.subprocess.DEVNULL
    tried = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", _OPEN_MEMORY, stdin=nothing, stdout=nothing, stderr=nothing, env={}
    )
    return await tried.wait() == 0


def _find_secrets_in_parents(environ: Mapping[str, str]) -> Iterator[tuple[int, str, str]]:
    """Processes above this one that show a secret of its environment: id, program and name."""
    wanted = {f"{name}={value}": name for name, value in find_secret_variables(environ).items()}
    for pid in _parents():
        # What this process may not read, its tools may not either.
        with suppress(OSError):
            told = (_PROC / str(pid) / "environ").read_bytes()
            program = (_PROC / str(pid) / "comm").read_text(encoding="utf-8", errors="replace")
            for entry in told.decode("utf-8", "surrogateescape").split("\0"):
                if entry in wanted:
                    yield pid, program.strip(), wanted[entry]


def _parents() -> Iterator[int]:
    pid = "self"
    with suppress(OSError):
        while pid != "0":
            stat = (_PROC / pid / "stat").read_text(encoding="utf-8", errors="replace")
            pid = stat.rpartition(")")[2].split()[1]
            yield int(pid)
