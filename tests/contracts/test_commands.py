"""Every `trimtab …` command of the documents is one that the program takes."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from tests.contracts.pages import PAGES, shown
from trimtab.cli.app import app

FENCE = re.compile(
    r"^(?P<indent> *)```(?:bash|sh)\n(?P<code>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL
)
COMMANDS = getattr(get_command(app), "commands", {})
INCOMPLETE = ("missing", "Option '-o' requires", "there is no command '…'")
"""What a sentence may leave out."""
LINE = re.compile(r"(?:[^\n]*\\\n)*[^\n]+")


def commands(text: str) -> Iterator[tuple[int, list[str]]]:
    """The words after `trimtab` of each command in a shell block, with its line."""
    for block in FENCE.finditer(text):
        for line in LINE.finditer(block["code"]):
            number = text.count("\n", 0, block.start("code") + line.start()) + 1
            lexer = shlex.shlex(
                line.group().replace("\\\n", " "), posix=True, punctuation_chars=True
            )
            lexer.wordchars += "%@{}$…,:^!"
            command: list[str] = []
            for word in [*lexer, ";"]:
                if set(word) <= set("();<>|&"):
                    while command and re.match(r"\w+=", command[0]):
                        del command[0]
                    if command[:1] == ["trimtab"]:
                        yield number, command[1:]
                    command = []
                else:
                    command.append(word)


def problem(words: list[str]) -> str:
    """Why the program would not take these words; empty if it would. Nothing is run."""
    command: Any = get_command(app)
    while True:
        command = getattr(command, "load_command", lambda same=command: same)()
        context = command.context_class(command, info_name=command.name)
        parser = command.make_parser(context)
        parser.allow_interspersed_args = not hasattr(command, "commands")
        try:
            given, rest, _ = parser.parse_args(list(words))
        except Exception as error:
            format_message: Any = getattr(error, "format_message", None)
            if format_message is None:
                raise
            return format_message()
        if not hasattr(command, "commands"):
            break
        if not rest:
            return ""
        if rest[0] not in command.commands:
            return f"there is no command {rest[0]!r}"
        command, words = command.commands[rest[0]], rest[1:]
    missing = [
        param.name
        for param in command.params
        if param.required and not param.envvar and not given.get(param.name)
    ]
    return f"unknown arguments {rest}" if rest else f"missing {missing}" if missing else ""


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_the_program_knows_the_options_of_commands_in_sentences(page):
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    written = [shlex.split(code) for code in re.findall(r"`trimtab ([a-z][^`]*)`", text)]
    known = [words for words in written if words[0] in COMMANDS]
    wrong = [(words, why) for words in known if (why := problem(words))]
    assert [(words, why) for words, why in wrong if not why.startswith(INCOMPLETE)] == []


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_the_program_takes_the_commands_of_a_page(page):
    found = commands(page.read_text(encoding="utf-8"))
    wrong = [(line, words, why) for line, words in found if (why := problem(words))]
    assert wrong == []


def test_commands_are_found_and_wrong_ones_are_refused():
    text = (
        "# T\n```bash\npip install x && trimtab init a  # b\n"
        "KEY=… trimtab serve \\\n    --port 1 > log\n```\n"
    )
    assert list(commands(text)) == [(3, ["init", "a"]), (4, ["serve", "--port", "1"])]
    assert problem(["session", "show", "ID", "--call", "last"]) == ""
    assert "--shoe" in problem(["session", "show", "ID", "--shoe"])
    assert "shoe" in problem(["session", "shoe"])
    assert "unknown" in problem(["doctor", "now"])
    assert "missing" in problem(["session", "show"])
