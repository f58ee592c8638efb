"""`python -m trimtab.testing.server`: a strict provider to test against, on a local port."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from trimtab.testing.server.options import TOKENIZERS, Options
from trimtab.testing.server.serving import address, listen, server_of
from trimtab.testing.server.simulator import Simulator


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m trimtab.testing.server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--window", type=int, help="tokens that every model takes")
    parser.add_argument("--tokenizer", choices=TOKENIZERS, help="default: by model")
    parser.add_argument("--heavier", type=float, default=1.0, help="1.3 counts 30 %% more")
    parser.add_argument("--cache-minimum", type=int, help="tokens below which nothing is cached")
    parser.add_argument("--truncates", action="store_true", help="silently, as Ollama does")
    parser.add_argument("--template", choices=("open", "strict"), default="open")
    parser.add_argument("--script", help="replies to come, as JSON")
    parser.add_argument("--otherwise", help="what is done when no reply is left, as JSON")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=JSON", help="any other option"
    )
    return parser.parse_args(given)


def _options(told: argparse.Namespace) -> Options:
    names = ("window", "tokenizer", "heavier", "cache_minimum", "truncates", "template")
    values: dict[str, Any] = {name: getattr(told, name) for name in names}
    for pair in told.set:
        name, _, value = pair.partition("=")
        made = json.loads(value)
        values[name] = tuple(made) if name == "api_keys" else made
    return Options(**values)


def main(given: list[str] | None = None) -> None:
    """Serve until stopped; the first line printed is the address."""
    told = _arguments(given)
    simulator = Simulator(_options(told))
    script = json.loads(told.script) if told.script else ()
    otherwise = json.loads(told.otherwise) if told.otherwise else None
    simulator.script.set(script, otherwise=otherwise)
    listener = listen(told.port)
    sys.stdout.write(f"{address(listener)}\n")
    sys.stdout.flush()
    try:
        server_of(simulator).run(sockets=[listener])
    except KeyboardInterrupt:
        # Stopped by hand, which is how it is meant to be stopped.
        return


if __name__ == "__main__":
    main()
