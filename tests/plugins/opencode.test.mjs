// The plugin for opencode in a host that calls its hooks as opencode does, with the real sidecar.
import assert from "node:assert/strict"
import { test } from "node:test"
import { Trimtab } from "../../plugins/opencode/index.js"
import { fromSent, toList } from "../../plugins/opencode/messages.js"

const SESSION = "ses_1"
const model = { providerID: "anthropic", modelID: "claude-sonnet-4-5" }
const text = (number) => Array.from({ length: 150 }, (_, at) => `line ${number}.${at} name_${number}_${at}`).join("\n")

function user(id, said) {
  return { info: { id, role: "user", sessionID: SESSION, model }, parts: [{ id: `${id}p`, type: "text", text: said }] }
}

function step(number) {
  const state = { status: "completed", input: { filePath: `/f${number}` }, output: text(number), time: {} }
  const tool = { id: `t${number}`, type: "tool", tool: "read", callID: `call_${number}`, state }
  const tokens = { input: 10, output: 20, reasoning: 0, cache: { read: 0, write: 0 } }
  const info = { id: `m${number}`, role: "assistant", sessionID: SESSION, tokens }
  return { info, parts: [{ type: "step-start" }, { type: "text", text: `Step ${number}.` }, tool, { type: "step-finish" }] }
}

const history = (steps) => [user("u1", "Read all files."), ...Array.from({ length: steps }, (_, at) => step(at))]

function host(context = 24_000) {
  const models = { "claude-sonnet-4-5": { limit: { context, output: 4_000 } } }
  const providers = [{ id: "anthropic", models }]
  return { config: { providers: async () => ({ data: { providers } }) }, tui: { showToast: async () => {} } }
}

async function live(hooks, steps) {
  let sent
  for (let count = 0; count <= steps; count++) {
    for (const name of ["read", "recall"]) {
      const output = { description: name, parameters: {}, jsonSchema: { type: "object", properties: {} } }
      await hooks["tool.definition"]({ toolID: name }, output)
    }
    const output = { messages: history(count) }
    await hooks["experimental.chat.messages.transform"]({}, output)
    await hooks["experimental.chat.system.transform"]({ sessionID: SESSION, model: {} }, { system: ["Be careful."] })
    sent = output.messages
  }
  return sent
}

test("what is not edited is opencode's own object", () => {
  const messages = [...history(3), user("u2", "Thanks."), { info: { id: "e", role: "assistant" }, parts: [] }]
  const { list, places } = toList(messages)
  assert.deepEqual(list.map(({ role }) => role), ["user", ...Array(3).fill(["assistant", "tool"]).flat(), "user"])
  const built = fromSent(messages, places, [{ from: 0, to: list.length }])
  assert.equal(built.length, 5)
  built.forEach((each, at) => assert.equal(each, messages[at]))
})

test("a masked result is another object, and the history is whole", () => {
  const messages = history(2)
  const before = JSON.stringify(messages)
  const { places } = toList(messages)
  const item = { role: "tool", tool_call_id: "call_0", content: "[masked · recall m3.0]" }
  const built = fromSent(messages, places, [{ from: 0, to: 2 }, { at: [2], items: [item] }, { from: 3, to: 5 }])
  assert.equal(built[1].parts[2].state.output, "[masked · recall m3.0]")
  assert.equal(built[2], messages[2])
  assert.equal(JSON.stringify(messages), before)
})

test("a summary stands in the place of what it covers", () => {
  const messages = [...history(2), user("u2", "And now?")]
  const { places } = toList(messages)
  const joined = { role: "user", content: "[Summary of it all]\n\nAnd now?" }
  const built = fromSent(messages, places, [{ at: [5], items: [joined] }])
  assert.deepEqual(built.map(({ info }) => info.id), ["u2"])
  assert.equal(built[0].parts[0].text, "[Summary of it all]\n\nAnd now?")
  const alone = fromSent(messages, places, [{ at: [], items: [{ role: "user", content: "[Summary]" }] }, { from: 5, to: 6 }])
  assert.deepEqual(alone.map(({ parts }) => parts[0].text), ["[Summary]", "And now?"])
  assert.equal(alone[0].info.role, "user")
})

test("of two calls in a message one result may be hidden, and a picture stays beside a shorter text", () => {
  const both = step(0)
  both.parts.splice(3, 0, { ...both.parts[2], id: "t9", callID: "call_9" })
  const asked = user("u1", "Look.")
  asked.parts.push({ type: "file", mime: "image/png", url: "data:image/png;base64,AAAA" })
  const messages = [asked, both]
  const { list, places } = toList(messages)
  assert.equal(list[0].content[1].type, "image_url")
  const shorter = { role: "user", content: [{ type: "text", text: "L…" }, list[0].content[1]] }
  const cut = { role: "tool", tool_call_id: "call_9", content: "cut" }
  const built = fromSent(messages, places, [{ at: [0], items: [shorter] }, { from: 1, to: 3 }, { at: [3], items: [cut] }])
  assert.deepEqual(built[0].parts.map((part) => part.text ?? part.url), ["L…", "data:image/png;base64,AAAA"])
  assert.deepEqual(built[1].parts.slice(2, 4).map((part) => part.state.output), [text(0), "cut"])
})

test("a long session fits, its history is whole, and what is hidden comes back byte for byte", async () => {
  const hooks = await Trimtab({ client: host() })
  const sent = await live(hooks, 20)
  const share = JSON.stringify(sent).length / JSON.stringify(history(20)).length
  assert.ok(share < 0.8, `${share} of the history is sent`)
  const isMarked = (part) => part.metadata?.anthropic?.cacheControl
  const marked = sent.filter(({ parts }) => parts.some(isMarked))
  assert.equal(marked.length, 1) // a fourth mark, on a text whose result is hidden
  assert.match(marked[0].parts.find(({ type }) => type === "tool").state.output, /recall m/)
  const handle = /recall (m\d+\.\d+)/.exec(JSON.stringify(sent))[1]
  const answer = await hooks.tool.recall.execute({ handle, lines: "", grep: "" }, { sessionID: SESSION })
  assert.ok(history(20).some(({ parts }) => parts.some((part) => part.state?.output === answer)))

  // opencode's own summary is made of the whole history
  await hooks["experimental.session.compacting"]({ sessionID: SESSION })
  const whole = { messages: history(20) }
  const before = [...whole.messages]
  await hooks["experimental.chat.messages.transform"]({}, whole)
  whole.messages.forEach((each, at) => assert.equal(each, before[at]))
  assert.equal(whole.messages.length, before.length)

  // without an answer the last messages are sent again, with what is new
  await hooks.dispose()
  const longer = { messages: history(21) }
  await hooks["experimental.chat.messages.transform"]({}, longer)
  assert.deepEqual(longer.messages.slice(0, -1), sent)
  assert.equal(longer.messages.at(-1).info.id, "m20")
})

test("switched off, the plugin has no hook", async () => {
  process.env.TRIMTAB = "off"
  assert.deepEqual(await Trimtab({ client: host() }), {})
  delete process.env.TRIMTAB
})
