"""Text to fit the token estimator to, and text to test it on that had no part in the fit.

Everything is found on the machine or generated from a fixed seed. Recorded conversations are read
from the folder named by TRIMTAB_CORPUS and left out without it. A file, a generated document or a
conversation is on one side only, by the SHA-256 of its name: even trains, odd is held out.
"""

from __future__ import annotations

import base64
import gettext
import gzip
import hashlib
import json
import os
import random
import sys
import sysconfig
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

Side = Literal["training", "held out"]
CHUNK = 3_000

TRANSLATIONS = ("/usr/share/locale", "/usr/share/vim", "/usr/share/locale-langpack")
TESTED_ONLY = frozenset({"sql", "yaml", "git log", "hex dump", "emoji chat", "html"})
"""Kinds that never train: what the estimator does on text it has not seen the like of."""


def side_of(name: str) -> Side:
    return "held out" if hashlib.sha256(name.encode()).digest()[-1] % 2 else "training"


def conversations(side: Side) -> Iterator[dict[str, Any]]:
    """Recorded conversations, those that share tool-call ids on the side of the first of them."""
    folder = os.environ.get("TRIMTAB_CORPUS")
    if not folder:
        return
    owner: dict[str, str] = {}
    for path in sorted(Path(folder).glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                one = json.loads(line)
                ids = [c["id"] for m in one["messages"] for c in m.get("tool_calls") or ()]
                name = next((owner[i] for i in ids if i in owner), one["id"])
                # Benchmarks of scripted tasks count their call ids from nought in every run.
                if "entire" in one["id"] or "claude" in one["id"] or "codex" in one["id"]:
                    owner.update(dict.fromkeys(ids, name))
                if side_of(name) == side:
                    yield one


def texts_of(message: dict[str, Any]) -> Iterator[str]:
    """Every text of a chat-completions message, as one part each."""
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = "\n".join(part.get("text") or "" for part in content)
    if content:
        yield content
    for call in message.get("tool_calls") or ():
        yield f"{call['function']['name']}\n{call['id']}\n{call['function']['arguments']}"


def documents(side: Side, each: int = 120_000) -> Iterator[tuple[str, str]]:
    """(kind, text of about 3,000 characters); at most `each` characters of a kind."""
    for kind, source in (INSTALLED | GENERATED).items():
        if kind in TESTED_ONLY and side == "training":
            continue
        left = each
        for name, text in source():
            if left <= 0:
                break
            if kind not in TESTED_ONLY and side_of(name) != side:
                continue
            for start in range(0, min(len(text), 4 * CHUNK, left), CHUNK):
                chunk = text[start : start + CHUNK]
                yield kind, chunk
                left -= len(chunk)


def _files(folder: Path, pattern: str) -> Iterator[tuple[str, str]]:
    paths = sorted(folder.rglob(pattern))
    random.Random(7).shuffle(paths)  # noqa: S311 - a fixed order, no secret
    for path in paths:
        try:
            yield path.name, path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue


def _standard_library(pattern: str) -> Callable[[], Iterator[tuple[str, str]]]:
    return lambda: _files(Path(sysconfig.get_path("stdlib")), pattern)


def _headers() -> Iterator[tuple[str, str]]:
    return _files(Path(sysconfig.get_path("include")), "*.h")


def _readmes() -> Iterator[tuple[str, str]]:
    return _files(Path(sysconfig.get_path("purelib")), "METADATA")


def _json_files() -> Iterator[tuple[str, str]]:
    return _files(Path(sysconfig.get_path("purelib")), "*.json")


def translations(*languages: str) -> Callable[[], Iterator[tuple[str, str]]]:
    """What programs on this machine say in other languages."""

    def source() -> Iterator[tuple[str, str]]:
        roots = [Path(root) for root in TRANSLATIONS]
        roots.append(Path(sysconfig.get_path("purelib")))
        for root in roots:
            for path in sorted(root.rglob("*.mo")):
                if not any(part.split(".")[0] in languages for part in path.parts):
                    continue
                try:
                    with path.open("rb") as file:
                        catalog = vars(gettext.GNUTranslations(file))["_catalog"]
                except (OSError, IndexError, ValueError):
                    continue
                texts = sorted(text for text in catalog.values() if isinstance(text, str))
                for start in range(0, len(texts), 60):
                    yield f"{path.name}{start}", "\n".join(texts[start : start + 60])

    return source


def _generated(write: Callable[[random.Random], str]) -> Callable[[], Iterator[tuple[str, str]]]:
    def source() -> Iterator[tuple[str, str]]:
        for number in range(800):
            name = f"{write.__name__} no. {number}"
            yield name, write(random.Random(name))  # noqa: S311 - the same text on every run

    return source


WORDS = (
    "request session worker cache index token window buffer tenant invoice shipment payment order"
    " user account region cluster replica shard queue event handler timeout retry connection"
    " database schema migration column record customer product price amount currency status"
).split()


def _lines(dice: random.Random, line: Callable[[random.Random], str]) -> str:
    out: list[str] = []
    while sum(map(len, out)) < CHUNK:
        out.append(line(dice))
    return "\n".join(out)


def log(dice: random.Random) -> str:
    level = ("INFO", "WARN", "ERROR", "DEBUG")
    return _lines(
        dice,
        lambda d: (
            f"2026-{d.randint(1, 12):02}-{d.randint(1, 28):02}T{d.randint(0, 23):02}:"
            f"{d.randint(0, 59):02}:{d.randint(0, 59):02}.{d.randint(0, 999):03}Z "
            f"{d.choice(level)} "
            f"[{d.choice(WORDS)}-{d.randint(1, 64)}] {d.choice(WORDS)}_{d.choice(WORDS)} "
            f"id={d.randbytes(6).hex()} took={d.uniform(0, 900):.2f}ms "
            f"ip=10.{d.randint(0, 255)}.{d.randint(0, 255)}.{d.randint(1, 254)}"
        ),
    )


def base64_text(dice: random.Random) -> str:
    return base64.b64encode(dice.randbytes(CHUNK * 3 // 4)).decode()


def numbers(dice: random.Random) -> str:
    places = dice.randint(0, 6)
    return _lines(
        dice, lambda d: ",".join(f"{d.uniform(-1000, 9000):.{places}f}" for _ in range(6))
    )


def identifiers(dice: random.Random) -> str:
    return _lines(
        dice,
        lambda d: f"{d.choice(WORDS)} {uuid.UUID(int=d.getrandbits(128))} {d.randbytes(20).hex()}",
    )


def tool_calls(dice: random.Random) -> str:
    return _lines(
        dice,
        lambda d: json.dumps(
            {
                "id": f"call_{base64.b32encode(d.randbytes(10)).decode()}",
                "name": f"{d.choice(WORDS)}_{d.choice(WORDS)}",
                "arguments": {
                    f"{d.choice(WORDS)}Id": d.randint(1, 10**6),
                    "file_path": f"/home/user/src/{d.choice(WORDS)}/{d.choice(WORDS)}.py",
                    d.choice(WORDS): [d.choice(WORDS) for _ in range(3)],
                    "enabled": d.random() < 0.5,
                },
            },
            indent=2 if d.random() < 0.3 else None,
        ),
    )


def listing(dice: random.Random) -> str:
    return _lines(
        dice,
        lambda d: (
            f"-rw-r--r-- 1 root staff {d.randint(10, 10**6):>8} Mar {d.randint(1, 28):>2} "
            f"{d.randint(0, 23):02}:{d.randint(0, 59):02} {d.choice(WORDS)}_{d.choice(WORDS)}.go"
        ),
    )


def tables(dice: random.Random) -> str:
    return _lines(
        dice,
        lambda d: "\t".join(
            (d.choice(WORDS), str(d.randint(1, 9999)), d.choice(WORDS), f"{d.random():.3f}")
        ),
    )


def short_tokens(dice: random.Random) -> str:
    """Letters, digits and signs in rows, where nearly every byte is a token."""
    alphabets = ("etaoinshrdlu", "bjkqvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789")
    alphabet = dice.choice((*alphabets, "+-*/=<>()[]{}|&", "ABCDEFabcdef012", "éàüößñçø"))
    mark = dice.choice((" ", ",", ", ", ".", "\n", "\t", "_", "|", "; ", "-"))
    longest = dice.randint(1, 4)
    words = ("".join(dice.choices(alphabet, k=dice.randint(1, longest))) for _ in range(200))
    return mark.join(words)


def sql(dice: random.Random) -> str:
    return _lines(
        dice,
        lambda d: (
            f"SELECT {d.choice(WORDS)}_id, COUNT(*) FROM {d.choice(WORDS)}s WHERE "
            f"{d.choice(WORDS)}_at > '2026-0{d.randint(1, 9)}-1{d.randint(0, 9)}' AND "
            f"{d.choice(WORDS)} IN ({d.randint(1, 999)}, {d.randint(1, 999)}) GROUP BY 1 LIMIT 50;"
        ),
    )


def yaml(dice: random.Random) -> str:
    return _lines(
        dice,
        lambda d: (
            f"  {d.choice(WORDS)}:\n    {d.choice(WORDS)}-{d.choice(WORDS)}: {d.randint(0, 500)}\n"
            f"    image: registry.local/{d.choice(WORDS)}:v{d.randint(0, 9)}.{d.randint(0, 30)}"
        ),
    )


def git_log(dice: random.Random) -> str:
    return _lines(
        dice,
        lambda d: (
            f"{d.randbytes(4).hex()[:7]} Fix {d.choice(WORDS)} {d.choice(WORDS)} in the "
            f"{d.choice(WORDS)} handler (#{d.randint(1, 9999)})"
        ),
    )


def hex_dump(dice: random.Random) -> str:
    return _lines(dice, lambda d: f"{d.getrandbits(24):08x}: {d.randbytes(16).hex(' ', 2)}")


def emoji_chat(dice: random.Random) -> str:
    faces = "😀😂👍🎉🔥🚀✅❌⚠️💡🙏📦"
    return _lines(
        dice,
        lambda d: f"{d.choice(faces)} the {d.choice(WORDS)} is done, now the {d.choice(WORDS)}!",
    )


def html(dice: random.Random) -> str:
    return _lines(
        dice,
        lambda d: (
            f'<li class="{d.choice(WORDS)}-item"><a href="/{d.choice(WORDS)}/{d.randint(1, 999)}">'
            f"{d.choice(WORDS).title()} &amp; {d.choice(WORDS)}</a></li>"
        ),
    )


INSTALLED: dict[str, Callable[[], Iterator[tuple[str, str]]]] = {
    "python": _standard_library("*.py"),
    "prose and text": _standard_library("*.txt"),
    "c headers": _headers,
    "readmes": _readmes,
    "json files": _json_files,
    "western languages": translations("de", "fr", "es", "it", "nl", "sv", "pt", "pt_BR"),
    "eastern european": translations("pl", "cs", "sk", "hu", "fi", "tr", "vi", "ro"),
    "cyrillic and greek": translations("ru", "uk", "bg", "sr", "el"),
    "chinese": translations("zh_CN", "zh_TW", "zh"),
    "japanese": translations("ja"),
    "korean": translations("ko"),
    "right to left": translations("ar", "he", "fa"),
    "indic and thai": translations("hi", "bn", "ta", "th", "te"),
}
GENERATED = {
    write.__name__.replace("_", " "): _generated(write)
    for write in (
        log,
        base64_text,
        numbers,
        identifiers,
        tool_calls,
        listing,
        tables,
        short_tokens,
        sql,
        yaml,
        git_log,
        hex_dump,
        emoji_chat,
        html,
    )
}

if __name__ == "__main__":
    counts: dict[str, int] = {}
    for kind, text in documents("training"):
        counts[kind] = counts.get(kind, 0) + len(text)
    sys.stdout.write(json.dumps(counts, indent=1) + "\n")
