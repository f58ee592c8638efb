"""Fits the piecewise estimator to every tokenizer at hand and writes engine/tokens/weights.py.

    TRIMTAB_CORPUS=… TRIMTAB_TOKENIZERS=… python -m benchmarks.fit_weights [--write]

Least squares of relative errors with a floor under every weight; a count that is too low weighs
OVER times one that is too high. The same machine and packages give the same file. Families whose
tokenizer is not installed keep the weights they have.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import exact_tokenizers, sample_texts
from trimtab.engine.tokens import piecewise
from trimtab.engine.tokens import weights as token_weights

OVER = 4.0
RIDGE = 10.0
ROUNDS = 6
SWEEPS = 100
LEAST = 0.5
"""Share of its plausible weight that a pair keeps, so that no pattern of text counts as nothing."""
CONVERSATION = 3.0
"""Weight of recorded conversations against one other kind of text."""
BEGIN = (0.25, 0.8, 0.8, 0.9, 0.7, 0.8, 0.9, 0.1, 0.1, 0.8, 0.6, 0.9, 0.8, 0.9, 2.5, 0.8)
"""Tokens of the first byte of a run of each class: where the ridge pulls to."""
GO_ON = (0.25, 0.06, 0.35, 0.5, 0.3, 0.3, 0.2, 0.05, 0.1, 0.5, 0.4, 0.7, 0.8, 0.9, 2.5, 0.2)
"""Tokens of a byte within a run."""

Array = Any


def training_texts() -> Iterator[tuple[str, str]]:
    yield from sample_texts.documents("training")
    dice = random.Random(3)  # noqa: S311 - the same sample on every run
    for conversation in sample_texts.conversations("training"):
        kind = "conversation " + conversation["id"].split("-")[0]
        share = 0.1 if "tau" in kind or "swe" in kind else 0.04
        for message in conversation["messages"]:
            for text in sample_texts.texts_of(message):
                if dice.random() < share:
                    yield kind, text[:12_000]


def histogram(text: str) -> Array:
    return np.bincount(
        np.frombuffer(
            piecewise.encode_byte_class_pairs(piecewise.encode_utf8_as_sent(text)), np.uint8
        ),
        minlength=256,
    )


def plausible() -> Array:
    """Weights for pairs that the training text hardly holds."""
    lower, upper, beyond = {1, 15}, 2, range(8, 15)
    table = np.tile(np.array(BEGIN), (16, 1))
    for before in range(16):
        for own in range(16):
            within_word = {before, own} <= lower or (before == upper and own in lower)
            if before == own or within_word or (before in beyond and own in beyond):
                table[before, own] = GO_ON[own]
    return table.reshape(256)


def solve(gram: Array, target: Array, start: Array, least: Array) -> Array:
    """Least squares above `least` by coordinate descent on the normal equations."""
    weights = start.copy()
    for _ in range(SWEEPS):
        for j, scale in enumerate(np.diag(gram)):
            weights[j] = max(least[j], weights[j] + (target[j] - gram[j] @ weights) / scale)
    return weights


def fit(samples: Array, counts: Array, importance: Array) -> bytes:
    typical = plausible()
    weights = typical
    scale = importance / (counts + 40) ** 2 * 1e4
    for _ in range(ROUNDS):
        under = samples @ weights < counts
        each = scale * np.where(under, OVER, 1.0)
        gram = samples.T @ (samples * each[:, None]) + RIDGE * np.eye(256)
        weights = solve(
            gram, samples.T @ (each * counts) + RIDGE * typical, weights, LEAST * typical
        )
    units = np.minimum(np.round(weights * token_weights.WEIGHT_UNITS_PER_TOKEN), 255)
    return bytes(units.astype(np.uint8))


def module(weights: dict[str, bytes]) -> str:
    lines = [
        '"""Weights of the piecewise estimator; written by benchmarks/fit_weights.py, not by hand.',
        "",
        "A table for each tokenizer family: row by row the class of a byte's predecessor, in a row",
        "its own class, see `piecewise.BYTE_CLASSES`.",
        '"""',
        "",
        f"WEIGHT_UNITS_PER_TOKEN = {token_weights.WEIGHT_UNITS_PER_TOKEN}",
        '"""Number of weight units in one token."""',
        "",
        "WEIGHTS_BY_FAMILY: dict[str, bytes] = {",
    ]
    for family, table in weights.items():
        lines.append(f'    "{family}": bytes.fromhex(')
        lines += [f'        "{table[at : at + 16].hex(" ")}"' for at in range(0, 256, 16)]
        lines.append("    ),")
    return "\n".join([*lines, "}", '"""Weights in units of a token, by family."""', ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="replace engine/tokens/weights.py")
    write: bool = parser.parse_args().write
    if not any(True for _ in sample_texts.conversations("training")):
        print("TRIMTAB_CORPUS is not set: fitted without recorded conversations")
    texts = list(training_texts())
    kinds = Counter(kind for kind, _ in texts)
    print(f"{len(texts)} texts of {len(kinds)} kinds", exact_tokenizers.versions())
    samples = np.array([histogram(text) for _, text in texts], float)
    importance = np.array(
        [(CONVERSATION if "conversation" in kind else 1.0) / kinds[kind] for kind, _ in texts]
    )
    weights = dict(token_weights.WEIGHTS_BY_FAMILY)
    for family, count in sorted(exact_tokenizers.available().items()):
        begun = time.process_time()
        counts = np.array([count(text) for _, text in texts], float)
        weights[family] = fit(samples, counts, importance)
        print(f"{family}: {counts.sum():,.0f} tokens, {time.process_time() - begun:.0f} s")
    if write:
        path = Path(str(sys.modules[token_weights.__name__].__file__))
        path.write_text(module(dict(sorted(weights.items()))), encoding="utf-8")
        print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
