"""The page of a session: what is in it, and what cannot get out of its data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import unescape
from typing import Any

import pytest

from tests.inspect.sessions import list_events, reading_agent
from trimtab.engine.log.event import ModelCall
from trimtab.engine.log.message import Message, Text, ToolCall
from trimtab.inspect.hidden_names import NameIndex
from trimtab.inspect.index_page import index_session, render_index
from trimtab.inspect.page import PAGE_SCRIPTS, read_script, render_page
from trimtab.inspect.recorded_timeline import read_recorded_timeline
from trimtab.inspect.session_timeline import read_session_timeline
from trimtab.inspect.text_pool import TextPool, unpack_json
from trimtab.inspect.timeline import Timeline
from trimtab.replay.readers import read_recordings

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[2J"
DATA = re.compile(r'<script type="text/plain" id="([\w-]+)">([^<]*)</script>')


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    return read_session_timeline("a session", list_events(reading_agent()))


def decode_data(page: str) -> dict[str, Any]:
    return {name: unpack_json(payload) for name, payload in DATA.findall(page)}


def test_the_policy_in_the_file_allows_only_its_own_script_and_style(timeline: Timeline):
    page = render_page(timeline)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in unescape(policy[1]).split(";"))
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert script is not None
    assert style is not None
    assert rules == {
        "default-src": "'none'",
        "script-src": hash_source(script[1]),
        "style-src": hash_source(style[1]),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def hash_source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.mark.parametrize("name", [*PAGE_SCRIPTS, "index.js"])
def test_no_script_turns_data_into_markup_or_asks_for_anything(name: str):
    script = read_script([name])
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function"
    asks = r"\bfetch\(|XMLHttpRequest|sendBeacon|WebSocket|EventSource|import\(|https?://"
    assert re.search(f"{forbidden}|{asks}", script.replace("/^https?:/", "")) is None


def test_nothing_that_was_said_is_in_the_file_as_it_is():
    context = reading_agent(3, words=HOSTILE)
    timeline = read_session_timeline(HOSTILE, list_events(context))
    page = render_page(timeline)
    index = render_index(HOSTILE, [index_session("one.html", timeline)])
    for text in (page, index):
        assert "alert(1)" not in re.sub(r"<title>.*?</title>", "", text)
        assert "<script>alert" not in text
        assert "\u202e" not in text
        assert "\x1b" not in text


def test_a_redacted_page_has_no_word_of_the_session():
    context = reading_agent(12, words="Kowalski")
    timeline = read_session_timeline("A session", list_events(context), redacted=True)
    data = json.dumps(decode_data(render_page(timeline)))
    assert len(timeline.calls) == 24
    for word in ("Kowalski", "line 1", "code base", "only_in_file_0", "src/part"):
        assert word not in data
    assert '"read"' in data, "the names of tools stay"


def test_the_sections_of_a_call_add_up_to_its_estimate():
    events = list_events(reading_agent())
    timeline = read_session_timeline("a session", events)
    tokens = [event.body.tokens for event in events if isinstance(event.body, ModelCall)]
    assert [sum(call.sections) for call in timeline.calls] == tokens


def test_a_call_that_names_what_was_hidden_is_found():
    # This policy leaves only the first line of a result.
    timeline = read_session_timeline("a", list_events(reading_agent(14, policy="compact")))
    names = [(name.name, name.call) for name in timeline.names if not name.is_recall]
    assert ("lib/only_in_file_0.py", 26) in names
    source = next(name.source for name in timeline.names if name.name == "lib/only_in_file_0.py")
    hidden = [edit for edit in timeline.edits if edit.first <= source <= edit.last]
    assert hidden


@pytest.mark.parametrize(
    ("name", "request_text", "names"),
    [
        ("/srv/app/src/part.py", "src/other.py", ["/srv/app/src/part.py"]),
        ("/srv/app/src/part.py", "in src/part.py:12", []),
        ("a1b2c3d..e4f5a6b", "a1b2c3d", ["a1b2c3d..e4f5a6b"]),
        ("a1b2c3d..e4f5a6b", "a1b2c3d and e4f5a6b", []),
        ("/dev/null", "", []),
        ("--name-only", "", []),
    ],
)
def test_a_name_that_the_request_showed_elsewhere_is_not_hidden(
    name: str, request_text: str, names: list[str]
):
    index = NameIndex()
    index.add_message(1, Message(role="user", parts=(Text(text=f"see {name}"),)))
    call = ToolCall(id="c", name="run", arguments=json.dumps({"command": f"cat {name}"}))
    reply = Message(role="assistant", parts=(call,))
    hidden = index.find_hidden(reply, lambda seq, name: False, [request_text])
    assert hidden == [(name, 1) for name in names]


def test_a_cache_break_says_why(timeline: Timeline):
    lost = [call for call in timeline.calls if call.lost]
    assert lost
    assert all("hidden" in call.lost_because for call in lost)
    assert all(call.lost_dollars > 0 for call in lost)


def test_every_call_has_the_recorded_hash_until_something_is_erased():
    context = reading_agent()
    timeline = read_session_timeline("a session", list_events(context))
    assert {call.is_verified for call in timeline.calls} == {True}
    context.erase("m2")
    erased = read_session_timeline("a session", list_events(context))
    assert {call.is_verified for call in erased.calls} == {False}
    assert "file 0, please" not in json.dumps(decode_data(render_page(erased)))


def test_a_text_is_in_the_page_once_however_often_it_is_sent():
    pool = TextPool()
    assert [pool.add("a"), pool.add("b"), pool.add("a")] == [0, 1, 0]
    context = reading_agent(12)
    timeline = read_session_timeline("a session", list_events(context))
    data = decode_data(render_page(timeline))
    texts = [text for name, chunk in data.items() if name.startswith("texts") for text in chunk]
    assert sum(text.count("line 77 of file 11\n") for text in texts) == 1
    assert "line 77 of file 11" not in json.dumps(data["bodies-0"])


def test_a_log_of_another_agent_is_shown_with_its_compaction(tmp_path):
    lines = []
    for number in range(6):
        tool = {"id": f"c{number}", "type": "function"}
        arguments = json.dumps({"path": "src/early_name.py" if number in (0, 5) else "x"})
        call = {**tool, "function": {"name": "read", "arguments": arguments}}
        lines += [
            {"role": "user", "content": f"question {number}"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": f"answer {number}"},
        ]
    record = {"id": "other", "messages": lines, "meta": {"compact": [{"at": 9}]}}
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(record) + "\n", encoding="utf-8")
    timeline = read_recorded_timeline(list(read_recordings(path)))
    assert len(timeline.calls) == 6
    assert [edit.op for edit in timeline.edits] == ["client"]
    assert [(name.name, name.call) for name in timeline.names] == [("src/early_name.py", 5)]
    assert timeline.note


def test_a_notebook_shows_the_report_without_a_script():
    context = reading_agent(8, words="<b>bold</b>")
    for shown in (context._repr_html_(), context.report()._repr_html_()):
        assert "<script" not in shown
        assert "<b>bold" not in shown
        assert "claude-sonnet-4-5" in shown
        assert "hidden by" in shown
