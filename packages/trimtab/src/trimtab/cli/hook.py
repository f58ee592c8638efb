"""`trimtab hook`: Trimtab inside an agent that somebody else wrote."""

from __future__ import annotations

import difflib
import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from trimtab.cli.lazy import TYPER_SETTINGS
from trimtab.cli.stderr_messages import print_error_for_exit
from trimtab.cli.text_format import escape_control_characters, format_count, shorten_to_line
from trimtab.integrations.claude_code.outputs import MIN_TEXT_TOKENS
from trimtab.integrations.claude_code.settings import (
    SettingsFault,
    add_hook,
    check_hook,
    cuts_files,
    describe_disabled_hooks,
    describe_hooks,
    find_installed_folders,
    find_max_tokens,
    format_settings,
    locate_settings,
    read_settings,
    remove_hook,
    write_settings,
)
from trimtab.integrations.claude_code.whole_texts import (
    LOG_NAME,
    SUFFIX,
    erase_texts,
    locate_folder,
)

hook = typer.Typer(
    name="hook",
    no_args_is_help=True,
    help="Shorten large outputs in an agent that you already run.",
    **TYPER_SETTINGS,
)


@hook.callback()
def _hook_group() -> None:
    """Shorten large outputs in an agent that you already run."""


@hook.command("claude")
def claude_command(
    session: Annotated[
        str,
        typer.Argument(
            metavar="SESSION", help="With --erase: only this session.", show_default=False
        ),
    ] = "",
    *,
    project: Annotated[
        bool,
        typer.Option(
            "--project", help="Use .claude/settings.local.json here, not your own settings."
        ),
    ] = False,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=MIN_TEXT_TOKENS,
            help="Shorten long outputs to this many tokens; `trimtab replay` chooses a number for "
            "your sessions. Default: the number that is installed, otherwise 2,000.",
        ),
    ] = None,
    files: Annotated[
        bool | None,
        typer.Option(
            "--files/--no-files",
            help="Also shorten files that are read. Default: as installed, otherwise not.",
        ),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the hook.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Check the hook, change nothing.")] = False,
    erase: Annotated[
        bool, typer.Option("--erase", help="Delete the whole texts and the log of the hook.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the change of the settings, and make none.")
    ] = False,
) -> None:
    """Install a hook in Claude Code that shortens long outputs before the model sees them.

    The whole text stays in a file that Claude Code may read.
    """
    if os.name == "nt":
        raise print_error_for_exit("the hook needs Linux or macOS; on Windows, use it inside WSL")
    if remove + check + erase > 1 or (session and not erase):
        raise print_error_for_exit("use one of --remove, --check, --erase; SESSION needs --erase")
    path = locate_settings(os.environ, Path.cwd() if project else None)
    try:
        if erase:
            _erase(path, session, dry_run=dry_run)
            return
        settings, before = read_settings(path)
        if check:
            command = f"trimtab hook claude{' --project' if project else ''}"
            _print_state(settings, path, command)
        else:
            folder = locate_folder(os.environ)
            tokens = max_tokens or find_max_tokens(settings)
            with_files = cuts_files(settings) if files is None else files
            new = (
                remove_hook(settings)
                if remove
                else add_hook(settings, folder, tokens, files=with_files)
            )
            _change_settings(path, settings, new, before, dry_run=dry_run)
            if not remove:
                for note in [*describe_disabled_hooks(new), *describe_hooks(new)]:
                    _print_line(f"- {note}")
    except (SettingsFault, OSError) as error:
        raise print_error_for_exit(str(error)) from error


def _change_settings(
    path: Path,
    settings: dict[str, Any],
    new: dict[str, Any],
    before: bytes | None,
    *,
    dry_run: bool,
) -> None:
    if new == settings:
        _print_line(f"Nothing to do: {path} stays as it is.")
        return
    if dry_run:
        lines = difflib.unified_diff(
            format_settings(settings).splitlines(),
            format_settings(new).splitlines(),
            str(path),
            f"{path} (new)",
            lineterm="",
        )
        for line in lines:
            _print_line(line)
        return
    write_settings(path, new, before)
    if not find_installed_folders(new):
        end = "" if path.exists() else " and deleted the file, which had no other setting"
        _print_line(f"Removed from {path}{end}.")
        _print_line("Whole texts stay until `trimtab hook claude --erase`.")
    elif describe_disabled_hooks(new):
        _print_line(f"Installed in {path}, but Claude Code does not use it:")
    else:
        _print_line(f"Installed in {path}. Claude Code uses it from its next session on.")


def _erase(path: Path, session: str, *, dry_run: bool) -> None:
    if dry_run:
        raise print_error_for_exit("--erase has no dry run; --check says how much is stored")
    folders = {locate_folder(os.environ)}
    with suppress(SettingsFault):  # a file that is not understood names no other folder
        folders |= set(find_installed_folders(read_settings(path)[0]))
    number = sum(erase_texts(folder, session) for folder in sorted(folders))
    if session and not number:
        paths = [path for folder in folders for path in Path(folder).glob(f"*/*{SUFFIX}")]
        names = shorten_to_line(", ".join(sorted({path.parent.name for path in paths})), 200)
        raise print_error_for_exit(
            f"no whole text of session {session} is stored; sessions that have some: "
            f"{names or 'none'}",
            exit_status=1,
        )
    source = f"of session {session}" if session else f"and what was in {LOG_NAME}"
    _print_line(f"Erased {format_count(number, 'whole text')} {source}.")


def _print_state(settings: dict[str, Any], path: Path, install_command: str) -> None:
    state = check_hook(settings, os.environ, install_command)
    if not state.is_installed:
        _print_line(f"Not installed in {path}. To install it: {install_command}")
        raise typer.Exit(1)
    for fault in state.faults:
        _print_line(f"✗ {fault}")
    if not state.faults:
        _print_line(f"✓ The hook in {path} works.")
    for note in state.notes:
        _print_line(f"- {note}")
    raise typer.Exit(1 if state.faults else 0)


def _print_line(line: str) -> None:
    typer.echo(escape_control_characters(line))
