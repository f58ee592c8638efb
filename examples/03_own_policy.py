"""A policy of your own is one function: it sees the window and the budget, and returns a decision.

This one hides every tool result but the newest. What it hides stays in the log.

Needs: pip install trimtab
"""

from trimtab import Context
from trimtab.policies import Budget, Decision, Plan, WindowView


def keep_only_the_newest_result(window: WindowView, budget: Budget) -> Decision:
    """Mask each result but the last one."""
    plan = Plan(window, budget)
    for result in list(window.results.values())[:-1]:
        plan.mask(result.entry, result.part, reason="not the newest")
    return plan.to_decision()


context = Context(model="claude-sonnet-5-5", policy=keep_only_the_newest_result)
context.add({"role": "user", "content": "Read the three files."})
for number in range(3):
    call = {"type": "tool_use", "id": f"call_{number}", "name": "read", "input": {"file": number}}
    context.add({"role": "assistant", "content": [call]})
    text = f"line of file {number}\n" * 200
    result = {"type": "tool_result", "tool_use_id": f"call_{number}", "content": text}
    context.add({"role": "user", "content": [result]})

sent = [str(message["content"]) for message in context.request()["messages"]]
results = [content for content in sent if "tool_result" in content]
for content in results:
    print(content[:160])
hidden = sum("masked" in content for content in results)
print(f"{hidden} of {len(results)} results are hidden")
