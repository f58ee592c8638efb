"""The command line."""

from __future__ import annotations

import sys

EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "pydantic": "agent",
    "yaml": "agent",
    "prompt_toolkit": "agent",
    "anthropic": "anthropic",
    "openai": "openai",
    "mcp": "mcp",
}
"""By the package that is missing: what to install. What a command needs besides it says itself."""
RUN_TOOLS = ("chat", "demo", "doctor", "serve")
"""Commands that start an agent's tools."""
AGENTS = ("chat", "doctor", "init")
"""Commands for which the extra `cli` is not enough: nobody should be told one extra at a time."""


def main() -> None:
    """Run the command that was asked for."""
    asked = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    if asked in RUN_TOOLS:
        # Before anything else: what reads the environment later must not find a key in it.
        from trimtab.agent.secrets import protect_secrets

        protect_secrets()
    try:
        from trimtab.cli.app import app

        app(prog_name="trimtab")
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        sys.stderr.write(f"{hint(package, asked)}\n")
        sys.exit(2)


def hint(package: str, asked: str = "") -> str:
    """What to do about a package that is not there, for the command that was asked for."""
    extra = EXTRAS[package]
    if extra in ("cli", "agent"):
        extra = _all_of(asked) or extra
    return f"trimtab: {package} is not installed; run: pip install 'trimtab[{extra}]'"


def _all_of(asked: str) -> str:
    """Every extra that a command needs; empty where `cli` does."""
    if asked == "demo":
        return "demo"
    if asked not in AGENTS:
        return ""
    from importlib.util import find_spec

    # Which one is a choice; who has neither gets what `init` takes unless told otherwise.
    known = any(find_spec(sdk) for sdk in ("anthropic", "openai"))
    return "agent" if known else "agent,anthropic"
