// The first screen: figures, what stands out, the bill, the list of calls.

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

let totals;

const callTokens = (call) => totals.tokens[call];
const callDollars = (call) => totals.prices[call];
const callLink = (call, words) => element("a", { href: "#call=" + (call + 1) }, words || "call " + count(call + 1));
const messageLink = (seq, words) => element("a", { href: "#m" + seq, class: "handle" }, words || "m" + seq);
const badge = (words, tone) => element("span", { class: "badge " + (tone || "") }, words);
const swatch = (kind) => element("i", { class: "swatch " + kind });
const finding = (tone, ...words) => element("li", { class: tone }, words);
const callsWhere = (isWanted) => [...columns.seq.keys()].filter(isWanted);

function computeTotals() {
  const add = (column) => sum(columns[column].map(Number)); // null counts nothing
  const reported = callsWhere((call) => columns.input[call] !== null);
  totals = {
    tokens: columns.sections.map(sum),
    prices: columns.dollars.map((parts) => parts && sum(parts)),
    cost: [0, 1, 2, 3].map((place) => sum(columns.dollars.map((parts) => (parts ? parts[place] : 0)))),
    input: add("input"), read: add("read"), write: add("write"), output: add("output"),
    lost: add("lost"), lostDollars: add("lostDollars"),
    reported: reported.length,
    isPriced: reported.some((call) => columns.dollars[call]),
    breaks: callsWhere((call) => columns.lost[call]),
  };
  totals.peak = Math.max(0, ...totals.tokens);
  totals.dollars = sum(totals.cost);
}

function lasting(seconds) {
  if (seconds >= 172800) return Math.round(seconds / 86400) + " days";
  if (seconds >= 5400) return (seconds / 3600).toFixed(1) + " h";
  return seconds >= 90 ? Math.round(seconds / 60) + " min" : Math.round(seconds) + " s";
}

function drawFacts() {
  const times = columns.at.filter((at) => at !== null);
  const saved = sum(session.edits.map((edit) => Math.max(0, edit.saved)));
  const { reported, breaks, isPriced } = totals;
  const calls = columns.seq.length;
  const failed = columns.status.some(Boolean) ? count(columns.status.filter((status) => status === "error").length) + " failed" : "failures not recorded";
  byId("facts").replaceChildren(
    fact("Calls", count(calls), failed + (times.length > 1 ? ", in " + lasting(times.at(-1) - times[0]) : "")),
    fact("Cost", isPriced ? dollars(totals.dollars) : "unknown",
      isPriced ? "at list prices" + (calls > reported ? ", of " + plural(reported, "call") : "") : "no usage or no price"),
    fact("Read from the cache", reported ? share(totals.read, totals.input) : "–",
      reported ? "of " + short(totals.input) + " input tokens" : "no usage reported"),
    fact("Cache breaks", count(breaks.length), breaks.length ? dollars(totals.lostDollars) + " to send again" : "none reported",
      breaks.length ? "warn" : ""),
    fact("Largest request", short(totals.peak), "tokens"),
    fact("Hidden", short(saved), "tokens, by " + plural(session.edits.length, "change")),
  );
}

function drawFindings() {
  const names = [...Map.groupBy(session.names.filter((name) => !name.is_recall), (name) => name.call)];
  names.sort((one, other) => other[1].length - one[1].length);
  const recalled = session.names.filter((name) => name.is_recall);
  const breaks = totals.breaks.toSorted((one, other) => columns.lost[other] - columns.lost[one]);
  const errors = callsWhere((call) => columns.status[call] === "error");
  const unverified = columns.verified.filter((isVerified) => isVerified === false).length;
  const lines = [
    ...listFindings(names, ([call, same]) => describeHiddenNames(call, same), "more call", " that named hidden texts"),
    recalled.length ? finding("", "The model asked for " + plural(recalled.length, "hidden text") + ": ",
      listSome(recalled, 6, (name) => [messageLink(name.source, name.name), " at ", callLink(name.call), hiddenSince(name.source, name.call)]), ".") : "",
    ...listFindings(breaks, describeBreak, "more cache break", ", which sent fewer tokens again"),
    errors.length ? finding("warn", plural(errors.length, "call") + " failed: ",
      listSome(errors, 5, (call) => [callLink(call), columns.note[call] ? " (" + columns.note[call] + ")" : ""]), ".") : "",
    unverified ? finding("warn", plural(unverified, "call") + " cannot be shown exactly as sent: the rebuilt request has " +
      "another hash, because something was erased since or the renderer changed.") : "",
  ].filter(Boolean);
  if (!lines.length) lines.push(finding("", "Nothing stands out: no hidden text was named later, and no cache break was reported."));
  byId("findings").replaceChildren(...lines);
}

// The first three, and the others behind a line that opens.
function listFindings(items, describe, noun, words) {
  const rest = items.slice(3, 50).map(describe);
  return [...items.slice(0, 3).map(describe), items.length > 3 ? finding("plain", element("details", {},
    element("summary", {}, plural(items.length - 3, noun) + words), element("ul", {}, rest))) : ""];
}

function describeBreak(call) {
  const edits = listEdits(call);
  const low = columns.low[call];
  const title = low ? "Low-water mark, " + count(low) + " tokens: " + LOW_WATER + "." : "";
  return element("li", { class: "warn", title }, "The cache broke at ", callLink(call), ": " + count(columns.lost[call]) + " tokens were sent again" +
    (columns.lostDollars[call] ? ", for " + dollars(columns.lostDollars[call]) : "") + ". Why: " + explainBreak(call),
    edits.length ? [". Changed since the call before: ", describeEdits(edits)] : "", ".");
}

function hiddenSince(seq, call) {
  const edit = findHidingEdit(seq, call);
  return edit ? [", hidden ", sinceEdit(edit)] : "";
}

function describeHiddenNames(call, names) {
  return finding("warn", "At ", callLink(call), " the model named ",
    names.length === 1 ? "a text that was hidden from it: " : count(names.length) + " texts that were hidden from it: ",
    listSome(names, 4, (name) => [element("code", {}, name.name), " (", messageLink(name.source), hiddenSince(name.source, call), ")"]), ".");
}

// A table whose rows are [name, class of the bar, length of the bar, ...cells].
function drawTable(id, names, rows) {
  const longest = Math.max(...rows.map((row) => row[2]), 1e-12);
  byId(id).replaceChildren(element("table", {},
    element("thead", {}, element("tr", {}, names.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, rows.map(([name, tone, length, ...cells]) => {
      const bar = element("span", { class: "bar " + tone });
      bar.style.width = (100 * length) / longest + "%";
      return element("tr", {}, element("th", { scope: "row" }, name, bar), cells.map((cell) => element("td", {}, cell)));
    }))));
}

function drawMoney() {
  if (!totals.reported) return byId("money").replaceChildren("The log has no usage, so there is no bill.");
  const tokens = [totals.input - totals.read - totals.write, totals.read, totals.write, totals.output];
  drawTable("money", ["kind", "tokens", "cost", "share"], ["fresh input", "cache reads", "cache writes", "output"].map((name, place) => [
    name, "m" + place, totals.cost[place], count(Math.max(0, tokens[place])),
    totals.isPriced ? dollars(totals.cost[place]) : "?", totals.isPriced ? share(totals.cost[place], totals.dollars) : "–"]));
  const words = [];
  if (totals.lostDollars) {
    words.push("Of this, " + dollars(totals.lostDollars) + " (" + share(totals.lostDollars, totals.dollars) +
      ") paid for what was sent again after " + plural(totals.breaks.length, "cache break") + ". ");
  }
  const dear = callsWhere((call) => columns.dollars[call]);
  dear.sort((one, other) => callDollars(other) - callDollars(one));
  if (dear.length > 1) words.push("The dearest calls, with their new input and their reply: ", listSome(dear.slice(0, 4), 4, (call) => [callLink(call), " " + dollars(callDollars(call))]), ".");
  return byId("money").append(element("p", { class: "soft" }, words));
}

// What the input of all calls consisted of.
function drawComposition(all) {
  const sums = new Map();
  const add = (name, tone, tokens) => {
    const row = sums.get(name) || [name, tone, 0];
    row[2] += tokens;
    sums.set(name, row);
  };
  all.blocks.seq.forEach((seq, number) => {
    if (!seq) return;
    const place = all.blocks.kind[number];
    const kind = session.kinds[place];
    const label = all.labels[all.blocks.label[number]] || "tools";
    const name = { result: "results of " + label, call: "calls of " + label }[kind] || SECTION_NAMES[kind];
    add(name, "k" + place, all.blocks.tokens[number] * sum(all.spans[number].map(([first, last]) => last - first + 1)));
  });
  session.kinds.forEach((kind, place) => {
    if (["system", "words", "summary"].includes(kind)) add(SECTION_NAMES[kind], "k" + place, sum(columns.sections.map((sections) => sections[place])));
  });
  const rows = [...sums.values()].filter((row) => row[2]).sort((one, other) => other[2] - one[2]);
  const whole = sum(rows.map((row) => row[2]));
  drawTable("composition", ["part", "tokens, all calls", "share"],
    rows.slice(0, 8).map((row) => [...row, short(row[2]), share(row[2], whole)]));
}

function drawCallList() {
  new LongList(byId("calls"), columns.seq.length, 33, (call) => {
    const edits = listEdits(call);
    const price = callDollars(call);
    return element("a", { class: "row", href: "#call=" + (call + 1) },
      element("span", { class: "number" }, count(call + 1)),
      element("span", { class: "time" }, clock(columns.at[call]).slice(5, 19)),
      element("span", { class: "tokens" }, short(callTokens(call))),
      element("span", { class: "tokens" }, columns.input[call] === null ? "" : share(columns.read[call], columns.input[call]) + " cached"),
      element("span", { class: "tokens" }, price === null ? "" : dollars(price)),
      element("span", { class: "badges" },
        edits.length ? badge(edits.length === 1 ? describeEdit(edits[0]) : plural(edits.length, "change")) : "",
        columns.lost[call] ? badge("cache broken", "warn") : "",
        columns.status[call] === "error" ? badge(columns.note[call] || "failed", "warn") : ""));
  });
}
