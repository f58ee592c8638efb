"""The page of the command line says what the commands' help says."""

import pytest

from tests.contracts.cli_page import COMMANDS, PAGE, SHARED, page, section


def test_the_page_is_as_the_commands_make_it():
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make cli-docs`"


def test_the_commands_of_a_group_are_among_them():
    assert {"trimtab replay", "trimtab migrate", "trimtab session show"} <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_and_all_that_it_takes_have_a_help_text(name):
    command = COMMANDS[name]
    assert command.help
    assert [param.name for param in command.params if not (param.help or "").strip()] == []
    told = section(name, command) + "".join(f"`{option}`" for option in SHARED)
    options = [option for param in command.params for option in param.opts]
    assert [o for o in options if o.startswith("-") and f"`{o}`" not in told] == []
