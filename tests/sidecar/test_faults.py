"""Whatever breaks, the agent goes on."""

from __future__ import annotations

import io
import json
import logging
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.sidecar.calls import SMALL, ask, chat, fit, fit_from_start, report
from trimtab.errors import StoreFull
from trimtab.integrations.conversations import Conversations
from trimtab.sidecar.redacted_conversations import RedactedConversations
from trimtab.sidecar.sidecar import Sidecar
from trimtab.sidecar.stdio import serve_stdio
from trimtab.testing import MemoryStore

TURNS = 12


class FullDisk(MemoryStore):
    """A store that takes so many appends."""

    left = 0

    async def append(self, *args: Any, **kwargs: Any) -> Any:
        if not self.left:
            raise StoreFull("no space is left")
        self.left -= 1
        return await super().append(*args, **kwargs)


def shown(answer: dict[str, Any]) -> Any:
    return answer["body"]["messages"]


def longer(turns: int) -> dict[str, Any]:
    body = chat(turns)
    body["messages"].append({"role": "assistant", "content": "Done."})
    body["messages"].append({"role": "user", "content": "Thanks."})
    return body


def test_a_fault_of_ours_sends_what_the_client_had(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    sidecar = Sidecar()
    with monkeypatch.context() as patch:

        async def fail(*_: Any, **__: Any) -> Any:
            raise RuntimeError("a bug")

        patch.setattr(Conversations, "fit", fail)
        answer = fit(sidecar, chat(TURNS))
        assert (answer["status"], answer["changed"]) == (200, False)
        assert answer["fault"] == "RuntimeError: a bug"
        assert "passes as it is" in caplog.text
        blocked = fit(sidecar, chat(TURNS), options={"redact": ["email"]})
        assert (blocked["status"], blocked["blocked"]) == (503, True)
    assert fit(sidecar, chat(TURNS), options={**SMALL, "redact": []})["changed"]


def test_a_fault_in_another_operation_is_an_answer_as_well(monkeypatch: pytest.MonkeyPatch):
    sidecar = Sidecar()
    fit(sidecar, chat(1))
    monkeypatch.setattr(Conversations, "recall", None)
    answer = ask(sidecar, "recall", conversation="a", handle="m3")
    assert (answer["status"], "TypeError" in answer["error"]) == (500, True)


@pytest.mark.parametrize("appends", [0, 1, 3])
def test_a_full_disk_leaves_the_conversation_in_memory(
    appends: int, caplog: pytest.LogCaptureFixture
):
    store = FullDisk()
    store.left = appends
    sidecar = Sidecar(store)
    answers = [fit(sidecar, chat(turns)) for turns in range(1, TURNS)]
    assert answers[-1]["fault"].startswith("store: StoreFull")
    assert answers[-1]["used"] + 500 <= answers[-1]["limit"]
    assert "goes on in memory" in caplog.text
    handle = answers[-1]["hidden"] or next(a["hidden"] for a in answers if a["hidden"])
    assert ask(sidecar, "recall", conversation="a", handle=handle[0]["handle"])["status"] == 200
    before = shown(fit(sidecar, chat(TURNS)))
    assert shown(fit(sidecar, longer(TURNS)))[: len(before)] == before


def test_with_a_redaction_a_full_disk_does_not_stop_the_agent():
    options = {**SMALL, "redact": ["email"]}
    answer = fit(Sidecar(FullDisk()), chat(TURNS), options=options)
    assert (answer["status"], answer["changed"]) == (200, True)
    assert answer["fault"].startswith("store: ")


def test_a_store_that_cannot_be_opened_leaves_the_conversation_in_memory(tmp_path: Path):
    (tmp_path / "file").write_text("no folder")
    answer = fit(Sidecar(tmp_path / "file"), chat(TURNS))
    assert answer["changed"]
    assert answer["fault"].startswith("store: ")


def test_a_lost_store_costs_one_change_of_the_prefix(tmp_path: Path):
    sidecar = Sidecar(tmp_path / "store")
    fit(sidecar, chat(TURNS))
    shutil.rmtree(tmp_path / "store")
    again = fit(sidecar, chat(TURNS))
    assert again["changed"]
    assert again["used"] + 500 <= again["limit"]
    assert shown(fit(sidecar, longer(TURNS)))[: len(shown(again))] == shown(again)


@pytest.mark.parametrize("lost", ["memory", "store", "both", "disk"])
def test_a_handle_of_a_lost_log_names_no_other_text(lost: str, tmp_path: Path):
    """The new log has another message at the same place."""
    store: Any = None if lost == "memory" else FullDisk() if lost == "disk" else tmp_path / "store"
    if isinstance(store, FullDisk):
        store.left = 10**6
    sidecar = Sidecar(store)
    texts: dict[str, str] = {}
    for turns in range(1, TURNS):
        for each in fit(sidecar, chat(turns))["hidden"]:
            if each["kind"] == "mask":
                recalled = ask(sidecar, "recall", conversation="a", handle=each["handle"])
                texts[each["handle"]] = recalled["text"]
    if lost in ("store", "both"):
        shutil.rmtree(tmp_path / "store")
    if lost in ("memory", "both"):
        sidecar = Sidecar(store)
    if isinstance(store, FullDisk):
        store.left = 0
    for handle, text in texts.items():
        early = ask(sidecar, "recall", conversation="a", handle=handle)
        assert early.get("text") in (None, text)
    answer = fit(sidecar, chat(TURNS))
    assert len(texts) > 1
    for handle in texts:
        recalled = ask(sidecar, "recall", conversation="a", handle=handle)
        assert (recalled["status"], "there is no" in recalled["error"]) == (404, True)
        arguments = {"handle": handle}
        told = ask(sidecar, "answer", conversation="a", tool="recall", arguments=arguments)
        assert "there is no" in told["text"]
    shown_handles = re.findall(r"recall (m\d+\.\d+~\w+)", str(shown(answer)))
    assert {each["handle"] for each in answer["hidden"]} >= set(shown_handles) != set()
    for handle in shown_handles:
        text = ask(sidecar, "recall", conversation="a", handle=handle)["text"]
        assert text in {report(turn) for turn in range(TURNS)}
    totals = ask(sidecar, "totals", conversation="a")
    assert totals["unreadable"] == 0 < totals["hidden"]


def test_a_search_names_handles_that_recall_takes():
    sidecar = Sidecar()
    fit(sidecar, chat(TURNS))
    call = {"tool": "search_history", "arguments": {"query": "report row_3_1"}}
    for passages in (
        ask(sidecar, "search", conversation="a", query="report row_3_1")["text"],
        ask(sidecar, "answer", conversation="a", **call)["text"],
    ):
        handles = re.findall(r"^(m\d+\.\d+~\w+): report", passages, re.MULTILINE)
        assert handles
        for handle in handles:
            assert ask(sidecar, "recall", conversation="a", handle=handle)["status"] == 200


def test_a_log_keeps_its_handles_from_process_to_process(tmp_path: Path):
    handles: list[str] = []
    for _ in range(3):
        sidecar = Sidecar(tmp_path)
        handles += re.findall(r"recall (m[\d.]+~\w+)", str(shown(fit(sidecar, chat(TURNS)))))
        assert ask(sidecar, "recall", conversation="a", handle=handles[0])["status"] == 200
        sidecar.run(sidecar.close())
    assert len(set(handles)) == len(handles) / 3 > 0


@pytest.mark.parametrize(
    ("call", "status"),
    [
        ({"options": {"redact": ["emial"]}}, 400),
        ({"options": {"redact": "email"}}, 400),
        ({"options": {"redacts": ["email"]}}, 400),
        ({"option": {"redact": ["email"]}}, 400),
        ({"redact": ["email"]}, 400),
        ({"options": {"limits": {"tools": {"read": {"redact": ["email"]}}}}}, 400),
        ({"options": {"redact": ""}}, 400),
        ({"options": [["redact", ["email"]]]}, 400),
        ({"options": {"redact": ["email"], "goal": "none"}}, 400),
        ({"options": {"redact": ["email"]}, "conversation": ""}, 400),
        ({"options": {"redact": ["email"]}, "body": None}, 400),
        ({"options": {"redact": ["email"]}, "body": {"messages": 3}}, 503),
        ({"options": {"redact": ["email"]}, "dialect": "none"}, 400),
        ({"options": {"redact": ["email"]}, "client": "0.0.1"}, 503),
        ({"options": {"redact": ["email"]}, "purpose": "summary"}, 503),
        ({"options": {"redact": ["email"]}, "body": chat(1, previous_response_id="r")}, 503),
    ],
)
def test_what_was_not_redacted_must_not_be_sent(call: dict[str, Any], status: int):
    fields: dict[str, Any] = {"conversation": "a", "body": chat(1), **call}
    answer = ask(Sidecar(), "fit", **fields)
    assert (answer["status"], answer.get("blocked"), "body" in answer) == (status, True, False)
    fields = {name: value for name, value in fields.items() if "redact" not in str(value)}
    fields |= {"redact": []}
    assert "blocked" not in ask(Sidecar(), "fit", **fields)


def test_an_option_that_looks_like_a_redaction_is_not_overlooked():
    answer = fit(Sidecar(), chat(1), options={"redcat": ["email"]})
    assert (answer["status"], answer["blocked"]) == (400, True)


@pytest.mark.parametrize(
    "fields",
    [
        '"options": {"redact": ["email"]}, "options": {}, "body": {}',
        '"options": {"redact": ["email"], "redact": []}, "body": {}',
        '"options": {"r\\u0065dact": ["email"]}, "body": {"system": "a@b.org", "system": "x"}',
        '"options": {"redact": ["email"]}, "body": {"messages": []}, "body": {"messages": []}',
    ],
)
def test_a_call_that_redacts_and_has_a_field_twice_is_blocked(fields: str):
    sidecar = Sidecar()
    answer = sidecar.run(sidecar.answer("fit", f'{{"conversation": "a", {fields}}}'))
    assert (answer.status, answer.fields["blocked"]) == (400, True)
    assert "is there twice" in answer.fields["error"]


QUOTED = '{"goal": "\\"redact\\":"}'


@pytest.mark.parametrize(
    ("options", "is_blocked"), [('{"redact": ["email"]}', True), (QUOTED, False)]
)
@pytest.mark.parametrize("end", ['"body": {"x": NaN}}', '"body": {', '"body": {}}, {}'])
def test_a_call_that_cannot_be_read_is_blocked_if_it_names_a_redaction(
    end: str, options: str, is_blocked: bool
):
    sidecar = Sidecar()
    text = f'{{"conversation": "a", "op": "fit", "options": {options}, {end}'
    answer = sidecar.run(sidecar.answer("fit", text))
    assert (answer.status, answer.fields.get("blocked", False)) == (400, is_blocked)
    answers = io.BytesIO()
    sidecar.run(serve_stdio(sidecar, io.BytesIO(text.encode()), answers))
    assert json.loads(answers.getvalue()).get("blocked", False) is is_blocked


def test_a_redaction_that_comes_later_holds_for_the_earlier_messages_as_well():
    body = chat(1)
    body["messages"][1]["content"] = "I am ann@example.org"
    sidecar = Sidecar()
    for redact, sees in ((["card"], None), (["card", "email"], "I am [redacted: email]")):
        answer = fit(sidecar, body, options={**SMALL, "redact": redact})
        assert answer["changed"] == bool(sees)
    assert shown(answer)[1]["content"] == sees
    matches = ask(sidecar, "search", conversation="a", query="ann@example.org")
    assert "I am ann" not in matches["text"]


def test_a_redacted_conversation_goes_on_from_its_store(tmp_path: Path):
    body = chat(TURNS)
    body["messages"][3]["content"] += " from ann@example.org"
    redacting = {**SMALL, "redact": ["email"]}
    sidecar = Sidecar(tmp_path)
    handle = fit(sidecar, body, options=redacting)["hidden"][0]["handle"]
    sidecar.run(sidecar.close())
    ended = {**SMALL, "redact": []}
    for options, sees in ((redacting, "[redacted: email]"), (ended, "ann@example.org")):
        sidecar = Sidecar(tmp_path)
        forgotten = fit(sidecar, body)
        assert (forgotten["status"], forgotten["blocked"]) == (400, True)
        recalled = ask(sidecar, "recall", conversation="a", handle=handle)
        assert (recalled["status"], sees in recalled.get("text", "")) == (200, options is redacting)
        answer = fit(sidecar, body, options=options)
        assert (answer["status"], answer.get("fault"), answer["managed"]) == (200, "", True)
        new = {
            **body,
            "messages": [*body["messages"], {"role": "user", "content": "ann@example.org"}],
        }
        assert shown(fit(sidecar, new, options=options))[-1]["content"] == sees
        sidecar.run(sidecar.close())


REDACTING = {**SMALL, "redact": ["email"]}


def is_refused(sidecar: Sidecar) -> bool:
    """Whether a call of the conversation `a` that forgets its redaction is refused."""
    answer = fit(sidecar, chat(1))
    return (answer["status"], answer.get("blocked")) == (400, True)


def test_a_redaction_is_not_forgotten_after_other_conversations():
    sidecar = Sidecar(max_conversations=2)
    fit(sidecar, chat(1), options=REDACTING)
    for number in range(5):
        assert fit(sidecar, chat(1), conversation=f"other{number}")["status"] == 200
    assert is_refused(sidecar)
    assert fit(sidecar, chat(1), options={**SMALL, "redact": []})["status"] == 200
    assert fit(sidecar, chat(1))["status"] == 200


def test_a_redaction_is_not_forgotten_after_a_restart_without_a_store(tmp_path: Path):
    path = tmp_path / "state" / "redacted"
    fit(Sidecar(redacted=RedactedConversations(path)), chat(1), options=REDACTING)
    other = Sidecar(redacted=RedactedConversations(path))
    assert is_refused(other)
    assert fit(other, chat(1), conversation="other")["status"] == 200
    fit(other, chat(1), options={**SMALL, "redact": []})
    assert not is_refused(Sidecar(redacted=RedactedConversations(path)))
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_redaction_of_another_process_is_known(tmp_path: Path):
    path = tmp_path / "redacted"
    first, second = (Sidecar(redacted=RedactedConversations(path)) for _ in range(2))
    fit(first, chat(1), options=REDACTING)
    assert is_refused(second)


def test_a_redaction_is_not_forgotten_with_a_damaged_log(tmp_path: Path):
    path = tmp_path / "redacted"
    store = tmp_path / "store"
    sidecar = Sidecar(store, redacted=RedactedConversations(path))
    fit(sidecar, chat(1), options=REDACTING)
    sidecar.run(sidecar.close())
    for log in store.rglob("events.jsonl"):
        log.write_bytes(b"{}\n" * 3)
    assert is_refused(Sidecar(store, redacted=RedactedConversations(path)))


def test_if_nobody_knows_what_is_redacted_a_call_must_say_it(tmp_path: Path):
    path = tmp_path / "redacted"
    path.mkdir()
    sidecar = Sidecar(redacted=RedactedConversations(path))
    assert is_refused(sidecar)
    assert fit(sidecar, chat(1), options={**SMALL, "redact": []})["status"] == 200


@pytest.mark.parametrize("is_read_first", [False, True])
@pytest.mark.parametrize(
    "error", ["Request exceeds the maximum size: 32 MB, ann@example.org", "prompt is too long"]
)
def test_a_refusal_of_a_call_before_the_restart_is_answered(
    tmp_path: Path, error: str, is_read_first: bool
):
    options = {**SMALL, "redact": ["email"]}
    before = Sidecar(tmp_path)
    used = fit(before, chat(TURNS), options=options)["used"]
    before.run(before.close())
    after = Sidecar(tmp_path)
    if is_read_first:
        assert ask(after, "totals", conversation="a")["status"] == 200
    answer = ask(after, "refused", conversation="a", status=413, body=error)
    assert (answer["status"], answer.get("retry")) == (200, True)
    assert fit(after, chat(TURNS), options=options)["used"] < used
    after.run(after.close())
    assert not any(b"ann@" in f.read_bytes() for f in tmp_path.rglob("*") if f.is_file())


def test_what_is_asked_of_unknown_conversations_pushes_none_out():
    sidecar = Sidecar(max_conversations=2)
    fit(sidecar, chat(1))
    for number in range(3):
        ask(sidecar, "refused", conversation=f"x{number}", status=400, body="prompt is too long")
        assert ask(sidecar, "totals", conversation=f"x{number}")["status"] == 404
    totals = ask(sidecar, "totals", conversation="a")
    assert (totals["calls"], ask(sidecar, "health")["conversations"]) == (1, 1)


def test_another_process_goes_on_from_the_store(tmp_path: Path):
    before = Sidecar(tmp_path)
    sent = shown(fit_from_start(before, TURNS))
    before.run(before.close())
    after = Sidecar(tmp_path)
    assert shown(fit(after, longer(TURNS)))[: len(sent)] == sent
    assert ask(after, "recall", conversation="a", handle="m3")["text"].endswith("Turn 0")
    after.run(after.close())


def test_two_processes_use_a_conversation_of_one_store_in_turn(tmp_path: Path):
    first, second = Sidecar(tmp_path), Sidecar(tmp_path)
    sent = shown(fit(first, chat(TURNS)))
    for sidecar, turns in ((second, TURNS), (first, TURNS + 1)):
        answer = fit(sidecar, longer(turns))
        before, sent = sent, shown(answer)[:-2]
        assert (sent[: len(before)], answer["fault"]) == (before, "")


def test_what_cannot_fit_goes_to_the_provider_as_it_is():
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "word " * 30_000}]}
    answer = fit(Sidecar(), body, options={"context_window": 2_000, "policy": "full"})
    assert answer["status"] == 200
    assert answer["changed"] or answer["why"].startswith("cannot fit")
    head = {"role": "system", "content": "word " * 30_000}
    full = fit(Sidecar(), {"model": "gpt-4o", "messages": [head, *chat(1)["messages"]]})
    assert (full["managed"], full["fault"]) == (True, "")
    fields = fit(
        Sidecar(),
        {"model": "gpt-4o", "messages": [head, *chat(1)["messages"]]},
        options={"context_window": 4_000},
    )
    assert (fields["managed"], fields["changed"]) == (True, False)
    assert fields["why"].startswith("cannot fit")


def test_no_text_that_is_redacted_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("ann@example.org")

    options = {**SMALL, "redact": ["email"]}
    strange = {**chat(1), "messages": [{"role": "ann@example.org", "content": "Hi"}]}
    sidecar = Sidecar()
    answers = [fit(sidecar, strange, options=options)]
    monkeypatch.setattr(Conversations, "fit", fail)
    answers.append(fit(sidecar, chat(1), options=options))
    assert [answer["blocked"] for answer in answers] == [True, True]
    assert "ann@example.org" not in caplog.text + str(answers)
    assert "cannot be read: " in caplog.text
    assert "RuntimeError: [redacted: email]" in caplog.text


def test_no_text_of_a_conversation_is_logged(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, logger="trimtab.sidecar")
    fit(Sidecar(FullDisk()), chat(TURNS))
    assert "Turn" not in caplog.text
    assert json.dumps(chat(1))[:20] not in caplog.text


@pytest.mark.parametrize("count", [10**16, 10**400, -1])
def test_a_count_that_no_window_has_does_not_stop_the_conversation(
    count: int, caplog: pytest.LogCaptureFixture
):
    sidecar = Sidecar()
    before = fit(sidecar, chat(TURNS))
    usage = {"prompt_tokens": count, "completion_tokens": count}
    assert ask(sidecar, "reply", conversation="a", usage=usage)["status"] == 200
    error = {"message": "prompt is too long", "code": "9" * 5_000, "n_ctx": count}
    assert ask(sidecar, "refused", conversation="a", status=400, body=error)["status"] == 200
    answer = fit(sidecar, chat(TURNS))
    assert (answer["status"], answer["used"], answer["fault"]) == (200, before["used"], "")
    assert "Traceback" not in caplog.text
