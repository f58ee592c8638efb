"""The error of a framework's module where the framework is not installed."""

from __future__ import annotations


def make_missing_framework_error(extra: str, error: ImportError) -> ImportError:
    """Return an error that says how to install the framework, or the version that it takes.

    `error` is what its import raised; `extra` is the extra of `trimtab` that brings it.
    """
    module = f"trimtab.integrations.{extra.replace('-', '_')}"
    return ImportError(
        f"{module} cannot import its framework ({error}): pip install 'trimtab[{extra}]'",
        name=error.name,
    )
