"""The list of commands in `docs/cli.md`, made from their help: `make cli-docs` writes it."""

from __future__ import annotations

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
SHARED = {"--json", "--store"}
"""Options that the page explains once, for all commands."""


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
    """Every command."""
    return "\n".join(section(name, command) for name, command in COMMANDS.items())


def section(name: str, command: Any) -> str:
    """A command, what it does, and the names of its options."""
    arguments = [_argument(p) for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([name, *arguments])
    lines = [f"### `{usage}`", "", _line(command.help)]
    if file := PAGES.get(name.removeprefix("trimtab ")):
        lines[-1] += f" More in [{file}]({file})."
    options = [
        _option(p)
        for p in command.params
        if p.param_type_name == "option" and not SHARED.intersection(p.opts)
    ]
    if options:
        lines += ["", f"Options: {', '.join(options)}"]
    return "\n".join([*lines, ""])


def _option(param: Any) -> str:
    names = " ".join(f"`{option}`" for option in param.opts)
    default = _default(param)
    return f"{names} ({default})" if default else names


def _default(param: Any) -> str:
    variable = [f"`{param.envvar}`"] if param.envvar else []
    if param.required and not variable:
        return "required"
    if param.is_flag or param.default in (None, ""):
        return "".join(variable)
    return ", otherwise ".join([*variable, f"`{param.default}`"])


def _argument(param: Any) -> str:
    name = param.metavar or param.name.upper()
    return (name if param.required else f"[{name}]") + ("..." if param.nargs == -1 else "")


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
