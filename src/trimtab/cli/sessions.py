"""The commands of `trimtab session`."""

from __future__ import annotations

import typer

from trimtab.cli.later import LOOK, group

_LOOK, _CHANGE = "trimtab.cli.session", "trimtab.cli.session_change"


COMMANDS = {
    "list": (f"{_LOOK}:list_", "List the sessions of a store."),
    "show": (f"{_LOOK}:show", "Show what the model sees now, or saw in a past call."),
    "why": (f"{_LOOK}:why", "Say why something is not in the context."),
    "search": (f"{_LOOK}:search", "Find messages by their words, hidden ones included."),
    "recall": (f"{_LOOK}:recall", "Print the text behind a handle, hidden or not."),
    "export": (f"{_CHANGE}:export", "Write a session to one file."),
    "import": (f"{_CHANGE}:import_", "Take an exported session into a store."),
    "fork": (f"{_CHANGE}:fork", "Begin a new session that shares the past of another."),
    "erase": (f"{_CHANGE}:erase", "Destroy a text in the store, and what was made from it."),
    "delete": (f"{_CHANGE}:delete", "Remove a session with everything made from it."),
}


session = typer.Typer(
    name="session",
    cls=group(COMMANDS),
    no_args_is_help=True,
    add_completion=False,
    **LOOK,
)


@session.callback()
def options() -> None:
    """Look into stored sessions: what the model sees, what it saw, and what is hidden."""
