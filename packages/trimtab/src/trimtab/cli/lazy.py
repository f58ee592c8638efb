"""Commands that are known by name and help, and imported only when they run.

Shells ask for help and completions often. Neither has to wait for packages that only a command
needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

TYPER_SETTINGS: Mapping[str, Any] = {
    # The framed help of typer takes twice as long as all the rest of a start.
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
}
"""Settings of every command."""


class LazyCommand(TyperCommand):
    """A command or a group at `module:name`, imported when it is run or completed."""

    def __init__(self, name: str, import_path: str, help_text: str) -> None:
        super().__init__(name, help=help_text, rich_markup_mode=None)
        self._place = import_path

    def load_command(self) -> Any:
        """Import and return the command."""
        module, _, name = self._place.partition(":")
        command: Any = getattr(import_module(module), name)
        if not isinstance(command, typer.Typer):
            function = command
            command = typer.Typer(add_completion=False, **TYPER_SETTINGS)
            command.command(self.name)(function)
        return get_command(command)

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Return a context of the imported command, as if it had been imported from the start."""
        return self.load_command().make_context(*args, **extra)


def make_lazy_group(commands: Mapping[str, tuple[str, str]]) -> type[TyperGroup]:
    """Make a group of lazy commands from a map of names to import paths and short help."""

    class Group(TyperGroup):
        def __init__(self, **attrs: Any) -> None:
            super().__init__(**attrs)
            for name, (place, help_line) in commands.items():
                self.add_command(LazyCommand(name, place, help_line))

    return Group
