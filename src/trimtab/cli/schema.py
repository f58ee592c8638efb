"""`trimtab schema`: by which editors complete and check `agent.yaml`."""

from __future__ import annotations

import typer


def print_schema_command() -> None:
    """Print the JSON Schema of agent.yaml, by which editors complete and check it."""
    from trimtab.agent.config.schema import format_editor_schema

    typer.echo(format_editor_schema(), nl=False)
