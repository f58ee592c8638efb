"""Hermes' own command, in its own environment, that writes down what each fit cost."""

from __future__ import annotations

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
    from hermes_cli.main import main

    from trimtab.integrations.hermes import HermesSession

    HermesSession.fit = measure(HermesSession.fit)
    sys.argv[0] = "hermes"
    main()
