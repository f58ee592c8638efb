"""The page and the schema of `agent.yaml` say what the settings themselves say."""

import ast
import json
import re
from pathlib import Path

import pytest

from tests.contracts.agent_page import DOCS, PAGE, SCHEMA, page
from trimtab.providers.factory import ENDPOINT_BY_PROVIDER
from trimtab_serve.agent.config import spec
from trimtab_serve.agent.config.loader import load_agent_spec
from trimtab_serve.agent.config.problems import AgentFileError
from trimtab_serve.agent.config.schema import format_editor_schema, iterate_config_blocks

YAML = re.compile(r"^```yaml\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
TEXT = PAGE.read_text(encoding="utf-8")
README = DOCS.parent / "README.md"


def test_the_schema_is_as_the_settings_make_it():
    assert SCHEMA.read_text(encoding="utf-8") == format_editor_schema(), "run `make agent-docs`"


def test_the_reference_is_as_the_settings_make_it():
    assert page() == TEXT, "run `make agent-docs`"


def test_every_setting_stands_in_the_reference():
    missing = [
        name
        for _, shape in iterate_config_blocks()
        for name in shape["properties"]
        if name != "kind"  # a heading names each kind and each block
        and not re.search(
            rf"^- `{name}`[ :]|^### `(\w+\.)*{name}\b|`{name}` has the same settings",
            TEXT,
            re.MULTILINE,
        )
    ]
    assert missing == []


def test_every_field_of_a_block_has_a_docstring():
    tree = ast.parse(Path(spec.__file__).read_text(encoding="utf-8"))
    bare = [
        f"{block.name}.{ast.unparse(field.target)}"
        for block in tree.body
        if isinstance(block, ast.ClassDef)
        for field, after in zip(block.body, [*block.body[1:], None], strict=True)
        if isinstance(field, ast.AnnAssign)
        and not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant))
    ]
    assert bare == []


def test_every_provider_stands_in_the_table_with_its_key():
    for name, server in ENDPOINT_BY_PROVIDER.items():
        row = next(
            line for line in TEXT.splitlines() if line.startswith("|") and f"`{name}`" in line
        )
        assert server.key_variable is None or f"`{server.key_variable}`" in row


def test_an_example_of_any_page_is_read(tmp_path):
    """A part of a file gets a model, and each variable without a default has a value."""
    path = tmp_path / "agent.yaml"
    pages = [README, *sorted(DOCS.rglob("*.md"))]
    examples = [(at, text) for at in pages for text in YAML.findall(at.read_text(encoding="utf-8"))]
    assert len(examples) > 15
    for at, text in examples:
        if text.startswith("# prometheus.yml"):
            continue
        model = "" if re.search(r"^model:", text, re.MULTILINE) else "model: {name: gpt-5}\n"
        path.write_text(f"{text}\n{model}", encoding="utf-8")
        environ = {
            "ANTHROPIC_API_KEY": "k",
            **dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "123456:ABC-def"),
            "TELEGRAM_SECRET": "s" * 16,
        }
        assert load_agent_spec(path, environ).model.name, at.name


def test_the_errors_of_the_page_are_those_that_are_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("agent.yaml").write_text(
        "model:\n  name: gpt-5\n  max_input_token: 9\n  api_key: ${ANTHROPIC_API_KEY}\n"
        "session:\n  context:\n    max_tool_result_tokens: 8k\n",
        encoding="utf-8",
    )
    with pytest.raises(AgentFileError) as raised:
        load_agent_spec(Path("agent.yaml"), {})
    assert f"```text\n{raised.value}\n```" in TEXT


def test_an_editors_line_leads_to_the_schema():
    named = re.search(r"^# yaml-language-server: \$schema=(\S+)$", TEXT, re.MULTILINE)
    assert named is not None
    assert json.loads((DOCS / named[1]).read_text(encoding="utf-8"))["title"] == ("A Trimtab agent")
