"""The page about tools says what the tools are."""

import re
from pathlib import Path

import pytest

from trimtab.agent.reading import read_agent
from trimtab.agent.spec import CommandTool, McpTool, PythonTool, ShellTool
from trimtab.agent.tools.environment import FIXED, HARMLESS
from trimtab.agent.tools.process import FLOOD, GRACE
from trimtab.agent.tools.values import CHECKED

TEXT = (Path(__file__).parents[3] / "docs" / "tools.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


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
