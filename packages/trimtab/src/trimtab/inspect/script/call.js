// A call: exactly what the model saw, with what it did not see in its place.

function listRows(all, call) {
  const blocks = listBlocks(all, call);
  const before = new Set(call ? listBlocks(all, call - 1) : blocks);
  const position = columns.position[call];
  const { hiding, undone } = listHidingEdits(all, position);
  const seqs = all.messages.seq;
  const sent = new Set(blocks.map((number) => all.blocks.seq[number]));
  const marks = new Set(columns.marks[call]);
  const marked = (place) => (marks.has(place) ? [{ boundary: "The prefix up to here is marked for the cache." }] : []);
  const rows = [{ head: columns.head[call] }, ...marked(-1)];
  let next = 0;
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
  const whole = callTokens(call);
  const read = columns.read[call];
  let cached = read ? (read * whole) / columns.input[call] : Infinity;
  if (cached >= whole * 0.98) cached = Infinity;
  blocks.forEach((number, place) => {
    const seq = all.blocks.seq[number];
    if (seq) {
      const index = all.indexBySeq.get(seq);
      addGhosts(index);
      next = Math.max(next, index + 1);
    }
    tokens += all.blocks.tokens[number];
    if (tokens > cached) {
      rows.push({ boundary: "The provider read " + count(read) + " tokens from its cache: about up to here.", tone: "read" });
      cached = Infinity;
    }
    rows.push({ block: number, isNew: !before.has(number) }, ...marked(place));
  });
  addGhosts(lowerBound(seqs, position + 1));
  if (columns.volatile[call] !== null) rows.push({ volatile: columns.volatile[call] });
  return { rows, blocks, undone };
}

function drawRow(all, row) {
  const node = row.block !== undefined ? blockRow(all, row.block, { tone: row.isNew ? "new" : "" })
    : row.ghosts ? ghostRow(all, row)
    : row.head !== undefined ? headRow(all, session.heads[row.head])
    : row.boundary ? element("p", { class: "boundary " + (row.tone || "") }, row.boundary)
    : volatileRow(row.volatile);
  node.tabIndex = -1;
  return node;
}

const speaker = (role) => ({ user: "User", assistant: "Model", tool: "Tool", system: "System" })[role] || role || "Item";

function blockTitle(all, number) {
  const kind = session.kinds[all.blocks.kind[number]];
  const label = all.labels[all.blocks.label[number]];
  const seq = all.blocks.seq[number];
  if (!seq) return kind === "summary" ? "Summary and notice" : "The user's earlier words";
  if (kind === "result" || kind === "call") return (kind === "call" ? "Call" : "Result") + (label ? " of " + label : "");
  return speaker(all.messages.role[all.indexBySeq.get(seq)]);
}

function handleOf(all, number) {
  const seq = all.blocks.seq[number];
  const part = all.blocks.part[number];
  return "m" + seq + (part === null || all.messages.parts[all.indexBySeq.get(seq)].length === 1 ? "" : "." + part);
}

const size = (tokens) => element("span", { class: "size" }, count(tokens) + " tokens");

function blockRow(all, number, { tone, previous } = {}) {
  const seq = all.blocks.seq[number];
  const edit = findEdit(all.blocks.edit[number]);
  const title = blockTitle(all, number);
  const handle = seq ? handleOf(all, number) : "";
  const content = element("div", { class: "content" });
  const showJson = async ({ target }) => {
    const isJson = target.getAttribute("aria-pressed") === "true";
    target.setAttribute("aria-pressed", String(!isJson));
    if (isJson) await showBlock(all, number, content);
    else showText(content, writeJson(await readBlock(number), "\n"), { whole: true });
  };
  const row = element("article", { class: "block " + (tone || "") + (edit ? " edited" : ""), "aria-label": title },
    element("header", {}, swatch("k" + all.blocks.kind[number]), element("strong", {}, title),
      seq ? messageLink(seq, handle) : "",
      tone === "new" ? badge("new", "new") : "",
      edit ? badge(nameOperation(edit), "warn") : "",
      all.front.has(number) ? badge("begins with the user's earlier words, or the summary") : "",
      size(all.blocks.tokens[number]),
      element("button", { class: "link json", "aria-label": "JSON of " + title + " " + handle, "aria-pressed": "false", click: showJson }, "JSON")),
    edit ? element("p", { class: "why" }, capitalise(sinceEdit(edit)), ". ",
      element("button", { class: "link original", click: ({ target }) => toggleOriginal(all, target, row, seq) }, "Show the original")) : "",
    content, previous ? element("details", {}, element("summary", {}, "before"), previous) : "");
  row.ready = showBlock(all, number, content);
  return row;
}

const capitalise = ([word, ...rest]) => [word[0].toUpperCase() + word.slice(1), ...rest];

async function showBlock(all, number, content, { whole = false } = {}) {
  const label = all.labels[all.blocks.label[number]];
  const pieces = readBody(await readBlock(number, whole ? Infinity : PREVIEW_CHARS));
  content.replaceChildren(...pieces.flatMap(({ text, image, note }) => {
    const holder = element("div", {}, image ? picture(image) : "");
    if (!image) showText(holder, text, { whole, showAll: () => showBlock(all, number, content, { whole: true }) });
    return note && note !== label ? [element("span", { class: "note" }, note), holder] : [holder];
  }));
  if (!pieces.length) content.append(element("p", { class: "soft" }, "empty"));
}

const picture = (address) => element("img", { alt: "a picture of this message", src: address });

function toggleOriginal(all, button, row, seq) {
  const original = row.querySelector(":scope > .whole");
  button.textContent = original ? "Show the original" : "Hide the original";
  if (original) original.remove();
  else row.append(messageBox(all, seq, { class: "whole" }));
}

// A message as it was said, part by part.
function messageBox(all, seq, { whole, ...attributes } = {}) {
  const box = element("div", attributes);
  const parts = all.messages.parts[all.indexBySeq.get(seq)];
  box.ready = Promise.all(parts.map(async ([kind, name, text, tokens], place) => {
    const holder = element("div", {});
    const label = { call: "calls " + name, result: "result", media: name, block: name }[kind];
    const note = element("p", { class: "note" }, ["m" + seq + "." + place, label, count(tokens) + " tokens"].filter(Boolean).join(" · "));
    box.append(note, holder);
    const said = await texts.get(text);
    if (!said && kind === "text" && parts.length > 1) return note.remove();
    if (kind === "media" && RASTER.test(name) && !/^https?:/.test(said)) holder.append(picture(imageAddress(name, said)));
    else showText(holder, kind === "call" ? prettyArguments(said) : said, { whole });
    return undefined;
  }));
  return box;
}

function ghostRow(all, { ghosts, cause }) {
  const seqOf = (place) => all.messages.seq[ghosts.at(place)];
  const edit = session.edits[cause];
  const why = cause === -2 ? "undone by a rewind" : edit ? nameOperation(edit) : "not sent";
  const list = element("div", { class: "hidden-messages", hidden: true });
  const toggle = () => {
    list.hidden = !list.hidden;
    button.setAttribute("aria-expanded", String(!list.hidden));
    if (list.childElementCount) return;
    new LongList(list, ghosts.length, 70, (place) => element("article", { class: "block" },
      element("header", {}, element("strong", {}, speaker(all.messages.role[ghosts[place]])), messageLink(seqOf(place))),
      messageBox(all, seqOf(place))));
  };
  const button = element("button", { class: "link reveal", "aria-expanded": "false", click: toggle }, ghosts.length === 1 ? "Show it" : "Show them");
  return element("article", { class: "ghost", "aria-label": "hidden messages" },
    element("header", {}, element("strong", {}, ghosts.length === 1 ? "m" + seqOf(0) : "m" + seqOf(0) + "–m" + seqOf(-1)),
      " " + plural(ghosts.length, "message") + " the model does not see: " + why,
      size(sum(ghosts.map((index) => all.tokens[index])))),
    element("p", { class: "why" }, edit ? [capitalise(sinceEdit(edit)), ". "] : "", button), list);
}

function headRow(all, head) {
  const box = element("div", {});
  const opener = (words, text) => element("button", { class: "link", click: async () => showText(box, prettyArguments(await texts.get(text)), { whole: true }) }, words);
  return element("article", { class: "block", "aria-label": "system prompt and tools" },
    element("header", {}, swatch("k0"), element("strong", {}, "System prompt and tools"), size(head.tokens)),
    element("p", { class: "why" }, head.system.map((text, index) => opener(head.system.length > 1 ? "system prompt, part " + (index + 1) : "System prompt", text)),
      head.params === null ? "" : opener("parameters", head.params),
      head.tools.length ? element("details", {}, element("summary", {}, plural(head.tools.length, "tool")), element("ul", { class: "tools" },
        head.tools.map(([name, tokens, text]) => element("li", {}, opener(name || "unnamed", text), " " + count(tokens) + " tokens" + (name && !all.called.has(name) ? ", never called" : ""))))) : ""), box);
}

function volatileRow(number) {
  const content = element("div", { class: "content" });
  const row = element("article", { class: "block", "aria-label": "for this call only" },
    element("header", {}, swatch("k7"), element("strong", {}, "For this call only")), content);
  row.ready = texts.get(number).then((text) => showText(content, text));
  return row;
}

function sectionBar(call) {
  const sections = columns.sections[call];
  const parts = sections.map((tokens, place) => ({ tokens, place, name: SECTION_NAMES[session.kinds[place]] })).filter((part) => part.tokens);
  return [
    element("div", { class: "stack", role: "img", "aria-label": parts.map((part) => part.name + " " + count(part.tokens)).join(", ") + " tokens" },
      parts.map(({ tokens, place }) => {
        const bar = element("span", { class: "k" + place });
        bar.style.width = (100 * tokens) / callTokens(call) + "%";
        return bar;
      })),
    element("ul", { class: "legend" }, parts.map((part) => element("li", {}, swatch("k" + part.place), part.name + " " + short(part.tokens)))),
  ];
}

async function drawCall(all, call) {
  timeline.selected = call;
  const { rows, blocks, undone } = listRows(all, call);
  const fresh = rows.findIndex((row) => row.isNew);
  const calls = columns.seq.length;
  const reply = lowerBound(all.messages.seq, columns.seq[call]);
  const isAnswered = all.messages.role[reply] === "assistant" && !(columns.seq[call + 1] < all.messages.seq[reply]);
  const list = element("div", { class: "list" });
  const words = element("div", { id: "words" });
  const rowList = new LongList(list, rows.length, 120, (index) => drawRow(all, rows[index]));
  await Promise.all([rowList.ready, drawWords(all, words, call, blocks, undone)]);
  return element("div", { class: "columns" },
    element("div", { class: "main" },
      heading("Call " + count(call + 1), " of " + count(calls) + " · " + (clock(columns.at[call]) || "no time recorded"),
        element("nav", { "aria-label": "calls" },
          call ? element("a", { class: "button", href: "#call=" + call, rel: "prev" }, "← previous") : "",
          call + 1 < calls ? element("a", { class: "button", href: "#call=" + (call + 2), rel: "next" }, "next →") : "",
          call ? element("a", { class: "button", href: "#diff=" + call + "," + (call + 1) }, "Compare with the call before") : "")),
      element("p", { class: "callfacts" }, describeUsage(call)), sectionBar(call),
      element("ul", { class: "findings" }, listNotes(call)),
      element("p", { class: "jump" },
        fresh >= 0 ? element("button", { class: "button", click: () => rowList.show(fresh) }, "Go to what is new (" + plural(rows.filter((row) => row.isNew).length, "block") + ")") : "",
        isAnswered ? element("a", { class: "button", href: "#m" + all.messages.seq[reply] }, "Reply: m" + all.messages.seq[reply]) : "",
        element("span", { class: "soft" }, plural(blocks.length, "block") + " · " + (session.heads[columns.head[call]].model || "unknown model"))),
      list),
    element("aside", { "aria-label": "the user's words" }, element("h3", {}, "The user's words up to here"), words));
}

function listNotes(call) {
  const edits = listEdits(call);
  return [
    columns.verified[call] === false ? finding("warn", "This is not exactly what was sent: the rebuilt request has another hash than the recorded one. Something was erased since, or the renderer changed.") : "",
    columns.verified[call] ? finding("good", "This is what the model saw: the request was rebuilt from the log, and its hash is the recorded one.") : "",
    columns.lost[call] ? describeBreak(call) : "",
    session.names.filter((name) => name.call === call).map((name) => finding(name.is_recall ? "" : "warn",
      name.is_recall ? "The reply asks for " : "The reply names ", element("code", {}, name.name),
      ", which the model does not see here: it is in ", messageLink(name.source), hiddenSince(name.source, call), ".")),
    edits.length ? finding("plain", element("details", { open: edits.length < 4 }, element("summary", {}, plural(edits.length, "change") + " since the call before"),
      element("ul", {}, edits.slice(0, 200).map((edit) => element("li", {}, edit.first ? messageLink(edit.first, describeEdit(edit)) : describeEdit(edit),
        edit.why ? ": " + explainWhy(edit.why) : "", edit.saved > 0 ? ", " + count(edit.saved) + " tokens less" : ""))))) : "",
  ];
}

function describeUsage(call) {
  const limit = columns.limit[call];
  const input = columns.input[call];
  return [count(callTokens(call)) + " tokens estimated" + (limit ? " of " + count(limit) : ""),
    ...input === null ? [] : [count(input) + " reported", count(columns.read[call]) + " (" + share(columns.read[call], input) + ") read from the cache",
      columns.write[call] ? count(columns.write[call]) + " written" : "", count(columns.output[call]) + " out"],
    callDollars(call) === null ? "" : dollars(callDollars(call)),
    columns.status[call] === "error" ? "failed: " + (columns.note[call] || "unknown") : ""].filter(Boolean).join(" · ");
}

// Each message of the user, the newest first, with what the model saw of it.
function drawWords(all, holder, call, blocks, undone) {
  const end = lowerBound(all.messages.seq, columns.position[call] + 1);
  const states = new Map(blocks.map((number) => [all.blocks.seq[number], all.blocks.edit[number] ? "cut" : "in its place"]));
  const listed = listListedMessages(columns.position[call], undone);
  const said = [];
  for (let index = end - 1; index >= 0; index -= 1) if (all.words[index] !== undefined && !isUndone(undone, all.messages.seq[index])) said.push(index);
  if (!said.length) holder.append(element("p", { class: "soft" }, "The user has said nothing yet."));
  else return new LongList(holder, said.length, 92, (place) => {
    const index = said[place];
    const seq = all.messages.seq[index];
    const state = states.get(seq) || (listed.has(seq) ? "in the list" : "not sent");
    const box = element("div", {});
    const row = element("article", { class: "word" },
      element("header", {}, messageLink(seq), badge(state, state.startsWith("in ") ? "" : "warn")), box);
    row.ready = texts.get(all.words[index]).then((text) => showText(box, text.length > 300 ? text.slice(0, 300) + " …" : text));
    return row;
  }).ready;
  return undefined;
}
