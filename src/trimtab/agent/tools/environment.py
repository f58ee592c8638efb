"""What a started program sees of the environment: what is harmless, and what is named."""

from __future__ import annotations

from collections.abc import Mapping

HARMLESS = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"}
)
"""Names that are passed on; with them all that begin with `LC_`."""
FIXED = {"GIT_OPTIONAL_LOCKS": "0", "GIT_PAGER": "cat", "PAGER": "cat", "TERM": "dumb"}
"""What holds for all: nobody sits at a terminal, and `git status` writes nothing, not even a cache
of its own."""


def environment(
    named: tuple[str, ...] | Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a tool; a name that is not set is left out, as a shell would."""
    out = {
        name: value for name, value in environ.items() if name in HARMLESS or name.startswith("LC_")
    }
    return out | FIXED | variables(named, environ)


def variables(
    named: tuple[str, ...] | Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str]:
    """What the block `env` of a tool names: variables with values, or names to look up."""
    if isinstance(named, Mapping):
        return dict(named)
    return {name: environ[name] for name in named if name in environ}
