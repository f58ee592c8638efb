"""`trimtab doctor`: what works, what does not, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.beside import FILE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trimtab.cli.doctor.finding import Finding

WIDE = 18
"""Characters of what a line is about."""
COLOURS = {"ok": "green", "warn": "yellow", "bad": "red", "skip": "bright_black"}


def doctor(
    agent: Annotated[Path, typer.Option(help="The agent's file.")] = FILE,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not ask the provider anything.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Check an agent: its file, key, provider, model, window, store and tools.

    The exit status is 0 where all of it works, 1 where something does not. The provider is asked
    for its list of models, which costs nothing, or for one word where it has none.
    """
    import asyncio
    import json
    import sys
    from dataclasses import asdict

    from trimtab.agent.secrets import ENVIRON
    from trimtab.cli.words import shown_on

    folder = agent.resolve().parent
    found = asyncio.run(_examined(agent, folder, ENVIRON, offline=offline, tell=not as_json))
    works = all(finding.state != "bad" for finding in found)
    if as_json:
        typer.echo(json.dumps({"ok": works, "checks": [asdict(finding) for finding in found]}))
    else:
        typer.echo(shown_on(sys.stdout, f"\n{_ending(found)}"))
    raise typer.Exit(0 if works else 1)


async def _examined(
    file: Path, folder: Path, environ: Mapping[str, str], *, offline: bool, tell: bool
) -> list[Finding]:
    from trimtab.cli.doctor.examine import examine
    from trimtab.cli.doctor.secrets import hushed

    found: list[Finding] = []
    async for finding in examine(file, folder, environ, offline=offline):
        safe = hushed(finding, environ)
        found.append(safe)
        if tell:
            _show(safe)
    return found


def _show(finding: Finding) -> None:
    import sys

    from trimtab.cli.doctor.finding import SIGNS
    from trimtab.cli.words import plain, shown_on

    sign, below = SIGNS[finding.state], " " * (WIDE + 3)
    told = shown_on(sys.stdout, f"{sign} {finding.about:<{WIDE}} {plain(finding.text)}", below)
    coloured = typer.style(sign, fg=COLOURS[finding.state], bold=True)
    typer.echo(f"{coloured}{told.removeprefix(sign)}")
    if finding.next:
        typer.echo(shown_on(sys.stdout, f"{below}→ {plain(finding.next)}", f"{below}  "))


def _ending(found: list[Finding]) -> str:
    from trimtab.cli.words import counted

    wrong = sum(finding.state == "bad" for finding in found)
    doubtful = sum(finding.state == "warn" for finding in found)
    if wrong:
        return f"{counted(wrong, 'thing')} to put right before `trimtab chat` works."
    if doubtful:
        return (
            f"It works; {counted(doubtful, 'line')} above may be worth a look. Next: trimtab chat"
        )
    if any(finding.state == "skip" for finding in found):
        return "All is well, as far as it was looked at. Next: trimtab chat"
    return "All is well. Next: trimtab chat"
