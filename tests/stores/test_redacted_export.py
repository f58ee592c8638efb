"""What an export has in place of texts."""

import json

from trimtab.stores.redacted_export import EventRedactor, fill_text

PRIVATE = "Ada owes 4711"
MESSAGE = {
    "role": "user",
    "parts": [
        {"text": PRIVATE, "extra": {"type": "text", "citations": [{"cited_text": PRIVATE}]}},
        {"media": "image", "mime": "image/png", "data": PRIVATE, "url": PRIVATE},
        {"opaque": {"type": "thinking", "thinking": PRIVATE, "amount": 4711}, "thinking": True},
        {
            "call": "toolu_1",
            "name": "read",
            "arguments": json.dumps({"path": PRIVATE, PRIVATE: 4711}),
        },
        {"call": "toolu_2", "name": "read", "arguments": f"not JSON: {PRIVATE}"},
        {"result": "toolu_1", "content": [{"text": PRIVATE}], "extra": {"name": PRIVATE}},
    ],
    "extra": {"name": PRIVATE, "sender_id": PRIVATE},
}
SETTINGS = {
    "kind": "settings",
    "model": "gpt-4o",
    "system": [{"role": "system", "parts": [{"text": PRIVATE}]}],
    "tools": [
        {
            "name": "read",
            "description": PRIVATE,
            "input_schema": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "enum": [PRIVATE]},
                    "entry": {"type": "string", "description": PRIVATE},
                },
                "required": ["path"],
            },
        }
    ],
    "params": {"metadata": {"user_id": PRIVATE, "name": PRIVATE}},
    "policy_params": {"context": {"keep": [PRIVATE]}, "goal": "cost"},
    "limits": {"context_window": 8000},
}
OTHERS = [
    {"kind": "message", "message": MESSAGE, "key": PRIVATE, "reply_id": PRIVATE},
    {"kind": "edit", "op": "mask", "text": PRIVATE, "why": PRIVATE},
    {"kind": "call", "hash": PRIVATE, "volatile": PRIVATE, "note": {"why": PRIVATE}, "tokens": 12},
    {"kind": "outcome", "status": "error", "error": {"kind": "rejected", "message": PRIVATE}},
    {"kind": "fork", "parent": PRIVATE, "position": 3},
    {"kind": "a kind of event that a later release adds", "quote": PRIVATE, "more": [[PRIVATE]]},
]


def test_no_text_of_any_event_is_in_the_redacted_one():
    redactor = EventRedactor()
    redacted = json.dumps([redactor.redact(event) for event in (SETTINGS, *OTHERS)])
    assert "Ada" not in redacted
    assert "4711" not in redacted


def test_what_describes_the_structure_stays():
    redactor = EventRedactor()
    settings = redactor.redact(SETTINGS)
    assert settings["model"] == "gpt-4o"
    assert settings["limits"] == {"context_window": 8000}
    assert settings["policy_params"]["goal"] == "cost"
    schema = settings["tools"][0]["input_schema"]
    assert (schema["required"], list(schema["properties"])) == (["path"], ["path", "entry"])
    parts = redactor.redact(OTHERS[0])["message"]["parts"]
    assert parts[3]["call"] == parts[5]["result"] != parts[4]["call"]
    assert json.loads(parts[3]["arguments"])["path"] == "xxxxxxxxxxxxx"
    assert parts[1]["mime"] == "image/png"


def test_a_filler_has_the_lines_characters_and_bytes_of_its_text():
    text = "Ada\nÄ 東\n🙂"
    filler = fill_text(text)
    assert filler == "xxx\néx字\n😀"
    assert len(filler.encode()) == len(text.encode())
