"""Every program of the cookbook runs, with the providers' own SDKs against simulated providers."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import httpx2
import pytest

from tests.contracts import pages
from tests.contracts.test_docs import blocks, run
from trimtab.testing import serve_simulated_provider

PAGES = [page for page in pages.PAGES if page.parent == pages.COOKBOOK]
READ = {"calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}] * 2}
SCRIPTS: dict[str, list[Any]] = {
    "streaming-and-tools": [*[READ, "Milk."] * 4],
}
"""What the model says on a page; on the others it is what the simulator says by itself."""


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch, request):
    """A directory of its own, and keys and addresses of simulated providers."""
    monkeypatch.chdir(tmp_path)
    with serve_simulated_provider() as server:
        params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
        name = params["page"].stem if "page" in params else ""
        server.simulator.script.set_replies(SCRIPTS.get(name, []))
        for provider, url in (("ANTHROPIC", server.url), ("OPENAI", f"{server.url}/v1")):
            monkeypatch.setenv(f"{provider}_BASE_URL", url)
            monkeypatch.setenv(f"{provider}_API_KEY", "any")
        yield


# A short program leaves its client open, and ends.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.process
@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_programs_of_a_page_run_from_top_to_bottom(page):
    namespace: dict[str, Any] = {"__name__": "docs"}
    for block in blocks(page.read_text(encoding="utf-8")):
        assert block.runs
        run(block, page, namespace)
    namespace.clear()
    gc.collect()  # here, and not in the test that follows


@pytest.mark.process
def test_the_web_chat_refuses_a_wrong_handle_and_shows_no_empty_message():
    namespace: dict[str, Any] = {"__name__": "docs"}
    page = next(page for page in PAGES if page.stem == "web-chat")
    for block in blocks(page.read_text(encoding="utf-8")):
        run(block, page, namespace)
    app = namespace["app"]

    async def chat() -> tuple[httpx2.Response, httpx2.Response]:
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://chat") as client,
        ):
            await client.post("/chats/ada", json={"id": "1", "text": "Hello!"})
            session = await namespace["Session"].open(app.state.store, "ada")
            call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
            result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "here"}
            await session.add({"role": "user", "content": "Look!"})
            await session.add({"role": "assistant", "content": [call]})
            await session.add({"role": "user", "content": [result]})
            await session.close()
            return await client.get("/chats/ada?after=zz"), await client.get("/chats/ada")

    wrong, history = asyncio.run(chat())
    assert wrong.status_code == 400
    assert "'zz' is not a handle" in wrong.json()["detail"]
    assert [message["role"] for message in history.json()] == ["user", "assistant", "user"]
    assert all(message["text"] for message in history.json())
