"""One conversation of 20 turns in a window of 16,000 tokens, with each of the SDK's own means:

python -m tests.integrations.openai_agents.means
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any

from agents import ModelSettings, SessionSettings
from agents.extensions.tool_output_trimmer import ToolOutputTrimmer
from openai import BadRequestError

from tests.integrations.openai_agents.simulation import make_agent, make_session, simulate
from trimtab.integrations.openai_agents import TrimtabModel

TURNS = 20
MEANS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "SessionSettings(limit=40)": {"session_settings": SessionSettings(limit=40)},
    "SessionSettings(limit=24)": {"session_settings": SessionSettings(limit=24)},
    "ToolOutputTrimmer()": {"call_model_input_filter": ToolOutputTrimmer()},
    'truncation="auto"': {"model_settings": ModelSettings(truncation="auto")},
    "TrimtabModel": {},
}


async def measure(name: str, config: dict[str, Any]) -> str:
    async with simulate() as simulation:
        model = simulation.make_model()
        if name == "TrimtabModel":
            model = TrimtabModel(model, context_window=16_000)
        agent, session, turn = make_agent(model), make_session(), 0
        try:
            for turn in range(TURNS):
                await simulation.run_turns(agent, session, range(turn, turn + 1), **config)
        except BadRequestError as error:
            return f"{name}: stops in turn {turn + 1}: {str(error)[:90]}"
        sent = json.dumps(simulation.requests[-1].body)
        words = sum(f"rule-{turn}-keep" in sent for turn in range(TURNS))
        calls, breaks = len(simulation.requests), simulation.count_prefix_breaks()
        ratio = simulation.compute_cache_read_ratio()
        return f"{name}: {calls} calls, {breaks} breaks, cache read {ratio:.3f}, words {words}"


def main() -> None:
    logging.disable()
    for name, config in MEANS.items():
        sys.stdout.write(f"{asyncio.run(measure(name, config))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
