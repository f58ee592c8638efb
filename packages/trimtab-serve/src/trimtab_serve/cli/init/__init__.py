"""`trimtab init`: write a working agent into a folder, and print the next command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.stderr_messages import print_error_for_exit

if TYPE_CHECKING:
    from trimtab_serve.cli.init.model_choice import ModelChoice


TOOLS_WITH_SHELL_TEXT = (
    "days_between, shell  (it asks you before it runs a command that does more than read this "
    "folder)"
)
TOOLS_WITHOUT_SHELL_TEXT = (
    "days_between  (no shell: to add one, remove the # from its lines in agent.yaml)"
)


def init_command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="The folder of the agent. It is created if it does not exist."
        ),
    ] = Path(),
    model: Annotated[
        str | None,
        typer.Option(help="The model. By default, one that you have a key for."),
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option(help="The provider: anthropic, openai, ollama, openrouter, …"),
    ] = None,
    shell: Annotated[
        bool,
        typer.Option(
            "--shell",
            help="Add a shell. It asks before it runs a command that does more than read.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Write a working agent into a folder: agent.yaml, its system prompt and a tool.

    Existing files are not changed.
    """
    from trimtab_serve.cli.init.files import (
        AGENT_FILE_PURPOSES,
        build_agent_files,
        derive_agent_name,
        write_agent_files,
    )
    from trimtab_serve.cli.init.model_choice import choose_model

    try:
        choice = choose_model(os.environ, model=model, provider=provider)
        new_files, old_files = write_agent_files(
            folder,
            build_agent_files(derive_agent_name(folder), choice, with_shell=shell),
            force=force,
        )
    except FileExistsError as error:
        why = f"{error.filename} is a file; name a folder, or move the file"
        raise print_error_for_exit(why) from error
    except OSError as error:
        why = f"{error.filename or folder} cannot be written ({error.strerror or error})"
        raise print_error_for_exit(
            f"{why}; name another folder, or check its permissions"
        ) from error
    except ValueError as error:
        raise print_error_for_exit(str(error)) from error
    for name in new_files:
        typer.echo(f"wrote {folder / name}  ({AGENT_FILE_PURPOSES[name]})")
    for name in old_files:
        typer.echo(f"kept  {folder / name}  (it already exists; --force overwrites it)")
    if "agent.yaml" in new_files:
        typer.echo(f"model {choice.model}" + (f"  ({choice.reason})" if choice.reason else ""))
        typer.echo(f"tools {TOOLS_WITH_SHELL_TEXT if shell else TOOLS_WITHOUT_SHELL_TEXT}")
    else:
        if model or provider:
            typer.echo("the model in agent.yaml was not changed; edit it, or use --force")
        if shell and not _has_shell(folder / "agent.yaml"):
            typer.echo(
                "agent.yaml already exists, so --shell did not change it; add a shell, or use "
                "--force"
            )
    typer.echo("\nNext:")
    for line in _next_commands(folder, choice if "agent.yaml" in new_files else None):
        typer.echo(f"  {line}")


def _has_shell(agent_file: Path) -> bool:
    """Return whether an existing file has a shell. A file that cannot be read has none."""
    try:
        from trimtab_serve.agent.config.problems import read_agent_file_text
        from trimtab_serve.agent.config.yaml_document import parse_yaml_collecting_problems

        document = parse_yaml_collecting_problems(read_agent_file_text(agent_file))
    except (ImportError, ValueError):
        return False
    # A value such as the kind of a tool is at ("tools", NAME, "kind").
    return any(
        (path[0], path[2], mark.written) == ("tools", "kind", "shell")
        for path, mark in document.marks.items()
        if len(path) == 3
    )


def _next_commands(folder: Path, choice: ModelChoice | None) -> list[str]:
    from importlib.util import find_spec
    from shlex import quote

    from trimtab.cli.installed_packages import find_package_versions
    from trimtab_serve.cli.init.files import CLOUD_SETUP_COMMANDS

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
