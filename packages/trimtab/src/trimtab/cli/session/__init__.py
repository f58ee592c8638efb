"""The commands of `trimtab session`."""

from __future__ import annotations

import typer

from trimtab.cli.lazy import TYPER_SETTINGS, make_lazy_group

_INSPECTION_MODULE = "trimtab.cli.session.inspection"
_CHANGE_MODULE = "trimtab.cli.session.changes"


SESSION_COMMANDS = {
    "list": (f"{_INSPECTION_MODULE}:list_sessions_command", "List the sessions of a store."),
    "show": (
        f"{_INSPECTION_MODULE}:show_session_command",
        "Show what the model sees now, or saw in a past call.",
    ),
    "why": (
        f"{_INSPECTION_MODULE}:explain_hidden_command",
        "Explain why something is not in the context.",
    ),
    "search": (
        f"{_INSPECTION_MODULE}:search_session_command",
        "Search messages, including hidden ones.",
    ),
    "recall": (
        f"{_INSPECTION_MODULE}:recall_text_command",
        "Print a message or a part, even if it is hidden.",
    ),
    "export": (f"{_CHANGE_MODULE}:export_session_command", "Write a session to one file."),
    "import": (
        f"{_CHANGE_MODULE}:import_session_command",
        "Import an exported session into a store.",
    ),
    "fork": (
        f"{_CHANGE_MODULE}:fork_session_command",
        "Create a session with the history of another.",
    ),
    "erase": (
        f"{_CHANGE_MODULE}:erase_message_command",
        "Erase a text and everything derived from it.",
    ),
    "delete": (
        f"{_CHANGE_MODULE}:delete_session_command",
        "Delete a session and everything derived from it.",
    ),
}


session = typer.Typer(
    name="session",
    cls=make_lazy_group(SESSION_COMMANDS),
    no_args_is_help=True,
    add_completion=False,
    **TYPER_SETTINGS,
)


@session.callback()
def session_options() -> None:
    """Inspect stored sessions: what the model sees, what it saw, and what is hidden."""
