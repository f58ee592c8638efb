"""Every command and option stands in its page; those of a group in `docs/cli.md`."""

from pathlib import Path

import pytest
from typer.main import get_command

from trimtab.cli.app import app

DOCS = Path(__file__).parents[2] / "docs"
ELSEWHERE = {"schema": "agent", "erasures": "forgetting", "move": "scale"}
"""Commands that are explained on another's page."""
COMMANDS = {
    name: command
    for name, later in getattr(get_command(app), "commands", {}).items()
    if not hasattr(command := later.load_command(), "commands")
}


def test_there_are_commands():
    assert COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_a_page_that_names_every_option(name):
    page = (DOCS / f"{ELSEWHERE.get(name, name)}.md").read_text(encoding="utf-8")
    assert f"trimtab {name}" in page
    options = [option for param in COMMANDS[name].params for option in param.opts]
    assert [o for o in options if o.startswith("--") and f"`{o}" not in page] == []
