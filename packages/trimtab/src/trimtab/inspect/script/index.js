// The list of sessions, each with a page of its own beside this file.

const COLUMNS = [
  ["title", "Session"],
  ["source", "From"],
  ["model", "Model"],
  ["at", "Last call", (at) => clock(at).slice(0, 16)],
  ["calls", "Calls", count],
  ["input", "Input tokens", (tokens) => (tokens === null ? "" : count(tokens))],
  ["dollars", "Cost", (amount) => (amount === null ? "" : dollars(amount))],
  ["breaks", "Cache breaks", (breaks) => (breaks ? count(breaks) : "")],
  ["hidden", "Named while hidden", (names) => (names ? count(names) : "")],
];
let sessions = [];
let order = { key: null, down: true };

function draw() {
  const wanted = byId("query").value.trim().toLowerCase();
  const matches = sessions.filter((one) => [one.title, one.words, one.source, one.model].join("\n").toLowerCase().includes(wanted));
  const { key: sorted, down } = order;
  if (sorted) {
    const sign = down ? -1 : 1;
    matches.sort((one, other) => (one[sorted] === other[sorted] ? 0 : (one[sorted] ?? -1) < (other[sorted] ?? -1) ? -sign : sign));
  }
  const sortBy = (key) => {
    order = { key, down: sorted === key ? !down : true };
    draw();
    document.querySelector("th[aria-sort] button").focus();
  };
  byId("sessions").replaceChildren(
    element("thead", {}, element("tr", {}, COLUMNS.map(([key, name]) => element("th", { scope: "col", "aria-sort": sorted === key && (down ? "descending" : "ascending") },
      element("button", { class: "link", click: () => sortBy(key) }, name))))),
    element("tbody", {}, matches.map((one) => element("tr", {},
      element("th", { scope: "row" }, element("a", { href: one.file }, one.title || "a session"), element("p", {}, one.words)),
      COLUMNS.slice(1).map(([key, , format]) => element("td", {}, format ? format(one[key]) : one[key]))))));
  byId("state").textContent = matches.length === sessions.length ? "" : count(matches.length) + " of " + plural(sessions.length, "session");
}

async function start() {
  const data = await decodePayload(byId("data").textContent);
  sessions = data.sessions;
  const total = (key) => sum(sessions.map((one) => one[key] || 0));
  byId("origin").replaceChildren(visibleText(data.origin));
  byId("answer").replaceChildren(visibleText(data.answer));
  byId("answer").hidden = !data.answer;
  byId("query").addEventListener("input", draw);
  byId("find").addEventListener("submit", (event) => event.preventDefault());
  startTheme();
  byId("facts").replaceChildren(fact("Sessions", count(sessions.length)), fact("Calls", count(total("calls"))),
    fact("Cost", dollars(total("dollars"))), fact("Cache breaks", count(total("breaks"))));
  draw();
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || document.activeElement === byId("query")) return;
    event.preventDefault();
    byId("query").focus();
  });
  document.body.dataset.ready = "yes";
}

start();
