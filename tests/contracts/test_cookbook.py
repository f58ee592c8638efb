"""Every program of the cookbook runs, with the providers' own SDKs against simulated providers."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.test_docs import blocks, run
from trimtab.testing import serve_simulated_provider

PAGES = sorted((Path(__file__).parents[2] / "docs" / "cookbook").glob("*.md"))
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
        page = request.node.callspec.params.get("page")
        server.simulator.script.set_replies(SCRIPTS.get(page.stem, []))
        for name, url in (("ANTHROPIC", server.url), ("OPENAI", f"{server.url}/v1")):
            monkeypatch.setenv(f"{name}_BASE_URL", url)
            monkeypatch.setenv(f"{name}_API_KEY", "any")
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
