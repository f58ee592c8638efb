"""`trimtab init`: a working agent in a folder, and the next command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.stderr_messages import print_error_for_exit

if TYPE_CHECKING:
    from trimtab.cli.init.default_model_choice import ModelChoice


TOOLS_WITH_SHELL_TEXT = (
    "days_between, shell  (it asks you before a command runs that does more than read here)"
)
TOOLS_WITHOUT_SHELL_TEXT = (
    "days_between  (no shell: take the # from its lines in agent.yaml to give it one)"
)


def init_command(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where; it is made where there is none.")
    ] = Path(),
    model: Annotated[
        str | None, typer.Option(help="The model; unset, one that you have a key for.")
    ] = None,
    provider: Annotated[
        str | None, typer.Option(help="Who serves it: anthropic, openai, ollama, openrouter, …")
    ] = None,
    shell: Annotated[
        bool,
        typer.Option("--shell", help="Give it a shell: what only reads runs, the rest asks first."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over what is there.")] = False,
) -> None:
    """Write a working agent into a folder: agent.yaml, its system prompt and a tool.

    Files that are there stay as they are.
    """
    from trimtab.cli.init.default_model_choice import choose_model
    from trimtab.cli.init.files import (
        AGENT_FILE_PURPOSES,
        build_agent_files,
        derive_agent_name,
        write_agent_files,
    )

    try:
        choice = choose_model(os.environ, model=model, provider=provider)
        written, kept = write_agent_files(
            folder,
            build_agent_files(derive_agent_name(folder), choice, with_shell=shell),
            force=force,
        )
    except FileExistsError as error:
        why = f"{error.filename} is a file; name a folder, or move the file away"
        raise print_error_for_exit(why) from error
    except OSError as error:
        why = f"{error.filename or folder} cannot be written ({error.strerror or error})"
        raise print_error_for_exit(
            f"{why}; name another folder, or see to its permissions"
        ) from error
    except ValueError as error:
        raise print_error_for_exit(str(error)) from error
    for name in written:
        typer.echo(f"wrote {folder / name}  ({AGENT_FILE_PURPOSES[name]})")
    for name in kept:
        typer.echo(f"kept  {folder / name}  (it was there; --force writes over it)")
    if "agent.yaml" in written:
        typer.echo(f"model {choice.model}" + (f"  ({choice.reason})" if choice.reason else ""))
        typer.echo(f"tools {TOOLS_WITH_SHELL_TEXT if shell else TOOLS_WITHOUT_SHELL_TEXT}")
    else:
        if model or provider:
            typer.echo("the model in agent.yaml was not changed; edit it, or say --force")
        if shell:
            typer.echo("the tools in agent.yaml were not changed; add a shell, or say --force")
    typer.echo("\nNext:")
    for line in _next_commands(folder, choice if "agent.yaml" in written else None):
        typer.echo(f"  {line}")


def _next_commands(folder: Path, choice: ModelChoice | None) -> list[str]:
    from importlib.util import find_spec
    from shlex import quote

    from trimtab.cli.init.files import CLOUD_SETUP_COMMANDS
    from trimtab.cli.installed_packages import find_package_versions

    lines = [] if folder.resolve() == Path.cwd() else [f"cd {quote(str(folder))}"]
    extras = [] if all(map(find_spec, ("yaml", "prompt_toolkit"))) else ["agent"]
    if choice is not None and None in find_package_versions(choice.extra).values():
        extras.append(choice.extra)
    if extras:
        lines.append(f"pip install 'trimtab[{','.join(extras)}]'")
    if (
        choice is not None
        and choice.key_variable is not None
        and not os.environ.get(choice.key_variable)
    ):
        lines.append(f"export {choice.key_variable}=…   # your key")
    if choice is not None:
        lines += CLOUD_SETUP_COMMANDS.get(choice.provider or "", ())
    return [*lines, "trimtab chat        # or `trimtab doctor`, which checks everything"]
