"""What stands for a provider's count is near a real one, and the numbers written down are real."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.adversary.counting import count, count_request, has_picture, sent
from tests.adversary.dice import Dice
from tests.adversary.sizes import ALPHABETS, BYTES, LONG
from tests.adversary.speech import user
from tests.adversary.texts import HALF, PIECES, png, text


@pytest.fixture(scope="module")
def o200k() -> Callable[[str], int]:
    return pytest.importorskip("rs_bpe.bpe").openai.o200k_base().count


@pytest.mark.parametrize("kind", PIECES)
def test_the_count_is_near_that_of_o200k(kind, o200k):
    said = sent(text(Dice("counting", kind), 8_000, kind))
    assert count(said) == pytest.approx(o200k(said), rel=0.2)


@pytest.mark.parametrize("alphabet", ALPHABETS, ids=lambda each: each.name)
def test_the_tokens_of_an_alphabet_are_those_of_o200k(alphabet, o200k):
    assert o200k(alphabet.text(BYTES)) == alphabet.tokens


@pytest.mark.parametrize("alphabet", ALPHABETS, ids=lambda each: each.name)
def test_each_part_of_a_text_of_one_alphabet_costs_as_much_as_any_other(alphabet, o200k):
    part = alphabet.text(LONG)[1_000:3_000]
    assert o200k(part) == pytest.approx(len(part) * alphabet.rate, rel=0.03)


def test_half_of_a_pair_is_no_text_to_a_tokenizer():
    with pytest.raises(UnicodeEncodeError):
        count(HALF)
    assert count(sent(HALF)) == 1


@pytest.mark.parametrize(
    "request_",
    [
        {"messages": [{"role": "user", "content": "one two"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "one two"}]}]},
        {"input": [{"role": "user", "content": "one two"}]},
        {"input": [{"type": "function_call_output", "call_id": "a", "output": "one two"}]},
        {
            "messages": [
                {"role": "user", "content": [{"type": "tool_result", "content": "one two"}]}
            ]
        },
    ],
)
def test_a_text_counts_wherever_it_stands(request_):
    assert count_request(request_) == 3 + 4 + 2


def test_calls_prompts_and_tools_count():
    call = {"id": "a", "function": {"name": "read", "arguments": "one two"}}
    chat = {"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]}
    item = {"type": "function_call", "name": "read", "arguments": "one two"}
    assert count_request(chat) == count_request({"input": [item]}) == 3 + 4 + 8 + 3
    assert count_request({"instructions": "one two", "input": []}) == 3 + 2
    assert count_request({"tools": [{"name": "read"}], "messages": []}) > 3


@pytest.mark.parametrize("dialect", ["anthropic", "openai_chat", "openai_responses"])
def test_a_picture_is_seen_wherever_it_stands(dialect):
    name = "input" if dialect == "openai_responses" else "messages"
    assert has_picture({name: [user(dialect, "Look.", png(1, 1))]})
    assert not has_picture({name: [user(dialect, "Look.")]})
