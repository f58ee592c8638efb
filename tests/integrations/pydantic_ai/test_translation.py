"""What Trimtab gets of Pydantic AI's messages, and what comes back of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed here")

from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    CapabilityLoadDeltaPart,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolAvailabilityDeltaPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from tests import pictures
from trimtab import Context
from trimtab.integrations.pydantic_ai import _History, _Translations

DIALECTS: Any = ("openai_chat", "openai_responses", "anthropic")
MODELS = {
    "openai_chat": "gpt-4o",
    "openai_responses": "gpt-4o",
    "anthropic": "claude-sonnet-5-5",
}
PIXEL = pictures.png()
LONG = " ".join(f"word{index}" for index in range(4_000))


class Life:
    """A context that is given histories, as the capability gives them."""

    def __init__(self, dialect: Any, **options: Any) -> None:
        self.dialect = dialect
        self.context = Context(
            MODELS[dialect], dialect=dialect, recall="recall {handle}", **options
        )
        self.translations = _Translations()

    def send(self, history: list[ModelMessage]) -> list[ModelMessage]:
        translated = _History(history, self.translations, self.dialect)
        self.context.sync(translated.messages)
        self.context.request()
        return translated.assemble(self.context.view())


def make_round(number: int, text: str, **fields: Any) -> list[ModelMessage]:
    """Two parallel calls and their results, with thinking before and state after them."""
    ids = (f"call-{number}-a", f"call-{number}-b")
    return [
        ModelResponse(
            parts=[
                ThinkingPart(f"Hm, {number}.", signature="c2ln", provider_name="anthropic"),
                TextPart(f"I read {number}."),
                *(ToolCallPart("read", {"number": number}, each) for each in ids),
            ],
            provider_response_id=f"r{number}",
        ),
        ModelRequest(
            parts=[
                ToolReturnPart("read", text, ids[0], metadata={"kept": number}),
                ToolReturnPart("read", {"number": number}, ids[1]),
            ],
            instructions="Be careful.",
            **fields,
        ),
    ]


def make_history(rounds: int, text: str = LONG) -> list[ModelMessage]:
    history: list[ModelMessage] = [
        ModelRequest(parts=[SystemPromptPart("You read."), UserPromptPart("Read them all.")])
    ]
    for number in range(rounds):
        history += make_round(number, text)
    return history


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_unedited_goes_back_as_the_same_objects(dialect):
    history = make_history(3, "short")
    sent = Life(dialect).send(history)
    assert all(one is other for one, other in zip(sent, history, strict=True))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_edited_result_is_replaced_and_everything_beside_it_stays(dialect):
    history = make_history(12)
    before = [repr(message) for message in history]
    sent = Life(dialect, context_window=32_000).send(history)
    assert [repr(message) for message in history] == before
    edited = [message for message in sent if not any(message is own for own in history)]
    assert edited
    mine = {message.provider_response_id: message for message in history[1::2]}
    for message in sent:
        if isinstance(message, ModelResponse):
            assert message is mine[message.provider_response_id]
    own_results = {
        part.tool_call_id: (part, message) for message in history[2::2] for part in message.parts
    }
    for message in edited:
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                own, request = own_results[part.tool_call_id]
                assert message.instructions == request.instructions
                assert part is own or part == replace(own, content=part.content)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_picture_stays_in_a_prompt_whose_text_was_cut(dialect):
    picture = BinaryContent(PIXEL, media_type="image/png")
    tagged = TextContent("Look at it.", metadata={"from": "app"})
    prompt = UserPromptPart([LONG, CachePoint(), picture, tagged])
    history: list[ModelMessage] = [ModelRequest(parts=[prompt])]
    [request] = Life(dialect, context_window=12_000).send(history)
    [part] = request.parts
    assert part.timestamp == prompt.timestamp
    text, mark, *others = part.content
    assert "word0 word1" in text
    assert len(text) < len(LONG)
    assert isinstance(mark, CachePoint)
    assert others[0] is picture
    assert others[1] is tagged


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_summary_is_in_the_same_prompt_as_the_message_after_it(dialect):
    """Strict chat templates refuse two user messages in a row."""
    picture = BinaryContent(PIXEL, media_type="image/png")
    life = Life(dialect, context_window=16_000, policy="rolling")
    history: list[ModelMessage] = []
    for turn in range(40):
        content = [f"Question {turn}?", picture] if turn % 2 else f"Question {turn}?"
        history.append(ModelRequest(parts=[UserPromptPart(content)]))
        sent = life.send(history)
        history.append(ModelResponse(parts=[TextPart(LONG[:2_000])]))
    assert len(sent) < len(history) - 1
    for one, other in pairwise(sent):
        assert not (isinstance(one, ModelRequest) and isinstance(other, ModelRequest))
    [opening] = sent[0].parts
    assert not any(opening is part for message in history for part in message.parts)
    if isinstance(opening.content, list):
        assert opening.content[-1] is picture


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_frameworks_own_state_is_always_sent(dialect):
    """A request that is hidden may have revealed a tool, or loaded a capability."""
    history = make_history(14)
    revealed = ToolAvailabilityDeltaPart(tools_added=["late_tool"])
    loaded = CapabilityLoadDeltaPart(loaded=["refunds"])
    history[2] = replace(history[2], parts=[*history[2].parts, revealed, loaded])
    kind = ToolCallPart("load_capability", {"id": "x"}, "load-1", tool_kind="custom-kind")
    result = ToolReturnPart("load_capability", "Refund at once.", "load-1", tool_kind="custom-kind")
    history[3:3] = [ModelResponse(parts=[kind]), ModelRequest(parts=[result])]
    sent = Life(dialect, context_window=16_000, policy="layered").send(history)
    parts = [part for message in sent for part in message.parts]
    assert len(sent) < len(history)
    assert not any(message is history[2] for message in sent)
    for kept in (revealed, loaded, kind, result):
        assert sum(part is kept for part in parts) == 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_results_stand_before_everything_else_of_their_request(dialect):
    history = make_history(14)
    steering = UserPromptPart("And hurry up.")
    for request in history[2::2]:
        request.parts = [*request.parts, steering]
    for message in Life(dialect, context_window=20_000).send(history):
        kinds = [part.part_kind for part in message.parts]
        if "tool-return" in kinds and "user-prompt" in kinds:
            assert kinds == sorted(kinds, key=lambda kind: kind != "tool-return")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_call_that_is_sent_has_its_result(dialect):
    life = Life(dialect, context_window=16_000)
    history = make_history(0)
    for number in range(30):
        history += make_round(number, LONG[:4_000])
        sent = life.send(history)
        parts = [part for message in sent for part in message.parts]
        calls = [part.tool_call_id for part in parts if isinstance(part, ToolCallPart)]
        results = [part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)]
        assert sorted(calls) == sorted(results)


def test_a_missing_result_is_written_under_its_call():
    history = make_history(1, "short")
    history[2] = replace(history[2], parts=history[2].parts[:1])
    history.append(ModelRequest(parts=[UserPromptPart("Go on.")]))
    sent = Life("anthropic").send(history)
    [written] = [
        part
        for message in sent
        for part in message.parts
        if isinstance(part, ToolReturnPart) and part.tool_call_id == "call-0-b"
    ]
    assert written.tool_name == "read"


def test_a_part_that_was_changed_in_place_is_read_again():
    history = make_history(2, "short")
    life = Life("openai_chat")
    life.send(history)
    history[-1].parts[0].content = "another text"
    life.send(history)
    assert "another text" in str(life.context.request()["messages"])


def test_a_message_that_is_gone_is_forgotten():
    translations = _Translations()
    history = make_history(5, "short")
    _History(history, translations, "openai_chat")
    [known] = translations._by_dialect.values()
    assert len(known) == len(history)
    del history
    assert not known


def test_retries_files_and_native_tools_are_read():
    feedback = RetryFeedbackPart("No number.", retry=RetryInfo(cause="model_retry"))
    document = BinaryContent(b"a,b\n1,2\n", media_type="text/csv")
    sound = BinaryContent(b"\0" * 100, media_type="audio/wav")
    link = ImageUrl("https://example.com/a.png")
    failed = ToolReturnPart("read", "No such file.", "c1", outcome="failed")
    history: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(["See:", document, sound, link])]),
        ModelResponse(
            parts=[
                NativeToolCallPart("web_search", {"query": "x"}, "n1", provider_name="anthropic"),
                TextPart(""),
                ToolCallPart("read", '{"path": "a"}', "c1"),
            ]
        ),
        ModelRequest(parts=[failed, feedback]),
    ]
    life = Life("anthropic")
    sent = life.send(history)
    assert all(one is other for one, other in zip(sent, history, strict=True))
    texts = str(
        [message.parts for message in _History(history, _Translations(), "anthropic").messages]
    )
    for expected in (
        "a,b",
        "[audio/wav]",
        "https://example.com/a.png",
        "No number.",
        "is_error=True",
    ):
        assert expected in texts
