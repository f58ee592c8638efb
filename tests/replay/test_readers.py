import asyncio
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.replay.conversations import record, wires
from trimtab import Context
from trimtab.log.event import Usage
from trimtab.replay.readers import UnreadableRecording, read_recordings
from trimtab.replay.recorded_conversation_selection import RecordedConversation
from trimtab.session import Session
from trimtab.stores.export import export_session
from trimtab.testing import MemoryStore


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def only(path: Path) -> RecordedConversation:
    (found,) = read_recordings(path)
    return found


def claude(kind: str, content: Any, second: int, **more: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": kind, "content": content}
    message |= {key: more.pop(key) for key in ("id", "usage", "model") if key in more}
    return {
        "type": kind,
        "message": message,
        "uuid": f"u{second}",
        "timestamp": f"2026-01-01T00:00:{second:02}.000Z",
        "isSidechain": False,
        **more,
    }


def tool_use(number: int) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": f"toolu_{number}", "name": "read", "input": {}}]


def tool_result(number: int) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "found"}]


def codex(kind: str, second: int, **payload: Any) -> dict[str, Any]:
    stamp = f"2026-01-01T00:00:{second:02}.000Z"
    return {"timestamp": stamp, "type": kind, "payload": payload}


class TestLogs:
    def test_a_log_of_ours_keeps_messages_times_usage_and_head(self, tmp_path):
        now = [100.0]
        context = Context(
            "claude-sonnet-4-5", system="Be brief.", recall=True, clock=lambda: now[0]
        )
        context.add({"role": "user", "content": "Hello"})
        context.request()
        now[0] = 107.0
        context.add(
            {
                "id": "msg_1",
                "model": "claude-sonnet-4-5",
                "type": "message",
                "role": "assistant",
                "content": [{"type": "text", "text": "Hi"}],
                "stop_reason": "end_turn",
                "usage": {"input_tokens": 9, "output_tokens": 2},
            }
        )
        folder = tmp_path / "session-7"
        folder.mkdir()
        path = folder / "events.jsonl"
        path.write_text("\n".join(context.dump()) + "\n", encoding="utf-8")

        found = only(path)

        assert found.id == "session-7"
        assert [m.text for m in found.messages] == ["Hello", "Hi"]
        assert found.times == (100.0, 107.0)
        assert found.usage == {1: Usage(input=9, output=2)}
        assert [m.text for m in found.system] == ["Be brief."]
        assert found.tools == ()

    def test_what_was_rewound_is_not_replayed(self, tmp_path):
        context = Context("claude-sonnet-4-5", clock=lambda: 0.0)
        kept = context.add({"role": "user", "content": "kept"})
        context.add({"role": "assistant", "content": "undone"})
        context.rewind(kept)
        path = tmp_path / "one.jsonl"
        path.write_text("\n".join(context.dump()), encoding="utf-8")
        assert [m.text for m in only(path).messages] == ["kept"]

    def test_a_torn_last_line_is_left_out(self, tmp_path):
        context = Context("claude-sonnet-4-5", clock=lambda: 0.0)
        context.add({"role": "user", "content": "whole"})
        path = tmp_path / "one.jsonl"
        path.write_text("\n".join(context.dump()) + '\n{"v":1,"se', encoding="utf-8")
        assert [m.text for m in only(path).messages] == ["whole"]

    def test_a_broken_event_is_named_by_file_and_line(self, tmp_path):
        lines = Context("claude-sonnet-4-5", clock=lambda: 0.0).dump()
        path = tmp_path / "one.jsonl"
        broken = '{"v":1,"seq":2,"at":0,"kind":"nonsense"}\n'
        path.write_text("\n".join(lines) + "\n" + broken, encoding="utf-8")
        with pytest.raises(
            UnreadableRecording, match=r"one\.jsonl, line 2: expected an event of a log$"
        ):
            list(read_recordings(path))


class TestExports:
    def exported(self) -> list[str]:
        """What `trimtab session export` writes."""

        async def lines() -> list[str]:
            store = MemoryStore()
            talk = await Session.create(store, "default/helper/first", model="gpt-4o")
            for said in (
                {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": "Hi"},
            ):
                await talk.add(said)
            return [line async for line in export_session(store, "default/helper/first")]

        return asyncio.run(lines())

    def test_an_export_is_read_as_the_log_in_it(self, tmp_path):
        head, *events, end = self.exported()
        (tmp_path / "export.jsonl").write_text("\n".join([head, *events, end]), encoding="utf-8")
        (tmp_path / "log.jsonl").write_text("\n".join(events), encoding="utf-8")
        found = only(tmp_path / "export.jsonl")
        assert found.id == "default/helper/first"
        assert [m.text for m in found.messages] == ["Hello", "Hi"]
        log = only(tmp_path / "log.jsonl")
        assert found == replace(log, id=found.id, source=found.source)

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            (
                lambda lines: lines[:-1],
                r"line 4: expected an export of 3 events and an end; export",
            ),
            (lambda lines: lines[:1], r"line 1: expected an export of 3 events and an end; export"),
            (lambda lines: [*lines[:2], *lines[3:]], r"line 4: expected an export of 3 events and"),
            (
                lambda lines: [lines[0].replace('"v":1', '"v":99'), *lines[1:]],
                r"line 1: this export has format version 99 and this release reads up to 1: upgr",
            ),
            (
                lambda lines: [lines[0], '{"v":99,"seq":1,"at":0,"kind":"x"}', *lines[2:]],
                r"line 2: this event has format version 99 and this release reads up to \d: upgr",
            ),
            (lambda lines: [lines[0], "{}", *lines[2:]], r"line 2: expected an event of a log$"),
        ],
        ids=["cut off", "its head alone", "an event less", "newer", "newer events", "no event"],
    )
    def test_an_export_that_is_not_whole_says_so(self, tmp_path, change, why):
        path = tmp_path / "x.jsonl"
        path.write_text("\n".join(change(self.exported())), encoding="utf-8")
        with pytest.raises(UnreadableRecording, match=r"x\.jsonl, " + why):
            list(read_recordings(path))


class TestRecords:
    def test_records_are_read_one_a_line_compressed_or_not(self, tmp_path):
        lines = [record("a", 2), record("b", 3)]
        plain = write(tmp_path / "x.jsonl", *lines)
        packed = tmp_path / "y.jsonl.gz"
        packed.write_bytes(gzip.compress(plain.read_bytes()))
        assert list(read_recordings(packed)) == list(read_recordings(plain))
        assert [(c.id, c.source, c.calls) for c in read_recordings(plain)] == [
            ("a", "made/up", 3),
            ("b", "made/up", 4),
        ]

    def test_a_record_ends_where_its_agent_compacted(self, tmp_path):
        data = {**record("a", 4), "meta": {"compact": [{"at": 4}, {"at": 6}]}}
        found = only(write(tmp_path / "x.jsonl", data))
        assert [m.role for m in found.messages] == ["user", "assistant", "tool"]

    def test_usage_of_both_vendors_is_normalised_and_counted_without_the_system_prompt(
        self, tmp_path
    ):
        claude_usage = {
            "input_tokens": 1,
            "cache_creation_input_tokens": 20,
            "cache_read_input_tokens": 300,
            "output_tokens": 4,
        }
        codex_usage = {"input_tokens": 500, "cached_input_tokens": 400, "output_tokens": 5}
        data = {**record("a", 2), "meta": {"usage": {"2": claude_usage, "4": codex_usage}}}
        assert only(write(tmp_path / "x.jsonl", data)).usage == {
            1: Usage(input=321, output=4, cache_read=300, cache_write=20),
            3: Usage(input=500, output=5, cache_read=400),
        }

    def test_a_bare_list_of_messages_is_one_conversation(self, tmp_path):
        path = tmp_path / "chat.json"
        path.write_text(json.dumps(wires(1), indent=1), encoding="utf-8")
        found = only(path)
        assert (found.id, found.calls, len(found.system)) == ("chat", 2, 1)

    def test_messages_one_a_line_are_one_conversation(self, tmp_path):
        whole = tmp_path / "chat.json"
        whole.write_text(json.dumps(wires(2)), encoding="utf-8")
        found = only(write(tmp_path / "chat.jsonl", *wires(2)))
        assert (found.id, found.calls, len(found.system)) == ("chat", 3, 1)
        assert found == replace(only(whole), source=found.source)

    def test_a_call_may_stand_between_messages_as_an_item(self, tmp_path):
        item = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
        found = only(write(tmp_path / "x.jsonl", {"role": "user", "content": "Look."}, item))
        assert found.messages[1].calls[0].name == "read"

    def test_an_anthropic_request_is_a_record_with_its_system_prompt(self, tmp_path):
        said = [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": tool_use(1)},
            {"role": "user", "content": tool_result(1)},
        ]
        body = {"system": "Be brief.", "tools": [{"name": "read"}], "messages": said}
        path = tmp_path / "request.json"
        path.write_text(json.dumps(body, indent=1), encoding="utf-8")
        found = only(path)
        assert [m.text for m in found.system] == ["Be brief."]
        assert found.messages[1].calls[0].name == "read"
        assert found.messages[2].results[0].text == "found"
        assert found.tools == ({"name": "read"},)

    def test_a_missing_result_is_left_to_the_context(self, tmp_path):
        said = [wire for wire in wires(2) if wire["role"] != "tool"]
        found = only(write(tmp_path / "x.jsonl", {"id": "a", "messages": said}))
        assert found.calls == 3


class TestClaudeCode:
    def test_lines_of_one_reply_are_one_message(self, tmp_path):
        path = write(
            tmp_path / "abc.jsonl",
            {"type": "summary", "summary": "…", "leafUuid": "x"},
            claude("user", "Look.", 1),
            claude("assistant", [{"type": "thinking", "thinking": "hm"}], 2, id="m1"),
            claude("assistant", [{"type": "text", "text": "Yes."}], 3, id="m1"),
            claude("assistant", tool_use(1), 4, id="m1", usage={"input_tokens": 7}),
            claude("user", tool_result(1), 5),
            claude("assistant", tool_use(2), 6, id="m1", usage={"input_tokens": 8}),
            claude("user", tool_result(2), 7),
        )
        found = only(path)
        assert found.id == "abc"
        assert [m.role for m in found.messages] == ["user", "assistant", "user", "user"]
        assert found.messages[1].text == "Yes."
        assert [c.id for c in found.messages[1].calls] == ["toolu_1", "toolu_2"]
        assert found.usage == {1: Usage(input=8)}
        assert found.times is not None
        assert [at - found.times[0] for at in found.times] == [0, 2, 4, 6]

    def test_side_chains_notes_repeats_and_made_up_errors_are_left_out(self, tmp_path):
        path = write(
            tmp_path / "abc.jsonl",
            claude("user", "said", 1),
            claude("user", "a subagent's", 2, isSidechain=True),
            claude("user", "injected", 3, isMeta=True),
            claude("user", "said again", 1),
            claude("assistant", [{"type": "text", "text": "error"}], 4, model="<synthetic>"),
            {"type": "file-history-snapshot", "messageId": "x"},
        )
        assert [m.text for m in only(path).messages] == ["said"]

    def test_a_file_of_a_subagent_is_a_conversation_of_its_own(self, tmp_path):
        path = write(tmp_path / "agent-1.jsonl", claude("user", "a task", 1, isSidechain=True))
        assert [m.text for m in only(path).messages] == ["a task"]

    @pytest.mark.parametrize(
        "boundary",
        [
            {"type": "system", "subtype": "compact_boundary"},
            claude("user", "a summary", 2, isCompactSummary=True),
        ],
    )
    def test_a_transcript_ends_where_its_agent_compacted(self, tmp_path, boundary):
        path = write(
            tmp_path / "a.jsonl", claude("user", "before", 1), boundary, claude("user", "after", 3)
        )
        assert [m.text for m in only(path).messages] == ["before"]

    def test_a_line_without_content_is_named(self, tmp_path):
        path = write(tmp_path / "a.jsonl", claude("user", "x", 1), {"type": "user", "message": {}})
        with pytest.raises(UnreadableRecording, match=r"a\.jsonl, line 2: expected a `message`"):
            list(read_recordings(path))


class TestCodex:
    def test_items_of_one_reply_are_one_message_with_its_usage(self, tmp_path):
        told = {"input_tokens": 50, "cached_input_tokens": 40, "output_tokens": 3}
        path = write(
            tmp_path / "rollout.jsonl",
            codex("session_meta", 0, id="thread-1", base_instructions={"text": "Be brief."}),
            codex(
                "response_item",
                1,
                type="message",
                role="user",
                content=[{"type": "input_text", "text": "Look."}],
            ),
            codex("response_item", 2, type="reasoning", summary=[], encrypted_content="…"),
            codex(
                "response_item",
                3,
                type="message",
                role="assistant",
                content=[{"type": "output_text", "text": "Yes."}],
            ),
            codex(
                "response_item", 4, type="function_call", call_id="c1", name="sh", arguments="{}"
            ),
            codex("response_item", 5, type="custom_tool_call", call_id="c2", name="p", input="x"),
            codex("response_item", 6, type="function_call_output", call_id="c1", output="one"),
            codex("event_msg", 6, type="token_count", info={"last_token_usage": told}),
            codex("response_item", 7, type="custom_tool_call_output", call_id="c2", output="two"),
            codex("compacted", 8, message="a summary"),
            codex("response_item", 9, type="function_call_output", call_id="c9", output="late"),
        )
        found = only(path)
        assert found.id == "thread-1"
        assert [m.text for m in found.system] == ["Be brief."]
        assert [m.role for m in found.messages] == ["user", "assistant", "tool", "tool"]
        assert [c.name for c in found.messages[1].calls] == ["sh", "p"]
        assert [m.results[0].text for m in found.messages[2:]] == ["one", "two"]
        assert found.usage == {1: Usage(input=50, output=3, cache_read=40)}
        assert found.times is not None
        assert [at - found.times[0] for at in found.times] == [0, 2, 5, 6]

    def test_items_that_are_none_are_said_without_words_of_python(self, tmp_path):
        item = codex("response_item", 1, type="message", role="bard", content="x")
        path = write(tmp_path / "r.jsonl", item)
        with pytest.raises(
            UnreadableRecording, match=r"line 1: expected Responses items: role 'bard' is"
        ):
            list(read_recordings(path))


class TestAnything:
    def test_a_folder_is_read_in_order_and_strangers_are_told(self, tmp_path):
        (tmp_path / "deep").mkdir()
        write(tmp_path / "deep" / "b.jsonl", record("b", 1))
        write(tmp_path / "a.jsonl", record("a", 1))
        (tmp_path / "c.txt").write_text("not looked into")
        (tmp_path / "d.json").write_text('{"name": "package"}')
        told: list[UnreadableRecording] = []
        assert [one.id for one in read_recordings(tmp_path, told.append)] == ["a", "b"]
        assert [error.path.name for error in told] == ["d.json"]

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("hello\n", r"line 1: expected JSON, found 'hello'"),
            ('{"name": "x"}\n', r"line 1: expected a trimtab log or export, conversations"),
            ("[1, 2]", r"line 1: expected a list of messages"),
            ('[{"role": "user",\n\n]', r"line 3: expected JSON"),
            ('{"id": "a", "messages": []}\n[]\n', r"line 2: expected a JSON object"),
            ('{"id": "a", "messages": []}\n{"id": "b"}\n', r"line 2: .* `messages`"),
            ('{"id": "a", "messages": [{"role": "bard"}]}\n', r"line 1: expected messages of"),
            (
                '{"messages": [{"role": "assistant", "tool_calls": ["x"]}]}\n',
                r"line 1: expected messages of OpenAI or Anthropic: tool_calls\[0\] of the",
            ),
            ('{"messages": ["hello"]}\n', r"line 1: expected messages of OpenAI or Anthropic$"),
            (
                '{"role": "user", "content": "a"}\n{"at": 7}\n',
                r"line 2: expected a message with `role` and `content`",
            ),
            ("", r"line 1: expected a trimtab log"),
        ],
    )
    def test_what_cannot_be_read_says_where_and_what_was_expected(self, tmp_path, text, said):
        path = tmp_path / "x.jsonl"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UnreadableRecording, match=r"x\.jsonl, " + said):
            list(read_recordings(path))
