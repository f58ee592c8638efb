"""Tools selected for one turn: behind the standard ones, counted, and gone with the turn."""

import json
from dataclasses import replace

import pytest

from tests.conversations import prose
from tests.session.turns.sessions import (
    MODELS,
    Hand,
    act,
    create,
    found,
    log,
    reopened,
    say,
    settings_in,
    texts,
    valid,
)
from trimtab.engine.log.event import ModelCall as CallEvent
from trimtab.engine.log.event import dump_canonical_json
from trimtab.engine.recall.tools import RECALL_TOOLS
from trimtab.engine.tokens.counter import measure_json
from trimtab.models.catalog import resolve_model_info
from trimtab.session.turn import run_turn
from trimtab.testing import ScriptedCall, ScriptedProvider
from trimtab.testing.request_counter import RequestCounter
from trimtab.testing.server.prompt_cache import ServerPromptCache

pytestmark = pytest.mark.anyio

STANDARD = [Hand(name="read"), Hand(name="write")]


def hands(*names):
    return [Hand(name=name).tool for name in names]


def names(request):
    return [(tool.get("function") or tool)["name"] for tool in request["tools"]]


@pytest.mark.parametrize("dialect", MODELS)
async def test_turns_of_different_selections_share_the_standard_tools_to_the_byte(memory, dialect):
    session = await create(memory, dialect)
    provider = ScriptedProvider(dialect, ["One.", "Two."])
    await act(session, provider, STANDARD, turn_tools=hands("search", "mail"))
    await act(session, provider, STANDARD, turn_tools=hands("paint"))
    one, two = provider.requests
    assert names(one) == ["read", "write", "search", "mail"]
    assert names(two) == ["read", "write", "paint"]
    # As they are sent, marks included: what stands before is the same prefix to any cache.
    assert json.dumps(one["tools"][:2]) == json.dumps(two["tools"][:2])
    assert valid(provider)


async def test_the_standard_tools_and_the_head_are_marked(memory):
    session = await create(memory)
    provider = ScriptedProvider("anthropic", ["One.", "Two."])
    await act(session, provider, STANDARD, turn_tools=hands("search", "mail"))
    await act(session, provider, STANDARD)
    one, two = provider.requests
    assert [tool["name"] for tool in one["tools"] if "cache_control" in tool] == ["write"]
    assert "cache_control" in one["system"][-1]
    assert not [tool for tool in two["tools"] if "cache_control" in tool]


async def test_the_next_selection_reads_the_standard_tools_from_the_cache(memory):
    session = await create(memory)
    standard = [
        replace(hand.tool, definition={**hand.tool.definition, "description": prose(6_000)})
        for hand in STANDARD
    ]
    provider = ScriptedProvider("anthropic", ["One.", "Two."])
    for chosen in ("search", "paint"):
        await run_turn(
            session,
            provider,
            message={"role": "user", "content": "Go."},
            tools=standard,
            turn_tools=hands(chosen),
        )
    counter, cache = RequestCounter(lambda text: len(text) // 4), ServerPromptCache()
    rules, read = resolve_model_info(MODELS["anthropic"]), []
    for request in provider.requests:
        pieces = counter.split_blocks(request, "anthropic")
        head = sum(piece.tokens for piece in pieces[:2])
        bill = cache.record_request(
            "s",
            pieces,
            salt="",
            model_info=rules,
            scale_tokens=counter.scale_tokens,
            now=0.0,
            is_anthropic=True,
            marks_end=False,
        )
        read.append((bill.read, head))
    assert read[0][0] == 0
    assert read[1][0] == read[1][1] > 2_000


@pytest.mark.parametrize("dialect", MODELS)
async def test_they_are_counted(memory, dialect):
    session = await create(memory, dialect)
    provider = ScriptedProvider(dialect, ["One.", "Two."])
    await act(session, provider, STANDARD)
    before = session.window.settings.head.tokens
    await act(session, provider, STANDARD, turn_tools=hands("search", "mail"))
    own = session.window.settings.tools[-2:]
    more = sum(measure_json(tool, session.window.counter).tokens for tool in own)
    assert session.window.settings.head.tokens == before + more
    assert session.budget().head.tokens == before + more
    sections = {section.name for section in session.report().sections}
    assert {"tool definition: search", "tool definition: mail"} <= sections
    one, two = await found(memory, CallEvent)
    assert two.tokens - one.tokens > more


@pytest.mark.parametrize("dialect", MODELS)
async def test_past_calls_are_rebuilt_with_the_selection_of_their_turn(memory, dialect):
    session = await create(memory, dialect, recall=True)
    provider = ScriptedProvider(dialect, ["One.", "Two.", "Three."])
    await act(session, provider, STANDARD, turn_tools=hands("search"))
    await act(session, provider, STANDARD, turn_tools=hands("mail", "paint"))
    await act(session, provider, STANDARD)
    twin = await reopened(memory)
    calls = [e.seq async for e in memory.events("s") if isinstance(e.body, CallEvent)]
    rebuilt = [await twin.rebuild_request(seq) for seq in calls]
    assert [dump_canonical_json(each) for each in rebuilt] == [
        dump_canonical_json(r) for r in provider.requests
    ]
    recall = [tool["name"] for tool in RECALL_TOOLS]
    assert [names(each)[2:] for each in rebuilt] == [
        [*recall, "search"],
        [*recall, "mail", "paint"],
        recall,
    ]


async def test_where_the_standard_tools_end_is_in_the_hash(memory):
    """It decides where a mark stands, and nothing else of the request tells."""
    session = await create(memory)
    await session.add(say())
    await session.configure(tools=[tool.definition for tool in hands("read", "mail")])
    await session.request()
    both = session.options.tools
    await session.configure(tools=both[:1], turn_tools=both[1:])
    await session.request()
    one, two = await found(memory, CallEvent)
    assert (one.marks, one.tokens, one.max_output) == (two.marks, two.tokens, two.max_output)
    assert one.hash != two.hash


async def test_they_are_gone_with_the_turn_and_written_down_only_when_they_change(memory):
    session = await create(memory)
    provider = ScriptedProvider("anthropic", ["1.", "2.", "3.", "4."])
    await act(session, provider, STANDARD, turn_tools=hands("search"))
    await act(session, provider, STANDARD, turn_tools=hands("search"))
    await run_turn(session, provider, message={"role": "user", "content": "Go."})
    await run_turn(session, provider, message={"role": "user", "content": "Go."})
    assert [names(each)[2:] for each in provider.requests] == [["search"], ["search"], [], []]
    assert [each.selected for each in settings_in(await log(memory))] == [0, 1, 0]


async def test_one_that_is_called_runs(memory):
    session, hand = await create(memory), Hand(name="search", gives="found it")
    provider = ScriptedProvider("anthropic", [ScriptedCall(name="search"), "Done."])
    await act(session, provider, STANDARD, turn_tools=[hand.tool])
    assert len(hand.asked) == 1
    assert await texts(memory, "tool") == ["found it"]
    assert names(provider.requests[1]) == ["read", "write", "search"]


@pytest.mark.parametrize("dialect", MODELS)
async def test_one_that_is_standard_already_is_left_out(memory, dialect):
    session, mine, other = await create(memory, dialect), Hand(name="read"), Hand(name="read")
    provider = ScriptedProvider(dialect, [ScriptedCall(name="read"), "Done."])
    await act(session, provider, [mine], turn_tools=[other.tool, *hands("mail")])
    assert names(provider.requests[0]) == ["read", "mail"]
    assert (len(mine.asked), len(other.asked)) == (1, 0)
    assert session.window.settings.selected == 1


@pytest.mark.parametrize("recall", [False, True])
async def test_what_is_standard_and_what_is_selected_is_known_after_opening(memory, recall):
    session = await create(memory, recall=recall)
    provider = ScriptedProvider("anthropic", ["One.", "Two."])
    await act(session, provider, STANDARD, turn_tools=hands("search", "mail"))
    twin = await reopened(memory)
    assert [tool["name"] for tool in twin.options.tools] == ["read", "write"]
    assert [tool["name"] for tool in twin.options.turn_tools] == ["search", "mail"]
    await twin.configure(model="claude-opus-4-5")
    assert twin.window.settings.tools == session.window.settings.tools
    assert twin.window.settings.selected == 2
