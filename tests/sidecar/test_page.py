"""The programs of `docs/sidecar.md` run as they stand there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sidecar.calls import chat

PAGE = Path(__file__).parents[2] / "docs" / "sidecar.md"
NODE, GO = shutil.which("node") or "", shutil.which("go") or ""
TURNS = 160
"""Enough for the window of the page's model."""

NODE_PROGRAM = """
import { readFileSync } from "node:fs";
const { messages } = JSON.parse(readFileSync(process.argv[2]));
const tools = [], sent = [], usage = { prompt_tokens: 7, completion_tokens: 1 };
const callTheModel = async (body) => (sent.push(body), { usage });
%s
%s
console.log(JSON.stringify({ sent: sent[0], totals: await ask("totals", {}) }));
sidecar.stdin.end();
"""
GO_PROGRAM = """package main
import ("bufio"; "encoding/json"; "fmt"; "io"; "os"; "os/exec"; "sync"; "time")
%s
func main() {
	text, _ := os.ReadFile(os.Args[1])
	var given map[string]json.RawMessage
	json.Unmarshal(text, &given)
	messages, tools, sidecar := given["messages"], []any{}, StartSidecar()
	var sent []byte
	callTheModel := func(body []byte) []byte {
		sent = body
		return []byte(`{"usage": {"prompt_tokens": 7, "completion_tokens": 1}}`)
	}
%s
	totals := sidecar.Ask("totals", map[string]any{})
	out, _ := json.Marshal(map[string]any{"sent": json.RawMessage(sent), "totals": totals})
	fmt.Println(string(out))
	sidecar.calls.Close()
}
"""


@pytest.mark.process
@pytest.mark.parametrize("is_installed", [True, False])
@pytest.mark.parametrize(
    ("language", "program", "command"),
    [
        pytest.param("js", NODE_PROGRAM, [NODE], marks=pytest.mark.skipif(not NODE, reason="Node")),
        pytest.param("go", GO_PROGRAM, [GO, "run"], marks=pytest.mark.skipif(not GO, reason="Go")),
    ],
)
def test_an_agent_sends_what_the_sidecar_says_or_its_own_body_without_it(
    language: str, program: str, command: list[str], is_installed: bool, tmp_path: Path
):
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    agent = tmp_path / f"agent.{'mjs' if language == 'js' else language}"
    agent.write_text(program % tuple(blocks))
    given = chat(TURNS)
    (tmp_path / "given.json").write_text(json.dumps(given))
    folders = [str(Path(sys.executable).parent)] if is_installed else []
    environ = {**os.environ, "PATH": os.pathsep.join([*folders, "/usr/bin", "/bin"])}
    words = [*command, str(agent), str(tmp_path / "given.json")]
    ended = subprocess.run(words, env=environ, stdout=subprocess.PIPE, timeout=300, check=True)
    told = json.loads(ended.stdout)
    sent, own = ([each["content"] for each in body["messages"]] for body in (told["sent"], given))
    assert (len(sent), sent != own) == (len(own), is_installed)
    assert ((told["totals"] or {}).get("input") == 7) == is_installed
