"""A bubblewrap sandbox for the programs of tools, which can write only to their folder.

Programs in it see the machine's files read-only, their own `/tmp` and `/run`, only their own
processes, and no network unless it is allowed. Session logs, API keys and the history of chats are
hidden. It is not a virtual machine: programs can read other files, including the user's home.

Without capabilities, root still owns most files of `/proc` and `/sys` and may write to those that
ask only for the owner, such as `/proc/sys/kernel/core_pattern`. So both are read-only as a whole,
and a program cannot make a user namespace, in which it could mount them again.

A mount covers a file, not its name. If a program renames a folder above the file, the mount moves
with it, and another file can take its place. So each folder between the writable folder and such a
file is a mount itself, which cannot be renamed. The same holds for folders that other tools run in:
a link in their place would lead those tools elsewhere. A symbolic link cannot be a mount, so a tool
that could replace a link on the way to such a file or folder is refused.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from stat import S_ISSOCK
from types import MappingProxyType

from trimtab.session.tools import ToolError
from trimtab.stores.factory import is_database_address
from trimtab_serve.agent.config.loader import locate_agent_store, names_prompt_file
from trimtab_serve.agent.config.spec import (
    AgentSpec,
    CommandToolSpec,
    McpToolSpec,
    ProcessToolSpec,
    PythonToolSpec,
)
from trimtab_serve.agent.tools.permissions.rules import ApprovalCallback, PermissionGate
from trimtab_serve.agent.tools.tool_setting import ToolSetting, UnusableToolError

log = logging.getLogger("trimtab.tools")

NO_SERVED_AGENTS: Mapping[Path, AgentSpec] = MappingProxyType({})
BUBBLEWRAP_PROGRAM = "bwrap"
PROBE_TIMEOUT_S = 10.0
"""Seconds that the first program in a sandbox may take."""
_PATHS_KEPT_OF_RUN = ("/run/current-system", "/run/wrappers")
"""Folders of NixOS with its programs."""
_NAME_RESOLUTION_PATHS = ("/run/systemd/resolve", "/run/NetworkManager", "/run/resolvconf")
"""Folders that `/etc/resolv.conf` may point to."""
_USER_NAMESPACES = (("--unshare-user", "--disable-userns"), ("--unshare-user-try",))
"""The options for the user namespace, the better ones first. Bubblewrap before 0.8 and one that is
setuid know only the others, with which programs can make further namespaces."""
_SOCKET_LIST = Path("/proc/net/unix")
MAX_SEARCHED_ENTRIES = 20_000
"""Number of files and folders of a working folder that are searched for sockets before a call."""
MAX_HIDDEN_SOCKETS = 500
"""Maximum number of sockets in a working folder. A command line has room for no more than a few
thousand."""
_REPLACED_FOLDERS = ("/dev", "/proc", "/run", "/tmp")  # noqa: S108 - one of its own
"""Folders that the sandbox replaces by its own."""
_NEVER_WRITABLE_FOLDERS = ("/", "/dev", "/proc", "/run")
"""Folders that no tool may have as its own. If one of them is writable, there is no sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubblewrap:
    """A bubblewrap program that works on this machine."""

    program: str
    """The path of the program."""
    version: str
    """The version, such as `0.8.0`."""
    user_namespace: tuple[str, ...]
    """The options for the user namespace, one of `_USER_NAMESPACES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The sandbox for the programs of one tool."""

    bubblewrap: Bubblewrap
    """The program that makes it."""
    network: bool
    """Whether the programs can reach the network."""
    hidden_paths: tuple[Path, ...] = ()
    """Files and folders that are empty in the sandbox."""
    read_only_paths: tuple[Path, ...] = ()
    """Files that cannot be changed, even in the writable folder."""
    working_folders: tuple[Path, ...] = ()
    """Folders of tools, which cannot be renamed, even in the writable folder."""

    def wrap(self, argv: Sequence[str], cwd: Path) -> tuple[str, ...]:
        """Return the command line that runs a program in the sandbox, with its folder writable."""
        parent_folders = {
            folder for path in self.working_folders for folder in (path, *path.parents)
        }
        for path in (*self.read_only_paths, *self.hidden_paths):
            parent_folders.update(path.parents)
        folders = _list_folders_below(cwd, parent_folders)
        folder_binds = [("--bind", str(path), str(path)) for path in folders]
        read_only_binds = [("--ro-bind", str(path), str(path)) for path in self.read_only_paths]
        sockets = {*list_reachable_sockets(cwd), *find_sockets(cwd, self.hidden_paths)}
        masks = map(_hide_path, (*sorted(sockets), *self.hidden_paths))
        changes = [("--bind", str(cwd), str(cwd)), *folder_binds, *read_only_binds, *masks]
        return (
            self.bubblewrap.program,
            *build_sandbox_options(network=self.network),
            *self.bubblewrap.user_namespace,
            *(option for options in changes for option in options),
            *("--chdir", str(cwd), "--", *argv),
        )

    def describe(self) -> str:
        """Describe the sandbox in a few words."""
        return f"bubblewrap {self.bubblewrap.version}, network {'on' if self.network else 'off'}"


def build_sandbox_options(*, network: bool) -> tuple[str, ...]:
    """Return the options of bubblewrap for programs that may write to no folder of the machine."""
    run_paths = [*_PATHS_KEPT_OF_RUN, *(_NAME_RESOLUTION_PATHS if network else ())]
    return (
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc"),
        *("--tmpfs", "/tmp", "--setenv", "TMPDIR", "/tmp"),  # noqa: S108 - one of its own
        # Sockets can be used on a read-only mount: those of Docker, PostgreSQL, D-Bus.
        *("--tmpfs", "/run"),
        *(part for path in run_paths for part in ("--ro-bind-try", path, path)),
        *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
        *(() if network else ("--unshare-net",)),
        *("--cap-drop", "ALL", "--die-with-parent"),
    )


def list_reachable_sockets(cwd: Path) -> list[Path]:
    """List the sockets of other programs that are files outside the folders that the sandbox
    replaces, or in the folder of the tool."""
    try:
        lines = _SOCKET_LIST.read_bytes().splitlines()
    except OSError:
        return []
    names = {fields[7] for line in lines if len(fields := line.split(maxsplit=7)) > 7}
    sockets = {Path(os.path.realpath(os.fsdecode(name))) for name in names if name[:1] == b"/"}
    return sorted(
        path
        for path in sockets
        if path.is_socket()
        if path.is_relative_to(cwd) or not any(map(path.is_relative_to, _REPLACED_FOLDERS))
    )


def find_sockets(cwd: Path, hidden_paths: Iterable[Path]) -> list[Path]:
    """Find the sockets in the folder of the tool, outer folders first. The system's list does not
    tell where one is that was bound by a relative path, or moved. Raises `ToolError` if there are
    too many to hide."""
    sockets: list[Path] = []
    entry_count = 0
    folders = deque([str(cwd)])
    hidden_names = set(map(str, hidden_paths))
    while folders and entry_count < MAX_SEARCHED_ENTRIES:
        with suppress(OSError), os.scandir(folders.popleft()) as entries:
            for entry in islice(entries, MAX_SEARCHED_ENTRIES - entry_count):
                entry_count += 1
                if entry.is_dir(follow_symlinks=False):
                    if entry.path not in hidden_names:
                        folders.append(entry.path)
                elif S_ISSOCK(_read_file_type(entry)):
                    sockets.append(Path(entry.path))
    if len(sockets) > MAX_HIDDEN_SOCKETS:
        raise ToolError(
            f"{cwd} contains more than {MAX_HIDDEN_SOCKETS} sockets, so nothing was run; delete "
            "unused ones"
        )
    return sockets


def _read_file_type(entry: os.DirEntry[str]) -> int:
    """Return the mode of what is neither a file nor a link, otherwise 0, without asking the
    disk."""
    if entry.is_symlink() or entry.is_file(follow_symlinks=False):
        return 0
    try:
        return entry.stat(follow_symlinks=False).st_mode
    except OSError:
        return 0  # it is gone


def _list_folders_below(cwd: Path, folders: Iterable[Path]) -> list[Path]:
    """Return those that are below the writable folder, outer folders first. A mount over a link
    would make its target writable."""
    return sorted(
        folder
        for folder in folders
        if folder != cwd and folder.is_relative_to(cwd)
        if folder.is_dir() and folder.resolve() == folder
    )


def _hide_path(path: Path) -> tuple[str, ...]:
    """Return nothing for a path that does not exist, because bubblewrap would create it."""
    if path.is_dir():
        return ("--tmpfs", str(path))
    return ("--ro-bind", "/dev/null", str(path)) if path.exists() else ()


def build_tool_setting(
    spec: AgentSpec,
    folder: Path,
    *,
    approve: ApprovalCallback,
    environ: Mapping[str, str],
    served: Mapping[Path, AgentSpec] = NO_SERVED_AGENTS,
) -> ToolSetting:
    """Build what all tools of an agent have in common. `served` are the agents of the same server
    by their files, which are protected as well."""
    agents = [(spec, folder), *((each, file.resolve().parent) for file, each in served.items())]
    files = [
        *map(_make_absolute, served),
        *(file for each in agents for file in list_agent_files(*each)),
    ]
    folders = [path for each in agents for path in list_working_folders(*each)]
    return ToolSetting(
        folder=folder,
        gate=PermissionGate(approve=approve),
        environ=environ,
        private_paths=list_private_paths(spec, folder, environ),
        agent_files=tuple(dict.fromkeys(files)),
        working_folders=tuple(dict.fromkeys(folders)),
    )


def list_private_paths(
    spec: AgentSpec, folder: Path, environ: Mapping[str, str]
) -> tuple[Path, ...]:
    """List what no tool needs to see: the store of sessions and API keys, the chat history."""
    state = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    paths = [Path(state) / "trimtab"]
    store = locate_agent_store(spec, folder)
    if not is_database_address(store):
        paths.append(Path(store))
    return tuple(map(_make_absolute, paths))


def _make_absolute(path: Path) -> Path:
    """Make a path absolute without following its links. Whether one of them can be replaced depends
    on the tool."""
    return Path(os.path.normpath(path.absolute()))


def list_agent_files(spec: AgentSpec, folder: Path) -> tuple[Path, ...]:
    """List the files that the agent is made of. A change in them changes what the agent may do, or
    what runs outside of a sandbox."""
    paths = [folder / "agent.yaml"]
    for tool in spec.tools.values():
        if isinstance(tool, PythonToolSpec):
            source = tool.function.partition(":")[0]
            top = source.partition(".")[0]
            file_names = [source] if source.endswith(".py") else [f"{top}.py", top]
            paths += [folder / Path(name).expanduser() for name in file_names]
        elif (isinstance(tool, CommandToolSpec) and tool.sandbox == "off") or isinstance(
            tool, McpToolSpec
        ):
            cwd = folder / Path(tool.cwd).expanduser()
            # Whatever is on the command line and a file may be a program.
            paths += [cwd / Path(part).expanduser() for part in tool.command or ()]
    if spec.system is not None and names_prompt_file(spec.system):
        paths.append(folder / Path(spec.system).expanduser())
    return tuple(dict.fromkeys(_make_absolute(path) for path in paths if _is_kept(path, folder)))


def list_working_folders(spec: AgentSpec, folder: Path) -> tuple[Path, ...]:
    """List the folders that the agent's programs run in, without following links."""
    tools = [
        tool for tool in spec.tools.values() if isinstance(tool, ProcessToolSpec | McpToolSpec)
    ]
    return tuple({(folder / Path(tool.cwd).expanduser()).absolute(): None for tool in tools})


def _is_kept(path: Path, folder: Path) -> bool:
    """Return whether it is a file, or the folder of a package."""
    try:
        return path.is_file() or (path.parent == folder and path.is_dir())
    except (OSError, ValueError):
        return False  # an argument that is no path: too long, or with a NUL


def choose_sandbox(
    name: str, spec: ProcessToolSpec, setting: ToolSetting, cwd: Path
) -> Sandbox | None:
    """Return the sandbox of a tool that runs in this folder, or None. Raises `UnusableToolError` if
    a sandbox is required and not possible."""
    if spec.sandbox == "off":
        return None
    bubblewrap = find_bubblewrap(setting.environ.get("PATH") or os.defpath)
    if isinstance(bubblewrap, Bubblewrap):
        check_writable_folder(name, setting, cwd)
        return Sandbox(
            bubblewrap=bubblewrap,
            network=spec.sandbox_network,
            hidden_paths=tuple(path.resolve() for path in setting.private_paths),
            read_only_paths=tuple(path.resolve() for path in setting.agent_files),
            working_folders=tuple(path.resolve() for path in setting.working_folders),
        )
    if spec.sandbox == "required":
        raise UnusableToolError(name, f"it must run in a sandbox, but {bubblewrap}")
    log.warning("tools.%s runs without a sandbox: %s", name, bubblewrap)
    return None


def check_writable_folder(name: str, setting: ToolSetting, cwd: Path) -> None:
    """Raise `UnusableToolError` if no sandbox is possible with this folder writable."""
    if str(cwd) in _NEVER_WRITABLE_FOLDERS:
        raise UnusableToolError(
            name, f"a sandbox is not possible with cwd {cwd}; set cwd to a separate folder"
        )
    for path in (*setting.private_paths, *setting.agent_files, *setting.working_folders):
        if link := _find_replaceable_link(path, cwd):
            raise UnusableToolError(
                name,
                f"{link} is a symbolic link in the folder that the sandbox can write to, so the "
                f"tool could replace {path.name}; name the file or folder itself, or set cwd to "
                "another folder",
            )


def _find_replaceable_link(path: Path, cwd: Path) -> Path | None:
    """Return the first link on the way to a file that a program can replace if it may write to the
    folder."""
    to_follow = [path]
    past_links = set[Path]()
    while to_follow:
        current = to_follow.pop()
        for part in reversed((current, *current.parents)):
            if part in past_links or not part.is_symlink():
                continue
            past_links.add(part)
            if part.parent.resolve().is_relative_to(cwd):
                return part
            # What it leads to may be a link again.
            to_follow.append(_make_absolute(part.parent / part.readlink()))
    return None


@cache
def find_bubblewrap(search_path: str) -> Bubblewrap | str:
    """Return bubblewrap if it works here, otherwise the reason why not. It is tried only once."""
    if sys.platform != "linux":
        return "bubblewrap works only on Linux"
    program = shutil.which(BUBBLEWRAP_PROGRAM, path=search_path)
    if program is None:
        return "bubblewrap is not installed (Debian, Fedora: the package bubblewrap)"
    probe = ("--", "/bin/sh", "-c", "exit 0")
    reason = ""
    try:
        version_run = subprocess.run(  # noqa: S603 - a program of this machine, with fixed arguments
            (program, "--version"), capture_output=True, timeout=PROBE_TIMEOUT_S, check=False
        )
        version = re.search(r"\d[\d.]*", version_run.stdout.decode(errors="replace"))
        for user_namespace in _USER_NAMESPACES:
            probe_run = subprocess.run(  # noqa: S603 - the same
                (program, *build_sandbox_options(network=False), *user_namespace, *probe),
                capture_output=True,
                timeout=PROBE_TIMEOUT_S,
                check=False,
                env={},
            )
            if probe_run.returncode == 0:
                return Bubblewrap(
                    program=program,
                    version=version[0] if version else "of an unknown version",
                    user_namespace=user_namespace,
                )
            lines = probe_run.stderr.decode(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else "it gives no reason"
            if os.geteuid() == 0:
                # In a further namespace root could mount its control group and end the server.
                break
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} cannot be run: {error}"
    return f"bubblewrap does not work here: {reason}; the machine may forbid user namespaces" + (
        ", and root needs bubblewrap 0.8 or newer" if os.geteuid() == 0 else ""
    )
