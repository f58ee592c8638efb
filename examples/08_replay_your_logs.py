"""Replay recorded conversations under a policy, and compare it with sending everything.

The recording here is made on the spot. `read_recordings` also reads the logs of Claude Code and
other tools; `trimtab replay FOLDER` does this on the command line for what each client can be told.

Needs: pip install trimtab
"""

import tempfile
from pathlib import Path

from trimtab import Context
from trimtab.replay import (
    ReplaySetup,
    compute_savings,
    get_provider_pricing,
    read_recordings,
    replay_all,
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
    conversations = list(read_recordings(recording))

setups = [
    ReplaySetup(name="everything", options={"policy": "everything"}),
    ReplaySetup(
        name="tight", options={"policy": "layered", "limits": {"max_history_tokens": 8_000}}
    ),
]
pricing = get_provider_pricing(MODEL)
runs = replay_all(conversations, setups, {pricing.name: pricing.rules}, jobs=1)
(tight,) = compute_savings(runs, pricing)["tight"].values()
everything_tokens, tight_tokens = (sum(call.tokens for call in run.calls) for run in runs)
print(f"tokens sent: everything {everything_tokens:,}, tight {tight_tokens:,}")
costs_more = tight_tokens < everything_tokens and tight.saved < 0
# It breaks the cache, and reads hidden texts again.
print(f"the tight policy sends fewer, and costs more: {costs_more}")
