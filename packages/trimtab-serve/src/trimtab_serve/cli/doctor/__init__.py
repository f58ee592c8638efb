"""`trimtab doctor`: check what works, and say how to fix what does not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.extension import DEFAULT_AGENT_PATH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trimtab_serve.cli.doctor.findings import Finding

LABEL_WIDTH_CHARS = 18
"""Width of the label of a line, in characters."""
STATE_COLOURS = {"ok": "green", "warn": "yellow", "bad": "red", "skip": "bright_black"}


def doctor_command(
    agent: Annotated[Path, typer.Option(help="The agent's file.")] = DEFAULT_AGENT_PATH,
    offline: Annotated[
        bool, typer.Option("--offline", help="Send nothing to the provider.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Check an agent: its file, key, provider, model, window, store and tools."""
    import asyncio
    import json
    import sys
    from dataclasses import asdict

    from trimtab.cli.text_format import wrap_for_terminal
    from trimtab_serve.agent.environment import ENVIRON

    folder = agent.resolve().parent
    findings = asyncio.run(_run_checks(agent, folder, ENVIRON, offline=offline, tell=not as_json))
    works = all(finding.state != "bad" for finding in findings)
    if as_json:
        typer.echo(json.dumps({"ok": works, "checks": [asdict(finding) for finding in findings]}))
    else:
        typer.echo(wrap_for_terminal(sys.stdout, f"\n{_summarise_findings(findings)}"))
    raise typer.Exit(0 if works else 1)


async def _run_checks(
    file: Path, folder: Path, environ: Mapping[str, str], *, offline: bool, tell: bool
) -> list[Finding]:
    from trimtab_serve.cli.doctor.checks import run_agent_checks
    from trimtab_serve.cli.doctor.findings import redact_finding

    findings: list[Finding] = []
    async for finding in run_agent_checks(file, folder, environ, offline=offline):
        safe = redact_finding(finding, environ)
        findings.append(safe)
        if tell:
            _print_finding(safe)
    return findings


def _print_finding(finding: Finding) -> None:
    import sys

    from trimtab.cli.text_format import escape_control_characters, wrap_for_terminal
    from trimtab_serve.cli.doctor.findings import STATE_SIGNS

    sign = STATE_SIGNS[finding.state]
    below = " " * (LABEL_WIDTH_CHARS + 3)
    text = wrap_for_terminal(
        sys.stdout,
        f"{sign} {finding.about:<{LABEL_WIDTH_CHARS}} {escape_control_characters(finding.text)}",
        below,
    )
    colour_sign = typer.style(sign, fg=STATE_COLOURS[finding.state], bold=True)
    typer.echo(f"{colour_sign}{text.removeprefix(sign)}")
    if finding.next:
        typer.echo(
            wrap_for_terminal(
                sys.stdout, f"{below}→ {escape_control_characters(finding.next)}", f"{below}  "
            )
        )


def _summarise_findings(found: list[Finding]) -> str:
    from trimtab.cli.text_format import format_count

    wrong = sum(finding.state == "bad" for finding in found)
    doubtful = sum(finding.state == "warn" for finding in found)
    if wrong:
        return f"{format_count(wrong, 'thing')} to fix before `trimtab chat` works."
    if doubtful:
        return (
            f"It works, but {format_count(doubtful, 'line')} above may be worth a look. Next: "
            "trimtab chat"
        )
    if any(finding.state == "skip" for finding in found):
        return "Everything that was checked works. Next: trimtab chat"
    return "Everything works. Next: trimtab chat"
