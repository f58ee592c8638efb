"""The error of a framework's module where the framework is not installed."""

from __future__ import annotations

from trimtab.errors import MissingPackageError


def make_missing_framework_error(extra: str, error: ImportError) -> MissingPackageError:
    """Return an error that says how to install the framework, or the version that it takes.

    `error` is what its import raised; `extra` is the extra of `trimtab` that brings it.
    """
    module = f"trimtab.integrations.{extra.replace('-', '_')}"
    return MissingPackageError(
        f"{module} cannot import its framework ({error})", extra=extra, name=error.name
    )
