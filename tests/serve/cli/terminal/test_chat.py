"""`trimtab chat` in a real terminal: keys in, a screen out, a strict provider behind it."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import warm
from tests.serve.cli.terminal.conftest import COMMAND, environ
from tests.serve.cli.terminal.simulated import Simulated, shell, write_agent
from tests.serve.cli.terminal.tmux import Terminal, last_line

pytestmark = pytest.mark.process

SESSION = re.compile(r"session (\d{4}-\d\d-\d\d-\d{4}-\w{4})")
LONG = "one two three four five six seven eight nine ten " * 30


def session_of(seen: str) -> str:
    found = SESSION.search(seen)
    assert found is not None, seen
    return found[1]


def answered(terminal: Terminal, line: str, reply: str) -> str:
    """Say something and wait for the reply and the next prompt."""
    terminal.enter(line)
    terminal.wait(reply)
    return terminal.ready()


def verified(folder: Path, session: str) -> list[dict[str, object]]:
    """The log of a session, whose last request still has the hash that was recorded."""
    command = [*warm.TRIMTAB, "session", "show", session]
    where = ["--call", "last", "--json", "--store", str(folder / "sessions")]
    done = warm.run([*command, *where])
    assert done.returncode == 0, done.stderr
    log = folder / "sessions" / session / "events.jsonl"
    return [json.loads(line) for line in log.read_text(encoding="ascii").splitlines()]


def test_fifty_turns_with_tools_questions_interruptions_and_a_kill(
    sim: Simulated, folder: Path, open_terminal: Callable[..., Terminal]
):
    terminal = open_terminal()
    session = session_of(terminal.ready())
    questions = 0
    for turn in range(50):
        reply = f"Answer number {turn}."
        match turn % 5:
            case 1:
                sim.says(shell(f"seq {turn}000 {turn}700", "I look."), reply)
                answered(terminal, f"Look into {turn}", reply)
            case 2:
                sim.says(shell(f"printf 'done {turn}'"), reply)
                questions += 1
                terminal.enter(f"Run {turn}")
                terminal.wait("[y]es / [a]lways this exact call / [n]o", times=questions)
                terminal.press("n" if turn % 2 else "y")
                terminal.wait(reply)
                terminal.ready()
            case 3 if turn % 10 == 3:
                sim.says({"text": LONG, "pace": 0.3})
                seen = terminal.screen().count("one two three")
                terminal.enter(f"Tell me story {turn}")
                terminal.wait("one two three", times=seen + 1)
                stops = terminal.screen().count("Stopped.")
                terminal.press("C-c")
                terminal.wait("Stopped.", times=stops + 1)
                terminal.ready()
            case 4 if turn == 24:
                sim.says(shell("sleep 100; true", "A long one."), "It was cut off, then.")
                questions += 1
                terminal.enter("Run for long")
                terminal.wait("[y]es / [a]lways this exact call / [n]o", times=questions)
                terminal.press("y")
                terminal.wait("… shell sleep 100")
                os.kill(terminal.pid(), signal.SIGKILL)
                assert terminal.ended() == 128 + signal.SIGKILL
                terminal.again([*_env(folder), *COMMAND, "--continue"])
                seen = terminal.ready()
                questions = 0
                assert session_of(seen) == session
                assert "> Run for long" in seen
                assert (
                    "The last turn was interrupted while shell was running; processes that it"
                    in seen
                )
                terminal.press("Enter")
                terminal.wait("Run it again? [y]es / [n]o")
                terminal.press("n")
                terminal.wait("It was cut off, then.")
                terminal.ready()
            case _:
                sim.says(reply)
                answered(terminal, f"Question {turn}", reply)
    seen = terminal.screen()
    assert "Context Usage" in seen
    assert "Hidden " in seen
    terminal.press("C-d")
    assert terminal.ended() == 0
    assert f"trimtab chat --session {session}" in terminal.screen()
    events = verified(folder, session)
    users = [e for e in events if e["kind"] == "message" and '"role": "user"' in json.dumps(e)]
    assert len(users) == 50
    assert all(request["status"] == 200 for request in sim.requests())


def _env(folder: Path) -> list[str]:
    return ["env", *(f"{name}={value}" for name, value in environ(folder).items())]


def test_ctrl_c_stops_the_reply_and_not_the_chat(sim: Simulated, folder: Path, chat: Terminal):
    session = session_of(chat.screen())
    sim.says({"text": LONG, "pace": 0.3}, "Short, then.")
    chat.enter("A story, please")
    chat.wait("one two three")
    chat.press("C-c")
    seen = chat.wait("Stopped. Everything up to here is kept.")
    assert "nine ten " * 20 not in seen
    chat.ready()
    answered(chat, "Shorter", "Short, then.")
    said = sim.said()
    assert "A story, please" in json.dumps(said)
    assert "one two three" in json.dumps(said), "the model knows what it had said"
    chat.press("C-d")
    assert chat.ended() == 0
    verified(folder, session)


def test_ctrl_c_at_a_question_is_no_and_nothing_of_it_runs_later(
    sim: Simulated, folder: Path, chat: Terminal
):
    sim.says(shell("touch was-run", "I clean up."), "As you like.")
    chat.enter("Clean up")
    chat.wait("[y]es / [a]lways this exact call / [n]o")
    chat.press("C-c")
    chat.wait("Stopped.")
    chat.ready()
    answered(chat, "Do not", "As you like.")
    assert not (folder / "was-run").exists()
    # Whichever came first: the answer to the question, or the end of the turn.
    told = json.dumps(sim.requests()[-1]["body"])
    assert "the user stopped the turn" in told or "the user did not allow this call" in told


def test_a_running_tool_is_stopped_with_its_turn(sim: Simulated, folder: Path, chat: Terminal):
    sim.says(shell("sleep 100; touch was-run"), "Stopped it is.")
    chat.enter("Wait")
    chat.wait("[n]o")
    chat.press("y")
    chat.wait("… shell sleep 100")
    chat.press("C-c")
    chat.wait("Stopped. 1 tool call did not finish.")
    chat.ready()
    answered(chat, "And now?", "Stopped it is.")
    assert "stopped by the user while it ran" in json.dumps(sim.requests()[-1]["body"])


def test_several_questions_come_one_after_the_other(sim: Simulated, chat: Terminal):
    calls = [{"name": "shell", "arguments": {"command": f"printf 'number {n}'"}} for n in range(3)]
    sim.says({"calls": calls}, "All three.")
    chat.enter("Three at once")
    for number, key in enumerate("yny", 1):
        seen = chat.wait("[y]es / [a]lways this exact call / [n]o", times=number)
        assert f"  │ printf 'number {number - 1}'" in seen
        chat.press(key)
    seen = chat.wait("All three.")
    assert len(re.findall(r"● shell  printf 'number \d'  \d+ ms · 8 B", seen)) == 2
    assert re.search(r"● shell  printf 'number 1'  not run: ", seen)
    results = json.dumps([said for said in sim.said() if said["role"] == "tool"])
    assert results.count("number") == 2


def test_always_is_not_asked_again(sim: Simulated, chat: Terminal):
    sim.says(shell("printf again"), "Once.", shell("printf again"), "Twice.")
    chat.enter("First")
    chat.wait("[n]o")
    chat.press("a")
    chat.wait("Once.")
    chat.ready()
    seen = answered(chat, "Second", "Twice.")
    assert seen.count("[n]o") == 1


def test_what_was_typed_before_a_question_does_not_answer_it(
    sim: Simulated, folder: Path, chat: Terminal
):
    sim.says({**shell("touch was-run"), "delay": 2}, "No harm done.")
    chat.enter("Slowly")
    chat.wait("… waiting for gpt-4o")
    chat.type("yes")
    chat.wait("[n]o")
    chat.press("n")
    chat.wait("No harm done.")
    assert not (folder / "was-run").exists()


def test_what_is_typed_during_a_turn_waits_in_the_next_line(sim: Simulated, chat: Terminal):
    sim.says({"text": "Slow.", "delay": 2}, "Fast.")
    chat.enter("Slowly")
    chat.wait("… waiting for gpt-4o")
    chat.type("typed ahead")
    seen = chat.until(lambda seen: last_line(seen) == "> typed ahead", "the typed line")
    assert seen.count("typed ahead") == 1
    chat.press("Enter")
    chat.wait("Fast.")


def test_what_is_typed_while_the_chat_starts_is_sent_with_its_enter(
    sim: Simulated, open_terminal: Callable[..., Terminal]
):
    sim.says("First.", "Second.")
    starting = open_terminal(cold=True)
    # All of it is there before the program is: its keys wait in the terminal.
    starting.type("one")
    starting.press("Enter")
    starting.type("two")
    starting.press("Enter")
    starting.wait("Second.")
    starting.ready()
    said = [message["content"] for message in sim.said()]
    asked = json.dumps(said)
    assert asked.count("one") == asked.count("two") == 1
    assert len(sim.requests()) == 2


def test_the_bar_is_shown_above_the_threshold_of_the_file(
    sim: Simulated, folder: Path, open_terminal: Callable[..., Terminal]
):
    write_agent(folder, sim.url, display=0.99)
    never = open_terminal()
    never.ready()
    sim.says(shell("seq 2000"), "Counted.")
    assert "Context Usage" not in answered(never, "Count", "Counted.")
    write_agent(folder, sim.url, display=0.1)
    soon = open_terminal()
    soon.ready()
    sim.says(shell("seq 2000"), "Counted.")
    answered(soon, "Count", "Counted.")
    seen = soon.until(lambda seen: last_line(seen).startswith(">"), "the line")
    assert "Context Usage" in seen[seen.rindex("Counted.") : seen.rindex("\n>")]


def test_undo_puts_the_message_back_into_the_line(sim: Simulated, chat: Terminal):
    sim.says("Blue.", "Green.")
    answered(chat, "Which colour?", "Blue.")
    chat.enter("/undo")
    chat.until(lambda seen: last_line(seen) == "> Which colour?", "the line")
    chat.press("Enter")
    chat.wait("Green.")
    assert len(sim.said()) == 1


def test_a_paste_of_several_lines_and_new_lines_by_hand_are_one_message(
    sim: Simulated, chat: Terminal
):
    sim.says("Five lines.")
    chat.paste("one\ntwo\nthree")
    chat.wait("three")
    chat.press("M-Enter")
    chat.type("four")
    chat.press("C-j")
    chat.type("five")
    chat.wait("five")
    chat.press("Enter")
    chat.wait("Five lines.")
    assert '"one\\ntwo\\nthree\\nfour\\nfive"' in json.dumps(sim.requests()[-1]["body"])


def test_ctrl_c_clears_the_line_and_twice_leaves(chat: Terminal):
    chat.type("never mind")
    chat.wait("never mind")
    chat.press("C-c")
    chat.ready()
    chat.press("C-c")
    chat.wait("Press Ctrl-C again, or Ctrl-D, to leave.")
    chat.ready()
    chat.press("C-c")
    assert chat.ended() == 0


def test_a_chat_in_which_nothing_was_said_leaves_nothing_behind(folder: Path, chat: Terminal):
    chat.press("C-d")
    assert chat.ended() == 0
    assert [*(folder / "sessions").glob("2*")] == []
    assert "To continue" not in chat.screen()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_chat_cleanly_in_the_middle_of_a_turn(
    sim: Simulated, folder: Path, chat: Terminal, number: signal.Signals
):
    sim.says({"text": LONG, "pace": 0.3})
    chat.enter("A story")
    chat.wait("one two three")
    session = session_of(chat.screen())
    os.kill(chat.pid(), number)
    assert chat.ended() == 128 + number
    assert f"trimtab chat --session {session}" in chat.screen()
    assert "Traceback" not in chat.screen()
    verified(folder, session)


def test_an_answer_that_never_came_is_asked_for_after_a_kill(
    sim: Simulated, folder: Path, chat: Terminal
):
    sim.says({"text": LONG, "pace": 0.3}, "Here it is after all.")
    chat.enter("A story")
    chat.wait("one two three")
    os.kill(chat.pid(), signal.SIGKILL)
    chat.ended()
    chat.again([*_env(folder), *COMMAND, "-c"])
    seen = chat.ready()
    assert "The last turn was interrupted before the model answered." in seen
    chat.press("Enter")
    chat.wait("Here it is after all.")


def test_errors_of_the_provider_are_sentences_and_enter_tries_again(sim: Simulated, chat: Terminal):
    sim.options(api_keys=["another"])
    chat.enter("Hello")
    seen = chat.wait("The provider does not accept the key (HTTP 401): Incorrect API key")
    assert "`trimtab doctor`" in chat.ready()
    assert "Traceback" not in seen
    sim.options(api_keys=[])
    sim.says("Hello yourself.")
    chat.press("Enter")
    chat.wait("Hello yourself.")
    assert len(sim.said()) == 1


def test_a_reply_that_breaks_off_is_void_and_comes_again(sim: Simulated, chat: Terminal):
    sim.says({"text": "This part is lost. " * 20, "cut": 6}, "Whole again.")
    seen = answered(chat, "Say it", "Whole again.")
    assert seen.index("This part") < seen.index("The text above is discarded") < seen.index("Whole")


def test_a_window_that_is_smaller_than_the_file_says_sounds_like_no_loss(
    sim: Simulated, folder: Path, open_terminal: Callable[..., Terminal]
):
    write_agent(folder, sim.url, window=100_000)
    terminal = open_terminal(columns=160)
    terminal.ready()
    sim.says(*[shell(f"seq {turn}000 {turn + 1}399") for turn in range(1, 9)], "All counted.")
    seen = answered(terminal, "Count", "All counted.")
    compacted = "Context was compacted and truncated to fit token limits."
    taken = "The provider accepts 16,000 tokens, fewer than assumed; the call was repeated."
    assert seen.index(compacted) < seen.index(taken) < seen.index("Nothing is lost: /context")
    assert "discarded" not in seen
    shown = session_of(seen)
    command = [*warm.TRIMTAB, "session", "show", shown, "--json"]
    where = ["--store", str(folder / "sessions")]
    done = warm.run([*command, *where])
    assert done.returncode == 0, done.stderr
    hidden = json.loads(done.stdout)["report"]["hidden"]
    told = " ".join(seen[seen.index("Hidden just now") :].split())
    done_by = {"truncate": "cut", "mask": "replaced by a line", "summarise": "summarised"}
    for op, (count, tokens) in hidden.items():
        assert re.search(rf"\b{count} \w+( \w+)? {done_by[op]} \({tokens:,} tokens\)", told), op
    assert hidden


def test_no_control_character_of_a_model_or_a_tool_reaches_the_terminal(
    sim: Simulated, folder: Path, chat: Terminal
):
    (folder / "evil").write_bytes(b"\x1b]0;owned\x07\x1b[2J\x9b2J evil tool\n")
    sim.says(shell("cat evil # \x1b[8m"), "Now \x1b[2J\x1b]0;owned\x07 evil \u202emodel.")
    chat.enter("Look at evil")
    chat.wait("[n]o")
    chat.press("y")
    chat.wait("model.")
    chat.ready()
    answered(chat, "/context messages", "evil tool")
    for owned in (b"\x1b]0;", b"\x1b[2J", b"\x07", b"\x1b[8m", "\u202e".encode()):
        assert owned not in chat.raw(), owned


def test_a_window_of_45_columns_breaks_nothing(
    sim: Simulated, open_terminal: Callable[..., Terminal]
):
    terminal = open_terminal(columns=45, lines=30)
    terminal.ready()
    sim.says(shell("seq 2500", "I count."), shell("seq 2500"), LONG)
    answered(terminal, "Count", "nine ten")
    seen = terminal.wait("/16.0k (")
    assert max(map(len, seen.splitlines())) <= 45
    assert re.search(r"^  █+░+ \d\.\dk/16\.0k \(\d+\.\d%\)$", seen, re.MULTILINE)
    told = [line.split() for line in seen.splitlines() if "one two" in line]
    assert told
    assert {word for line in told for word in line} <= set(LONG.split())


def test_without_colours_where_they_are_not_wanted(
    sim: Simulated, open_terminal: Callable[..., Terminal]
):
    terminal = open_terminal(NO_COLOR="1")
    terminal.ready()
    sim.says(shell("seq 2500; exit 3"), "Counted.")
    terminal.enter("Count")
    terminal.wait("[n]o")
    terminal.press("y")
    terminal.wait("Counted.")
    terminal.ready()
    assert not re.search(r"\x1b\[(?:3[1-6]|9[1-6])m", terminal.screen(colours=True))


def test_the_history_is_the_users_own(folder: Path, sim: Simulated, chat: Terminal):
    sim.says("Noted.")
    answered(chat, "remember this line", "Noted.")
    chat.press("Up")
    chat.until(lambda seen: last_line(seen) == "> remember this line", "the line before")
    path = Path(environ(folder)["HOME"]) / ".local" / "state" / "trimtab" / "history"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_session_that_another_chat_writes_to_is_said_to_be_busy_and_can_be_forked(
    sim: Simulated, chat: Terminal, open_terminal: Callable[..., Terminal]
):
    sim.says("Mine.", "A copy.")
    session = session_of(answered(chat, "Hello", "Mine."))
    other = open_terminal("--session", session)
    assert f"Process {chat.pid()} has this session open" in other.ready()
    other.enter("Me too")
    other.wait("This session is open elsewhere")
    assert "/fork" in other.ready()
    other.enter("/fork mine")
    other.wait("You are now in session mine")
    other.ready()
    answered(other, "Now then", "A copy.")
