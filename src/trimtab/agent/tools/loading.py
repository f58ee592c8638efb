"""Where a function of `agent.yaml` comes from: a file beside it, or a package."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from trimtab.agent.secrets import missing_variable
from trimtab.agent.tools.unusable import ToolUnusable

Function = Callable[..., Any]


def load(name: str, where: str, folder: Path) -> Function:
    """The function of `file.py:name` or `package.module:name`."""
    source, colon, wanted = where.rpartition(":")
    if not (source and colon and wanted.isidentifier()):
        raise ToolUnusable(
            name, f"function {where!r} is not `file.py:name` or `package.module:name`"
        )
    # What stands beside the file may be imported from it; it shadows nothing that is installed.
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        module = _from_file(folder / source) if source.endswith(".py") else _module(source)
    except FileNotFoundError as error:
        if error.filename != str(folder / source):
            raise ToolUnusable(name, f"{source} failed while it was loaded: {error}") from error
        raise ToolUnusable(
            name, f"there is no file {folder / source}; create it, or correct `function`"
        ) from None
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        fix = missing_variable(error) or "correct it"
        if isinstance(error, ModuleNotFoundError):
            fix = "install what it needs into the environment of trimtab"
        raise ToolUnusable(
            name, f"{source} failed while it was loaded{_line(error, source)}: {told}; {fix}"
        ) from error
    found = getattr(module, wanted, None)
    if not callable(found):
        own = [each for each in vars(module).values() if inspect.isfunction(each)]
        there = [each.__name__ for each in own if each.__module__ == module.__name__]
        raise ToolUnusable(
            name,
            f"{source} has no function {wanted!r}; it has {', '.join(there) or 'none'}: correct "
            "`function`",
        )
    return found


def _line(error: BaseException, source: str) -> str:
    """Where in the file it went wrong, as far as it is known."""
    if isinstance(error, SyntaxError):
        return ""  # it says so itself
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename.endswith(source)]
    return f", in line {lines[-1]}" if lines else ""


def _module(source: str) -> ModuleType:
    return importlib.import_module(source)


def _from_file(path: Path) -> ModuleType:
    """A file's module, once in a process: two tools of one file share what it holds."""
    named = f"trimtab_tools_{sha256(str(path.resolve()).encode()).hexdigest()[:16]}"
    if named in sys.modules:
        return sys.modules[named]
    if not path.is_file():
        raise FileNotFoundError(2, "no such file", str(path))
    made = importlib.util.spec_from_file_location(named, path)
    assert made is not None and made.loader is not None  # noqa: S101, PT018 - a path ending in .py
    module = importlib.util.module_from_spec(made)
    sys.modules[named] = module
    try:
        made.loader.exec_module(module)
    except BaseException:
        del sys.modules[named]
        raise
    return module
