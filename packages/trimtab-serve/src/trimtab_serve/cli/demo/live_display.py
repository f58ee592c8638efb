"""Draw the demo live on a terminal, then print the result in a few lines."""

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

from trimtab.cli.stderr_messages import print_error_for_exit
from trimtab.engine.policy.presets import PolicyName
from trimtab.errors import CannotFit, ProviderError
from trimtab_serve.cli.demo.conversation import run_demo_conversation
from trimtab_serve.cli.demo.screen import DemoScreen
from trimtab_serve.cli.demo.simulator_process import SimulatorStartError
from trimtab_serve.cli.demo.state import DemoState

STEP_SECONDS = 0.24
"""Seconds of one step of the story. The whole story takes less than a minute."""
SVG_CONSOLE_OPTIONS: Any = {"force_terminal": True, "color_system": "truecolor"}
SVG_SIZE_CHARS = (100, 34)
"""Size of the SVG picture in characters: columns and rows."""


def run_demo(*, policy: PolicyName, window: int, fast: bool, svg_path: Path | None) -> None:
    """Run the demo, draw it, and print the result."""
    state = DemoState(policy=policy, window=window)
    console = Console()
    # What is logged would be written across the picture; it says what the picture shows.
    logging.getLogger("trimtab").addHandler(logging.NullHandler())
    # So that the simulator is ended, too.
    signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        with _live_screen(state, console):
            asyncio.run(run_demo_conversation(state, step_seconds=0.0 if fast else STEP_SECONDS))
    except KeyboardInterrupt:
        raise print_error_for_exit("the demo was stopped", exit_status=130) from None
    except (SimulatorStartError, ProviderError, CannotFit) as error:
        raise print_error_for_exit(str(error), exit_status=1) from error
    for line in describe_demo_result(state):
        console.print(line, soft_wrap=not console.is_terminal)
    if svg_path is not None:
        write_demo_svg(state, svg_path)
        console.print(Text(f"wrote {svg_path}", "dim"), soft_wrap=True)


def _exit_on_signal(signal_number: int, _: object) -> None:
    sys.exit(128 + signal_number)


@contextmanager
def _live_screen(state: DemoState, console: Console) -> Generator[None]:
    """Draw live on a terminal. In a pipe, print only the final screen."""
    if console.is_terminal:
        with Live(DemoScreen(state), console=console, refresh_per_second=12):
            yield
        return
    yield
    console.print(DemoScreen(state))


def describe_demo_result(state: DemoState) -> list[Text]:
    """Return the result of the run and the next command."""
    recall_note = (
        f"; the agent looked up {state.recalled_handle} when it was asked"
        if state.recalled_handle
        else ""
    )
    return [
        Text(
            f"{len(state.calls)} calls sent {state.sent_tokens:,} tokens; with the whole "
            f"conversation they would have sent {state.full_tokens:,} "
            f"({_percent_less(state.sent_tokens, state.full_tokens)})."
        ),
        Text(
            f"They cost ${state.cost:.3f}; with the whole conversation, a larger window and an "
            f"always warm cache they would have cost ${state.full_cost:.3f} "
            f"({_percent_less(state.cost, state.full_cost)}): "
            "cached tokens are cheap, so the cost falls less than the tokens."
        ),
        Text(
            f"{state.hidden_tokens:,} tokens are hidden, by {len(state.edits)} edits, and none "
            f"of them is lost{recall_note}."
        ),
        Text(
            f"The provider refused {state.refused_requests} requests; with the whole conversation, "
            f"{state.oversized_calls} of {len(state.calls)} requests would have exceeded the "
            f"window of {state.window:,} tokens."
        ),
        Text.assemble("Next: ", ("trimtab init", "bold"), " creates your own agent."),
    ]


def _percent_less(part: float, whole: float) -> str:
    share = part / whole if whole else 1.0
    return f"{1 - share:.0%} less" if share <= 1 else f"{share - 1:.0%} more"


def write_demo_svg(state: DemoState, path: Path) -> None:
    """Write the final screen as SVG."""
    width, height = SVG_SIZE_CHARS
    console = Console(
        record=True, width=width, height=height, file=io.StringIO(), **SVG_CONSOLE_OPTIONS
    )
    console.print(DemoScreen(state))
    path.parent.mkdir(parents=True, exist_ok=True)
    console.save_svg(str(path), title="trimtab demo", unique_id="trimtab-demo")
