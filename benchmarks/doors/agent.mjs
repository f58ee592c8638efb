// An agent with a loop of its own, without a package. `node agent.mjs SETUP` prints its figures.
// Before each call it asks the sidecar what to send.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const setup = JSON.parse(process.argv[2]);
const { url, window, turns, lines, conversation } = setup;
const figures = { calls: 0, refused: 0, fell_open: 0, unpaired: 0, handle: "", hidden: "", recalled: "", gone: false, line: "" };

async function post(address, body, headers = {}) {
  const answer = await fetch(address, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(600_000),
  });
  return [answer.status, await answer.json()];
}

function start([program, ...words]) {
  const child = spawn(program, words, { stdio: ["pipe", "pipe", "inherit"] });
  const waiting = new Map();
  let next = 0;
  child.stdin.on("error", () => {});
  child.on("close", () => waiting.forEach(({ reject }) => reject(new Error("it has ended"))));
  createInterface({ input: child.stdout }).on("line", (line) => {
    const answer = JSON.parse(line);
    waiting.get(answer.id)?.resolve(answer);
  });
  const ask = (op, fields) => {
    const id = next++;
    return new Promise((resolve, reject) => {
      waiting.set(id, { resolve, reject });
      setTimeout(() => reject(new Error("it is late")), setup.timeout_ms).unref();
      child.stdin.write(JSON.stringify({ id, op, ...fields }) + "\n", (error) => error && reject(error));
    }).finally(() => waiting.delete(id));
  };
  return { ask, child };
}

let sidecar = setup.command && start(setup.command);
const ask = sidecar && ((op, fields) => sidecar.ask(op, fields));
let lastIn = 0;
let lastOut = [];

async function fit(body) {
  if (!ask) return body;
  try {
    const answer = await ask("fit", { conversation, body, options: { context_window: window } });
    if (answer.status === 200 && answer.managed) {
      if (answer.fault && !answer.changed) figures.fell_open++;
      const sent = answer.changed ? answer.body : body;
      lastIn = body.messages.length;
      lastOut = sent.messages;
      const handle = answer.hidden.find((each) => each.kind === "mask")?.handle;
      if (handle && !figures.handle) {
        figures.handle = handle;
        figures.hidden = (await ask("recall", { conversation, handle })).text;
      }
      return sent;
    }
  } catch {
    // It has ended or is late: send what was sent before, and what is new.
  }
  figures.fell_open++;
  return { ...body, messages: [...lastOut, ...body.messages.slice(lastIn)] };
}

function report(number) {
  const rows = Array.from({ length: lines }, (_, row) => `line_${number}_${row} value=${(row * number) % 977}`);
  return `report ${number}: ${rows.join(" ")}`;
}

const tool = (name, key, type) => ({
  type: "function",
  function: { name, description: name, parameters: { type: "object", properties: { [key]: { type } } } },
});
const tools = [tool("read_report", "number", "integer"), tool("recall", "handle", "string")];
const messages = [{ role: "system", content: setup.system }];

async function turn(text) {
  messages.push({ role: "user", content: text });
  for (;;) {
    const body = await fit({ model: "gpt-4o", messages, tools, max_tokens: 1000 });
    const [status, reply] = await post(`${url}/v1/chat/completions`, body, { Authorization: "Bearer k" });
    if (status !== 200) {
      figures.refused++;
      const again = ask && (await ask("refused", { conversation, status, body: reply }));
      if (again?.retry) continue;
      return false;
    }
    figures.calls++;
    try {
      await ask?.("reply", { conversation, reply });
    } catch {
      // The usage of one call is missing from the totals.
    }
    const message = reply.choices[0].message;
    messages.push(message);
    if (!message.tool_calls?.length) return true;
    for (const call of message.tool_calls) {
      const { number } = JSON.parse(call.function.arguments);
      messages.push({ role: "tool", tool_call_id: call.id, content: report(number) });
    }
    if (setup.pauses?.includes(figures.calls)) {
      const { exitCode, signalCode } = sidecar.child;
      if (exitCode !== null || signalCode !== null) sidecar = start(setup.command);
      console.log(sidecar.child.pid);
      await new Promise((resolve) => process.stdin.once("data", resolve));
    }
  }
}

for (let number = 0; number < turns; number++) {
  if (!(await turn(setup.texts[number]))) break;
}
if (ask && figures.handle) {
  const answer = await ask("recall", { conversation, handle: figures.handle });
  figures.recalled = answer.text ?? "";
  figures.gone = answer.status === 404 && answer.error.startsWith("there is no");
  figures.line = (await ask("totals", { conversation, end: true })).line ?? "";
}
console.log(JSON.stringify(figures));
sidecar?.child.stdin.end();
process.stdin.destroy();
