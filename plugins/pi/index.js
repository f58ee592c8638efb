// pi asks before each request what to send: a wire body in, a wire body out. pi's own session stays whole.
import { Sidecar } from "./sidecar.js"

const DIALECTS = {
  "anthropic-messages": "anthropic",
  "openai-completions": "openai_chat",
  "openai-responses": "openai_responses",
  "azure-openai-responses": "openai_responses",
  "openai-codex-responses": "openai_responses",
}

export default async function trimtab(pi) {
  if (process.env.TRIMTAB === "off") return
  let notify = (text) => console.error(text)
  const sidecar = new Sidecar(undefined, (text) => notify(text))
  const fitted = new Map() // by conversation: the list that came last, and the one that was sent for it

  const nameOf = (context) => `pi-${context.sessionManager.getSessionId()}`

  pi.on("session_start", (_event, context) => {
    if (context.hasUI) notify = (text) => context.ui.notify(text, "warning")
  })

  for (const tool of await sidecar.readTools()) {
    pi.registerTool({
      name: tool.name,
      label: tool.name,
      description: tool.description,
      parameters: tool.input_schema,
      async execute(_id, args, _signal, _update, context) {
        const text = await sidecar.answerTool(nameOf(context), tool.name, args)
        return { content: [{ type: "text", text }], details: {} }
      },
    })
  }

  pi.on("before_provider_request", async (event, context) => {
    const body = event.payload
    const dialect = DIALECTS[context.model?.api]
    const key = dialect === "openai_responses" ? "input" : "messages"
    if (!dialect || !Array.isArray(body?.[key])) return
    const conversation = nameOf(context)
    const window = context.model.contextWindow
    const options = window ? { context_window: window } : {}
    const answer = await sidecar.fit(conversation, { dialect, body, options })
    if (!answer) return repeatLast(fitted.get(conversation), body, key)
    if (!answer.managed) return
    const sent = answer.changed ? answer.body : body
    fitted.set(conversation, { given: body[key], sent: sent[key] })
    return answer.changed ? sent : undefined
  })

  pi.on("message_end", async (event, context) => {
    const { role, usage, stopReason, errorMessage } = event.message
    if (role !== "assistant") return
    const conversation = nameOf(context)
    if (stopReason === "error") {
      await sidecar.recordRefusal(conversation, 400, errorMessage ?? "")
    } else if (usage?.input || usage?.cacheRead) {
      await sidecar.recordReply(conversation, countUsage(usage))
    }
  })

  // What is hidden needs no compaction. After a refusal, or if the user asks for it, pi compacts.
  pi.on("session_before_compact", (event, context) => {
    if (event.reason === "threshold" && fitted.has(nameOf(context))) return { cancel: true }
  })

  pi.on("agent_end", async (_event, context) => {
    await sidecar.sumUp(nameOf(context))
  })

  pi.on("session_shutdown", (event) => {
    if (event.reason === "quit") sidecar.close()
  })
}

function countUsage(usage) {
  const read = usage.cacheRead ?? 0
  return {
    prompt_tokens: (usage.input ?? 0) + read + (usage.cacheWrite ?? 0),
    completion_tokens: usage.output ?? 0,
    prompt_tokens_details: { cached_tokens: read },
  }
}

// Without an answer: what was sent last, and what is new since. It mostly fits, and the cache stays warm.
export function repeatLast(last, body, key) {
  if (!last || last.given.length > body[key].length) return undefined
  const isSame = last.given.every((each, at) => describe(each) === describe(body[key][at]))
  if (!isSame || describe(last.given) === describe(last.sent)) return undefined
  return { ...body, [key]: [...last.sent.map(withoutMarks), ...body[key].slice(last.given.length)] }
}

function describe(message) {
  return JSON.stringify(withoutMarks(message))
}

function withoutMarks(message) {
  return JSON.parse(JSON.stringify(message, (name, each) => (name === "cache_control" ? undefined : each)))
}
