"""An agent as one file, `agent.yaml`, run from Python instead of by `trimtab chat`.

Needs: pip install 'trimtab[agent,anthropic,testing]'
"""

import asyncio
import tempfile
from pathlib import Path

from trimtab.testing import serve_simulated_provider
from trimtab_serve import load_agent_spec, open_agent

AGENT = """\
name: helper
system: You help on a boat. Be brief.
model: {name: claude-sonnet-5-5, base_url: "%s", api_key: none}
tools:
  depth:
    kind: python
    function: tools.py:depth
    permission: allow
"""
TOOLS = '''\
def depth(place: str) -> str:
    """The depth of the water at a place."""
    return f"4.2 m at {place}"
'''


async def main(folder: Path) -> None:
    """Write the two files, open the agent and ask it."""
    with serve_simulated_provider() as server:
        call = {"name": "depth", "arguments": {"place": "the pier"}}
        server.simulator.script.set_replies([{"calls": [call]}, "Deep enough: 4.2 m."])
        (folder / "agent.yaml").write_text(AGENT % server.url, encoding="utf-8")
        (folder / "tools.py").write_text(TOOLS, encoding="utf-8")
        spec = load_agent_spec(folder / "agent.yaml")
        async with open_agent(spec, folder) as agent:
            session = await agent.open_session("first")
            message = {"role": "user", "content": "Is it deep enough at the pier?"}
            finished = await agent.run_turn(session, message)
            print(session.report())
            await session.close()
    print(finished.text, f"({finished.calls} model calls)")


with tempfile.TemporaryDirectory() as made:
    asyncio.run(main(Path(made)))
