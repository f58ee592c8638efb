"""The page in a browser: what a person clicks and types, and that it builds what was sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import chromium
from benchmarks.inspector import compare_blocks
from tests.inspect.sessions import list_events, reading_agent
from trimtab.inspect.page import render_page
from trimtab.inspect.session_timeline import read_session_timeline

PROGRAM = chromium.find_chromium()
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium on the path"),
]


def test_a_person_reads_a_session_by_mouse_and_by_keyboard(tmp_path: Path):
    timeline = read_session_timeline("a session", list_events(reading_agent()))
    page = tmp_path / "page.html"
    page.write_text(render_page(timeline), encoding="utf-8")
    with chromium.open_tab(PROGRAM or "") as tab:
        tab.resize(1280, 900)
        tab.open(page)

        def text(selector: str) -> str:
            return tab.run(f"document.querySelector('{selector}').textContent")

        def wait_for(shown: str) -> None:
            tab.wait(f"document.body.dataset.shown === {shown!r}")

        # A call from the list, by mouse.
        tab.click('#calls a[href="#call=2"]')
        wait_for("call=2")
        assert text("#title").startswith("Call 2")
        # A long result: its beginning, and then all of it.
        assert "line 499 of file 0" not in text(".list")
        tab.click(".content .link")
        tab.wait("/line 499 of file 0/.test(document.querySelector('.list').textContent)")
        # The last call from the timeline, by keyboard.
        tab.press("Escape")
        wait_for("overview")
        tab.run("document.getElementById('timeline').focus()")
        tab.press("End", "Enter")
        wait_for("call=24")
        assert "its hash is the recorded one" in text("#call")
        # What it was answered.
        reply = text(".jump a").removeprefix("Reply: ")
        tab.click(".jump a")
        wait_for(reply)
        assert "File 11 is fine." in text("#message .content")
        # A call by its number.
        tab.press("/", *"call 24", "Enter")
        wait_for("call=24")
        # A hidden result in its place, and its original.
        assert "line 7 of file 2" not in text(".main")
        tab.press("o")
        tab.wait("/line 7 of file \\d/.test(document.querySelector('.list').textContent)")
        # Two calls compared.
        tab.press("d")
        wait_for("diff=23,24")
        assert "came" in text("#diff .callfacts")
        # A search, and the life of what it finds.
        tab.press("/")
        tab.press(*"line 9 of file 3", "Enter")
        wait_for("search=line 9 of file 3")
        tab.wait("document.querySelector('.hit')")
        tab.click(".hit")
        tab.wait("document.body.dataset.shown.startsWith('m')")
        assert "replaced by a line" in text("#message .findings")
        assert compare_blocks(tab, timeline) == (24, 24)
        assert tab.run("document.documentElement.scrollWidth <= innerWidth")
        assert tab.requests() == []
        assert tab.problems() == []
