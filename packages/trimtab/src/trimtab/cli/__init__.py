"""The command line."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from trimtab.cli.extension import find_extension

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
EXTRAS_BY_COMMAND = {
    "demo": "cli",
    "init": "agent",
    "doctor": "agent",
    "models": "cli",
    "chat": "agent",
    "serve": "serve",
    "keys": "serve",
    "schedule": "serve",
    "session": "cli",
    "inspect": "cli",
    "user": "serve",
    "tenant": "serve",
    "erasures": "serve",
    "replay": "cli",
    "hook": "cli",
    "sidecar": "cli",
    "fit": "cli",
    "migrate": "cli",
    "schema": "agent",
}
"""Every command in the order of the help, with the extra that installs what it needs."""
COMMANDS_CALLING_MODELS = ("init", "doctor", "chat")
"""Commands that also need the package of a provider."""


def main() -> None:
    """Run the command that the user typed."""
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    try:
        extension = find_extension()
        if extension is not None:
            extension.prepare_command(command)
        elif EXTRAS_BY_COMMAND.get(command, "cli") != "cli":
            sys.stderr.write(f"{explain_missing_command(command)}\n")
            sys.exit(2)
        if command == "sidecar" and find_spec("typer") is None:
            _run_sidecar_without_typer()
            return
        from trimtab.cli.app import app

        app(prog_name="trimtab")
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_BY_PACKAGE:
            raise
        sys.stderr.write(f"{explain_missing_package(package, command)}\n")
        sys.exit(2)


def _run_sidecar_without_typer() -> None:
    """Run `trimtab sidecar`, which a program starts that need not install an extra."""
    from argparse import ArgumentParser

    from trimtab.sidecar.process import run_sidecar

    parser = ArgumentParser(prog="trimtab")
    parser.add_argument("command", choices=["sidecar"])
    parser.add_argument("--store", default=os.environ.get("TRIMTAB_STORE"))
    run_sidecar(store=parser.parse_args().store)


def explain_missing_package(package: str, command: str = "") -> str:
    """Return what to install when a package is missing, for the command that the user typed."""
    extra = EXTRA_BY_PACKAGE[package]
    if extra in ("cli", "agent"):
        extra = _find_extras(command) or extra
    return f"trimtab: {package} is not installed; run: pip install 'trimtab[{extra}]'"


def explain_missing_command(command: str) -> str:
    """Return what to install when the distribution of a command is missing."""
    return (
        f"trimtab: the command {command} is in trimtab-serve, which is not installed; "
        f"run: pip install 'trimtab[{_find_extras(command)}]'"
    )


def _find_extras(command: str) -> str:
    """Return every extra that a command needs, or nothing if `cli` is enough."""
    extra = EXTRAS_BY_COMMAND.get(command, "cli")
    if extra == "cli":
        return ""
    if command not in COMMANDS_CALLING_MODELS:
        return extra
    # Either SDK will do. Without any, name the one that `init` uses by default.
    has_sdk = any(find_spec(sdk) for sdk in ("anthropic", "openai"))
    return extra if has_sdk else f"{extra},anthropic"
