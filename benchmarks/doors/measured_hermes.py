"""Hermes' own command, in its own environment, that records the CPU of each fit."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

FILE = Path(os.environ["TRIMTAB_MEASURED"])


def measure(fit: Any) -> Any:
    """Return `HermesSession.fit`, measured."""

    def fit_measured(self: Any, request: Any, *words: Any) -> Any:
        record: dict[str, Any] = {"managed": False, "cpu": 0.0, "loads": 0.0}
        start = time.process_time()
        try:
            fitted = fit(self, request, *words)
            record["managed"] = True
        finally:
            record["cpu"] = time.process_time() - start
            text = json.dumps(request, default=str)
            start = time.process_time()
            json.loads(text)
            record["loads"] = time.process_time() - start
            with FILE.open("a") as file:
                file.write(json.dumps(record) + "\n")
        return fitted

    return fit_measured


if __name__ == "__main__":
    command: Any = importlib.import_module("hermes_cli.main")
    plugin: Any = importlib.import_module("trimtab.integrations.hermes")
    plugin.HermesSession.fit = measure(plugin.HermesSession.fit)
    sys.argv[0] = "hermes"
    command.main()
