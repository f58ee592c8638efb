"""The same with OpenAI's SDK: the dialect follows from the model's name.

The conversation is longer than the simulated window of 16,000 tokens, and every request still fits.

Needs: pip install 'trimtab[openai,testing]'
"""

import openai

from trimtab import Context
from trimtab.testing import serve_simulated_provider

LOG = "12:00:01 GET /health 200 in 3 ms\n" * 300

with serve_simulated_provider(window=16_000) as server:
    server.simulator.script.set_replies([], otherwise="Nothing unusual in that log.")
    client = openai.OpenAI(base_url=server.openai_url, api_key="any")
    context = Context(model="gpt-4o", system="Be brief.", context_window=16_000)

    for number in range(10):
        context.add({"role": "user", "content": f"Is anything wrong in log {number}?\n{LOG}"})
        reply = client.chat.completions.create(**context.request())
        context.add(reply)

report = context.report()
print(report)
assert report.used <= report.limit
print("10 calls, 0 refused")
