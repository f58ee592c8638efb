"""Three lines around a call of Anthropic's SDK: `add`, `request`, `add`.

A simulated provider answers, so the program needs no key. For the real one, leave out the `with`
block and make the client with `anthropic.Anthropic()`.

Needs: pip install 'trimtab[anthropic,testing]'
"""

import anthropic

from trimtab import Context
from trimtab.testing import serve_simulated_provider

with serve_simulated_provider() as server:
    server.simulator.script.set_replies(["It steers the rudder, and the rudder steers the ship."])
    client = anthropic.Anthropic(base_url=server.url, api_key="any")
    context = Context(model="claude-sonnet-5-5", system="You are a careful engineer.")

    context.add({"role": "user", "content": "What does a trim tab do?"})
    reply = client.messages.create(**context.request())
    context.add(reply)

print(context.report())
print(*(block.text for block in reply.content if block.type == "text"))
