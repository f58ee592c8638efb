"""The list of metrics in `docs/operate.md`.

`python -m tests.serve.metrics.metrics_page` writes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trimtab_serve.metrics import definitions

PAGE = Path(__file__).parents[3] / "docs" / "operate.md"
BEGIN = "<!-- metrics: written by `python -m tests.serve.metrics.metrics_page` -->"
END = "<!-- end of metrics -->"
SUFFIX = {"counter": "_total"}


def own() -> list[Any]:
    """The metrics as they are declared, in that order; their labels stand in no sample yet."""
    return [each for each in vars(definitions).values() if hasattr(each, "_labelnames")]


def exposed(metric: Any) -> str:
    """What its name is in a query; a histogram's is that of its three series."""
    return metric._name + SUFFIX.get(metric._type, "")


def listing() -> str:
    rows: list[str] = []
    for metric in own():
        labels = f"{{{','.join(metric._labelnames)}}}" if metric._labelnames else ""
        rows.append(f"{exposed(metric)}{labels}")
    return "\n".join(["```text", *rows, "```"])


def written(text: str) -> str:
    """The page with the list as it is now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{listing()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
