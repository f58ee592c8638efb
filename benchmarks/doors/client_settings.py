"""What `trimtab replay` prints, in the real clients: `python -m benchmarks.doors.client_settings`.

Claude Code and Codex, in fixed versions and without a person, read files against a simulated
provider with a window of 200,000 tokens: as they are, and with a line of replay.

claude_compacts_at  tokens of the largest prompt before Claude Code compacts, with `/autocompact
                    100k`; `claude_largest` without. Replay assumes 33,000 below the window
codex_compacts_at   the same for `model_auto_compact_token_limit`, and `codex_largest` without
codex_output_chars  characters of an output with `tool_output_token_limit = 1000`, and without

`python -m benchmarks.doors.installed` installs the clients.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.doors import claude_hook
from benchmarks.doors.installed import folder
from trimtab.replay.advice import CLAUDE_COMPACTS_BELOW
from trimtab.testing.server.local_server import RemoteSimulator, spawn_simulated_provider

CODEX_VERSION = "codex-cli 0.169.0"
WINDOW_TOKENS = 200_000
FILES = 18
CLAUDE_WINDOW, CODEX_LIMIT, OUTPUT_TOKENS = 100_000, 40_000, 1_000
TOLERANCE_TOKENS = 8_000
"""A client compacts after the call that reaches its limit, and a file has 5,000 tokens."""
TIME_LIMIT_S = 300


def find_codex() -> Path | None:
    """The program of Codex in its version; None if it is not installed."""
    packages = folder() / "npm" / "node_modules" / "@openai"
    program = next(packages.glob("codex-*/vendor/*/bin/codex"), None)
    if program is None:
        return None
    answer = subprocess.run(  # noqa: S603 - the client
        [program, "--version"], capture_output=True, text=True, check=False
    )
    return program if answer.stdout.strip() == CODEX_VERSION else None


def run_claude(program: Path, *commands: str) -> list[int]:
    """Return the input tokens of each call, after the commands were typed."""
    with (
        tempfile.TemporaryDirectory(prefix="claude-", ignore_cleanup_errors=True) as home,
        spawn_simulated_provider(window=WINDOW_TOKENS) as simulator,
    ):
        client = claude_hook.Client(program=program, home=Path(home), url=simulator.url)
        client.work.mkdir()
        for command in commands:
            client.ask(command)
        files = [claude_hook.write_file(client.work, number + 1) for number in range(FILES)]
        steps = [
            {"calls": [{"name": "Read", "arguments": {"file_path": str(path)}}]} for path in files
        ]
        summary = {"text": "<summary>Read.</summary>"}
        simulator.set_replies([*steps, {"text": "Read."}], otherwise=summary)
        client.ask("Read all files.")
        return [sum(claude_hook.count_input(usage)) for usage in _list_usage(simulator)]


def run_codex(program: Path, config: str) -> tuple[list[int], int]:
    """Return the input tokens of each call, and the characters of its first output."""
    with (
        tempfile.TemporaryDirectory(prefix="codex-", ignore_cleanup_errors=True) as name,
        spawn_simulated_provider(window=WINDOW_TOKENS) as simulator,
    ):
        home = Path(name)
        (home / "config.toml").write_text(config)
        text = "\n".join(f"value_{number} = {number * 37}" for number in range(1_800))
        (home / "file.txt").write_text(text)
        arguments = {"cmd": "cat file.txt", "max_output_tokens": 20_000}
        steps = [{"calls": [{"name": "exec_command", "arguments": arguments}]}] * FILES
        simulator.set_replies([*steps, {"text": "Read."}], otherwise={"text": "Done."})
        provider = (
            f'model_providers.sim={{name="sim",base_url="{simulator.url}/v1",'
            'wire_api="responses",env_key="OPENAI_API_KEY"}'
        )
        options = ["-c", "model_provider=sim", "-c", provider, "-m", "gpt-5.4"]
        flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json"]
        subprocess.run(  # noqa: S603 - the client
            [program, "exec", *flags, *options, "Read the file."],
            cwd=home,
            env={
                "PATH": os.environ["PATH"],
                "HOME": name,
                "CODEX_HOME": name,
                "OPENAI_API_KEY": "simulated",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIME_LIMIT_S,
            check=False,
        )
        outputs = [
            len(json.dumps(item["output"]))
            for request in simulator.list_requests()
            for item in request["body"].get("input", ())
            if item.get("type") == "function_call_output"
        ]
        sizes = [usage["input_tokens"] for usage in _list_usage(simulator)]
        return sizes, outputs[0] if outputs else 0


def _list_usage(simulator: RemoteSimulator) -> list[dict[str, Any]]:
    requests = simulator.list_requests()
    return [request["reply"]["usage"] for request in requests if request["fate"] == "answered"]


def find_compaction(sizes: Sequence[int]) -> int | None:
    """Return the tokens of the prompt after which the first much smaller one comes."""
    return next((before for before, size in pairwise(sizes) if size < 0.8 * before), None)


def measure() -> dict[str, Any]:
    """The figures. `broken` lists what did not hold."""
    claude, codex = claude_hook.find_client(), find_codex()
    if claude is None or codex is None:
        return {
            "skipped": f"Claude Code {claude_hook.VERSION} or {CODEX_VERSION} is not installed: "
            "python -m benchmarks.doors.installed"
        }
    told = run_claude(claude, f"/autocompact {CLAUDE_WINDOW // 1_000}k")
    plain_codex, plain_chars = run_codex(codex, "")
    compacted, _ = run_codex(codex, f"model_auto_compact_token_limit = {CODEX_LIMIT}\n")
    _, cut_chars = run_codex(codex, f"tool_output_token_limit = {OUTPUT_TOKENS}\n")
    bare = run_claude(claude)
    figures: dict[str, Any] = {
        "claude_compacts_at": find_compaction(told),
        "claude_largest": max(bare),
        "codex_compacts_at": find_compaction(compacted),
        "codex_largest": max(plain_codex),
        "codex_output_chars": [cut_chars, plain_chars],
    }
    expected = {
        "claude_compacts_at": CLAUDE_WINDOW - CLAUDE_COMPACTS_BELOW,
        "codex_compacts_at": CODEX_LIMIT,
    }
    figures["broken"] = [
        f"{name} is {figures[name]}, and replay assumes {tokens}"
        for name, tokens in expected.items()
        if abs((figures[name] or 0) - tokens) > TOLERANCE_TOKENS
    ]
    if find_compaction(bare) or find_compaction(plain_codex):
        figures["broken"].append("a client compacts without the line as well")
    if not 0 < cut_chars < plain_chars:
        figures["broken"].append("an output has the same size with the line and without")
    return figures


if __name__ == "__main__":
    sys.exit(harness.run(__doc__, lambda _: measure()))
