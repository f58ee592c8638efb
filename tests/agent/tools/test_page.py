"""The page about tools says what the tools are."""

import re
from pathlib import Path

import pytest
import yaml

from trimtab.agent.permissions import Rules, judge
from trimtab.agent.readers import KNOWN
from trimtab.agent.reading import read_agent
from trimtab.agent.spec import CommandTool, McpTool, PythonTool, ShellTool
from trimtab.agent.tools.environment import FIXED, HARMLESS
from trimtab.agent.tools.process import FLOOD, GRACE
from trimtab.agent.tools.values import CHECKED
from trimtab.cli.doctor.shells import broad

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")
YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = YAML.findall(TEXT)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_read(example, tmp_path):
    path = tmp_path / "agent.yaml"
    path.write_text(example, encoding="utf-8")
    assert read_agent(path, {}).tools


@pytest.mark.parametrize("block", [ShellTool, CommandTool, PythonTool, McpTool])
def test_every_setting_is_on_the_page(block):
    # What is done after a crash is told with the turns.
    fields = set(block.model_fields) - {"on_interrupt"}
    assert {name for name in fields if not re.search(rf"\b{name}\b", TEXT)} == set()


def test_names_and_numbers_of_the_page_are_those_of_the_code():
    from trimtab.agent.tools.mcp_server import START
    from trimtab.agent.tools.mcp_stdio import MESSAGE

    told = re.sub(r"\s+", " ", TEXT)
    for name in (*HARMLESS, *(f"{name}={value}" for name, value in FIXED.items()), *CHECKED):
        assert f"`{name}`" in told
    for said in (
        f"{GRACE:g} seconds later it is killed",
        f"prints {FLOOD:,} times as much is stopped",
        f"has {START:g} seconds to start",
        f"more than {MESSAGE:,} bytes is not taken",
        f"`max_output_bytes` ({ShellTool.model_fields['max_output_bytes'].default:,})",
        f"`timeout` seconds ({ShellTool.model_fields['timeout'].default:g})",
    ):
        assert said in told


def shells_of(example: str) -> list[dict[str, list[str]]]:
    read = yaml.safe_load(example)
    tools = read.get("tools", {}) if isinstance(read, dict) else {}
    return [block for block in tools.values() if block["kind"] == "shell"]


def test_every_example_of_a_shell_allows_just_what_it_seems_to():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    found = [
        pattern
        for page in pages
        for example in YAML.findall(page.read_text(encoding="utf-8"))
        for block in shells_of(example)
        for pattern in block.get("allow", [])
    ]
    assert len(found) > 10
    assert [pattern for pattern in found if broad(pattern)] == []


ROW = re.compile(r"^\| `([^`]+)` \| (.*?) \| (.*?) \|$", re.MULTILINE)
ROWS = ROW.findall(TEXT.partition("### Patterns")[2])


@pytest.mark.parametrize(("pattern", "runs", "asks"), ROWS)
def test_the_table_of_patterns_is_true(pattern, runs, asks):
    rules = Rules(default="ask", allow=(pattern,), by_command=True)
    for cell, permission in ((runs, "allow"), (asks.partition(":")[0], "ask")):
        for line in re.findall(r"`([^`]+)`", cell):
            assert judge(rules, line).permission == permission, line


def test_the_table_of_patterns_is_there():
    assert len(ROWS) >= 8


def test_the_programs_that_are_known_are_those_of_the_page():
    told = re.sub(r"\s+", " ", TEXT.partition("Known to only read are ")[2].partition(".\n")[0])
    plain, _, git = told.partition("; and of `git` ")
    names = [*re.findall(r"`([^`]+)`", plain), *(f"git {x}" for x in re.findall(r"`([^`]+)`", git))]
    known = {" ".join(head) for head, program in KNOWN.items() if not program.runs}
    assert sorted(names) == sorted(known)
