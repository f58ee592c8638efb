// opencode asks before each call which messages to send. Its own session stays whole.
import { fromSent, markBefore, toList } from "./messages.js"
import { Sidecar } from "./sidecar.js"

const MAX_OUTPUT_TOKENS = 32_000 // opencode never asks for more

export const Trimtab = async ({ client }) => {
  if (process.env.TRIMTAB === "off") return {}
  const early = [] // there is no screen yet
  let show = (text) => early.push(text)
  const sidecar = new Sidecar(undefined, (text) => show(text))
  const tools = await sidecar.readTools()
  const systems = new Map() // by session: the parts of the system prompt of the last call
  const definitions = new Map()
  const counted = new Set() // replies whose usage is recorded
  const compacting = new Set()
  const fitted = new Map() // by session: the ids of the list that came last, and what was sent for it
  let models

  const readModel = async ({ providerID, modelID } = {}) => {
    models ??= client.config.providers().then(({ data }) => data?.providers ?? [], () => [])
    return (await models).find(({ id }) => id === providerID)?.models?.[modelID]
  }

  const recordUsage = async (conversation, messages) => {
    const reply = messages.findLast(({ info }) => info.role === "assistant")?.info
    if (!reply?.tokens?.output || counted.has(reply.id)) return
    counted.add(reply.id)
    const { input, output, reasoning, cache } = reply.tokens
    const read = cache?.read ?? 0
    await sidecar.recordReply(conversation, {
      prompt_tokens: input + read + (cache?.write ?? 0),
      completion_tokens: output + (reasoning ?? 0),
      prompt_tokens_details: { cached_tokens: read },
    })
  }

  const transform = async (_input, output) => {
    const { messages } = output
    const user = messages.findLast(({ info }) => info.role === "user")?.info
    if (!user || compacting.delete(user.sessionID)) return
    const conversation = `opencode-${user.sessionID}`
    const model = await readModel(user.model)
    const { list, places } = toList(messages)
    const system = systems.get(user.sessionID)
    const head = system ? [{ role: "system", content: system.join("\n") }] : []
    await recordUsage(conversation, messages)
    const answer = await sidecar.fit(conversation, {
      dialect: "openai_chat",
      want: "map",
      body: {
        model: user.model?.modelID ?? "",
        messages: [...head, ...list],
        tools: [...definitions.values()],
        max_tokens: Math.min(model?.limit?.output || MAX_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS),
      },
      options: model?.limit?.context ? { context_window: model.limit.context } : {},
    })
    if (answer && !answer.managed) return
    const ids = messages.map(({ info }) => info.id)
    let shown = repeatLast(fitted.get(user.sessionID), messages, ids)
    if (answer) {
      const sent = answer.sent?.map((piece) => move(piece, head.length)).filter(Boolean)
      shown = sent ? fromSent(messages, places, sent) : messages.slice()
      // opencode marks the system prompt's first two parts and the last two messages; Anthropic takes four marks.
      const hasFreeMark = user.model?.providerID === "anthropic" && system?.length === 1
      if (sent && hasFreeMark && answer.frontier != null) {
        markBefore(shown, messages[places[answer.frontier - head.length].at])
      }
      fitted.set(user.sessionID, { ids, shown })
    }
    messages.splice(0, messages.length, ...shown)
  }

  const hooks = {
    "chat.message": async () => {
      show = (text) => warn(client, text)
      early.splice(0).forEach(show)
    },
    "experimental.chat.messages.transform": transform,
    "experimental.chat.system.transform": async ({ sessionID }, { system }) => {
      if (sessionID) systems.set(sessionID, [...system])
    },
    "experimental.session.compacting": async ({ sessionID }) => {
      compacting.add(sessionID) // opencode's own summary is made of the whole history
    },
    "tool.definition": async ({ toolID }, output) => {
      const own = tools.find(({ name }) => name === toolID)
      if (own) output.jsonSchema = own.input_schema
      const parameters = output.jsonSchema ?? { type: "object" }
      definitions.set(toolID, { type: "function", function: { name: toolID, description: output.description, parameters } })
    },
    event: async ({ event }) => {
      const { sessionID, error } = event.properties ?? {}
      if (!sessionID) return
      const conversation = `opencode-${sessionID}`
      if (event.type === "session.error" && error) {
        const { statusCode, responseBody, message } = error.data ?? {}
        await sidecar.recordRefusal(conversation, statusCode ?? 400, responseBody ?? message ?? "")
      }
      if (event.type === "session.idle") await sidecar.sumUp(conversation)
    },
    dispose: () => sidecar.end(), // the terminal's screen is gone, and its process has no exit of its own
    tool: Object.fromEntries(tools.map((tool) => [tool.name, defineTool(tool, sidecar)])),
  }
  return hooks
}

// In the terminal's own screen a line on standard error would stand across the picture.
function warn(client, text) {
  if (process.argv.includes("run")) console.error(text)
  else client.tui.showToast({ body: { message: text, variant: "warning" } }).catch(() => {})
}

function defineTool(tool, sidecar) {
  return {
    description: tool.description,
    args: tool.input_schema.properties,
    async execute(args, { sessionID }) {
      const conversation = `opencode-${sessionID}`
      const given = Object.fromEntries(Object.entries(args ?? {}).filter(([, text]) => text !== ""))
      return sidecar.answerTool(conversation, tool.name, given)
    },
  }
}

// Without an answer: what was sent last, and what is new since. It mostly fits, and the cache stays warm.
function repeatLast(last, messages, ids) {
  const isLonger = last?.ids.every((id, at) => id === ids[at])
  return isLonger ? [...last.shown, ...messages.slice(last.ids.length)] : messages.slice()
}

// A piece of the list without its system prompt.
function move(piece, by) {
  if (piece.at === undefined) return { from: Math.max(0, piece.from - by), to: Math.max(0, piece.to - by) }
  const at = piece.at.filter((position) => position >= by).map((position) => position - by)
  return piece.at.length && !at.length ? null : { ...piece, at }
}
