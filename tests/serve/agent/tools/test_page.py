"""The page about tools says what the tools are."""

import re
from pathlib import Path

import pytest
import yaml

from trimtab_serve.agent.config.loader import load_agent_spec
from trimtab_serve.agent.config.spec import (
    CommandToolSpec,
    McpToolSpec,
    PythonToolSpec,
    ShellToolSpec,
)
from trimtab_serve.agent.environment import FIXED_TOOL_VARIABLES, INHERITED_VARIABLES
from trimtab_serve.agent.tools.command import CHECKED_SCHEMA_KEYWORDS
from trimtab_serve.agent.tools.permissions.read_only_programs import READ_ONLY_USAGES
from trimtab_serve.agent.tools.permissions.rules import PermissionRules, decide_permission
from trimtab_serve.agent.tools.process import MAX_OUTPUT_FACTOR, TERMINATION_GRACE_S
from trimtab_serve.cli.doctor.tool_checks import explain_misleading_allow_pattern

ROOT = Path(__file__).parents[4]
TEXT = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")
YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = YAML.findall(TEXT)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_read(example, tmp_path):
    path = tmp_path / "agent.yaml"
    path.write_text(example, encoding="utf-8")
    assert load_agent_spec(path, {}).tools


@pytest.mark.parametrize("block", [ShellToolSpec, CommandToolSpec, PythonToolSpec, McpToolSpec])
def test_every_setting_is_on_the_page(block):
    # What is done after a crash is told with the turns.
    fields = set(block.model_fields) - {"on_interrupt"}
    assert {name for name in fields if not re.search(rf"\b{name}\b", TEXT)} == set()


def test_names_and_numbers_of_the_page_are_those_of_the_code():
    from trimtab_serve.agent.tools.mcp import MCP_START_TIMEOUT_S
    from trimtab_serve.agent.tools.mcp_transport import MAX_MCP_MESSAGE_BYTES

    told = re.sub(r"\s+", " ", TEXT)
    for name in (
        *INHERITED_VARIABLES,
        *(f"{name}={value}" for name, value in FIXED_TOOL_VARIABLES.items()),
        *CHECKED_SCHEMA_KEYWORDS,
    ):
        assert f"`{name}`" in told
    for said in (
        f"{TERMINATION_GRACE_S:g} seconds later it is killed",
        f"prints {MAX_OUTPUT_FACTOR:,} times as much is stopped",
        f"has {MCP_START_TIMEOUT_S:g} seconds to start",
        f"message of more than {MAX_MCP_MESSAGE_BYTES:,} bytes, an answer",
        f"`max_output_bytes` ({ShellToolSpec.model_fields['max_output_bytes'].default:,})",
        f"`timeout` seconds ({ShellToolSpec.model_fields['timeout'].default:g})",
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
    assert [pattern for pattern in found if explain_misleading_allow_pattern(pattern)] == []


ROW = re.compile(r"^\| `([^`]+)` \| (.*?) \| (.*?) \|$", re.MULTILINE)
ROWS = ROW.findall(TEXT.partition("### Patterns")[2])


@pytest.mark.parametrize(("pattern", "runs", "asks"), ROWS)
def test_the_table_of_patterns_is_true(pattern, runs, asks):
    rules = PermissionRules(default="ask", allow=(pattern,), is_shell=True)
    for cell, permission in ((runs, "allow"), (asks.partition(":")[0], "ask")):
        for line in re.findall(r"`([^`]+)`", cell):
            assert decide_permission(rules, line).permission == permission, line


def test_the_table_of_patterns_is_there():
    assert len(ROWS) >= 8


def test_the_programs_that_are_known_are_those_of_the_page():
    told = TEXT.partition("These programs are known to only read:")[2].partition("\n\n**")[0]
    plain, _, git = re.sub(r"\s+", " ", told).partition("- Of `git`: ")
    names = [*re.findall(r"`([^`]+)`", plain), *(f"git {x}" for x in re.findall(r"`([^`]+)`", git))]
    known = {" ".join(head) for head, program in READ_ONLY_USAGES.items() if not program.runs_code}
    assert sorted(names) == sorted(known)
