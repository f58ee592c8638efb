"""The list of commands in `docs/cli.md`, made from their help: `make cli-docs` writes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from trimtab.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"

BEGIN = "<!-- Made from the commands' help by `make cli-docs`; changes made here are lost. -->\n"
END = "<!-- End of the generated part. -->\n"

PAGES = {
    "chat": "chat.md",
    "serve": "serve.md",
    "keys create": "serve.md",
    "schedule list": "schedules.md",
    "replay": "replay.md",
    "sidecar": "sidecar.md",
    "fit": "sidecar.md",
    "schema": "agent.md",
    "hook claude": "claude-code.md",
}
"""Commands that a page explains."""
MANY = {"argument": 3, "option": 3}
"""An argument or option that at least this many commands share is explained once."""


def leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its whole name."""
    command = getattr(command, "load_command", lambda: command)()
    for part, child in getattr(command, "commands", {}).items():
        yield from leaves(child, f"{name} {part}")
    if not hasattr(command, "commands"):
        yield name, command


COMMANDS = dict(leaves(get_command(app), "trimtab"))


def page() -> str:
    """The page with its list of commands as it is now."""
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:before]}\n{reference()}{text[after:]}"


def reference() -> str:
    """What several commands share, then every command."""
    sections = [section(name, command) for name, command in COMMANDS.items()]
    return "\n".join(["Several commands take these:", "", *shared(), "", *sections])


def shared() -> list[str]:
    """Return the rows of what several commands share."""
    params = [p for command in COMMANDS.values() for p in command.params]
    counts = Counter(_row(param) for param in params)
    rows = [_row(p) for p in params if counts[_row(p)] >= MANY[p.param_type_name]]
    return list(dict.fromkeys(rows))


def section(name: str, command: Any) -> str:
    arguments = [_argument(p) for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([name, *arguments])
    text = _line(command.help)
    if file := PAGES.get(name.removeprefix("trimtab ")):
        text += f" More in [{file}]({file})."
    lines = [f"### `{usage}`", "", text, ""]
    common = shared()
    options = [p for p in command.params if p.param_type_name == "option"]
    rows = [row for option in options if (row := _row(option)) not in common]
    return "\n".join([*lines, *([*rows, ""] if rows else [])])


def _row(param: Any) -> str:
    if param.param_type_name == "argument":
        return f"- `{_argument(param)}`: {_line(param.help)}"
    names = ", ".join(f"`{option}`" for option in param.opts)
    default = _default(param)
    return f"- {names}{f' ({default})' if default else ''}: {_line(param.help)}"


def _default(param: Any) -> str:
    variable = [f"`{param.envvar}`"] if param.envvar else []
    if param.required and not variable:
        return "required"
    if param.is_flag or param.default in (None, ""):
        return "".join(variable)
    return ", otherwise ".join([*variable, f"`{param.default}`"])


def _argument(param: Any) -> str:
    return param.metavar or param.name.upper() + ("..." if param.nargs == -1 else "")


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
