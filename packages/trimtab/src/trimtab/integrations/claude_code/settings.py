"""The hook in the settings of Claude Code: install, remove, check.

A settings file belongs to the user. It is changed only if it is understood. Everything else in it
is kept, and the file is replaced at once. A file that is not understood raises `SettingsFault`.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from trimtab.errors import TrimtabError
from trimtab.integrations.claude_code.__main__ import DEFAULT_MAX_TOKENS
from trimtab.integrations.claude_code.outputs import FILE_MATCHER, TOOL_MATCHER
from trimtab.integrations.claude_code.whole_texts import (
    FOLDER_IN_STATE,
    LOG_NAME,
    count_texts,
    locate_folder,
    read_log,
)

HOOK_MODULE = "trimtab.integrations.claude_code"
"""The module that a command must run to be ours."""
HOOK_EVENT = "PostToolUse"
HOOK_TIMEOUT_SECONDS = 30
"""Claude Code goes on with the whole output after that."""
CHECK_TIMEOUT_SECONDS = 30
_NO_HOOK_TEXT = f"a hook of {HOOK_EVENT} is not an object in the settings; they stay as they are"
_SIGNS_WITH_MEANING_IN_RULES = frozenset("*?[]{}()!\\,")


class SettingsFault(TrimtabError):
    """Settings of Claude Code that cannot be changed. They are as they were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookState:
    """What the settings say about the hook."""

    is_installed: bool
    """Whether they have the hook."""
    faults: tuple[str, ...] = ()
    """What does not work, each with what to do."""
    notes: tuple[str, ...] = ()
    """What else a user should know."""


def locate_settings(environ: Mapping[str, str], project: Path | None = None) -> Path:
    """Return the user's settings file, or the local one of a project, which is not committed."""
    if project is not None:
        return project / ".claude" / "settings.local.json"
    folder = environ.get("CLAUDE_CONFIG_DIR")
    return (Path(folder) if folder else Path.home() / ".claude") / "settings.json"


def build_hook_command(folder: str, max_tokens: int) -> str:
    """Return the shell command that Claude Code runs.

    `-P` keeps the folder of the user's project out of the import path.
    """
    arguments = ["--folder", folder, "--max-tokens", str(max_tokens)]
    return shlex.join([sys.executable, "-P", "-m", HOOK_MODULE, *arguments])


def build_read_rule(folder: str) -> str:
    """Return the permission with which Claude Code may read the whole texts, and nothing else."""
    if _SIGNS_WITH_MEANING_IN_RULES & set(folder) or not folder.isprintable():
        raise SettingsFault(
            f"the folder {folder!r} has characters that a permission of Claude Code cannot "
            "contain; set XDG_STATE_HOME to another folder"
        )
    return f"Read(/{folder}/**)"


def add_hook(
    settings: Mapping[str, Any], folder: str, max_tokens: int, *, files: bool = False
) -> dict[str, Any]:
    """Return the settings with the hook, and with the permission to read whole texts.

    Args:
        settings: The settings as they are.
        folder: The folder of whole texts.
        max_tokens: The most tokens to show of an output that is cut.
        files: Whether files that are read are cut as well.
    """
    clean = remove_hook(settings)
    hooks = dict(_get_object(clean, "hooks"))
    group = {
        "matcher": FILE_MATCHER if files else TOOL_MATCHER,
        "hooks": [
            {
                "type": "command",
                "command": build_hook_command(folder, max_tokens),
                "timeout": HOOK_TIMEOUT_SECONDS,
            }
        ],
    }
    hooks[HOOK_EVENT] = [*_get_list(hooks, HOOK_EVENT), group]
    permissions = dict(_get_object(clean, "permissions"))
    permissions["allow"] = [*_get_list(permissions, "allow"), build_read_rule(folder)]
    return {**clean, "hooks": hooks, "permissions": permissions}


def remove_hook(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without the hook. Everything else stays, in its order."""
    if not _list_own_commands(settings):
        return dict(settings)
    rules = [f"Read(/{folder}/**)" for folder in find_installed_folders(settings)]
    clean = dict(settings)
    hooks = dict(_get_object(settings, "hooks"))
    groups = map(_without_own_hooks, _get_list(hooks, HOOK_EVENT))
    _set_or_drop(hooks, HOOK_EVENT, [group for group in groups if group is not None])
    _set_or_drop(clean, "hooks", hooks)
    permissions = dict(_get_object(settings, "permissions"))
    allowed = [rule for rule in _get_list(permissions, "allow") if rule not in rules]
    _set_or_drop(permissions, "allow", allowed)
    _set_or_drop(clean, "permissions", permissions)
    return clean


def list_other_hooks(settings: Mapping[str, Any]) -> list[str]:
    """Return the commands of other hooks that run after a tool."""
    return [command for command in _list_commands(settings) if not _is_own(command)]


def read_settings(path: Path) -> tuple[dict[str, Any], bytes | None]:
    """Return the settings and the bytes of their file, which are None if there is no file."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return {}, None
    except OSError as error:
        raise SettingsFault(f"{path} cannot be read: {error.strerror}") from error
    if not raw.strip():
        return {}, raw
    try:
        parsed: object = json.loads(raw, object_pairs_hook=_refuse_repeated_keys)
        if not isinstance(parsed, dict):
            raise SettingsFault(f"{path} contains no JSON object; it stays as it is")
        settings = cast("dict[str, Any]", parsed)
        if json.loads(format_settings(settings)) != settings:
            raise SettingsFault(f"{path} has values that cannot be written again")
        _list_commands(settings)
        _get_list(_get_object(settings, "permissions"), "allow")
    except (ValueError, RecursionError) as error:
        raise SettingsFault(
            f"{path} is not valid JSON and stays as it is: {error}; correct it and try again"
        ) from error
    return settings, raw


def format_settings(settings: Mapping[str, Any]) -> str:
    """Return the text of a settings file."""
    text = json.dumps(settings, ensure_ascii=False, allow_nan=False, indent=2) + "\n"
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(settings, allow_nan=False, indent=2) + "\n"
    return text


def write_settings(path: Path, settings: Mapping[str, Any], before: bytes | None) -> None:
    """Replace a settings file, unless another program has changed it since it was read.

    A link stays a link: what it points to is replaced. A file without any setting is deleted.
    """
    target = Path(os.path.realpath(path))
    text = format_settings(settings)
    new = target.with_name(f"{target.name}.{secrets.token_hex(4)}.new")
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = 0o600 if before is None else stat.S_IMODE(target.stat().st_mode)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                os.fchmod(fd, mode)
                file.write(text)
                file.flush()
                os.fsync(fd)
            if (target.read_bytes() if target.exists() else None) != before:
                raise SettingsFault(f"another program has just changed {path}; try again")
            new.replace(target)
            if not settings and not path.is_symlink():
                target.unlink()
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise SettingsFault(f"{path} cannot be written: {error.strerror}") from error


def find_installed_folders(settings: Mapping[str, Any]) -> list[str]:
    """Return the folders of whole texts that the installed hooks use."""
    return [folder for command in _list_own_commands(settings) if (folder := _read_folder(command))]


def find_max_tokens(settings: Mapping[str, Any]) -> int:
    """Return the tokens that the installed hook shows of an output; the default without a hook."""
    commands = _list_own_commands(settings)
    numbers = [_read_option(command, "--max-tokens") for command in commands]
    return next((int(number) for number in numbers if number.isdecimal()), DEFAULT_MAX_TOKENS)


def cuts_files(settings: Mapping[str, Any]) -> bool:
    """Whether the installed hook also cuts files that are read."""
    groups = _get_list(_get_object(settings, "hooks"), HOOK_EVENT)
    return any(
        group.get("matcher") == FILE_MATCHER
        for group in groups
        if any(_is_own(str(hook.get("command", ""))) for hook in _list_hooks(group))
    )


def check_hook(
    settings: Mapping[str, Any],
    environ: Mapping[str, str],
    install_command: str = "trimtab hook claude",
) -> HookState:
    """Check whether the hook that is installed works. It is started once with a small output."""
    commands = _list_own_commands(settings)
    if not commands:
        return HookState(is_installed=False)
    again = f"run `{install_command}` again"
    faults = describe_disabled_hooks(settings)
    if len(commands) > 1:
        faults.append(f"the hook is installed {len(commands)} times; {again}")
    for command in commands:
        fault = _try_command(command)
        if fault:
            faults.append(f"{fault}; {again}")
    folders = find_installed_folders(settings) or [locate_folder(environ)]
    allowed = _get_list(_get_object(settings, "permissions"), "allow")
    notes = describe_hooks(settings)
    for folder in folders:
        if f"Read(/{folder}/**)" not in allowed:
            faults.append(f"Claude Code has no permission to read {folder}; {again}")
        try:
            number, size = count_texts(folder)
            log = read_log(folder)
        except OSError as error:
            faults.append(f"{folder} cannot be used: {error}")
            continue
        notes.append(f"whole texts in {folder}: {number:,} ({size:,} bytes)")
        if log:
            notes.append(f"earlier faults in {LOG_NAME}: {len(log):,}, the newest: {log[-1]}")
    return HookState(is_installed=True, faults=tuple(faults), notes=tuple(notes))


def describe_disabled_hooks(settings: Mapping[str, Any]) -> list[str]:
    """Return what to do if the settings switch every hook off."""
    is_off = settings.get("disableAllHooks") is True
    return ["the setting disableAllHooks switches every hook off; remove it"] if is_off else []


def describe_hooks(settings: Mapping[str, Any]) -> list[str]:
    """Return what a user should know about the hook that is installed, and about others."""
    kind = "outputs and files" if cuts_files(settings) else "outputs, but no files,"
    return [
        f"long {kind} are shortened to {find_max_tokens(settings):,} tokens",
        *(
            f"another hook runs after tools: {command[:200]}; Claude Code runs hooks side by side, "
            "and if both replace an output, the last writer wins"
            for command in list_other_hooks(settings)
        ),
    ]


def _try_command(command: str) -> str:
    """Start the hook with a small output. Return what is wrong; empty if it works.

    A settings file of a project may name any program, so only our own Python is started.
    """
    words = _split_command(command)
    if words[0].startswith("/") and not shutil.which(words[0]):
        return f"its Python {words[0]} is gone, so nothing is shortened"
    if words[:4] != [sys.executable, "-P", "-m", HOOK_MODULE]:
        return f"the hook uses another Python than {sys.executable}"
    event = {"hook_event_name": HOOK_EVENT, "tool_name": "Bash", "tool_response": {"stdout": "ok"}}
    try:
        process = subprocess.run(  # noqa: S603 - the interpreter that runs this program
            words,
            input=json.dumps(event).encode(),
            capture_output=True,
            timeout=CHECK_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return f"the hook does not start: {error}"
    if process.returncode or process.stdout:
        last = process.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return f"the hook ends with {process.returncode}: {last[:200]}"
    return ""


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key is written twice")
    return fields


def _split_command(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _is_own(command: str) -> bool:
    return HOOK_MODULE in _split_command(command)


def _read_option(command: str, name: str) -> str:
    """Return what an option of a command is set to; empty if it is not there."""
    return next((after for word, after in pairwise(_split_command(command)) if word == name), "")


def _read_folder(command: str) -> str:
    """Return the folder of whole texts in a command. Any other folder is not touched."""
    folder = _read_option(command, "--folder")
    is_ours = folder.startswith("/") and folder.endswith(f"/{FOLDER_IN_STATE}")
    return folder if is_ours else ""


def _list_own_commands(settings: Mapping[str, Any]) -> list[str]:
    return [command for command in _list_commands(settings) if _is_own(command)]


def _list_commands(settings: Mapping[str, Any]) -> list[str]:
    """Return the commands of all hooks that run after a tool."""
    groups = _get_list(_get_object(settings, "hooks"), HOOK_EVENT)
    return [
        hook["command"]
        for group in groups
        for hook in _list_hooks(group)
        if isinstance(hook.get("command"), str)
    ]


def _list_hooks(group: object) -> Iterator[dict[str, Any]]:
    if not isinstance(group, dict):
        raise SettingsFault(_NO_HOOK_TEXT)
    for hook in _get_list(cast("dict[str, Any]", group), "hooks"):
        if not isinstance(hook, dict):
            raise SettingsFault(_NO_HOOK_TEXT)
        yield cast("dict[str, Any]", hook)


def _without_own_hooks(group: Any) -> Any | None:
    """Return a group without our hooks; None if nothing is left."""
    hooks = list(_list_hooks(group))
    others = [hook for hook in hooks if not _is_own(str(hook.get("command", "")))]
    if len(others) == len(hooks):
        return group
    return {**group, "hooks": others} if others else None


def _get_object(settings: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner: object = settings.get(key, {})
    if not isinstance(inner, dict):
        raise SettingsFault(f"`{key}` is not an object in the settings; they stay as they are")
    return cast("dict[str, Any]", inner)


def _get_list(settings: Mapping[str, Any], key: str) -> list[Any]:
    inner: object = settings.get(key, [])
    if not isinstance(inner, list):
        raise SettingsFault(f"`{key}` is not a list in the settings; they stay as they are")
    return cast("list[Any]", inner)


def _set_or_drop(settings: dict[str, Any], key: str, inner: Any) -> None:
    """Set a key, or remove it if nothing is left in it."""
    if inner:
        settings[key] = inner
    else:
        settings.pop(key, None)
