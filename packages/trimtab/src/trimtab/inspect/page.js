"use strict";
// The page of one session. Everything that was said is inserted as text, never as markup. The texts
// are decoded when they are shown, so that a session of 10,000 calls opens at once.

const SECTION_NAMES = {
  system: "system prompt and tools",
  words: "list of the user's words",
  summary: "summary and notice",
  user: "user",
  assistant: "model",
  call: "tool calls",
  result: "tool results",
  other: "other",
};
const EDIT_NAMES = {
  truncate: "cut",
  mask: "replaced by a line",
  summarise: "summarised",
  drop: "dropped",
  reveal: "shown again",
  rewind: "undone by a rewind",
  erase: "erased",
  settings: "settings changed",
  client: "compacted by the client",
};
const PAGE_ROWS = 16;
const PREVIEW_CHARS = 1600;
const PREVIEW_LINES = 14;
const LONG_TEXT_CHARS = 20000;
const PIECE_CHARS = 4000;
const MAX_HITS = 200;
const MAX_CHUNKS_IN_MEMORY = 256;
const SPLICE_STEP = 4;
const CHECKPOINT_CALLS = 256;
const RASTER = /^(image\/(?:png|jpeg|gif|webp))$/;
// Control characters, separators of lines that nobody sees, and marks that turn writing around.
const HIDDEN_CHARACTER =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|\udb40[\udc00-\udc7f]/g;

const byId = (id) => document.getElementById(id);

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") made.className = value;
    else if (name === "click") made.addEventListener("click", value);
    else if (value === true) made.setAttribute(name, "");
    else made.setAttribute(name, String(value));
  }
  for (const child of children.flat()) {
    if (child === undefined || child === null || child === "") continue;
    made.append(child instanceof Node ? child : visibleText(String(child)));
  }
  return made;
}

// Text with a visible sign for each character that would hide or turn something.
function visibleText(text) {
  HIDDEN_CHARACTER.lastIndex = 0;
  if (!HIDDEN_CHARACTER.test(text)) return document.createTextNode(text);
  const fragment = document.createDocumentFragment();
  let position = 0;
  for (const match of text.matchAll(HIDDEN_CHARACTER)) {
    if (match.index > position) fragment.append(text.slice(position, match.index));
    const sign = document.createElement("span");
    sign.className = "sign";
    const code = match[0].codePointAt(0);
    sign.textContent = code < 32 ? String.fromCharCode(0x2400 + code)
      : "U+" + code.toString(16).toUpperCase().padStart(4, "0");
    fragment.append(sign);
    position = match.index + match[0].length;
  }
  fragment.append(text.slice(position));
  return fragment;
}

const count = (number) => Math.round(number).toLocaleString("en-US");
const plural = (number, noun) => count(number) + " " + noun + (number === 1 ? "" : "s");
function short(number) {
  if (Math.abs(number) >= 999950) return (number / 1e6).toFixed(1) + "M";
  return Math.abs(number) >= 1000 ? (number / 1000).toFixed(1) + "k" : String(Math.round(number));
}
function dollars(amount) {
  if (amount === null || amount === undefined) return "unknown";
  if (amount === 0) return "$0";
  return "$" + amount.toFixed(amount >= 10 ? 2 : amount >= 0.1 ? 3 : amount >= 0.0001 ? 4 : 6);
}
const share = (part, whole) => (whole ? ((100 * part) / whole).toFixed(part / whole < 0.1 ? 1 : 0) + " %" : "–");
const clock = (at) => (at === null || at === undefined ? "" : new Date(at * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC");
function lasting(seconds) {
  if (seconds >= 172800) return Math.round(seconds / 86400) + " days";
  if (seconds >= 5400) return (seconds / 3600).toFixed(1) + " h";
  return seconds >= 90 ? Math.round(seconds / 60) + " min" : Math.round(seconds) + " s";
}

// The data ---------------------------------------------------------------------------------------

async function decodePayload(payload) {
  const binary = atob(payload);
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index += 1) bytes[index] = binary.charCodeAt(index);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

const parsed = new Promise((resolve) => {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", resolve);
  else resolve();
});

async function readElement(id) {
  let holder = byId(id);
  if (!holder) {
    await parsed; // the data comes after the script, so that the first screen does not wait for it
    holder = byId(id);
  }
  return decodePayload(holder.textContent);
}

class Chunks {
  constructor(name, firstNumbers) {
    this.name = name;
    this.firstNumbers = firstNumbers;
    this.chunks = new Map();
  }

  find(number) {
    let low = 0;
    let high = this.firstNumbers.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.firstNumbers[middle] <= number) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  async loadChunk(index) {
    let chunk = this.chunks.get(index);
    if (!chunk) chunk = readElement(this.name + "-" + index);
    this.chunks.delete(index);
    this.chunks.set(index, chunk);
    if (this.chunks.size > MAX_CHUNKS_IN_MEMORY) this.chunks.delete(this.chunks.keys().next().value);
    return chunk;
  }

  async get(number) {
    const index = this.find(number);
    return (await this.loadChunk(index))[number - this.firstNumbers[index]];
  }
}

let session;
let structure;
let texts;
let bodies;

function loadStructure() {
  structure = structure || readElement("structure").then(indexStructure);
  return structure;
}

function indexStructure(raw) {
  const indexBySeq = new Map(raw.messages.seq.map((seq, index) => [seq, index]));
  const messageByText = new Map();
  raw.messages.parts.forEach((parts, index) => {
    parts.forEach((part, place) => {
      if (!messageByText.has(part[2])) messageByText.set(part[2], [index, place]);
    });
  });
  return { ...raw, indexBySeq, messageByText, checkpoints: new Map([[-1, []]]) };
}

function applySplices(blocks, splices) {
  for (let index = 0; index < splices.length; index += SPLICE_STEP) {
    const [start, gone, first, many] = splices.slice(index, index + SPLICE_STEP);
    const fresh = Array.from({ length: many }, (_, place) => first + place);
    if (start === blocks.length && !gone) for (const number of fresh) blocks.push(number);
    else blocks.splice(start, gone, ...fresh);
  }
}

// The numbers of the blocks that a call sent.
function listBlocks(all, call) {
  let from = call - (call % CHECKPOINT_CALLS) - 1;
  while (from >= 0 && !all.checkpoints.has(from)) from -= CHECKPOINT_CALLS;
  from = Math.max(from, -1);
  const blocks = all.checkpoints.get(from).slice();
  for (let index = from + 1; index <= call; index += 1) {
    applySplices(blocks, all.splices[index]);
    if (index % CHECKPOINT_CALLS === CHECKPOINT_CALLS - 1) all.checkpoints.set(index, blocks.slice());
  }
  return blocks;
}

// For each block: the calls that sent it, as first and last call.
function listSpans(all) {
  if (all.spans) return all.spans;
  const spans = all.blocks.seq.map(() => []);
  const blocks = [];
  all.splices.forEach((splices, call) => {
    for (let index = 0; index < splices.length; index += SPLICE_STEP) {
      const [start, gone, first, many] = splices.slice(index, index + SPLICE_STEP);
      for (const number of blocks.slice(start, start + gone)) spans[number].at(-1)[1] = call - 1;
      for (let number = first; number < first + many; number += 1) spans[number].push([call, null]);
      applySplices(blocks, [start, gone, first, many]);
    }
  });
  const last = all.splices.length - 1;
  for (const number of blocks) spans[number].at(-1)[1] = last;
  const byMessage = new Map();
  all.blocks.seq.forEach((seq, number) => {
    if (!seq) return;
    if (!byMessage.has(seq)) byMessage.set(seq, []);
    byMessage.get(seq).push(number);
  });
  all.spans = spans;
  all.blocksBySeq = byMessage;
  return spans;
}

// Which rewinds are in force at a position: an event counts unless one of them undid it.
function listUndone(position) {
  const undone = [];
  let end = Infinity;
  for (const [at, to] of session.rewinds.filter(([seq]) => seq <= position).reverse()) {
    if (at > end) continue;
    undone.push([to, at]);
    end = to;
  }
  return undone;
}
const isUndone = (undone, seq) => undone.some(([to, at]) => seq > to && seq <= at);

// For each message up to a position: the index of the edit that hides it first, or -1.
function listHidingEdits(all, position) {
  const seqs = all.messages.seq;
  const hiding = new Int32Array(seqs.length).fill(-1);
  const next = Int32Array.from({ length: seqs.length + 1 }, (_, index) => index);
  const find = (index) => {
    let root = index;
    while (next[root] !== root) root = next[root];
    while (next[index] !== root) [index, next[index]] = [next[index], root];
    return root;
  };
  const undone = listUndone(position);
  session.edits.forEach((edit, number) => {
    if (edit.seq > position || edit.part !== null || isUndone(undone, edit.seq)) return;
    if (!["drop", "summarise", "reveal", "client", "erase"].includes(edit.op)) return;
    const first = lowerBound(seqs, edit.first);
    const end = lowerBound(seqs, edit.last + 1);
    if (edit.op === "reveal") {
      for (let index = first; index < end; index += 1) { hiding[index] = -1; next[index] = index; }
      return;
    }
    const spared = new Set(edit.spares);
    for (let index = find(first); index < end; index = find(index + 1)) {
      if (spared.has(seqs[index])) continue;
      hiding[index] = number;
      next[index] = index + 1;
    }
  });
  return { hiding, undone };
}

function lowerBound(sorted, wanted) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

async function decodeBody(encoded) {
  if (encoded === null || typeof encoded !== "object") return encoded;
  if (!Array.isArray(encoded)) {
    const pairs = await Promise.all(
      Object.entries(encoded).map(async ([key, value]) => [key, await decodeBody(value)]),
    );
    // A map, because `__proto__` may be a key.
    return new Map(pairs);
  }
  const [tag, ...rest] = encoded;
  if (tag === "l") return Promise.all(rest.map(decodeBody));
  if (tag === "n") return { number: rest[0] };
  const pieces = await Promise.all(
    rest.map(async (piece) => {
      if (typeof piece === "string") return piece;
      if (typeof piece === "number") return texts.get(piece);
      return (await texts.get(piece[0])).slice(piece[1], piece[2]);
    }),
  );
  return pieces.join("");
}

// Canonical JSON: sorted keys, no spaces, ASCII only. With `indent`, for people.
function writeJson(value, indent = "") {
  if (value === null || typeof value === "boolean" || typeof value === "number") return String(value);
  if (typeof value === "string") {
    const quoted = JSON.stringify(value);
    return indent ? quoted : quoted.replace(/[\u007f-\uffff]/g, (one) => "\\u" + one.charCodeAt(0).toString(16).padStart(4, "0"));
  }
  const inner = indent && indent + "  ";
  const join = (items, open, close) => {
    if (!items.length) return open + close;
    return indent ? open + inner + items.join("," + inner) + indent + close : open + items.join(",") + close;
  };
  if (Array.isArray(value)) return join(value.map((one) => writeJson(one, inner)), "[", "]");
  if (value instanceof Map) {
    const keys = [...value.keys()];
    if (!indent) keys.sort((one, other) => (one < other ? -1 : 1));
    const colon = indent ? ": " : ":";
    return join(keys.map((key) => writeJson(key, indent) + colon + writeJson(value.get(key), inner)), "{", "}");
  }
  return value.number;
}

// What people read of a body: texts, calls of tools, pictures. Nothing is left out.
function readBody(body) {
  const pieces = [];
  const read = (value) => {
    if (typeof value === "string") return pieces.push({ text: value });
    if (Array.isArray(value)) return value.forEach(read);
    if (!(value instanceof Map)) return pieces.push({ text: writeJson(value, "\n") });
    const get = (key) => value.get(key);
    const type = get("type") ?? get("kind");
    const source = get("source");
    const wire = get("function") instanceof Map ? get("function") : value;
    const input = wire.get("arguments") ?? wire.get("input");
    if (source instanceof Map && RASTER.test(source.get("media_type") || "") && source.get("data")) {
      return pieces.push({ image: "data:" + source.get("media_type") + ";base64," + source.get("data") });
    }
    if (typeof get("data") === "string" && RASTER.test(get("mime") || "")) {
      return pieces.push({ image: "data:" + get("mime") + ";base64," + get("data") });
    }
    const link = get("image_url") instanceof Map ? get("image_url").get("url") : get("image_url");
    if (typeof link === "string" && /^data:image\/(png|jpeg|gif|webp);base64,/.test(link)) {
      return pieces.push({ image: link });
    }
    if (typeof get("text") === "string") return pieces.push({ text: get("text") });
    if (typeof get("thinking") === "string") return pieces.push({ text: get("thinking"), note: "thinking" });
    if (input !== undefined && wire.get("name")) {
      return pieces.push({ text: typeof input === "string" ? prettyArguments(input) : writeJson(input, "\n"), note: wire.get("name") });
    }
    const nested = [get("content"), get("output"), get("tool_calls"), get("summary")].filter((one) => one !== undefined && one !== null);
    if (nested.length && (get("role") || type)) return nested.forEach(read);
    return pieces.push({ text: writeJson(value, "\n"), note: String(type || "") });
  };
  read(body);
  return pieces;
}

function prettyArguments(text) {
  if (text.length > 20000 || !/^\s*[{[]/.test(text)) return text;
  try {
    const value = JSON.parse(text);
    // A number that a browser would round stays as it was written.
    return /\d{16}/.test(text) ? text : JSON.stringify(value, null, 2);
  } catch {
    return text;
  }
}

// Lists of any length: only what is near the screen is in the page. -----------------------------------

class LongList {
  constructor(holder, total, rowHeight, makeRow, label) {
    holder.replaceChildren();
    this.makeRow = makeRow;
    this.total = total;
    this.pages = [];
    this.observer = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) this.fill(entry.target);
        else this.empty(entry.target);
      }
    }, { rootMargin: "800px 0px" });
    for (let start = 0; start < total; start += PAGE_ROWS) {
      const page = element("div", { class: "rows", role: "presentation" });
      page.start = start;
      page.style.minHeight = Math.min(PAGE_ROWS, total - start) * rowHeight + "px";
      this.pages.push(page);
      holder.append(page);
      this.observer.observe(page);
    }
    if (label) holder.setAttribute("aria-label", label);
    if (this.pages.length) this.fill(this.pages[0]);
  }

  fill(page) {
    if (page.isFilled) return;
    page.isFilled = true;
    page.style.minHeight = "";
    const end = Math.min(page.start + PAGE_ROWS, this.total);
    for (let index = page.start; index < end; index += 1) page.append(this.makeRow(index));
  }

  empty(page) {
    if (!page.isFilled || page === this.pages[0] || page.contains(document.activeElement)) return;
    const height = page.offsetHeight;
    if (!height) return;
    page.style.minHeight = height + "px";
    page.replaceChildren();
    page.isFilled = false;
  }

  show(index, selector) {
    const page = this.pages[Math.floor(index / PAGE_ROWS)];
    if (!page) return;
    this.fill(page);
    const row = page.children[index % PAGE_ROWS];
    row?.scrollIntoView({ block: "center" });
    (selector ? row?.querySelector(selector) : row)?.focus({ preventScroll: true });
  }

  stop() {
    this.observer.disconnect();
  }
}

// A text of any length, in pieces that are drawn when they come near the screen.
function showText(holder, text, { whole = false } = {}) {
  holder.replaceChildren();
  if (text.length <= PREVIEW_CHARS && text.split("\n").length <= PREVIEW_LINES + 4) {
    holder.append(element("pre", {}, text));
    return;
  }
  if (!whole) {
    let end = Math.min(text.length, PREVIEW_CHARS);
    let line = -1;
    for (let number = 0; number < PREVIEW_LINES; number += 1) {
      line = text.indexOf("\n", line + 1);
      if (line < 0 || line >= end) break;
      if (number === PREVIEW_LINES - 1) end = line;
    }
    const lineEnd = text.lastIndexOf("\n", end);
    if (lineEnd > end / 2) end = lineEnd;
    const more = element("button", { class: "link", click: () => showText(holder, text, { whole: true }) },
      "Show all " + count(text.length) + " characters");
    holder.append(element("pre", {}, text.slice(0, end)), more);
    return;
  }
  if (text.length <= LONG_TEXT_CHARS) {
    holder.append(element("pre", {}, text));
    return;
  }
  const pieces = [];
  for (let start = 0; start < text.length;) {
    let end = Math.min(text.length, start + PIECE_CHARS);
    const line = end < text.length ? text.lastIndexOf("\n", end) : -1;
    if (line > start) end = line + 1;
    pieces.push(text.slice(start, end));
    start = end;
  }
  const box = element("div", { class: "long", tabindex: 0, role: "group", "aria-label": "the whole text" });
  holder.append(box);
  new LongList(box, pieces.length, 900, (index) => element("pre", {}, pieces[index].replace(/\n$/, "")));
}

// The first screen ------------------------------------------------------------------------------------

let columns;
let totals;

function computeTotals() {
  columns = session.calls;
  totals = { cost: [0, 0, 0, 0], input: 0, read: 0, write: 0, output: 0, reported: 0, lost: 0, lostDollars: 0, breaks: 0, errors: 0, unverified: 0, unpriced: 0 };
  for (let index = 0; index < columns.seq.length; index += 1) {
    const parts = columns.dollars[index];
    if (parts) parts.forEach((part, place) => { totals.cost[place] += part; });
    if (columns.input[index] !== null) {
      totals.reported += 1;
      totals.input += columns.input[index];
      totals.read += columns.read[index];
      totals.write += columns.write[index];
      totals.output += columns.output[index];
      if (!parts) totals.unpriced += 1;
    }
    if (columns.lost[index]) {
      totals.breaks += 1;
      totals.lost += columns.lost[index];
      totals.lostDollars += columns.lostDollars[index];
    }
    if (columns.status[index] === "error") totals.errors += 1;
    if (columns.verified[index] === false) totals.unverified += 1;
  }
  totals.dollars = totals.cost.reduce((sum, one) => sum + one, 0);
  totals.priced = totals.reported > totals.unpriced;
}

const callTokens = (call) => columns.sections[call].reduce((sum, one) => sum + one, 0);
const callDollars = (call) => (columns.dollars[call] ? columns.dollars[call].reduce((sum, one) => sum + one, 0) : null);
const callLink = (call, words) => element("a", { href: "#call=" + (call + 1) }, words || "call " + count(call + 1));
const messageLink = (seq, words) => element("a", { href: "#m" + seq, class: "handle" }, words || "m" + seq);

function editsBetween(call) {
  const from = call ? columns.seq[call - 1] : 0;
  const edits = session.edits;
  const first = lowerBound(session.editSeqs, from + 1);
  const between = [];
  for (let index = first; index < edits.length && edits[index].seq <= columns.seq[call]; index += 1) between.push(edits[index]);
  return between;
}

function callOfSeq(seq) {
  const index = lowerBound(columns.seq, seq);
  return index < columns.seq.length ? index : columns.seq.length - 1;
}

function nameEdited(edit) {
  if (!edit.first) return "";
  if (edit.part !== null) return "m" + edit.first + "." + edit.part;
  return edit.first === edit.last ? "m" + edit.first : "m" + edit.first + "–m" + edit.last;
}

function describeEdit(edit) {
  const what = nameEdited(edit);
  return (what ? what + " " : "") + (EDIT_NAMES[edit.op] || edit.op);
}

function drawFacts() {
  const calls = columns.seq.length;
  const fact = (name, value, note, tone) => element("div", { class: "fact" + (tone ? " " + tone : "") },
    element("dt", {}, name), element("dd", {}, element("strong", {}, value), note ? element("span", {}, note) : ""));
  const times = columns.at.filter((at) => at !== null);
  const span = times.length > 1 ? lasting(times.at(-1) - times[0]) : "";
  const peak = columns.sections.reduce((most, sections) => Math.max(most, sections.reduce((sum, one) => sum + one, 0)), 0);
  const saved = session.edits.reduce((sum, edit) => sum + Math.max(0, edit.saved), 0);
  byId("facts").replaceChildren(
    fact("Calls", count(calls), span ? "in " + span : ""),
    fact("Cost", totals.priced ? dollars(totals.dollars) : "unknown",
      totals.priced ? "at list prices" + (calls > totals.reported ? ", of " + plural(totals.reported, "call") : "") : "no usage or no price"),
    fact("Read from the cache", totals.reported ? share(totals.read, totals.input) : "–", totals.reported ? "of " + short(totals.input) + " input tokens" : "no usage reported"),
    fact("Cache breaks", count(totals.breaks), totals.breaks ? dollars(totals.lostDollars) + " to send again" : "none reported", totals.breaks ? "warn" : ""),
    fact("Largest request", short(peak), "tokens"),
    fact("Hidden", short(saved), "tokens, by " + plural(session.edits.length, "change")),
  );
}

function drawFindings() {
  const lines = [];
  const namesByCall = new Map();
  for (const name of session.names.filter((one) => !one.isRecall)) namesByCall.set(name.call, [...(namesByCall.get(name.call) || []), name]);
  const naming = [...namesByCall].sort((one, other) => other[1].length - one[1].length);
  for (const [call, names] of naming.slice(0, 3)) lines.push(describeHiddenNames(call, names));
  if (naming.length > 3) lines.push(moreItem(plural(naming.length - 3, "more call") + " that named hidden texts", naming.slice(3, 100).map(([call, names]) => describeHiddenNames(call, names))));
  const recalled = session.names.filter((name) => name.isRecall);
  if (recalled.length) {
    lines.push(element("li", {}, recalled.length === 1 ? "The model asked for a hidden text: " : "The model asked for hidden texts " + count(recalled.length) + " times: ",
      ...recalled.slice(0, 6).flatMap((name, index) => [index ? ", " : "", messageLink(name.source, name.name), " at ", callLink(name.call), ...hiddenSince(name.source, name.call)]),
      recalled.length > 6 ? " and more." : "."));
  }
  const breaks = columns.seq.map((_, call) => call).filter((call) => columns.lost[call]);
  breaks.sort((one, other) => columns.lost[other] - columns.lost[one]);
  for (const call of breaks.slice(0, 3)) lines.push(describeBreak(call));
  if (breaks.length > 3) lines.push(moreItem(plural(breaks.length - 3, "smaller cache break"), breaks.slice(3, 100).map(describeBreak)));
  const errors = columns.seq.map((_, call) => call).filter((call) => columns.status[call] === "error");
  if (errors.length) lines.push(element("li", { class: "warn" }, plural(errors.length, "call") + " failed: ",
    ...errors.slice(0, 5).flatMap((call, index) => [index ? ", " : "", callLink(call), columns.note[call] ? " (" + columns.note[call] + ")" : ""]), "."));
  if (totals.unverified) lines.push(element("li", { class: "warn" }, plural(totals.unverified, "call") +
    " cannot be shown exactly as sent: the rebuilt request has another hash, because something was erased since or the renderer changed."));
  if (!lines.length) lines.push(element("li", {}, "Nothing stands out: no hidden text was named later, and no cache break was reported."));
  byId("findings").replaceChildren(...lines);
}

// Changes by kind: `3 replaced by a line (m8.0, m12.0, …; the rule)`.
function describeEdits(edits) {
  const kinds = new Map();
  for (const edit of edits) kinds.set(edit.op, [...(kinds.get(edit.op) || []), edit]);
  return [...kinds].flatMap(([op, same], index) => {
    const named = same.filter((edit) => edit.first).slice(0, 3);
    const why = same.find((edit) => edit.why)?.why;
    return [index ? "; " : "", ...named.flatMap((edit, place) => [place ? ", " : "", messageLink(edit.first, nameEdited(edit))]),
      same.length > 3 ? " and " + count(same.length - 3) + " more" : "", " " + (EDIT_NAMES[op] || op), why ? " (" + why + ")" : ""];
  });
}

function describeBreak(call) {
  const edits = editsBetween(call);
  return element("li", { class: "warn" }, "The cache broke at ", callLink(call), ": " + count(columns.lost[call]) +
    " tokens were sent again" + (columns.lostDollars[call] ? ", for " + dollars(columns.lostDollars[call]) : "") + ". Why: " + session.reasons[columns.because[call]],
    edits.length ? [". Before it: ", ...describeEdits(edits)] : "", ".");
}

// The change that hid a message first, as a later call found it; undefined if none did.
function findHidingEdit(seq, call) {
  let hiding;
  for (const edit of session.edits) {
    if (edit.seq > columns.seq[call]) break;
    if (seq < edit.first || seq > edit.last) continue;
    if (edit.op === "reveal") hiding = undefined;
    else hiding = hiding || edit;
  }
  return hiding;
}

function hiddenSince(seq, call) {
  const edit = findHidingEdit(seq, call);
  return edit ? [", hidden since ", callLink(callOfSeq(edit.seq)), edit.why ? " (" + edit.why + ")" : ""] : [];
}

function describeHiddenNames(call, names) {
  return element("li", { class: "warn" }, "At ", callLink(call), " the model named ", names.length === 1 ? "a text that was hidden from it: " : count(names.length) + " texts that were hidden from it: ",
    ...names.slice(0, 4).flatMap((name, place) => [place ? ", " : "", element("code", {}, name.name), " (", messageLink(name.source), ...hiddenSince(name.source, call), ")"]), names.length > 4 ? " and more." : ".");
}

const moreItem = (words, items) => element("li", { class: "plain" }, element("details", {}, element("summary", {}, words), element("ul", {}, items)));

function drawMoney() {
  const body = byId("money");
  const names = ["fresh input", "cache reads", "cache writes", "output"];
  const tokens = [totals.input - totals.read - totals.write, totals.read, totals.write, totals.output];
  if (!totals.reported) {
    body.replaceChildren(element("p", { class: "soft" }, "The log has no usage, so there is no bill."));
  } else {
    const most = Math.max(...totals.cost, 1e-12);
    body.replaceChildren(element("table", {}, element("thead", {}, element("tr", {}, ...["kind", "tokens", "cost", "share"].map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, names.map((name, index) => {
        const bar = element("span", { class: "bar m" + index });
        bar.style.width = (100 * totals.cost[index]) / most + "%";
        return element("tr", {}, element("th", { scope: "row" }, name, bar), element("td", {}, count(Math.max(0, tokens[index]))),
          element("td", {}, totals.priced ? dollars(totals.cost[index]) : "?"), element("td", {}, totals.priced ? share(totals.cost[index], totals.dollars) : "–"));
      }))));
    const dear = columns.seq.map((_, call) => call).filter((call) => columns.dollars[call]);
    dear.sort((one, other) => callDollars(other) - callDollars(one));
    if (dear.length > 1) body.append(element("p", { class: "soft" }, "Dearest: ",
      ...dear.slice(0, 4).flatMap((call, index) => [index ? ", " : "", callLink(call), " " + dollars(callDollars(call))]), "."));
  }
}

// What the input of all calls consisted of. It needs the structure, so it comes after the first paint.
async function drawComposition() {
  const all = await loadStructure();
  const spans = listSpans(all);
  const sums = new Map();
  const add = (name, tokens) => sums.set(name, (sums.get(name) || 0) + tokens);
  all.blocks.seq.forEach((seq, number) => {
    if (!seq) return;
    const calls = spans[number].reduce((sum, [first, last]) => sum + last - first + 1, 0);
    const kind = session.kinds[all.blocks.kind[number]];
    const label = all.labels[all.blocks.label[number]];
    add(kind === "result" ? "results of " + (label || "tools") : kind === "call" ? "calls of " + (label || "tools") : SECTION_NAMES[kind], all.blocks.tokens[number] * calls);
  });
  session.kinds.forEach((kind, place) => {
    if (!["system", "words", "summary"].includes(kind)) return;
    add(SECTION_NAMES[kind], columns.sections.reduce((sum, sections) => sum + sections[place], 0));
  });
  const rows = [...sums].filter(([, tokens]) => tokens).sort((one, other) => other[1] - one[1]);
  const whole = rows.reduce((sum, [, tokens]) => sum + tokens, 0);
  byId("composition").replaceChildren(element("table", {}, element("thead", {}, element("tr", {}, ...["part", "tokens, all calls", "share"].map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, rows.slice(0, 8).map(([name, tokens]) => {
      const bar = element("span", { class: "bar" });
      bar.style.width = (100 * tokens) / rows[0][1] + "%";
      return element("tr", {}, element("th", { scope: "row" }, name, bar), element("td", {}, short(tokens)), element("td", {}, share(tokens, whole)));
    }))));
}

// The timeline ------------------------------------------------------------------------------------------

const timeline = { from: 0, to: 0, selected: 0, bars: [] };

const colours = new Map();

// The colour of the theme as a canvas takes it. An element resolves it.
function colour(name) {
  const key = document.documentElement.dataset.theme + name;
  if (!colours.has(key)) {
    const probe = document.createElement("i");
    probe.hidden = true;
    probe.style.color = "var(--" + name + ")";
    document.body.append(probe);
    colours.set(key, getComputedStyle(probe).color);
    probe.remove();
  }
  return colours.get(key);
}

function drawTimeline() {
  const canvas = byId("timeline");
  const width = canvas.clientWidth;
  if (!width) return;
  const ratio = window.devicePixelRatio || 1;
  const height = canvas.clientHeight;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const left = 46;
  const inner = width - left - 8;
  const calls = timeline.to - timeline.from;
  const many = Math.min(calls, Math.max(1, Math.floor(inner / 3)));
  const bars = [];
  for (let index = 0; index < many; index += 1) {
    const first = timeline.from + Math.floor((index * calls) / many);
    const end = Math.max(first + 1, timeline.from + Math.floor(((index + 1) * calls) / many));
    let largest = first;
    let lost = -1;
    for (let call = first; call < end; call += 1) {
      if (callTokens(call) > callTokens(largest)) largest = call;
      if (columns.lost[call] && (lost < 0 || columns.lost[call] > columns.lost[lost])) lost = call;
    }
    bars.push({ first, end, largest, lost, left: left + (index * inner) / many, width: inner / many });
  }
  timeline.bars = bars;
  const marksTop = 4;
  const top = 20;
  const bottom = Math.round(height * 0.66);
  const cacheTop = bottom + 26;
  const cacheBottom = height - 18;
  const peak = Math.max(1, ...bars.map((bar) => callTokens(bar.largest)));
  const near = (values) => values.filter((value) => value && value <= 1.6 * peak);
  const limits = bars.map((bar) => columns.limit[bar.largest]);
  const lows = bars.map((bar) => columns.low[bar.largest]);
  const scale = Math.max(peak, ...near(limits), ...near(lows)) * 1.04;
  const y = (tokens) => bottom - ((bottom - top) * tokens) / scale;
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const grid = niceStep(scale);
  for (let tokens = 0; tokens <= scale; tokens += grid) {
    pen.fillStyle = colour("grid");
    pen.fillRect(left, Math.round(y(tokens)), inner, 1);
    pen.fillStyle = colour("soft");
    pen.textAlign = "right";
    pen.fillText(short(tokens), left - 6, y(tokens));
  }
  const gap = many && inner / many > 4 ? 1 : 0;
  for (const bar of bars) {
    let base = 0;
    columns.sections[bar.largest].forEach((tokens, place) => {
      if (!tokens) return;
      pen.fillStyle = colour("k" + place);
      pen.fillRect(bar.left, y(base + tokens), Math.max(0.8, bar.width - gap), y(base) - y(base + tokens));
      base += tokens;
    });
  }
  line(pen, bars, limits, y, colour("limit"), [], scale);
  line(pen, bars, lows, y, colour("low"), [5, 4], scale);
  drawMarks(pen, bars, marksTop);
  drawCache(pen, bars, cacheTop, cacheBottom, gap, left, inner);
  const chosen = bars.find((bar) => timeline.selected >= bar.first && timeline.selected < bar.end);
  if (chosen) {
    pen.strokeStyle = colour("ink");
    pen.lineWidth = 1.5;
    pen.strokeRect(chosen.left - 1, top - 2, Math.max(2, chosen.width - gap) + 2, cacheBottom - top + 4);
  }
  pen.fillStyle = colour("soft");
  pen.textAlign = "left";
  pen.fillText("call " + count(timeline.from + 1), left, height - 7);
  pen.textAlign = "right";
  if (timeline.to - timeline.from > 1) pen.fillText("call " + count(timeline.to), left + inner, height - 7);
  byId("out").hidden = calls === columns.seq.length;
}

function niceStep(scale) {
  const rough = scale / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].find((step) => step * power >= rough) * power;
}

function line(pen, bars, values, y, stroke, dash, scale) {
  pen.strokeStyle = stroke;
  pen.lineWidth = 1.5;
  pen.setLineDash(dash);
  pen.beginPath();
  let isDrawing = false;
  bars.forEach((bar, index) => {
    const value = values[index];
    if (!value || value > scale) { isDrawing = false; return; }
    if (!isDrawing) pen.moveTo(bar.left, y(value));
    pen.lineTo(bar.left, y(value));
    pen.lineTo(bar.left + bar.width, y(value));
    isDrawing = true;
  });
  pen.stroke();
  pen.setLineDash([]);
}

function drawMarks(pen, bars, top) {
  let number = lowerBound(session.editSeqs, timeline.from ? columns.seq[timeline.from - 1] : 0);
  for (const bar of bars) {
    const end = columns.seq[bar.end - 1];
    const ops = new Set();
    while (number < session.edits.length && session.edits[number].seq <= end) {
      ops.add(session.edits[number].op);
      number += 1;
    }
    if (!ops.size) continue;
    const strong = ["summarise", "drop", "client", "rewind", "erase"].some((op) => ops.has(op));
    const middle = bar.left + bar.width / 2;
    pen.fillStyle = colour(strong ? "strong" : "mark");
    pen.beginPath();
    pen.moveTo(middle - 4, top);
    pen.lineTo(middle + 4, top);
    pen.lineTo(middle, top + 7);
    pen.fill();
  }
}

function drawCache(pen, bars, top, bottom, gap, left, inner) {
  pen.fillStyle = colour("soft");
  pen.textAlign = "left";
  pen.fillText(totals.reported ? "Reported input" : "The log reports no usage", left, top - 9);
  if (!totals.reported) return;
  const most = Math.max(1, ...bars.map((bar) => columns.input[bar.largest] || 0));
  for (const bar of bars) {
    const call = bar.lost >= 0 ? bar.lost : bar.largest;
    if (columns.input[call] === null) continue;
    const parts = [[columns.read[call], "read"], [columns.write[call], "write"], [columns.input[call] - columns.read[call] - columns.write[call], "fresh"]];
    let base = bottom;
    for (const [tokens, name] of parts) {
      const tall = ((bottom - top) * Math.max(0, tokens)) / most;
      pen.fillStyle = colour(name);
      pen.fillRect(bar.left, base - tall, Math.max(0.8, bar.width - gap), tall);
      base -= tall;
    }
    if (bar.lost >= 0) {
      pen.fillStyle = colour("break");
      const tall = totals.breaks > 40 ? 9 : bottom - top + 3;
      pen.fillRect(bar.left + bar.width / 2 - 1, top - 3, 2, tall);
    }
  }
  pen.fillStyle = colour("grid");
  pen.fillRect(left, bottom, inner, 1);
}

function barAt(event) {
  const place = event.clientX - byId("timeline").getBoundingClientRect().left;
  return timeline.bars.find((bar) => place >= bar.left && place < bar.left + bar.width);
}

function describeCall(call) {
  const parts = ["Call " + count(call + 1), count(callTokens(call)) + " tokens"];
  if (columns.limit[call]) parts[1] += " of " + count(columns.limit[call]);
  if (columns.input[call] !== null) parts.push(count(columns.input[call]) + " reported, " + share(columns.read[call], columns.input[call]) + " from the cache");
  if (callDollars(call) !== null) parts.push(dollars(callDollars(call)));
  const edits = editsBetween(call);
  if (edits.length) parts.push(edits.slice(0, 3).map((edit) => describeEdit(edit)).join(", ") + (edits.length > 3 ? " and " + count(edits.length - 3) + " more changes" : "") + (edits[0].why ? ": " + edits[0].why : ""));
  if (columns.lost[call]) parts.push("cache broken: " + session.reasons[columns.because[call]]);
  return parts.join(" · ");
}

function selectCall(call, { redraw = true } = {}) {
  timeline.selected = Math.max(0, Math.min(columns.seq.length - 1, call));
  const canvas = byId("timeline");
  canvas.setAttribute("aria-valuenow", timeline.selected + 1);
  canvas.setAttribute("aria-valuetext", describeCall(timeline.selected));
  byId("hover").replaceChildren(visibleText(describeCall(timeline.selected)));
  if (timeline.selected < timeline.from || timeline.selected >= timeline.to) zoom(timeline.selected, timeline.to - timeline.from);
  else if (redraw) drawTimeline();
}

function zoom(middle, calls) {
  const many = Math.max(Math.min(10, columns.seq.length), Math.min(columns.seq.length, Math.round(calls)));
  timeline.from = Math.max(0, Math.min(columns.seq.length - many, Math.round(middle - many / 2)));
  timeline.to = timeline.from + many;
  drawTimeline();
}

function startTimeline() {
  const canvas = byId("timeline");
  timeline.to = columns.seq.length;
  canvas.setAttribute("aria-valuemin", 1);
  canvas.setAttribute("aria-valuemax", columns.seq.length);
  canvas.addEventListener("mousemove", (event) => {
    const bar = barAt(event);
    if (bar) byId("hover").replaceChildren(visibleText(describeCall(bar.lost >= 0 ? bar.lost : bar.largest)));
  });
  canvas.addEventListener("mouseleave", () => selectCall(timeline.selected));
  canvas.addEventListener("click", (event) => {
    const bar = barAt(event);
    if (!bar) return;
    const many = bar.end - bar.first;
    timeline.selected = bar.lost >= 0 ? bar.lost : bar.largest;
    if (many > 1) zoom(bar.first + many / 2, many * 8);
    else location.hash = "call=" + (bar.first + 1);
  });
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: 1, ArrowLeft: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity };
    if (event.key in steps) selectCall(timeline.selected + steps[event.key]);
    else if (event.key === "Enter" || event.key === " ") location.hash = "call=" + (timeline.selected + 1);
    else if (event.key === "+") zoom(timeline.selected, (timeline.to - timeline.from) / 2);
    else if (event.key === "-") zoom(timeline.selected, (timeline.to - timeline.from) * 2);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  byId("in").addEventListener("click", () => zoom(timeline.selected, (timeline.to - timeline.from) / 2));
  byId("out").addEventListener("click", () => zoom(timeline.selected, columns.seq.length));
  new ResizeObserver(drawTimeline).observe(canvas);
  selectCall(columns.seq.length - 1);
}

function describeLimit(item) {
  const limit = columns.limit.findLast((one) => one);
  const peak = columns.sections.reduce((most, sections) => Math.max(most, sections.reduce((sum, one) => sum + one, 0)), 0);
  if (!limit) return "";
  return item("line limit", limit > 1.6 * peak ? "limit, " + count(limit) + ", far above" : "limit");
}

function drawLegend() {
  const present = session.kinds.map((kind, place) => [kind, place]).filter(([, place]) => columns.sections.some((sections) => sections[place]));
  const item = (swatch, words) => element("li", {}, element("i", { class: "swatch " + swatch }), words);
  byId("legend").replaceChildren(
    ...present.map(([kind, place]) => item("k" + place, SECTION_NAMES[kind])),
    describeLimit(item),
    columns.low.some((low) => low) ? item("line low", "low-water mark") : "",
    session.edits.length ? item("triangle", "something was hidden or changed") : "",
    totals.reported ? element("li", {}, "Reported input:") : "",
    totals.reported ? item("read", "read from the cache") : "",
    totals.reported ? item("write", "written to the cache") : "",
    totals.reported ? item("fresh", "fresh") : "",
    totals.breaks ? item("line break", "cache break") : "",
  );
}

function drawCallList() {
  new LongList(byId("calls"), columns.seq.length, 33, (call) => {
    const edits = editsBetween(call);
    const badges = [];
    if (edits.length) badges.push(element("span", { class: "badge" }, edits.length === 1 ? describeEdit(edits[0]) : plural(edits.length, "change")));
    if (columns.lost[call]) badges.push(element("span", { class: "badge warn" }, "cache broken"));
    if (columns.status[call] === "error") badges.push(element("span", { class: "badge warn" }, columns.note[call] || "failed"));
    return element("a", { class: "row", href: "#call=" + (call + 1) },
      element("span", { class: "number" }, count(call + 1)),
      element("span", { class: "time" }, clock(columns.at[call]).slice(5, 19)),
      element("span", { class: "tokens" }, short(callTokens(call))),
      element("span", { class: "tokens" }, columns.input[call] === null ? "" : share(columns.read[call], columns.input[call]) + " cached"),
      element("span", { class: "tokens" }, callDollars(call) === null ? "" : dollars(callDollars(call))),
      element("span", { class: "badges" }, badges));
  }, "all calls");
}

// A call --------------------------------------------------------------------------------------------------

let rowList;

function listRows(all, call) {
  const blocks = listBlocks(all, call);
  const position = columns.position[call];
  const { hiding, undone } = listHidingEdits(all, position);
  const seqs = all.messages.seq;
  const sent = new Set(blocks.map((number) => all.blocks.seq[number]));
  const rows = [{ head: columns.head[call] }];
  const marks = new Set(columns.marks[call]);
  if (marks.has(-1)) rows.push({ boundary: "The prefix up to here is marked for the cache." });
  let next = 0;
  const end = lowerBound(seqs, position + 1);
  const addGhosts = (until) => {
    for (; next < until; next += 1) {
      if (sent.has(seqs[next])) continue;
      const cause = isUndone(undone, seqs[next]) ? -2 : hiding[next];
      const last = rows.at(-1);
      if (last.ghosts && last.cause === cause) last.ghosts.push(next);
      else rows.push({ ghosts: [next], cause });
    }
  };
  let tokens = columns.sections[call][0];
  const reported = columns.input[call];
  const scale = reported ? callTokens(call) / reported : 1;
  const cached = columns.read[call] ? columns.read[call] * scale : null;
  let isCacheShown = cached === null || cached >= callTokens(call) * 0.98;
  blocks.forEach((number, index) => {
    const seq = all.blocks.seq[number];
    if (seq) {
      addGhosts(Math.min(end, lowerBound(seqs, seq)));
      next = Math.max(next, all.indexBySeq.get(seq) + 1);
    }
    if (!isCacheShown && tokens + all.blocks.tokens[number] > cached) {
      rows.push({ boundary: "The provider read " + count(columns.read[call]) + " tokens from its cache: about up to here.", isRead: true });
      isCacheShown = true;
    }
    tokens += all.blocks.tokens[number];
    rows.push({ block: number, index });
    if (marks.has(index)) rows.push({ boundary: "The prefix up to here is marked for the cache." });
  });
  addGhosts(end);
  if (columns.volatile[call] !== null) rows.push({ volatile: columns.volatile[call] });
  return { rows, blocks };
}

const speaker = (role) => ({ user: "User", assistant: "Model", tool: "Tool", system: "System" })[role] || role || "Item";

function blockTitle(all, number) {
  const kind = session.kinds[all.blocks.kind[number]];
  const label = all.labels[all.blocks.label[number]];
  const seq = all.blocks.seq[number];
  if (!seq) return kind === "summary" ? "Summary and notice" : "The user's earlier words";
  if (kind === "result") return "Result" + (label ? " of " + label : "");
  if (kind === "call") return "Call" + (label ? " of " + label : "");
  return speaker(all.messages.role[all.indexBySeq.get(seq)]);
}

const handleOf = (all, number) => "m" + all.blocks.seq[number] + (all.blocks.part[number] === null || all.messages.parts[all.indexBySeq.get(all.blocks.seq[number])]?.length === 1 ? "" : "." + all.blocks.part[number]);

function blockRow(all, number, { tone, previous } = {}) {
  const kind = all.blocks.kind[number];
  const seq = all.blocks.seq[number];
  const edit = all.blocks.edit[number] ? session.edits.find((one) => one.seq === all.blocks.edit[number]) : null;
  const content = element("div", { class: "content" });
  const row = element("article", { class: "block" + (tone ? " " + tone : "") + (edit ? " edited" : ""), "aria-label": blockTitle(all, number) },
    element("header", {}, element("i", { class: "swatch k" + kind }), element("strong", {}, blockTitle(all, number)),
      seq ? messageLink(seq, handleOf(all, number)) : "",
      tone === "new" ? element("span", { class: "badge new" }, "new") : "",
      edit ? element("span", { class: "badge warn" }, EDIT_NAMES[edit.op] || edit.op) : "",
      element("span", { class: "size" }, count(all.blocks.tokens[number]) + " tokens"),
      element("button", { class: "link json", "aria-label": "JSON of " + blockTitle(all, number) + (seq ? " " + handleOf(all, number) : ""), click: async (event) => {
        const isJson = event.target.getAttribute("aria-pressed") === "true";
        event.target.setAttribute("aria-pressed", String(!isJson));
        if (isJson) showBlock(all, number, content);
        else showText(content, writeJson(await decodeBody(await bodies.get(number)), "\n"), { whole: true });
      }, "aria-pressed": "false" }, "JSON")),
    edit ? element("p", { class: "why" }, "Since ", callLink(callOfSeq(edit.seq)), edit.why ? ": " + edit.why : "", ". ",
      element("button", { class: "link original", click: (event) => toggleOriginal(all, event.target, row, seq) }, "Show the original")) : "",
    content);
  if (previous) row.append(element("details", {}, element("summary", {}, "before"), previous));
  showBlock(all, number, content);
  return row;
}

async function showBlock(all, number, content) {
  const body = await decodeBody(await bodies.get(number));
  content.replaceChildren();
  const pieces = readBody(body);
  if (!pieces.length) content.append(element("p", { class: "soft" }, "empty"));
  for (const piece of pieces) {
    const holder = element("div", {});
    if (piece.note && piece.note !== all.labels[all.blocks.label[number]]) content.append(element("span", { class: "note" }, piece.note));
    if (piece.image) {
      const picture = element("img", { alt: "a picture that was sent" });
      picture.src = piece.image;
      holder.append(picture);
    } else showText(holder, piece.text);
    content.append(holder);
  }
}

async function toggleOriginal(all, button, row, seq) {
  const shown = row.querySelector(":scope > .whole");
  button.textContent = shown ? "Show the original" : "Hide the original";
  if (shown) return shown.remove();
  const box = element("div", { class: "whole" });
  row.append(box);
  return showMessage(all, seq, box);
}

// A message as it was said, part by part.
async function showMessage(all, seq, box, open) {
  const index = all.indexBySeq.get(seq);
  if (index === undefined) return box.append(element("p", { class: "soft" }, "The log has no message m" + seq + "."));
  for (const [place, [kind, name, text, tokens]] of all.messages.parts[index].entries()) {
    const holder = element("div", {});
    const label = { call: "calls " + name, result: "result", media: name, block: name }[kind] || "";
    box.append(element("p", { class: "note" }, "m" + seq + "." + place + (label ? " · " + label : "") + " · " + count(tokens) + " tokens"), holder);
    const said = await texts.get(text);
    if (kind === "media" && RASTER.test(name) && !/^https?:/.test(said)) {
      const picture = element("img", { alt: "a picture of this message" });
      picture.src = "data:" + name + ";base64," + said;
      holder.append(picture);
    } else showText(holder, kind === "call" ? prettyArguments(said) : said, { whole: open });
  }
  return undefined;
}

function ghostRow(all, row) {
  const first = all.messages.seq[row.ghosts[0]];
  const last = all.messages.seq[row.ghosts.at(-1)];
  const edit = row.cause >= 0 ? session.edits[row.cause] : null;
  const tokens = row.ghosts.reduce((sum, index) => sum + all.messages.parts[index].reduce((part, one) => part + one[3], 0), 0);
  const why = row.cause === -2 ? "undone by a rewind" : edit ? EDIT_NAMES[edit.op] || edit.op : "not sent";
  const list = element("div", { class: "hidden-messages", hidden: true });
  let isFilled = false;
  const button = element("button", { class: "link reveal", "aria-expanded": "false", click: () => {
    const isOpen = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!isOpen));
    list.hidden = isOpen;
    if (isFilled) return;
    isFilled = true;
    new LongList(list, row.ghosts.length, 70, (place) => {
      const index = row.ghosts[place];
      const seq = all.messages.seq[index];
      const box = element("div", {});
      showMessage(all, seq, box);
      return element("article", { class: "block ghost-item" }, element("header", {}, element("strong", {}, speaker(all.messages.role[index])), messageLink(seq)), box);
    });
  } }, row.ghosts.length === 1 ? "Show it" : "Show them");
  return element("article", { class: "ghost", "aria-label": "hidden messages" },
    element("header", {}, element("strong", {}, row.ghosts.length === 1 ? "m" + first : "m" + first + "–m" + last),
      " " + plural(row.ghosts.length, "message") + " the model does not see: " + why,
      element("span", { class: "size" }, count(tokens) + " tokens")),
    element("p", { class: "why" }, edit ? ["Since ", callLink(callOfSeq(edit.seq)), edit.why ? ": " + edit.why : "", ". "] : "", button), list);
}

function headRow(all, number) {
  const head = session.heads[number];
  const called = new Set(all.blocks.kind.map((kind, index) => session.kinds[kind] === "call" ? all.labels[all.blocks.label[index]] : ""));
  const box = element("div", { class: "content" });
  const show = async (text) => { box.replaceChildren(); showText(box, prettyArguments(await texts.get(text)), { whole: true }); };
  return element("article", { class: "block", "aria-label": "system prompt and tools" },
    element("header", {}, element("i", { class: "swatch k0" }), element("strong", {}, "System prompt and tools"), element("span", { class: "size" }, count(head.tokens) + " tokens")),
    element("p", { class: "why" }, head.system.map((text, index) => element("button", { class: "link", click: () => show(text) }, head.system.length > 1 ? "system prompt, part " + (index + 1) : "System prompt")),
      head.params === null ? "" : element("button", { class: "link", click: () => show(head.params) }, "parameters"),
      head.tools.length ? element("details", {}, element("summary", {}, plural(head.tools.length, "tool")), element("ul", { class: "tools" },
        head.tools.map(([name, tokens, text]) => element("li", {}, element("button", { class: "link", click: () => show(text) }, name || "unnamed"), " " + count(tokens) + " tokens" + (name && !called.has(name) ? ", never called" : ""))))) : ""), box);
}

function volatileRow(number) {
  const content = element("div", { class: "content" });
  texts.get(number).then((text) => showText(content, text));
  return element("article", { class: "block", "aria-label": "for this call only" }, element("header", {}, element("i", { class: "swatch k7" }), element("strong", {}, "For this call only")), content);
}

function sectionBar(call) {
  const whole = callTokens(call);
  return element("div", { class: "stack", role: "img", "aria-label": session.kinds.map((kind, place) => SECTION_NAMES[kind] + " " + count(columns.sections[call][place])).join(", ") + " tokens" },
    columns.sections[call].map((tokens, place) => {
      const part = element("span", { class: "k" + place });
      part.style.width = (100 * tokens) / Math.max(1, whole) + "%";
      return tokens ? part : "";
    }));
}

async function openCall(call) {
  const all = await loadStructure();
  const { rows, blocks } = listRows(all, call);
  const before = new Set(call ? listBlocks(all, call - 1) : []);
  const isNew = (number) => call > 0 && !before.has(number);
  const fresh = rows.map((row, index) => index).filter((index) => rows[index].block !== undefined && isNew(rows[index].block));
  const edits = editsBetween(call);
  const calls = columns.seq.length;
  const heading = element("div", { class: "heading" },
    element("h2", { tabindex: -1, id: "title" }, "Call " + count(call + 1), element("small", {}, " of " + count(calls) + " · " + (clock(columns.at[call]) || "no time recorded"))),
    element("nav", { "aria-label": "calls" },
      call ? element("a", { class: "button", href: "#call=" + call, rel: "prev" }, "← previous") : "",
      call + 1 < calls ? element("a", { class: "button", href: "#call=" + (call + 2), rel: "next" }, "next →") : "",
      call ? element("a", { class: "button", href: "#diff=" + call + "," + (call + 1) }, "Compare with the call before") : ""));
  const facts = element("p", { class: "callfacts" }, describeUsage(call));
  const head = session.heads[columns.head[call]];
  const legend = element("ul", { class: "legend" }, session.kinds.map((kind, place) => columns.sections[call][place]
    ? element("li", {}, element("i", { class: "swatch k" + place }), SECTION_NAMES[kind] + " " + short(columns.sections[call][place])) : ""));
  const notes = element("ul", { class: "findings" });
  if (columns.verified[call] === false) notes.append(element("li", { class: "warn" }, "This is not exactly what was sent: the rebuilt request has another hash than the recorded one. Something was erased since, or the renderer changed."));
  if (columns.verified[call]) notes.append(element("li", { class: "good" }, "This is what the model saw: the request was rebuilt from the log, and its hash is the recorded one."));
  if (columns.lost[call]) notes.append(describeBreak(call));
  for (const name of session.names.filter((one) => one.call === call)) {
    notes.append(element("li", { class: name.isRecall ? "" : "warn" }, name.isRecall ? "The reply asks for " : "The reply names ", element("code", {}, name.name),
      name.isRecall ? ", which was hidden: " : ", which is hidden here: it is in ", messageLink(name.source), "."));
  }
  if (edits.length) notes.append(element("li", { class: "plain" }, element("details", { open: edits.length < 4 }, element("summary", {}, plural(edits.length, "change") + " since the call before"),
    element("ul", {}, edits.slice(0, 200).map((edit) => element("li", {}, edit.first ? messageLink(edit.first, describeEdit(edit)) : describeEdit(edit), edit.why ? ": " + edit.why : "",
      edit.saved > 0 ? ", " + count(edit.saved) + " tokens less" : ""))))));
  const jump = element("p", { class: "jump" }, fresh.length && call
    ? element("button", { class: "button", click: () => rowList.show(fresh[0]) }, "Go to what is new (" + plural(fresh.length, "block") + ")") : "",
    element("span", { class: "soft" }, plural(blocks.length, "block") + " · " + (head.model || "unknown model")));
  const list = element("div", { class: "list" });
  byId("call").replaceChildren(element("div", { class: "columns" },
    element("div", { class: "main" }, heading, facts, sectionBar(call), legend, notes, jump, list),
    element("aside", { "aria-label": "the user's words" }, element("h3", {}, "The user's words up to here"), element("div", { id: "words" }))));
  rowList?.stop();
  rowList = new LongList(list, rows.length, 120, (index) => {
    const row = rows[index];
    const made = row.block !== undefined ? blockRow(all, row.block, { tone: isNew(row.block) ? "new" : "" })
      : row.ghosts ? ghostRow(all, row)
      : row.head !== undefined ? headRow(all, row.head)
      : row.boundary ? element("p", { class: "boundary" + (row.isRead ? " read" : "") }, row.boundary)
      : volatileRow(row.volatile);
    made.tabIndex = -1;
    return made;
  });
  drawWords(all, call, blocks);
  show("call");
  byId("title").focus();
  return fresh;
}

function describeUsage(call) {
  const parts = [count(callTokens(call)) + " tokens estimated" + (columns.limit[call] ? " of " + count(columns.limit[call]) : "")];
  if (columns.input[call] !== null) {
    parts.push(count(columns.input[call]) + " reported");
    parts.push(count(columns.read[call]) + " read from the cache");
    if (columns.write[call]) parts.push(count(columns.write[call]) + " written");
    parts.push(count(columns.output[call]) + " out");
  }
  if (callDollars(call) !== null) parts.push(dollars(callDollars(call)));
  if (columns.status[call] === "error") parts.push("failed: " + (columns.note[call] || "unknown"));
  return parts.join(" · ");
}

// The user's messages that stand in the list of the user's words at a position.
function listListedMessages(position, undone) {
  let listed = new Set();
  for (const edit of session.edits) {
    if (edit.seq > position) break;
    if (isUndone(undone, edit.seq)) continue;
    if (edit.relists) listed = new Set();
    for (const seq of edit.listed) listed.add(seq);
    if (edit.op === "erase") for (const seq of listed) if (seq >= edit.first && seq <= edit.last) listed.delete(seq);
  }
  return listed;
}

function drawWords(all, call, blocks) {
  const position = columns.position[call];
  const end = lowerBound(all.messages.seq, position + 1);
  const undone = listUndone(position);
  const states = new Map();
  for (const number of blocks) if (all.blocks.seq[number]) states.set(all.blocks.seq[number], all.blocks.edit[number] ? "cut" : "in its place");
  const listed = listListedMessages(position, undone);
  const said = [];
  for (let index = 0; index < end; index += 1) {
    if (all.messages.role[index] !== "user" || isUndone(undone, all.messages.seq[index])) continue;
    const parts = all.messages.parts[index].filter(([kind]) => kind === "text");
    if (parts.length) said.push([index, parts]);
  }
  said.reverse();
  const holder = byId("words");
  if (!holder) return;
  if (!said.length) { holder.replaceChildren(element("p", { class: "soft" }, "The user has said nothing yet.")); return; }
  new LongList(holder, said.length, 92, (place) => {
    const [index, parts] = said[place];
    const seq = all.messages.seq[index];
    const state = states.get(seq) || (listed.has(seq) ? "in the list" : "not sent");
    const box = element("div", {});
    texts.get(parts[0][2]).then((text) => showText(box, text.length > 700 ? text.slice(0, 700) + " …" : text));
    return element("article", { class: "word " + (state === "not sent" ? "gone" : "") }, element("header", {}, messageLink(seq), element("span", { class: "badge" + (state.startsWith("in ") ? "" : " warn") }, state)), box);
  });
}

// Two calls --------------------------------------------------------------------------------------------------

async function openDiff(one, other) {
  const all = await loadStructure();
  const first = listBlocks(all, one);
  const second = listBlocks(all, other);
  const before = new Set(first);
  const after = new Set(second);
  const keyOf = (number) => all.blocks.seq[number] ? all.blocks.seq[number] + "." + all.blocks.part[number] : "front " + all.blocks.kind[number];
  const goneByKey = new Map();
  for (const number of first) if (!after.has(number)) goneByKey.set(keyOf(number), [...(goneByKey.get(keyOf(number)) || []), number]);
  const rows = [];
  let place = 0;
  let changed = 0;
  let added = 0;
  let same = 0;
  const removed = [];
  const addSame = (number) => {
    same += 1;
    const last = rows.at(-1);
    if (last && last.same) last.same.push(number);
    else rows.push({ same: [number] });
  };
  const paired = new Set();
  for (const number of second) {
    if (before.has(number)) {
      while (place < first.length && first[place] !== number) {
        if (!after.has(first[place])) rows.push({ gone: first[place] });
        place += 1;
      }
      place += 1;
      addSame(number);
      continue;
    }
    const match = (goneByKey.get(keyOf(number)) || []).shift();
    if (match === undefined) { rows.push({ added: number }); added += 1; } else { rows.push({ added: number, previous: match }); paired.add(match); changed += 1; }
  }
  for (; place < first.length; place += 1) if (!after.has(first[place])) rows.push({ gone: first[place] });
  const shown = rows.filter((row) => row.gone === undefined || !paired.has(row.gone));
  for (const row of shown) if (row.gone !== undefined) removed.push(row.gone);
  const left = removed.reduce((sum, number) => sum + all.blocks.tokens[number], 0);
  const came = second.filter((number) => !before.has(number)).reduce((sum, number) => sum + all.blocks.tokens[number], 0);
  const list = element("div", { class: "list" });
  const field = (name, value) => element("label", {}, name + " ", element("input", { type: "number", min: 1, max: columns.seq.length, value: value + 1, "data-side": name }));
  const form = element("form", { class: "pair" }, field("from call", one), field("to call", other), element("button", { class: "button", type: "submit" }, "Compare"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const [start, end] = [...form.querySelectorAll("input")].map((input) => input.value);
    location.hash = "diff=" + start + "," + end;
  });
  byId("diff").replaceChildren(
    element("div", { class: "heading" }, element("h2", { tabindex: -1, id: "title" }, "From call " + count(one + 1) + " to call " + count(other + 1)), form),
    element("p", { class: "callfacts" }, plural(added, "block") + " came, " + plural(changed, "block") + " changed, " + plural(removed.length, "block") + " left, " + count(same) + " stayed · " +
      count(came) + " tokens came or changed, " + count(left) + " left · ", callLink(one), " and ", callLink(other)),
    session.heads[columns.head[one]] !== session.heads[columns.head[other]] ? element("p", { class: "why" }, "The system prompt, the tools or the parameters changed as well.") : "",
    list);
  rowList?.stop();
  rowList = new LongList(list, shown.length, 140, (index) => {
    const row = shown[index];
    if (row.same) return element("p", { class: "boundary" }, plural(row.same.length, "block") + " in both");
    if (row.gone !== undefined) return blockRow(all, row.gone, { tone: "gone" });
    return blockRow(all, row.added, { tone: row.previous === undefined ? "new" : "changed", previous: row.previous === undefined ? undefined : blockRow(all, row.previous, { tone: "gone" }) });
  });
  if (!shown.length || (shown.length === 1 && shown[0].same)) list.append(element("p", {}, "Both calls sent the same blocks."));
  show("diff");
  byId("title").focus();
}

// A message and its life ------------------------------------------------------------------------------------

function lifeOf(all, seq) {
  const spans = listSpans(all);
  const states = [];
  for (const number of all.blocksBySeq.get(seq) || []) for (const [first, last] of spans[number]) states.push({ first, last, edit: all.blocks.edit[number], part: all.blocks.part[number] });
  states.sort((one, other) => one.first - other.first || (one.part || 0) - (other.part || 0));
  return states;
}

async function openMessage(seq) {
  const all = await loadStructure();
  const index = all.indexBySeq.get(seq);
  const box = element("div", { class: "content" });
  const life = element("ul", { class: "findings" });
  const many = all.messages.parts[index]?.length > 1;
  const states = lifeOf(all, seq);
  const block = (all.blocksBySeq.get(seq) || [])[0];
  const title = index === undefined ? "" : block === undefined ? speaker(all.messages.role[index]) : blockTitle(all, block);
  const calls = (first, last) => first === last ? [callLink(first)] : [callLink(first), " to ", callLink(last)];
  for (const state of states) {
    const edit = state.edit ? session.edits.find((one) => one.seq === state.edit) : null;
    life.append(element("li", { class: edit ? "warn" : "good" }, many && state.part !== null ? "m" + seq + "." + state.part + " · " : "", ...calls(state.first, state.last), ": ",
      edit ? (EDIT_NAMES[edit.op] || edit.op) + (edit.why ? " (" + edit.why + ")" : "") : "sent whole"));
  }
  const lastCall = states.reduce((most, state) => Math.max(most, state.last), -1);
  if (index !== undefined && lastCall < columns.seq.length - 1) {
    const after = Math.max(lastCall + 1, callOfSeq(seq));
    const { hiding, undone } = listHidingEdits(all, columns.position[after] || 0);
    const edit = hiding[index] >= 0 ? session.edits[hiding[index]] : null;
    const why = isUndone(undone, seq) ? "it was undone by a rewind" : edit ? (EDIT_NAMES[edit.op] || edit.op) + (edit.why ? " (" + edit.why + ")" : "") : "";
    if (columns.seq[after] > seq) life.append(element("li", { class: "warn" }, "Since ", callLink(after), " the model does not see it in its place", why ? ": " + why : "", "."));
  }
  if (!states.length && index !== undefined) life.append(element("li", {}, seq > columns.seq.at(-1) ? "It was said after the last call." : "No call has sent it."));
  const named = session.names.filter((name) => name.source === seq);
  if (named.length) life.append(element("li", { class: "warn" }, "Asked for or named while it was hidden: ", ...named.slice(0, 8).flatMap((name, place) => [place ? ", " : "", element("code", {}, name.name), " after ", callLink(name.call)]), "."));
  byId("message").replaceChildren(
    element("div", { class: "heading" }, element("h2", { tabindex: -1, id: "title" }, "Message m" + seq, element("small", {}, index === undefined ? "" : " · " + title + " · " + clock(all.messages.at[index])))),
    element("h3", {}, "What the calls sent of it"), life, element("h3", {}, "What was said"), box);
  await showMessage(all, seq, box, true);
  show("message");
  byId("title").focus();
}

// Search --------------------------------------------------------------------------------------------------------

let searchNumber = 0;

async function search(query) {
  const mine = (searchNumber += 1);
  const all = await loadStructure();
  const wanted = query.toLowerCase();
  const list = element("ol", { class: "hits" });
  const state = element("p", { class: "soft", role: "status" }, "Searching …");
  byId("search").replaceChildren(element("div", { class: "heading" }, element("h2", { tabindex: -1, id: "title" }, "Search: ", query)), state, list);
  show("search");
  const handle = /^m(\d+)(?:\.\d+)?$/.exec(wanted);
  if (handle && all.indexBySeq.has(Number(handle[1]))) list.append(element("li", {}, messageLink(Number(handle[1])), " is a message."));
  const callNumber = /^(?:call )?(\d+)$/.exec(wanted);
  if (callNumber && Number(callNumber[1]) <= columns.seq.length && Number(callNumber[1])) list.append(element("li", {}, callLink(Number(callNumber[1]) - 1), "."));
  const headTexts = new Set(session.heads.flatMap((head) => [...head.system, head.params, ...head.tools.map((tool) => tool[2])]));
  let hits = 0;
  const fill = (number, text) => {
    const place = text.toLowerCase().indexOf(wanted);
    if (place < 0) return;
    hits += 1;
    if (hits > MAX_HITS) return;
    const start = Math.max(0, place - 70);
    const snippet = element("p", { class: "snippet" }, start ? "…" : "", text.slice(start, place), element("mark", {}, text.slice(place, place + wanted.length)), text.slice(place + wanted.length, place + wanted.length + 110), "…");
    const said = all.messageByText.get(number);
    if (!said) { list.append(element("li", {}, element("strong", {}, headTexts.has(number) ? "System prompt or tools" : "Summary"), snippet)); return; }
    const [index, part] = said;
    const seq = all.messages.seq[index];
    const life = lifeOf(all, seq);
    const last = life.reduce((most, one) => Math.max(most, one.last), -1);
    const words = !life.length ? (seq > columns.seq.at(-1) ? "after the last call" : "never sent") : last < columns.seq.length - 1 ? "not sent since call " + count(last + 2)
      : life.some((one) => one.edit && one.last === last) ? "shortened in the last call" : "in the last call";
    list.append(element("li", {}, element("a", { href: "#m" + seq, class: "hit" }, element("strong", {}, "m" + seq + (all.messages.parts[index].length > 1 ? "." + part : "")), " " + speaker(all.messages.role[index])),
      element("span", { class: "badge" + (/^(in|after) the last/.test(words) ? "" : " warn") }, words), snippet));
  };
  for (let chunk = 0; chunk < texts.firstNumbers.length; chunk += 1) {
    const loaded = await texts.loadChunk(chunk);
    if (mine !== searchNumber) return;
    loaded.forEach((text, place) => fill(texts.firstNumbers[chunk] + place, text));
    state.textContent = "Searching … " + share(chunk + 1, texts.firstNumbers.length);
    if (chunk % 8 === 7) await new Promise((resolve) => { setTimeout(resolve, 0); });
  }
  state.textContent = hits ? plural(hits, "text") + (hits > MAX_HITS ? " – the first " + MAX_HITS + " are listed" : "") : "Nothing in this session contains it.";
  if (document.activeElement === document.body) byId("title")?.focus();
}

// Moving around ---------------------------------------------------------------------------------------------------

const VIEWS = ["overview", "call", "diff", "message", "search"];

function show(name) {
  for (const view of VIEWS) byId(view).hidden = view !== name;
  byId("back").hidden = name === "overview";
  if (name === "overview") drawTimeline();
  window.scrollTo(0, 0);
}

async function route() {
  let wanted = location.hash.slice(1);
  try { wanted = decodeURIComponent(wanted); } catch { wanted = ""; }
  const within = (text) => Math.max(0, Math.min(columns.seq.length - 1, Number(text) - 1 || 0));
  let match;
  if ((match = /^call=(\d+)$/.exec(wanted)) && columns.seq.length) {
    timeline.selected = within(match[1]);
    await openCall(timeline.selected);
  } else if ((match = /^diff=(\d+),(\d+)$/.exec(wanted)) && columns.seq.length) await openDiff(within(match[1]), within(match[2]));
  else if ((match = /^m(\d+)(?:\.\d+)?$/.exec(wanted))) await openMessage(Number(match[1]));
  else if ((match = /^search=(.+)$/s.exec(wanted))) await search(match[1]);
  else { show("overview"); if (columns.seq.length) selectCall(timeline.selected); }
  document.body.dataset.shown = wanted || "overview";
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = theme === "dark" ? "Light" : "Dark";
  if (columns) drawTimeline();
}

function startKeys() {
  document.addEventListener("keydown", (event) => {
    const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName || "");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      if (isTyping) document.activeElement.blur();
      else if (byId("help").open) byId("help").close();
      else location.hash = "";
      return;
    }
    if (isTyping) return;
    const match = /^#call=(\d+)$/.exec(location.hash);
    const call = match ? Number(match[1]) : timeline.selected + 1;
    const steps = { j: 1, k: -1, ArrowRight: 1, ArrowLeft: -1 };
    if (event.key === "/") byId("query").focus();
    else if (event.key === "?") byId("help").showModal();
    else if (event.key === "d" && match && call > 1) location.hash = "diff=" + (call - 1) + "," + call;
    else if (event.key === "n" && match) { const button = document.querySelector(".jump button"); button?.click(); }
    else if (event.key === "o" && match) document.querySelector(".list .original, .list .reveal")?.click();
    else if (event.key in steps && match) location.hash = "call=" + Math.max(1, Math.min(columns.seq.length, call + steps[event.key]));
    else if (event.key === "Enter" && location.hash === "" && document.activeElement === document.body) location.hash = "call=" + (timeline.selected + 1);
    else return;
    event.preventDefault();
  });
}

async function start() {
  session = await readElement("session");
  session.editSeqs = session.edits.map((edit) => edit.seq);
  texts = new Chunks("texts", session.chunks.texts);
  bodies = new Chunks("bodies", session.chunks.bodies);
  computeTotals();
  byId("name").replaceChildren(visibleText(session.title || "A session"));
  const origin = [session.source, session.policy, session.heads.at(-1)?.model, plural(session.messageCount, "message"), clock(columns.at.find((at) => at !== null))];
  byId("origin").replaceChildren(visibleText(origin.filter(Boolean).join(" · ")));
  byId("note").replaceChildren(visibleText([session.note, session.isRedacted ? "This page is redacted: it has no texts, only their lengths." : ""].filter(Boolean).join(" ")));
  byId("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  byId("find").addEventListener("submit", (event) => {
    event.preventDefault();
    const query = byId("query").value.trim();
    if (query) location.hash = "search=" + encodeURIComponent(query);
  });
  byId("keys").addEventListener("click", () => byId("help").showModal());
  drawFacts();
  drawFindings();
  drawMoney();
  if (columns.seq.length) {
    drawLegend();
    show("overview");
    startTimeline();
    drawCallList();
  } else {
    byId("charts").replaceChildren(element("p", {}, "This session has no call yet."));
  }
  startKeys();
  window.addEventListener("hashchange", route);
  await route();
  document.body.dataset.ready = "yes";
  performance.mark("ready");
  if (columns.seq.length) (window.requestIdleCallback || setTimeout)(() => drawComposition());
}

// A script that is given no page, in the tests, takes the functions.
if (typeof document !== "undefined" && byId("session")) {
  start().catch((error) => {
    byId("name").textContent = "This page cannot be shown: " + error.message + ". It needs a browser of 2024 or newer.";
  });
}
