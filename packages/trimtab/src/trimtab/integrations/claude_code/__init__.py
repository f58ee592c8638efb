"""The hook of Claude Code: `python -m trimtab.integrations.claude_code` runs it."""
