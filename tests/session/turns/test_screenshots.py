"""A session of screenshots: no request is refused, and each picture comes back byte for byte.

A small version of benchmarks/screenshots.py, against the same simulator.
"""

import base64
import json

import pytest

from tests.pictures import png, text
from trimtab import Media, Session, Text, Tool, ToolResult, run_turn
from trimtab.errors import ProviderError
from trimtab.providers import parse_error_response
from trimtab.testing.server import ProviderSimulator, ProviderSimulatorOptions

pytestmark = pytest.mark.anyio
MAX_BYTES = 1_000_000
ADDRESS = {
    "anthropic": ("claude-sonnet-4-5", {"x-api-key": "k", "anthropic-version": "2023-06-01"}),
    "openai_responses": ("gpt-5.2", {"authorization": "Bearer k"}),
    "openai_chat": ("gpt-4o", {"authorization": "Bearer k"}),
}


class SimulatedProvider:
    """The simulator without a socket: bytes go in as an SDK would write them."""

    def __init__(self, dialect, **options):
        self.dialect, self.bodies, self.refusals = dialect, [], []
        self.headers = ADDRESS[dialect][1]
        made = ProviderSimulatorOptions(tokenizer="estimate", **options)
        self.simulator = ProviderSimulator(made)

    async def send(self, request):
        body = json.dumps({**request, **request.get("extra_body", {})}).encode()
        self.bodies.append(body)
        answer = self.simulator.handle_request(self.dialect, self.headers, body)
        if answer.status != 200:
            failure = parse_error_response(answer.status, answer.body)
            self.refusals.append(failure)
            raise ProviderError(failure)
        yield answer.body

    async def close(self):
        pass


def draw(number):
    return png(100, 100, weight=100_000 + number)


def screenshot_tool():
    taken = iter(range(1_000))

    async def take(_):
        number = next(taken)
        picture = Media(kind="image", mime="image/png", data=text(draw(number)))
        return [Text(text=f"screenshot {number}"), picture]

    schema = {"type": "object", "properties": {}}
    return Tool(definition={"name": "screenshot", "input_schema": schema}, run=take)


async def say(session, provider, tool, script):
    message = {"role": "user", "content": f"simulate: {json.dumps(script)}"}
    return await run_turn(session, provider, [tool], message=message, stream=False)


def find_screenshots(session):
    return {
        int(part.text.split()[1]): f"m{seq}.{index}"
        for seq, entry in session.window.entries.items()
        for index, part in enumerate(entry.message.parts)
        if isinstance(part, ToolResult) and part.text.startswith("screenshot ")
    }


async def lead(memory, dialect, *, limits=None, **options):
    provider, tool = SimulatedProvider(dialect, **options), screenshot_tool()
    model = ADDRESS[dialect][0]
    session = await Session.create(
        memory, "s", model=model, dialect=dialect, recall=True, limits=limits
    )
    for _ in range(4):
        done = await say(
            session, provider, tool, {"tool_calls": 8, "tool": "screenshot", "then": "Done."}
        )
        assert done.reason == "done"
    return session, provider, tool


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["anthropic", "openai_responses"])
async def test_no_request_is_refused_and_every_hidden_picture_comes_back(memory, dialect):
    session, provider, tool = await lead(
        memory, dialect, limits={"max_request_bytes": MAX_BYTES}, max_body_bytes=MAX_BYTES
    )
    assert provider.refusals == []
    assert max(map(len, provider.bodies)) <= MAX_BYTES
    handles = find_screenshots(session)
    assert len(handles) == 32
    last = provider.bodies[-1]
    hidden = [n for n in handles if base64.b64encode(draw(n)) not in last]
    assert len(hidden) >= 24
    for number in hidden:
        part = await session.recall_part(handles[number])
        assert isinstance(part, ToolResult)
        data = [inner.data for inner in part.content if isinstance(inner, Media)]
        assert data == [text(draw(number))]
    for number in hidden[::6]:
        call = {"name": "recall", "arguments": {"handle": handles[number]}}
        await say(session, provider, tool, [{"calls": [call]}, "Seen."])
        assert base64.b64encode(draw(number)) in provider.bodies[-1]
    assert provider.refusals == []


@pytest.mark.slow
async def test_a_limit_that_nobody_knew_is_learned_from_the_refusals(memory):
    session, provider, _ = await lead(memory, "anthropic", max_body_bytes=MAX_BYTES)
    kinds = {failure.kind for failure in provider.refusals}
    assert kinds == {"overflow"}
    assert len(provider.refusals) <= 4
    assert session.budget().limit == 200_000
    assert session.budget().request_limits.max_bytes <= MAX_BYTES
