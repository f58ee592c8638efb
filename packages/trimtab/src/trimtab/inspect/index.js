"use strict";
// The list of sessions, each with a page of its own beside this file.

const byId = (id) => document.getElementById(id);
const HIDDEN_CHARACTER =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const plain = (text) => text.replace(HIDDEN_CHARACTER, (one) => (/[\t\n\r]/.test(one) ? " " : "U+" + one.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")));
const count = (number) => Math.round(number).toLocaleString("en-US");
const dollars = (amount) => (amount === null ? "" : "$" + amount.toFixed(amount >= 10 ? 2 : 4));
const COLUMNS = [
  ["title", "Session", plain],
  ["source", "From", plain],
  ["model", "Model", plain],
  ["at", "Last call", (at) => (at === null ? "" : new Date(at * 1000).toISOString().replace("T", " ").slice(0, 16))],
  ["calls", "Calls", count],
  ["input", "Input tokens", (tokens) => (tokens === null ? "" : count(tokens))],
  ["dollars", "Cost", dollars],
  ["breaks", "Cache breaks", (breaks) => (breaks ? count(breaks) : "")],
  ["hidden", "Named while hidden", (names) => (names ? count(names) : "")],
];
let sessions = [];
let order = { key: null, down: true };

async function readSessions() {
  const bytes = Uint8Array.from(atob(byId("data").textContent), (one) => one.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

function cell(tag, text) {
  const made = document.createElement(tag);
  made.textContent = text;
  return made;
}

function draw() {
  const wanted = byId("query").value.trim().toLowerCase();
  const shown = sessions.filter((one) => (one.title + "\n" + one.words + "\n" + one.source + "\n" + one.model).toLowerCase().includes(wanted));
  if (order.key) {
    const sign = order.down ? -1 : 1;
    shown.sort((one, other) => (one[order.key] === other[order.key] ? 0 : (one[order.key] ?? -1) < (other[order.key] ?? -1) ? -sign : sign));
  }
  const head = document.createElement("thead");
  const names = head.insertRow();
  for (const [key, name] of COLUMNS) {
    const th = cell("th", "");
    th.scope = "col";
    if (order.key === key) th.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    const button = cell("button", name);
    button.className = "link";
    button.addEventListener("click", () => { order = { key, down: order.key === key ? !order.down : true }; draw(); document.querySelector(`th[aria-sort] button`)?.focus(); });
    th.append(button);
    names.append(th);
  }
  const body = document.createElement("tbody");
  for (const one of shown) {
    const row = body.insertRow();
    COLUMNS.forEach(([key, , format], place) => {
      const made = cell(place ? "td" : "th", place ? format(one[key]) : "");
      if (!place) {
        made.scope = "row";
        const link = cell("a", plain(one.title) || "a session");
        link.href = one.file;
        made.append(link, cell("p", plain(one.words)));
      }
      row.append(made);
    });
  }
  byId("sessions").replaceChildren(head, body);
  byId("state").textContent = shown.length === sessions.length ? "" : count(shown.length) + " of " + count(sessions.length) + " sessions";
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = theme === "dark" ? "Light" : "Dark";
}

function drawFacts() {
  const sum = (key) => sessions.reduce((total, one) => total + (one[key] || 0), 0);
  for (const [name, text] of [["Sessions", count(sessions.length)], ["Calls", count(sum("calls"))], ["Cost", dollars(sum("dollars"))], ["Cache breaks", count(sum("breaks"))]]) {
    const fact = document.createElement("div");
    fact.className = "fact";
    const value = document.createElement("dd");
    value.append(cell("strong", text));
    fact.append(cell("dt", name), value);
    byId("facts").append(fact);
  }
}

async function start() {
  const data = await readSessions();
  sessions = data.sessions;
  byId("origin").textContent = plain(data.origin);
  byId("query").addEventListener("input", draw);
  byId("find").addEventListener("submit", (event) => event.preventDefault());
  byId("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  drawFacts();
  draw();
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== byId("query")) { event.preventDefault(); byId("query").focus(); }
  });
  document.body.dataset.ready = "yes";
}

start();
