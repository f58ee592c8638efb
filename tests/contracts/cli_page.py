"""`docs/cli.md`, made from the commands' own help: `make cli-docs` writes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from trimtab.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"

HEAD = """\
# Command line

<!-- Made from the commands' help by `make cli-docs`; changes made here are lost. -->

```bash
pip install 'trimtab[agent,anthropic]'  # or openai; [cli] alone looks into sessions
trimtab init my-agent && cd my-agent  # a working agent.yaml, and what to do next
trimtab doctor                        # is everything there?
trimtab chat
```

`trimtab --version` prints the version and the installed packages.
`trimtab --install-completion` lets your shell complete commands and options.
`trimtab --show-completion` only prints the script for it.

```bash
trimtab session list                  # of the agent in this folder
trimtab session show ID               # what the model sees now, and its last calls
trimtab session show ID --call last   # what was sent, checked against its hash
trimtab session why ID m12            # why m12 is not in the context
```

The commands look for the store in this order: `--store`, the variable `TRIMTAB_STORE`,
`session.store` in the `agent.yaml` of this folder, `./sessions`. The ID of a served session is
TENANT/AGENT/NAME.

Results go to standard output, everything else to standard error. The exit status is

- 0 if the command did its work;
- 1 if the answer is no: a past request differs from what was sent, a search finds nothing, you
  answered a question with no, or a check failed;
- 2 if the command cannot run. One line then says why.

All commands of `trimtab session` and `trimtab schedule` take `--store`. The other rows of
this table explain arguments that you see in the headings below:
"""

PAGES = {
    "demo": "demo.md",
    "init": "init.md",
    "doctor": "doctor.md",
    "models": "models.md",
    "chat": "chat.md",
    "serve": "serve.md",
    "keys create": "serve.md",
    "schedule list": "schedules.md",
    "replay": "replay.md",
    "sidecar": "sidecar.md",
    "fit": "sidecar.md",
    "migrate": "migrate.md",
    "schema": "agent.md",
}
"""Commands that have a page of their own."""
MANY = {"argument": 3, "option": 10}
"""An argument or option that at least this many commands share is explained once."""


def leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its whole name."""
    command = getattr(command, "load_command", lambda: command)()
    for part, child in getattr(command, "commands", {}).items():
        yield from leaves(child, f"{name} {part}")
    if not hasattr(command, "commands"):
        yield name, command


COMMANDS = dict(leaves(get_command(app), "trimtab"))


TABLE = ["| option or argument | default | meaning |", "|---|---|---|"]


def page() -> str:
    sections = [section(name, command) for name, command in COMMANDS.items()]
    return "\n".join([HEAD, *TABLE, *shared().values(), "", *sections])


def shared() -> dict[str, str]:
    """Return the rows of what several commands share, by name."""
    params = [p for command in COMMANDS.values() for p in command.params]
    counts = Counter(_row(param) for param in params)
    return {p.name: _row(p) for p in params if counts[_row(p)] >= MANY[p.param_type_name]}


def section(name: str, command: Any) -> str:
    arguments = [_argument(p) for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([name, *arguments])
    lines = [f"## `{usage}`", "", *_paragraphs(command.help)]
    own = name.removeprefix("trimtab ")
    if own in PAGES:
        lines += [f"More in [{PAGES[own]}]({PAGES[own]}).", ""]
    told = shared().values()
    rows = [row for param in command.params if (row := _row(param)) not in told]
    return "\n".join([*lines, *([*TABLE, *rows, ""] if rows else [])])


def _row(param: Any) -> str:
    if param.param_type_name == "argument":
        name, default = f"`{_argument(param)}`", ""
    else:
        names = ", ".join(f"`{option}`" for option in param.opts)
        name, default = names, _default(param)
    return f"| {name} | {default} | {_cell(param.help)} |"


def _default(param: Any) -> str:
    told = [f"`{param.envvar}`"] if param.envvar else []
    if param.required and not told:
        return "required"
    if param.is_flag:
        return "off"
    if param.default not in (None, ""):
        told.append(f"`{param.default}`")
    return ", otherwise ".join(told)


def _argument(param: Any) -> str:
    return param.metavar or param.name.upper() + ("..." if param.nargs == -1 else "")


def _paragraphs(text: str) -> list[str]:
    found = [" ".join(part.split()) for part in text.strip().split("\n\n")]
    return [line for part in found for line in (part, "")]


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", r"\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
