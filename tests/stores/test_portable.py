"""A session goes from any store to any other as one file, whole or not at all."""

import json
from hashlib import sha256

import pytest

from tests.stores.events import called, claimed, held, returned, said
from trimtab.engine.log.event import dump_event_line
from trimtab.errors import (
    ExportChecksumError,
    ImportTargetExistsError,
    NewerExportError,
    NotAnExportError,
    SessionImportError,
    SessionNotFound,
    TruncatedExportError,
)
from trimtab.stores.export import export_session, import_session

pytestmark = pytest.mark.anyio

EVENTS = [
    said(1, "hällo 🙂", key="k"),
    called(2, "read", "{}"),
    returned(3, "x" * 99_999),
    claimed(4, 7),
]


async def lines_of(store, session="a"):
    return [line async for line in export_session(store, session)]


def sealed(body, **header):
    """An export by hand, with the sum that belongs to it."""
    summed = sha256("".join(f"{line}\n" for line in body).encode()).hexdigest()
    head = {"trimtab": "session", "version": 1, "id": "a", "events": len(body), **header}
    return [
        json.dumps(head),
        *body,
        json.dumps({"trimtab": "end", "events": len(body), "sha256": summed}),
    ]


async def test_a_session_comes_back_byte_for_byte(store):
    await store.append("a", EVENTS)
    lines = await lines_of(store)
    assert lines[1:-1] == await held(store, "a")
    assert (
        json.loads(lines[-1])["sha256"]
        == sha256("".join(f"{line}\n" for line in lines[1:-1]).encode()).hexdigest()
    )
    done = await import_session(store, "b", lines)
    assert (done.session_id, done.exported_id, done.events) == ("b", "a", 4)
    assert await held(store, "b") == await held(store, "a")
    assert (await lines_of(store, "b"))[1:] == lines[1:]
    assert await store.find_key("b", "k") == 1


async def test_it_goes_straight_from_one_store_to_another(store, tmp_path):
    from trimtab.testing import MemoryStore

    other = MemoryStore()
    await other.append("a", EVENTS)
    assert (await import_session(store, None, export_session(other, "a"))).session_id == "a"
    assert await lines_of(store) == await lines_of(other)


async def test_what_is_not_there_cannot_be_exported(store):
    with pytest.raises(SessionNotFound):
        await lines_of(store)


async def test_a_session_that_exists_is_left_as_it_is(store):
    await store.append("a", EVENTS)
    lines = await lines_of(store)
    await store.append("a", [said(5)])
    with pytest.raises(ImportTargetExistsError, match="already exists with 5 events"):
        await import_session(store, None, lines)
    assert await store.position("a") == 5


@pytest.mark.parametrize("kept", range(6))
async def test_a_file_cut_after_any_line_is_refused(store, kept):
    await store.append("a", EVENTS)
    lines = (await lines_of(store))[:kept]
    with pytest.raises(TruncatedExportError if kept else NotAnExportError):
        await import_session(store, "b", lines)
    assert await store.position("b") == 0


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        (["{}"], NotAnExportError),
        (['{"trimtab":"session","version":1,"id":"a"}'], NotAnExportError),
        (["[]", "[]"], NotAnExportError),
        (sealed([]), NotAnExportError),
        (sealed([], version=2), NewerExportError),
        (sealed(['{"version":2,"seq":1,"at":1.0,"kind":"message"}']), NewerExportError),
        (['{"trimtab":"session","v":1,"id":"a","events":1}'], NotAnExportError),
        (sealed(['{"v":1,"seq":1,"at":1.0,"kind":"message"}']), NotAnExportError),
        (sealed(['{"seq":1,"at":1.0,"kind":"message"}']), NotAnExportError),
        (sealed(['{"version":1,"seq":1,"at":1.0,"kind":"what"}']), NotAnExportError),
        (
            sealed(['{"version":1,"seq":2,"at":1.0,"kind":"turn","state":"ended","epoch":1}']),
            NotAnExportError,
        ),
        (sealed(["hello"]), NotAnExportError),
        (sealed(["hello"])[:2] + sealed(["hallo"])[-1:], ExportChecksumError),
    ],
)
async def test_what_is_no_export_is_refused_by_its_cause(store, broken, error):
    with pytest.raises(error) as refused:
        await import_session(store, "b", broken)
    assert isinstance(refused.value, SessionImportError)
    assert await store.position("b") == 0


def changed(change):
    """The lines of an export with a right sum, after a change of each event."""
    body = []
    for event in EVENTS:
        data = json.loads(dump_event_line(event))
        change(data)
        body.append(json.dumps(data))
    return sealed(body)


WRONG_EVENTS = {
    "a time that is a text": lambda event: event.update(at="x"),
    "a time after the year 9999": lambda event: event.update(at=1e308),
    "a time before 1970": lambda event: event.update(at=-1),
    "a time that is no number": lambda event: event.update(at=float("nan")),
    "parts that are a text": lambda event: event.get("message", {}).update(parts="x"),
    "a part that is a text": lambda event: event.get("message", {}).update(parts=["x"]),
    "a text that is a number": lambda event: event.get("message", {}).update(
        parts=[{"kind": "text", "text": 5}]
    ),
    "a role that is a list": lambda event: event.get("message", {}).update(role=["user"]),
    "a kind that is a list": lambda event: event.update(kind=[]),
}


@pytest.mark.parametrize("change", WRONG_EVENTS.values(), ids=list(WRONG_EVENTS))
async def test_events_with_a_right_sum_that_no_command_could_read_are_refused(store, change):
    with pytest.raises(NotAnExportError):
        await import_session(store, "b", changed(change))
    assert await store.position("b") == 0


async def test_a_line_that_is_nested_too_deeply_is_refused(store):
    deep = '{"version":1,"seq":1,"at":1,"kind":"message","message":' + '{"a":' * 50_000
    with pytest.raises(NotAnExportError):
        await import_session(store, "b", sealed([deep + "1" + "}" * 50_001]))
