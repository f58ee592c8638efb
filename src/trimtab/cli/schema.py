"""`trimtab schema`: by which editors complete and check `agent.yaml`."""

from __future__ import annotations

import typer


def schema() -> None:
    """Print the JSON Schema of agent.yaml, by which editors complete and check it."""
    from trimtab.agent.schema import schema_text

    typer.echo(schema_text(), nl=False)
