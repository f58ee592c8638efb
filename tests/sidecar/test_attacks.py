"""A web page, another user of the machine and another token read nothing and change nothing."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.sidecar.doors import SMALL, TOKEN, Door, ask, chat, fit, fit_from_start, open_door
from trimtab.sidecar import http_server
from trimtab.sidecar.call import MAX_ID_BYTES, name_owner
from trimtab.sidecar.sidecar import Sidecar
from trimtab.sidecar.state_file import StateFile, UnsafeStateFolder

HANDLE = "m3"
SAID = "Turn 0"
CALL = {"conversation": "a", "body": chat(1), "options": SMALL}


@pytest.fixture
def door() -> Generator[Door]:
    with open_door() as opened:
        status, _ = opened.request(body={"conversation": "a", "body": chat(2), "options": SMALL})
        assert status == 200
        yield opened
        told = ask(opened.sidecar, "totals", owner=name_owner(TOKEN), conversation="a")
        assert told["calls"] == 1, "an attack was counted as a call"


def test_the_client_itself_reads_its_conversation(door: Door):
    status, answer = door.request("/v1/search", {"conversation": "a", "query": "Turn 0"})
    assert (status, SAID in answer["text"]) == (200, True)


WEB_PAGES: dict[str, dict[str, Any]] = {
    "a page whose name was bound again to this machine": {"host": "evil.example:80"},
    "a page that calls itself local on another port": {"host": "127.0.0.1:1"},
    "a name that begins like ours": {"host": "localhost.evil.example"},
    "no host at all": {"host": None},
    "a script of a page": {"origin": "https://evil.example"},
    "a page in a file": {"origin": "null"},
    "a page of a server on this machine": {"origin": "http://localhost:3000"},
    "a request that a browser marks": {"sec_fetch_site": "cross-site"},
    "a question before a script's request": {
        "method": "OPTIONS",
        "origin": "https://evil.example",
        "access_control_request_method": "POST",
    },
}


def test_a_program_on_node_is_no_web_page(door: Door):
    body = {**CALL, "conversation": "b"}
    assert door.request(body=body, sec_fetch_mode="cors")[0] == 200


@pytest.mark.parametrize("headers", WEB_PAGES.values(), ids=WEB_PAGES.keys())
def test_a_web_page_is_refused(door: Door, headers: dict[str, Any]):
    for path in ("/v1/search", "/v1/fit", "/v1/totals"):
        status, answer = door.request(path, {**CALL, "query": SAID, "end": True}, **headers)
        assert status == 403
        assert SAID not in str(answer)


def test_no_answer_lets_a_page_read_it(door: Door):
    for headers in ({"origin": "https://evil.example"}, {"connection": "close"}):
        lines = [f"{name}: {each}" for name, each in headers.items()]
        raw = "\r\n".join(["GET /v1/health HTTP/1.1", f"Host: {door.host}", *lines, "", ""])
        assert b"access-control" not in door.send(raw.encode()).lower()


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_a_form_is_refused_even_with_the_token(door: Door, kind: str | None):
    status, _ = door.request("/v1/totals", {"conversation": "a", "end": True}, content_type=kind)
    assert status == 415


TOKENS: dict[str, str | None] = {
    "none": None,
    "empty": "Bearer ",
    "another": f"Bearer {TOKEN[:-1]}x",
    "a part": f"Bearer {TOKEN[:-1]}",
    "one more": f"Bearer {TOKEN}x",
    "another scheme": f"Basic {TOKEN}",
    "not ASCII": "Bearer \xe9\xff",
}


@pytest.mark.parametrize("value", TOKENS.values(), ids=TOKENS.keys())
def test_without_the_token_nothing_is_answered(door: Door, value: str | None):
    for path, method in (("/v1/health", "GET"), ("/v1/recall", "POST"), ("/nothing", "POST")):
        status, answer = door.request(
            path, {"conversation": "a", "handle": HANDLE}, method=method, authorization=value
        )
        assert (status, SAID in str(answer)) == (401, False)


def test_a_token_in_the_address_is_no_token(door: Door):
    status, _ = door.request(f"/v1/health?token={TOKEN}", method="GET", authorization=None)
    assert status == 401
    status, _ = door.request(f"/v1/recall?access={TOKEN}", {"conversation": "a"})
    assert status == 404


def test_two_tokens_or_two_hosts_are_refused(door: Door):
    for line in (f"Authorization: Bearer {TOKEN}", f"Host: {door.host}"):
        raw = (
            f"GET /v1/health HTTP/1.1\r\nHost: {door.host}\r\n"
            f"Authorization: Bearer {TOKEN}\r\n{line}\r\n\r\n"
        )
        assert door.send(raw.encode()).startswith(b"HTTP/1.1 400")


def test_another_token_has_other_conversations():
    sidecar = Sidecar()
    fit_from_start(sidecar, 2)
    for operation, fields in (
        ("recall", {"handle": HANDLE}),
        ("search", {"query": SAID}),
        ("totals", {"end": True}),
        ("reply", {"usage": {"prompt_tokens": 9}}),
    ):
        answer = ask(sidecar, operation, owner="other", conversation="a", **fields)
        assert (answer["status"], SAID in str(answer)) == (404, False)
    told = ask(sidecar, "answer", owner="other", conversation="a", tool="recall", arguments="{}")
    assert SAID not in str(told)
    assert ask(sidecar, "recall", conversation="a", handle=HANDLE)["status"] == 200


PATHS = ("../a", "..", "a/../../b", "me/a", "\x00", "C:\\a", "~root", "a" * MAX_ID_BYTES)


@pytest.mark.parametrize("name", PATHS)
def test_an_id_names_nothing_outside_the_store(tmp_path: Path, name: str):
    sidecar = Sidecar(tmp_path / "store")
    assert fit_from_start(sidecar, 1, conversation=name)["managed"]
    assert ask(sidecar, "recall", owner="other", conversation=name, handle=HANDLE)["status"] == 404
    sidecar.run(sidecar.close())
    assert [each.name for each in tmp_path.iterdir()] == ["store"]
    for path in (tmp_path / "store").rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077


@pytest.mark.parametrize("path", ["/v1/fit/../health", "/v1//fit", "/V1/fit", "//v1/fit", "/"])
def test_a_path_is_taken_word_for_word(door: Door, path: str):
    assert door.request(path, CALL)[0] == 404


def test_an_id_that_is_too_long_is_refused(door: Door):
    for name in ("a" * (MAX_ID_BYTES + 1), "", 7, None, ["a"]):
        assert door.request(body={**CALL, "conversation": name})[0] == 400


LENGTHS = {
    str(http_server.MAX_BODY_BYTES + 1): 413,
    "9" * 5_000: 413,
    "-1": 411,
    "+5": 411,
    "5, 5": 411,
    "²": 411,
}


@pytest.mark.parametrize(("length", "status"), LENGTHS.items(), ids=[*range(len(LENGTHS))])
def test_a_body_of_a_wrong_size_is_refused_before_it_is_read(door: Door, length: str, status: int):
    assert door.request(raw=b"{}", content_length=length)[0] == status


def test_chunks_are_refused(door: Door):
    status, _ = door.request(raw=b"", content_length=None, transfer_encoding="chunked")
    assert status == 411


def test_a_head_without_end_is_refused(door: Door):
    raw = b"GET /v1/health HTTP/1.1\r\nX: " + b"a" * (2 * http_server.MAX_HEAD_BYTES)
    assert b"HTTP/1.1 431" in door.send(raw)


def test_a_slow_head_and_a_slow_body_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_server, "HEAD_TIMEOUT_S", 0.05)
    with open_door() as door:
        head = (
            f"POST /v1/fit HTTP/1.1\r\nHost: {door.host}\r\nAuthorization: Bearer {TOKEN}\r\n"
            "Content-Type: application/json\r\nContent-Length: 10\r\n\r\n"
        )
        for begun, status in (("POST /v1/fit HT", b"408"), (head + "{", b"408")):
            with socket.create_connection(("127.0.0.1", door.port), timeout=5) as connection:
                connection.sendall(begun.encode())
                assert connection.recv(12).endswith(status)
        with socket.create_connection(("127.0.0.1", door.port), timeout=5) as connection:
            assert connection.recv(1) == b""  # it said nothing


def test_many_silent_connections_do_not_shut_the_door_for_long(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_server, "HEAD_TIMEOUT_S", 0.2)
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 4)
    with open_door() as door:
        held = [socket.create_connection(("127.0.0.1", door.port), timeout=5) for _ in range(4)]
        for connection in held:
            assert connection.recv(1) == b""
            connection.close()
        assert door.request("/v1/health", method="GET", raw=b"")[0] == 200


BROKEN = (b"", b"[]", b"7", b"{", b"nonsense", b"\xff", b'{"body": NaN}', b"[" * 100_000, b"{}{}")


@pytest.mark.parametrize("raw", BROKEN, ids=[*range(len(BROKEN))])
def test_what_is_not_a_call_is_refused(door: Door, raw: bytes):
    assert door.request(raw=raw)[0] == 400


def test_a_header_that_begins_a_second_request_is_refused(door: Door):
    for line in ("X: a\nHost: b", " X: a", "X : a", "no colon", ": a"):
        raw = f"GET /v1/health HTTP/1.1\r\nHost: {door.host}\r\n{line}\r\n\r\n"
        assert door.send(raw.encode()).startswith(b"HTTP/1.1 400")


def test_keys_and_headers_in_a_body_are_not_stored(tmp_path: Path):
    sidecar = Sidecar(tmp_path)
    secrets = {"api_key": "sk-private", "extra_headers": {"x-api-key": "sk-private"}}
    answer = fit(sidecar, chat(12, **secrets, authorization="sk-private"))
    assert answer["body"]["api_key"] == "sk-private"
    sidecar.run(sidecar.close())
    assert not any(b"sk-private" in f.read_bytes() for f in tmp_path.rglob("*") if f.is_file())


def test_a_file_for_clients_is_for_nobody_else(tmp_path: Path):
    old = os.umask(0)
    try:
        state = StateFile(tmp_path / "state")
        state.write(token=TOKEN, url="http://127.0.0.1:1")
    finally:
        os.umask(old)
    assert stat.S_IMODE(state.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.folder.stat().st_mode) == 0o700


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path):
    theirs = tmp_path / "theirs"
    theirs.write_text('{"token": "' + "known-to-others-" * 3 + '"}')
    theirs.chmod(0o600)
    state = StateFile(tmp_path / "state")
    state.path.symlink_to(theirs)
    token = state.read_or_make_token()
    assert "known" not in token
    state.write(token=token)
    assert token not in theirs.read_text()
    assert not state.path.is_symlink()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o606])
def test_a_token_that_others_could_read_is_replaced(tmp_path: Path, mode: int):
    state = StateFile(tmp_path / "state")
    state.write(token=TOKEN)
    assert state.read_or_make_token() == TOKEN
    state.path.chmod(mode)
    assert state.read_or_make_token() != TOKEN


def test_a_pipe_in_the_place_of_the_file_is_not_read(tmp_path: Path):
    state = StateFile(tmp_path / "state")
    os.mkfifo(state.path, 0o600)
    assert len(state.read_or_make_token()) > 40


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(UnsafeStateFolder):
        StateFile(tmp_path / "link")
    monkeypatch.setattr(os, "getuid", lambda: 12_345)
    with pytest.raises(UnsafeStateFolder):
        StateFile(tmp_path / "real")


def test_an_open_folder_is_closed(tmp_path: Path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o777)
    StateFile(tmp_path / "state")
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
