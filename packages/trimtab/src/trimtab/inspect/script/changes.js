// What hid or changed something, when and why.

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
// These hide whole messages, or show them again.
const HIDING = new Set(["drop", "summarise", "reveal", "client", "erase"]);

const LOW_WATER = "hiding goes on to here at once, so that the cache breaks seldom";

const nameOperation = (edit) => EDIT_NAMES[edit.op] || edit.op;
const explainWhy = (why) => why.replace(/\b\d{4,}\b/g, (digits) => count(Number(digits)));
const explainEdit = (edit) => nameOperation(edit) + (edit.why ? " (" + explainWhy(edit.why) + ")" : "");
const explainBreak = (call) => session.reasons[columns.because[call]]
  .replace(/hidden \((\w+)\)/, (whole, op) => (EDIT_NAMES[op] ? "hidden (" + EDIT_NAMES[op] + ")" : whole));

// The edit at a position of the log; undefined for 0, which stands for none.
function findEdit(seq) {
  const edit = session.edits[lowerBound(session.editSeqs, seq)];
  return edit?.seq === seq ? edit : undefined;
}

// The edits between a call and the one before.
const listEdits = (call) => session.edits.slice(
  lowerBound(session.editSeqs, call ? columns.seq[call - 1] + 1 : 0),
  lowerBound(session.editSeqs, columns.seq[call] + 1),
);

const callOfSeq = (seq) => Math.min(lowerBound(columns.seq, seq), columns.seq.length - 1);

function nameEdited(edit) {
  if (edit.part !== null) return "m" + edit.first + "." + edit.part;
  return edit.first === edit.last ? "m" + edit.first : "m" + edit.first + "–m" + edit.last;
}

const describeEdit = (edit) => (edit.first ? nameEdited(edit) + " " : "") + nameOperation(edit);

// Changes by kind: `m8.0, m12.0 and 3 more replaced by a line (the rule)`.
function describeEdits(edits) {
  return [...Map.groupBy(edits, (edit) => edit.op).values()].map((same, index) => [
    index ? "; " : "",
    listSome(same.filter((edit) => edit.first), 3, (edit) => messageLink(edit.first, nameEdited(edit))),
    " " + explainEdit(same.find((edit) => edit.why) || same[0]),
  ]);
}

// Some items with commas, and how many there are beside them.
function listSome(items, most, show) {
  return [items.slice(0, most).map((item, place) => [place ? ", " : "", show(item)]),
    items.length > most ? " and " + count(items.length - most) + " more" : ""];
}

// `since call 7: why`, of an edit.
const sinceEdit = (edit) => ["since ", callLink(callOfSeq(edit.seq)), edit.why ? ", " + explainWhy(edit.why) : ""];

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
  // The next message that no edit hides yet, so that a range is walked once.
  const next = new Int32Array(seqs.length + 1);
  for (let index = 0; index < next.length; index += 1) next[index] = index;
  const find = (index) => {
    let root = index;
    while (next[root] !== root) root = next[root];
    while (next[index] !== root) [index, next[index]] = [next[index], root];
    return root;
  };
  const undone = listUndone(position);
  session.edits.forEach((edit, number) => {
    if (!HIDING.has(edit.op) || edit.seq > position || edit.part !== null || isUndone(undone, edit.seq)) return;
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

// The change that hid a message first, as a later call found it; undefined if none did.
function findHidingEdit(seq, call) {
  let hiding;
  for (const edit of session.edits) {
    if (edit.seq > columns.seq[call]) break;
    if (seq < edit.first || seq > edit.last) continue;
    hiding = edit.op === "reveal" ? undefined : hiding || edit;
  }
  return hiding;
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
