"""Check what the patterns of a shell really allow, and whether the shell can read secrets.

Start each tool as a chat would, and count the tokens of its definitions.

Check whether tools can read the keys of this process.
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

from trimtab.cli.text_format import format_count, join_names
from trimtab.context import Context
from trimtab.dialects import DialectName
from trimtab.session.tools import Tool
from trimtab.stores.factory import is_database_address
from trimtab_serve.agent.config.loader import locate_agent_store
from trimtab_serve.agent.config.spec import AgentSpec, AnyToolSpec, ProcessToolSpec, ShellToolSpec
from trimtab_serve.agent.environment import list_withheld_variables
from trimtab_serve.agent.secret_values import find_secret_variables
from trimtab_serve.agent.tools.permissions.possible_commands import may_run_other_commands
from trimtab_serve.agent.tools.permissions.read_only_check import find_read_only_program_words
from trimtab_serve.agent.tools.permissions.read_only_programs import READ_ONLY_USAGES
from trimtab_serve.agent.tools.permissions.rules import decline_unattended
from trimtab_serve.agent.tools.permissions.shell_parser import strip_program_path
from trimtab_serve.agent.tools.permissions.shell_patterns import (
    has_no_wildcards,
    parse_shell_pattern,
)
from trimtab_serve.agent.tools.sandbox import (
    Bubblewrap,
    Sandbox,
    build_tool_setting,
    find_bubblewrap,
)
from trimtab_serve.agent.tools.tool_setting import ToolSetting, UnusableToolError
from trimtab_serve.agent.tools.tools_from_config import open_tools
from trimtab_serve.api_keys.requirement import requires_api_keys
from trimtab_serve.cli.doctor.findings import (
    Finding,
    make_failure_finding,
    make_ok_finding,
    make_skipped_finding,
    make_warning_finding,
)

_WRITING_PROGRAM_TEXT = """
cc chmod chown clang cp curl dd g++ gcc install ln mkdir mv patch rm rmdir scp split tee touch
truncate unzip wget zip
"""
WRITING_PROGRAMS = frozenset(_WRITING_PROGRAM_TEXT.split())
"""Programs that write or remove files."""
EXAMPLE_CALLS = {"make": "make test", "npm": "npm test", "python": "python manage.py check"}
"""An example of an exact call, by program."""


def list_shell_tool_warnings(spec: AgentSpec, folder: Path) -> dict[str, list[Finding]]:
    """Return the warnings about each shell, by its name."""
    return {
        name: [*_check_allow_patterns(name, tool), *_check_shell_folder(name, tool, spec, folder)]
        for name, tool in spec.tools.items()
        if isinstance(tool, ShellToolSpec)
    }


def check_sandboxes(spec: AgentSpec, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Report which sandbox the programs of shells and commands run in."""
    process_tools = {n: tool for n, tool in spec.tools.items() if isinstance(tool, ProcessToolSpec)}
    off = [name for name, tool in process_tools.items() if tool.sandbox == "off"]
    if off:
        yield make_skipped_finding(
            "sandbox", f"off for {join_names(off)}; see `sandbox` in docs/tools.md"
        )
    sandbox_tools = {name: tool for name, tool in process_tools.items() if tool.sandbox != "off"}
    if not sandbox_tools:
        return
    bubblewrap = find_bubblewrap(environ.get("PATH") or os.defpath)
    if not isinstance(bubblewrap, Bubblewrap):
        is_required = any(tool.sandbox == "required" for tool in sandbox_tools.values())
        make = make_failure_finding if is_required else make_warning_finding
        yield make(
            "sandbox",
            f"none for {join_names([*sandbox_tools])}: {bubblewrap}",
            "install bubblewrap",
        )
        return
    for network in (False, True):
        names = [name for name, tool in sandbox_tools.items() if tool.sandbox_network is network]
        if names:
            sandbox = Sandbox(bubblewrap=bubblewrap, network=network)
            yield make_ok_finding("sandbox", f"{sandbox.describe()}: {join_names(names)}")
    if os.geteuid() == 0:
        yield make_warning_finding(
            "sandbox",
            "the server runs as root, so programs in the sandbox can read every file",
            "run the server as another user",
        )


def _check_allow_patterns(name: str, tool: ShellToolSpec) -> Iterator[Finding]:
    for pattern in tool.allow:
        if advice := explain_misleading_allow_pattern(pattern):
            yield make_warning_finding(f"tools.{name}", *advice)


def explain_misleading_allow_pattern(pattern_text: str) -> tuple[str, str] | None:
    """Return what a pattern of `allow` means if that may surprise, and what to write instead."""
    pattern = parse_shell_pattern(pattern_text)
    words = pattern.words
    if has_no_wildcards(pattern_text):
        return None
    if not words or not has_no_wildcards(words[0]):
        meaning = (
            f"allow: {pattern_text!r} names no program, so it allows only programs that are known "
            "to be read-only"
        )
        return meaning, 'name the programs that may run: "ls *", "git diff *"'
    head = find_read_only_program_words(words)
    word_pattern = " ".join((*words, "*"))
    if head is None:
        return _explain_unknown_program(pattern_text, words, rest=pattern.allows_more_words)
    if READ_ONLY_USAGES[head].runs_code:
        meaning = (
            f"allow: {pattern_text!r} runs the code of all tests in the folder and of conftest.py"
        )
        return meaning, "remove it if other people can write to the folder"
    if head == ("find",):
        meaning = (
            f"allow: {pattern_text!r} allows searching only; -exec, -delete and similar options "
            "still need approval"
        )
        return meaning, 'to allow one search, write it in full: "find . -name *.py"'
    if pattern.allows_more_words and pattern_text.split() != word_pattern.split():
        meaning = (
            f"allow: {pattern_text!r} means {word_pattern!r}, because patterns match whole words"
        )
        return meaning, f'write "{word_pattern}"'
    return None


def _explain_unknown_program(
    text: str, words: tuple[str, ...], *, rest: bool
) -> tuple[str, str] | None:
    """Explain a pattern for a program that may do more than read."""
    if words == ("git",):
        meaning = f"allow: {text!r} means only the git commands that are known to be read-only"
        return meaning, 'name them: "git status *", "git diff *", "git log *"'
    name = " ".join(words[:2]) if words[0] == "git" else strip_program_path(words[0])
    does = "is not known to be read-only"
    if may_run_other_commands(words):
        does = "runs other programs that it is given"
    elif name in WRITING_PROGRAMS:
        does = "writes or removes files"
    elif not rest:
        return None
    such = f', such as "{EXAMPLE_CALLS[name]}"' if name in EXAMPLE_CALLS else ""
    to_do = f"write each call that may run in full{such}; or make a tool with `kind: command`"
    if rest:
        return f"allow: {text!r} allows nothing: {name} {does}, so `*` matches nothing", to_do
    return f"allow: {name} {does}, and {text!r} does not name them", to_do


def _check_shell_folder(
    name: str, tool: ShellToolSpec, spec: AgentSpec, folder: Path
) -> Iterator[Finding]:
    """Warn if callers with different keys could read each other's sessions."""
    store = locate_agent_store(spec, folder)
    if (
        not requires_api_keys(spec.serve)
        or tool.sandbox == "required"
        or is_database_address(store)
    ):
        return
    where = (folder / Path(tool.cwd).expanduser()).resolve()
    if Path(store).resolve().is_relative_to(where):
        danger = (
            "it runs in a folder that contains the sessions of all tenants and the hashes of keys, "
            "and can read them"
        )
        yield make_warning_finding(
            f"tools.{name}", danger, f"set `cwd` of tools.{name} to another folder"
        )


TOOL_START_TIMEOUT_S = 30.0
"""Seconds that a tool may take to start. Some MCP servers are downloaded first."""


@dataclass(slots=True, kw_only=True)
class AllToolsCheckResult:
    """The result for all tools."""

    findings: list[Finding] = field(default_factory=list[Finding])
    """One finding for each tool of the file, in its order, and the warnings about shells."""
    ready_tools: list[Tool] = field(default_factory=list[Tool])
    """The tools that started."""


async def check_tools(
    spec: AgentSpec, folder: Path, environ: Mapping[str, str], dialect: str
) -> AllToolsCheckResult:
    """Check all tools at the same time. The slowest one decides how long it takes."""
    setting = build_tool_setting(spec, folder, approve=decline_unattended, environ=environ)
    outcomes = await asyncio.gather(
        *(_start_tool(name, tool, setting) for name, tool in spec.tools.items())
    )
    check_report = AllToolsCheckResult()
    doubtful = list_shell_tool_warnings(spec, folder)
    for name, outcome in zip(spec.tools, outcomes, strict=True):
        if isinstance(outcome, Finding):
            check_report.findings.append(outcome)
            continue
        tokens = estimate_tool_definition_tokens(spec.model.name, dialect, outcome)
        what = "ready" if len(outcome) == 1 else format_count(len(outcome), "tool")
        check_report.findings.append(
            make_ok_finding(f"tools.{name}", f"{what}, {tokens:,} tokens of definitions")
        )
        check_report.findings += doubtful.get(name, [])
        check_report.ready_tools += outcome
    return check_report


def estimate_tool_definition_tokens(model: str, dialect: str, tools: Sequence[Tool]) -> int:
    """Estimate the tokens of the tools' definitions."""
    tool_definitions = [tool.definition for tool in tools]
    context = Context(model, dialect=cast("DialectName", dialect), tools=tool_definitions)
    sections = context.report().sections
    return sum(one.tokens for one in sections if one.name.startswith("tool definition"))


async def _start_tool(name: str, tool: AnyToolSpec, setting: ToolSetting) -> Finding | list[Tool]:
    about = f"tools.{name}"
    try:
        async with (
            asyncio.timeout(TOOL_START_TIMEOUT_S),
            open_tools({name: tool}, setting) as tools,
        ):
            return list(tools)
    except TimeoutError:
        reason = f"it was not ready within {TOOL_START_TIMEOUT_S:g} seconds"
        return make_failure_finding(
            about, reason, "run its command by hand and check what it waits for"
        )
    except UnusableToolError as error:
        return make_failure_finding(about, error.problem)
    except ImportError as error:
        return make_failure_finding(about, str(error), "install the missing package")
    except (OSError, ValueError) as error:
        return make_failure_finding(
            about, f"{type(error).__name__}: {error}", "check the settings of this tool"
        )


_PROC = Path("/proc")
_OPEN_MEMORY = 'exec < "/proc/$PPID/mem"'
"""The shell command by which a program would read the memory of its parent process."""


async def check_secret_exposure(environ: Mapping[str, str]) -> Finding:
    """Check which secrets a program started by a tool could read, by trying it."""
    if sys.platform != "linux":
        return make_skipped_finding(
            "secrets", "on this system, programs of the same user can read each other's keys"
        )
    if await _memory_is_open():
        return make_warning_finding(
            "secrets",
            "tools can read the memory of this process, including all keys",
            "start it with the command `trimtab`; run it as an ordinary user, not as root",
        )
    for pid, program, name in _find_secrets_in_parents(environ):
        return make_warning_finding(
            "secrets",
            f"tools can read {name} in the environment of {program} (process {pid}), which "
            "started this process or a parent of it",
            "set the variable for trimtab only; see Secrets in docs/tools.md",
        )
    count_text = format_count(len(list_withheld_variables()), "variable")
    return make_ok_finding(
        "secrets",
        f"tools cannot read the memory of this process; Trimtab hides {count_text} from them",
    )


async def _memory_is_open() -> bool:
    nothing = asyncio.subprocess.DEVNULL
    probe = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", _OPEN_MEMORY, stdin=nothing, stdout=nothing, stderr=nothing, env={}
    )
    return await probe.wait() == 0


def _find_secrets_in_parents(environ: Mapping[str, str]) -> Iterator[tuple[int, str, str]]:
    """Yield parent processes with a secret of ours in their environment: id, program, variable."""
    secret_entries = {
        f"{name}={value}": name for name, value in find_secret_variables(environ).items()
    }
    for pid in _parents():
        # What this process may not read, its tools may not either.
        with suppress(OSError):
            raw_environment = (_PROC / str(pid) / "environ").read_bytes()
            program = (_PROC / str(pid) / "comm").read_text(encoding="utf-8", errors="replace")
            for entry in raw_environment.decode("utf-8", "surrogateescape").split("\0"):
                if entry in secret_entries:
                    yield pid, program.strip(), secret_entries[entry]


def _parents() -> Iterator[int]:
    pid = "self"
    with suppress(OSError):
        while pid != "0":
            stat = (_PROC / pid / "stat").read_text(encoding="utf-8", errors="replace")
            pid = stat.rpartition(")")[2].split()[1]
            yield int(pid)
