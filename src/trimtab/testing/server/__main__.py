"""`python -m trimtab.testing.server`: a strict provider to test against, on a local port."""

from __future__ import annotations

import argparse
import json
import sys
from importlib.util import find_spec
from typing import Any, NoReturn

from trimtab.testing.server import script
from trimtab.testing.server.options import TOKENIZERS, Options
from trimtab.testing.server.serving import address, listen, server_of
from trimtab.testing.server.simulator import Simulator

NEEDED = ("starlette", "uvicorn", "rs_bpe")
"""Packages of the extra `testing`."""
EXAMPLE = """
for example:
  --script '["Good morning.", {"text": "Let me look.", "calls": 1}, "Done."]'
  --script '[{"tool_calls": 3, "then": "Done."}]' --otherwise '"I have nothing left to say."'
  --script '[{"fault": "rate_limit", "retry_after": 2}, "Now it works."]'
"""


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m trimtab.testing.server",
        description=__doc__,
        epilog=f"{script.__doc__}{EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--window", type=int, help="tokens that every model takes")
    parser.add_argument("--tokenizer", choices=TOKENIZERS, help="default: by model")
    parser.add_argument("--heavier", type=float, default=1.0, help="1.3 counts 30 %% more")
    parser.add_argument("--cache-minimum", type=int, help="tokens below which nothing is cached")
    parser.add_argument("--truncates", action="store_true", help="silently, as Ollama does")
    parser.add_argument("--template", choices=("open", "strict"), default="open")
    parser.add_argument("--script", help="a JSON list of steps; see below")
    parser.add_argument("--otherwise", help="a step, as JSON, for when none is left")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=JSON", help="any other option"
    )
    return parser.parse_args(given)


def _options(told: argparse.Namespace) -> Options:
    names = ("window", "tokenizer", "heavier", "cache_minimum", "truncates", "template")
    values: dict[str, Any] = {name: getattr(told, name) for name in names}
    for pair in told.set:
        name, _, value = pair.partition("=")
        made = _json(f"--set {name}", value)
        values[name] = tuple(made) if name == "api_keys" else made
    return Options(**values)


def _json(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{option} is no JSON: {error}; a text needs quotes of its own") from None


def _simulator(told: argparse.Namespace) -> Simulator:
    simulator = Simulator(_options(told))
    replies = _json("--script", told.script) if told.script else ()
    otherwise = _json("--otherwise", told.otherwise) if told.otherwise else None
    simulator.script.set(replies, otherwise=otherwise)
    return simulator


def main(given: list[str] | None = None) -> None:
    """Serve until stopped; the first line printed is the address."""
    told = _arguments(given)
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        _refuse(f"{', '.join(missing)} not installed; run: pip install 'trimtab[testing]'")
    try:
        simulator = _simulator(told)
    except (TypeError, ValueError) as error:
        _refuse(str(error))
    listener = listen(told.port)
    sys.stdout.write(f"{address(listener)}\n")
    sys.stdout.flush()
    try:
        server_of(simulator).run(sockets=[listener])
    except KeyboardInterrupt:
        # Stopped by hand, which is how it is meant to be stopped.
        return


def _refuse(why: str) -> NoReturn:
    sys.stderr.write(f"trimtab.testing.server: {why}\n")
    sys.exit(2)


if __name__ == "__main__":
    main()
