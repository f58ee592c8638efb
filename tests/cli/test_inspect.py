"""`trimtab inspect`: which session it takes, and what it writes."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import webbrowser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.inspect.sessions import list_events, reading_agent
from trimtab.cli.app import app
from trimtab.engine.log.event import dump_event_line
from trimtab.inspect.text_pool import unpack_json
from trimtab.stores.files import FileStore


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "sessions"

    async def fill() -> None:
        store = FileStore(folder)
        for number, name in enumerate(("telegram:7", "alice")):
            await store.append(name, list_events(reading_agent(2 + number)))
            os.utime(folder / store._folder(name).name / "events.jsonl", (number, number))
        await store.close()

    asyncio.run(fill())
    return folder


def inspect(*arguments: str | Path) -> list[str]:
    done = CliRunner().invoke(app, ["inspect", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def read_title(page: Path) -> str:
    return page.read_text(encoding="utf-8").split("<title>")[1].split("</title>")[0]


def test_a_session_is_written_as_one_file_that_only_its_owner_reads(store: Path, tmp_path: Path):
    page = tmp_path / "page.html"
    assert inspect("alice", "--store", store, "--html", page) == [str(page)]
    assert read_title(page) == "alice · Trimtab"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600


def test_without_a_name_the_newest_session_opens_in_the_browser(
    store: Path, monkeypatch: pytest.MonkeyPatch
):
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.chdir(store.parent)
    (page,) = inspect()
    assert opened == [Path(page).as_uri()]
    assert read_title(Path(page)) == "alice · Trimtab"


def test_without_a_store_the_newest_log_of_an_agent_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    logs = tmp_path / ".claude" / "projects" / "one"
    logs.mkdir(parents=True)
    wires = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": [{"type": "text", "text": "hi"}], "id": "msg_1"},
    ]
    lines = [{"type": wire["role"], "message": wire, "uuid": str(wire)} for wire in wires]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (logs / "talk.jsonl").write_text(text, encoding="utf-8")
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.html"
    inspect("--html", page)
    assert "hello" not in page.read_text(encoding="utf-8"), "texts are compressed"
    assert "talk" in read_title(page)


def test_a_folder_becomes_a_list_with_a_page_for_each_session(store: Path, tmp_path: Path):
    pages = tmp_path / "pages"
    inspect(store, "--html", pages)
    assert sorted(path.name for path in pages.iterdir()) == [
        "index.html",
        "session-0001.html",
        "session-0002.html",
    ]
    index = (pages / "index.html").read_text(encoding="utf-8")
    payload = index.split('id="data">')[1].split("<")[0]
    rows = unpack_json(payload)["sessions"]
    assert [(row["title"], row["calls"]) for row in rows] == [("alice", 6), ("telegram:7", 4)]


def test_a_log_file_of_ours_is_read_where_it_lies(store: Path, tmp_path: Path):
    page = tmp_path / "page.html"
    inspect(store / "alice" / "events.jsonl", "--html", page)
    assert read_title(page) == "alice · Trimtab"


def test_an_exported_session_is_read_as_well(store: Path, tmp_path: Path):
    export, page = tmp_path / "alice.jsonl", tmp_path / "page.html"
    arguments = ["session", "export", "alice", "--store", str(store), "--output", str(export)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    inspect(export, "--html", page)
    assert read_title(page) == "alice · Trimtab"


def test_a_redacted_page_does_not_name_the_session(store: Path, tmp_path: Path):
    page = tmp_path / "page.html"
    inspect("telegram:7", "--store", store, "--html", page, "--redact")
    assert "telegram" not in page.read_text(encoding="utf-8")


def test_what_does_not_exist_is_said_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for arguments in (["inspect", "nobody"], ["inspect"], ["inspect", str(tmp_path)]):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 2, done.output
        assert len(done.stderr.strip().splitlines()) == 1


def tamper(lines: list[str], how: str) -> bytes:
    """Change a log of one event a line."""
    events = [json.loads(line) for line in lines]
    message = next(event for event in events if event["kind"] == "message")
    match how:
        case "bad JSON":
            lines[3] = '{"kind": '
        case "missing field":
            del message["message"]
        case "wrong type":
            message["message"]["parts"] = [7]
        case "wrong type of a number":
            message["sizes"] = [["x", 1]]
        case "wrong order":
            events[3:5] = reversed(events[3:5])
        case "repeated event":
            events.insert(3, events[3])
        case "missing event":
            del events[3]
        case _:
            pass
    if how not in ("bad JSON", "truncated", "binary"):
        lines = [json.dumps(event) for event in events]
    text = "\n".join(lines).encode()
    if how == "binary":
        return bytes(range(256)) * 20
    return text[:-40] if how == "truncated" else text


TAMPERINGS = {
    "bad JSON": "line 4: expected a JSON object",
    "missing field": "expected a log event",
    "wrong type": "expected a log event",
    "wrong type of a number": "expected a log event",
    "wrong order": "line 5: event 4 cannot follow event 5",
    "repeated event": "line 5: event 4 cannot follow event 4",
    "missing event": "event 5 cannot follow position 3",
    "truncated": "expected a JSON object",
    "binary": "line 1: expected JSON",
}


@pytest.mark.parametrize("how", TAMPERINGS)
def test_a_tampered_log_is_one_line_and_no_traceback(how: str, tmp_path: Path):
    log = tmp_path / "log.jsonl"
    lines = [dump_event_line(event) for event in list_events(reading_agent(3))]
    log.write_bytes(tamper(lines, how))
    done = CliRunner().invoke(app, ["inspect", str(log), "--html", str(tmp_path / "page.html")])
    assert isinstance(done.exception, SystemExit)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.stderr
    assert str(log) in done.stderr
    assert TAMPERINGS[how] in done.stderr


@pytest.mark.parametrize("how", ["repeated event", "wrong type"])
def test_a_tampered_log_is_not_replayed(how: str, tmp_path: Path):
    log = tmp_path / "log.jsonl"
    lines = [dump_event_line(event) for event in list_events(reading_agent(3))]
    log.write_bytes(tamper(lines, how))
    done = CliRunner().invoke(app, ["replay", str(log), "--json"])
    assert isinstance(done.exception, SystemExit)
    assert TAMPERINGS[how] in done.stderr


def test_a_log_with_invalid_tool_definitions_is_not_replayed(tmp_path: Path):
    log = tmp_path / "log.jsonl"
    events = [json.loads(dump_event_line(event)) for event in list_events(reading_agent(3))]
    events[0]["tools"] = [{"name": "read", "description": "Read.", "input_schema": True}]
    log.write_text("\n".join(map(json.dumps, events)), encoding="utf-8")
    done = CliRunner().invoke(app, ["replay", str(log), "--json"])
    assert isinstance(done.exception, SystemExit)
    assert "the log has invalid settings: tools[0] has bool for its input_schema" in done.stderr


@pytest.mark.parametrize(
    ("command", "kind", "change"),
    [
        ("session why alice m2", "message", {"sizes": [["x", 1]]}),
        ("session show alice", "message", {"sizes": [["x", 1]]}),
        ("session show alice", "call", {"tokens": ["a"]}),
        ("session search alice words", "call", {"at": {}}),
    ],
)
def test_a_wrong_value_in_any_event_of_a_stored_log_is_one_line(
    command: str, kind: str, change: dict[str, object], store: Path
):
    log = store / "alice" / "events.jsonl"
    start, brace, rest = log.read_text().partition("{")
    events = [json.loads(line) for line in (brace + rest).splitlines()]
    next(event for event in events if event["kind"] == kind).update(change)
    log.write_text(start + "\n".join(map(json.dumps, events)) + "\n")
    (store / "alice" / "state.yaml").unlink(missing_ok=True)
    done = CliRunner().invoke(app, [*command.split(), "--store", str(store)])
    assert isinstance(done.exception, SystemExit)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.stderr


@pytest.mark.parametrize("command", ["inspect", "session show"])
@pytest.mark.parametrize("change", ['"system":[7]', '"system":5', '"head":[]', '"tools":[7]'])
def test_a_wrong_value_in_a_stored_log_is_one_line(
    command: str, change: str, store: Path, tmp_path: Path
):
    log = store / "alice" / "events.jsonl"
    text = log.read_text()
    name = change.partition(":")[0]
    start, brace, rest = text.partition("{")
    first, end, others = rest.partition("\n")
    event = {**json.loads(brace + first), **json.loads(f"{{{change}}}")}
    log.write_text(start + json.dumps(event, separators=(",", ":")) + end + others)
    assert name in text
    arguments = [*command.split(), "alice", "--store", str(store)]
    arguments += ["--html", str(tmp_path / "page.html")] if command == "inspect" else []
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, SystemExit)
    assert done.exit_code == 2
    assert done.stderr.startswith("trimtab: ")
    assert done.stderr.count("\n") == 1
