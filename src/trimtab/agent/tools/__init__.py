"""What an agent can do, by kind: a shell, commands, Python functions, MCP servers."""
