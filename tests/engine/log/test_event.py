"""The records of a log: written once, read for ever."""

import json
from dataclasses import MISSING, fields

import pytest

from tests.golden.events import BODIES, EVENTS
from tests.golden.record import DIALECTS, events_file, log_file, requests, requests_file
from trimtab import Context
from trimtab.engine.log.event import (
    _CLASS_BY_KIND,
    EVENT_FORMAT_VERSION,
    Event,
    MessageAdded,
    ModelCall,
    Settings,
    Size,
    Usage,
    add_usage,
    dump_canonical_json,
    dump_event_line,
    event_to_json,
    load_event_line,
)
from trimtab.engine.log.message import make_text_message
from trimtab.errors import NewerLogError, RequestChangedError

AGAIN = "if it is meant, write it with `python -m tests.golden.record` and say why in the commit"


def golden_lines():
    return events_file().read_text(encoding="ascii").splitlines()


def test_the_golden_events_have_every_kind():
    assert [type(body) for body in BODIES] == list(_CLASS_BY_KIND.values())


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_the_golden_events_set_every_field(body):
    for spec in fields(body):
        value = getattr(body, spec.name)
        if spec.default is not MISSING:
            assert value != spec.default, spec.name
        elif spec.default_factory is not MISSING:
            assert value != spec.default_factory(), spec.name


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event.body).__name__)
def test_an_event_is_written_as_the_golden_line(event):
    assert dump_event_line(event) == golden_lines()[event.seq - 1], AGAIN


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event.body).__name__)
def test_a_golden_line_is_read_as_the_event(event):
    line = golden_lines()[event.seq - 1]
    assert load_event_line(line) == event
    assert load_event_line(line.encode()) == event


def test_there_are_no_more_golden_lines_than_events():
    assert len(golden_lines()) == len(EVENTS)


def test_fields_at_their_default_are_not_written():
    event = Event(seq=1, at=2.0, body=Settings(model="m", dialect="d", renderer=1))
    assert event_to_json(event) == {
        "version": EVENT_FORMAT_VERSION,
        "seq": 1,
        "at": 2.0,
        "kind": "settings",
        "model": "m",
        "dialect": "d",
        "renderer": 1,
    }
    assert load_event_line(dump_event_line(event)) == event


def test_a_line_is_ascii_without_line_breaks():
    said = MessageAdded(
        message=make_text_message("user", "ü\n\u2028🙂"), sizes=(Size(bytes=9, tokens=3),)
    )
    line = dump_event_line(Event(seq=1, at=0.0, body=said))
    assert line.isascii()
    assert len(line.splitlines()) == 1


def test_keys_keep_the_order_the_provider_gave_them():
    tool = {"name": "z", "input_schema": {"b": 1, "a": 2}}
    settings = Settings(model="m", dialect="d", tools=(tool,), renderer=1)
    event = Event(seq=1, at=0.0, body=settings)
    read = load_event_line(dump_event_line(event)).body
    assert isinstance(read, Settings)
    assert json.dumps(read.tools[0]) == json.dumps(tool)


def test_a_later_format_is_refused_with_what_to_do():
    line = dump_event_line(EVENTS[8]).replace('"version":1', '"version":2')
    with pytest.raises(
        NewerLogError, match="event 9 has format version 2; this release reads up to 1: upgrade"
    ):
        load_event_line(line)


def test_a_line_without_a_version_is_no_event():
    with pytest.raises(KeyError):
        load_event_line(dump_event_line(EVENTS[8]).replace('"version":1,', ""))


def test_a_field_of_a_later_release_is_passed_over():
    line = dump_event_line(EVENTS[8])[:-1] + ',"news":1}'
    assert load_event_line(line) == EVENTS[8]


def test_canonical_json_has_one_form():
    assert dump_canonical_json({"b": "ü", "a": [1, None]}) == '{"a":[1,null],"b":"\\u00fc"}'
    with pytest.raises(ValueError, match="Out of range"):
        dump_canonical_json(float("nan"))


def test_usages_add_up():
    one = Usage(input=1, output=2, cache_read=3, cache_write=4)
    assert add_usage(one, one) == Usage(input=2, output=4, cache_read=6, cache_write=8)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_golden_log_is_rendered_as_it_was(dialect):
    log = log_file(dialect).read_text(encoding="ascii").splitlines()
    golden = requests_file(dialect).read_text(encoding="ascii")
    assert requests(log) == [dump_canonical_json(request) for request in json.loads(golden)], AGAIN


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_golden_log_that_is_read_is_written_without_a_change(dialect):
    log = log_file(dialect).read_text(encoding="ascii").splitlines()
    assert Context.load(log).dump() == log


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_golden_log_meets_all_that_a_renderer_does(dialect):
    log = log_file(dialect).read_text(encoding="ascii")
    kinds = {json.loads(line)["kind"] for line in log.splitlines()}
    ops = {e["op"] for e in map(json.loads, log.splitlines()) if e["kind"] == "edit"}
    assert {"settings", "message", "edit", "repair", "call"} <= kinds
    assert ops == {"truncate", "mask", "drop", "summarise"}
    fields = {name for e in map(json.loads, log.splitlines()) if e["kind"] == "edit" for name in e}
    assert {"listed", "relists", "left_out", "pieces"} <= fields


def test_a_change_of_a_single_word_in_the_renderer_is_noticed(monkeypatch):
    monkeypatch.setattr(
        "trimtab.engine.window.conversation.frame_summary_for_model",
        lambda text, *_: f"Summary: {text}",
    )
    log = log_file("anthropic").read_text(encoding="ascii").splitlines()
    with pytest.raises(RequestChangedError):
        requests(log)


def test_a_past_request_that_renders_otherwise_is_not_shown():
    log = log_file("anthropic").read_text(encoding="ascii").splitlines()
    changed = [line.replace("Go on.", "Go off.") for line in log]
    context = Context.load(changed)
    last = max(event.seq for event in context.events if isinstance(event.body, ModelCall))
    with pytest.raises(RequestChangedError, match=f"the request of call {last} cannot be shown"):
        context.rebuild_request(last)
