"""`trimtab sidecar` that records the CPU of each fit, beside that of `json.loads`."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from trimtab.cli import main
from trimtab.sidecar import sidecar as module

FILE = Path(os.environ["TRIMTAB_MEASURED"])


def measure(answer_read: Any) -> Any:
    """Return the method that answers a call, measured."""

    async def answer(self: Any, op: str, call: Any) -> Any:
        start = time.process_time()
        answered = await answer_read(self, op, call)
        cpu = time.process_time() - start
        if op == "fit":
            text = json.dumps(call.fields.get("body"))
            start = time.process_time()
            json.loads(text)
            loads = time.process_time() - start
            keys = ("managed", "changed", "fault", "why", "used")
            record = {key: answered.fields.get(key) for key in keys}
            with FILE.open("a") as file:  # noqa: ASYNC230 - a line, of a benchmark
                file.write(json.dumps({"cpu": cpu, "loads": loads, **record}) + "\n")
        return answered

    return answer


if __name__ == "__main__":
    module.Sidecar.answer_read = measure(module.Sidecar.answer_read)
    sys.argv[0] = "trimtab"
    main()
