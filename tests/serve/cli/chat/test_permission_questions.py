"""Questions before something runs: one after the other, with all that would run."""

import asyncio

import pytest
from rich.cells import cell_len

from tests.serve.cli.chat.scripted_chat import call, console, text_of, written
from trimtab_serve.agent.tools.permissions.rules import ApprovalRequest
from trimtab_serve.cli.chat.approval import ApprovalPrompt, make_visible
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
    shown = text_of(screen.console)
    assert "shell wants to run, 200 lines:" in shown
    assert "184 rows not shown" in shown
    assert "line 100" not in written(screen.console)
    keys = Keys("s", *"m" * 11, "y")
    made, screen, _ = asking(keys)
    assert asyncio.run(made.approve(question(text))) == "yes"
    assert keys.asked[1] == "Rows 1 to 17 of 200. [m]ore / [n]o"
    assert [n for n in range(200) if f"line {n}\n" not in f"{written(screen.console)}\n"] == []


@pytest.mark.parametrize(("pressed", "stopped"), [("n", False), (None, True)])
def test_paging_ends_with_no(pressed, stopped):
    made, _, stops = asking(Keys("s", "m", pressed))
    assert asyncio.run(made.approve(question("a\n" * 200))) == "no"
    assert bool(stops) is stopped


DANGER = "rm -rf /srv"
PADDED = {
    "blank lines": f"echo a{chr(10) * 60}{DANGER}",
    "lines that look blank": "echo a\n" + " \u2800\n\u3164\n\u200b\t\n" * 20 + DANGER,
    "carriage returns": f"echo a\r{chr(13) * 60}{DANGER}",
    "form feeds": f"echo a{chr(12) * 60}\n{DANGER}",
    "other line ends": f"echo a{chr(0x2028) * 60}{chr(0x85) * 60}\n{DANGER}",
    "spaces": f"echo a{' ' * 5_000};{DANGER}",
    "tabs": f"echo a{chr(9) * 900};{DANGER}",
    "spaces at the left": f"echo a\n{' ' * 5_000}{DANGER}",
    "a long line": f"echo {'a' * 5_000}; {DANGER}",
    "wide characters": f"echo {'漢' * 5_000}; {DANGER}",
    "escape codes": f"echo a\x1b[2J\x1b[8m\x9b2J; {DANGER}",
    "the other direction": f"echo a\u202e; {DANGER}",
    "lines before and after": "\n".join(["echo a"] * 500 + [DANGER] + ["echo b"] * 500),
}


@pytest.mark.parametrize("name", PADDED)
def test_a_dangerous_line_is_on_the_screen_or_said_to_be_hidden(name):
    keys = Keys("n")
    made, screen, _ = asking(keys, width=60)
    asyncio.run(made.approve(question(PADDED[name])))
    shown = text_of(screen.console).splitlines()
    assert len(shown) + len(keys.asked) <= screen.console.height
    assert max(cell_len(line) for line in shown) <= 60
    whole = "".join(line[4:] for line in shown)
    assert DANGER in whole or any("not shown; [s]how all" in line for line in shown)
    assert not set(written(screen.console)) & set("\x9b\u202e\u2028\x85\u200b\x0c")
    if name == "blank lines":
        assert shown[1:] == ["  │ echo a", "  ⋮ 59 blank lines", f"  │ {DANGER}"]


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


@pytest.mark.parametrize("char", "\U00013430\U00013438\U0001bca0\U0001bca3\U0001d173\U0001d17a")
def test_a_character_that_nobody_sees_is_shown_as_its_code(char):
    assert make_visible(f"a{char}b") == [f"a\\U{ord(char):08x}b"]


def test_marks_piled_on_a_letter_are_counted_and_ordinary_ones_are_shown():
    assert make_visible("e\u0301\u0323 rm" + "\u0335\u0300" * 30) == [
        "e\u0301\u0323 rm\\{60 marks}"
    ]
