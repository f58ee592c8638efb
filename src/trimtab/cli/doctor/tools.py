"""Each tool made ready as a chat would, and what its definitions take."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trimtab.agent.permissions import nobody
from trimtab.agent.spec import AnyTool, Spec
from trimtab.agent.toolbox import toolbox
from trimtab.agent.tools.unusable import ToolUnusable
from trimtab.cli.doctor.finding import Finding, bad, ok
from trimtab.cli.doctor.shells import shells
from trimtab.cli.words import counted
from trimtab.context import Context
from trimtab.session.tools import Tool

PATIENCE = 30.0
"""Seconds that a tool has to get ready: some MCP servers are downloaded first."""


@dataclass(slots=True, kw_only=True)
class Tools:
    """What came of all of them."""

    findings: list[Finding] = field(default_factory=list[Finding])
    """One for each block of the file, in its order, and what is worth a word about a shell."""
    made: list[Tool] = field(default_factory=list[Tool])
    """Those that can be offered."""


async def ready(spec: Spec, folder: Path, environ: Mapping[str, str], dialect: str) -> Tools:
    """All tools, side by side: the slowest decides how long it takes."""
    done = await asyncio.gather(
        *(_one(name, tool, folder, environ) for name, tool in spec.tools.items())
    )
    found, doubtful = Tools(), shells(spec, folder)
    for name, outcome in zip(spec.tools, done, strict=True):
        if isinstance(outcome, Finding):
            found.findings.append(outcome)
            continue
        tokens = tokens_of(spec.model.name, dialect, outcome)
        what = "ready" if len(outcome) == 1 else counted(len(outcome), "tool")
        found.findings.append(ok(f"tools.{name}", f"{what}, {tokens:,} tokens of definitions"))
        found.findings += doubtful.get(name, [])
        found.made += outcome
    return found


def tokens_of(model: str, dialect: str, tools: Sequence[Tool]) -> int:
    """Estimated tokens of their definitions."""
    context = Context(model=model, dialect=dialect, tools=[tool.definition for tool in tools])
    sections = context.report().sections
    return sum(one.tokens for one in sections if one.name.startswith("tool definition"))


async def _one(
    name: str, tool: AnyTool, folder: Path, environ: Mapping[str, str]
) -> Finding | list[Tool]:
    about = f"tools.{name}"
    try:
        async with (
            asyncio.timeout(PATIENCE),
            toolbox({name: tool}, folder, approve=nobody, environ=environ) as made,
        ):
            return list(made)
    except TimeoutError:
        told = f"it was not ready within {PATIENCE:g} seconds"
        return bad(about, told, "run its command by hand and see what it waits for")
    except ToolUnusable as error:
        return bad(about, error.problem)
    except ImportError as error:
        return bad(about, str(error), "install what is missing")
    except (OSError, ValueError) as error:
        return bad(about, f"{type(error).__name__}: {error}", "see the block of this tool")
