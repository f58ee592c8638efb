"""Agents' files, good and wrong, for the tests of reading and of the schema."""

from pathlib import Path

import pytest

ENVIRON = {
    "BOT": "123456:very-secret-000000000",
    "ANTHROPIC_API_KEY": "sk-very-secret-000000000",
    "COUNT": "12",
    "EMPTY": "",
    "YES": "true",
}
LEAST = "model:\n  name: claude-sonnet-4-5\n"
TOOLS = LEAST + "tools:\n"

DOCUMENT_0 = """\
model:
  provider: anthropic
  name: claude-sonnet-4-20250514
  max_input_tokens: 150000   # optional, see defaults below
  max_output_tokens: 8192
session:
  on_disconnect: pause
  max_tool_iterations: 25
  context:
    max_history_tokens: 20000       # Layer 2: cap history tokens to reserve budget for tool work (0 = no cap)
    max_tool_result_tokens: 8000    # Layer 3a: per-result token cap
    tool_result_truncation: head    # Layer 3a: head, tail, or both
    tool_result_keep_first: 2       # Layer 3b: first N tool results kept visible
    tool_result_keep_last: 5        # Layer 3b: last M tool results kept visible
"""  # noqa: E501 - as the document has it

GOOD = {
    "the least": LEAST,
    "a model's name alone": "model: claude-sonnet-4-5\n",
    "document 0": DOCUMENT_0,
    "names without values": LEAST + "name:\nsystem:\nsession:\n  context:\n    tools:\ntools:\n",
    "numbers and choices from the environment": LEAST
    + "  timeout: ${COUNT}\nsession:\n  max_tool_iterations: ${COUNT}\n  recall: ${YES}\n"
    "  policy: ${POLICY:-layered}\n  store: ${STORE:-}\n",
    "a byte order mark": "\ufeff" + LEAST,
    "Windows' line ends": LEAST.replace("\n", "\r\n"),
    "JSON": '{"model": {"name": "gpt-5", "params": {"stop": null}}}',
    "two tools with much in common": LEAST
    + "tools:\n  one: &one\n    kind: shell\n    deny: ['*sudo*']\n  two:\n    <<: *one\n"
    "    deny: []\n",
    "a language server's line": "# yaml-language-server: $schema=agent.schema.json\n" + LEAST,
    "every kind of tool": LEAST
    + """\
tools:
  shell: {kind: shell, permission: ask, allow: ["git *"], env: [HOME], cwd: src, timeout: 2.5}
  grep:
    kind: command
    description: Looks for words.
    command: [grep, -rn, "{words}", .]
    parameters: {words: {type: string}, more: {default: null}}
    optional: [more]
    env: {LANG: C}
  weather: {kind: python, function: "tools.py:weather"}
  local: {kind: mcp, command: [server, --stdio], only: [a, b]}
  far: {kind: mcp, url: "https://example.com/mcp", headers: {Authorization: "Bearer x"}}
""",
    "settings of every policy": LEAST
    + """\
session:
  redact: [secret]
  redact_patterns: ['ACC-\\d+$']
  goal: cost
  context: {tools: {shell: {exempt: true}, grep: }}
  summary: {window: 4, keep: 2, forced: 4, max_tokens: 60}
  thresholds: {summarise: 0.1, trim: 1, display: 0.5, keep: 2}
""",
}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder of its own, so that messages name the file alone."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
