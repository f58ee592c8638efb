"""What goes on while something is erased, names that are like others, and ceilings of cost."""

from __future__ import annotations

import json
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.attacks.target import STREAM, Target, attacked, build_head, create_key, erase, until

pytestmark = pytest.mark.process

SESSIONS = "/v1/agents/helper/sessions"
CEILING_USD = 0.3
CROWD = 20
MESSAGES, MESSAGE_BYTES = 14, 500_000
"""Together more than the kernel takes over of an answer that nobody reads: 4 MB, on Linux."""


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = tmp_path_factory.mktemp("erasing") / "agent"
    folder.mkdir()
    with attacked(folder, serve={"tenant_limits": {"cost_per_day": CEILING_USD}}) as made:
        store = folder / "sessions"
        made.keys["talker"] = create_key(store, "talker", "--tenant", "acme", "--role", "talk")
        for tenant in ("twin", "twin2", "twi", "zoo", "slow"):
            options = ("--tenant", tenant, "--role", "admin")
            made.keys[tenant] = create_key(store, tenant, *options)
        yield made


def test_sessions_that_begin_at_once_do_not_pass_a_ceiling_together(target: Target):
    """All of them ask before the first has its answer, which takes a while."""
    said = "simulate: " + json.dumps({"text": "Hello.", "delay": 6})
    with ThreadPoolExecutor(CROWD) as pool:
        answers = list(
            pool.map(lambda number: post(target, f"crowd{number}", said, "guest"), range(CROWD))
        )
    refused = [answer for answer in answers if b"cost_ceiling" in answer]
    calls = len(target.model.records.requests)
    assert calls == CROWD - len(refused)
    price = target.server.until("cost_ceiling_reached")["price_usd"]
    assert 0 < calls * price <= CEILING_USD


def test_no_copy_that_is_made_meanwhile_outlives_an_erased_user(target: Target):
    """Copies of copies, by somebody who may talk, while the first are being deleted."""
    post(target, "victim", "The word is QUAGGA.", "acme", user="vic")
    copies, ended = ["victim"], threading.Event()

    def fork(worker: int) -> None:
        number = 0
        while not ended.is_set():
            name = f"copy{worker}-{number}"
            answer = target.request(
                "POST", f"{SESSIONS}/{copies[-1]}/fork", key="talker", body={"name": name}
            )
            assert answer.status in (201, 404, 409), answer
            if answer.status == 201:
                copies.append(name)
                number += 1

    with ThreadPoolExecutor(3) as pool:
        forks = [pool.submit(fork, worker) for worker in range(3)]
        until(lambda: len(copies) > 10)
        try:
            erase(target, "/v1/users/vic", "acme")
        finally:
            ended.set()
        for each in forks:
            each.result()
    assert target.request("GET", "/v1/users/vic/export").body.count(b"\n") == 2
    assert find_in_files(target, b"QUAGGA") == []


def test_no_other_user_and_no_other_tenant_is_erased_for_a_name_that_is_alike(target: Target):
    for tenant in ("twin", "twin2", "twi"):
        for user in ("anna", "ann", "anna:2", "Anna"):
            post(target, f"with-{user}", f"I am {user}.", tenant, user=user)
    post(target, "anna", "A session of that name.", "twin", user="bob")
    for name in ("anna%0a", "%20anna", "anna%00", "*", "ann%25", "..", "a%2fb", "anna/", "%2a"):
        assert target.request("DELETE", f"/v1/users/{name}", key="twin").status in (404, 405), name
    assert len(names(target, "twin")) == 5
    assert erase(target, "/v1/users/anna", "twin") == 1
    assert names(target, "twin") == ["anna", "with-Anna", "with-ann", "with-anna:2"]
    for confirm in ("TWIN", " twin", "twin\n", "twin\0", "twin2", "", ["twin"], {"$ne": ""}, True):
        body = {"confirm": confirm}
        assert target.request("DELETE", "/v1/tenant", key="twin", body=body).is_problem(422)
    for kind in ("application/x-www-form-urlencoded", "text/plain", "application/json5"):
        raw, header = b'{"confirm": "twin"}', {"Content-Type": kind}
        answer = target.request("DELETE", "/v1/tenant", key="twin", raw=raw, named=header)
        assert answer.is_problem(415)
    assert len(names(target, "twin")) == 4
    assert erase(target, "/v1/tenant", "twin", body={"confirm": "twin"}) == 4
    assert names(target, "twin") == []
    for other in ("twin2", "twi"):
        assert len(names(target, other)) == 4


def test_no_text_makes_a_line_of_an_export_or_an_event_of_a_stream(target: Target):
    forged = '\n{"kind":"end","sessions":0,"messages":0}\r\n\u2028{"kind":"end"}\x85\n\n'
    events = "\n\nevent: turn.finished\ndata: {}\n\nid: 999\r\rdata: x\u2028event: forged\n\n"
    said = "simulate: " + json.dumps({"text": f"{forged}{events}"})
    answer = post(target, "forged", said, "zoo", user="eve")
    lines = answer.split(b"\n")
    assert sum(line.startswith(b"event: turn.finished") for line in lines) == 1
    assert not [line for line in re.split(rb"\r\n|\r|\n", answer) if line.startswith(b"id: 999")]
    assert {line.partition(b":")[0] for line in re.split(rb"\r\n|\r|\n", answer)} <= {
        *(b"", b"id", b"event", b"data", b"retry")
    }

    def kinds() -> list[str]:
        export = target.request("GET", "/v1/users/eve/export", key="zoo").body
        return [json.loads(line)["kind"] for line in export.splitlines()]

    # A stream hears of the end of a turn before the queue has let go of the message.
    until(lambda: "waiting" not in kinds())
    assert kinds() == ["export", "session", "message", "message", "end"]


def test_what_is_erased_is_not_read_on_by_who_reads_slowly(target: Target):
    """What the kernel has taken over is the reader's; all else is the server's, and gone."""
    for number in range(MESSAGES):
        body = {"text": f"WOMBAT{number} " + "x" * MESSAGE_BYTES, "user": "sam"}
        path = f"{SESSIONS}/long/messages"
        assert target.request("POST", path, key="slow", body=body).status == 202
    until(lambda: rests(target, "long", "slow"))
    with socket.socket() as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        wire.settimeout(60)
        wire.connect(target.address)
        wire.sendall(build_head("GET", f"{SESSIONS}/long/events?after=0", target.keys["slow"]))
        received = wire.recv(100)
        assert erase(target, "/v1/users/sam", "slow") == 1
        while piece := wire.recv(1_000_000):
            received += piece
    assert b"the session was deleted" in received[-200:]
    assert f"WOMBAT{MESSAGES - 1} ".encode() not in received


def test_no_place_in_a_stream_brings_an_erased_answer_back(target: Target):
    """Neither from the log nor from what is being written, while its turn runs."""
    post(target, "duo", "I am Bob.", "zoo", user="bob")
    said = "simulate: " + json.dumps({"text": "NUMBAT " * 40, "pace": 0.1})
    body = json.dumps({"text": said, "user": "una"}).encode()
    path = f"{SESSIONS}/duo"
    with target.connect() as wire, wire.makefile("rb") as reader:
        wire.sendall(
            build_head("POST", f"{path}/messages", target.keys["zoo"], body=body, Accept=STREAM)
        )
        while b"message.delta" not in reader.readline():
            pass
        erase(target, "/v1/users/una", "zoo")
        end = target.request("GET", path, key="zoo").document["position"]
        for place in (*range(end + 1), *(f"{number}.3" for number in range(end + 1))):
            with target.connect() as other:
                key = target.keys["zoo"]
                other.sendall(build_head("GET", f"{path}/events", key, Last_Event_ID=str(place)))
                other.settimeout(0.05)
                assert b"NUMBAT" not in read_what_comes(other), place
    assert find_in_files(target, b"NUMBAT") == []


def test_who_stops_each_answer_before_its_end_pays_for_it(target: Target):
    said = "simulate: " + json.dumps({"text": "OKAPI " * 400, "pace": 0.02})
    body = json.dumps({"text": said}).encode()
    for number in range(40):
        path = f"{SESSIONS}/stopped{number}"
        head = build_head(
            "POST", f"{path}/messages", target.keys["operator"], body=body, Accept=STREAM
        )
        with target.connect() as wire, wire.makefile("rb") as reader:
            wire.sendall(head)
            for line in reader:
                if b"message.delta" in line or b"turn.finished" in line:
                    break
            target.request("POST", f"{path}/stop", key="operator", body={})
            if b"cost_ceiling" in reader.read():
                break
    else:
        pytest.fail("forty answers were not paid for")


def post(target: Target, session: str, text: str, key: str, **more: str) -> bytes:
    """Say something, and wait for the end of its turn; all events."""
    path = f"{SESSIONS}/{session}/messages"
    answer = target.request("POST", path, key=key, body={"text": text, **more}, Accept=STREAM)
    assert answer.status == 200, answer
    return answer.body


def names(target: Target, tenant: str) -> list[str]:
    """The tenant's sessions."""
    found = target.request("GET", SESSIONS, key=tenant).document["sessions"]
    return sorted(each["name"] for each in found)


def rests(target: Target, session: str, key: str) -> bool:
    state = target.request("GET", f"{SESSIONS}/{session}", key=key)
    return state.status == 200 and not (state.document["waiting"] or state.document["running"])


def find_in_files(target: Target, needle: bytes) -> list[str]:
    """Files of the server that hold something."""
    files = (path for path in target.folder.rglob("*") if path.is_file())
    return [path.name for path in files if needle in path.read_bytes()]


def read_what_comes(wire: socket.socket) -> bytes:
    """All that is there, until a pause."""
    found = b""
    try:
        while piece := wire.recv(65_536):
            found += piece
    except TimeoutError:
        pass
    return found
