"""`trimtab demo`: a long conversation in a small window, drawn as it happens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.refusing import refused

WINDOW = "16k"
NEEDED = ("anthropic", "starlette", "uvicorn", "rs_bpe")
"""Packages of the extra `demo`, besides those of the command line."""


def demo(
    policy: Annotated[
        str, typer.Option(help="What decides what is hidden: auto, layered, compact, …")
    ] = "auto",
    window: Annotated[
        str, typer.Option(help="Tokens that the simulated model takes, as 16k.")
    ] = WINDOW,
    fast: Annotated[bool, typer.Option("--fast", help="Do not wait for readers.")] = False,
    svg: Annotated[Path | None, typer.Option(help="Write the last picture into this file.")] = None,
) -> None:
    """Watch a long conversation stay within a small window; no key is needed.

    The model is simulated, by a process of its own, and what it says is written down beforehand.
    All else is real: the tools, the session and its files, the official SDK, and a server that
    counts tokens, keeps a prompt cache and refuses what a provider would refuse.
    """
    _check()
    from trimtab.cli.demo.show import play
    from trimtab.cli.setups import tokens_of
    from trimtab.core.policies import POLICIES

    try:
        size = tokens_of(window)
    except ValueError as error:
        raise refused(str(error)) from error
    if policy not in POLICIES:
        raise refused(f"unknown policy {policy!r}; choose from {', '.join(POLICIES)}")
    if size < 8_000:
        raise refused(f"a window of {size:,} tokens is too small for the story; take 8k or more")
    play(policy=policy, window=size, fast=fast, svg=svg)


def _check() -> None:
    from importlib.util import find_spec

    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise refused(f"the demo needs {', '.join(missing)}; run: pip install 'trimtab[demo]'")
