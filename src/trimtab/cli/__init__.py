"""The command line."""

from __future__ import annotations

import sys

EXTRA_BY_PACKAGE = {
    "typer": "cli",
    "rich": "cli",
    "pydantic": "agent",
    "yaml": "agent",
    "prompt_toolkit": "agent",
    "anthropic": "anthropic",
    "openai": "openai",
    "mcp": "mcp",
}
"""The extra to install for each missing package. A command reports its other packages itself."""
COMMANDS_RUNNING_TOOLS = ("chat", "demo", "doctor", "serve")
"""Commands that start an agent's tools."""
COMMANDS_NEEDING_AGENT_EXTRA = ("chat", "doctor", "init")
"""Commands for which the extra `cli` is not enough. The error names all their extras at once."""


def main() -> None:
    """Run the command that the user typed."""
    asked = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    if asked in COMMANDS_RUNNING_TOOLS:
        # Before anything else: what reads the environment later must not find a key in it.
        from trimtab.agent.environment import withhold_secrets_from_tools

        withhold_secrets_from_tools()
    try:
        from trimtab.cli.app import app

        app(prog_name="trimtab")
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_BY_PACKAGE:
            raise
        sys.stderr.write(f"{explain_missing_package(package, asked)}\n")
        sys.exit(2)


def explain_missing_package(package: str, command: str = "") -> str:
    """Return what to install when a package is missing, for the command that the user typed."""
    extra = EXTRA_BY_PACKAGE[package]
    if extra in ("cli", "agent"):
        extra = _extras_for_command(command) or extra
    return f"trimtab: {package} is not installed; run: pip install 'trimtab[{extra}]'"


def _extras_for_command(command: str) -> str:
    """Return every extra that a command needs, or nothing if `cli` is enough."""
    if command in ("demo", "serve"):
        return command
    if command not in COMMANDS_NEEDING_AGENT_EXTRA:
        return ""
    from importlib.util import find_spec

    # Which one is a choice; who has neither gets what `init` takes unless told otherwise.
    known = any(find_spec(sdk) for sdk in ("anthropic", "openai"))
    return "agent" if known else "agent,anthropic"
