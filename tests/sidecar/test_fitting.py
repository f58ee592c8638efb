"""A body comes back as it is, or with what its edits name."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import trimtab
from tests.sidecar.calls import SMALL, ask, chat, claude, fit, fit_from_start, report
from trimtab.dialects.caller_marks import without_marks
from trimtab.sidecar.json_text import JsonText, patch_json
from trimtab.sidecar.sidecar import Sidecar
from trimtab.sidecar.tally import format_totals
from trimtab.sidecar.wire_body import detect_body_dialect

TURNS = 12


@pytest.fixture
def sidecar() -> Sidecar:
    return Sidecar()


def send_text(sidecar: Sidecar, body: str, **fields: Any) -> Any:
    """Fit a body as it was written."""
    call = json.dumps({"conversation": "a", "options": SMALL, **fields})
    return sidecar.run(sidecar.answer("fit", f'{call[:-1]}, "body": {body}}}'))


def test_what_fits_is_the_clients_own(sidecar: Sidecar):
    answer = fit(sidecar, chat(2))
    assert (answer["managed"], answer["changed"], answer["hidden"]) == (True, False, [])
    assert "body" not in answer
    assert 0 < answer["used"] < answer["limit"] == SMALL["context_window"]


def test_what_is_too_long_is_hidden_with_a_reason_and_can_be_read(sidecar: Sidecar):
    answer = fit(sidecar, chat(TURNS))
    assert answer["changed"]
    assert answer["used"] + 500 <= answer["limit"]
    masked = next(each for each in answer["hidden"] if each["kind"] == "mask")
    assert masked["tokens"] > masked["tokens_after"]
    assert masked["why"]
    recalled = ask(sidecar, "recall", conversation="a", handle=masked["handle"])
    assert recalled["text"] in {report(turn) for turn in range(TURNS)}


def test_what_was_hidden_stays_hidden_and_what_is_new_comes_behind_it(sidecar: Sidecar):
    first = fit(sidecar, chat(TURNS))["body"]["messages"]
    longer = chat(TURNS)
    longer["messages"].append({"role": "assistant", "content": "Done."})
    longer["messages"].append({"role": "user", "content": "Thanks."})
    answer = fit(sidecar, longer)
    assert answer["body"]["messages"] == [*first, *longer["messages"][-2:]]
    assert answer["hidden"] == []


def test_what_is_beside_a_hidden_text_is_always_as_the_client_wrote_it_last(sidecar: Sidecar):
    for digits in ("1.5", "1.50"):
        body = json.dumps(chat(TURNS)).replace(str(10**40), digits)
        sent = json.loads(send_text(sidecar, body).write(), parse_float=str)["body"]["messages"]
        hidden = [message for message in sent if "recall m" in str(message) and "x_1" in message]
        assert {message["x_1"] for message in hidden} == {digits}


def test_only_what_an_edit_names_differs_in_its_bytes(sidecar: Sidecar):
    body = chat(TURNS)
    for message in body["messages"]:
        message["odd"] = "@"
    text = json.dumps(body, indent=3).replace('"@"', '1e400, "odd": -0.0,  "half": "\\ud83d"')
    sent = send_text(sidecar, text)
    assert sent.fields["changed"]
    own = JsonText(text).read({"messages": {}}).find("messages")
    theirs = JsonText(sent.body).read({"messages": {}}).find("messages")
    assert own is not None
    assert theirs is not None
    assert text[: own.start] == sent.body[: theirs.start]
    assert text[own.end :] == sent.body[theirs.end :]
    last = [text[item.start : item.end] for item in (own.items or ())[-3:]]
    assert last == [sent.body[item.start : item.end] for item in (theirs.items or ())[-3:]]
    odd = '1e400, "odd": -0.0,  "half": "\\ud83d"'
    edited = [item for item in theirs.items or () if item.value["role"] == "tool"]
    edited = [item for item in edited if "recall m" in item.value["content"]]
    assert edited
    assert all(odd in sent.body[item.start : item.end] for item in edited)


@pytest.mark.parametrize(
    ("body", "name"), [(chat(TURNS), f"chatcmpl-tool-{0:031}"), (claude(TURNS), "functions.read:")]
)
def test_ids_that_only_some_servers_accept_stay(sidecar: Sidecar, body: Any, name: str):
    """vLLM's are longer than OpenAI's, and Kimi's have characters that Claude's have not."""
    text = json.dumps(body)
    for turn in range(TURNS):
        text = text.replace(f'"c{turn}"', f'"{name}{turn}"')
    sent = send_text(sidecar, text).body
    hidden = sum("recall m" in str(message) for message in json.loads(sent)["messages"])
    assert hidden
    assert "call_" not in sent.replace("tool_call_id", "").replace("tool_calls", "")
    for turn in range(TURNS):
        assert sent.count(f'"{name}{turn}"') in (0, 2)


def test_a_map_says_which_positions_are_shown_edited_and_gone(sidecar: Sidecar):
    body = chat(TURNS)
    answer = fit(sidecar, body, want="map")
    again = fit(sidecar, body)["body"]["messages"]
    built: list[Any] = []
    for piece in answer["sent"]:
        own = body["messages"][piece["from"] : piece["to"]] if "from" in piece else piece["items"]
        built += own
    assert [(m["role"], m.get("content")) for m in built] == [
        (m["role"], m.get("content")) for m in again
    ]
    assert "body" not in answer


@pytest.mark.parametrize("own", [0, 1, 2, 3, 4])
def test_a_free_cache_mark_stands_where_the_next_hiding_begins(sidecar: Sidecar, own: int):
    """The client's own stay where they are, and there are never more than four."""
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    earlier: list[Any] = []
    survived = 0
    for turns in range(14, 22):
        body = claude(turns)
        blocks = [message["content"][-1] for message in body["messages"]]
        for block in blocks[len(blocks) - own :]:
            block.update(mark)
        answer = fit(sidecar, body, options={**SMALL, "context_window": 16_000, "goal": "balanced"})
        sent = answer.get("body", body)["messages"]
        marked = [at for at, message in enumerate(sent) if "cache_control" in str(message)]
        assert marked[len(marked) - own :] == [*range(len(sent) - own, len(sent))]
        more = marked[: len(marked) - own]
        assert len(more) == (1 if answer["changed"] and own in (1, 2, 3) else 0)
        assert all(sent[at]["content"][0]["cache_control"] == mark["cache_control"] for at in more)
        assert all("recall m" in str(sent[at]) for at in more)
        if {each["kind"] for each in answer["hidden"]} == {"mask"} and earlier:
            survived += [*map(without_marks, sent[: len(earlier)])] == earlier
        earlier = [*map(without_marks, sent[: more[0] + 1])] if more else []
    assert survived == (own in (1, 2, 3))


def test_a_mark_for_the_whole_request_counts(sidecar: Sidecar):
    mark = {"cache_control": {"type": "ephemeral"}}
    body = claude(TURNS, **mark)
    for message in body["messages"][-3:]:
        message["content"][0].update(mark)
    assert json.dumps(fit(sidecar, body)["body"]).count("cache_control") == 4


def test_a_system_message_in_the_list_stays_first(sidecar: Sidecar):
    sent = fit(sidecar, chat(TURNS))["body"]["messages"]
    assert sent[0] == chat(1)["messages"][0]


PASSED: dict[str, tuple[dict[str, Any], str]] = {
    "a thread": ({"thread": {"type": "continue"}}, "thread"),
    "a previous reply": ({"previous_response_id": "r1"}, "previous_response_id"),
    "a conversation at the provider": ({"conversation": "c1"}, "conversation"),
    "a compaction": ({"compaction": {"type": "summarize"}}, "compaction"),
    "an edit by the provider": (
        {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
        "context_management",
    ),
    "no list": ({"messages": "hello"}, "not a conversation"),
    "no model": ({"model": None}, "not a conversation"),
    "an unreadable list": ({"messages": [7]}, "not read"),
}


@pytest.mark.parametrize(("more", "why"), PASSED.values(), ids=PASSED.keys())
def test_what_is_not_ours_to_edit_passes(sidecar: Sidecar, more: dict[str, Any], why: str):
    answer = fit(sidecar, {**chat(TURNS), **more})
    assert (answer["status"], answer["managed"], answer["changed"]) == (200, False, False)
    assert answer["why"].startswith(why)


def test_clearing_old_thinking_is_no_reason_to_pass(sidecar: Sidecar):
    edits = [{"type": "clear_thinking_20251015", "keep": "all"}]
    assert fit(sidecar, {**chat(1), "context_management": {"edits": edits}})["managed"]


def test_a_clients_own_request_for_a_summary_passes(sidecar: Sidecar):
    body = chat(TURNS)
    prompt = "Your task is to create a detailed summary of the conversation so far, with …"
    body["messages"].append({"role": "user", "content": [{"type": "text", "text": prompt}]})
    assert fit(sidecar, body)["why"].startswith("summary")
    assert fit(sidecar, chat(TURNS), purpose="summary")["why"].startswith("summary")


def test_a_plugin_of_another_version_passes_everything(sidecar: Sidecar):
    answer = fit(sidecar, chat(TURNS), client="0.0.0")
    assert (answer["managed"], answer["version"]) == (False, trimtab.__version__)
    assert answer["why"].startswith("version")
    assert fit(sidecar, chat(TURNS), client=trimtab.__version__)["changed"]


def test_an_output_that_no_longer_fits_is_lowered_and_no_other(sidecar: Sidecar):
    asked = fit(sidecar, chat(TURNS, max_tokens=7_500))
    assert asked["body"]["max_tokens"] == asked["max_output_tokens"] < 7_500
    assert asked["used"] + asked["max_output_tokens"] <= asked["limit"]
    assert fit(sidecar, chat(1), conversation="b")["max_output_tokens"] == 500


def test_thinking_keeps_the_output_that_it_needs(sidecar: Sidecar):
    thinking = {"type": "enabled", "budget_tokens": 5_000}
    messages = [{"role": "user", "content": report(k)} for k in range(9)]
    body = {"model": "claude-sonnet-4-5", "max_tokens": 6_000, "thinking": thinking}
    answer = fit(sidecar, {**body, "messages": messages})
    assert answer["max_output_tokens"] in (0, 6_000)


def test_a_field_that_an_operation_does_not_have_is_named(sidecar: Sidecar):
    for fields, error in (
        ({"want": "mapp"}, "want must be 'body' or 'map'"),
        ({"window": 8}, "unknown field 'window'; the fields are conversation, body,"),
    ):
        answer = ask(sidecar, "fit", conversation="a", body=chat(1), **fields)
        assert (answer["status"], error in answer["error"]) == (400, True)
    other = ask(sidecar, "fit", conversation="a", body=chat(1), client="9.9.9", new_field=1)
    assert other["why"].startswith("version")


def test_the_recall_tools_are_there_in_each_format(sidecar: Sidecar):
    tools = ask(sidecar, "health")["tools"]
    for tool in tools["openai_chat"]:
        assert fit(sidecar, chat(1, tools=[tool]), conversation="b")["managed"]
        assert tool["function"]["parameters"]["required"]
    for name in ("anthropic", "openai_responses"):
        assert [each["name"] for each in tools[name]] == ["recall", "search_history"]


def test_usage_is_recorded_without_the_reply(sidecar: Sidecar):
    fit(sidecar, chat(2))
    usage = {"prompt_tokens": 2_100, "completion_tokens": 9}
    usage |= {"prompt_tokens_details": {"cached_tokens": 1_000}}
    told = ask(sidecar, "reply", conversation="a", reply={"choices": [], "usage": usage})
    assert (told["recorded"], told["input"], told["cache_read"]) == (True, 2_100, 1_000)
    assert not ask(sidecar, "reply", conversation="a", usage=usage)["recorded"]
    assert fit(sidecar, chat(3))["managed"]
    totals = ask(sidecar, "totals", conversation="a")
    assert (totals["calls"], totals["input"]) == (2, 2_100)


def test_after_a_refusal_the_next_body_is_smaller(sidecar: Sidecar):
    options = {"context_window": 100_000}
    before = fit(sidecar, chat(TURNS), options=options)
    text = "This model's maximum context length is 6000 tokens. However, your messages resulted in "
    error = {"error": {"message": f"{text}9000 tokens.", "code": "context_length_exceeded"}}
    told = ask(sidecar, "refused", conversation="a", status=400, body=error)
    assert (told["retry"], told["kind"]) == (True, "overflow")
    after = fit(sidecar, chat(TURNS), options=options)
    assert after["used"] + 500 <= after["limit"] == 6_000 < before["used"]
    told = ask(sidecar, "refused", conversation="a", status=500, body="overloaded")
    assert told["retry"] is False
    assert ask(sidecar, "totals", conversation="a")["refused"] == 1


def test_the_models_own_call_is_answered(sidecar: Sidecar):
    hidden = fit(sidecar, chat(TURNS))["hidden"]
    handle = next(each["handle"] for each in hidden if each["kind"] == "mask")
    arguments = json.dumps({"handle": handle})
    told = ask(sidecar, "answer", conversation="a", tool="recall", arguments=arguments)
    assert "report" in told["text"]
    assert ask(sidecar, "answer", conversation="a", tool="rm", arguments={})["status"] == 400


def test_handles_stand_in_texts_if_the_client_has_the_tool(sidecar: Sidecar):
    options = {"context_window": 8_000, "goal": "cost"}
    tool = {"type": "function", "function": {"name": "recall", "parameters": {"type": "object"}}}
    without = fit(sidecar, chat(TURNS), options=options)
    has_tool = fit(sidecar, chat(TURNS, tools=[tool]), options=options, conversation="b")
    assert "recall m" not in str(without["body"]["messages"])
    assert "recall m" in str(has_tool["body"]["messages"])


def test_an_option_that_a_call_leaves_out_has_its_default_again(sidecar: Sidecar):
    assert fit(sidecar, chat(1))["limit"] == 8_000
    assert fit(sidecar, chat(1), options={})["limit"] == 128_000


@pytest.mark.parametrize("options", [{"window": 1}, {"policy": "x"}, {"redact": ["x"]}, [], 7])
def test_a_wrong_option_is_named(sidecar: Sidecar, options: Any):
    answer = fit(sidecar, chat(1), options=options)
    assert answer["status"] == 400
    assert "option" in answer["error"]


def test_what_is_redacted_is_not_sent(sidecar: Sidecar):
    body = chat(1)
    body["messages"][1]["content"] = "Write to ann@example.org."
    answer = fit(sidecar, body, options={"redact": ["email"]})
    assert answer["body"]["messages"][1]["content"] == "Write to [redacted: email]."
    assert answer["body"]["messages"][2:] == body["messages"][2:]


CHAT, CLAUDE = ("openai_chat", "gpt-4o"), ("anthropic", "claude-sonnet-4-5")
INPUT = '{"ann@example.org": 1, "cc": "ann@example.org", "cc": "me"}'
KEPT_BY_A_PATCH = {
    "a text that comes twice": (CHAT, '"content": "ann@example.org", "content": "Hi"'),
    "a field that comes twice": (
        CHAT,
        '"x": "ann@example.org", "x": 1, "content": "ann@example.org"',
    ),
    "a number that comes twice": (CHAT, '"x": 4111111111111111, "x": 1, "content": "Hi"'),
    "a field that is not sent": (CLAUDE, '"x": "ann@example.org", "content": "Hi"'),
    "a message without a part": (CHAT, '"content": null, "refusal": "ann@example.org"'),
    "keys": (
        CLAUDE,
        f'"content": [{{"type": "tool_use", "id": "c", "name": "send", "input": {INPUT}}}]',
    ),
}


@pytest.mark.parametrize(("kind", "message"), KEPT_BY_A_PATCH.values(), ids=KEPT_BY_A_PATCH.keys())
@pytest.mark.parametrize("want", ["", "map"])
def test_what_a_patch_would_keep_is_redacted_as_well(
    sidecar: Sidecar, kind: tuple[str, str], message: str, want: str
):
    dialect, model = kind
    messages = f'[{{"role": "user", "content": "Hello"}}, {{"role": "assistant", {message}}}]'
    text = f'{{"model": "{model}", "max_tokens": 9, "messages": {messages}}}'
    for redact in ([], ["email", "card"]):
        options = {**SMALL, "redact": redact}
        sent = send_text(sidecar, text, options=options, want=want, dialect=dialect)
        changed = sent.fields["changed"]
    assert changed
    assert "ann@example.org" not in sent.write()
    assert "4111111111111111" not in sent.write()


def test_without_a_redaction_nothing_is_sent(sidecar: Sidecar):
    options = {"redact": ["email"]}
    for body in ({**chat(1), "thread": {"type": "continue"}}, {**chat(1), "messages": [7]}):
        answer = fit(sidecar, body, options=options)
        assert (answer["status"], answer["blocked"]) == (503, True)
    assert fit(sidecar, chat(1), options=options, client="0.0.0")["blocked"]


def test_the_line_at_the_end_says_what_was_done(sidecar: Sidecar):
    fit(sidecar, chat(TURNS))
    told = ask(sidecar, "totals", conversation="a", end=True)
    tokens = f"{told['hidden_tokens'] / 1_000:.0f}k"
    assert told["line"] == f"trimtab: 1 call, 0 refused, {tokens} tokens hidden, all readable"
    assert ask(sidecar, "totals", conversation="a")["status"] == 404
    lost = {"calls": 41, "refused": 2, "hidden_tokens": 312_400, "unreadable": 1}
    line = "trimtab: 41 calls, 2 refused, 312k tokens hidden, 1 not readable"
    assert format_totals(lost) == line


def test_calls_for_one_conversation_wait_for_each_other(sidecar: Sidecar):
    bodies = [json.dumps({"conversation": "a", "body": chat(n), "options": SMALL}) for n in (1, 2)]

    async def ask_all() -> list[Any]:
        asked = [sidecar.answer("fit", body) for body in bodies for _ in range(4)]
        return await asyncio.gather(*asked)

    assert all(answer.fields["managed"] for answer in sidecar.run(ask_all()))
    assert ask(sidecar, "totals", conversation="a")["calls"] == 8


def test_a_conversation_that_is_used_least_leaves_the_memory():
    sidecar = Sidecar(max_conversations=2)
    for name in ("a", "b", "c"):
        fit_from_start(sidecar, 1, conversation=name)
    assert ask(sidecar, "recall", conversation="a", handle="m3")["status"] == 404
    assert ask(sidecar, "recall", conversation="c", handle="m3")["status"] == 200


def test_the_format_of_a_body_is_recognised():
    user = [{"role": "user", "content": "hi"}]
    tool_use = [{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}]
    assert detect_body_dialect({"input": user}) == "openai_responses"
    assert detect_body_dialect({"messages": user, "system": "x"}) == "anthropic"
    assert detect_body_dialect({"messages": user + tool_use}) == "anthropic"
    assert detect_body_dialect({"messages": user, "tools": [{"input_schema": {}}]}) == "anthropic"
    assert detect_body_dialect({"messages": user, "tools": [{"function": {}}]}) == "openai_chat"
    claude = {"messages": user, "model": "claude-sonnet-4-5"}
    assert detect_body_dialect({**claude, "max_tokens": 9}) == "anthropic"
    assert detect_body_dialect(claude) == "openai_chat"
    assert detect_body_dialect({"messages": user, "model": "gpt-4o"}) == "openai_chat"


PATCHES = {
    "a value": ('{ "a" : 1, "b":[1, 2] }', {"a": 2, "b": [1, 2]}, '{ "a" : 2, "b":[1, 2] }'),
    "a new member": ('{ "a": 1 }', {"a": 1, "b": 2}, '{ "a": 1,"b":2 }'),
    "a member in nothing": ("{ }", {"b": 2}, '{"b":2 }'),
    "an unknown member": ('{"x": 1e400, "text": "a"}', {"text": "b"}, '{"x": 1e400, "text": "b"}'),
    "a content that is gone": ('{"text": "a", "x": 1}', {}, '{"x": 1}'),
    "the last content": ('{"x": 1 , "text": "a" }', {}, '{"x": 1 }'),
    "a content that comes twice": ('{"text":"a","text":"b"}', {"text": "c"}, '{"text":"c"}'),
    "an odd key that comes twice": ('{"x":1,"text":"a","x":2}', {"text": "c", "x": 2}, None),
    "a block of another type": ('{"type":"image","x":1}', {"type": "text"}, '{"type":"text"}'),
    "another order": ('[{"id":"a"}, {"id":"b"}]', [{"id": "b"}, {"id": "a"}], None),
    "a new one first": ('[ "a","b" ]', [{"n": 1}, "a", "b"], '[{"n":1},"a","b"]'),
}


@pytest.mark.parametrize(("text", "changed", "patched"), PATCHES.values(), ids=PATCHES.keys())
def test_a_patch_leaves_the_rest_as_it_is(text: str, changed: Any, patched: str | None):
    assert patch_json(text, changed) == (patched or text.replace('"a","x"', '"c","x"'))


def test_a_redaction_that_is_named_often_is_one(sidecar: Sidecar):
    options = {**SMALL, "redact": ["email"] * 100_000}
    body = chat(1)
    body["messages"][1]["content"] = "Write to ann@example.org."
    sent = fit(sidecar, body, options=options)["body"]["messages"][1]["content"]
    assert sent == "Write to [redacted: email]."


def test_only_the_output_that_counts_is_lowered(sidecar: Sidecar):
    body = chat(TURNS, max_completion_tokens=7_500)
    sent = fit(sidecar, body)["body"]
    assert (sent["max_tokens"], sent["max_completion_tokens"] < 7_500) == (500, True)
