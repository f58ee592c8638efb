"""The demo on a terminal: drawn live, then what was seen in a few lines."""

from __future__ import annotations

import asyncio
import io
import logging
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from trimtab.cli.demo.run import converse
from trimtab.cli.demo.screen import Screen
from trimtab.cli.demo.seen import Seen
from trimtab.cli.demo.simulated import DidNotStart
from trimtab.cli.refusing import refused
from trimtab.core.guard import CannotFit
from trimtab.providers.provider import ProviderError

PACE = 0.24
"""Seconds that a step of the story takes: all of it less than a minute."""
COLOURS: Any = {"force_terminal": True, "color_system": "truecolor"}
PICTURE = (100, 34)
"""Characters of a written picture, across and down."""


def play(*, policy: str, window: int, fast: bool, svg: Path | None) -> None:
    """Run the demo, draw it, and say what was seen."""
    seen = Seen(policy=policy, window=window)
    console = Console()
    # What is logged would be written across the picture; it says what the picture shows.
    logging.getLogger("trimtab").addHandler(logging.NullHandler())
    # So that the simulator is ended, too.
    signal.signal(signal.SIGTERM, _stop)
    try:
        with _drawn(seen, console):
            asyncio.run(converse(seen, pace=0.0 if fast else PACE))
    except KeyboardInterrupt:
        raise refused("the demo was stopped", status=130) from None
    except (DidNotStart, ProviderError, CannotFit) as error:
        raise refused(str(error), status=1) from error
    for line in told(seen):
        console.print(line, soft_wrap=not console.is_terminal)
    if svg is not None:
        picture(seen, svg)
        console.print(Text(f"wrote {svg}", "dim"), soft_wrap=True)


def _stop(number: int, _: object) -> None:
    sys.exit(128 + number)


@contextmanager
def _drawn(seen: Seen, console: Console) -> Generator[None]:
    """Live on a terminal; into a pipe goes the last picture alone."""
    if console.is_terminal:
        with Live(Screen(seen), console=console, refresh_per_second=12):
            yield
        return
    yield
    console.print(Screen(seen))


def told(seen: Seen) -> list[Text]:
    """What was seen, and what to do next."""
    recalled = f"; the agent looked up {seen.recalled} when it was asked" if seen.recalled else ""
    return [
        Text(
            f"{len(seen.calls)} calls sent {seen.sent:,} tokens; with everything said they would "
            f"have been {seen.whole:,} ({_less(seen.sent, seen.whole)})."
        ),
        Text(
            f"They cost ${seen.cost:.3f}; with everything said, in a larger window and from a "
            f"cache always warm, ${seen.whole_cost:.3f} ({_less(seen.cost, seen.whole_cost)}): "
            "what is cached is cheap, so cost falls less than tokens."
        ),
        Text(
            f"{seen.hiding:,} tokens are hidden, in {len(seen.hidden)} steps, and none of them is "
            f"lost{recalled}."
        ),
        Text(
            f"{seen.refused} requests were refused; sending everything, {seen.too_large} of "
            f"{len(seen.calls)} would have been larger than the window of {seen.window:,} tokens."
        ),
        Text.assemble("Next: ", ("trimtab init", "bold"), " writes an agent of your own."),
    ]


def _less(part: float, whole: float) -> str:
    share = part / whole if whole else 1.0
    return f"{1 - share:.0%} less" if share <= 1 else f"{share - 1:.0%} more"


def picture(seen: Seen, path: Path) -> None:
    """Write the last picture as SVG."""
    width, height = PICTURE
    console = Console(record=True, width=width, height=height, file=io.StringIO(), **COLOURS)
    console.print(Screen(seen))
    path.parent.mkdir(parents=True, exist_ok=True)
    console.save_svg(str(path), title="trimtab demo", unique_id="trimtab-demo")
