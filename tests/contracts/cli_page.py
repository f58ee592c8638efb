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

<!-- Made from the commands' help by `make cli-docs`; what is changed here is lost. -->

```bash
pip install 'trimtab[agent,anthropic]'  # or openai; [cli] alone looks into sessions
trimtab init my-agent && cd my-agent  # a working agent.yaml, and what to do next
trimtab doctor                        # is everything there?
trimtab chat
```

`trimtab --version` says what is installed, `trimtab --install-completion` teaches your shell to
complete commands and options, `trimtab --show-completion` prints the script instead.

```bash
trimtab session list                  # of the agent in this folder
trimtab session show ID               # what the model sees now, and its last calls
trimtab session show ID --call last   # what was sent, checked against its hash
trimtab session why ID m12            # why m12 is not in the context
```

The store is `--store`, else `TRIMTAB_STORE`, else what `agent.yaml` in this folder names under
`session` as `store`, else `./sessions`. A served session's ID is TENANT/AGENT/NAME.

Results go to standard output, all else to standard error. The exit status is 0 where it was done,
2 where it cannot be, with one line that says why, and 1 where the answer is no: a past request that
is no longer as it was sent, a search that finds nothing, a question answered with no, a check that
failed.

All commands of `trimtab session` and `trimtab schedule` take `--store`, and those whose heading
says so the others:
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
    "migrate": "migrate.md",
    "schema": "agent.md",
}
"""Commands that have a page of their own."""
MANY = {"argument": 3, "option": 10}
"""So many commands share what is explained once; headings name the arguments of each."""


def leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its whole name."""
    command = getattr(command, "load_command", lambda: command)()
    for part, child in getattr(command, "commands", {}).items():
        yield from leaves(child, f"{name} {part}")
    if not hasattr(command, "commands"):
        yield name, command


COMMANDS = dict(leaves(get_command(app), "trimtab"))


TABLE = ["| | default | |", "|---|---|---|"]


def page() -> str:
    sections = [section(name, command) for name, command in COMMANDS.items()]
    return "\n".join([HEAD, *TABLE, *shared().values(), "", *sections])


def shared() -> dict[str, str]:
    """What several commands take and explain alike, by its name: it is told once."""
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
    return ", else ".join(told)


def _argument(param: Any) -> str:
    return param.metavar or param.name.upper() + ("..." if param.nargs == -1 else "")


def _paragraphs(text: str) -> list[str]:
    found = [" ".join(part.split()) for part in text.strip().split("\n\n")]
    return [line for part in found for line in (part, "")]


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", r"\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
