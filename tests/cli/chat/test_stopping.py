"""What a stopped turn leaves open is closed, so that nothing of it runs later."""

import asyncio

from tests.cli.chat.scripted_chat import talking
from trimtab.session.tools import NOT_RUN_TEXT, STOPPED_TEXT, Tool, close_tool_calls_of_stopped_turn
from trimtab.testing.replies import ScriptedCall


async def stopped_in_a_tool(calls, permit=None):
    """A session whose turn was cancelled while its first tool ran."""
    talk = await talking([calls, "Never mind."])
    began = asyncio.Event()
    ran: list[str] = []

    async def run(asked):
        ran.append(asked.name)
        began.set()
        await asyncio.Event().wait()
        return ""

    definition = talk.agent.tools[0].definition
    talk.agent.tools = [
        Tool(definition=definition, run=run, check_permission=permit and permit(began))
    ]
    says = {"role": "user", "content": "Go."}
    turn = asyncio.create_task(talk.agent.run_turn(talk.session, says))
    await began.wait()
    turn.cancel()
    await asyncio.wait({turn})
    assert turn.cancelled()
    return talk, ran


def results(talk):
    return [
        result.text
        for entry in talk.session.window.entries.values()
        for result in entry.message.results
    ]


def test_a_tool_that_ran_is_told_from_one_that_did_not():
    async def run():
        talk, ran = await stopped_in_a_tool([ScriptedCall(name="read", arguments={"path": "a"})])
        assert await close_tool_calls_of_stopped_turn(talk.session) == 1
        assert results(talk) == [STOPPED_TEXT]
        assert await close_tool_calls_of_stopped_turn(talk.session) == 0
        await talk.agent.run_turn(talk.session, {"role": "user", "content": "And now?"})
        assert ran == ["read"]

    asyncio.run(run())


def test_a_call_that_was_still_asked_about_counts_as_not_run():
    def permit(began):
        async def ask(_):
            began.set()
            await asyncio.Event().wait()

        return ask

    async def run():
        calls = [ScriptedCall(name="read", arguments={"path": name}) for name in "ab"]
        talk, ran = await stopped_in_a_tool(calls, permit)
        assert await close_tool_calls_of_stopped_turn(talk.session) == 2
        assert results(talk) == [NOT_RUN_TEXT, NOT_RUN_TEXT]
        await talk.agent.run_turn(talk.session, {"role": "user", "content": "And now?"})
        assert ran == []

    asyncio.run(run())


def test_a_session_without_open_calls_is_left_as_it_is():
    async def run():
        talk = await talking(["Hello."])
        await talk.agent.run_turn(talk.session, {"role": "user", "content": "Hi."})
        before = talk.session.window.seq
        assert await close_tool_calls_of_stopped_turn(talk.session) == 0
        assert talk.session.window.seq == before

    asyncio.run(run())
