"""One virtual environment for each peer, outside the repository, so that no peer's requirements
push another's aside: `python benchmarks/peers/envs.py` makes those that are missing.

They stand in the directory named by TRIMTAB_PEERS, else in the user's cache directory.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "TRIMTAB_PEERS"
LISTING = (
    "import importlib.metadata as m, json;"
    "print(json.dumps({d.metadata['Name'].lower(): d.version for d in m.distributions()}))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    name: str
    """Of its environment."""
    pins: tuple[str, ...]
    """What is installed, by name and version; what these need follows."""
    python: tuple[int, int] = (3, 11)
    """The oldest Python it runs on."""
    variables: tuple[tuple[str, str], ...] = ()
    """Environment variables that it is built with."""

    @property
    def package(self) -> str:
        """The one whose version tables show."""
        return self.pins[0].split("==")[0]


PEERS = (
    Peer(name="langchain", pins=("langchain==1.4.7", "langchain-core==1.7.2")),
    Peer(name="pydantic_ai", pins=("pydantic-ai-harness==0.62.0",)),
    Peer(name="lovia", pins=("lovia==0.9.119",)),
    Peer(name="headroom", pins=("headroom-ai==0.42.0",)),
    Peer(name="openhands", pins=("openhands-sdk==1.58.0",), python=(3, 12)),
)


class Absent(Exception):
    """An environment that is not there, and why."""


def home() -> Path:
    named = os.environ.get(VARIABLE)
    cache = os.environ.get("XDG_CACHE_HOME")
    return Path(named) if named else (Path(cache) if cache else Path.home() / ".cache") / "trimtab"


def path_of(peer: Peer) -> Path:
    """Where its environment stands: another pin is another directory."""
    pins = hashlib.sha256(" ".join(peer.pins).encode()).hexdigest()[:8]
    return home() / "peers" / f"{peer.name}-{pins}"


def interpreter(peer: Peer) -> Path:
    """The Python of a finished environment."""
    where = path_of(peer)
    if not (where / "versions.json").exists():
        raise Absent(f"no environment; make it with: python benchmarks/peers/envs.py {peer.name}")
    return where / "bin" / "python"


def versions(peer: Peer) -> dict[str, str]:
    """Everything that is installed beside the peer, as recorded when it was made."""
    return json.loads((path_of(peer) / "versions.json").read_text(encoding="utf-8"))


def make(peer: Peer) -> None:
    """Create and fill an environment; one that was broken off is made again."""
    where, python = path_of(peer), _python(peer.python)
    if (where / "versions.json").exists():
        return
    shutil.rmtree(where, ignore_errors=True)
    where.parent.mkdir(parents=True, exist_ok=True)
    run([python, "-m", "venv", str(where)])
    inside = str(where / "bin" / "python")
    quiet = ["--disable-pip-version-check", "--quiet"]
    run([inside, "-m", "pip", "install", *quiet, *peer.pins], dict(peer.variables))
    # Written last: its presence says that all of it is there.
    listed = run([inside, "-c", LISTING])
    (where / "versions.json").write_text(listed, encoding="utf-8")


def _python(least: tuple[int, int]) -> str:
    """An interpreter that is new enough: this one, one on the path, or one of pyenv's."""
    if sys.version_info >= least:
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in range(least[1], least[1] + 4):
        name = f"python{least[0]}.{minor}"
        found = [shutil.which(name), *sorted(pyenv.glob(f"{least[0]}.{minor}.*/bin/python"))]
        for path in found:
            if path and _works(str(path)):
                return str(path)
    raise Absent(f"needs Python {least[0]}.{least[1]} or newer, and none was found")


def _works(python: str) -> bool:
    """A shim may stand on the path for a version that is not chosen."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0  # noqa: S603 - an interpreter


def run(command: list[str], variables: Mapping[str, str] | None = None) -> str:
    environ = {**os.environ, **(variables or {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)  # noqa: S603 - our own
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Absent(f"could not be installed: {last}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="which peers; all where none is named")
    names = parser.parse_args().names
    for peer in PEERS:
        if names and peer.name not in names:
            continue
        try:
            make(peer)
        except Absent as absent:
            print(f"{peer.name}: {absent}")
            continue
        print(f"{peer.name}: {peer.package} {versions(peer)[peer.package]}")


if __name__ == "__main__":
    main()
