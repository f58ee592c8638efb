from itertools import pairwise

import pytest

from trimtab.engine.log.message import Message, Text, ToolCall, ToolResult, make_text_message
from trimtab.engine.recall.search import Query
from trimtab.engine.recall.snippets import (
    MAX_EXTRA_SNIPPET_CHARS,
    MAX_SEARCH_ANSWER_TOKENS,
    MAX_SNIPPETS,
    SNIPPET_CHARS,
    find_best_snippets,
    format_best_snippets,
)
from trimtab.engine.tokens.counter import make_piecewise_counter

COUNTER = make_piecewise_counter("claude")
FILLER = "the log of the build says that it ran and that it was fine. " * 200


def user(text: str) -> Message:
    return make_text_message("user", text)


def shown(said: dict[int, Message], query: str, seen: tuple[int, ...] = ()) -> list[str]:
    return format_best_snippets(said, Query.parse(query), COUNTER, seen).split("\n\n")


def test_a_short_message_is_shown_whole_with_the_handle_of_its_part():
    message = Message(role="user", parts=(Text(text="Hello."), Text(text="The heron is grey.")))
    assert shown({7: message}, "heron") == ["m7.1: The heron is grey."]


def test_of_a_long_text_the_place_is_shown_that_holds_the_rare_words_together():
    text = f"build log heron {FILLER}The vault door of the build is green-4711.{FILLER}"
    (first, *_) = shown({3: user(text)}, "log of the vault door")
    assert "green-4711" in first
    assert first.startswith("m3.0: …")
    assert first.endswith("…")


def test_a_passage_that_holds_more_of_the_words_comes_before_a_newer_one():
    said = {1: user("vault door green"), 2: user("door"), 3: user("door")}
    assert [passage.seq for passage in find_best_snippets(said, Query.parse("vault door"))] == [
        1,
        3,
        2,
    ]


def test_what_is_seen_anyway_comes_last():
    said = {1: user("The door is open."), 2: user("The vault door is shut.")}
    assert [
        passage.seq
        for passage in find_best_snippets(said, Query.parse("door, vault"), visible_seqs=(2,))
    ] == [1, 2]


def test_a_word_counts_half_where_it_only_begins_another():
    said = {1: user("herons"), 2: user("heron"), 3: user("herons"), 4: user("stork")}
    assert [passage.seq for passage in find_best_snippets(said, Query.parse("heron"))] == [2, 3, 1]


def test_arguments_and_results_are_shown_but_not_what_the_recall_tools_were_asked():
    message = Message(
        role="assistant",
        parts=(
            ToolCall(id="a", name="search_history", arguments='{"query":"heron"}'),
            ToolCall(id="b", name="read", arguments='{"path":"heron.txt"}'),
            ToolResult(call_id="b", content=(Text(text="a heron"),)),
        ),
    )
    assert [passage.part for passage in find_best_snippets({1: message}, Query.parse("heron"))] == [
        1,
        2,
    ]


def test_no_two_passages_overlap_and_there_are_five_at_most():
    text = "heron " * 5_000
    chosen = find_best_snippets({1: user(text)}, Query.parse("heron"))
    assert len(chosen) == MAX_SNIPPETS
    starts = sorted(passage.first for passage in chosen)
    assert all(later - first >= SNIPPET_CHARS for first, later in pairwise(starts))


@pytest.mark.parametrize("word", ["x" * 5_000, "漢" * 5_000])
def test_an_endless_word_is_cut_all_the_same(word):
    for passage in find_best_snippets({1: user(f"heron {word}")}, Query.parse("heron")):
        assert len(passage.text) <= SNIPPET_CHARS + MAX_EXTRA_SNIPPET_CHARS + 2


def test_an_answer_keeps_within_its_tokens():
    said = {seq: user("漢字 heron " * 3_000) for seq in range(1, 9)}
    assert COUNTER.count("\n\n".join(shown(said, "heron"))) <= MAX_SEARCH_ANSWER_TOKENS


def test_words_at_the_ends_of_a_passage_are_whole():
    text = " ".join(f"word_{number:06}" for number in range(1_000))
    for passage in find_best_snippets({1: user(text)}, Query.parse("word_000500")):
        pieces = passage.text.strip("…").split()
        assert all(len(piece) == len("word_000000") for piece in pieces)


def test_nothing_is_found_without_any_of_the_words():
    assert format_best_snippets({1: user("stork")}, Query.parse("heron"), COUNTER) == ""
    assert format_best_snippets({}, Query.parse("heron"), COUNTER) == ""
    assert format_best_snippets({1: user("stork")}, Query.parse(""), COUNTER) == ""


def test_a_passage_with_the_query_as_it_is_written_comes_first_even_if_the_model_sees_it():
    texts = {1: user("the door of the vault"), 2: user("a vault door"), 3: user("vault of a door")}
    passages = find_best_snippets(texts, Query.parse("vault door"), visible_seqs=(2,))
    assert [passage.seq for passage in passages] == [2, 3, 1]
