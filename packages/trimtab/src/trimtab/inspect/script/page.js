// Moving around: the part of the address after # says what is shown.

let routeNumber = 0;

const heading = (title, note, ...tools) => element("div", { class: "heading" },
  element("h2", { tabindex: -1, id: "title" }, title, note ? element("small", {}, note) : ""), tools);
const clampCall = (number) => Math.max(0, Math.min(columns.seq.length - 1, Number(number) - 1));

// Each view: the address, and what draws it. Nothing is shown before its first texts are there.
const VIEWS = {
  call: [/^call=(\d+)$/, (all, [number]) => takePrepared(clampCall(number)) || drawCall(all, clampCall(number))],
  diff: [/^diff=(\d+),(\d+)$/, (all, pair) => drawDiff(all, ...pair.map(clampCall))],
  message: [/^m(\d+)(?:\.\d+)?$/, (all, [seq]) => drawMessage(all, Number(seq))],
  search: [/^search=(.+)$/s, (all, [query]) => drawSearch(all, query)],
};

async function route() {
  const mine = (routeNumber += 1);
  let wanted = location.hash.slice(1);
  try { wanted = decodeURIComponent(wanted); } catch { wanted = ""; }
  const name = columns.seq.length && Object.keys(VIEWS).find((view) => VIEWS[view][0].test(wanted));
  if (name) {
    const [pattern, draw] = VIEWS[name];
    const nodes = [await draw(await loadStructure(), pattern.exec(wanted).slice(1))].flat().filter(Boolean);
    if (mine !== routeNumber) return;
    byId(name).replaceChildren(...nodes);
  }
  for (const view of Object.keys(VIEWS)) {
    byId(view).hidden = view !== name;
    if (view !== name) byId(view).replaceChildren();
  }
  byId("overview").hidden = Boolean(name);
  byId("back").hidden = !name;
  if (!name && columns.seq.length) selectCall(timeline.selected);
  window.scrollTo(0, 0);
  if (name) byId("title").focus({ preventScroll: true });
  document.body.dataset.shown = name ? wanted : "overview";
}

function startQuery() {
  byId("query").focus();
  byId("query").select();
}

function startKeys() {
  const goTo = (place) => { location.hash = place; };
  const steps = { j: 1, k: -1, ArrowRight: 1, ArrowLeft: -1 };
  document.addEventListener("keydown", (event) => {
    const active = document.activeElement;
    const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(active?.tagName || "");
    if (event.ctrlKey || event.metaKey || event.altKey || (isTyping && event.key !== "Escape")) return;
    const call = Number(/^#call=(\d+)$/.exec(location.hash)?.[1]);
    if (event.key === "Escape") {
      if (active === byId("query")) active.value = "";
      if (isTyping) active.blur();
      else if (byId("help").open) byId("help").close();
      else goTo("");
    } else if (event.key === "/") startQuery();
    else if (event.key === "?") byId("help").showModal();
    else if (event.key === "d" && call > 1) goTo("diff=" + (call - 1) + "," + call);
    else if (event.key === "n" && call) document.querySelector(".jump button")?.click();
    else if (event.key === "o" && call) document.querySelector(".list .original, .list .reveal")?.click();
    else if (event.key in steps && call) goTo("call=" + (clampCall(call + steps[event.key]) + 1));
    else if (event.key === "Enter" && location.hash === "" && active === document.body) openSelected();
    else return;
    event.preventDefault();
  });
}

async function start() {
  await loadSession();
  computeTotals();
  byId("name").replaceChildren(visibleText(session.title || "A session"));
  const origin = [session.source, session.policy, session.heads.at(-1)?.model, plural(session.messageCount, "message"), clock(columns.at.find((at) => at !== null))];
  byId("origin").replaceChildren(visibleText(origin.filter(Boolean).join(" · ")));
  byId("note").replaceChildren(visibleText([session.note, session.isRedacted ? "This page is redacted: it has no texts, only their lengths." : ""].filter(Boolean).join(" ")));
  startTheme(drawTimeline);
  byId("find").addEventListener("submit", (event) => {
    event.preventDefault();
    const query = byId("query").value.trim();
    if (VIEWS.message[0].test(query)) location.hash = query;
    else if (/^call \d+$/.test(query)) location.hash = query.replace(" ", "=");
    else if (query) location.hash = "search=" + encodeURIComponent(query);
  });
  byId("query").addEventListener("mousedown", (event) => {
    if (document.activeElement === event.target) return; // a second click sets the caret
    event.preventDefault();
    startQuery();
  });
  byId("keys").addEventListener("click", () => byId("help").showModal());
  drawFacts();
  drawFindings();
  drawMoney();
  if (columns.seq.length) {
    drawLegend();
    startTimeline();
    drawCallList();
  } else byId("charts").replaceChildren("This session has no call yet.");
  startKeys();
  window.addEventListener("hashchange", route);
  await route();
  document.body.dataset.ready = "yes";
  performance.mark("ready");
  if (columns.seq.length) requestAnimationFrame(() => setTimeout(prepare));
}

let prepared = null;

// After the first paint: the call that Enter opens is drawn, and what needs the structure.
async function prepare() {
  const all = await loadStructure();
  const call = timeline.selected;
  prepared = { call, node: await drawCall(all, call) };
  drawComposition(all);
}

function takePrepared(call) {
  const node = prepared?.call === call && timeline.selected === call ? prepared.node : null;
  prepared = null;
  return node;
}

start().catch((error) => {
  byId("name").textContent = "This page cannot be shown: " + error.message + ". It needs a browser of 2024 or newer.";
});
