from tests.replay.conversations import call, result
from trimtab.dialects.reading import parse_any_system_and_history
from trimtab.replay.references import EarlierReference, find_earlier_references, find_quoted_strings


def found(*wires):
    _, messages = parse_any_system_and_history(list(wires), "openai_chat")
    return find_earlier_references(tuple(messages))


def test_a_reference_is_what_an_earlier_message_holds():
    got = found(
        {"role": "user", "content": "See main_module.py, please."},
        call(1, {"path": "main_module.py", "other": "never_said.py"}),
    )
    assert got == {
        1: [EarlierReference(text="main_module.py", sources=(0,), far=False, tool_only=False)]
    }


def test_plain_words_are_no_references():
    assert found({"role": "user", "content": "hello there"}, call(1, {"q": "hello there"})) == {
        1: []
    }


def test_what_only_results_held_is_tool_only():
    got = found(
        {"role": "user", "content": "go"},
        call(1, {}),
        result(1, "error_code_77"),
        call(2, {"q": "error_code_77"}),
    )
    (need,) = got[3]
    assert (need.sources, need.tool_only) == ((2,), True)


def test_far_is_more_than_ten_messages_after_the_last_mention():
    def need(between: int) -> EarlierReference:
        filler = [{"role": "user", "content": "well"}] * between
        return found(
            {"role": "user", "content": "the_thing_1"}, *filler, call(1, {"q": "the_thing_1"})
        )[between + 1][0]

    assert not need(9).far
    assert need(10).far


def test_a_quoted_string_counts_with_its_spaces():
    got = found(
        {"role": "user", "content": "it says connection was lost today"},
        call(1, {"q": 'grep "connection was lost" log'}),
    )
    assert [need.text for need in got[1]] == ["connection was lost"]


def test_quoted_strings_have_4_to_80_characters_on_one_line():
    text = "'abc' 'abcd' \"" + "x" * 80 + '" "' + "y" * 81 + '" `a\nbcde`'
    assert find_quoted_strings(text) == {"abcd", "x" * 80}
