"""What the model calls: run side by side, answered each, and never the end of the turn."""

import asyncio

import pytest

from tests.pictures import PNG_TEXT, png, text
from tests.session.turns.sessions import (
    WAIT,
    Hand,
    act,
    claude,
    create,
    definition,
    found,
    log,
    of,
    reopened,
    results_in,
    say,
    settings_in,
    started,
    texts,
    valid,
)
from trimtab.engine.log.event import MessageAdded
from trimtab.engine.log.message import Media, Text
from trimtab.errors import ProviderFailureDetails
from trimtab.providers import with_retries
from trimtab.session.events import ModelCallRetried, ToolFinished, ToolStarted
from trimtab.session.function_tool import tool
from trimtab.session.tools import Tool
from trimtab.session.turn import MAX_TOOL_ITERATIONS, run_turn
from trimtab.testing import ScriptedCall, ScriptedProvider

pytestmark = pytest.mark.anyio


async def test_parallel_calls_run_side_by_side_and_are_sent_in_call_order(store):
    """Each tool waits until all have begun, and they end in the opposite order."""
    session = await create(store)
    names = ["a", "b", "c"]
    begun = asyncio.Barrier(len(names))
    over = {name: asyncio.Event() for name in names}

    async def gives(asked):
        await begun.wait()
        later = names.index(asked.name) + 1
        if later < len(names):
            await over[names[later]].wait()
        return f"from {asked.name}"

    provider = claude([ScriptedCall(name=name) for name in names], "Done.")
    told = []

    def tell(happening):
        told.append(happening)
        if isinstance(happening, ToolFinished):
            over[happening.call.name].set()

    tools = [Hand(name=name, gives=gives).tool for name in names]
    async with asyncio.timeout(WAIT):
        await run_turn(session, provider, tools, message=say(), on_event=tell)
    assert [each.call.name for each in of(ToolFinished, told)] == ["c", "b", "a"]
    assert await texts(store, "tool") == ["from c", "from b", "from a"]
    assert results_in(provider.requests[1]) == ["from a", "from b", "from c"]
    assert len(set(await started(store))) == 3


@pytest.mark.parametrize("most", [MAX_TOOL_ITERATIONS, 3, 50])
async def test_a_model_that_never_stops_calling_is_stopped(memory, most):
    assert MAX_TOOL_ITERATIONS == 25
    session, hand = await create(memory), Hand()
    provider = claude(*[ScriptedCall(name="read")] * (most + 1))
    how = {} if most == MAX_TOOL_ITERATIONS else {"max_tool_iterations": most}
    told = await act(session, provider, [hand], **how)
    assert (told[-1].reason, told[-1].calls) == ("iterations", most)
    assert len(hand.asked) == len(provider.requests) == most
    assert len(await texts(memory, "tool")) == most
    # Whoever asks on gets on.
    provider = claude("So far, so good.")
    told = await act(session, provider, [hand], says="Well?")
    assert (told[-1].reason, told[-1].calls) == ("done", 1)
    assert valid(provider)


async def test_a_timeout_gives_up_one_tool_and_not_the_others(memory):
    session = await create(memory)
    never = asyncio.Event()

    async def hangs(_):
        await never.wait()

    slow = Hand(name="slow", gives=hangs, own={"timeout": 0.01})
    provider = claude([ScriptedCall(name="slow"), ScriptedCall(name="read")], "Well.")
    async with asyncio.timeout(WAIT):
        told = await act(session, provider, [slow, Hand()])
    assert results_in(provider.requests[1]) == ["slow was given up after 0.01 seconds", "done"]
    assert {each.call.name: each.is_error for each in of(ToolFinished, told)} == {
        "slow": True,
        "read": False,
    }


@pytest.mark.parametrize("seconds", [300.0, None])
async def test_a_timeout_of_the_tools_own_is_told_as_its_own(memory, seconds):
    session = await create(memory)

    async def impatient(_):
        raise TimeoutError("no answer from the printer")

    provider = claude(ScriptedCall(name="read"), "Well.")
    await act(session, provider, [Hand(gives=impatient, own={"timeout": seconds})])
    assert await texts(memory, "tool") == ["TimeoutError: no answer from the printer"]


async def test_what_a_tool_raises_is_its_result(memory):
    session = await create(memory)

    async def breaks(_):
        raise KeyError("no such file")

    provider = claude(ScriptedCall(name="read"), "I see.")
    told = await act(session, provider, [Hand(gives=breaks)])
    assert await texts(memory, "tool") == ["KeyError: 'no such file'"]
    (said,) = [each for each in await found(memory, MessageAdded) if each.message.results]
    assert said.message.results[0].is_error
    assert of(ToolFinished, told)[0].is_error
    assert (told[-1].reason, told[-1].calls) == ("done", 2)


@pytest.mark.parametrize("given", [None, {"a": 1}, 7, ["text"], b"bytes"], ids=repr)
async def test_what_is_no_result_is_an_error_and_not_the_end_of_the_turn(memory, given):
    session = await create(memory)

    async def gives(_):
        return given

    told = await act(session, claude(ScriptedCall(name="read"), "I see."), [Hand(gives=gives)])
    assert of(ToolFinished, told)[0].is_error
    assert "a tool must return a text or parts of content" in (await texts(memory, "tool"))[0]


async def test_a_tool_may_give_parts(memory):
    session = await create(memory)
    picture = Media(kind="image", mime="image/png", data=PNG_TEXT)

    async def gives(_):
        return [Text(text="a picture"), picture]

    provider = claude(ScriptedCall(name="read"), "I see.")
    await act(session, provider, [Hand(gives=gives)])
    (said,) = [each for each in await found(memory, MessageAdded) if each.message.results]
    assert said.message.results[0].content == (Text(text="a picture"), picture)
    assert valid(provider)


async def test_a_picture_that_no_provider_takes_is_told_in_words(memory):
    session = await create(memory)
    cut = Media(kind="image", mime="image/png", data=text(png()[:20]))

    async def gives(_):
        return [Text(text="a picture"), cut]

    provider = claude(ScriptedCall(name="read"), "It is broken.")
    told = await act(session, provider, [Hand(gives=gives)])
    why = "it cannot be decoded: it is cut off after 20 bytes"
    [result] = await texts(memory, "tool")
    assert result == f"a picture\n[image (image/png) left out: {why}]"
    assert of(ToolFinished, told)[0].text == result
    assert why in str(provider.requests[1])
    assert valid(provider)


async def test_a_tool_that_nobody_has_is_answered_with_those_there_are(memory):
    session = await create(memory)
    provider = claude(ScriptedCall(name="write"), "Sorry.")
    await act(session, provider, [Hand(name="read"), Hand(name="list")])
    assert await texts(memory, "tool") == ["unknown tool; there is list, read"]
    assert await started(memory) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ('{"path": ', "the arguments are not JSON"),
        ("[" * 100_000, "the arguments are not JSON"),
        ("[1]", "the arguments must be a JSON object"),
        ('"a"', "the arguments must be a JSON object"),
    ],
    ids=["cut", "deep", "list", "text"],
)
async def test_arguments_that_are_no_object_reach_no_tool(memory, arguments, says):
    session, hand = await create(memory, "openai_chat", context_window=400_000), Hand()
    call = ScriptedCall(name="read", arguments=arguments)
    provider = ScriptedProvider("openai_chat", [call, "Sorry."])
    await act(session, provider, [hand])
    assert hand.asked == []
    assert (await texts(memory, "tool"))[0].startswith(says)


async def test_a_call_that_is_not_permitted_never_starts(memory):
    async def never(asked):
        return f"{asked.arguments['path']} is not yours to read"

    session, hand = await create(memory), Hand(own={"check_permission": never})
    provider = claude(ScriptedCall(name="read", arguments={"path": "a"}), "I see.")
    told = await act(session, provider, [hand])
    assert hand.asked == []
    assert await started(memory) == []
    assert [(each.text, each.is_error) for each in of(ToolFinished, told)] == [
        ("a is not yours to read", True)
    ]
    assert results_in(provider.requests[1]) == ["a is not yours to read"]
    assert valid(provider)


async def test_whoever_is_asked_may_take_longer_than_the_tool(memory):
    asked = asyncio.Event()

    async def slowly(_):
        asked.set()
        await asyncio.sleep(0.4)

    session, hand = await create(memory), Hand(own={"check_permission": slowly, "timeout": 0.2})
    await act(session, claude(ScriptedCall(name="read"), "Done."), [hand])
    assert asked.is_set()
    assert await texts(memory, "tool") == ["done"]


async def test_a_turn_that_ends_while_somebody_is_asked_asks_again(memory):
    waits, answers = asyncio.Event(), 0

    async def permit(_):
        nonlocal answers
        answers += 1
        waits.set()
        if answers == 1:
            await asyncio.Event().wait()

    session, hand = await create(memory), Hand(own={"check_permission": permit})
    provider = claude(ScriptedCall(name="read"), "Done.")
    running = asyncio.create_task(run_turn(session, provider, [hand.tool], message=say()))
    await asyncio.wait_for(waits.wait(), WAIT)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await started(memory) == []
    await run_turn(await reopened(memory), provider, [hand.tool])
    assert len(hand.asked) == 1
    assert await texts(memory, "tool") == ["done"]


async def test_no_arguments_are_an_empty_object(memory):
    session, hand = await create(memory, "openai_chat"), Hand()
    provider = ScriptedProvider("openai_chat", [ScriptedCall(name="read", arguments=""), "Done."])
    await act(session, provider, [hand])
    assert hand.asked[0].arguments == {}


async def test_ids_that_come_twice_in_one_reply_keep_their_results_apart(memory):
    """The first waits for nobody, the second must not overtake it: order alone tells them apart."""
    session = await create(memory, "openai_chat")
    other = asyncio.Event()

    async def gives(asked):
        if asked.arguments["path"] == "1":
            await other.wait()
        if asked.arguments["path"] == "3":
            other.set()
        return f"of {asked.arguments['path']}"

    calls = [
        ScriptedCall(name="read", id="x", arguments={"path": "1"}),
        ScriptedCall(name="read", id="x", arguments={"path": "2"}),
        ScriptedCall(name="read", id="y", arguments={"path": "3"}),
    ]
    hand, provider = Hand(gives=gives), ScriptedProvider("openai_chat", [calls, "Done."])
    async with asyncio.timeout(WAIT):
        await act(session, provider, [hand])
    sent = [each for each in provider.requests[1]["messages"] if each["role"] == "tool"]
    assert [each["content"] for each in sent] == ["of 1", "of 2", "of 3"]
    assert len({each["tool_call_id"] for each in sent}) == 3
    assert len(set(hand.keys)) == 3


async def test_an_id_that_comes_again_in_a_turn_has_another_key(memory):
    """Some servers number the calls of each reply from 0."""
    session, hand = await create(memory, "openai_chat"), Hand()
    call = ScriptedCall(name="read", id="call_0")
    provider = ScriptedProvider("openai_chat", [call, call, "Done."])
    await act(session, provider, [hand])
    assert len(set(hand.keys)) == 2
    assert await texts(memory, "tool") == ["done", "done"]


async def test_recall_tools_are_answered_within_bounds_and_under_the_policy(memory):
    session = await create(memory, recall=True, policy="compact")
    long = "\n".join(f"line {n} of the long file" for n in range(4_000))
    hand = Hand(gives=long)
    provider = claude(ScriptedCall(name="read"), "It is long.")
    await act(session, provider, [hand])
    assert len(results_in(provider.requests[1])[0]) < len(long)
    (handle,) = [
        f"m{event.seq}.0"
        async for event in memory.events("s")
        if isinstance(event.body, MessageAdded) and event.body.message.results
    ]
    provider = claude(
        [
            ScriptedCall(name="recall", arguments={"handle": handle, "lines": "3990-3992"}),
            ScriptedCall(name="search_history", arguments={"query": "long file"}),
            ScriptedCall(name="recall", arguments={"handle": "m999"}),
            ScriptedCall(name="recall", arguments={"handle": handle}),
        ],
        "There it is.",
    )
    told = await act(session, provider, [hand], says="And line 3990?")
    excerpt, hits, missing, whole = results_in(provider.requests[1])[1:]
    assert "line 3990 of" in excerpt
    assert "line 3980 of" not in excerpt
    assert handle in hits
    assert "m999" in missing
    kept = (await texts(memory, "tool"))[-1]
    assert len(kept) < len(long)  # an answer is bounded,
    assert len(whole) < len(kept)  # and what is sent of it is what the policy leaves
    assert len(hand.asked) == 1
    assert len(of(ToolStarted, told)) == len(of(ToolFinished, told)) == 4
    assert [
        said.recalled for said in await found(memory, MessageAdded) if said.message.results
    ] == [*(False, True, True, True, True)]


async def test_recall_tools_that_were_not_offered_are_unknown(memory):
    session = await create(memory, recall=False)
    provider = claude(ScriptedCall(name="recall", arguments={"handle": "m1"}), "Sorry.")
    await act(session, provider, [Hand()])
    assert await texts(memory, "tool") == ["unknown tool; there is read"]


async def test_tools_are_set_once_and_the_prefix_stays(store):
    session = await create(store, recall=True)
    hands = [Hand(name="read"), Hand(name="list")]
    provider = claude("One.", "Two.", "Three.", "Four.")
    await act(session, provider, hands)
    settings = settings_in(await log(store))
    assert len(settings) == 2
    await act(session, provider, hands, says="Again.")
    twin = await reopened(store)
    await act(twin, provider, hands, says="After a restart.")
    assert settings_in(await log(store)) == settings
    first, *later = [(each["tools"], each["system"]) for each in provider.requests]
    assert later == [first] * 2
    await act(twin, provider, hands[:1], says="With fewer.")
    assert len(settings_in(await log(store))) == 3
    assert twin.window.settings.tools != settings[-1].tools


async def test_tools_in_another_dialects_form_are_set_once_too(memory):
    session = await create(memory, "openai_chat")
    function = {"name": "read", "parameters": {"type": "object", "properties": {}}}
    tool = Tool(definition={"type": "function", "function": function}, run=Hand().run)
    assert tool.name == "read"
    provider = ScriptedProvider("openai_chat", ["One.", "Two."])
    for words in ("a", "b"):
        await run_turn(session, provider, [tool], message=say(words))
    assert len(settings_in(await log(memory))) == 2


def test_a_tool_is_named_in_every_dialects_form():
    assert Tool(definition=definition("read"), run=Hand().run).name == "read"
    assert Tool(definition={"type": "function", "name": "a"}, run=Hand().run).name == "a"


async def test_after_a_restart_a_turn_without_the_functions_of_its_tools_is_refused(memory):
    session = await create(memory, "anthropic")
    await act(session, claude("Hello."), [Hand("balance")])
    position = await memory.position(session.id)
    again = await reopened(memory)
    with pytest.raises(ValueError, match=r"tools without a function: balance.*pass the functions"):
        await run_turn(again, claude("Yes."), message=say("And now?"))
    assert await memory.position(session.id) == position, "nothing was added"
    await again.configure(goal="cost")
    with pytest.raises(ValueError, match="tools without a function: balance"):
        await run_turn(again, claude("Yes."), message=say("And now?"))
    finished = await run_turn(again, claude("Yes."), [], message=say("And now?"))
    assert finished.text == "Yes."
    assert again.window.settings.tools == ()


async def test_a_session_that_began_with_definitions_alone_may_have_its_functions_elsewhere(memory):
    session = await create(memory, "anthropic", tools=[definition("read")])
    finished = await run_turn(session, claude("Hello."), message=say("Hello."))
    assert finished.text == "Hello."


async def test_none_keeps_the_tools_of_the_session_with_their_functions(memory):
    session = await create(memory, "anthropic")

    @tool
    def balance() -> str:
        return "100 francs"

    await run_turn(session, claude("Hello."), [balance], message=say("Hello."))
    provider = ScriptedProvider("anthropic", [ScriptedCall(name="balance", arguments={}), "100."])
    await run_turn(session, provider, message=say("How much?"))
    assert "100 francs" in str(provider.requests[-1])


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SystemExit(2), "SystemExit: 2"),
        (StopIteration(), "RuntimeError: the function raised StopIteration"),
    ],
)
async def test_a_function_that_would_end_the_program_fails_like_any_other(memory, error, text):
    session = await create(memory, "anthropic")

    @tool
    def parse() -> str:
        raise error

    provider = ScriptedProvider(
        "anthropic", [ScriptedCall(name="parse", arguments={}), "It failed."]
    )
    finished = await run_turn(session, provider, [parse], message=say("Parse."))
    assert finished.text == "It failed."
    assert text in str(provider.requests[-1])


async def test_each_attempt_of_a_provider_with_retries_is_an_event(memory):
    session = await create(memory, "anthropic")
    failures = [
        ProviderFailureDetails(kind="overloaded", message="busy"),
        ProviderFailureDetails(kind="rate_limit", message="slow down", retry_after=3.0),
    ]

    async def no_wait(_seconds):
        pass

    inner = ScriptedProvider("anthropic", [*failures, "Done."])
    provider = with_retries(inner, sleep=no_wait, random_fraction=lambda: 0.0)
    told = []
    await run_turn(session, provider, message=say("Hello."), on_event=told.append)
    assert of(ModelCallRetried, told) == [
        ModelCallRetried(kind="overloaded", reason="busy", wait_s=0.0),
        ModelCallRetried(kind="rate_limit", reason="slow down", wait_s=3.0),
    ]
