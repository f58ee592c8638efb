// A message and its life: which calls sent it whole, cut, or not at all.

// What calls sent of a message: first and last call, the edit, the part.
const listStates = (all, seq) => (all.blocksBySeq.get(seq) || [])
  .flatMap((number) => all.spans[number].map(([first, last]) => ({ first, last, edit: findEdit(all.blocks.edit[number]), part: all.blocks.part[number] })))
  .sort((one, other) => one.first - other.first || (one.part || 0) - (other.part || 0));

const findLastCall = (states) => states.reduce((most, state) => Math.max(most, state.last), -1);

async function drawMessage(all, seq) {
  const index = all.indexBySeq.get(seq);
  if (index === undefined) return drawMissing(all, seq);
  const block = all.blocksBySeq.get(seq)?.[0];
  const title = block === undefined ? speaker(all.messages.role[index]) : blockTitle(all, block);
  const box = messageBox(all, seq, { class: "content", whole: true });
  await box.ready;
  return [
    heading("Message m" + seq, " · " + title + " · " + clock(all.messages.at[index]),
      element("nav", { "aria-label": "messages" }, neighbour(all, index - 1, "← "), neighbour(all, index + 1, "", " →"))),
    element("h3", {}, "What the calls sent of it"), element("ul", { class: "findings" }, describeLife(all, seq, index)),
    element("h3", {}, "What was said"), box,
  ];
}

function neighbour(all, index, before, after = "") {
  const seq = all.messages.seq[index];
  return seq === undefined ? "" : element("a", { class: "button", href: "#m" + seq }, before + "m" + seq + after);
}

// Not every event of the log is a message, so m42 may lie between two of them.
function drawMissing(all, seq) {
  const next = lowerBound(all.messages.seq, seq);
  const near = all.messages.seq.slice(Math.max(0, next - 1), next + 1);
  const edit = findEdit(seq);
  return [heading("The log has no message m" + seq, ""),
    element("p", {}, edit ? ["Number " + seq + " is a change: ", edit.first ? messageLink(edit.first, nameEdited(edit)) : "", " " + explainEdit(edit) + ". "]
      : "Numbers count everything in the log: changes and calls too. ", near.length ? ["The nearest messages: ", listSome(near, 2, (one) => messageLink(one)), "."] : "")];
}

function describeLife(all, seq, index) {
  const states = listStates(all, seq);
  const calls = columns.seq.length;
  const last = findLastCall(states);
  const items = states.map((state) => finding(state.edit ? "warn" : "good",
    all.messages.parts[index].length > 1 && state.part !== null ? "m" + seq + "." + state.part + " · " : "",
    callLink(state.first), state.first === state.last ? "" : [" to ", callLink(state.last)], ": ",
    state.edit ? explainEdit(state.edit) : "sent whole"));
  const after = Math.max(last + 1, callOfSeq(seq));
  if (last < calls - 1 && columns.seq[after] > seq) {
    const { hiding, undone } = listHidingEdits(all, columns.position[after]);
    const edit = session.edits[hiding[index]];
    const why = isUndone(undone, seq) ? ": it was undone by a rewind" : edit ? ": " + explainEdit(edit) : "";
    items.push(finding("warn", "Since ", callLink(after), " the model does not see it in its place", why, "."));
  }
  const undone = listUndone(columns.position.at(-1));
  if (last < calls - 1 && listListedMessages(columns.position.at(-1), undone).has(seq)) {
    const edit = session.edits.find((one) => one.listed.includes(seq) && !isUndone(undone, one.seq));
    items.push(finding("good", "Since ", callLink(callOfSeq(edit.seq)), " it is quoted word for word in the list of the user's earlier words, where each request begins; if it is very long, its beginning and end."));
  }
  if (!states.length) items.push(finding("", seq > columns.seq.at(-1) ? "It was said after the last call." : "No call has sent it."));
  const names = session.names.filter((name) => name.source === seq);
  if (names.length) {
    items.push(finding("warn", "Asked for or named while it was hidden: ",
      listSome(names, 8, (name) => [element("code", {}, name.name), " after ", callLink(name.call)]), "."));
  }
  return items;
}
