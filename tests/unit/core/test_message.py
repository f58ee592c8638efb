"""What is said: messages and their parts."""

from trimtab.core.message import Media, Opaque, Text, ToolCall, ToolResult, words_of_part


def test_texts_results_and_calls_say_words_and_nothing_else_does():
    picture = Media(kind="image", mime="image/png", data="AAAA")
    parts = {
        "said": Text(text="said"),
        "one\ntwo": ToolResult(call_id="c", content=(Text(text="one"), picture, Text(text="two"))),
        '{"path": "a"}': ToolCall(id="c", name="read", arguments='{"path": "a"}'),
    }
    assert {words_of_part(part): part for part in parts.values()} == parts
    assert words_of_part(Text(text="")) == ""
    assert words_of_part(picture) is None
    assert words_of_part(Opaque(data={"thinking": "hm"}, thinking=True)) is None
