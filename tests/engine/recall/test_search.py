import pytest

from trimtab.engine.log.event import Event, MessageAdded, Pin, ToolResultRepair
from trimtab.engine.log.message import Media, Message, Text, ToolCall, ToolResult, make_text_message
from trimtab.engine.recall.search import (
    MAX_SEARCH_WORD_CHARS,
    get_message_search_text,
    get_searchable_text,
    rank_scored_positions,
    score_query_words,
    split_index_words,
    split_query_words,
)


def event(body) -> Event:
    return Event(seq=1, at=0.0, body=body)


def said(message: Message, *, recalled: bool = False) -> Event:
    return event(MessageAdded(message=message, sizes=(), recalled=recalled))


def test_words_are_found_whatever_their_case_and_punctuation():
    assert split_index_words("Open src/Main.py: it's 42!") == {
        "open",
        "src",
        "main",
        "py",
        "it",
        "s",
        "42",
    }


def test_a_word_is_found_by_its_first_characters_however_long_it_is():
    (word,) = split_index_words("x" * 500)
    assert word == "x" * MAX_SEARCH_WORD_CHARS
    assert split_query_words("x" * 400) == [word]


def test_scripts_without_spaces_are_found_by_characters_and_pairs():
    assert split_index_words("東京都 ok") == {"東", "京", "都", "東京", "京都", "ok"}
    assert split_query_words("東京都") == ["東京", "京都"]
    assert split_query_words("京") == ["京"]
    assert score_query_words(split_query_words("京都"), split_index_words("東京都")) == 2
    assert score_query_words(split_query_words("都京"), split_index_words("東京都")) == 0


def test_mixed_scripts_are_taken_apart_where_they_meet():
    assert split_index_words("file東京x1") == {"file", "東", "京", "東京", "x1"}


def test_a_query_asks_for_each_word_once_in_its_order():
    assert split_query_words("b a B c a") == ["b", "a", "c"]
    assert split_query_words("… !? ") == []


@pytest.mark.parametrize(
    ("query", "points"),
    [("heron", 2), ("her", 1), ("eron", 0), ("heron her", 3), ("heron stork", 2), ("", 0)],
)
def test_a_whole_word_counts_more_than_the_beginning_of_one(query, points):
    assert score_query_words(split_query_words(query), split_index_words("A heron.")) == points


def test_the_most_words_come_first_then_the_newest_and_none_without_any():
    assert rank_scored_positions([(1, 5), (2, 3), (0, 9), (2, 7), (1, 8)], 3) == [7, 3, 8]
    assert rank_scored_positions([], 3) == []


def test_a_search_sees_texts_results_and_arguments_but_not_what_recall_tools_are_asked():
    message = Message(
        role="assistant",
        parts=(
            Text(text="one"),
            ToolCall(id="a", name="read", arguments='{"path":"two"}'),
            ToolCall(id="b", name="recall", arguments='{"handle":"three"}'),
            ToolCall(id="c", name="search_history", arguments='{"query":"four"}'),
            ToolResult(call_id="a", content=(Text(text="five"), Text(text="six"))),
            Media(kind="image", data="seven"),
        ),
    )
    assert get_message_search_text(message) == 'one\n{"path":"two"}\nfive\nsix'


def test_what_only_repeats_what_stands_elsewhere_is_not_searched():
    message = make_text_message("tool", "again")
    assert get_searchable_text(said(message)) == "again"
    assert get_searchable_text(said(message, recalled=True)) == ""
    assert get_searchable_text(event(ToolResultRepair(message=message, sizes=()))) == "again"
    assert get_searchable_text(event(Pin(first=1, last=1))) == ""
