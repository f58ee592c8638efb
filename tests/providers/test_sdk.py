"""The providers through the official SDKs, over a socket."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.lazy import anthropic, openai
from tests.providers.canned import Answer, serving, sse
from tests.providers.scripts import APIS
from trimtab.dialects import get_dialect
from trimtab.errors import MissingApiKeyError, ProviderError
from trimtab.providers.anthropic import AnthropicProvider
from trimtab.providers.openai import OpenAIChatProvider
from trimtab.providers.retries import with_retries

pytestmark = pytest.mark.anyio


@pytest.fixture(params=APIS)
def name(request):
    return request.param


@pytest.fixture
def api(name):
    return APIS[name]


async def sent(provider, request):
    async with asyncio.timeout(20):
        return [event async for event in provider.send(request)]


async def asked(api, *answers, stream=False):
    """What comes of one request."""
    async with serving(*answers) as server:
        provider = api.make(server.url)
        try:
            return await sent(provider, {**api.request, **({"stream": True} if stream else {})})
        finally:
            await provider.close()
            assert len(server.requests) == 1  # it never retries by itself


async def failure(api, *answers, stream=False):
    with pytest.raises(ProviderError) as caught:
        await asked(api, *answers, stream=stream)
    return caught.value.failure


async def test_a_whole_reply_comes_back_as_the_server_sent_it(api):
    assert await asked(api, Answer(body=api.reply)) == [api.reply]


async def test_a_stream_comes_back_event_by_event_as_the_server_sent_it(api, name):
    events = await asked(api, Answer(events=api.lines()), stream=True)
    assert events == list(api.events)
    gathering = get_dialect(name).create_reply_accumulator()
    for event in events:
        gathering.feed(event)
    assert gathering.reply_body() is not None


async def test_the_request_goes_out_as_it_was_given(api):
    async with serving(Answer(body=api.reply)) as server:
        provider = api.make(server.url)
        await sent(provider, api.request)
        await provider.close()
    assert server.requests[0]["path"] == api.path
    assert server.requests[0]["body"] == api.request
    headers = server.requests[0]["headers"]
    assert "k" in (
        headers.get("x-api-key"),
        headers.get("authorization", "").removeprefix("Bearer "),
    )


@pytest.mark.parametrize("stream", [False, True])
async def test_an_overflow_is_read_from_the_response(api, stream):
    read = await failure(api, Answer(status=400, body=api.overflow), stream=stream)
    assert (read.kind, read.status, read.limit, read.input) == ("overflow", 400, 8_192, 9_000)


async def test_a_bare_413_is_an_overflow(api):
    assert (await failure(api, Answer(status=413, body=""))).kind == "overflow"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "1500"}, 1.5),
        (
            {
                "retry-after": "Fri, 31 Jan 2025 10:00:30 GMT",
                "date": "Fri, 31 Jan 2025 10:00:00 GMT",
            },
            30.0,
        ),
    ],
)
async def test_a_rate_limit_says_how_long_to_wait(api, headers, seconds):
    read = await failure(api, Answer(status=429, body={}, headers=headers))
    assert (read.kind, read.status, read.retry_after) == ("rate_limit", 429, seconds)


async def test_an_error_within_a_stream_is_a_failure_without_a_status(api):
    lines = (*api.lines(first=1), *sse(api.failed, named=api.named))
    read = await failure(api, Answer(events=lines), stream=True)
    assert (read.kind, read.status) == ("overloaded", None)


async def test_an_overflow_within_a_stream_is_read(api):
    event = {"type": "error", **api.overflow}
    lines = (*api.lines(first=1), *sse(event, named=api.named))
    read = await failure(api, Answer(events=lines), stream=True)
    assert (read.kind, read.limit, read.input) == ("overflow", 8_192, 9_000)


@pytest.mark.parametrize("whole", [True, False])
async def test_a_stream_that_ends_without_its_last_event_is_a_servers_failure(api, whole):
    read = await failure(api, Answer(events=api.lines(first=2), whole=whole), stream=True)
    assert read.kind == "server"


async def test_a_connection_that_breaks_behind_the_last_event_costs_nothing(api):
    lines = api.lines()[: len(api.events)]
    events = await asked(api, Answer(events=lines, whole=False), stream=True)
    assert events == list(api.events)


async def test_a_stream_that_cannot_be_read_is_a_servers_failure(api):
    broken = (*api.lines(first=1), 'event: x\ndata: {"type": \n\n')
    assert (await failure(api, Answer(events=broken), stream=True)).kind == "server"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(body="<html>hello</html>", kind="text/html"),
        Answer(body='{"id": ', kind="application/json"),
        Answer(body={"hello": 1}),
    ],
)
async def test_a_reply_that_is_none_is_a_servers_failure(api, answer):
    assert (await failure(api, answer)).kind == "server"


async def test_an_error_behind_a_200_is_read(api):
    assert (await failure(api, Answer(body=api.overflow))).kind == "overflow"


async def test_nobody_there_is_a_failure_of_the_network(api):
    async with serving() as server:
        provider = api.make(server.url)
    with pytest.raises(ProviderError) as caught:
        await sent(provider, api.request)
    await provider.close()
    assert (caught.value.failure.kind, caught.value.failure.status) == ("network", None)


@pytest.mark.parametrize(
    "answer",
    [
        lambda api: Answer(mute=True, hang=True),
        lambda api: Answer(hang=True),
        lambda api: Answer(events=api.lines(first=1), hang=True),
    ],
    ids=["at once", "behind the head", "behind an event"],
)
async def test_a_server_that_falls_silent_is_a_timeout(api, answer):
    async with serving(answer(api)) as server:
        provider = api.make(server.url)
        with pytest.raises(ProviderError) as caught:
            # The SDKs take a timeout of one request's own, too.
            await sent(provider, {**api.request, "stream": True, "timeout": 0.05})
        await provider.close()
    assert caught.value.failure.kind == "timeout"


class CountingHandler(BaseHTTPRequestHandler):
    """Answers each request, and keeps connections open."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.server.requests += 1
        body = json.dumps(self.server.reply).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def counting_server(api):
    server = ThreadingHTTPServer(("127.0.0.1", 0), CountingHandler)
    server.daemon_threads = True
    server.requests = 0
    server.reply = api.reply
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()
    gc.collect()  # the connections of loops that have ended warn here


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_provider_in_several_event_loops_sends_each_request_once(api, counting_server):
    """Two threads use it for the first time at once, and begin a new event loop for each request,
    as a web server does with `asyncio.run`."""
    provider = api.make(f"http://127.0.0.1:{counting_server.server_port}")
    start = threading.Barrier(2)

    async def ask():
        start.wait(20)
        return await sent(provider, api.request)

    def work(_):
        return [asyncio.run(ask()) for _ in range(3)]

    with ThreadPoolExecutor(2) as threads:
        replies = [reply for replies in threads.map(work, range(2)) for reply in replies]
    assert replies == [[api.reply]] * 6
    assert counting_server.requests == 6


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_client_of_the_callers_own_is_refused_in_a_second_event_loop(counting_server, name):
    if name != "anthropic":
        pytest.skip("one client shows it")
    url = f"http://127.0.0.1:{counting_server.server_port}"
    provider = AnthropicProvider(anthropic.AsyncAnthropic(api_key="k", base_url=url))
    request = APIS[name].request
    asyncio.run(sent(provider, request))
    with pytest.raises(RuntimeError, match="was used in another event loop"):
        asyncio.run(sent(provider, request))
    assert counting_server.requests == 1


@pytest.mark.parametrize("events", [0, 1])
async def test_cancelling_closes_the_connection_at_once(api, events):
    lines = api.lines(first=events) if events else ()
    async with asyncio.timeout(20), serving(Answer(events=lines, hang=True)) as server:
        provider = api.make(server.url)
        task = asyncio.create_task(sent(provider, {**api.request, "stream": True}))
        await server.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.gone.wait()
        await provider.close()


async def test_a_stream_that_is_left_closes_its_connection(api):
    async with asyncio.timeout(20), serving(Answer(events=api.lines(first=2), hang=True)) as server:
        provider = api.make(server.url)
        async with aclosing(provider.send({**api.request, "stream": True})) as events:
            assert await anext(events) == api.events[0]
        await server.gone.wait()
        await provider.close()


async def test_an_overload_at_the_start_of_a_stream_is_tried_again(api):
    waits: list[float] = []

    async def sleep(seconds):
        waits.append(seconds)

    broken = Answer(events=(*api.lines(first=1), *sse(api.failed, named=api.named)))
    async with serving(broken, Answer(status=529, body={}), Answer(events=api.lines())) as server:
        provider = with_retries(api.make(server.url), sleep=sleep)
        assert await sent(provider, {**api.request, "stream": True}) == list(api.events)
        await provider.close()
    assert len(waits) == 2
    assert [request["body"] for request in server.requests] == [{**api.request, "stream": True}] * 3


async def test_a_wrong_argument_is_the_callers_error(api):
    if api is APIS["openai_responses"]:
        pytest.skip("its body goes out as it is: the server says what it does not know")
    async with serving() as server:
        provider = api.make(server.url)
        with pytest.raises(TypeError):
            await sent(provider, {**api.request, "nonsense": 1})
        await provider.close()


async def test_a_client_of_the_callers_own_is_used_without_retries_and_left_open():
    answers = (Answer(status=500, body={}), Answer(body=APIS["anthropic"].reply))
    async with serving(*answers) as server:
        client = anthropic.AsyncAnthropic(api_key="k", base_url=server.url, max_retries=4)
        provider = AnthropicProvider(client)
        with pytest.raises(ProviderError):
            await sent(provider, APIS["anthropic"].request)
        await provider.close()
        assert await sent(provider, APIS["anthropic"].request) == [APIS["anthropic"].reply]
        await client.close()
    assert len(server.requests) == 2


async def test_an_openai_client_of_the_callers_own_is_left_open():
    api = APIS["openai_chat"]
    async with serving(Answer(body=api.reply), Answer(body=api.reply)) as server:
        client = openai.AsyncOpenAI(api_key="k", base_url=f"{server.url}/v1")
        provider = OpenAIChatProvider(client)
        for _ in range(2):
            assert await sent(provider, api.request) == [api.reply]
            await provider.close()
        await client.close()


@pytest.mark.process
@pytest.mark.parametrize(
    "module", ["base", "error_parser", "retries", "factory", "anthropic", "openai"]
)
def test_importing_the_providers_loads_no_sdk(module):
    code = (
        "import sys, json; before = set(sys.modules);"
        f"import trimtab.providers.{module}; print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    tops = {each.partition(".")[0] for each in json.loads(done.stdout)}
    assert tops - sys.stdlib_module_names == {"trimtab"}


@pytest.mark.parametrize(
    ("provider", "variable"),
    [(AnthropicProvider, "ANTHROPIC_API_KEY"), (OpenAIChatProvider, "OPENAI_API_KEY")],
)
async def test_a_missing_key_is_said_before_the_first_call(provider, variable, monkeypatch):
    for name in (variable, "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(MissingApiKeyError, match=f"set {variable}, or give api_key"):
        provider()
    monkeypatch.setenv(variable, "any")
    await provider().close()


async def test_a_key_in_a_header_is_a_key(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    await AnthropicProvider(headers={"Authorization": "Bearer any"}).close()
