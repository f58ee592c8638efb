// Talks to `trimtab sidecar`, which this process starts. The same file is in each plugin.
//
// One rule: whatever goes wrong, there is no answer, and the agent sends what it would have sent.
import { spawn } from "node:child_process"
import { readFileSync, writeSync } from "node:fs"

export const VERSION = JSON.parse(readFileSync(new URL("./package.json", import.meta.url), "utf8")).version
const TIMEOUT_MS = 5_000
const START_TIMEOUT_MS = 60_000 // for the first answer of a process, which has to start on a busy machine
const RESTART_TIMEOUT_MS = 15_000
const END_TIMEOUT_MS = 2_000
const MAX_STARTS = 3
const MAX_LATE = 2 // answers, one after the other, after which the process is started again
const MAX_LINE_CHARS = 256_000_000
const MAX_LAST_WORDS = 500 // characters of what the program writes before it ends
const LATE = { late: true }

export class Sidecar {
  #command
  #process = null
  starts = 0
  hasFailed = false
  #waiting = new Map()
  #nextId = 1
  #buffer = []
  #said = new Set()
  #patienceMs = START_TIMEOUT_MS
  #late = 0
  #tallies = new Map()

  // `TRIMTAB_COMMAND` names another program: its words are separated by spaces.
  constructor(command = process.env.TRIMTAB_COMMAND || "trimtab", warn = (text) => console.error(text)) {
    this.#command = command.split(" ").filter(Boolean)
    this.warn = (text) => {
      if (!this.#said.has(text)) warn(`trimtab: ${text}`)
      this.#said.add(text)
    }
    process.once("exit", () => {
      this.printLastLine()
      this.#process?.kill()
    })
  }

  // What to send; null if the agent goes on without an answer.
  async fit(conversation, fields) {
    const tally = this.#tally(conversation)
    tally.calls++
    const answer = await this.ask("fit", { conversation, client: VERSION, ...fields })
    tally.isAnswered = Boolean(answer)
    tally.fitted += answer ? 1 : 0
    if (answer?.blocked) throw new Error(`trimtab: ${answer.error ?? answer.fault ?? "the request is blocked"}`)
    return answer
  }

  // Without an answer another request was sent, and its usage says nothing of the one that was fitted.
  async recordReply(conversation, usage) {
    if (this.#tally(conversation).isAnswered) await this.ask("reply", { conversation, usage })
  }

  async recordRefusal(conversation, status, body) {
    const answer = await this.ask("refused", { conversation, status, body })
    this.#tally(conversation).refused += answer?.kind === "overflow" ? 1 : 0
  }

  async answerTool(conversation, tool, args) {
    const answer = await this.ask("answer", { conversation, tool, arguments: args })
    return answer?.text ?? "[trimtab does not answer: read the file again, or repeat the command]"
  }

  // The definitions of the recall tools; none if the program does not answer.
  async readTools() {
    return (await this.ask("health", {}))?.tools.anthropic ?? []
  }

  async sumUp(conversation) {
    const totals = await this.ask("totals", { conversation })
    if (totals) Object.assign(this.#tally(conversation), { hidden: totals.hidden_tokens, unreadable: totals.unreadable })
    this.hasFailed = !totals
  }

  #tally(conversation) {
    const empty = { calls: 0, fitted: 0, refused: 0, hidden: 0, unreadable: 0, isAnswered: false }
    if (!this.#tallies.has(conversation)) this.#tallies.set(conversation, empty)
    return this.#tallies.get(conversation)
  }

  // Says once, when the agent ends, what happened in all its conversations.
  printLastLine() {
    const line = this.writeLastLine()
    if (line) writeSync(2, `${line}\n`) // a console may be part of a screen that is gone
    this.#tallies.clear()
  }

  writeLastLine() {
    const sum = (name) => [...this.#tallies.values()].reduce((total, tally) => total + tally[name], 0)
    const [calls, tokens] = [sum("calls"), sum("hidden")]
    if (!calls) return ""
    const count = calls === 1 ? "1 call" : `${calls} calls`
    if (!sum("fitted")) return `trimtab: did not run, ${count} as they were`
    if (this.hasFailed) return `trimtab: ended early, ${sum("fitted")} of ${count} fitted; what was hidden is in the agent's history`
    const size = tokens >= 1_000 ? `${Math.round(tokens / 1_000)}k` : `${tokens}`
    const readable = sum("unreadable") ? `${sum("unreadable")} not readable` : "all readable"
    return `trimtab: ${count}, ${sum("refused")} refused, ${size} tokens hidden, ${readable}`
  }

  // The answer of an operation; null if there is none, or if it says that something failed.
  async ask(op, fields, timeoutMs = this.#patienceMs) {
    const answer = (await this.#askOnce(op, fields, timeoutMs)) ?? (await this.#askOnce(op, fields, timeoutMs))
    if (!answer || answer === LATE) return null
    if (answer.version !== VERSION) {
      this.warn(`this plugin is ${VERSION} and the program is ${answer.version}; install the same version of both. Requests pass as they are`)
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
      const timer = setTimeout(() => {
        this.warn(`no answer to ${op} within ${timeoutMs / 1_000} s`)
        if (++this.#late >= MAX_LATE || timeoutMs > TIMEOUT_MS) this.#giveUp()
        else this.#settle(id, LATE)
      }, timeoutMs)
      const text = `the sidecar is slow to start; waiting for up to ${timeoutMs / 1_000} s`
      const slow = timeoutMs > TIMEOUT_MS ? setTimeout(() => this.warn(text), TIMEOUT_MS) : undefined
      this.#waiting.set(id, { resolve, timer, slow })
      child.stdin.write(JSON.stringify({ id, op, ...fields }) + "\n", (error) => {
        if (error) this.#settle(id, null)
      })
    })
  }

  // A process that no longer reads would keep the agent from ending.
  #giveUp() {
    const child = this.#process
    for (const id of [...this.#waiting.keys()]) this.#settle(id, LATE)
    this.#process = null
    child?.kill("SIGKILL")
    this.#late = 0
    this.#warnOfEnd("the sidecar does not answer")
  }

  #warnOfEnd(text) {
    const again = `starting it again (${this.starts} of ${MAX_STARTS - 1}), and handles change`
    this.warn(`${text}; ${this.starts < MAX_STARTS ? again : "nothing more is hidden until the agent starts again"}`)
  }

  // The sums are asked for before the process ends; the line is printed even if the agent does not wait for them.
  async end() {
    await Promise.all([...this.#tallies.keys()].map((conversation) => this.sumUp(conversation)))
    this.printLastLine()
    this.close()
  }

  close() {
    this.starts = MAX_STARTS
    const child = this.#process
    this.#process = null
    child?.stdin.end()
    if (child) setTimeout(() => child.kill("SIGKILL"), END_TIMEOUT_MS).unref()
  }

  // Starts the process if it does not run. `ask` does it as well.
  start() {
    if (this.#process || this.starts >= MAX_STARTS) return this.#process
    this.#patienceMs = this.starts++ ? RESTART_TIMEOUT_MS : START_TIMEOUT_MS
    const [program, ...words] = this.#command
    const child = spawn(program, [...words, "sidecar"], { stdio: "pipe" })
    this.#process = child
    this.#buffer = []
    let lastWords = ""
    const stop = (text) => {
      if (this.#process !== child) return
      this.#process = null
      for (const id of [...this.#waiting.keys()]) this.#settle(id, null)
      this.#warnOfEnd(text)
    }
    child.on("error", ({ code, message }) => {
      this.starts = MAX_STARTS
      stop(`cannot start ${program}: ${code === "ENOENT" ? explainAbsence(program) : message}`)
    })
    child.on("close", (code, signal) => {
      const line = lastWords.trim().split("\n").at(-1)
      stop(`the sidecar ended (${signal ?? code})${line ? `: ${line}` : ""}`)
    })
    child.stdin.on("error", () => {})
    child.stdout.setEncoding("utf8")
    child.stdout.on("data", (text) => this.#read(text))
    child.stderr.setEncoding("utf8")
    child.stderr.on("data", (text) => (lastWords = (lastWords + text).slice(-MAX_LAST_WORDS)))
    for (const each of [child, child.stdin, child.stdout, child.stderr]) each.unref?.() // the agent may end
    return child
  }

  #read(text) {
    const end = text.lastIndexOf("\n")
    if (end < 0) {
      this.#buffer.push(text)
      if (this.#buffer.reduce((sum, each) => sum + each.length, 0) > MAX_LINE_CHARS) this.#giveUp()
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
    if (answer && answer !== LATE) this.#late = 0
    clearTimeout(call.timer)
    clearTimeout(call.slow)
    call.resolve(answer)
  }
}

function explainAbsence(program) {
  return program.includes("/") ? "TRIMTAB_COMMAND names it, and it does not exist" : "it is not on the PATH; uv tool install trimtab"
}
