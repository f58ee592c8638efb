"""`trimtab demo`: a long conversation in a small window, drawn as it happens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.stderr_messages import print_error_for_exit

DEFAULT_WINDOW = "16k"
REQUIRED_PACKAGES = ("anthropic", "starlette", "uvicorn")
"""Packages of the extra `demo`, besides those of the command line."""


def demo_command(
    policy: Annotated[str, typer.Option(help="The policy: auto, layered, compact, …")] = "auto",
    window: Annotated[str, typer.Option(help="The model's window in tokens.")] = DEFAULT_WINDOW,
    fast: Annotated[bool, typer.Option("--fast", help="Do not pause between steps.")] = False,
    svg: Annotated[
        Path | None, typer.Option(help="Write the final screen to this file as SVG.")
    ] = None,
) -> None:
    """Watch a long conversation stay within a small window. No key is needed.

    The model's replies are scripted. Everything else is real.
    """
    from trimtab.cli.installed_packages import require_packages

    require_packages("the demo", REQUIRED_PACKAGES, extra="demo")
    from trimtab.cli.replay_setups import parse_token_count
    from trimtab.engine.policy.presets import POLICY_NAMES
    from trimtab_serve.cli.demo.live_display import run_demo

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
            f"a window of {size:,} tokens is too small for the demo; use 8k or more"
        )
    run_demo(policy=policy, window=size, fast=fast, svg_path=svg)
