"""What is said: messages and their parts."""

from trimtab.engine.log.message import (
    Media,
    OpaqueBlock,
    Text,
    ToolCall,
    ToolResult,
    extract_text_or_arguments,
)


def test_texts_results_and_calls_say_words_and_nothing_else_does():
    picture = Media(kind="image", mime="image/png", data="AAAA")
    parts = {
        "said": Text(text="said"),
        "one\ntwo": ToolResult(call_id="c", content=(Text(text="one"), picture, Text(text="two"))),
        '{"path": "a"}': ToolCall(id="c", name="read", arguments='{"path": "a"}'),
    }
    assert {extract_text_or_arguments(part): part for part in parts.values()} == parts
    assert extract_text_or_arguments(Text(text="")) == ""
    assert extract_text_or_arguments(picture) is None
    assert extract_text_or_arguments(OpaqueBlock(data={"thinking": "hm"}, thinking=True)) is None
