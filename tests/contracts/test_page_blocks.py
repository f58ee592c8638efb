"""Every YAML and shell block of the documents is what the programs take.

A YAML block is read as `agent.yaml`; one without a model gets one. Of a shell block the `trimtab …`
lines are parsed (`test_commands.py`), and bash reads the rest without running it. A comment
`<!-- not run: REASON -->` before a block leaves it out.
"""

import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contracts.pages import PAGES, ROOT, shown
from tests.contracts.test_docs import NOT_RUN, blocks, run
from trimtab_serve.agent.config.loader import load_agent_spec

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<kind>yaml|bash|sh)\n(?P<code>.*?)^(?P=indent)```",
    re.MULTILINE | re.DOTALL,
)
FILES = {"model": "claude-sonnet-5-5", "system": "Be brief."}
"""What an excerpt leaves out."""
PYTHON_FILE = re.compile(r"\bpython\w* (?P<path>[\w/.-]+\.py)\b")


def find_blocks(text: str, *kinds: str) -> list[tuple[int, str]]:
    """Return the line and the text of each block that is not left out."""
    return [
        (text.count("\n", 0, match.start("code")) + 1, textwrap.dedent(match["code"]))
        for match in FENCE.finditer(text)
        if match["kind"] in kinds and not NOT_RUN.search(text[: match.start()])
    ]


def explain_agent_file(code: str, folder: Path) -> str:
    """Why `trimtab serve` would not take these settings; empty if it would."""
    settings: Any = yaml.safe_load(code)
    added = [f"{name}: {value}\n" for name, value in FILES.items() if name not in settings]
    for name in re.findall(r"[\w/-]+\.md\b", code):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("Be brief.", encoding="utf-8")
    (folder / "agent.yaml").write_text(f"{''.join(added)}{code}", encoding="utf-8")
    variables = {
        name: "x" * 32 if "SECRET" in name else f"123456:{'x' * 35}"
        for name in re.findall(r"\$\{(\w+)\}", code)
    }
    try:
        load_agent_spec(folder / "agent.yaml", variables)
    except ValueError as error:
        return str(error)
    return ""


def explain_shell(code: str) -> str:
    """What bash does not understand, or the file of ours that is not there."""
    done = subprocess.run(
        ["/bin/bash", "-n"], input=code, capture_output=True, text=True, check=False
    )
    missing = [
        path for path in PYTHON_FILE.findall(code) if "/" in path and not (ROOT / path).exists()
    ]
    return done.stderr or (f"{missing} are not there" if missing else "")


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_the_yaml_of_a_page_is_an_agent_file_that_can_be_served(page, tmp_path):
    blocks = find_blocks(page.read_text(encoding="utf-8"), "yaml")
    wrong = {line: why for line, code in blocks if (why := explain_agent_file(code, tmp_path))}
    assert wrong == {}


@pytest.mark.process
def test_bash_understands_the_shell_blocks_of_all_pages():
    wrong = {
        f"{shown(page)}:{line}": why
        for page in PAGES
        for line, code in find_blocks(page.read_text(encoding="utf-8"), "bash", "sh")
        if (why := explain_shell(code))
    }
    assert wrong == {}


@pytest.mark.process
def test_a_broken_block_is_found_unless_it_is_left_out(tmp_path):
    text = "1. x\n\n   ```yaml\n   model: a\n   telegram: {tokn: b}\n   ```\n```sh\nif x\n```\n"
    ((line, code),) = find_blocks(text, "yaml")
    assert line == 4
    assert "tokn" in explain_agent_file(code, tmp_path)
    ((_, shell),) = find_blocks(text, "sh")
    assert "syntax error" in explain_shell(shell)
    assert "not there" in explain_shell("python examples/99_no_such.py\n")
    assert find_blocks(text.replace("```sh", "<!-- not run: because -->\n```sh"), "sh") == []


PLANTED = "\n```python\nno_such_name\n```\n```yaml\nmodle: a\n```\n```sh\nif x\n```\n"


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_a_broken_block_of_each_kind_is_found_in_any_page(page, tmp_path):
    text = page.read_text(encoding="utf-8") + PLANTED
    with pytest.raises(NameError):
        run(blocks(text)[-1], page, {})
    assert "modle" in explain_agent_file(find_blocks(text, "yaml")[-1][1], tmp_path)
    assert find_blocks(text, "sh")[-1][1] == "if x\n"


def test_make_docs_test_tries_every_page_with_a_block():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = makefile.partition("PAGE_TESTS = ")[2].partition("\n")[0]
    assert all(name in recipe for name in ("docs.py", "cookbook.py", "page_blocks.py"))
    folders = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    missing = [
        shown(page)
        for folder in folders
        if folder.name not in ("tests", "build")
        for page in folder.rglob("*.md")
        if page not in PAGES and "src" not in page.parts
        if blocks(text := page.read_text(encoding="utf-8")) + find_blocks(text, "yaml", "sh")
    ]
    assert missing == []
