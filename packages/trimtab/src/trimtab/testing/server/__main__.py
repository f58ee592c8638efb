"""`python -m trimtab.testing.server`: a strict simulated provider on a local port, for tests."""

from __future__ import annotations

import argparse
import json
import sys
from importlib.util import find_spec
from typing import Any, NoReturn

from trimtab.testing.server import script
from trimtab.testing.server.local_server import (
    build_simulator_server,
    build_socket_url,
    open_local_socket,
)
from trimtab.testing.server.options import TOKENIZERS, ProviderSimulatorOptions
from trimtab.testing.server.simulator import ProviderSimulator

REQUIRED_PACKAGES = ("starlette", "uvicorn")
"""Packages of the extra `testing`."""
HELP_EXAMPLES = """
for example:
  --script '["Good morning.", {"text": "Let me look.", "calls": 1}, "Done."]'
  --script '[{"tool_calls": 3, "then": "Done."}]' --otherwise '"I have nothing left to say."'
  --script '[{"fault": "rate_limit", "retry_after": 2}, "Now it works."]'
"""


def _parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m trimtab.testing.server",
        description=__doc__,
        epilog=f"{script.__doc__}{HELP_EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=0, help="Port. 0 takes a free one.")
    parser.add_argument("--window", type=int, help="Window of every model in tokens.")
    parser.add_argument("--tokenizer", choices=TOKENIZERS, help="Default: by model.")
    parser.add_argument("--heavier", type=float, default=1.0, help="1.3 counts 30 %% more tokens.")
    parser.add_argument("--cache-minimum", type=int, help="Minimum tokens of a cached prefix.")
    parser.add_argument(
        "--truncates", action="store_true", help="Cut long input silently, as Ollama does."
    )
    parser.add_argument("--template", choices=("open", "strict"), default="open")
    parser.add_argument("--script", help="Steps as a JSON list. See below.")
    parser.add_argument("--otherwise", help="The step after the end of the script, as JSON.")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=JSON", help="Any other option."
    )
    return parser.parse_args(argv)


def _build_options(arguments: argparse.Namespace) -> ProviderSimulatorOptions:
    names = ("window", "tokenizer", "heavier", "cache_minimum", "truncates", "template")
    values: dict[str, Any] = {name: getattr(arguments, name) for name in names}
    for pair in arguments.set:
        name, _, value = pair.partition("=")
        option = _parse_json(f"--set {name}", value)
        values[name] = tuple(option) if name == "api_keys" else option
    return ProviderSimulatorOptions(**values)


def _parse_json(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{option} is not JSON: {error}; put a text in double quotes") from None


def _build_simulator(arguments: argparse.Namespace) -> ProviderSimulator:
    simulator = ProviderSimulator(_build_options(arguments))
    replies = _parse_json("--script", arguments.script) if arguments.script else ()
    otherwise = _parse_json("--otherwise", arguments.otherwise) if arguments.otherwise else None
    simulator.script.set_replies(replies, otherwise=otherwise)
    return simulator


def main(argv: list[str] | None = None) -> None:
    """Serve until stopped. The first printed line is the address."""
    arguments = _parse_arguments(argv)
    if missing := [name for name in REQUIRED_PACKAGES if find_spec(name) is None]:
        _exit_with_error(f"{', '.join(missing)} not installed; run: pip install 'trimtab[testing]'")
    try:
        simulator = _build_simulator(arguments)
    except (TypeError, ValueError) as error:
        _exit_with_error(str(error))
    listener = open_local_socket(arguments.port)
    sys.stdout.write(f"{build_socket_url(listener)}\n")
    sys.stdout.flush()
    try:
        build_simulator_server(simulator).run(sockets=[listener])
    except KeyboardInterrupt:
        # Stopped by hand, which is how it is meant to be stopped.
        return


def _exit_with_error(reason: str) -> NoReturn:
    sys.stderr.write(f"trimtab.testing.server: {reason}\n")
    sys.exit(2)


if __name__ == "__main__":
    main()
