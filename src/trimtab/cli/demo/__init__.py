"""`trimtab demo`: a long conversation in a small window, drawn as it happens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.stderr_messages import print_error_for_exit

DEFAULT_WINDOW = "16k"
REQUIRED_PACKAGES = ("anthropic", "starlette", "uvicorn", "rs_bpe")
"""Packages of the extra `demo`, besides those of the command line."""


def demo_command(
    policy: Annotated[
        str, typer.Option(help="What decides what is hidden: auto, layered, compact, …")
    ] = "auto",
    window: Annotated[
        str, typer.Option(help="Tokens that the simulated model takes, as 16k.")
    ] = DEFAULT_WINDOW,
    fast: Annotated[bool, typer.Option("--fast", help="Do not wait for readers.")] = False,
    svg: Annotated[Path | None, typer.Option(help="Write the last picture into this file.")] = None,
) -> None:
    """Watch a long conversation stay within a small window; no key is needed.

    The model is simulated, by a process of its own, and what it says is written down beforehand.
    All else is real: the tools, the session and its files, the official SDK, and a server that
    counts tokens, keeps a prompt cache and refuses what a provider would refuse.
    """
    _require_packages()
    from trimtab.cli.demo.live_display_and_result import run_demo
    from trimtab.cli.replay import parse_token_count
    from trimtab.policy.presets import POLICY_NAMES

    try:
        size = parse_token_count(window)
    except ValueError as error:
        raise print_error_for_exit(str(error)) from error
    if policy not in POLICY_NAMES:
        raise print_error_for_exit(
            f"unknown policy {policy!r}; choose from {', '.join(POLICY_NAMES)}"
        )
    if size < 8_000:
        raise print_error_for_exit(
            f"a window of {size:,} tokens is too small for the story; take 8k or more"
        )
    run_demo(policy=policy, window=size, fast=fast, svg_path=svg)


def _require_packages() -> None:
    from importlib.util import find_spec

    if missing := [name for name in REQUIRED_PACKAGES if find_spec(name) is None]:
        raise print_error_for_exit(
            f"the demo needs {', '.join(missing)}; run: pip install 'trimtab[demo]'"
        )
