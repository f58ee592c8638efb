// The process that a plugin starts: whatever goes wrong with it, there is no answer, and one warning.
import assert from "node:assert/strict"
import { spawnSync } from "node:child_process"
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { test } from "node:test"
import { Sidecar, VERSION } from "../../plugins/opencode/sidecar.js"

process.setMaxListeners(0) // each sidecar has one for the end of the agent
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
  const named = start("no-such-trimtab")
  assert.equal(await named.sidecar.ask("fit", {}), null)
  assert.deepEqual([...warnings, ...named.warnings], [
    "trimtab: cannot start /nowhere/trimtab: TRIMTAB_COMMAND names it, and it does not exist; nothing more is hidden until the agent starts again",
    "trimtab: cannot start no-such-trimtab: it is not on the PATH; uv tool install trimtab; nothing more is hidden until the agent starts again",
  ])
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
  assert.deepEqual(warnings, [
    "trimtab: the sidecar ended (2): No such command; starting it again (1 of 2), and handles change",
    "trimtab: the sidecar ended (2): No such command; starting it again (2 of 2), and handles change",
    "trimtab: the sidecar ended (2): No such command; nothing more is hidden until the agent starts again",
  ])
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

const DEAF = `if (globalThis.isDone) return
  globalThis.isDone = true
  say({ status: 200, version: "${VERSION}" })
  process.stdin.pause()
  setInterval(() => {}, 1_000)`

test("a program that no longer reads is started again after two late answers", async () => {
  const { sidecar, warnings } = start(program("deaf", DEAF))
  assert.equal((await sidecar.ask("health", {})).status, 200)
  const body = "x".repeat(1_000_000)
  for (let calls = 0; calls < 2; calls++) assert.equal(await sidecar.ask("fit", { body }, 50), null)
  assert.equal((await sidecar.ask("health", {})).status, 200)
  assert.equal(sidecar.starts, 2)
  assert.match(warnings.at(-1), /the sidecar does not answer; starting it again/)
  sidecar.close()
})

test("an agent that ends leaves no process behind, whether it still reads or not", () => {
  const pidFile = join(folder, "pid")
  const command = program("stays", `const { writeFileSync } = await import("node:fs")
    writeFileSync("${pidFile}", String(process.pid))
    ${DEAF}`)
  const module = new URL("../../plugins/opencode/sidecar.js", import.meta.url)
  const agent = `const { Sidecar } = await import("${module}")
    const sidecar = new Sidecar("${command}")
    await sidecar.ask("health", {})
    sidecar.ask("fit", { body: "x".repeat(1_000_000) })
    setTimeout(() => process.exit(), 100)`
  const ended = spawnSync(process.execPath, ["--input-type=module", "-e", agent], { encoding: "utf8" })
  assert.equal(ended.stderr, "")
  const pid = Number(readFileSync(pidFile, "utf8"))
  const isGone = () => {
    try { return !process.kill(pid, 0) } catch { return true }
  }
  for (let tries = 0; tries < 50 && !isGone(); tries++) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100)
  assert.ok(isGone())
})

test("a sidecar that gives its totals again after it failed to has not ended early", async () => {
  const refusals = join(folder, "refusals")
  const answers = `const { existsSync, writeFileSync } = await import("node:fs")
    const fails = call.op === "totals" && !existsSync("${refusals}")
    if (fails) writeFileSync("${refusals}", "1")
    const totals = call.op === "totals" ? { hidden_tokens: 5, unreadable: 0 } : {}
    say(fails ? { status: 503, version: "${VERSION}" } : { status: 200, version: "${VERSION}", ...totals })`
  const { sidecar } = start(program("fails-once", answers))
  await sidecar.fit("a", { body: "quick" })
  await sidecar.sumUp("a")
  assert.match(sidecar.writeLastLine(), /ended early/)
  await sidecar.sumUp("a")
  assert.equal(sidecar.writeLastLine(), "trimtab: 1 call, 0 refused, 5 tokens hidden, all readable")
  sidecar.close()
})

test("usage is recorded for what was fitted, and the last line counts every call", async () => {
  const ops = join(folder, "ops")
  const answers = `const { appendFileSync } = await import("node:fs")
    appendFileSync("${ops}", call.op + " ")
    const more = { refused: { kind: "overflow" }, totals: { hidden_tokens: 312_400, unreadable: 1 } }[call.op]
    if (call.body !== "slow") say({ status: 200, version: "${VERSION}", ...more })`
  const { sidecar } = start(program("counts", answers))
  assert.equal(sidecar.writeLastLine(), "")
  await sidecar.fit("a", { body: "quick" })
  assert.equal(sidecar.writeLastLine(), "trimtab: 1 call, 0 refused, 0 tokens hidden, all readable")
  await sidecar.recordReply("a", {})
  await sidecar.fit("a", { body: "slow" })
  await sidecar.recordReply("a", {})
  await sidecar.recordRefusal("b", 400, "too long")
  await sidecar.sumUp("a")
  assert.equal(readFileSync(ops, "utf8"), "fit reply fit refused totals ")
  assert.equal(sidecar.writeLastLine(), "trimtab: 2 calls, 1 refused, 312k tokens hidden, 1 not readable")
  sidecar.close()
  await sidecar.sumUp("a")
  assert.match(sidecar.writeLastLine(), /ended early, 1 of 2 calls fitted/)
  sidecar.printLastLine()
  assert.equal(sidecar.writeLastLine(), "") // it stands there once
  const absent = start("no-such-trimtab").sidecar
  await absent.fit("a", {})
  assert.equal(absent.writeLastLine(), "trimtab: did not run, 1 call as they were")
  sidecar.close()
})
