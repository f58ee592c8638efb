"""A turn that makes the first call of a session gives the model its recall tools."""

from __future__ import annotations

from typing import Any

import pytest

from tests.session.turns.sessions import Clock, Hand, claude, log, reopened, say
from trimtab import Session, run_turn
from trimtab.engine.log.event import Settings
from trimtab.engine.log.message import ToolResult
from trimtab.testing import ScriptedCall, ScriptedProvider

pytestmark = pytest.mark.anyio

RECALL_TOOLS = ["recall", "search_history"]


async def create(store: Any, **options: Any) -> Session:
    return await Session.create(store, "s", model="claude-sonnet-4-6", clock=Clock(), **options)


def tool_names(provider: ScriptedProvider) -> list[list[str]]:
    return [[tool["name"] for tool in request.get("tools", ())] for request in provider.requests]


async def test_a_session_is_given_recall_tools_in_its_first_call_and_keeps_them(memory):
    session = await create(memory)
    provider = claude("Yes.", "Again.", "And again.")
    await run_turn(session, provider, [Hand().tool], message=say())
    await run_turn(session, provider, message=say())
    again = await reopened(memory)
    await run_turn(again, provider, [Hand().tool], message=say())
    assert tool_names(provider) == [["read", *RECALL_TOOLS]] * 3
    settings = [body for body in await log(memory) if isinstance(body, Settings)]
    assert len(settings) == 2, "the session's own, and one with the tools of the turn"


async def test_the_model_reads_a_truncated_result_back_without_any_setting(memory):
    text = "".join(f"line {number} of the log\n" for number in range(20_000))
    session = await create(memory)
    provider = claude(ScriptedCall(name="read"), "Done.")
    await run_turn(session, provider, [Hand(gives=text).tool], message=say())
    (result,) = [part for message in provider.requests[1]["messages"] for part in message["content"]
                 if part["type"] == "tool_result"]  # fmt: skip
    assert "recall m" in str(result)
    handle = next(entry.seq for entry in session.window.entries.values() if entry.message.results)
    provider.add_replies(
        ScriptedCall(name="recall", arguments={"handle": f"m{handle}.0", "grep": "line 17123 "}),
        "There it is.",
    )
    finished = await run_turn(session, provider, message=say())
    assert finished.text == "There it is."
    assert "line 17123 of the log" in str(provider.requests[-1]["messages"][-1])


@pytest.mark.parametrize("policy", ["layered", "compact", "rolling", "thresholds", "full"])
async def test_other_presets_send_no_recall_tools_unless_they_are_asked_for(memory, policy):
    session = await create(memory, policy=policy)
    provider = claude("Yes.")
    await run_turn(session, provider, [Hand().tool], message=say())
    assert tool_names(provider) == [["read"]]


async def test_recall_tools_are_switched_off_before_the_first_call_also_after_reopening(memory):
    await create(memory, recall=False)
    provider = claude("Yes.")
    await run_turn(await reopened(memory), provider, [Hand().tool], message=say())
    assert tool_names(provider) == [["read"]]


async def test_a_session_that_had_a_call_without_recall_tools_keeps_its_tool_list(memory):
    session = await create(memory, tools=[Hand().tool.definition])
    await session.add(say("Before."))
    await session.request()
    await session.add({"role": "assistant", "content": "Yes."})
    prefix_version = session.window.accounting.prefix_version
    provider = claude("Yes.")
    await run_turn(session, provider, message=say())
    assert tool_names(provider) == [["read"]]
    assert session.window.accounting.prefix_version == prefix_version, "the prompt cache goes on"


@pytest.mark.parametrize("belongs_to", ["session", "turn"])
async def test_a_tool_of_the_caller_named_recall_is_the_only_one(memory, belongs_to):
    tool = Hand("recall", gives="my own").tool
    session = await create(memory, tools=[tool.definition] if belongs_to == "session" else [])
    provider = claude(ScriptedCall(name="recall"), "Yes.")
    await run_turn(session, provider, [tool], message=say())
    assert tool_names(provider) == [["recall"]] * 2
    results = [part for entry in session.window.entries.values() for part in entry.message.parts]
    assert [part.text for part in results if isinstance(part, ToolResult)] == ["my own"]
