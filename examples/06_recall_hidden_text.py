"""What a policy hides is not lost: a handle brings it back, byte for byte.

Needs: pip install trimtab
"""

from trimtab import Context

REPORT = "".join(f"reading {number}: {number * 7 % 13} bar\n" for number in range(3_000))

context = Context(
    model="claude-sonnet-5-5",
    policy="layered",
    recall=True,
    limits={"max_tool_result_tokens": 1_000},
)
context.add({"role": "user", "content": "Read the pressure report."})
call = {"type": "tool_use", "id": "call_1", "name": "read_report", "input": {"page": 1}}
context.add({"role": "assistant", "content": [call]})
result = {"type": "tool_result", "tool_use_id": "call_1", "content": REPORT}
position = context.add({"role": "user", "content": [result]})

request = context.request()
sent = str(request["messages"][-1]["content"])
print("sent:", len(sent), "of", len(REPORT), "characters")
print("tools for the model:", ", ".join(each["name"] for each in request["tools"]))

handle = f"{position}.0"
print("the model reads:", sent[-120:])
assert context.recall(handle) == REPORT
print(f"recall {handle} returns all {len(REPORT)} characters")
