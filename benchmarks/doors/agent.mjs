// An agent with a loop of its own, without a package. `node agent.mjs SETUP` prints its figures.
// Before each call it asks the sidecar what to send, over HTTP or over standard input.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const setup = JSON.parse(process.argv[2]);
const { url, window, turns, lines, conversation } = setup;
const figures = { calls: 0, refused: 0, fell_open: 0, unpaired: 0, handle: "", hidden: "", recalled: "", gone: false, line: "" };

async function post(address, body, headers = {}, timeoutMs = 600_000) {
  const answer = await fetch(address, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(timeoutMs),
  });
  return [answer.status, await answer.json()];
}

function overHttp() {
  return async (operation, fields) => {
    const place = JSON.parse(readFileSync(setup.place, "utf8")); // again: it may have been restarted
    const headers = { Authorization: `Bearer ${place.token}` };
    const [status, answer] = await post(`${place.url}/v1/${operation}`, fields, headers, setup.timeout_ms);
    return { status, ...answer };
  };
}

function overStdio() {
  const child = spawn(setup.command[0], setup.command.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
  const waiting = new Map();
  let next = 0;
  createInterface({ input: child.stdout }).on("line", (line) => {
    const answer = JSON.parse(line);
    waiting.get(answer.id)(answer);
    waiting.delete(answer.id);
  });
  const ask = (op, fields) =>
    new Promise((resolve) => {
      waiting.set(next, resolve);
      child.stdin.write(JSON.stringify({ id: next++, op, ...fields }) + "\n");
    });
  ask.close = () => child.stdin.end();
  return ask;
}

const ask = setup.command ? overStdio() : setup.place ? overHttp() : null;
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
    // It is closed or late: send what was sent before, and what is new.
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
      console.log("pause");
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
  figures.gone = answer.status === 404 && answer.error.startsWith("nothing is called");
  figures.line = (await ask("totals", { conversation, end: true })).line ?? "";
}
console.log(JSON.stringify(figures));
ask?.close?.();
process.stdin.destroy();
