"""A line, a turn, and again: what stands before the prompt, and where one comes back to."""

import asyncio
from typing import Any, cast

import pytest

from tests.serve.cli.chat.scripted_chat import SPEC, console, script, talking, text_of, turns
from tests.serve.cli.chat.test_display import hiding, ledger
from trimtab.errors import ProviderFailureDetails
from trimtab.session import Session
from trimtab.stores.files import FileStore
from trimtab_serve.agent.config.spec import AgentSpec
from trimtab_serve.cli.chat.approval import ApprovalPrompt
from trimtab_serve.cli.chat.interruptible_turn import ChatSignalHandler
from trimtab_serve.cli.chat.line_input import InputClosed
from trimtab_serve.cli.chat.repl import ChatLoop, describe_interrupted_turn
from trimtab_serve.cli.chat.turn_screen import TurnScreen

pytestmark = pytest.mark.anyio


class Seats:
    """A person who looks at what stands before each prompt, and only presses Enter."""

    def __init__(self, talk, changes):
        self.talk = talk
        self.changes = list(changes)
        self.seen = []

    async def read_line(self, draft=""):
        self.seen.append(text_of(self.talk.console))
        if not self.changes:
            raise InputClosed
        self.changes.pop(0)()
        return ""

    async def read_choice(self, question, answers_by_key):
        raise AssertionError(question)


def chatting(talk, changes=()):
    screen, keyboard = TurnScreen(talk.console), Seats(talk, changes)
    asking = ApprovalPrompt(screen, keyboard.read_choice, lambda: None)
    return ChatLoop(talk, screen, cast("Any", keyboard), asking, ChatSignalHandler()), keyboard


def before_each_prompt(monkeypatch, *steps):
    """What is shown as tokens in use, and what was hidden, go from step to step."""

    async def run():
        talk = await talking()
        talk.console = console(90)
        now = {}
        monkeypatch.setattr(Session, "report", lambda session: ledger(now["used"]))

        def change(used, hidden=()):
            now["used"], talk.hidden = used, hidden

        first, *later = steps
        change(*first)
        chat, keyboard = chatting(talk, [lambda step=step: change(*step) for step in later])
        await chat.run_until_left()
        return [
            "bar" if "Context Usage" in seen else "line" if "Context " in seen else ""
            for seen in keyboard.seen
        ]

    return asyncio.run(run())


def test_the_bar_is_drawn_whole_where_it_changed_much_and_else_is_a_line(monkeypatch):
    some = [hiding("mask", 1, 900, "m3.0")]
    shown = before_each_prompt(
        monkeypatch,
        (50_000,),  # below 30 %
        (62_000,),  # the first time
        (62_000,),  # nothing new
        (66_000,),
        (71_000,),
        (73_000,),  # more than 5 points since the bar
        (73_000, some),  # something was hidden
        (74_000, some),
        (138_000, some),
        (141_000, some),  # above 70 %
        (50_000, some),
        (62_000, some),  # above 30 % again
    )
    assert shown == ["", "bar", "", "line", "line", "bar", "bar", "line", "bar", "bar", "", "bar"]


async def test_who_comes_back_is_told_when_the_last_message_came():
    talk = await talking(script(1))
    await turns(talk, 1)
    clock = talk.session.recorder.state.clock
    talk.session.recorder.state.clock = lambda: clock() - 7_300
    await talk.session.add({"role": "user", "content": "Later."})
    talk.session.recorder.state.clock = clock
    await talk.session.configure(system="Another.")
    chat, _ = chatting(talk)
    await chat.show_greeting(is_resumed=True)
    assert "5 messages so far, the last 2 hours ago." in text_of(talk.console)


async def test_a_file_for_masks_at_every_call_that_runs_under_auto_is_remarked_on_at_the_start():
    talk = await talking()
    told = {"session": {"context": {"tool_result_keep_last": 5}}}
    talk.agent.spec = AgentSpec.model_validate({**SPEC.model_dump(exclude_unset=True), **told})
    await chatting(talk)[0].show_greeting(is_resumed=False)
    seen = " ".join(text_of(talk.console).split())
    assert "tool_result_keep_last is set without a policy, so `auto` decides" in seen
    assert "`policy: layered`" in seen


async def test_a_session_that_another_process_writes_to_is_said_at_once(tmp_path):
    talk = await talking()
    one, two = FileStore(tmp_path, fsync=False), FileStore(tmp_path, fsync=False)
    mine = await Session.create(one, "s", model="claude-sonnet-4-5")
    await mine.add({"role": "user", "content": "Hello."})
    talk.session = await Session.open(two, "s")
    chat, _ = chatting(talk)
    await chat.show_greeting(is_resumed=True)
    seen = " ".join(text_of(talk.console).split())
    assert "has this session open, and only one process may write to it." in seen
    assert "/fork" in seen
    assert "Press Enter" not in seen
    await mine.close()
    await chat.show_greeting(is_resumed=True)
    assert "has this session open" not in text_of(talk.console)
    assert await two.held_by("nowhere") is None
    await one.close()
    await two.close()


def test_a_tool_that_was_running_may_still_run():
    async def run():
        talk = await talking(script(1))
        await turns(talk, 1)
        window = talk.session.window
        seq = next(seq for seq, entry in window.entries.items() if entry.message.calls)
        await talk.session.rewind(seq)
        assert describe_interrupted_turn(talk.session.window) == (
            "The last turn was interrupted before read could run."
        )
        await talk.session.recorder.claim()
        await talk.session.recorder.record_tool_start("k")
        assert describe_interrupted_turn(talk.session.window) == (
            "The last turn was interrupted while read was running; processes that it started "
            "may still run outside the chat."
        )

    asyncio.run(run())


class Typist:
    """A person who types these lines."""

    def __init__(self, *lines):
        self.lines = list(lines)

    async def read_line(self, draft=""):
        if not self.lines:
            raise InputClosed
        return self.lines.pop(0)

    async def read_choice(self, question, answers_by_key):
        raise AssertionError(question)


def test_what_the_provider_does_not_take_is_told_and_the_chat_goes_on_without_it():
    async def run():
        rejected = ProviderFailureDetails(
            kind="rejected", message="Could not process it", status=400
        )
        talk = await talking(["Hello.", rejected, "Of swans."], width=100)
        screen = TurnScreen(talk.console)
        typist = Typist("Good morning.", "Of herons.", "Of swans, then.")
        asking = ApprovalPrompt(screen, typist.read_choice, lambda: None)
        await ChatLoop(
            talk, screen, cast("Any", typist), asking, ChatSignalHandler()
        ).run_until_left()
        drawn = text_of(talk.console)
        assert (
            "The provider does not accept the content of the message (HTTP 400): Could not process "
            "it.\n"
            "Your next message is sent without the rejected content. /undo removes your last "
            "message. Press Enter to try again."
        ) in drawn
        assert "1 part left out because the provider did not accept it (0 tokens) · /why" in drawn
        provider = cast("Any", talk.agent.provider)
        assert "herons" not in str(provider.requests[-1]["messages"])
        assert "Good morning." in str(provider.requests[-1]["messages"])

    asyncio.run(run())
