"""`trimtab schema`: print the schema with which editors complete and check `agent.yaml`."""

from __future__ import annotations

import typer


def print_schema_command() -> None:
    """Print the JSON Schema of agent.yaml. Editors use it to complete and check the file."""
    from trimtab_serve.agent.config.schema import format_editor_schema

    typer.echo(format_editor_schema(), nl=False)
