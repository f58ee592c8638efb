"""A reply that its provider pauses: Anthropic does, in a long turn of tools that it runs itself."""

from typing import Any

import pytest

from tests.session.turns.sessions import (
    act,
    create,
    edits_in,
    found,
    log,
    of,
    reopened,
    say,
    texts,
    valid,
)
from trimtab.engine.log.event import ModelCall as CallEvent
from trimtab.engine.log.event import dump_canonical_json
from trimtab.errors import ProviderError, ProviderFailureDetails
from trimtab.session.events import AssistantReplied, ModelCallRetried
from trimtab.session.turn import run_turn
from trimtab.testing import ScriptedProvider, ScriptedReply

pytestmark = pytest.mark.anyio

SEARCH = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "q"},
}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
PAUSED = ScriptedReply(text="Let me look.", stop="pause_turn")
ORPHAN = ProviderFailureDetails(
    kind="malformed",
    message="`web_search` tool use with id `srvtoolu_1` was found without a corresponding "
    "`web_search_tool_result` block",
    status=400,
)


class Searching(ScriptedProvider):
    """Searches the web by itself: what it searches for ends a paused reply, what it finds begins
    the next. Refuses a search without its result, unless it can go on with it."""

    def __init__(self, replies: Any) -> None:
        super().__init__("anthropic", replies)
        self._wire = _Wire(self._wire)

    def _check(self, request, number):
        super()._check(request, number)
        contents = [message["content"] for message in request["messages"]]
        blocks = [block for content in contents for block in content]
        kinds = [block["type"] for block in blocks]
        if kinds.count("server_tool_use") > kinds.count("web_search_tool_result"):
            assert blocks[-1]["type"] == "server_tool_use", ORPHAN.message


class _Wire:
    def __init__(self, wire: Any) -> None:
        self.stream_reply_events = wire.stream_reply_events
        self._reply = wire.build_reply_body
        self._open = False

    def build_reply_body(self, answer, frame):
        body = self._reply(answer, frame)
        before = [FOUND] if self._open else []
        self._open = answer.stop == "pause_turn"
        body["content"] = [*before, *body["content"], *([SEARCH] if self._open else [])]
        return body


def last(request):
    message = request["messages"][-1]
    return message["role"], [
        {key: block[key] for key in block if key != "cache_control"} for block in message["content"]
    ]


@pytest.mark.parametrize("stream", [True, False])
async def test_it_is_sent_back_as_it_is_and_the_turn_goes_on(memory, stream):
    session = await create(memory)
    provider = Searching([PAUSED, "It is so."])
    told = await act(session, provider, stream=stream)
    assert (told[-1].reason, told[-1].calls) == ("done", 2)
    assert last(provider.requests[1]) == (
        "assistant",
        [{"type": "text", "text": "Let me look."}, SEARCH],
    )
    assert [each.message.text for each in of(AssistantReplied, told)] == [
        "Let me look.",
        "It is so.",
    ]
    assert not of(ModelCallRetried, told)
    assert valid(provider)


async def test_in_later_requests_both_halves_are_one_message(memory):
    session = await create(memory)
    provider = Searching([PAUSED, "It is so.", "You are welcome."])
    await act(session, provider)
    await act(session, provider, says="Thanks.")
    assert [message["role"] for message in provider.requests[2]["messages"]] == [
        *("user", "assistant", "user")
    ]
    kinds = [block["type"] for block in provider.requests[2]["messages"][1]["content"]]
    assert kinds == ["text", "server_tool_use", "web_search_tool_result", "text"]


async def test_nothing_stands_behind_what_is_to_be_gone_on_with(memory):
    session = await create(memory)
    provider = Searching([PAUSED, "It is so."])
    await act(session, provider, volatile="It is noon.")
    assert "It is noon." in str(provider.requests[0])
    assert last(provider.requests[1])[0] == "assistant"
    assert "It is noon." not in str(provider.requests[1])


async def test_pauses_without_end_are_ended(memory):
    session = await create(memory)
    provider = ScriptedProvider("anthropic", [PAUSED] * 99)
    told = await act(session, provider, max_tool_iterations=3)
    assert (told[-1].reason, told[-1].calls) == ("iterations", 3)
    told = await act(session, provider, says=None, max_tool_iterations=3)
    assert (told[-1].reason, told[-1].calls) == ("iterations", 2)


async def test_a_turn_that_was_cut_off_while_paused_goes_on(memory):
    session = await create(memory)
    provider = Searching([PAUSED, "It is so."])
    await act(session, provider, max_tool_iterations=1)
    await session.recorder.checkpoint()
    twin = await reopened(memory)
    ended = await run_turn(twin, provider)
    assert (ended.reason, ended.calls) == ("done", 1)
    assert await texts(memory, "assistant") == ["Let me look.", "It is so."]
    seqs = [e.seq async for e in memory.events("s") if isinstance(e.body, CallEvent)]
    for seq, request in zip(seqs, provider.requests, strict=True):
        assert dump_canonical_json(await twin.rebuild_request(seq)) == dump_canonical_json(request)


async def test_both_halves_are_hidden_together(memory):
    session = await create(memory)
    provider = Searching([PAUSED, PAUSED, "It is so.", "Yes."])
    await act(session, provider)
    await act(session, provider, says="Sure?")
    halves = [group for group in session.window.conversation.groups if len(group.rounds) > 1]
    assert [len(group.rounds) for group in halves] == [3]
    assert halves[0].message_count == 3


async def test_one_that_is_interrupted_is_left_out_when_it_is_refused(memory):
    session = await create(memory)
    provider = Searching([PAUSED])
    await act(session, provider, max_tool_iterations=1)
    await session.add(say("Never mind."))

    class Strict(Searching):
        """Says what it refuses as the API does."""

        async def send(self, request):
            if "srvtoolu_1" in str(request["messages"]):
                self.requests.append(dict(request))
                self._replies.insert(0, ORPHAN)
                raise ProviderError(ORPHAN)
            async for event in super().send(request):
                yield event

    strict = Strict(["As you like."])
    told = await act(session, strict, says=None)
    assert [each.reason for each in of(ModelCallRetried, told)] == [ORPHAN.message]
    assert (told[-1].reason, told[-1].calls) == ("done", 1)
    (edit,) = edits_in(await log(memory))
    assert (edit.op, edit.why) == ("drop", "the reply was interrupted before it was complete")
    assert await session.recall(edit.handle)
    assert len(await found(memory, CallEvent)) == 3
