"""`trimtab chat` where nobody sits: arguments, pipes, lines of JSON, exit statuses."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.serve.cli.terminal.conftest import COMMAND, environ
from tests.serve.cli.terminal.simulated import Simulated, shell

pytestmark = pytest.mark.process


def ran(folder: Path, *arguments: str, piped: str = "") -> subprocess.CompletedProcess[str]:
    return warm.trimtab(["chat", *arguments], cwd=folder, env=environ(folder), input=piped)


def happenings(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_answer_goes_to_standard_output_and_all_else_to_standard_error(sim, folder):
    sim.says(shell("printf 'not allowed'", "I look."), "It is \x1b[1mblue\x1b[0m.")
    done = ran(folder, "Which colour?")
    assert (done.returncode, done.stdout) == (0, "It is \x1b[1mblue\x1b[0m.\n")
    assert "I look." in done.stderr
    assert (
        "shell was not run because nobody can approve it here: printf 'not allowed'" in done.stderr
    )
    assert "To continue: trimtab chat --session " in done.stderr
    assert "\x1b" not in done.stderr


def test_what_is_piped_in_is_the_question_or_stands_below_it(sim, folder):
    sim.says("First.", "Second.")
    assert ran(folder, piped="Only this\n").stdout == "First.\n"
    assert ran(folder, "Sum it up:", piped="a\nb\n").stdout == "Second.\n"
    asked = [json.dumps(request["body"]["messages"]) for request in sim.requests()]
    assert '"Only this"' in asked[0]
    assert '"Sum it up:\\n\\na\\nb"' in asked[1]


def test_continue_goes_on_with_the_newest_session(sim, folder):
    sim.says("First.", "Second.", "Third.")
    ran(folder, "--session", "other", "one")
    ran(folder, "--session", "mine", "two")
    assert ran(folder, "--continue", "three").stdout == "Third.\n"
    assert [m["role"] for m in sim.said()] == [
        "user",
        "assistant",
        "user",
    ]


def test_what_failed_is_said_and_answered_when_it_is_taken_up_again(sim, folder):
    sim.options(api_keys=["another"])
    done = ran(folder, "--session", "s", "Hello?")
    assert (done.returncode, done.stdout) == (1, "")
    assert "The provider does not accept the key" in done.stderr
    sim.options(api_keys=[])
    sim.says("Hello.")
    assert ran(folder, "--session", "s").stdout == "Hello.\n"
    assert len(sim.said()) == 1


def test_what_cannot_begin_is_one_line_and_status_2(folder):
    for arguments in (
        ["--agent", "missing.yaml", "x"],
        ["--continue", "x"],
        ["--continue", "--session", "s", "x"],
        [],
    ):
        done = ran(folder, *arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert done.stderr.startswith("trimtab: "), done.stderr
        assert "Traceback" not in done.stderr


def test_json_is_a_line_for_everything_that_happens(sim, folder):
    sim.says(shell("echo free", "I look."), "Two lines?", "Yes.")
    done = ran(folder, "--json", piped='First\n\n{"text": "one\\ntwo"}\n')
    assert done.returncode == 0, done.stderr
    told = happenings(done)
    kinds = [one["type"] for one in told if one["type"] != "message.delta"]
    asked = ["model_call.started", "model_call.finished", "message"]
    first = ["turn.started", *asked, "tool.started", "tool.finished", *asked, "turn.finished"]
    assert kinds == ["session", *first, "turn.started", *asked, "turn.finished"]
    result = next(one for one in told if one["type"] == "tool.finished")
    assert (result["name"], result["text"].strip(), result["is_error"]) == ("shell", "free", False)
    assert '"one\\ntwo"' in json.dumps(sim.said())


def test_json_tells_questions_and_errors_as_well(sim, folder):
    sim.says(shell("rm -r x"), "Not done.")
    told = happenings(ran(folder, "--json", "Remove x"))
    question = next(one for one in told if one["type"] == "approval.requested")
    assert (question["tool"], question["text"], question["answer"]) == ("shell", "rm -r x", "no")
    sim.options(api_keys=["another"])
    done = ran(folder, "--json", "Hello?")
    assert done.returncode == 1
    last = happenings(done)[-1]
    assert (last["type"], last["kind"]) == ("error", "auth")
    assert last["next"]
    done = ran(folder, "--json", "--agent", "missing.yaml", "x")
    assert done.returncode == 2
    assert [one["type"] for one in happenings(done)] == ["error"]


def test_an_interrupt_stops_the_turn_with_status_130_and_closes_its_calls(sim, folder):
    sim.says({"text": "Slow. " * 50, "pace": 0.5}, "Later.")
    command = [*COMMAND, "--json", "--session", "s", "Tell me"]
    started = warm.Popen(
        command, cwd=folder, env=environ(folder), stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    with started:
        assert "session" in started.stdout.readline()
        assert any("Slow." in line for line in started.stdout)
        started.send_signal(signal.SIGINT)
        rest = started.stdout.read()
    assert started.returncode == 130
    assert json.loads(rest.splitlines()[-1])["kind"] == "stopped"
    assert ran(folder, "--session", "s", "Go on").stdout == "Later.\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_while_it_waits_for_a_line(sim, folder, number):
    started = warm.Popen(
        [*COMMAND, "--json"],
        cwd=folder,
        env=environ(folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stderr is not None
    with started:
        assert "session" in started.stdout.readline()
        started.send_signal(number)
        assert started.wait(60) == 128 + number
        assert started.stderr.read() == ""


def test_a_reply_that_breaks_off_leaves_nothing_on_standard_output(sim: Simulated, folder: Path):
    sim.says({"text": "Lost. " * 20, "cut": 6}, "Whole.")
    assert ran(folder, "Say it").stdout == "Whole.\n"
