"""Document 1, Agent Context Management: files are cut, and old results become lines."""

from __future__ import annotations

import re
from itertools import count, pairwise
from typing import Any

import pytest

from tests.documents.product import (
    COMPACT,
    EXEMPT,
    FULL,
    TURN_LOG,
    CannotFit,
    Ending,
    Life,
    Talk,
    asks,
    cheap,
    compact_threshold,
    definition,
    fitted,
    logged,
    overflow,
    script,
    tool,
    tool_knobs,
)
from tests.documents.reading import assert_paired, calls, dumped, results, said_bytes
from tests.documents.words import prose, viewed

CALLING = re.compile(r"INFO Calling AI with (\d+) messages \(~(\d+) bytes, ~(\d+) tokens\)")
EXCEEDS = re.compile(
    r"INFO Context size (\d+) bytes exceeds limit 50000, compacting old tool results\.\.\."
)
COMPACTED = re.compile(r"INFO Context compacted: (\d+) bytes -> (\d+) bytes \(saved (\d+) bytes\)")
LINE = "[Previously viewed: File: src/f{}.rs]"


def compacting(**options: Any) -> Talk:
    own: dict[str, Any] = {"preset": COMPACT, "tools": [definition()], **options}
    talk = Talk(**own)
    talk.user("go")
    return talk


def lines_of(sent: list[str]) -> int:
    """How many results have become their first lines; fails where those are not the oldest."""
    made = [text.startswith("[Previously viewed: ") for text in sent]
    assert made == sorted(made, reverse=True)
    return sum(made)


class Viewing:
    """A turn of `view_file` calls, with what was sent and what was logged."""

    def __init__(self, *replies: Any, text: Any = viewed, **options: Any) -> None:
        self.model, self._text, self._options = script(*replies, "Done."), text, options
        self.lines: list[str] = []

    async def run(self) -> Ending:
        numbers = count()
        life = await Life.begin(COMPACT, **self._options)
        view = tool(lambda _: self._text(next(numbers)), "view_file")
        with logged(TURN_LOG) as self.lines:
            return await life.turn(self.model, tools=[view])

    def logged(self, pattern: re.Pattern[str]) -> list[tuple[int, ...]]:
        """The numbers of each line of this form."""
        found = map(pattern.fullmatch, self.lines)
        return [tuple(map(int, match.groups())) for match in found if match]


def test_of_a_file_above_4000_bytes_the_first_4000_are_sent_and_it_says_so():
    whole = prose(9_000)
    (sent,) = results(compacting().rounds(whole))
    assert sent == whole[:4_000] + "...\n[truncated, showing first 4000 bytes of 9000 total]"


def test_a_file_of_4000_bytes_is_sent_whole():
    whole = prose(4_000)
    assert results(compacting().rounds(whole)) == [whole]


def test_the_cut_moves_back_to_a_character_and_states_the_bytes_that_are_kept():
    (sent,) = results(compacting().rounds("a" + "é" * 4_000))
    assert sent == "a" + "é" * 1_999 + "...\n[truncated, showing first 3999 bytes of 8001 total]"
    (sent,) = results(compacting().rounds("ab" + "€" * 3_000))
    assert sent == "ab" + "€" * 1_332 + "...\n[truncated, showing first 3998 bytes of 9002 total]"


def test_up_to_50000_bytes_nothing_is_compacted():
    talk = compacting()
    whole = [viewed(n) for n in range(12)]
    request = talk.rounds(*whole)
    assert 46_000 < said_bytes(request) <= 50_000
    assert results(request) == whole


def test_above_50000_bytes_all_but_the_newest_6_results_become_their_first_lines():
    talk = compacting()
    request = talk.rounds(*(viewed(n) for n in range(13)))
    assert results(request)[:7] == [LINE.format(n) for n in range(7)]
    assert results(request)[7:] == [viewed(n) for n in range(7, 13)]
    assert len(calls(request)) == 13
    assert_paired(request)


@pytest.mark.parametrize(
    ("goal", "threshold", "keep"), [("cost", 30_000, 4), ("quality", 80_000, 10)]
)
def test_a_goal_sets_the_threshold_and_what_is_kept(goal, threshold, keep):
    talk, numbers, sent = compacting(goal=goal), count(), 0
    while not lines_of(texts := results(talk.request())):
        assert sent <= threshold
        sent = said_bytes(talk.request()) + len(viewed(0))
        talk.rounds(viewed(next(numbers)))
    assert sent > 0.98 * threshold
    assert len(texts) - lines_of(texts) == keep


@pytest.mark.parametrize("keep", [2, 9])
def test_the_number_of_results_that_stay_whole_may_be_set(keep):
    talk = compacting(knobs={"tool_result_keep_last": keep})
    assert lines_of(results(talk.rounds(*(viewed(n) for n in range(13))))) == 13 - keep


def test_the_threshold_in_bytes_may_be_set():
    try:
        talk = compacting(knobs=compact_threshold(20_000))
    except (TypeError, ValueError) as error:
        raise AssertionError("there is no setting for the threshold in bytes") from error
    assert lines_of(results(talk.rounds(viewed(0), viewed(1), viewed(2), viewed(3)))) == 0
    sent = results(talk.rounds(*(viewed(n) for n in range(4, 9))))
    assert len(sent) - lines_of(sent) == 6


@pytest.mark.parametrize("tokens", [500, 2_000])
def test_what_is_kept_of_a_file_may_be_set(tokens):
    whole = prose(40_000)
    (sent,) = results(compacting(knobs={"max_tool_result_tokens": tokens}).rounds(whole))
    head, indicator = sent.rsplit("\n", 1)
    assert whole.startswith(head)
    assert 4 * tokens - 100 <= len(sent) <= 4 * tokens
    assert indicator == f"[truncated: kept first ~{tokens} of ~10000 tokens (head)]"


@pytest.mark.anyio
async def test_each_call_logs_its_messages_bytes_and_tokens():
    turn = Viewing(*asks(4, "view_file"))
    await turn.run()
    told = turn.logged(CALLING)
    assert [messages for messages, _, _ in told] == [1, 3, 5, 7, 9]
    for (_, size, tokens), request in zip(told, turn.model.requests, strict=True):
        assert said_bytes(request) <= size <= said_bytes(request) * 1.02 + 20
        assert size / 4 <= tokens < size / 4 + 1


@pytest.mark.anyio
async def test_a_compaction_logs_the_size_that_exceeds_the_limit():
    turn = Viewing(*asks(13, "view_file"))
    await turn.run()
    (told,) = turn.logged(EXCEEDS)
    assert 50_000 < told[0] < 50_000 + len(viewed(0)) + 100


@pytest.mark.anyio
async def test_a_compaction_logs_what_it_saved():
    turn = Viewing(*asks(13, "view_file"))
    await turn.run()
    ((before, after, saved),) = turn.logged(COMPACTED)
    assert before - after == saved
    assert before == turn.logged(EXCEEDS)[0][0]
    assert after == turn.logged(CALLING)[-1][1]


@pytest.mark.anyio
async def test_a_file_that_is_cut_when_it_is_fetched_is_not_logged_as_a_compaction():
    turn = Viewing(*asks(12, "view_file"), text=lambda n: viewed(n, 9_900))
    await turn.run()
    assert [line for line in turn.lines if "compact" in line] == []


@pytest.mark.anyio
async def test_the_size_that_is_logged_counts_a_file_as_it_was_cut_when_fetched():
    turn = Viewing(*asks(16, "view_file"), text=lambda n: viewed(n, 9_900))
    await turn.run()
    exceeded, compacted = turn.logged(EXCEEDS), turn.logged(COMPACTED)
    assert len(exceeded) == len(compacted) > 0
    assert exceeded[0][0] == compacted[0][0]
    assert 50_000 < exceeded[0][0] < 50_000 + 5_000


@pytest.mark.anyio
async def test_after_a_token_limit_error_the_3_newest_results_stay_and_the_user_is_told():
    turn = Viewing(*asks(11, "view_file"), overflow(), window=200_000)
    ended = await turn.run()
    assert ended.why == "done"
    refused, sent = turn.model.requests[-2:]
    assert lines_of(results(refused)) == 0
    assert results(sent)[:8] == [LINE.format(n) for n in range(8)]
    assert results(sent)[8:] == [viewed(n) for n in range(8, 11)]
    assert said_bytes(sent) <= 30_000
    assert ended.notices == ["Context was compacted and truncated to fit token limits."]
    assert_paired(sent)


@pytest.mark.anyio
async def test_if_3_results_are_still_too_large_they_are_cut_to_1000_characters():
    turn = Viewing(
        *asks(5, "view_file"),
        overflow(),
        text=lambda n: prose(60_000, f"r{n}"),
        window=200_000,
        knobs={"max_tool_result_tokens": 20_000},
    )
    assert (await turn.run()).why == "done"
    sent = results(turn.model.requests[-1])
    assert lines_of(sent) == 2
    for number, text in enumerate(sent[2:], 2):
        assert prose(60_000, f"r{number}").startswith(text[:800])
        assert 900 <= len(text) <= 1_100
        assert "[truncated" in text


@pytest.mark.anyio
async def test_a_second_refusal_in_a_row_is_an_error_that_says_what_to_do_and_the_session_goes_on():
    life, refusing = await Life.begin(COMPACT), script(overflow(), overflow(), overflow())
    with pytest.raises(CannotFit, match=r"prompt is too long.*Set context_window to"):
        await life.turn(refusing, "x " * 500)
    assert len(refusing.requests) == 2
    model = script("Fine.")
    assert (await life.turn(model, "And now?")).why == "done"
    assert "And now?" in dumped(model.requests[0]["messages"][-1])


@pytest.mark.anyio
async def test_50_iterations_may_be_allowed():
    life, model = await Life.begin(COMPACT), script(*asks(49), "Done.")
    ended = await life.turn(model, tools=[tool(lambda _: "ok")], iterations=50)
    assert (ended.why, ended.calls) == ("done", 50)


def test_the_size_of_a_context_counts_texts_calls_and_results():
    talk = Talk(preset=FULL, tools=[definition()])
    sizes = [talk.bytes]
    for add in (
        lambda: talk.user("é" * 100),
        lambda: talk.call("read", path="b" * 1_000),
        lambda: talk.result("c" * 500),
    ):
        add()
        sizes.append(talk.bytes)
    grown = [later - earlier for earlier, later in pairwise(sizes)]
    assert sizes[0] == 0
    assert grown[0] == 200
    assert 1_000 + len("read") + len("path") <= grown[1] <= 1_050
    assert 500 <= grown[2] <= 510


@pytest.mark.anyio
async def test_a_smaller_model_may_tell_what_a_long_result_says():
    life = await Life.begin(COMPACT, knobs={"tool_result_truncation": "summary"})
    told = "- module_0.go to module_5999.go were compiled"
    small, model = script(told), script(*asks(1), "Done.")
    build = tool(lambda _: "\n".join(f"step {n}: module_{n}.go" for n in range(6_000)))
    await life.turn(model, tools=[build], summariser=cheap(small, single_results=True))
    (sent,) = results(model.requests[-1])
    assert told in sent
    assert len(sent) < 6_000, "of 140,000"
    assert len(small.requests) == 1


def test_an_important_file_stays_whole_if_it_is_pinned_or_its_tool_is_exempt():
    talk = compacting()
    talk.request()
    talk.call()
    talk.pin(talk.result(viewed(100)))
    sent = results(talk.rounds(*(viewed(n) for n in range(14))))
    assert sent[0] == viewed(100)
    assert sent[1].startswith("[Previously viewed: ")
    tools = [definition(), definition("read_config")]
    talk = compacting(tools=tools, knobs=tool_knobs("read_config", **EXEMPT))
    talk.rounds(prose(9_000), tool="read_config")
    sent = results(talk.rounds(*(viewed(n) for n in range(14))))
    assert sent[0] == prose(9_000)
    assert sent[1].startswith("[Previously viewed: ")


def test_a_real_tokenizer_may_count():
    talk = Talk("gpt-4o", preset=FULL, tokenizer=lambda text: 7 * len(text.split()))
    before = talk.used
    talk.user("one two three " * 100)
    assert 7 * 300 <= talk.used - before <= 7 * 300 + 20


@pytest.mark.anyio
async def test_usage_of_a_streamed_reply_is_known():
    life, model = await Life.begin(COMPACT), script("Hello there, and welcome on board.")
    await life.turn(model)
    assert model.requests[0]["stream"] is True
    assert life.usage["input"] > 0
    assert life.usage["output"] > 5


def test_results_that_stay_are_counted_over_turns():
    talk = compacting()
    talk.rounds(*(viewed(n) for n in range(8)))
    talk.reply("ok")
    talk.user("more")
    sent = results(talk.rounds(*(viewed(n) for n in range(8, 13))))
    assert len(sent) - lines_of(sent) == 6


def view_list(count: int) -> list[dict[str, Any]]:
    """A list of one's own in which so many files were viewed, in OpenAI's form."""
    history: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for n in range(count):
        function = {"name": "read", "arguments": "{}"}
        call = {"id": f"c{n}", "type": "function", "function": function}
        history.append({"role": "assistant", "content": None, "tool_calls": [call]})
        history.append({"role": "tool", "tool_call_id": f"c{n}", "content": viewed(n)})
    return history


def test_a_list_of_ones_own_is_compacted_above_50000_bytes():
    request = fitted(view_list(13), "gpt-4o", preset=COMPACT).request
    sent = [each["content"] for each in request["messages"] if each["role"] == "tool"]
    assert sent[:7] == [LINE.format(n) for n in range(7)]
    assert sent[7:] == [viewed(n) for n in range(7, 13)]


@pytest.mark.parametrize("files", [8, 20])
def test_both_parameters_of_compaction_bind_for_a_list_of_ones_own(files):
    knobs = {**compact_threshold(30_000), "tool_result_keep_last": 3}
    request = fitted(view_list(files), "gpt-4o", preset=COMPACT, knobs=knobs).request
    sent = [each["content"] for each in request["messages"] if each["role"] == "tool"]
    assert len(sent) - lines_of(sent) >= 3
    assert sum(len(text.encode()) for text in sent) <= 30_000


@pytest.mark.parametrize(("files", "size", "kept"), [(12, 3_900, 30_000), (3, 30_000, 3_300)])
def test_in_a_loop_of_ones_own_a_token_limit_error_leaves_3_results_or_1000_characters(
    files, size, kept
):
    talk = compacting(knobs={"max_tool_result_tokens": 20_000})
    talk.rounds(*(viewed(n, size) for n in range(files)))
    body = {"error": {"message": "prompt is too long"}}
    assert talk.refused(400, body) == "overflow"
    sent = results(talk.request())
    assert len(sent) - lines_of(sent) == 3
    assert sum(len(text.encode()) for text in sent) <= kept


@pytest.mark.parametrize(
    "message",
    [
        "prompt is too long: 212345 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 195000 + 8192 > 200000",
        "This model's maximum context length is 128000 tokens. However, you requested 130000.",
        "Your input exceeds the context window of this model. Please adjust your input.",
        "Input is too long for requested model.",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "the request exceeds the available context size. try increasing the context size",
        "This endpoint's maximum context length is 163840 tokens. However, you requested 170000",
        "Prompt contains 9 tokens and 0 draft tokens, too large for model with 8 maximum context",
        "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
    ],
)
def test_a_token_limit_error_is_recognised_in_every_providers_words(message):
    talk = compacting()
    talk.rounds(*(viewed(n) for n in range(4)))
    assert talk.refused(400, {"error": {"message": message}}) == "overflow"


def test_a_rate_limit_is_no_token_limit():
    talk = compacting()
    talk.request()
    body = {"error": {"message": "Rate limit reached for tokens per min"}}
    assert talk.refused(429, body) == "rate_limit"
