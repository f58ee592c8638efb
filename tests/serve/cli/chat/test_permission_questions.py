"""Questions before something runs: one after the other, with all that would run."""

import asyncio

import pytest

from tests.serve.cli.chat.scripted_chat import call, console, text_of, written
from trimtab_serve.agent.tools.permissions.rules import ApprovalRequest
from trimtab_serve.cli.chat.approval import ApprovalPrompt
from trimtab_serve.cli.chat.turn_screen import TurnScreen


class Keys:
    """Presses keys, and remembers what was asked."""

    def __init__(self, *pressed):
        self.pressed = list(pressed)
        self.asked = []

    async def __call__(self, question, answers):
        self.asked.append(question)
        await asyncio.sleep(0)
        key = self.pressed.pop(0)
        return None if key is None else answers[key]


def asking(keys, width: int = 80):
    screen = TurnScreen(console(width))
    stops: list[bool] = []
    return ApprovalPrompt(screen, keys, lambda: stops.append(True)), screen, stops


def question(text="rm -rf build", **arguments):
    return ApprovalRequest(tool="shell", text=text, arguments=arguments or {"command": text})


@pytest.mark.parametrize(("key", "answer"), [("y", "yes"), ("a", "always"), ("n", "no")])
def test_a_key_is_an_answer(key, answer):
    keys = Keys(key)
    made, screen, stops = asking(keys)
    assert asyncio.run(made.approve(question())) == answer
    assert text_of(screen.console) == "shell wants to run:\n  │ rm -rf build"
    assert keys.asked == ["Run it? [y]es / [a]lways this exact call / [n]o"]
    assert not stops


def test_ctrl_c_is_no_and_stops_the_turn():
    made, _, stops = asking(Keys(None))
    assert asyncio.run(made.approve(question())) == "no"
    assert stops == [True]


def test_it_is_said_why_a_pattern_does_not_allow_it_on_one_line():
    made, screen, _ = asking(Keys("n"), width=200)
    why = "the pattern 'ls *' does not allow it: a\nRun it? yes is outside of the folder"
    asyncio.run(made.approve(ApprovalRequest(tool="shell", text="ls", arguments={}, why=why)))
    told = why.replace("\n", " ")
    assert text_of(screen.console) == f"shell wants to run:\n  │ ls\n  Asked because {told}."


def test_every_line_of_what_would_run_is_shown():
    made, screen, _ = asking(Keys("n"))
    text = "cat <<X\none\x1b[8mhidden\ntwo\nX"
    asyncio.run(made.approve(question(text)))
    assert text_of(screen.console).endswith("  │ cat <<X\n  │ one\\x1b[8mhidden\n  │ two\n  │ X")
    assert "\x1b[8m" not in written(screen.console)


def test_arguments_beside_the_text_are_shown_too():
    made, screen, _ = asking(Keys("n"))
    asyncio.run(made.approve(question("ls", command="ls", cwd="/etc")))
    assert text_of(screen.console).endswith("  │ ls\n  │ cwd: /etc")


def test_what_is_too_long_says_how_much_is_not_shown_and_shows_it_when_asked():
    text = "\n".join(f"line {number}" for number in range(200))
    made, screen, _ = asking(Keys("n"))
    asyncio.run(made.approve(question(text)))
    assert "140 lines not shown" in text_of(screen.console)
    assert "line 100" not in written(screen.console)
    made, screen, _ = asking(Keys("s", "y"))
    assert asyncio.run(made.approve(question(text))) == "yes"
    assert "line 100" in written(screen.console)


def test_two_questions_are_asked_one_after_the_other():
    made, screen, _ = asking(Keys("y", "n"))

    async def both():
        return await asyncio.gather(made.approve(question("one")), made.approve(question("two")))

    assert asyncio.run(both()) == ["yes", "no"]
    shown = text_of(screen.console)
    assert shown == "shell wants to run:\n  │ one\n\nshell wants to run:\n  │ two"


@pytest.mark.parametrize(("key", "again"), [("y", True), ("n", False), (None, False)])
def test_a_call_that_was_cut_off_is_made_again_only_if_somebody_says_so(key, again):
    made, screen, _ = asking(Keys(key))
    assert asyncio.run(made.confirm_rerun(call("shell", '{"command": "make"}'))) is again
    assert "shell was interrupted; it may or may not have done its work:" in text_of(screen.console)
    assert "  │ make" in written(screen.console)
