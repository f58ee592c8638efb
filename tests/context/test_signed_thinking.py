"""One long turn with signed thinking goes on for as long as it takes."""

from typing import Any

import pytest

from tests.context.user_texts import filler, fits, person, talking, tokens, told
from trimtab import Context, check

QUESTION = "Write all the modules of the new billing service, one after the other."
THINKING = {"type": "enabled", "budget_tokens": 4_000}
WINDOW = 200_000
WRITE = {"name": "write", "description": "Write a file.", "input_schema": {"type": "object"}}


def thought(number):
    return {
        "type": "thinking",
        "thinking": f"{number}: {filler(400, f'thought {number}')}",
        "signature": f"sig{number:05}AbCd==",
    }


def step(context, number):
    made = {"path": f"src/module_{number}.py", "text": filler(2_000, f"module {number}")}
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "write", "input": made}
    context.add({"role": "assistant", "content": [thought(number), call]})
    done = {"type": "tool_result", "tool_use_id": call["id"], "content": f"Wrote {number}."}
    context.add({"role": "user", "content": [done]})


def bare(block):
    return {key: value for key, value in block.items() if key != "cache_control"}


def blocks_of(message) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def broken_in(request, said):
    """What Anthropic would not take, or the model could not make sense of; by our own rules."""
    messages = request["messages"]
    for at, message in enumerate(messages):
        blocks = [bare(block) for block in blocks_of(message)]
        if message["role"] == "assistant":
            thoughts = [block for block in blocks if "thinking" in block["type"]]
            if any(block not in said for block in thoughts):
                yield f"message {at}: thinking that was never said so"
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        behind = blocks_of(messages[at + 1]) if at + 1 < len(messages) else []
        answered = [each["tool_use_id"] for each in behind if each["type"] == "tool_result"]
        if asked != answered:
            yield f"message {at}: calls {asked}, and results {answered} behind them"
    if messages and any(each["type"] == "tool_result" for each in blocks_of(messages[0])):
        yield "a result without a call stands first"
    if QUESTION not in told(request):
        yield "the question is gone"


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [160, pytest.param(400, marks=pytest.mark.soak)])
def test_a_turn_of_many_rounds_with_signed_thinking_always_fits(rounds):
    context = talking(WINDOW, tools=[WRITE], params={"thinking": THINKING})
    context.add(person(QUESTION))
    said = []
    for number in range(rounds):
        request = context.request()
        if number % 8 == 0 or number == rounds - 1:
            assert fits(request, WINDOW)
            assert check(request) == []
            assert list(broken_in(request, said)) == []
        said.append(thought(number))
        step(context, number)
    request = context.request()
    assert check(request) == []
    assert list(broken_in(request, said)) == []
    last = blocks_of(request["messages"][-2])
    assert bare(last[0]) == thought(rounds - 1)
    assert last[-1]["input"]["text"] == filler(2_000, f"module {rounds - 1}")


def test_earlier_words_stay_while_a_long_turn_with_signed_thinking_goes_on():
    context = talking(32_000, tools=[WRITE], params={"thinking": THINKING})
    rule = "Never touch billing/legacy_1.sql, whatever I ask for."
    context.add(person(rule))
    context.request()
    context.add({"role": "assistant", "content": [{"type": "text", "text": "I will not."}]})
    context.add(person(QUESTION))
    for number in range(30):
        request = context.request()
        assert check(request) == []
        assert rule in told(request)
        step(context, number)


def test_the_oracle_sees_thinking_that_was_changed_and_calls_without_results():
    call = {"type": "tool_use", "id": "a", "name": "write", "input": {}}
    request = {
        "messages": [
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": [thought(1) | {"thinking": "cut"}, call]},
            {"role": "user", "content": "go on"},
        ]
    }
    found = " ".join(broken_in(request, [thought(1)]))
    assert "never said" in found
    assert "results []" in found


def test_erasing_what_was_thought_changes_nothing_about_which_rounds_go_together():
    whole = talking(WINDOW, policy="compact", tools=[WRITE], params={"thinking": THINKING})
    whole.add(person(QUESTION))
    for number in range(4):
        step(whole, number)
    before = [group.first for group in whole.window.conversation.groups]
    thoughts = [seq for seq, said in whole.window.entries.items() if said.message.calls]
    for seq in thoughts[1:3]:
        whole.erase(f"m{seq}.0")
    assert [group.first for group in whole.window.conversation.groups] == before
    again = Context.load(whole.dump(), tokenizer=tokens)
    assert [group.first for group in again.window.conversation.groups] == before
    assert list(broken_in(whole.request(), [thought(0), thought(3)])) == []


def test_what_was_thought_stays_with_its_family_when_other_parts_are_erased():
    context = Context("deepseek/deepseek-reasoner", dialect="openai_chat")
    context.add(person("Is 91 prime?"))
    said = {"role": "assistant", "content": "No.", "reasoning_content": "7 times 13"}
    handle = context.add(said)
    context.add(person("And 97?"))
    context.erase(f"{handle}.1")
    assert "7 times 13" in str(context.request())
    context.configure(model="qwen/qwen3-coder", dialect="openai_chat")
    assert "7 times 13" not in str(context.request())


@pytest.mark.parametrize(
    "cut_off",
    [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "thinking", "thinking": "hm"},
    ],
)
def test_a_reply_that_was_cut_off_while_thinking_is_sent_without_it(cut_off):
    context = Context("claude-sonnet-4-5")
    context.add({"role": "user", "content": "go"})
    context.add({"role": "assistant", "content": [cut_off]})
    context.add({"role": "user", "content": "more"})
    request = context.request()
    assert check(request) == []
    assert [block["type"] for block in request["messages"][1]["content"]] == ["text"]
