"""Replay recorded conversations under other policies, and compare what each would have cost.

The recording here is made on the spot. `read_recordings` also reads the logs of Claude Code and
other tools; `trimtab replay FOLDER` does all of this on the command line.

Needs: pip install trimtab
"""

import tempfile
from pathlib import Path

from trimtab import Context
from trimtab.replay import (
    ReplaySetup,
    build_study,
    list_billed_providers,
    read_recordings,
    replay_all,
    select_conversations,
)

MODEL = "claude-sonnet-4-5"

context = Context(model=MODEL, system="You are a careful engineer.")
for number in range(12):
    context.add({"role": "user", "content": f"What is in src/module_{number}.py?"})
    context.request()
    call = {"type": "tool_use", "id": f"call_{number}", "name": "read", "input": {"n": number}}
    context.add({"role": "assistant", "content": [call]})
    text = f"def helper_{number}(): ...\n" * 400
    result = {"type": "tool_result", "tool_use_id": f"call_{number}", "content": text}
    context.add({"role": "user", "content": [result]})

with tempfile.TemporaryDirectory() as folder:
    recording = Path(folder, "events.jsonl")
    recording.write_text("\n".join(context.dump()), encoding="utf-8")
    conversations = select_conversations(read_recordings(recording), min_calls=10)

setups = [
    ReplaySetup(name="everything", options={"policy": "everything"}),
    ReplaySetup(
        name="tight", options={"policy": "layered", "limits": {"max_history_tokens": 8_000}}
    ),
]
providers = list_billed_providers(MODEL)
rules = {provider.name: provider.rules for provider in providers}
runs = replay_all(conversations, setups, rules, jobs=1)
everything, tight = build_study(conversations, setups, runs, providers).rows
print(f"tokens per call: everything {everything.tokens:.0f}, tight {tight.tokens:.0f}")
print(f"the tight policy sends fewer tokens: {tight.tokens < everything.tokens}")
