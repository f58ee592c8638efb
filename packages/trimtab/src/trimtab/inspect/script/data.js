// What the file holds: the session for the first screen, its structure for the rest, and the texts
// and bodies in chunks. Each is decoded when it is shown, so a session of 10,000 calls opens at once.

const CHECKPOINT_CALLS = 256;
const SPLICE_STEP = 4;
const RASTER = /^image\/(png|jpeg|gif|webp)$/;

const parsed = new Promise((resolve) => {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", resolve);
  else resolve();
});

async function readElement(id) {
  // The data comes after the script, so that the first screen does not wait for it. An element is
  // whole when another one follows.
  if (!byId(id)?.nextElementSibling) await parsed;
  return decodePayload(byId(id).textContent);
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

class Chunks {
  constructor(name, firstNumbers) {
    this.name = name;
    this.firstNumbers = firstNumbers;
    this.chunks = [];
  }

  load(index) {
    this.chunks[index] = this.chunks[index] || readElement(this.name + "-" + index);
    return this.chunks[index];
  }

  async get(number) {
    const index = lowerBound(this.firstNumbers, number + 1) - 1;
    return (await this.load(index))[number - this.firstNumbers[index]];
  }
}

let session;
let columns;
let structure;
let texts;
let bodies;

async function loadSession() {
  session = await readElement("session");
  columns = session.calls;
  session.editSeqs = session.edits.map((edit) => edit.seq);
  texts = new Chunks("texts", session.chunks.texts);
  bodies = new Chunks("bodies", session.chunks.bodies);
}

function loadStructure() {
  structure = structure || readElement("structure").then(indexStructure);
  return structure;
}

// Follows all calls once: for each block the calls that sent it, as pairs of first and last call,
// and at checkpoints the blocks of a call.
function indexStructure(all) {
  const { blocks, messages } = all;
  const last = all.splices.length - 1;
  all.spans = blocks.seq.map(() => []);
  all.checkpoints = [];
  const sent = [];
  all.splices.forEach((splices, call) => {
    if (call % CHECKPOINT_CALLS === 0) all.checkpoints.push(sent.slice());
    applySplices(sent, splices, (gone, fresh) => {
      for (const number of gone) all.spans[number].at(-1)[1] = call - 1;
      for (const number of fresh) all.spans[number].push([call, last]);
    });
  });
  all.blocksBySeq = new Map();
  blocks.seq.forEach((seq, number) => {
    if (!all.blocksBySeq.has(seq)) all.blocksBySeq.set(seq, []);
    all.blocksBySeq.get(seq).push(number);
  });
  all.indexBySeq = new Map(messages.seq.map((seq, index) => [seq, index]));
  all.messageByText = new Map();
  messages.parts.forEach((parts, index) => parts.forEach(([, , text], place) => {
    if (!all.messageByText.has(text)) all.messageByText.set(text, [index, place]);
  }));
  all.tokens = messages.parts.map((parts) => sum(parts.map((part) => part[3])));
  all.front = new Set(blocks.front);
  const callKind = session.kinds.indexOf("call");
  all.called = new Set(blocks.label.filter((_, number) => blocks.kind[number] === callKind).map((label) => all.labels[label]));
  // The first text of each message of the user.
  all.words = messages.parts.map((parts, index) => (messages.role[index] === "user" ? parts.find(([kind]) => kind === "text")?.[2] : undefined));
  return all;
}

function applySplices(blocks, splices, onChange) {
  for (let index = 0; index < splices.length; index += SPLICE_STEP) {
    const [start, many, first, added] = splices.slice(index, index + SPLICE_STEP);
    const fresh = Array.from({ length: added }, (_, place) => first + place);
    const gone = blocks.splice(start, many, ...fresh);
    onChange?.(gone, fresh);
  }
}

// The numbers of the blocks that a call sent.
function listBlocks(all, call) {
  const checkpoint = Math.floor(call / CHECKPOINT_CALLS);
  const blocks = all.checkpoints[checkpoint].slice();
  for (let index = checkpoint * CHECKPOINT_CALLS; index <= call; index += 1) applySplices(blocks, all.splices[index]);
  return blocks;
}

// The body of a block. With a limit, a text ends with the piece that exceeds it: the list of the
// user's words has pieces of the whole session, and only its beginning is shown.
async function decodeBody(encoded, limit = Infinity) {
  if (encoded === null || typeof encoded !== "object") return encoded;
  if (!Array.isArray(encoded)) {
    const pairs = Object.entries(encoded).map(async ([key, inner]) => [key, await decodeBody(inner, limit)]);
    return new Map(await Promise.all(pairs)); // not an object, because `__proto__` may be a key
  }
  const [tag, ...rest] = encoded;
  if (tag === "l") return Promise.all(rest.map((inner) => decodeBody(inner, limit)));
  if (tag === "n") return { number: rest[0] };
  let text = "";
  for (const piece of rest) {
    if (text.length > limit) break;
    const [number, ...range] = [piece].flat();
    text += typeof piece === "string" ? piece : (await texts.get(number)).slice(...range);
  }
  return text;
}

const readBlock = async (number, limit) => decodeBody(await bodies.get(number), limit);

// Canonical JSON: sorted keys, no spaces, ASCII only. With `indent`, for people.
function writeJson(body, indent = "") {
  if (body === null || typeof body === "boolean" || typeof body === "number") return String(body);
  if (typeof body === "string") {
    const quoted = JSON.stringify(body);
    return indent ? quoted : quoted.replace(/[\u007f-\uffff]/g, (one) => "\\u" + one.charCodeAt(0).toString(16).padStart(4, "0"));
  }
  const inner = indent && indent + "  ";
  const join = (items, open, close) => {
    if (!items.length) return open + close;
    return open + inner + items.join("," + inner) + indent + close;
  };
  if (Array.isArray(body)) return join(body.map((one) => writeJson(one, inner)), "[", "]");
  if (!(body instanceof Map)) return body.number;
  const keys = [...body.keys()];
  if (!indent) keys.sort((one, other) => (one < other ? -1 : 1));
  const colon = indent ? ": " : ":";
  return join(keys.map((key) => writeJson(key, indent) + colon + writeJson(body.get(key), inner)), "{", "}");
}

// What people read of a body: texts, calls of tools, pictures. Nothing is left out.
function readBody(body) {
  if (body === "") return [];
  if (typeof body === "string") return [{ text: body }];
  if (Array.isArray(body)) return body.flatMap(readBody);
  if (!(body instanceof Map)) return [{ text: writeJson(body, "\n") }];
  const get = (key) => body.get(key);
  const type = get("type") ?? get("kind");
  const image = findImage(body);
  if (image) return [{ image }];
  if (typeof get("text") === "string") return readBody(get("text"));
  if (typeof get("thinking") === "string") return [{ text: get("thinking"), note: "thinking" }];
  const wire = get("function") instanceof Map ? get("function") : body;
  const input = wire.get("arguments") ?? wire.get("input");
  if (input !== undefined && wire.get("name")) {
    return [{ text: typeof input === "string" ? prettyArguments(input) : writeJson(input, "\n"), note: wire.get("name") }];
  }
  const nested = ["content", "output", "tool_calls", "summary"].map(get).filter((one) => one !== undefined && one !== null);
  if (nested.length && (get("role") || type)) return nested.flatMap(readBody);
  return [{ text: writeJson(body, "\n"), note: String(type || "") }];
}

// The picture of a block as the address of its own data. A picture elsewhere is not asked for.
function findImage(body) {
  const source = body.get("source") instanceof Map ? body.get("source") : body;
  const media = source.get("media_type") || source.get("mime");
  if (RASTER.test(media || "") && typeof source.get("data") === "string") return imageAddress(media, source.get("data"));
  const link = body.get("image_url") instanceof Map ? body.get("image_url").get("url") : body.get("image_url");
  return typeof link === "string" && /^data:image\/(png|jpeg|gif|webp);base64,/.test(link) ? link : "";
}

const imageAddress = (media, data) => "data:" + media + ";base64," + data;

function prettyArguments(text) {
  if (text.length > 20000 || !/^\s*[{[]/.test(text) || /\d{16}/.test(text)) return text; // a browser would round
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
