"""The sizes of a context in the log file, in the specified words."""

import logging

import pytest

from tests.turn.acting import Hand, act, claude, create, edits_in, log, say
from trimtab.testing import Call

pytestmark = pytest.mark.anyio


async def test_each_call_logs_its_size(memory, caplog):
    session = await create(memory)
    for _ in range(14):
        await session.add(say("x" * 100))
    await session.add(say("x" * (35_000 - session.window.bytes)))
    with caplog.at_level(logging.INFO, "trimtab.turn"):
        await act(session, claude("Hm."), says=None)
    assert caplog.messages == ["Calling AI with 15 messages (~35000 bytes, ~8750 tokens)"]


async def test_each_iteration_logs_its_size(memory, caplog):
    session = await create(memory)
    with caplog.at_level(logging.INFO, "trimtab.turn"):
        await act(session, claude(Call(name="read"), Call(name="read"), "Done."), [Hand()])
    counts = [int(words.split()[3]) for words in caplog.messages]
    assert counts == [1, 3, 5]


async def test_a_compaction_logs_what_it_saved(memory, caplog):
    session = await create(memory, policy="compact", max_output_tokens=1_000)
    await session.add(say("Go."))
    # The newest 6 results stay; each of the 20 older ones loses all but its first line.
    line = len("[Previously viewed: a result]")
    for n in range(26):
        asks = {"type": "tool_use", "id": f"c{n:02}", "name": "read", "input": {}}
        await session.add({"role": "assistant", "content": [asks]})
        told = "a result\n" + "x" * (1_400 + line - 9)
        block = {"type": "tool_result", "tool_use_id": f"c{n:02}", "content": told}
        await session.add({"role": "user", "content": [block]})
    await session.request()
    await session.add(say("x" * (60_000 - session.window.bytes)))
    assert session.window.bytes == 60_000
    with caplog.at_level(logging.INFO, "trimtab.turn"):
        await act(session, claude("Hm."), says=None)
    assert len(edits_in(await log(memory))) == 20
    assert caplog.messages == [
        "Context size 60000 bytes exceeds limit 50000, compacting old tool results...",
        "Context compacted: 60000 bytes -> 32000 bytes (saved 28000 bytes)",
        "Calling AI with 54 messages (~32000 bytes, ~8000 tokens)",
    ]
