import json
import re

import pytest

from tests.conversations import user
from trimtab import Context
from trimtab.engine.log.message import (
    Media,
    Message,
    OpaqueBlock,
    Text,
    ToolCall,
    ToolResult,
    make_text_message,
)
from trimtab.engine.log.redaction import REDACTION_PATTERNS, redacted_message, redactor

NAMES = redactor(*REDACTION_PATTERNS)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Write to jane.q+x@mail.example.org!", "Write to [redacted: email]!"),
        ("pay 4111 1111 1111 1111 now", "pay [redacted: card] now"),
        ("pay 4111-1111-1111-1111 now", "pay [redacted: card] now"),
        ("to DE89 3704 0044 0532 0130 00, please", "to [redacted: iban], please"),
        ("key sk-abcdefghijklmnop1234", "key [redacted: secret]"),
        ("id AKIAABCDEFGHIJKLMNOP", "id [redacted: secret]"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
            "[redacted: secret]",
        ),
        ("12 of 340 pages, a@b, sk-short, m12.0", "12 of 340 pages, a@b, sk-short, m12.0"),
    ],
)
def test_what_a_name_stands_for_is_taken_out(text, kept):
    assert NAMES(text) == kept


def test_what_was_redacted_is_not_redacted_again():
    text = "jane@example.org 4111111111111111 sk-abcdefghijklmnop1234"
    assert NAMES(NAMES(text)) == NAMES(text)


def test_an_expression_of_ones_own_leaves_a_sign_without_a_name():
    assert redactor(re.compile(r"ACC-\d+"))("ACC-1 and ACC-22") == "[redacted] and [redacted]"


@pytest.mark.parametrize("name", ["emails", "credit_card", "phone", "Email", "(", ""])
def test_a_name_that_no_pattern_has_is_an_error_that_lists_the_names(name):
    with pytest.raises(ValueError, match="choose one of email, iban, card, secret") as raised:
        redactor("card", name)
    assert f"{name!r}" in str(raised.value)
    assert "re.compile" in str(raised.value)


@pytest.mark.parametrize("given", [re.compile(rb"ACC"), b"email", None, 5])
def test_what_is_neither_a_name_nor_a_pattern_for_texts_is_an_error(given):
    with pytest.raises(TypeError, match=r"a pattern is .*re\.compile"):
        redactor(given)


def test_the_hook_sees_what_the_patterns_left():
    seen: list[str] = []
    redact = redactor("email", hook=lambda text: seen.append(text) or text.upper())
    assert redact("a@b.org") == "[REDACTED: EMAIL]"
    assert seen == ["[redacted: email]"]


def test_arguments_stay_json_and_keep_what_is_no_text():
    given = {"to": "a@b.org", "n": 5, "deep": [{"cc": ["c@d.org"]}], "e@f.org": True, "x": None}
    call = ToolCall(id="c", name="send", arguments=json.dumps(given))
    (part,) = redacted_message(Message(role="assistant", parts=(call,)), NAMES).parts
    assert isinstance(part, ToolCall)
    assert json.loads(part.arguments) == {
        "to": "[redacted: email]",
        "n": 5,
        "deep": [{"cc": ["[redacted: email]"]}],
        "[redacted: email]": True,
        "x": None,
    }


def test_arguments_without_a_match_stay_to_the_byte():
    written = '{ "path" : "a\\u00e9.py",  "n": 1.0 }'
    call = ToolCall(id="c", name="read", arguments=written)
    message = Message(role="assistant", parts=(call,))
    assert redacted_message(message, NAMES) is message


def test_arguments_that_are_no_json_are_redacted_as_text():
    call = ToolCall(id="c", name="send", arguments='{"to": "a@b.org')
    (part,) = redacted_message(Message(role="assistant", parts=(call,)), NAMES).parts
    assert isinstance(part, ToolCall)
    assert part.arguments == '{"to": "[redacted: email]'


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ('{"to": "a@b.org", "to": "me"}', {"to": "me"}),
        ('{"card": 4111111111111111, "n": 7}', {"card": "[redacted: card]", "n": 7}),
    ],
)
def test_what_only_the_text_of_arguments_has_is_redacted_as_well(written: str, kept: object):
    call = ToolCall(id="c", name="send", arguments=written)
    (part,) = redacted_message(Message(role="assistant", parts=(call,)), NAMES).parts
    assert isinstance(part, ToolCall)
    assert json.loads(part.arguments) == kept
    assert NAMES(part.arguments) == part.arguments


def test_quotes_in_json_that_a_pattern_would_swallow_stay():
    greedy = redactor(re.compile(r"secret.*"))
    call = ToolCall(id="c", name="send", arguments='{"a": "my secret", "b": "kept"}')
    (part,) = redacted_message(Message(role="assistant", parts=(call,)), greedy).parts
    assert isinstance(part, ToolCall)
    assert json.loads(part.arguments) == {"a": "my [redacted]", "b": "kept"}


def test_results_are_redacted_and_media_and_signed_blocks_stay():
    image = Media(kind="image", data="a@b.org")
    signed = OpaqueBlock(data={"type": "thinking", "thinking": "a@b.org", "signature": "x"})
    result = ToolResult(call_id="c", content=(Text(text="a@b.org"), image), plain=False)
    done = redacted_message(Message(role="user", parts=(result, signed)), NAMES)
    assert done.parts == (
        ToolResult(call_id="c", content=(Text(text="[redacted: email]"), image), plain=False),
        signed,
    )


UNSIGNED = (
    {
        "type": "search_result",
        "source": "a@b.org",
        "content": [{"type": "text", "text": "a@b.org"}],
    },
    {"type": "mcp_tool_result", "tool_use_id": "4111111111111111", "content": "a@b.org"},
    {"type": "reasoning", "id": "r1", "summary": [{"text": "a@b.org"}], "encrypted_content": None},
    {"reasoning_content": "a@b.org"},
)


@pytest.mark.parametrize("block", UNSIGNED)
def test_a_block_that_nobody_signed_is_redacted_without_its_ids(block: dict[str, object]):
    message = Message(role="assistant", parts=(OpaqueBlock(data=block),))
    (part,) = redacted_message(message, NAMES).parts
    assert isinstance(part, OpaqueBlock)
    assert json.dumps(part.data) == json.dumps(block).replace("a@b.org", "[redacted: email]")


def test_the_words_beside_a_file_are_redacted_and_its_address_is_not():
    file = Media(kind="document", url="https://b.org/a@b.org", extra={"title": "of a@b.org"})
    (part,) = redacted_message(Message(role="user", parts=(file,)), NAMES).parts
    assert part == Media(kind="document", url=file.url, extra={"title": "of [redacted: email]"})


def test_what_the_wire_had_beside_a_text_is_redacted_but_for_its_keys():
    quoted = {"citations": [{"cited_text": "a@b.org", "n": 1}]}
    message = Message(
        role="assistant",
        parts=(Text(text="See.", extra=quoted),),
        extra={"audio": {"t": "c@d.org"}},
    )
    done = redacted_message(message, redactor("email", re.compile("cit.*s")))
    (part,) = done.parts
    assert isinstance(part, Text)
    assert part.extra == {"citations": [{"cited_text": "[redacted: email]", "n": 1}]}
    assert done.extra == {"audio": {"t": "[redacted: email]"}}


def test_without_a_redaction_a_message_is_itself():
    message = make_text_message("user", "a@b.org")
    assert redacted_message(message, None) is message


def test_a_redaction_that_returns_nothing_is_an_error_and_records_nothing():
    context = Context("gpt-4o", redact=lambda _text: None)  # pyright: ignore[reportArgumentType] - a careless one
    with pytest.raises(
        TypeError, match=r"the result of redact is None.*the text that may be stored"
    ):
        context.add(user("a secret"))
    assert not context.window.entries
