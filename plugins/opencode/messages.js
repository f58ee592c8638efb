// opencode's messages as a Chat list, and back.
//
// One message of opencode is one or more of the list: an assistant's text and calls, then each result.
const PRUNED = "[Old tool result content cleared]"
const INTERRUPTED = "[Tool execution was interrupted]"

// The list, and for each of its messages the index of opencode's message and the call that it answers.
export function toList(messages) {
  const list = []
  const places = []
  const put = (wire, at, callID = null) => {
    list.push(wire)
    places.push({ at, callID })
  }
  messages.forEach(({ info, parts }, at) => {
    if (info.role === "user") {
      const content = parts.map(readUserPart).filter(Boolean)
      if (content.length) put({ role: "user", content: content.every(isText) ? join(content) : content }, at)
      return
    }
    const tools = parts.filter((part) => part.type === "tool")
    const content = join(parts.filter((part) => part.type === "text")) || null
    if (!content && !tools.length) return
    put({ role: "assistant", content, ...(tools.length ? { tool_calls: tools.map(writeCall) } : {}) }, at)
    for (const part of tools) put({ role: "tool", tool_call_id: part.callID, content: readResult(part) }, at, part.callID)
  })
  return { list, places }
}

// opencode's messages for what is to be sent. What is not edited is the same object as before.
export function fromSent(messages, places, sent) {
  const kept = new Map() // index of opencode's message -> edits of it, in the order of sending
  const built = []
  const keep = (at) => {
    if (!kept.has(at)) {
      kept.set(at, { shown: new Set(), results: new Map(), head: null })
      built.push(at)
    }
    return kept.get(at)
  }
  const show = (position) => {
    const { at, callID } = places[position]
    keep(at).shown.add(callID)
    return kept.get(at)
  }
  for (const piece of sent) {
    if (piece.at === undefined) {
      for (let position = piece.from; position < piece.to; position++) show(position)
    } else if (!piece.at.length) {
      built.push(...piece.items)
    } else {
      const [first, ...joined] = piece.at
      const item = piece.items[0]
      const edits = show(first)
      if (places[first].callID === null) edits.head = item
      else edits.results.set(places[first].callID, readText(item.content))
      piece.items.slice(1).forEach((each, index) => {
        const position = joined[index]
        if (position === undefined) built.push(each)
        else if (places[position].callID === null) show(position).head = each
        else show(position).results.set(places[position].callID, readText(each.content))
      })
    }
  }
  const template = messages.find(({ info }) => info.role === "user")
  return built.map((each) =>
    typeof each === "number" ? edit(messages[each], kept.get(each)) : write(template, each),
  )
}

// A cache mark on the last text of the model before a message. A mark on a call would stand on its result as well.
export function markBefore(shown, message) {
  const end = shown.findIndex(({ info }) => info.id === message.info.id)
  const hasText = ({ info, parts }, at) => at < end && info.role === "assistant" && parts.some(isSpoken)
  const at = shown.findLastIndex(hasText)
  if (at < 0) return
  const parts = [...shown[at].parts]
  const index = parts.findLastIndex(isSpoken)
  const { metadata } = parts[index]
  const anthropic = { ...metadata?.anthropic, cacheControl: { type: "ephemeral" } }
  parts[index] = { ...parts[index], metadata: { ...metadata, anthropic } }
  shown[at] = { ...shown[at], parts }
}

function edit(message, { shown, results, head }) {
  const isWhole = message.parts.every((part) => part.type !== "tool" || shown.has(part.callID))
  if (!head && !results.size && isWhole) return message
  let isWritten = false
  const parts = []
  for (const part of message.parts) {
    if (part.type === "tool") {
      if (shown.has(part.callID)) parts.push(editTool(part, results.get(part.callID), head))
    } else if (part.type !== "text" || !head) {
      parts.push(part)
    } else if (!isWritten) {
      isWritten = true // one text instead of all
      parts.push({ ...part, text: readText(head.content) })
    }
  }
  return { ...message, parts }
}

function editTool(part, output, head) {
  const state = { ...part.state }
  if (output !== undefined) {
    if (state.status === "error") state.error = output
    else Object.assign(state, { output, attachments: undefined, time: { ...state.time, compacted: undefined } })
  }
  const call = head?.tool_calls?.find(({ id }) => id === part.callID)
  if (call) state.input = parse(call.function.arguments) ?? state.input
  return { ...part, state }
}

// A text that Trimtab wrote, as a message of the user: a summary, or a notice.
function write(template, item) {
  const id = `${template.info.id}-trimtab`
  const part = { id, messageID: id, sessionID: template.info.sessionID, type: "text", text: readText(item.content) }
  return { info: { ...template.info, id }, parts: [{ ...part, synthetic: true }] }
}

function readUserPart(part) {
  if (part.type === "text" && !part.ignored) return { type: "text", text: part.text }
  if (part.type !== "file") return null
  if (part.mime?.startsWith("image/")) return { type: "image_url", image_url: { url: part.url } }
  return null
}

function writeCall(part) {
  const text = JSON.stringify(part.state.input ?? {})
  return { id: part.callID, type: "function", function: { name: part.tool, arguments: text } }
}

function readResult({ state }) {
  if (state.status === "completed") return state.time?.compacted ? PRUNED : state.output
  return state.status === "error" ? state.error : INTERRUPTED
}

function isText(part) {
  return part.type === "text"
}

function isSpoken(part) {
  return isText(part) && part.text.trim() !== ""
}

function join(parts) {
  return parts.map(({ text }) => text).join("\n")
}

function readText(content) {
  return typeof content === "string" ? content : join((content ?? []).filter(isText))
}

function parse(text) {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
