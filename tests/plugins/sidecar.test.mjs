// The process that a plugin starts: whatever goes wrong with it, there is no answer, and one warning.
import assert from "node:assert/strict"
import { writeFileSync } from "node:fs"
import { mkdtempSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { test } from "node:test"
import { LastLine, Sidecar, VERSION } from "../../plugins/opencode/sidecar.js"

const folder = mkdtempSync(join(tmpdir(), "trimtab-"))

// A program that answers each line with the text of `answer`.
function program(name, answer) {
  const path = join(folder, `${name}.mjs`)
  writeFileSync(
    path,
    `import { createInterface } from "node:readline"
     createInterface({ input: process.stdin }).on("line", async (line) => {
       const call = JSON.parse(line)
       const say = (answer) => process.stdout.write(JSON.stringify({ id: call.id, ...answer }) + "\\n")
       ${answer}
     })`,
  )
  return `${process.execPath} ${path}`
}

function start(command) {
  const warnings = []
  return { warnings, sidecar: new Sidecar(command, (text) => warnings.push(text)) }
}

test("the real program answers, and names the tools that the plugins offer", async () => {
  const { sidecar, warnings } = start(process.env.TRIMTAB_COMMAND)
  const tools = await sidecar.readTools()
  assert.deepEqual(tools.map(({ name }) => name), ["recall", "search_history"])
  assert.ok(warnings.every((text) => text.includes("slow to start"))) // on a busy machine
  sidecar.close()
})

test("without the program there is no answer, and one warning", async () => {
  const { sidecar, warnings } = start("/nowhere/trimtab")
  assert.equal(await sidecar.ask("fit", {}), null)
  assert.equal(await sidecar.ask("fit", {}), null)
  assert.equal(warnings.length, 1)
  assert.match(warnings[0], /cannot start \/nowhere\/trimtab: it is not on the PATH; requests pass as they are/)
})

test("a program of another version gives no answer", async () => {
  const { sidecar, warnings } = start(program("other", `say({ status: 200, version: "9.9.9", changed: true })`))
  assert.equal(await sidecar.ask("fit", {}), null)
  assert.match(warnings[0], /this plugin is .* and the program is 9\.9\.9/)
  sidecar.close()
})

test("a late answer is no answer, and the one after it is", async () => {
  const late = `if (call.op === "health") say({ status: 200, version: "${VERSION}" })`
  const { sidecar, warnings } = start(program("late", late))
  assert.equal(await sidecar.ask("fit", {}, 50), null)
  assert.match(warnings[0], /no answer to fit within 0\.05 s/)
  assert.equal((await sidecar.ask("health", {})).status, 200)
  sidecar.close()
})

test("a slow start is waited for, and the user reads why", async () => {
  const slow = `if (!globalThis.isStarted) await new Promise((resolve) => setTimeout(resolve, 6_000))
    globalThis.isStarted = true
    say({ status: 200, version: "${VERSION}" })`
  const { sidecar, warnings } = start(program("slow", slow))
  assert.equal((await sidecar.ask("fit", {})).status, 200)
  assert.deepEqual(warnings, ["trimtab: the sidecar is slow to start; waiting for up to 60 s"])
  sidecar.close()
})

test("a program that dies is started again and asked again", async () => {
  const marker = join(folder, "died")
  const dies = `const { existsSync, writeFileSync } = await import("node:fs")
    if (!existsSync("${marker}")) { writeFileSync("${marker}", ""); process.exit(1) }
    say({ status: 200, version: "${VERSION}" })`
  const { sidecar, warnings } = start(program("dies-once", dies))
  assert.equal((await sidecar.ask("fit", {})).status, 200)
  assert.equal(warnings.length, 1)
  sidecar.close()
})

test("a program that always dies is not started without end", async () => {
  const { sidecar, warnings } = start(program("dies", `console.error("a bug\\nNo such command"); process.exit(2)`))
  for (let calls = 0; calls < 4; calls++) assert.equal(await sidecar.ask("fit", {}), null)
  assert.deepEqual(warnings, ["trimtab: the sidecar ended (2): No such command; requests pass as they are"])
  assert.equal(sidecar.starts, 3)
})

test("what is not an answer is passed over, and an answer may come in pieces", async () => {
  const pieces = `process.stdout.write("not JSON\\n{\\"id\\": " + call.id)
    setTimeout(() => process.stdout.write(', "status": 200, "version": "${VERSION}"}\\n'), 5)`
  const { sidecar } = start(program("pieces", pieces))
  assert.equal((await sidecar.ask("fit", {})).status, 200)
  sidecar.close()
})

test("an error is no answer, and a blocked request is one", async () => {
  const blocks = `say({ status: 503, version: "${VERSION}", blocked: call.op === "fit" })`
  const { sidecar } = start(program("blocks", blocks))
  assert.equal((await sidecar.ask("fit", {})).blocked, true)
  assert.equal(await sidecar.ask("recall", {}), null)
  sidecar.close()
})

test("the last line sums up all conversations", () => {
  const line = new LastLine()
  assert.equal(line.write(), "")
  line.add("a", { calls: 30, refused: 0, hidden_tokens: 300_000, unreadable: 0 })
  line.add("b", { calls: 11, refused: 1, hidden_tokens: 12_400, unreadable: 0 })
  line.add("b", null)
  assert.equal(line.write(), "trimtab: 41 calls, 1 refused, 312k tokens hidden, all readable")
  line.print()
  assert.equal(line.write(), "") // it stands there once
})
