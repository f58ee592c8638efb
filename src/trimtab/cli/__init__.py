"""The command line."""

from __future__ import annotations

import sys

HINT = "trimtab: the command line needs two more packages: pip install 'trimtab[cli]'"


def main() -> None:
    """Run the command that was asked for."""
    try:
        from trimtab.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(HINT)
    app()
