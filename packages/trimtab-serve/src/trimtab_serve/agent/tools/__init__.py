"""The tools of an agent, by kind: a shell, commands, Python functions, MCP servers."""
