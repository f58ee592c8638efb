import pytest

from trimtab.core.event import Event, Pin, Repair, Said
from trimtab.core.message import Media, Message, Text, ToolCall, ToolResult, text_message
from trimtab.core.search import MAX_WORD, asked, best, score, searchable, texts_of, words_of


def event(body) -> Event:
    return Event(seq=1, at=0.0, body=body)


def said(message: Message, *, recalled: bool = False) -> Event:
    return event(Said(message=message, sizes=(), recalled=recalled))


def test_words_are_found_whatever_their_case_and_punctuation():
    assert words_of("Open src/Main.py: it's 42!") == {"open", "src", "main", "py", "it", "s", "42"}


def test_a_word_is_found_by_its_first_characters_however_long_it_is():
    (word,) = words_of("x" * 500)
    assert word == "x" * MAX_WORD
    assert asked("x" * 400) == [word]


def test_scripts_without_spaces_are_found_by_characters_and_pairs():
    assert words_of("東京都 ok") == {"東", "京", "都", "東京", "京都", "ok"}
    assert asked("東京都") == ["東京", "京都"]
    assert asked("京") == ["京"]
    assert score(asked("京都"), words_of("東京都")) == 2
    assert score(asked("都京"), words_of("東京都")) == 0


def test_mixed_scripts_are_taken_apart_where_they_meet():
    assert words_of("file東京x1") == {"file", "東", "京", "東京", "x1"}


def test_a_query_asks_for_each_word_once_in_its_order():
    assert asked("b a B c a") == ["b", "a", "c"]
    assert asked("… !? ") == []


@pytest.mark.parametrize(
    ("query", "points"),
    [("heron", 2), ("her", 1), ("eron", 0), ("heron her", 3), ("heron stork", 2), ("", 0)],
)
def test_a_whole_word_counts_more_than_the_beginning_of_one(query, points):
    assert score(asked(query), words_of("A heron.")) == points


def test_the_most_words_come_first_then_the_newest_and_none_without_any():
    assert best([(1, 5), (2, 3), (0, 9), (2, 7), (1, 8)], 3) == [7, 3, 8]
    assert best([], 3) == []


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
    assert texts_of(message) == 'one\n{"path":"two"}\nfive\nsix'


def test_what_only_repeats_what_stands_elsewhere_is_not_searched():
    message = text_message("tool", "again")
    assert searchable(said(message)) == "again"
    assert searchable(said(message, recalled=True)) == ""
    assert searchable(event(Repair(message=message, sizes=()))) == "again"
    assert searchable(event(Pin(first=1, last=1))) == ""
