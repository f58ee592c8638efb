"""A provider that does not take what was said fails one turn, and not the session."""

import pytest

from tests.pictures import PNG_TEXT
from tests.session.turns.sessions import (
    Hand,
    act,
    claude,
    create,
    found,
    log,
    notices,
    of,
    reopened,
    results_in,
    say,
    texts,
    valid,
    words_in,
)
from trimtab.engine.log.event import CallOutcome, Edit, TurnProgressRecord
from trimtab.engine.log.message import Media, Text
from trimtab.errors import ProviderError, ProviderFailureDetails
from trimtab.session.events import (
    CONTENT_LEFT_OUT_NOTICE,
    ContextEdited,
    ModelCallFinished,
    ModelCallRetried,
    TurnFailed,
)
from trimtab.session.model_call_recovery import MAX_REJECTION_RETRIES, REVEAL_REASON
from trimtab.session.turn import run_turn
from trimtab.testing import ScriptedCall

pytestmark = pytest.mark.anyio

IMAGE = ProviderFailureDetails(kind="rejected", message="Could not process image", status=400)
POLICY = ProviderFailureDetails(
    kind="rejected", message="Output blocked by content filtering policy", status=400
)
SHOT = Media(kind="image", mime="image/png", data=PNG_TEXT)
PICTURE = {
    "role": "user",
    "content": [
        {"type": "text", "text": "What is it?"},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": PNG_TEXT},
        },
    ],
}


async def fails(session, provider, says, **how):
    told = []
    with pytest.raises(ProviderError) as caught:
        await run_turn(session, provider, message=says, on_event=told.append, **how)
    assert caught.value.failure.kind == "rejected"
    return told


async def test_the_turn_fails_with_the_providers_words_and_the_next_goes_without(memory):
    session = await create(memory)
    provider = claude("Hello to you.", IMAGE, "And now I see.")
    await act(session, provider, says="Hello.")
    told = await fails(session, provider, PICTURE)
    assert [each.outcome for each in of(ModelCallFinished, told)] == ["rejected"]
    assert [each.reason for each in of(TurnFailed, told)] == ["rejected"]
    assert (await found(memory, TurnProgressRecord))[-1].state == "ended"
    assert (await found(memory, CallOutcome))[-1].error == {
        "kind": "rejected",
        "message": "Could not process image",
    }
    await act(session, provider, says="Never mind.")
    assert PNG_TEXT not in words_in(provider.requests[2])
    assert "What is it?" in words_in(provider.requests[2])
    assert "Never mind." in words_in(provider.requests[2])
    assert await texts(memory, "user") == ["Hello.", "What is it?", "Never mind."]
    assert valid(provider)


async def test_another_process_goes_on_without_it_as_well(memory):
    session = await create(memory)
    await fails(session, claude(POLICY), say("Of herons."))
    provider = claude("Of swans.")
    await act(await reopened(memory), provider, says="Of swans, then.")
    assert "heron" not in words_in(provider.requests[0])


async def test_it_is_sent_again_where_nothing_else_is_said(memory):
    """As after an outage that a provider answered with a 400."""
    session = await create(memory)
    provider = claude(IMAGE, "A dot.")
    await fails(session, provider, PICTURE)
    await act(session, provider, says=None)
    assert words_in(provider.requests[1]) == words_in(provider.requests[0])
    assert await found(memory, Edit) == []


async def test_a_picture_that_a_tool_gave_is_replaced_and_the_turn_goes_on(memory):
    session = await create(memory)

    async def gives(_):
        return [Text(text="Saved as a.png."), SHOT]

    provider = claude(ScriptedCall(name="read"), IMAGE, "I could not see it.")
    told = await act(session, provider, [Hand(gives=gives)])
    assert PNG_TEXT in words_in(provider.requests[1])
    assert results_in(provider.requests[2]) == [
        "Saved as a.png.\n[left out: the provider did not take what else was here]"
    ]
    assert [each.cause for each in of(ContextEdited, told)] == ["recovery"]
    assert [each.reason for each in of(ModelCallRetried, told)] == ["Could not process image"]
    assert notices(told) == []
    assert valid(provider)


async def test_a_text_that_a_tool_gave_is_replaced_as_well(memory):
    session = await create(memory)
    provider = claude(ScriptedCall(name="read"), POLICY, "Let us talk of swans.")
    await act(session, provider, [Hand(gives="a page about herons")])
    assert results_in(provider.requests[2]) == ["[result left out: the provider did not take it]"]


async def test_what_was_left_out_in_vain_is_shown_again(memory):
    """It was not at fault: a provider may be out of order, and say so with a 400."""
    session = await create(memory)
    provider = claude(ScriptedCall(name="read"), POLICY, POLICY, "Well.")
    hand = Hand(gives="a page about swans")
    await fails(session, provider, say("Go."), tools=[hand.tool])
    assert results_in(provider.requests[2]) == ["[result left out: the provider did not take it]"]
    assert [(edit.op, edit.why) for edit in await found(memory, Edit)][-1] == (
        "reveal",
        REVEAL_REASON,
    )
    await act(session, provider, says=None)
    assert results_in(provider.requests[3]) == ["a page about swans"]
    assert len(hand.asked) == 1


async def test_when_the_user_goes_on_a_result_that_was_rejected_is_left_out(memory):
    session = await create(memory)
    provider = claude(ScriptedCall(name="read"), POLICY, POLICY, "Well.")
    hand = Hand(gives="a page about herons")
    await fails(session, provider, say("Go."), tools=[hand.tool])
    await act(session, provider, [hand], says="Something else.")
    assert results_in(provider.requests[3]) == ["[result left out: the provider did not take it]"]
    assert valid(provider)


async def test_an_older_picture_that_is_named_is_left_out_and_the_turn_goes_on(memory):
    session = await create(memory)
    words = (
        "messages.0.content.1.image.source.base64.data: At least one of the image dimensions "
        "exceed max allowed size for many-image requests: 2000 pixels"
    )
    named = ProviderFailureDetails(kind="rejected", message=words, status=400)
    provider = claude("A dot.", named, "As I said.")
    await run_turn(session, provider, message=PICTURE)
    told = await act(session, provider, says="And?")
    assert PNG_TEXT not in words_in(provider.requests[2])
    assert notices(told) == [CONTENT_LEFT_OUT_NOTICE]


async def test_a_call_is_not_made_without_end(memory):
    session = await create(memory)
    pictures = [PICTURE["content"][1]] * 1
    provider = claude(*["Seen."] * 12, *[IMAGE] * 40)
    for number in range(12):
        content = [{"type": "text", "text": str(number)}, *pictures]
        await run_turn(session, provider, message={"role": "user", "content": content})
    before = len(provider.requests)
    await fails(session, provider, say("And?"))
    assert len(provider.requests) - before <= MAX_REJECTION_RETRIES + 1


@pytest.mark.parametrize("kind", ["auth", "refused"])
async def test_what_is_about_the_account_hides_nothing_and_leaves_the_turn_open(memory, kind):
    session = await create(memory)
    failure = ProviderFailureDetails(
        kind=kind, message="Your credit balance is too low", status=400
    )
    provider = claude(failure, "A dot.")
    with pytest.raises(ProviderError):
        await run_turn(session, provider, message=PICTURE)
    assert (await found(memory, TurnProgressRecord))[-1].state == "claimed"
    await act(session, provider, says="Hello?")
    assert PNG_TEXT in words_in(provider.requests[1])
    assert [each for each in await log(memory) if isinstance(each, Edit)] == []
