"""Commands that are known by name and help, and read when they are asked for.

A terminal asks for help or for a completion far more often than for a table: neither waits for
packages that only a command needs.
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
"""How every command looks."""


class LazyCommand(TyperCommand):
    """A command or a group at `module:name`, imported when it is run or completed."""

    def __init__(self, name: str, import_path: str, help_text: str) -> None:
        super().__init__(name, help=help_text, rich_markup_mode=None)
        self._place = import_path

    def load_command(self) -> Any:
        """The command itself."""
        module, _, name = self._place.partition(":")
        made: Any = getattr(import_module(module), name)
        if not isinstance(made, typer.Typer):
            function, made = made, typer.Typer(add_completion=False, **TYPER_SETTINGS)
            made.command(self.name)(function)
        return get_command(made)

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """A context of the command itself: nobody sees that it was not there."""
        return self.load_command().make_context(*args, **extra)


def make_lazy_group(commands: Mapping[str, tuple[str, str]]) -> type[TyperGroup]:
    """A group of commands that are read later. By name: where each is, and its help in brief."""

    class Group(TyperGroup):
        def __init__(self, **attrs: Any) -> None:
            super().__init__(**attrs)
            for name, (place, told) in commands.items():
                self.add_command(LazyCommand(name, place, told))

    return Group
