import pytest

from tests.replay.conversations import call, result
from trimtab.dialects.reading import parse_any_system_and_history
from trimtab.replay.billing import get_provider_pricing
from trimtab.replay.calls import ReplaySetup
from trimtab.replay.needs import (
    NO_NEEDS,
    CallNeeds,
    EarlierReference,
    NeedCounts,
    ShownText,
    count_needs,
    find_needs,
    find_quoted_strings,
    sum_need_counts,
)
from trimtab.replay.runner import replay_conversation
from trimtab.replay.selection import RecordedConversation


def parse(*wires):
    _, messages = parse_any_system_and_history(list(wires), "openai_chat")
    return tuple(messages)


def found(*wires):
    return {index: list(needs.references) for index, needs in find_needs(parse(*wires)).items()}


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


FILLER = [{"role": "user", "content": "well"}] * 10
CODE = "def area(width, height):\n    return width * height"
REMOVED = "-def area(width, height):\n-    return width * height"


def needs_of_last(*wires) -> CallNeeds:
    return find_needs(parse(*wires)).get(len(wires) - 1, NO_NEEDS)


def count(needs: CallNeeds, hidden: set[int], *shown: str) -> NeedCounts:
    texts = [ShownText(text) for text in shown]
    return count_needs(needs, lambda index: index not in hidden, lambda _: texts)[0]


@pytest.mark.parametrize(
    "arguments",
    [
        {"file_path": "a.py", "old_string": CODE, "new_string": "pass"},
        {"path": "a.py", "edits": [{"oldText": CODE, "newText": "pass"}]},
        {"command": "str_replace", "old_str": CODE, "new_str": "pass"},
        {"input": f"*** Begin Patch\n*** Update File: a.py\n@@\n{REMOVED}\n+pass"},
    ],
    ids=["edit", "multi-edit", "str_replace", "apply_patch"],
)
def test_an_edit_whose_old_text_is_hidden_is_a_hidden_edit(arguments):
    read = "     1→def area(width, height):\n     2→    return width * height"
    needs = needs_of_last(call(1, {"path": "a.py"}), result(1, read), call(2, arguments))
    assert count(needs, set()).quoting_edits == 1
    assert count(needs, set()).hidden_edits == 0
    assert count(needs, {1}, "[result masked]").hidden_edits == 1
    assert count(needs, {1}, "def area(width, height):\n[1 line left out]").hidden_edits == 1
    assert count(needs, {1}, f"[shortened]\n{CODE}").hidden_edits == 0


def test_an_edit_whose_old_text_never_was_in_the_history_is_no_need():
    needs = needs_of_last(
        call(1, {"path": "a.py"}),
        result(1, "def perimeter(width, height):"),
        call(2, {"old_string": CODE, "new_string": "pass"}),
    )
    assert count(needs, {0, 1}) == NeedCounts()


def test_a_far_4gram_was_last_seen_more_than_ten_messages_before():
    def needs(between: int) -> CallNeeds:
        copied = call(1, {"text": "quick brown foxes jump"})
        return needs_of_last(
            {"role": "user", "content": "quick brown foxes jump high"}, *FILLER[:between], copied
        )

    assert count(needs(9), set()).far_4grams == 0
    assert count(needs(10), set()).far_4grams == 1


def test_a_4gram_that_a_newer_message_repeats_is_not_far():
    text = {"role": "user", "content": "quick brown foxes jump high"}
    needs = needs_of_last(text, *FILLER, text, call(1, {"text": "quick brown foxes jump"}))
    assert count(needs, set()).far_4grams == 0


def test_a_hidden_4gram_is_visible_if_what_stands_there_shows_its_words_in_order():
    text = {"role": "user", "content": "quick brown foxes jump high"}
    needs = needs_of_last(text, *FILLER, call(1, {"text": "quick brown foxes jump high"}))
    assert count(needs, set()).far_4grams_seen == 2
    assert count(needs, {0}).far_4grams_seen == 0
    assert count(needs, {0}, "quick brown\nfoxes jump").far_4grams_seen == 1
    assert count(needs, {0}, "foxes jump quick brown").far_4grams_seen == 0


def test_names_in_our_own_lists_show_no_4gram_and_no_line():
    line = "alpha_one, beta_two, gamma_three"
    needs = needs_of_last(
        {"role": "user", "content": line}, *FILLER, call(1, {"old_string": line, "new_string": ""})
    )
    masked = f'[result masked; words from its text: "{line}"]'
    assert count(needs, {0}, masked).far_4grams_seen == 0
    assert count(needs, {0}, masked).hidden_edits == 1


def replayed(policy: str) -> NeedCounts:
    """The needs of an agent that edits a file, and read twenty others before it and after."""
    wires = [{"role": "user", "content": "Rename area, please."}]
    for number in range(40):
        text = CODE + "\n# end" * 400 if number == 20 else "lorem ipsum " * 400
        wires += [call(number, {"path": f"file_{number}.py"}), result(number, text)]
    wires.append(call(40, {"old_string": CODE, "new_string": "pass"}))
    rules = {"Anthropic": get_provider_pricing("claude-sonnet-4-5").rules}
    talk = RecordedConversation(id="talk", source="made/up", messages=parse(*wires))
    run = replay_conversation(
        talk, ReplaySetup(name=policy, options={"policy": policy}), rules, find_needs(talk.messages)
    )
    return sum_need_counts(call.needs for call in run.calls)


def test_a_replay_counts_what_a_policy_hid_from_an_edit():
    whole, masked = replayed("everything"), replayed("layered")
    assert (whole.quoting_edits, whole.hidden_edits) == (1, 0)
    assert whole.far_4grams == whole.far_4grams_seen > 0
    assert (masked.quoting_edits, masked.hidden_edits) == (1, 1)
    assert (masked.far_4grams, masked.far_4grams_seen) == (whole.far_4grams, 0)
    assert replayed("full") == whole
