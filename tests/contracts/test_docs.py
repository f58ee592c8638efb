"""Every Python block of the documents runs, in order, file by file."""

import ast
import asyncio
import inspect
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.contracts import pages
from tests.contracts.docs_client import ANSWER, AsyncClient, Client
from tests.contracts.pages import ROOT, shown

PAGES = [
    page
    for page in pages.PAGES
    if page.parent != pages.COOKBOOK and "```python" in page.read_text(encoding="utf-8")
]
"""`test_cookbook.py` runs the others."""
FENCE = re.compile(
    r"^(?P<indent> *)```python\b[^\n]*\n(?P<code>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL
)
NOT_RUN = re.compile(r"<!-- not run: \S[^>]*-->\s*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBlock:
    line: int
    """The line of its first statement, from 1."""
    code: str
    """Its text, without the indentation of a list it stands in."""
    runs: bool
    """False where the comment before it gives a reason."""


def blocks(text: str) -> list[CodeBlock]:
    return [
        CodeBlock(
            line=text.count("\n", 0, match.start("code")) + 1,
            code=textwrap.dedent(match["code"]),
            runs=not NOT_RUN.search(text[: match.start()]),
        )
        for match in FENCE.finditer(text)
    ]


def run(block: CodeBlock, page: Path, namespace: dict[str, Any]) -> None:
    """Execute it with line numbers of the page, so that a traceback points there."""
    source = "\n" * (block.line - 1) + block.code
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(source, str(page), "exec", flags=flags, dont_inherit=True)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, namespace))  # noqa: S307 - the documents are ours
    else:
        exec(code, namespace)  # noqa: S102 - the documents are ours


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch):
    """A directory of its own with one file in it, and clients that never leave the process."""
    (tmp_path / "notes.txt").write_text("Remember the milk.\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("anthropic.Anthropic", Client)
    monkeypatch.setattr("anthropic.AsyncAnthropic", AsyncClient)
    monkeypatch.setattr("openai.OpenAI", Client)
    monkeypatch.setattr("openai.AsyncOpenAI", AsyncClient)
    with warm.starts():
        yield


@pytest.mark.process
@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_the_code_of_a_page_runs_from_top_to_bottom(page):
    namespace: dict[str, Any] = {"__name__": "docs", "client": Client()}
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.runs:
            run(block, page, namespace)


def bare(code: str) -> bool:
    """Whether it awaits outside of a function, which a file must not."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    compiled = compile(code, "block", "exec", flags=flags, dont_inherit=True)
    return bool(compiled.co_flags & inspect.CO_COROUTINE)


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_a_page_whose_code_is_no_file_says_how_to_run_it(page):
    text = page.read_text(encoding="utf-8")
    awaits = any(bare(block.code) for block in blocks(text))
    assert not awaits or "`python -m asyncio`" in text
    assert not (awaits and page.name == "README.md")


@pytest.mark.parametrize("name", ["README.md", "docs/start-library.md"])
def test_the_loop_with_tools_tells_the_model_of_a_missing_file_and_prints_the_answer(
    name, tmp_path, capsys
):
    (tmp_path / "notes.txt").unlink()
    page = ROOT / name
    (block,) = [b for b in blocks(page.read_text(encoding="utf-8")) if "tool_result" in b.code]
    namespace: dict[str, Any] = {"__name__": "docs"}
    run(block, page, namespace)
    results = [
        part
        for message in namespace["context"].preview().request["messages"]
        for part in message["content"]
        if isinstance(part, dict) and part["type"] == "tool_result"
    ]
    assert [result["is_error"] for result in results] == [True]
    assert "notes.txt" in str(results)
    told = capsys.readouterr().out
    assert ANSWER in told
    assert "Context Usage" in told


def test_blocks_are_found_with_their_line_and_their_excuse():
    text = (
        "# T\n```python\na = 1\n```\n"
        "<!-- not run: needs a server -->\n```python\nb = 2\n```\n"
        "1. x\n\n   ```python\n   if a:\n       c = 3\n   ```\n"
        "```bash\nls\n```\n"
    )
    assert blocks(text) == [
        CodeBlock(line=3, code="a = 1\n", runs=True),
        CodeBlock(line=7, code="b = 2\n", runs=False),
        CodeBlock(line=12, code="if a:\n    c = 3\n", runs=True),
    ]


def test_a_failing_block_fails_at_its_own_line():
    block = CodeBlock(line=7, code="x = 1\nassert x == 2\n", runs=True)
    with pytest.raises(AssertionError) as failure:
        run(block, ROOT / "README.md", {})
    assert failure.traceback[-1].lineno == 7


def test_a_block_may_await():
    namespace: dict[str, Any] = {}
    code = "import asyncio\nx = await asyncio.sleep(0, 'woken')\n"
    run(CodeBlock(line=1, code=code, runs=True), ROOT / "README.md", namespace)
    assert namespace["x"] == "woken"


def test_the_stand_in_client_refuses_what_the_provider_would():
    orphan = {"type": "tool_result", "tool_use_id": "toolu_9", "content": "?"}
    with pytest.raises(ValueError, match="anthropic would refuse"):
        Client().messages.create(
            model="claude-opus-5",
            max_tokens=10,
            messages=[{"role": "user", "content": [orphan]}],
        )
