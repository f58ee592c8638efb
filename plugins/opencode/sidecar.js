// Talks to `trimtab sidecar --stdio`, which this process starts. The same file is in each plugin.
//
// One rule: whatever goes wrong, `ask` returns null, and the agent sends what it would have sent.
import { spawn } from "node:child_process"
import { readFileSync, writeSync } from "node:fs"

export const VERSION = JSON.parse(readFileSync(new URL("./package.json", import.meta.url), "utf8")).version
const TIMEOUT_MS = 5_000
const START_TIMEOUT_MS = 60_000 // for the first answer of a process, which has to start on a busy machine
const MAX_STARTS = 3
const MAX_LINE_CHARS = 256_000_000
const MAX_LAST_WORDS = 500 // characters of what the program writes before it ends
const LATE = { late: true }

export class Sidecar {
  #command
  #process = null
  starts = 0
  #waiting = new Map()
  #nextId = 1
  #buffer = []
  #warned = false
  #patienceMs = START_TIMEOUT_MS

  // `TRIMTAB_COMMAND` names another program: its words are separated by spaces.
  constructor(command = process.env.TRIMTAB_COMMAND || "trimtab", warn = (text) => console.error(text)) {
    this.#command = command.split(" ").filter(Boolean)
    this.say = (text) => warn(`trimtab: ${text}`)
    this.warn = (text) => {
      if (!this.#warned) this.say(`${text}; requests pass as they are`)
      this.#warned = true
    }
  }

  // The definitions of the recall tools; none if the program does not answer.
  async readTools() {
    return (await this.ask("health", {}))?.tools.anthropic ?? []
  }

  // The answer of an operation; null if there is none, or if it says that something failed.
  async ask(op, fields, timeoutMs = this.#patienceMs) {
    const answer = (await this.#askOnce(op, fields, timeoutMs)) ?? (await this.#askOnce(op, fields, timeoutMs))
    if (!answer || answer === LATE) {
      if (answer) this.warn(`no answer to ${op} within ${timeoutMs / 1_000} s`)
      return null
    }
    if (answer.version !== VERSION) {
      this.warn(`this plugin is ${VERSION} and the program is ${answer.version}; install the same version of both`)
      return null
    }
    return answer.status === 200 || answer.blocked ? answer : null
  }

  // Null if the program cannot be started, or ends before it answers.
  #askOnce(op, fields, timeoutMs) {
    const child = this.start()
    if (!child) return null
    const id = this.#nextId++
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.#settle(id, LATE), timeoutMs)
      const text = `the sidecar is slow to start; waiting for up to ${timeoutMs / 1_000} s`
      const slow = timeoutMs > TIMEOUT_MS ? setTimeout(() => this.say(text), TIMEOUT_MS) : undefined
      this.#waiting.set(id, { resolve, timer, slow })
      child.stdin.write(JSON.stringify({ id, op, ...fields }) + "\n", (error) => {
        if (error) this.#settle(id, null)
      })
    })
  }

  close() {
    this.starts = MAX_STARTS
    this.#process?.stdin.end()
  }

  // Starts the process if it does not run. `ask` does it as well.
  start() {
    if (this.#process || this.starts >= MAX_STARTS) return this.#process
    this.starts++
    const [program, ...words] = this.#command
    const child = spawn(program, [...words, "sidecar", "--stdio"], { stdio: "pipe" })
    this.#process = child
    this.#patienceMs = START_TIMEOUT_MS
    this.#buffer = []
    const stop = (text) => {
      if (this.#process !== child) return
      this.#process = null
      for (const id of [...this.#waiting.keys()]) this.#settle(id, null)
      if (text) this.warn(text)
    }
    let lastWords = ""
    child.stderr.setEncoding("utf8")
    child.stderr.on("data", (text) => (lastWords = (lastWords + text).slice(-MAX_LAST_WORDS)))
    child.on("error", ({ code, message }) =>
      stop(`cannot start ${program}: ${code === "ENOENT" ? "it is not on the PATH" : message}`),
    )
    child.on("close", (code, signal) =>
      stop(code || signal ? `the sidecar ended (${signal ?? code}): ${lastWords.trim().split("\n").at(-1) || "it said nothing"}` : ""),
    )
    child.stdin.on("error", () => {})
    child.stdout.setEncoding("utf8")
    child.stdout.on("data", (text) => this.#read(text))
    for (const each of [child, child.stdin, child.stdout, child.stderr]) each.unref?.() // the agent may end
    return child
  }

  #read(text) {
    const end = text.lastIndexOf("\n")
    if (end < 0) {
      this.#buffer.push(text)
      if (this.#buffer.reduce((sum, each) => sum + each.length, 0) > MAX_LINE_CHARS) this.#process?.kill()
      return
    }
    const lines = (this.#buffer.join("") + text.slice(0, end)).split("\n")
    this.#buffer = [text.slice(end + 1)]
    for (const line of lines) {
      try {
        const answer = JSON.parse(line)
        this.#settle(answer.id, answer)
      } catch {
        // not one of its answers
      }
    }
  }

  #settle(id, answer) {
    const call = this.#waiting.get(id)
    if (!call) return
    this.#waiting.delete(id)
    if (answer) this.#patienceMs = TIMEOUT_MS // after the first wait, whether it brought an answer or not
    clearTimeout(call.timer)
    clearTimeout(call.slow)
    call.resolve(answer)
  }
}

// Says in one line, when the agent ends, what happened in all its conversations.
export class LastLine {
  #totals = new Map()

  constructor() {
    process.once("exit", () => this.print())
  }

  print() {
    const line = this.write()
    if (line) writeSync(2, `${line}\n`) // a console may be part of a screen that is gone
    this.#totals.clear()
  }

  add(conversation, totals) {
    if (totals) this.#totals.set(conversation, totals)
  }

  write() {
    const sum = (name) => [...this.#totals.values()].reduce((total, each) => total + each[name], 0)
    if (!sum("calls")) return ""
    const tokens = sum("hidden_tokens")
    const size = tokens >= 1_000 ? `${Math.round(tokens / 1_000)}k` : `${tokens}`
    const readable = sum("unreadable") ? `${sum("unreadable")} not readable` : "all readable"
    return `trimtab: ${sum("calls")} calls, ${sum("refused")} refused, ${size} tokens hidden, ${readable}`
  }
}
