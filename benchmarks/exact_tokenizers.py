"""Exact tokenizers that work without a network, by family; those not installed are left out.

`rs-bpe` carries o200k_base and cl100k_base, `mistral-common` tekken, `ctok` an unofficial
reconstruction of Claude's. For the others, TRIMTAB_TOKENIZERS names a folder of files
FAMILY.json in the Hugging Face format, read with `tokenizers`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

Count = Callable[[str], int]


@cache
def available() -> dict[str, Count]:
    """By family; loaded once in a process, since some take seconds."""
    found: dict[str, Count] = {}
    for load in (_openai, _tekken, _claude, _folder):
        try:
            found.update(load())
        except ModuleNotFoundError:
            continue
    return found


def versions() -> dict[str, str]:
    out: dict[str, str] = {}
    for name in ("rs-bpe", "mistral-common", "ctok", "tokenizers", "langchain-core"):
        try:
            out[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            out[name] = "not installed"
    return out


def _openai() -> dict[str, Count]:
    openai: Any = importlib.import_module("rs_bpe.bpe").openai
    return {"o200k_base": openai.o200k_base().count, "cl100k_base": openai.cl100k_base().count}


def _tekken() -> dict[str, Count]:
    package = importlib.import_module("mistral_common")
    tekken: Any = importlib.import_module("mistral_common.tokens.tokenizers.tekken").Tekkenizer
    newest = max(Path(str(package.__file__)).parent.rglob("tekken*.json"))
    encode = tekken.from_file(str(newest)).encode
    return {"tekken": lambda text: len(encode(text, bos=False, eos=False))}


def _claude() -> dict[str, Count]:
    ctok: Any = importlib.import_module("ctok")
    # What is left without the frame that a single user message has.
    return {
        "claude_v3": lambda text: ctok.token_count(text, "3.0") - 7,
        "claude_v5": lambda text: ctok.token_count(text, "4.8") - 6,
    }


def _folder() -> dict[str, Count]:
    folder = os.environ.get("TRIMTAB_TOKENIZERS")
    if not folder:
        return {}
    tokenizer: Any = importlib.import_module("tokenizers").Tokenizer

    def counter(path: Path) -> Count:
        encode = tokenizer.from_file(str(path)).encode
        return lambda text: len(encode(text, add_special_tokens=False).ids)

    return {path.stem: counter(path) for path in sorted(Path(folder).glob("*.json"))}
