"""The list of the user's words is kept at little cost."""

import pytest

from tests.context.user_texts import filler, listed, person, reply, talking, tokens


@pytest.mark.parametrize("recall", [True, False])
def test_a_compaction_counts_the_tokens_of_no_message_again(recall):
    said: list[str] = []
    counted: list[str] = []

    def counting(text: str) -> int:
        counted.append(text)
        return tokens(text)

    context = talking(8_000, tools=[], recall=recall, tokenizer=counting)
    request, longest = {}, 0
    for n in range(250):
        said.append(f"Question {n}: {filler(20, n)}")
        context.add(person(said[-1]))
        counted.clear()
        request = context.request()
        longest = max(longest, len(counted))
        assert not set(counted) & set(said), "a message is counted again"
        context.add(reply(filler(20, -n)))
    assert "older user messages" in listed(request), "the list never exceeded its allowance"
    # Most are lines of the extractive summary, whose number its size limits.
    assert longest < 250, f"one request counts {longest} texts"
