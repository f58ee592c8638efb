// The extension for pi in a host that calls its handlers as pi does, with the real sidecar.
import assert from "node:assert/strict"
import { test } from "node:test"
import trimtab, { repeatLast } from "../../plugins/pi/index.js"

const text = (number) => Array.from({ length: 150 }, (_, at) => `line ${number}.${at} name_${number}_${at}`).join("\n")

async function host({ api = "anthropic-messages" } = {}) {
  const handlers = {}
  const tools = {}
  const context = {
    model: { api, contextWindow: 24_000 },
    sessionManager: { getSessionId: () => "session-1" },
  }
  await trimtab({
    on: (name, handler) => (handlers[name] = handler),
    registerTool: (tool) => (tools[tool.name] = tool),
  })
  return { handlers, tools, context }
}

function body(steps) {
  const messages = [{ role: "user", content: "Read all files." }]
  for (let at = 0; at < steps; at++) {
    const id = `toolu_${at}`
    messages.push({ role: "assistant", content: [{ type: "tool_use", id, name: "read", input: { path: `/f${at}` } }] })
    messages.push({ role: "user", content: [{ type: "tool_result", tool_use_id: id, content: text(at) }] })
  }
  messages.at(-1).content = [].concat(messages.at(-1).content).map((block) =>
    typeof block === "string" ? { type: "text", text: block } : block,
  )
  messages.at(-1).content.at(-1).cache_control = { type: "ephemeral" }
  const tools = ["read", "recall"].map((name) => ({ name, description: name, input_schema: { type: "object" } }))
  return { model: "claude-sonnet-4-5", max_tokens: 4_000, stream: true, system: "Be careful.", tools, messages }
}

test("a long session fits, and what is hidden comes back byte for byte", async () => {
  const { handlers, tools, context } = await host()
  let sent
  for (let steps = 0; steps <= 20; steps++) {
    const payload = body(steps)
    const before = JSON.stringify(payload)
    sent = (await handlers.before_provider_request({ payload }, context)) ?? payload
    assert.equal(JSON.stringify(payload), before)
    const usage = { input: 100, output: 20, cacheRead: 0, cacheWrite: 0 }
    await handlers.message_end({ message: { role: "assistant", usage, stopReason: "toolUse" } }, context)
  }
  const share = JSON.stringify(sent).length / JSON.stringify(body(20)).length
  assert.ok(share < 0.8, `${share} of the history is sent`)
  assert.equal(sent.stream, true)
  const handle = /recall (m\d+\.\d+)/.exec(JSON.stringify(sent.messages))[1]
  const { content } = await tools.recall.execute("id", { handle }, undefined, undefined, context)
  assert.ok(body(20).messages.some((each) => each.content?.[0]?.content === content[0].text))
  assert.deepEqual(handlers.session_before_compact({ reason: "threshold" }, context), { cancel: true })
  assert.equal(handlers.session_before_compact({ reason: "manual" }, context), undefined)
  await handlers.agent_end({}, context)
  handlers.session_shutdown({ reason: "quit" })
})

test("a format that the sidecar does not know passes", async () => {
  const { handlers, context } = await host({ api: "google-generative-ai" })
  assert.equal(await handlers.before_provider_request({ payload: { contents: [] } }, context), undefined)
  assert.equal(handlers.session_before_compact({ reason: "threshold" }, context), undefined)
})

test("without an answer the last request goes on growing", () => {
  const given = body(2).messages
  const sent = structuredClone(given)
  sent[2].content[0].content = "[masked]"
  sent[2].content[0].cache_control = { type: "ephemeral" }
  const next = body(3)
  const repeated = repeatLast({ given, sent }, next, "messages")
  assert.equal(repeated.messages.length, 7)
  assert.equal(repeated.messages[2].content[0].content, "[masked]")
  assert.equal(JSON.stringify(repeated.messages).split("cache_control").length, 2)
  assert.equal(repeated.system, "Be careful.")
})

test("a changed history is sent as it is", () => {
  const given = body(2).messages
  const sent = structuredClone(given)
  sent[2].content[0].content = "[masked]"
  const changed = body(3)
  changed.messages[1].content[0].input.path = "/other"
  assert.equal(repeatLast({ given, sent }, changed, "messages"), undefined)
  assert.equal(repeatLast({ given, sent }, body(1), "messages"), undefined)
  assert.equal(repeatLast({ given, sent: given }, body(3), "messages"), undefined)
  assert.equal(repeatLast(undefined, body(3), "messages"), undefined)
})
