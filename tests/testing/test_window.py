"""The window is enforced to the token, in each provider's words."""

from __future__ import annotations

import sys

import pytest

from tests.lazy import anthropic, openai
from tests.testing.requests import CLAUDE, GPT, OLD_CLAUDE, TOOLS, long, told, user

ASKED = [user(long(300))]


def counted(simulator):
    return simulator.records.requests[-1].tokens


def ask_claude(client, model, max_tokens=50):
    return client.messages.create(model=model, max_tokens=max_tokens, messages=ASKED)


def test_claude_takes_a_prompt_of_just_its_window(claude, simulator):
    ask_claude(claude, CLAUDE)
    size = counted(simulator)
    simulator.configure(window=size)
    assert ask_claude(claude, CLAUDE).stop_reason == "model_context_window_exceeded"
    simulator.configure(window=size - 1)
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask_claude(claude, CLAUDE)
    words = f"prompt is too long: {size} tokens > {size - 1} maximum"
    assert told(caught)["error"]["message"] == words
    assert simulator.stats()["overflow"] == 1


def test_an_older_claude_takes_input_and_output_of_just_its_window(claude, simulator):
    ask_claude(claude, OLD_CLAUDE)
    size = counted(simulator)
    simulator.configure(window=size + 50)
    assert ask_claude(claude, OLD_CLAUDE, 50).stop_reason == "end_turn"
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask_claude(claude, OLD_CLAUDE, 51)
    words = f"input length and `max_tokens` exceed context limit: {size} + 51 > {size + 50}"
    assert words in told(caught)["error"]["message"]


def test_a_newer_claude_stops_where_the_window_ends(claude, simulator):
    ask_claude(claude, CLAUDE)
    simulator.configure(window=counted(simulator) + 20)
    simulator.script.set_replies([{"text": 100}])
    reply = ask_claude(claude, CLAUDE, 500)
    assert reply.stop_reason == "model_context_window_exceeded"
    assert 10 < reply.usage.output_tokens <= 20


def ask_gpt(client, tools, limit):
    more = {"tools": TOOLS["openai_chat"]} if tools else {}
    return client.chat.completions.create(model=GPT, messages=ASKED, max_tokens=limit, **more)


@pytest.mark.parametrize("tools", [False, True])
def test_chat_takes_input_and_output_of_just_the_window(gpt, simulator, tools):
    ask_gpt(gpt, tools, 50)
    size = counted(simulator)
    simulator.configure(window=size + 50)
    ask_gpt(gpt, tools, 50)
    with pytest.raises(openai.BadRequestError) as caught:
        ask_gpt(gpt, tools, 51)
    message = told(caught)["message"]
    start = f"This model's maximum context length is {size + 50} tokens. However, you requested "
    assert message.startswith(f"{start}{size + 51} tokens (")
    assert ("in the functions, and 51 in the completion)" in message) is tools
    assert caught.value.code == "context_length_exceeded"


def test_responses_tells_an_overflow_by_status_or_inside_the_stream(gpt, simulator):
    given = {"model": GPT, "input": long(300), "max_output_tokens": 50}
    gpt.responses.create(**given)
    simulator.configure(window=counted(simulator) + 50)
    gpt.responses.create(**given)
    simulator.configure(window=counted(simulator) + 49)
    with pytest.raises(openai.BadRequestError) as caught:
        gpt.responses.create(**given)
    assert caught.value.code == "context_length_exceeded"
    events = list(gpt.responses.create(**given, stream=True))
    kinds = ["response.created", "response.in_progress", "response.failed"]
    assert [event.type for event in events] == kinds
    assert events[-1].response.error.code == "context_length_exceeded"
    assert "exceeds the context window of this model" in events[-1].response.error.message


def test_a_heavier_tokenizer_counts_more_of_everything(claude, simulator):
    ask_claude(claude, CLAUDE)
    size = counted(simulator)
    simulator.configure(heavier=1.3)
    ask_claude(claude, CLAUDE)
    assert size * 1.3 <= counted(simulator) < size * 1.3 + 1


def test_tokenizers_are_real_and_differ(gpt, simulator):
    text = "Быстрая лиса прыгает через собаку. " * 20
    sizes: list[int] = []
    for name in ("o200k_base", "cl100k_base", len):
        simulator.configure(tokenizer=name)
        gpt.chat.completions.create(model=GPT, messages=[user(text)])
        sizes.append(counted(simulator))
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == len(text) + 4 + 3


def test_without_the_vocabularies_it_counts_by_the_estimate(gpt, simulator, monkeypatch):
    sizes: list[int] = []
    for tokenizer in ("o200k_base", "estimate", None):
        simulator.configure(tokenizer=tokenizer)
        if tokenizer is None:
            monkeypatch.setitem(sys.modules, "rs_bpe", None)
        gpt.chat.completions.create(model=GPT, messages=ASKED)
        sizes.append(counted(simulator))
    assert sizes[0] != sizes[1] == sizes[2]


def test_ollama_cuts_in_silence(gpt, simulator):
    simulator.configure(window=400, truncates=True)
    reply = gpt.chat.completions.create(model="llama3", messages=ASKED, max_tokens=50)
    assert reply.usage.prompt_tokens == 200 < counted(simulator)
    assert simulator.stats()["refused"] == 0
