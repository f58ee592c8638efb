"""One id finds a request again: in its answer, in log lines, and in the turn that answers it."""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from typing import Any

import pytest

from tests.serve.channels.http.running_apps import EVENTS, MESSAGES, house
from trimtab.errors import ProviderFailureDetails, StoreUnavailable
from trimtab.observe.request_ids import RequestIdLogFilter
from trimtab.testing import MemoryStore

pytestmark = pytest.mark.anyio

NEW_ID = re.compile(r"[0-9a-f]{32}")
GOOD_IDS = ["7", "0af7651916cd43dd8448eb211c80319c", "a.b_c:d/e+f=@-", "x" * 128]
BAD_IDS = ["", "two words", "x" * 129, 'a"b', "a\tb", "é", "{}", "a;b", "<script>"]


def sent_as(request_id: str) -> dict[bytes, bytes]:
    return {b"X-Request-ID": request_id.encode()}


@pytest.mark.parametrize("given", GOOD_IDS)
async def test_the_callers_id_comes_back(given):
    async with house() as served, served.http() as web:
        answer = await web.get("/healthz", headers=sent_as(given))
        assert answer.headers.get_list("x-request-id") == [given]


@pytest.mark.parametrize("given", BAD_IDS)
async def test_an_id_that_could_harm_a_log_is_replaced(given):
    async with house() as served, served.http() as web:
        answer = await web.get("/healthz", headers=sent_as(given))
        assert NEW_ID.fullmatch(answer.headers["x-request-id"])


async def test_every_request_without_one_gets_its_own():
    async with house() as served, served.http() as web:
        made = [(await web.get("/healthz")).headers["x-request-id"] for _ in range(3)]
        assert len(set(made)) == 3
        assert all(NEW_ID.fullmatch(each) for each in made)


async def test_errors_and_streams_have_it(monkeypatch):
    async def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    who = [{"key_name": "app", "tenant": "default"}]
    async with house("Hm.", keys=True, who=who) as served:
        async with served.http() as stranger:
            assert await status_and_id(stranger, "GET", MESSAGES) == (401, "r1")
        async with served.http("app") as web:
            assert await status_and_id(web, "GET", "/nowhere") == (404, "r1")
            assert await status_and_id(web, "PUT", MESSAGES) == (405, "r1")
            assert await status_and_id(web, "POST", MESSAGES, json={"x": 1}) == (422, "r1")
            assert await status_and_id(web, "POST", MESSAGES, json={"text": "Hi."}) == (202, "r1")
            async with web.stream("GET", EVENTS, headers=sent_as("r1")) as stream:
                assert (stream.status_code, stream.headers["x-request-id"]) == (200, "r1")
            monkeypatch.setattr(served.service.queue, "list_dead_letters", fail)
            assert await status_and_id(web, "GET", "/v1/dead-letters") == (500, "r1")


async def status_and_id(web: Any, method: str, path: str, **options: Any) -> tuple[int, str]:
    answer = await web.request(method, path, headers=sent_as("r1"), **options)
    return answer.status_code, answer.headers["x-request-id"]


async def test_a_page_of_another_origin_may_send_and_read_it():
    origin = "https://app.example"
    async with house(serve={"allowed_origins": [origin]}) as served, served.http() as web:
        asked = {"Origin": origin, "Access-Control-Request-Method": "GET"}
        asked["Access-Control-Request-Headers"] = "x-request-id"
        assert (await web.options("/healthz", headers=asked)).status_code == 200
        answer = await web.get("/healthz", headers={"Origin": origin})
        assert "X-Request-ID" in answer.headers["access-control-expose-headers"]


@contextmanager
def written(caplog):
    """The records of `trimtab`, with what the server's handler adds to them."""
    adds = RequestIdLogFilter()
    caplog.handler.addFilter(adds)
    try:
        with caplog.at_level(logging.DEBUG, "trimtab"):
            yield caplog.records
    finally:
        caplog.handler.removeFilter(adds)


def ids_of(records, logger):
    return {vars(each).get("request_id") for each in records if each.name == logger}


async def test_the_lines_of_the_request_and_of_its_turn_have_it(caplog):
    with written(caplog) as records:
        async with house("One.", "Two.") as served, served.http() as web:
            await web.post(MESSAGES, json={"text": "Hi."}, headers=sent_as("first"))
            await served.turns.wait_until_idle()
            assert ids_of(records, "trimtab.http") == ids_of(records, "trimtab.calls") == {"first"}
            caplog.clear()
            await web.post(MESSAGES, json={"text": "Hi."}, headers=sent_as("second"))
            await served.turns.wait_until_idle()
            assert ids_of(caplog.records, "trimtab.calls") == {"second"}


async def test_a_turn_that_another_process_runs_has_the_id_of_its_message(caplog):
    with written(caplog):
        async with house("One.") as served, served.http() as web:
            served.leave_unanswered()
            await web.post(MESSAGES, json={"text": "Hi."}, headers=sent_as("early"))
            await web.post(MESSAGES, json={"text": "Ho."}, headers=sent_as("late"))
            caplog.clear()
            await served.service.run_turn("default/helper/one")
            assert ids_of(caplog.records, "trimtab.calls") == {"late"}


async def test_a_turn_that_fails_for_good_is_told_of_under_the_id(caplog):
    refused = ProviderFailureDetails(kind="refused", message="no")
    with written(caplog) as records:
        async with house(refused) as served, served.http() as web:
            await web.post(MESSAGES, json={"text": "Hi."}, headers=sent_as("mine"))
            await served.turns.wait_until_idle()
    told = {
        (each.name, each.levelname): vars(each).get("request_id")
        for each in records
        if each.levelno >= logging.WARNING
    }
    assert told == {("trimtab.calls", "ERROR"): "mine", ("trimtab.server", "ERROR"): "mine"}


class Away(MemoryStore):
    async def sessions(self, **_: Any) -> Any:
        raise StoreUnavailable("no disk")


async def test_probes_are_not_in_the_log_and_our_own_failures_are_warnings(caplog):
    def told():
        found = {(each.getMessage(), each.levelname) for each in caplog.records}
        caplog.clear()
        return {each for each in found if each[0].startswith("GET ")}

    with caplog.at_level(logging.DEBUG, "trimtab.http"):
        async with house() as served, served.http() as web:
            await web.get("/healthz")
            await web.get("/readyz")
            assert told() == {("GET /healthz 200", "DEBUG"), ("GET /readyz 200", "DEBUG")}
            await web.get("/v1/dead-letters")
            assert told() == {("GET /v1/dead-letters 200", "INFO")}
        async with house(store=Away()) as served, served.http() as web:
            await web.get("/readyz")
            await web.get("/v1/agents/helper/sessions")
            assert told() == {
                ("GET /readyz 503", "INFO"),
                ("GET /v1/agents/{agent}/sessions 503", "WARNING"),
            }
